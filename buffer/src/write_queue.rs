//! The queue of dirty pages for the writers.

use crate::{
    error::{Error, Result},
    ids::FrameId,
    sync::{AtomicUsize, Condvar, Mutex, Ordering},
};
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// A claimed dirty page.
#[derive(Clone, Copy)]
pub(crate) struct Claim {
    pub(crate) frame: FrameId,
    /// The page is evicted after the write if its value is still at most this.
    pub(crate) threshold: f32,
}

impl Claim {
    /// Whether the page is written for its frame, and not for a checkpoint.
    fn evicts(self) -> bool {
        self.threshold > f32::NEG_INFINITY
    }
}

/// Claims that a writer has taken, until their writes have ended.
pub(crate) struct TakenBatch<'c> {
    pub(crate) claims: &'c [Claim],
    began: Instant,
}

/// See the module documentation.
pub(crate) struct WriteQueue {
    state: Mutex<QueueState>,
    /// Signals work for writers, or the end.
    work: Condvar,
    capacity: usize,
    /// Pages that evictors queued and whose write has not ended.
    evictions: AtomicUsize,
}

#[derive(Default)]
struct QueueState {
    claims: VecDeque<Claim>,
    /// When each batch whose writes have not ended was taken.
    under_way: Vec<Instant>,
    stopping: bool,
    /// Error of the last batch; `None` once a batch succeeds.
    last_error: Option<Error>,
}

impl QueueState {
    fn take<'c>(&mut self, max: usize, into: &'c mut Vec<Claim>) -> Option<TakenBatch<'c>> {
        into.clear();
        let count = max.min(self.claims.len());
        if count == 0 {
            return None;
        }
        into.extend(self.claims.drain(..count));
        let began = Instant::now();
        self.under_way.push(began);
        Some(TakenBatch { claims: into, began })
    }
}

impl WriteQueue {
    pub(crate) fn new(write_concurrency: usize) -> Self {
        WriteQueue {
            state: Mutex::new(QueueState::default()),
            work: Condvar::new(),
            capacity: 2 * write_concurrency,
            evictions: AtomicUsize::new(0),
        }
    }

    /// Claims that wait for a writer.
    pub(crate) fn len(&self) -> usize {
        self.state.lock().claims.len()
    }

    /// Whether evictors should claim no more pages.
    pub(crate) fn is_full(&self) -> bool {
        self.state.lock().claims.len() >= self.capacity
    }

    /// Whether a checkpoint may add pages.
    pub(crate) fn has_room_for_checkpoint(&self) -> bool {
        self.state.lock().claims.len() < self.capacity / 2
    }

    /// Queues a page whose write the caller has claimed.
    pub(crate) fn push(&self, frame: FrameId, threshold: f32) {
        let claim = Claim { frame, threshold };
        self.evictions.fetch_add(usize::from(claim.evicts()), Ordering::Relaxed);
        self.state.lock().claims.push_back(claim);
        self.work.notify_one();
    }

    /// Pages that evictors queued and whose write has not ended.
    pub(crate) fn evictions(&self) -> usize {
        self.evictions.load(Ordering::Relaxed)
    }

    /// Notes the end of the writes of a batch.
    pub(crate) fn ended(&self, batch: &TakenBatch) {
        let evictions = batch.claims.iter().filter(|claim| claim.evicts()).count();
        self.evictions.fetch_sub(evictions, Ordering::Relaxed);
        let mut state = self.state.lock();
        let taken = state.under_way.iter().position(|began| *began == batch.began);
        state.under_way.swap_remove(taken.expect("a batch ends once"));
    }

    /// How long the oldest batch whose writes have not ended has been under way.
    pub(crate) fn oldest_batch(&self) -> Option<Duration> {
        self.state.lock().under_way.iter().map(Instant::elapsed).max()
    }

    /// As [`WriteQueue::push`], of pages that should be written together.
    pub(crate) fn push_batch(&self, claims: &[Claim]) {
        if claims.is_empty() {
            return;
        }
        let evictions = claims.iter().filter(|claim| claim.evicts()).count();
        self.evictions.fetch_add(evictions, Ordering::Relaxed);
        self.state.lock().claims.extend(claims);
        // Each writer takes its share of the batch.
        self.work.notify_all();
    }

    pub(crate) fn last_error(&self) -> Option<Error> {
        self.state.lock().last_error.clone()
    }

    pub(crate) fn stop(&self) {
        self.state.lock().stopping = true;
        self.work.notify_all();
    }

    pub(crate) fn restart(&self) {
        self.state.lock().stopping = false;
    }

    /// Takes up to `max` claims into `into`, sleeping while there are none. `None` when stopped and
    /// empty.
    pub(crate) fn take<'c>(&self, max: usize, into: &'c mut Vec<Claim>) -> Option<TakenBatch<'c>> {
        let mut state = self.state.lock();
        while state.claims.is_empty() && !state.stopping {
            self.work.wait(&mut state);
        }
        state.take(max, into)
    }

    /// As `take`, but never sleeps.
    #[cfg(shuttle)]
    pub(crate) fn take_now<'c>(
        &self,
        max: usize,
        into: &'c mut Vec<Claim>,
    ) -> Option<TakenBatch<'c>> {
        self.state.lock().take(max, into)
    }

    #[cfg(shuttle)]
    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().claims.is_empty()
    }

    pub(crate) fn note(&self, outcome: &Result<()>) {
        let mut state = self.state.lock();
        state.last_error = outcome.as_ref().err().cloned();
    }
}
