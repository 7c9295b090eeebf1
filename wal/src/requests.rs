//! Requests for flushes, and the flusher's sleep until there is one.
//!
//! Invariants: the flusher sleeps only while no request needs a flush; a thread that raises a
//! request word wakes the flusher. The lock of the signal orders this with the flusher's check of
//! the words, so no request is missed; a cut happens under the same lock.

use crate::{
    classes::Classes,
    epochs::{Cut, Epochs},
    gate::Gate,
    options::Urgency,
    pacing::{IDLE_FLUSH, NextStep, Reasons},
};
use parking_lot::{Condvar, Mutex};
use std::{
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::{Duration, Instant},
};
use wattle_buffer::Process;

/// See the module documentation.
pub(crate) struct FlushRequests {
    /// The process that has the flusher.
    process: Process,
    /// The largest epoch that was requested, by urgency.
    now: AtomicU64,
    soon: AtomicU64,
    /// Number of committers that the flusher waits for; 0: it waits for none.
    enough: AtomicUsize,
    signal: Mutex<FlushSignal>,
    wake: Condvar,
}

/// The flusher sleeps until one of these changes.
#[derive(Default)]
struct FlushSignal {
    closing: bool,
    checkpoint: Classes,
    /// When the first request with `Urgency::Soon` must have its flush.
    soon: Option<Instant>,
}

impl FlushRequests {
    pub(crate) fn new() -> FlushRequests {
        FlushRequests {
            process: Process::current(),
            now: AtomicU64::new(0),
            soon: AtomicU64::new(0),
            enough: AtomicUsize::new(0),
            signal: Mutex::default(),
            wake: Condvar::new(),
        }
    }

    /// Requests a flush that makes `epoch` durable. `delay` says how long a request with
    /// `Urgency::Soon` waits.
    pub(crate) fn request(
        &self,
        epoch: u64,
        urgency: Urgency,
        epochs: &Epochs,
        delay: impl FnOnce() -> Duration,
    ) {
        let requested = match urgency {
            Urgency::Now => &self.now,
            Urgency::Soon => &self.soon,
        };
        // Mostly another thread has requested this epoch already, and a load, unlike a store,
        // leaves the cache line shared.
        if requested.load(Ordering::Relaxed) >= epoch {
            return;
        }
        if self.process.is_other() {
            // It has no flusher to wake. A wait for the epoch fails with that reason.
            return;
        }
        // The thread that raises the word to this epoch wakes the flusher.
        if requested.fetch_max(epoch, Ordering::Relaxed) >= epoch {
            return;
        }
        let mut signal = self.signal.lock();
        if epochs.current_relaxed() > epoch {
            // The cut that takes it is under way.
            return;
        }
        if urgency == Urgency::Soon {
            if signal.soon.is_some() {
                return;
            }
            signal.soon = Some(Instant::now() + delay());
        }
        drop(signal);
        self.wake.notify_one();
    }

    /// Requests a checkpoint of some classes of pages. Gives the epoch that the last one began.
    pub(crate) fn request_checkpoint(&self, epochs: &Epochs, classes: Classes) -> u64 {
        let mut signal = self.signal.lock();
        signal.checkpoint = signal.checkpoint.and(classes);
        self.wake.notify_one();
        epochs.checkpoint()
    }

    /// Requests the last flush.
    pub(crate) fn request_close(&self) {
        self.signal.lock().closing = true;
        self.wake.notify_one();
    }

    /// The flusher waits until `enough` committers wait for it, for `longest` at most, and not
    /// before a checkpoint or the last flush.
    pub(crate) fn wait_for_group(&self, enough: usize, longest: Duration) {
        let until = Instant::now() + longest;
        let mut signal = self.signal.lock();
        self.enough.store(enough, Ordering::Relaxed);
        while !signal.closing
            && signal.checkpoint.is_empty()
            && self.enough.load(Ordering::Relaxed) != 0
            && !self.wake.wait_until(&mut signal, until).timed_out()
        {}
        self.enough.store(0, Ordering::Relaxed);
    }

    /// A committer begins to wait; `waiting` wait now.
    pub(crate) fn committer_waits(&self, waiting: usize) {
        let enough = self.enough.load(Ordering::Relaxed);
        if enough != 0 && waiting >= enough && self.enough.swap(0, Ordering::Relaxed) != 0 {
            // The flusher sleeps, or looks before it does.
            drop(self.signal.lock());
            self.wake.notify_one();
        }
    }

    /// The flusher sleeps until there is a reason to flush. Gives whether it is the last flush.
    /// `is_unflushed` says whether a flush would make anything durable; it is called without the
    /// lock.
    pub(crate) fn wait_for_reason(&self, epochs: &Epochs, is_unflushed: impl Fn() -> bool) -> bool {
        let mut idle = Instant::now() + IDLE_FLUSH;
        let mut signal = self.signal.lock();
        loop {
            let requested = self.now.load(Ordering::Relaxed) >= epochs.current_relaxed();
            let reasons = Reasons {
                closing: signal.closing,
                at_once: !signal.checkpoint.is_empty() || requested,
                soon: signal.soon,
                idle,
            };
            let now = Instant::now();
            match reasons.next(now) {
                NextStep::Last => return true,
                NextStep::Flush => return false,
                NextStep::Look => {
                    idle = now + IDLE_FLUSH;
                    drop(signal);
                    if is_unflushed() {
                        return false;
                    }
                    signal = self.signal.lock();
                }
                NextStep::Sleep(until) => _ = self.wake.wait_until(&mut signal, until),
            }
        }
    }

    /// Advances the epoch; sections that begin from now on are after the cut. `None` if the log
    /// failed: nothing that was appended since may become durable.
    pub(crate) fn cut(&self, epochs: &Epochs, gate: &Gate) -> Option<Cut> {
        let mut signal = self.signal.lock();
        if gate.is_poisoned() {
            return None;
        }
        signal.soon = None;
        Some(epochs.advance(std::mem::take(&mut signal.checkpoint)))
    }

    /// Forbids further cuts. Gives the last epoch of which records may be durable.
    pub(crate) fn end(&self, epochs: &Epochs, gate: &Gate) -> u64 {
        let _signal = self.signal.lock();
        gate.poison();
        epochs.end_last()
    }
}
