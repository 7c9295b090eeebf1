//! The buffer pool: frames within a hard budget, and the few operations on them from which the
//! tree builds everything. Faults are in `fault`, eviction in `evictor`, write-back in `writeback`.

use crate::{
    allocate::PageAllocator,
    caller::{Inside, Process},
    error::{Error, Result},
    evictor::Signal,
    frame::{FrameHeader, FrameState},
    free_frames::FreeFrames,
    guard::{Exclusive, Moment, Optimistic, Shared},
    ids::{FrameId, Gsn, PageId, TreeId},
    in_flight::InFlight,
    io::{ReadTarget, Storage, TargetOwner, reads_on_this_thread},
    memory::FrameMemory,
    page::{PAGE_SIZE, PageMut, PageRef, Restart},
    page_map::GROW_MIN,
    racy::For,
    replacement::{FIRST_EPOCH, Policy},
    sync::{AtomicU32, AtomicU64, AtomicUsize, Mutex, Ordering},
    trace::{PageTrace, Way},
    upcalls::{LogBarrier, PageOwner},
    worker::{CounterSums, Counters, Worker},
    writeback::WriteQueue,
};
use crossbeam::utils::CachePadded;
use std::{
    sync::{Arc, OnceLock, Weak},
    time::{Duration, Instant},
};

/// Fewest frames of a pool: every tree needs its root, a path and a sibling, and the evictor some
/// choice. The model checker wants a pool that one small tree fills.
pub const MIN_FRAMES: usize = if cfg!(shuttle) { 14 } else { 48 };

/// Smallest pool budget in bytes.
pub const MIN_POOL_BYTES: u64 = (MIN_FRAMES * FrameMemory::FRAME_BYTES) as u64;

/// How a pool is set up.
#[derive(Debug, Clone)]
pub struct PoolOptions {
    /// Budget for frames and their headers, bytes. At least [`MIN_POOL_BYTES`].
    pub pool_bytes: u64,
    /// Replacement policy, `name` or `name:key=value,..`.
    pub policy: String,
    /// Evictor threads, at least 1.
    pub evictors: usize,
    /// Page images in flight at once to storage (k_w), at least 1.
    pub write_concurrency: usize,
    /// Without any progress for this long, waiting for a frame is an error.
    pub stall_timeout: Duration,
    /// Where page accesses are recorded; none: nowhere, at no cost.
    pub trace: Option<PageTrace>,
}

impl PoolOptions {
    /// What [`Pool::open`] would refuse.
    ///
    /// # Errors
    /// [`Error::InvalidOption`].
    pub fn check(&self) -> Result<()> {
        Policy::parse(&self.policy)?;
        if self.pool_bytes < MIN_POOL_BYTES {
            return Err(Error::InvalidOption(format!(
                "a pool of {} bytes is too small: the minimum is {MIN_POOL_BYTES} bytes \
                 ({MIN_FRAMES} frames)",
                self.pool_bytes
            )));
        }
        if self.frames() > u32::MAX as usize / 2 {
            return Err(Error::InvalidOption(format!(
                "a pool of {} bytes is too large: the maximum is {} frames",
                self.pool_bytes,
                u32::MAX / 2
            )));
        }
        for (name, value, max) in
            [("evictors", self.evictors, 256), ("write concurrency", self.write_concurrency, 1024)]
        {
            if !(1..=max).contains(&value) {
                return Err(Error::InvalidOption(format!(
                    "{name} must be between 1 and {max}, not {value}"
                )));
            }
        }
        Ok(())
    }

    /// Workers that the pool serves at a time, those of the engine's own threads included: each may keep a
    /// batch of free frames, and others must be left.
    pub fn max_workers(&self) -> usize {
        self.frames() / (4 * cache_batch(self.frames()))
    }

    fn frames(&self) -> usize {
        self.pool_bytes as usize / FrameMemory::FRAME_BYTES
    }
}

/// Free frames that a worker takes at a time.
fn cache_batch(frames: usize) -> usize {
    (frames / 2048).clamp(1, 32)
}

/// The pool. See the module documentation.
pub struct Pool {
    pub(crate) memory: FrameMemory,
    pub(crate) policy: Policy,
    epoch: CachePadded<AtomicU32>,
    /// Evictions since the epoch last advanced.
    epoch_evictions: CachePadded<AtomicU64>,
    /// Evictions per epoch.
    epoch_step: u64,
    pub(crate) free: FreeFrames,
    /// Free frames below this wake the evictors, who stop at `high_water`.
    pub(crate) low_water: usize,
    pub(crate) high_water: usize,
    cache_batch: usize,
    pub(crate) in_flight: InFlight,
    pub(crate) allocator: PageAllocator,
    pub(crate) storage: Arc<dyn Storage>,
    owner: Arc<dyn PageOwner>,
    pub(crate) barrier: Arc<dyn LogBarrier>,
    /// See [`Pool::distrust_storage`].
    pub(crate) distrusted: OnceLock<String>,
    pub(crate) signal: Signal,
    pub(crate) writes: WriteQueue,
    pub(crate) options: PoolOptions,
    counters: Mutex<CounterRegistry>,
    /// Frames ever returned to the free list: the measure of progress.
    pub(crate) freed: AtomicUsize,
    /// Writers that may be inside an X-merge, and how many ask them not to begin one.
    pub(crate) merging: AtomicUsize,
    pub(crate) merges_paused: AtomicUsize,
    /// Page ids that workers hold in reserve.
    pub(crate) reserved_pages: AtomicUsize,
    /// Those page ids, worker by worker.
    pub(crate) reserves: Mutex<Vec<Weak<Mutex<Vec<PageId>>>>>,
    /// Live workers.
    pub(crate) workers: AtomicUsize,
    /// Threads that wait for several reads at once ([`crate::Worker::resolve_all`]).
    pub(crate) reading_together: AtomicUsize,
    opened: Instant,
    /// The one that opened it, and that has its threads.
    process: Process,
    seeds: AtomicU64,
}

#[derive(Default)]
struct CounterRegistry {
    live: Vec<Arc<Counters>>,
    retired: CounterSums,
}

impl Pool {
    /// Reserves the memory of a pool over `storage`. Background threads are started separately.
    pub fn open(
        options: PoolOptions,
        storage: Arc<dyn Storage>,
        allocator: PageAllocator,
        owner: Arc<dyn PageOwner>,
        barrier: Arc<dyn LogBarrier>,
    ) -> Result<Arc<Pool>> {
        options.check()?;
        let (policy, epochs) = Policy::parse(&options.policy)?;
        let frames = options.frames();
        let low_water = (frames / 128).clamp(4, 512);
        Ok(Arc::new(Pool {
            memory: FrameMemory::map(frames)?,
            policy,
            epoch: CachePadded::new(AtomicU32::new(FIRST_EPOCH)),
            epoch_evictions: CachePadded::new(AtomicU64::new(0)),
            epoch_step: ((frames as f64 / epochs) as u64).max(1),
            free: FreeFrames::new(frames),
            low_water,
            high_water: 2 * low_water,
            cache_batch: cache_batch(frames),
            in_flight: InFlight::new(),
            allocator,
            storage,
            owner,
            barrier,
            distrusted: OnceLock::new(),
            signal: Signal::default(),
            writes: WriteQueue::new(options.write_concurrency),
            options,
            counters: Mutex::new(CounterRegistry::default()),
            freed: AtomicUsize::new(0),
            merging: AtomicUsize::new(0),
            merges_paused: AtomicUsize::new(0),
            reserved_pages: AtomicUsize::new(0),
            reserves: Mutex::new(Vec::new()),
            workers: AtomicUsize::new(0),
            reading_together: AtomicUsize::new(0),
            opened: Instant::now(),
            process: Process::current(),
            seeds: AtomicU64::new(1),
        }))
    }

    /// The process that opened the pool.
    #[inline(always)]
    pub fn process(&self) -> Process {
        self.process
    }

    /// How long an operation waits while nothing comes of it.
    pub fn stall_timeout(&self) -> Duration {
        self.options.stall_timeout
    }

    /// The caller may wait for others: it is not called by code that they may have to wait for, and there
    /// are others.
    ///
    /// # Errors
    /// [`Error::Reentrant`], [`Error::Forked`].
    #[inline]
    pub fn check_may_wait(&self) -> Result<()> {
        self.process.check()?;
        Inside::Change.refuse()
    }

    /// A worker for one session.
    pub fn worker(self: &Arc<Self>) -> Worker {
        Worker::new(self.clone(), self.seeds.fetch_add(1, Ordering::Relaxed))
    }

    /// Page ids that are allocated but in no tree, because workers hold them in reserve.
    pub fn reserved_pages(&self) -> usize {
        self.reserved_pages.load(Ordering::Relaxed)
    }

    /// Fails when one more worker could leave the pool without frames; see
    /// [`PoolOptions::max_workers`].
    ///
    /// # Errors
    /// [`Error::Limit`].
    pub fn check_workers(&self) -> Result<()> {
        let limit = self.options.max_workers();
        if self.workers.load(Ordering::Relaxed) < limit {
            return Ok(());
        }
        Err(Error::Limit(format!(
            "a pool of {} frames serves at most {limit} sessions at a time",
            self.frames()
        )))
    }

    /// Number of frames.
    #[inline(always)]
    pub fn frames(&self) -> usize {
        self.memory.frames()
    }

    /// Free frames right now.
    pub fn free_frames(&self) -> usize {
        self.free.len()
    }

    /// The storage below.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// The allocator of pages.
    pub fn allocator(&self) -> &PageAllocator {
        &self.allocator
    }

    /// The current epoch.
    #[inline(always)]
    pub fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Epochs since the pool was opened.
    pub fn epochs(&self) -> u32 {
        self.epoch() - FIRST_EPOCH
    }

    /// Name of the replacement policy.
    pub fn policy_name(&self) -> &'static str {
        self.policy.name()
    }

    /// Page accesses may have to be recorded: [`Optimistic::record`], [`Pool::record_way`].
    #[inline(always)]
    pub fn is_traced(&self) -> bool {
        self.options.trace.is_some()
    }

    /// Records the way that `lead` finds to a page that the caller is about to change; the change
    /// itself is recorded when its latch is released. The caller holds no latch.
    #[cold]
    pub fn record_way(&self, lead: impl FnOnce(&mut Way)) {
        if let Some(trace) = &self.options.trace {
            trace.record_read(lead, None);
        }
    }

    /// Header of a frame.
    ///
    /// # Panics
    /// If the frame is outside the pool.
    #[inline(always)]
    pub fn header(&self, frame: FrameId) -> &FrameHeader {
        &self.memory.headers()[frame.0 as usize]
    }

    pub(crate) fn headers(&self) -> &[FrameHeader] {
        self.memory.headers()
    }

    /// What must be asked before a page is written.
    pub fn barrier(&self) -> &dyn LogBarrier {
        &*self.barrier
    }

    pub(crate) fn owner(&self) -> &dyn PageOwner {
        &*self.owner
    }

    /// Racy bytes of a frame.
    ///
    /// # Panics
    /// If the frame is outside the pool.
    #[inline(always)]
    pub fn page_ref(&self, frame: FrameId) -> PageRef<'_> {
        self.memory.page_ref(frame)
    }

    /// Exclusive bytes of a latched frame.
    #[inline(always)]
    pub(crate) fn page_mut<'a>(&self, guard: &'a Exclusive<'_>) -> PageMut<'a> {
        self.memory.page_mut(guard)
    }

    /// Bytes of a latched frame for plain reads.
    #[inline(always)]
    pub(crate) fn page_bytes<'a>(&self, guard: &'a Exclusive<'_>) -> &'a [u8; PAGE_SIZE] {
        self.memory.page_bytes(guard)
    }

    pub(crate) fn read_target(
        &self,
        frame: FrameId,
        page: PageId,
        owner: Arc<dyn TargetOwner>,
    ) -> ReadTarget {
        self.memory.read_target(frame, page, owner)
    }

    /// Milliseconds since the pool was opened.
    pub(crate) fn elapsed_ms(&self) -> u32 {
        self.opened.elapsed().as_millis() as u32
    }

    /// Brings header and node header of a frame near. The id may be any racy number.
    #[inline(always)]
    pub fn prefetch(&self, frame: FrameId) {
        self.memory.prefetch(frame);
    }

    /// Brings the header of a frame and the first `lines` cache lines of its page near. The id may
    /// be any racy number.
    #[inline(always)]
    pub fn prefetch_lines(&self, frame: FrameId, lines: usize, what: For) {
        self.memory.prefetch_lines(frame, lines, what);
    }

    #[inline(always)]
    pub(crate) fn prefetch_header(&self, frame: FrameId) {
        self.memory.prefetch_header(frame, For::Read);
    }

    /// Starts an optimistic read of a frame, for a caller that holds a latch and may not wait. The
    /// id may be any racy number.
    ///
    /// # Errors
    /// [`Restart`] when there is no such frame or an exclusive holder is inside.
    pub fn try_optimistic(&self, frame: FrameId) -> Result<Optimistic<'_>, Restart> {
        let header = self.memory.headers().get(frame.0 as usize).ok_or(Restart)?;
        let version = header.latch.try_optimistic().ok_or(Restart)?;
        Ok(Optimistic { pool: self, header, page: self.page_ref(frame), frame, version })
    }

    /// Starts an optimistic read of a frame, waiting for an exclusive holder to leave; the caller
    /// holds no latch. The id may be any racy number.
    ///
    /// # Errors
    /// [`Restart`] when there is no such frame. When the holder stays for long, nothing validates.
    #[inline(always)]
    pub fn optimistic(&self, frame: FrameId) -> Result<Optimistic<'_>, Restart> {
        let header = self.memory.headers().get(frame.0 as usize).ok_or(Restart)?;
        let version = header.latch.optimistic();
        Ok(Optimistic { pool: self, header, page: self.page_ref(frame), frame, version })
    }

    /// Goes on with an optimistic read of a frame where it was left, if nobody has latched the frame
    /// for a change since, or is just doing so.
    #[inline(always)]
    pub fn optimistic_since(&self, moment: Moment) -> Option<Optimistic<'_>> {
        let frame = moment.frame();
        let header = self.memory.headers().get(frame.0 as usize)?;
        let version = header.latch.try_optimistic()?;
        let guard = Optimistic { pool: self, header, page: self.page_ref(frame), frame, version };
        moment.is(&guard).then_some(guard)
    }

    /// Latches a frame exclusively, waiting for other holders. Only for a caller that holds no
    /// other latch, or that latches from parent to child or from left to right.
    pub fn exclusive(&self, frame: FrameId) -> Exclusive<'_> {
        let header = self.header(frame);
        let version = header.latch.exclusive();
        Exclusive {
            pool: self,
            header,
            frame,
            version,
            changed: false,
            dirtied: false,
            stamped: false,
        }
    }

    /// Latches a frame exclusively if nobody is inside. Allowed in any order.
    #[inline]
    pub fn try_exclusive(&self, frame: FrameId) -> Option<Exclusive<'_>> {
        let header = self.memory.headers().get(frame.0 as usize)?;
        let version = header.latch.try_exclusive()?;
        Some(Exclusive {
            pool: self,
            header,
            frame,
            version,
            changed: false,
            dirtied: false,
            stamped: false,
        })
    }

    /// Latches a frame shared if no exclusive holder is inside. Allowed in any order.
    #[inline]
    pub fn try_shared(&self, frame: FrameId) -> Option<Shared<'_>> {
        let header = self.memory.headers().get(frame.0 as usize)?;
        header.latch.try_shared().then(|| Shared { pool: self, header, frame })
    }

    /// Makes a new page of `tree` in a frame of the worker's reserve and latches it. Its bytes are
    /// whatever the frame held: the caller writes a whole image.
    ///
    /// # Panics
    /// If the reserve was not checked ([`Worker::has_reserve`]).
    pub fn new_page(&self, worker: &Worker, tree: TreeId) -> (Exclusive<'_>, PageId) {
        let (frame, page) = worker.take_reserved();
        // Waits at most for an evictor that sampled the frame and looks at its state.
        let mut guard = self.exclusive(frame);
        let header = guard.header();
        header.assign(page, tree);
        header.set_clean_at(Gsn(0));
        header.change_state(FrameState::Free, FrameState::Hot);
        self.policy.on_load(&header.tracker, self.epoch());
        guard.mark_changed();
        (guard, page)
    }

    /// Frees the page under `guard` and its frame. No swip names it any more.
    pub fn free_page(&self, mut guard: Exclusive<'_>) {
        let (header, frame) = (guard.header(), guard.frame());
        assert_eq!(header.hot_children(), 0, "page {} is freed above a child", header.page_id());
        guard.mark_changed();
        let page = header.page_id();
        if header.is_writing() {
            // The writer still owns an image: the page id must not be used again before that
            // write has completed.
            header.change_state(FrameState::Hot, FrameState::Zombie);
            return;
        }
        header.change_state(FrameState::Hot, FrameState::Free);
        drop(guard);
        self.allocator.free(page);
        self.give_frames(&[frame]);
    }

    /// Pins the root of a tree that is opened, or unpins that of one that is closed. For replacement it
    /// counts as an access: those of an inner node are not counted otherwise. The caller makes sure that
    /// no evictor takes the frame meanwhile ([`crate::PageOwner::release_root`]).
    pub fn pin_root(&self, frame: FrameId, pinned: bool) {
        let header = self.header(frame);
        self.policy.on_access(&header.tracker, self.epoch());
        header.set_pinned(pinned);
    }

    /// Frees a page that has no frame and that no swip names any more; for dropping a whole tree,
    /// whose operations have all ended. A read of it may have been abandoned half way.
    pub fn free_evicted_page(&self, page: PageId) {
        // A cancelled read that has not ended finds that nobody wants the page.
        if let Some(frame) = self.in_flight.discard(page) {
            self.header(frame).change_state(FrameState::Loaded, FrameState::Free);
            self.give_frames(&[frame]);
        }
        self.allocator.free(page);
    }

    /// Takes a page of the store that has no frame, for contents that are written to storage
    /// directly.
    ///
    /// # Errors
    /// [`Error::DiskFull`] when the device has no room.
    pub fn allocate_page(&self) -> Result<PageId> {
        let mut least = GROW_MIN;
        loop {
            match self.allocator.allocate(&*self.storage, least) {
                // Others may take that room, and give up more meanwhile. Room for single pages is the last
                // resort: asking for it takes as long as for many.
                Err(Error::DiskFull { .. }) if self.barrier.give_room_back() => {}
                Err(Error::DiskFull { .. }) if least > 1 => least = 1,
                other => return other,
            }
        }
    }

    /// Frees a page id that no page has any more.
    pub fn free_page_id(&self, page: PageId) {
        self.allocator.free(page);
    }

    pub(crate) fn cache_batch(&self) -> usize {
        self.cache_batch
    }

    pub(crate) fn take_frames(&self, count: usize, into: &mut Vec<FrameId>) {
        let left = self.free.take(self.headers(), count, into);
        if left < self.low_water {
            self.signal.wake();
        }
    }

    /// Gives frames back that were free all the time.
    pub(crate) fn return_frames(&self, frames: &[FrameId]) {
        self.free.give(self.headers(), frames);
    }

    pub(crate) fn give_frames(&self, frames: &[FrameId]) {
        self.free.give(self.headers(), frames);
        self.freed.fetch_add(frames.len(), Ordering::Relaxed);
    }

    pub(crate) fn wait_for_frames(&self, waker: &std::task::Waker, count: usize) -> (bool, u64) {
        let waiting = self.free.wait(waker, count);
        self.signal.wake();
        waiting
    }

    pub(crate) fn frame_failures(&self) -> u64 {
        self.free.failures()
    }

    /// What was written to storage may be lost: from now on no page is believed that is read from there,
    /// because it may be an older one, with a good checksum. Pages in memory are right.
    pub fn distrust_storage(&self, why: &str) {
        // Whoever was first has said why.
        let _ = self.distrusted.set(why.to_string());
    }

    /// A background thread has ended by a panic: without it nothing may be waited for any more.
    pub(crate) fn poison(&self, why: &str) {
        tracing::error!(why, "the pool is poisoned");
        self.free.fail_for_ever(why);
    }

    /// The error of an operation that waited for that long.
    pub(crate) fn exhausted(&self, waited: Duration) -> Error {
        if let Some(why) = self.free.failed_for_ever() {
            return Error::Poisoned(why);
        }
        Error::PoolExhausted {
            frames: self.frames(),
            waited_ms: waited.max(self.options.stall_timeout).as_millis() as u64,
            why: match self.writes.last_error() {
                Some(error) => format!("writes fail: {error}"),
                None if reads_on_this_thread() => {
                    "every frame is in use by operations or by open trees, maybe by \
                                                   reads of tasks of this thread, which it blocks"
                        .to_string()
                }
                None => "every frame is in use by operations or by open trees".to_string(),
            },
        }
    }

    /// Counts evictions and advances the epoch when enough have happened (WATT, Listing 2).
    pub(crate) fn count_evictions(&self, count: u64) {
        let total = self.epoch_evictions.fetch_add(count, Ordering::Relaxed) + count;
        if total < self.epoch_step {
            return;
        }
        // Several threads may see the step passed; the one that takes it off advances the epoch.
        let left = total - self.epoch_step;
        if self
            .epoch_evictions
            .compare_exchange(total, left, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
        {
            self.epoch.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counters for a worker or a background thread; included in [`Pool::counters`].
    pub fn register_counters(&self) -> Arc<Counters> {
        let counters = Arc::new(Counters::default());
        self.counters.lock().live.push(counters.clone());
        counters
    }

    pub(crate) fn unregister_counters(&self, counters: &Arc<Counters>) {
        let mut registry = self.counters.lock();
        registry.retired.add(counters);
        registry.live.retain(|c| !Arc::ptr_eq(c, counters));
    }

    /// Sums of all counters since the pool was opened.
    pub fn counters(&self) -> CounterSums {
        let registry = self.counters.lock();
        let mut sums = registry.retired;
        registry.live.iter().for_each(|c| sums.add(c));
        sums
    }

    /// Makes the pool read-only or writable, for a test.
    #[doc(hidden)]
    pub fn protect(&self, read_only: bool) -> Result<()> {
        self.memory.protect(read_only)
    }
}
