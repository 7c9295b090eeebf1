//! A worker: the state of one session that it does not share: a cache of free frames and page ids,
//! counters, random numbers, and a way to sleep.

use crate::{
    counters::Counters,
    error::{Error, Result},
    ids::{FrameId, PageId},
    pool::{Pool, WAIT_FACTOR},
    random::SeededRandom,
    reserves::Reserve,
    sync::{Condvar, Mutex},
};
use std::{
    cell::{Cell, RefCell},
    sync::Arc,
    task::{Wake, Waker},
    time::{Duration, Instant},
};

/// Upper bound on the frames that an operation may need at once; a root split needs two.
pub const MAX_RESERVE: usize = 4;

/// Lets a thread sleep until a [`Waker`] made from it is woken.
#[derive(Default)]
pub(crate) struct Parker {
    woken: Mutex<bool>,
    condition: Condvar,
}

impl Parker {
    /// Sleeps until woken, or for `limit`; a wake-up before the call counts. Returns whether it was
    /// woken.
    #[cfg(not(shuttle))]
    fn park_for(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut woken = self.woken.lock();
        while !*woken && !self.condition.wait_until(&mut woken, until).timed_out() {}
        std::mem::take(&mut *woken)
    }

    /// The model has no time: a time limit may always have passed. Most models have no wait that
    /// only time ends, and check that.
    #[cfg(shuttle)]
    fn park_for(&self, ends: bool) -> bool {
        let mut woken = self.woken.lock();
        if !*woken && ends {
            drop(woken);
            crate::sync::yield_now();
            woken = self.woken.lock();
        }
        while !*woken && !ends {
            self.condition.wait(&mut woken);
        }
        std::mem::take(&mut *woken)
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        *self.woken.lock() = true;
        self.condition.notify_one();
    }
}

/// See the module documentation. Used by one thread at a time, but may move between threads.
pub struct Worker {
    pool: Arc<Pool>,
    counters: Arc<Counters>,
    frames: RefCell<Vec<FrameId>>,
    pages: Reserve,
    random: Cell<SeededRandom>,
    parker: Arc<Parker>,
    waker: Waker,
    /// When the current operation first waited, for a frame or for the read of another operation.
    waits_since: Cell<Option<Instant>>,
    /// It is one of the workers that the pool is limited to.
    counts: bool,
}

impl Pool {
    /// A worker for the engine's own work. It counts for [`Pool::session_worker`].
    pub fn worker(self: &Arc<Self>) -> Worker {
        self.workers.begin();
        Worker::new(self.clone(), self.workers.next_seed(), true)
    }

    /// A worker that does not count for [`Pool::session_worker`]: for work that ends when frames
    /// are lacking, and of which there is one at a time.
    pub fn extra_worker(self: &Arc<Self>) -> Worker {
        Worker::new(self.clone(), self.workers.next_seed(), false)
    }

    /// A worker for one session.
    ///
    /// # Errors
    /// [`Error::Limit`] if one more worker could leave the pool without frames; see
    /// [`PoolOptions::max_workers`](crate::PoolOptions::max_workers).
    pub fn session_worker(self: &Arc<Self>) -> Result<Worker> {
        let limit = self.options.max_workers();
        if self.workers.begin_below(limit) {
            return Ok(Worker::new(self.clone(), self.workers.next_seed(), true));
        }
        Err(Error::Limit(format!(
            "a pool of {} frames serves at most {limit} sessions at a time",
            self.frames()
        )))
    }
}

impl Worker {
    /// `counts`: it was counted.
    fn new(pool: Arc<Pool>, seed: u64, counts: bool) -> Worker {
        let parker = Arc::new(Parker::default());
        let counters = pool.register_counters();
        let pages = Arc::new(Mutex::new(Vec::with_capacity(MAX_RESERVE)));
        pool.reserves.register(&pages);
        Worker {
            counters,
            frames: RefCell::new(Vec::with_capacity(pool.free.batch() + MAX_RESERVE)),
            pages,
            random: Cell::new(SeededRandom::new(seed)),
            waker: Waker::from(parker.clone()),
            parker,
            waits_since: Cell::new(None),
            counts,
            pool,
        }
    }

    /// The pool of the worker.
    #[inline(always)]
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The counters of the worker.
    #[inline(always)]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// A random number.
    #[inline]
    pub fn random(&self) -> u64 {
        let mut random = self.random.get();
        let number = random.next_u64();
        self.random.set(random);
        number
    }

    /// Starts the clock of an operation that has to wait, for any number of things until its end.
    pub fn begin_waiting(&self) {
        self.waits_since.set(None);
    }

    pub(crate) fn note_wait(&self) {
        if self.waits_since.get().is_none() {
            self.waits_since.set(Some(Instant::now()));
        }
    }

    fn waited(&self) -> Duration {
        self.waits_since.get().map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Whether the operation has waited too long although frames come free: others take those
    /// frames, or evict the pages that it had before.
    pub(crate) fn waited_too_long(&self) -> bool {
        let (limit, waited) = (self.pool.options.stall_timeout, self.waited());
        // While pages can be written, this operation only has to wait for its turn.
        waited > limit && (self.pool.writes.last_error().is_some() || waited > WAIT_FACTOR * limit)
    }

    /// Checks an operation that restarted many times because others changed or held the pages that
    /// it read.
    ///
    /// # Errors
    /// [`Error::Limit`] if it has not ended within several stall timeouts.
    pub fn check_restarts(&self) -> Result<()> {
        self.note_wait();
        let waited = self.waited();
        if waited <= WAIT_FACTOR * self.pool.options.stall_timeout {
            return Ok(());
        }
        Err(Error::Limit(format!(
            "an operation did not finish within {} ms, because other operations kept changing or \
             holding the pages that it needs",
            waited.as_millis()
        )))
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Sleeps until the waker is woken, or for that long. Returns whether it was woken.
    #[cfg(not(shuttle))]
    pub(crate) fn park_for(&self, limit: Duration) -> bool {
        self.parker.park_for(limit)
    }

    #[cfg(shuttle)]
    pub(crate) fn park_for(&self, _: Duration) -> bool {
        self.parker.park_for(self.pool.in_flight.impatient.load(crate::sync::Ordering::Relaxed))
    }

    /// Takes a free frame from the cache, and fills the cache from the pool if it is empty.
    pub(crate) fn take_frame(&self) -> Option<FrameId> {
        let mut frames = self.frames.borrow_mut();
        if frames.is_empty() {
            self.pool.take_frames(self.pool.free.batch(), &mut frames);
        }
        frames.pop()
    }

    /// Ensures that [`Pool::new_page`] can be called `count` times. Returns `false` if frames are
    /// lacking; the caller then waits without holding any.
    pub(crate) fn reserve(&self, count: usize) -> Result<bool> {
        assert!(count <= MAX_RESERVE);
        while self.pages.lock().len() < count {
            let page = self.pool.allocate_page()?;
            self.pages.lock().push(page);
            self.pool.reserves.count_added(1);
        }
        let mut frames = self.frames.borrow_mut();
        if frames.len() < count {
            let lacking = count.max(self.pool.free.batch()) - frames.len();
            self.pool.take_frames(lacking, &mut frames);
        }
        if frames.len() < count {
            // Holding some frames while waiting for more could deadlock. Giving them back does not
            // count as progress of the evictors.
            self.pool.return_frames(&frames);
            frames.clear();
            return Ok(false);
        }
        Ok(true)
    }

    /// Tries, without waiting, to make `count` new pages available, for optional work. The caller
    /// holds no latch.
    pub fn try_reserve(&self, count: usize) -> bool {
        self.has_reserve(count) || self.reserve(count).unwrap_or(false)
    }

    /// Whether `count` new pages are available.
    #[inline]
    pub fn has_reserve(&self, count: usize) -> bool {
        self.pages.lock().len() >= count && self.frames.borrow().len() >= count
    }

    /// Takes a frame and a page id out of the reserve.
    ///
    /// # Panics
    /// If the reserve was not checked before.
    pub(crate) fn take_reserved(&self) -> (FrameId, PageId) {
        let frame = self.frames.borrow_mut().pop().expect("reserved frame");
        self.pool.reserves.count_taken(1);
        (frame, self.pages.lock().pop().expect("reserved page"))
    }

    /// Gives back all frames and page ids.
    pub fn release(&self) {
        let mut frames = self.frames.borrow_mut();
        self.pool.return_frames(&frames);
        frames.clear();
        for page in self.pages.lock().drain(..) {
            self.pool.free_page_id(page);
            self.pool.reserves.count_taken(1);
        }
    }

    /// The error of an operation that cannot get a frame.
    pub(crate) fn exhausted(&self) -> Error {
        self.pool.exhausted(self.waited())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.release();
        if self.counts {
            self.pool.workers.end();
        }
        self.pool.unregister_counters(&self.counters);
    }
}
