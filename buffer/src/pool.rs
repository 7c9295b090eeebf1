//! The buffer pool: frames within a hard budget, and the operations on them that the trees use.
//! This file only wires the parts together; each part has a file of its own.

use crate::{
    allocate::PageAllocator,
    caller::{Inside, Process},
    counters::{CounterRegistry, CounterSums, Counters},
    epoch_clock::EpochClock,
    error::{Error, Result},
    evict_signal::EvictSignal,
    frame::FrameHeader,
    free_frames::FreeFrames,
    ids::{FrameId, PageId},
    in_flight::InFlight,
    io::{ReadTarget, Storage, TargetOwner, reads_on_this_thread},
    memory::FrameMemory,
    merge_gate::MergeGate,
    page::PageRef,
    page_table::PageTable,
    pool_options::{PoolOptions, cache_batch},
    racy::For,
    reader::Reader,
    replacement::{FIRST_EPOCH, HitTracking, Policy, Visit, Watt},
    reserves::Reserves,
    trace::Way,
    tuning,
    upcalls::{LogBarrier, PageOwner},
    worker_count::WorkerCount,
    write_options::Ace,
    write_queue::WriteQueue,
};
use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

/// Number of stall timeouts that an operation waits for a frame while other operations get frames,
/// or while the device holds writes.
pub(crate) const WAIT_FACTOR: u32 = 4;

/// The pool. See the module documentation.
pub struct Pool {
    pub(crate) options: PoolOptions,
    pub(crate) memory: FrameMemory,
    pub(crate) policy: Policy,
    hits: HitTracking,
    epochs: EpochClock,
    pub(crate) free: FreeFrames,
    pub(crate) in_flight: InFlight,
    /// Used only in a pool without swizzling.
    pub(crate) table: Option<PageTable>,
    pub(crate) evict_signal: EvictSignal,
    pub(crate) writes: WriteQueue,
    pub(crate) merges: MergeGate,
    pub(crate) allocator: PageAllocator,
    pub(crate) reserves: Reserves,
    pub(crate) workers: WorkerCount,
    counters: CounterRegistry,
    reader: Option<Reader>,
    pub(crate) storage: Arc<dyn Storage>,
    /// Whether reads from storage are refused, see [`Pool::distrust_storage`].
    pub(crate) distrusted: OnceLock<String>,
    owner: Arc<dyn PageOwner>,
    pub(crate) barrier: Arc<dyn LogBarrier>,
    opened: Instant,
    /// The process that opened the pool, and that has its threads.
    process: Process,
}

impl Pool {
    /// Creates a pool over `storage` and maps its memory. [`crate::Background`] starts the threads.
    pub fn open(
        options: PoolOptions,
        storage: Arc<dyn Storage>,
        allocator: PageAllocator,
        owner: Arc<dyn PageOwner>,
        barrier: Arc<dyn LogBarrier>,
    ) -> Result<Arc<Pool>> {
        options.check()?;
        let frames = options.frames();
        let (policy, epochs) = Policy::parse(&options.policy, frames)?;
        let counters = CounterRegistry::default();
        let reader = (options.ace == Ace::Full)
            .then(|| Reader::new(options.write_concurrency, frames, counters.register()));
        Ok(Arc::new(Pool {
            memory: FrameMemory::map(frames)?,
            hits: policy.hit_tracking(),
            policy,
            epochs: EpochClock::new((frames as f64 / epochs) as u64),
            free: FreeFrames::new(frames, cache_batch(frames)),
            in_flight: InFlight::new(),
            table: (!options.swizzling).then(|| PageTable::new(frames)),
            evict_signal: EvictSignal::default(),
            writes: WriteQueue::new(options.write_concurrency),
            merges: MergeGate::default(),
            allocator,
            reserves: Reserves::default(),
            workers: WorkerCount::default(),
            counters,
            reader,
            storage,
            distrusted: OnceLock::new(),
            owner,
            barrier,
            opened: Instant::now(),
            process: Process::current(),
            options,
        }))
    }

    /// The process that opened the pool.
    #[inline(always)]
    pub fn process(&self) -> Process {
        self.process
    }

    /// How long an operation waits without any progress before it returns an error.
    pub fn stall_timeout(&self) -> Duration {
        self.options.stall_timeout
    }

    /// Checks that the caller may wait for other threads.
    ///
    /// # Errors
    /// [`Error::Reentrant`] if other threads may have to wait for the caller, [`Error::Forked`] if
    /// this process has no other threads.
    #[inline]
    pub fn check_may_wait(&self) -> Result<()> {
        self.process.check()?;
        Inside::Change.refuse()?;
        Inside::Durable.refuse()
    }

    /// Number of page ids that are allocated but in no tree, because workers hold them in reserve.
    pub fn reserved_pages(&self) -> usize {
        self.reserves.pages()
    }

    /// Number of frames.
    #[inline(always)]
    pub fn frames(&self) -> usize {
        self.memory.frames()
    }

    /// Predicts reads, if the pool does so ([`Ace::Full`]).
    pub fn reader(&self) -> Option<&Reader> {
        self.reader.as_ref()
    }

    /// Pages that may be on their way to storage at once.
    pub fn write_concurrency(&self) -> usize {
        self.options.write_concurrency
    }

    /// Pages that a scan may read ahead.
    pub fn read_ahead(&self) -> usize {
        self.options.read_ahead
    }

    /// Number of free frames, without those in the caches of workers.
    pub fn free_frames(&self) -> usize {
        self.free.len()
    }

    /// Pages that wait for a writer thread.
    pub fn queued_writes(&self) -> usize {
        self.writes.len()
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
        self.epochs.epoch()
    }

    /// Reports a read of the page in a frame to the policy. The hottest call of the engine after
    /// the latch: WATT is inlined, others get only the header, which the guard has at hand.
    #[inline(always)]
    pub(crate) fn track(&self, header: &FrameHeader) {
        match self.hits {
            HitTracking::Watt => Watt::track(&header.tracker, self.epoch()),
            HitTracking::None => {}
            HitTracking::Other => self.track_other(header),
        }
    }

    /// Reports a change of the page in a frame to the policy.
    #[inline(always)]
    pub(crate) fn track_write(&self, header: &FrameHeader) {
        match self.hits {
            HitTracking::Watt => {
                let epoch = self.epoch();
                Watt::track(&header.tracker, epoch);
                Watt::track_write(&header.tracker, epoch);
            }
            HitTracking::None => {}
            HitTracking::Other => self.track_other_write(header),
        }
    }

    #[cold]
    #[inline(never)]
    fn track_other(&self, header: &FrameHeader) {
        self.policy.on_access(self.visit(self.memory.frame_of(header), header));
    }

    #[cold]
    #[inline(never)]
    fn track_other_write(&self, header: &FrameHeader) {
        self.policy.on_write(self.visit(self.memory.frame_of(header), header));
    }

    /// An event at the page of a frame, for the policy.
    pub(crate) fn visit<'p>(&'p self, frame: FrameId, header: &'p FrameHeader) -> Visit<'p> {
        let page = Some(self.page_ref(frame));
        Visit { frame, tracker: &header.tracker, epoch: self.epoch(), page }
    }

    /// Epochs since the pool was opened.
    pub fn epochs(&self) -> u32 {
        self.epoch() - FIRST_EPOCH
    }

    /// Name of the replacement policy.
    pub fn policy_name(&self) -> &'static str {
        self.policy.name()
    }

    /// Whether page accesses may have to be recorded:
    /// [`Optimistic::record`](crate::Optimistic::record), [`Pool::record_way`].
    #[inline(always)]
    pub fn is_traced(&self) -> bool {
        self.options.trace.is_some()
    }

    /// Records the inner pages that `lead` finds on the way to a page that the caller is about to
    /// change. The change itself is recorded when its latch is released. The caller holds no latch.
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

    /// The frames that may have a page. A look at all others would take time in a large pool that
    /// is hardly used. A frame that is taken later gets its page after this call.
    pub(crate) fn used_frames(&self) -> impl Iterator<Item = FrameId> {
        (0..self.free.first_unused()).map(FrameId)
    }

    pub(crate) fn headers(&self) -> &[FrameHeader] {
        self.memory.headers()
    }

    /// The log, which must be durable up to a page's last change before that page is written.
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

    /// Prefetches the header of a frame and the first lines of its page. The id may be any racy
    /// number.
    #[inline(always)]
    pub fn prefetch(&self, frame: FrameId) {
        self.memory.prefetch(frame);
    }

    /// Prefetches the header of a frame and the first `lines` cache lines of its page. The id may
    /// be any racy number.
    #[inline(always)]
    pub fn prefetch_lines(&self, frame: FrameId, lines: usize, what: For) {
        self.memory.prefetch_lines(frame, lines, what);
    }

    /// The page of a frame, to prefetch or to guess from. The id may be any racy number.
    #[inline(always)]
    pub fn any_page(&self, frame: FrameId) -> Option<PageRef<'_>> {
        self.memory.headers().get(frame.0 as usize)?;
        Some(self.memory.page_ref(frame))
    }

    #[inline(always)]
    pub(crate) fn prefetch_evict_candidate(&self, frame: FrameId) {
        if tuning::EVICT_PREFETCH {
            self.memory.prefetch_header(frame, For::Read);
        }
    }

    pub(crate) fn take_frames(&self, count: usize, into: &mut Vec<FrameId>) {
        let left = self.free.take(self.headers(), count, into);
        if left < self.free.low_water() {
            self.evict_signal.wake();
        }
    }

    /// Whether it is pointless to wait longer for a frame that comes free, or a page that is
    /// written, when there was none since `since`. A device that holds writes and ends none of them
    /// is slow rather than dead: it gets [`WAIT_FACTOR`] times as long.
    pub(crate) fn is_stalled(&self, since: Instant) -> bool {
        let (limit, waited) = (self.options.stall_timeout, since.elapsed());
        waited > limit && (waited > WAIT_FACTOR * limit || self.writes_on_device().is_none())
    }

    /// How long the device has held writes, if that is why no frame comes free.
    fn writes_on_device(&self) -> Option<Duration> {
        self.writes.oldest_batch().filter(|held| *held >= self.options.stall_timeout / 2)
    }

    /// Gives back frames that were not used.
    pub(crate) fn return_frames(&self, frames: &[FrameId]) {
        self.free.put_back(self.headers(), frames);
    }

    pub(crate) fn give_frames(&self, frames: &[FrameId]) {
        self.free.give(self.headers(), frames);
    }

    pub(crate) fn wait_for_frames(&self, waker: &std::task::Waker, count: usize) -> (bool, u64) {
        let waiting = self.free.wait(waker, count);
        self.evict_signal.wake();
        waiting
    }

    pub(crate) fn frame_failures(&self) -> u64 {
        self.free.failures()
    }

    /// Makes every read from storage fail from now on: writes may be lost, so storage may return an
    /// old page with a valid checksum. Pages in memory are right.
    pub fn distrust_storage(&self, why: &str) {
        // The first reason is kept.
        let _ = self.distrusted.set(why.to_string());
    }

    /// Makes waiting fail, because a background thread panicked and can no longer end a wait.
    pub(crate) fn poison(&self, why: &str) {
        tracing::error!(why, "the pool is poisoned");
        self.free.fail_for_ever(why);
    }

    /// The error of an operation that has waited for the stall timeout without progress.
    pub(crate) fn exhausted(&self, waited: Duration) -> Error {
        if let Some(why) = self.free.failed_for_ever() {
            return Error::Poisoned(why);
        }
        let held = self.writes_on_device();
        let why = match (self.writes.last_error(), held) {
            (Some(error), _) => format!("writes fail: {error}"),
            (None, Some(held)) => {
                format!("the device has not ended writes of pages for {held:.1?}")
            }
            (None, None) if reads_on_this_thread() => {
                "every frame is in use by operations or by open trees, perhaps by reads of tasks \
                 of this thread, which it blocks"
                    .to_string()
            }
            (None, None) => "every frame is in use by operations or by open trees".to_string(),
        };
        let waited_ms = waited.max(self.options.stall_timeout).as_millis() as u64;
        Error::PoolExhausted { frames: self.frames(), waited_ms, why }
    }

    /// Counts evictions and advances the epoch.
    pub(crate) fn count_evictions(&self, count: u64) {
        self.epochs.count_evictions(count);
    }

    /// Creates counters for a worker or a background thread; [`Pool::counters`] includes them.
    pub fn register_counters(&self) -> Arc<Counters> {
        self.counters.register()
    }

    pub(crate) fn unregister_counters(&self, counters: &Arc<Counters>) {
        self.counters.unregister(counters);
    }

    /// Sums of all counters since the pool was opened.
    pub fn counters(&self) -> CounterSums {
        CounterSums { swizzles: self.in_flight.swizzles(), ..self.counters.sums() }
    }

    /// Makes the pool read-only or writable, for a test.
    #[doc(hidden)]
    pub fn protect(&self, read_only: bool) -> Result<()> {
        self.memory.protect(read_only)
    }
}
