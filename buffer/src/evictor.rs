//! Background eviction: WATT's sampled, decentralised replacement (WATT, section 5.2, Listing 2).
//!
//! Evictor threads sleep while free frames suffice. Woken, each runs rounds until they do again:
//! a sample of 8 frames gives the threshold, 64 candidates are sampled with their headers
//! prefetched, those at or below the threshold are evicted if clean and queued for write-back if
//! dirty. No list, no lock and no order is shared between evictors.
//!
//! Latch order: descents latch from parent to child and may wait. Eviction needs child and parent
//! at once and comes from the child, so it only tries and never waits.

use crate::{
    frame::FrameState,
    free_frames::FreeFrames,
    ids::FrameId,
    memory::FrameMemory,
    pool::Pool,
    replacement::Replacement,
    swip::Swip,
    sync::{AtomicUsize, Builder, Condvar, JoinHandle, Mutex, Ordering, fence},
    thread::cpu_time_ns,
    with_policy,
    worker::Counters,
    writeback::{WRITERS, Writer},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Frames sampled for the threshold (Figure 3).
const SAMPLE: usize = 8;
/// Candidates of a round.
const CANDIDATES: usize = 64;
/// How far ahead headers are prefetched.
const AHEAD: usize = 16;
/// A loaded page that nobody swizzled for this long is taken back.
const LOADED_GRACE_MS: u32 = if cfg!(shuttle) { 0 } else { 100 };
/// Rounds without success after which evictors give up until somebody waits for a frame.
const IDLE_ROUNDS: u32 = if cfg!(shuttle) { 4 } else { 1000 };

/// How threads wake the evictors, and how evictors wait for writers.
#[derive(Default)]
pub(crate) struct Signal {
    state: Mutex<SignalState>,
    condition: Condvar,
    sleepers: AtomicUsize,
}

#[derive(Default)]
struct SignalState {
    calls: u64,
    batches: u64,
    stopping: bool,
}

impl Signal {
    /// Frames run low. Free when every evictor is awake.
    #[inline]
    pub(crate) fn wake(&self) {
        // Partner: the fence in `sleep`. Either we see the sleeper or it sees the free count.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            self.state.lock().calls += 1;
            self.condition.notify_all();
        }
    }

    /// A batch of writes has ended.
    pub(crate) fn progress(&self) {
        self.state.lock().batches += 1;
        self.condition.notify_all();
    }

    fn stop(&self) {
        self.state.lock().stopping = true;
        self.condition.notify_all();
    }

    fn is_stopping(&self) -> bool {
        self.state.lock().stopping
    }

    /// Sleeps until called, unless `needed` says that there is work already.
    fn sleep(&self, needed: impl Fn() -> bool) {
        let mut state = self.state.lock();
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let calls = state.calls;
        while state.calls == calls && !state.stopping && !needed() {
            self.condition.wait(&mut state);
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Waits for a batch of writes to end, or for at most `limit`.
    fn wait_progress(&self, limit: Duration) {
        #[cfg(shuttle)]
        {
            let _ = limit;
            crate::sync::yield_now();
        }
        #[cfg(not(shuttle))]
        {
            let mut state = self.state.lock();
            let batches = state.batches;
            let deadline = Instant::now() + limit;
            while state.batches == batches && !state.stopping {
                if self.condition.wait_until(&mut state, deadline).timed_out() {
                    break;
                }
            }
        }
    }
}

/// Evicts the page of `frame` if it is clean, has no hot children and is worth at most `threshold`.
/// Gives whether it did; the frame is then free and belongs to the caller. Never waits.
pub(crate) fn evict(pool: &Pool, frame: FrameId, threshold: f32) -> bool {
    // 1. Latch the page; whoever is inside is using it.
    let Some(mut child) = pool.try_exclusive(frame) else { return false };
    let header = child.header();
    // 2. Everything seen before the latch may have changed.
    let evictable = header.state() == FrameState::Hot
        && !header.is_dirty()
        && !header.is_writing()
        && !header.is_pinned()
        && header.hot_children() == 0;
    let value = with_policy!(&pool.policy, p => p.value(&header.tracker, pool.epoch()));
    if !evictable || value > threshold {
        return false;
    }
    // 3. Latch the parent, where the hint says or where a descent finds it.
    let (hinted, position) = header.parent_hint();
    let swip = Swip::hot(frame);
    let find = |parent: FrameId| {
        let guard = pool.try_exclusive(parent)?;
        let ours = guard.header().state() == FrameState::Hot
            && guard.header().tree_id() == header.tree_id();
        let place =
            ours.then(|| pool.owner().find_swip(guard.page(), swip.0, position)).flatten()?;
        Some((guard, place))
    };
    let found = find(hinted).or_else(|| {
        let parent = pool.owner().find_parent(pool, frame)?;
        header.set_parent_hint(parent, position);
        if parent == frame { None } else { find(parent) }
    });
    let _parent = match found {
        // 4. Unswizzle. From here descents find the page evicted; those that already read the hot swip
        //    fail to validate the parent.
        Some((mut parent, (offset, _))) => {
            parent.set_swip(offset, Swip::evicted(header.page_id()));
            parent.header().child_cooled();
            Some(parent)
        }
        // The root of a closed tree: the owner stands in for a parent.
        None if pool.owner().release_root(header.tree_id(), frame) => None,
        None => return false,
    };
    // 5. Free the frame. The changed version turns away whoever still looks at it.
    header.change_state(FrameState::Hot, FrameState::Free);
    child.mark_changed();
    true
}

/// One evictor.
pub(crate) struct Evictor {
    pool: Arc<Pool>,
    counters: Arc<Counters>,
    random: u64,
    freed: Vec<FrameId>,
}

impl Evictor {
    pub(crate) fn new(pool: Arc<Pool>, seed: u64) -> Evictor {
        let counters = pool.register_counters();
        let random = (seed + 1).wrapping_mul(0x2545_f491_4f6c_dd1d) | 1;
        Evictor { pool, counters, random, freed: Vec::with_capacity(CANDIDATES) }
    }

    fn sample<const N: usize>(&mut self) -> [FrameId; N] {
        let frames = self.pool.frames() as u64;
        std::array::from_fn(|_| {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            FrameId((((self.random >> 32) * frames) >> 32) as u32)
        })
    }

    /// Body of an evictor thread.
    fn run(mut self) {
        let pool = self.pool.clone();
        let mut gave_up = false;
        loop {
            let needed = || {
                if gave_up { pool.free.has_waiters() } else { pool.free.len() < pool.low_water }
            };
            pool.signal.sleep(needed);
            if pool.signal.is_stopping() {
                break;
            }
            gave_up = !self.refill();
            self.counters.evictor_cpu_ns.set(cpu_time_ns());
        }
        pool.unregister_counters(&self.counters);
    }

    /// Evicts until enough frames are free; false when nothing can be evicted and nobody waits.
    fn refill(&mut self) -> bool {
        let pool = self.pool.clone();
        let mut last_progress = (Instant::now(), pool.freed.load(Ordering::Relaxed));
        let mut idle_rounds = 0u32;
        while pool.free.len() < pool.high_water {
            if pool.signal.is_stopping() {
                return true;
            }
            let (evicted, queued) = with_policy!(&pool.policy, p => self.round(p));
            if evicted > 0 || queued > 0 {
                idle_rounds = 0;
            } else {
                idle_rounds += 1;
            }
            let freed = pool.freed.load(Ordering::Relaxed);
            if freed != last_progress.1 {
                last_progress = (Instant::now(), freed);
            } else if last_progress.0.elapsed() > pool.options.stall_timeout {
                tracing::warn!(
                    frames = pool.frames(),
                    free = pool.free.len(),
                    "back-pressure: no frame could be freed for {:?}",
                    pool.options.stall_timeout
                );
                pool.free.fail_waiters();
                return false;
            }
            if idle_rounds > 2 {
                // A cancelled operation may have swallowed the wake-up of another, which would
                // sleep beside a free frame.
                if pool.free.len() > 0 && pool.free.has_waiters() {
                    pool.free.wake_all();
                }
                // Everything cold is being written, or nothing is cold: sampling faster would not
                // help.
                if idle_rounds > IDLE_ROUNDS && !pool.free.has_waiters() {
                    return false;
                }
                let limit = Duration::from_micros(50 << idle_rounds.min(8));
                pool.signal.wait_progress(limit);
            }
        }
        // A wake-up may have gone to an operation that was cancelled.
        if pool.free.has_waiters() {
            pool.free.wake_all();
        }
        true
    }

    /// One round of Listing 2; gives how many pages were evicted and how many were queued.
    pub(crate) fn round<P: Replacement>(&mut self, policy: &P) -> (usize, usize) {
        let pool = self.pool.clone();
        let epoch = pool.epoch();
        // 1. The threshold: the lowest value of a small sample.
        let sample: [FrameId; SAMPLE] = self.sample();
        let candidates: [FrameId; CANDIDATES] = self.sample();
        for frame in sample.iter().chain(&candidates[..AHEAD]) {
            pool.prefetch_header(*frame);
        }
        let mut threshold = f32::INFINITY;
        for frame in sample {
            let header = pool.header(frame);
            // Only what could be evicted: a cold root or a page that is being written already would
            // set a threshold that no candidate reaches.
            if header.state() == FrameState::Hot
                && header.hot_children() == 0
                && !header.is_pinned()
                && !header.is_writing()
            {
                threshold = threshold.min(policy.value(&header.tracker, epoch));
            }
        }
        // 2. Candidates at or below it.
        let mut cold = [FrameId(0); CANDIDATES];
        let mut count = 0;
        for (i, frame) in candidates.iter().enumerate() {
            if let Some(ahead) = candidates.get(i + AHEAD) {
                pool.prefetch_header(*ahead);
            }
            let header = pool.header(*frame);
            match header.state() {
                FrameState::Hot
                    if header.hot_children() == 0
                        && !header.is_writing()
                        && !header.is_pinned()
                        && policy.value(&header.tracker, epoch) <= threshold =>
                {
                    pool.prefetch_header(header.parent_hint().0);
                    cold[count] = *frame;
                    count += 1;
                }
                FrameState::Loaded => self.reclaim(*frame),
                _ => {}
            }
        }
        // 3. Evict the clean ones, queue the dirty ones.
        let mut queued = 0;
        for frame in &cold[..count] {
            if pool.header(*frame).is_dirty() {
                queued += usize::from(queue_write(&pool, *frame, threshold));
            } else if evict(&pool, *frame, threshold) {
                self.freed.push(*frame);
            }
        }
        let evicted = self.freed.len();
        if evicted > 0 {
            self.counters.evictions.add(evicted as u64);
            pool.give_frames(&self.freed);
            self.freed.clear();
            // 4. Time advances with evictions.
            pool.count_evictions(evicted as u64);
        }
        (evicted, queued)
    }

    /// What [`Evictor::reclaim`] freed outside of a round.
    #[cfg(shuttle)]
    pub(crate) fn take_freed(&mut self) -> Vec<FrameId> {
        std::mem::take(&mut self.freed)
    }

    /// Takes back a loaded page that nobody came for.
    pub(crate) fn reclaim(&mut self, frame: FrameId) {
        let pool = &self.pool;
        let header = pool.header(frame);
        if pool.elapsed_ms().wrapping_sub(header.link()) < LOADED_GRACE_MS {
            return;
        }
        if pool.in_flight.reclaim(header.page_id(), frame) {
            header.change_state(FrameState::Loaded, FrameState::Free);
            self.freed.push(frame);
        }
    }
}

impl Pool {
    /// Runs eviction rounds on the calling thread until `count` pages were evicted or a thousand
    /// rounds in a row found none; gives how many were. For the micro-benchmark of the evictor.
    #[doc(hidden)]
    pub fn evict_pages(self: &Arc<Self>, count: usize) -> usize {
        let mut evictor = Evictor::new(self.clone(), 77);
        let (mut evicted, mut idle) = (0, 0);
        while evicted < count && idle < 1000 {
            let (pages, _) = with_policy!(&self.policy, p => evictor.round(p));
            evicted += pages;
            idle = if pages > 0 { 0 } else { idle + 1 };
        }
        self.unregister_counters(&evictor.counters);
        evicted
    }
}

/// Claims a dirty page for the writers. False when it changed its state or they have enough to do.
pub(crate) fn queue_write(pool: &Pool, frame: FrameId, threshold: f32) -> bool {
    if pool.writes.is_full() {
        return false;
    }
    // Under the latch, so that only a hot page is ever claimed: a claimed page is freed by its
    // writer alone.
    let Some(guard) = pool.try_exclusive(frame) else { return false };
    let header = guard.header();
    if header.state() != FrameState::Hot || !header.is_dirty() || !header.claim_write() {
        return false;
    }
    drop(guard);
    pool.writes.push(frame, threshold);
    true
}

/// The evictor and writer threads of a pool, the one that has the kernel give memory for its frames, and the
/// one that wakes tasks that have waited for long.
/// Dropping it stops and joins them.
pub struct Background {
    pool: Arc<Pool>,
    evictors: Vec<JoinHandle<()>>,
    writers: Vec<JoinHandle<()>>,
    /// One that wakes tasks by the time, and one that has the kernel give memory for frames.
    others: Vec<JoinHandle<()>>,
}

/// Body of the thread that has the kernel give memory for the frames that are used next: a huge page that is zeroed
/// when it is first touched would make an operation wait for a millisecond or several.
fn make_frames_ready(free: &FreeFrames, memory: &FrameMemory) {
    while let Some(frames) = free.wait_unready() {
        if let Err(error) = memory.populate(frames) {
            tracing::debug!(%error, "frames get their memory when they are first used");
            free.stop_ready();
        }
    }
}

impl Background {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the operating system refuses a thread.
    pub fn start(pool: &Arc<Pool>) -> crate::Result<Background> {
        pool.signal.state.lock().stopping = false;
        pool.writes.restart();
        pool.free.start_ready();
        let mut background = Background {
            pool: pool.clone(),
            evictors: Vec::new(),
            writers: Vec::new(),
            others: Vec::new(),
        };
        let spawn = |name: String, body: Box<dyn FnOnce() + Send>| {
            let pool = pool.clone();
            let guarded = move || {
                // Whoever waits for a frame must not wait for a thread that is gone.
                let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
                if let Err(panic) = ended {
                    pool.poison("a background thread of the pool panicked");
                    std::panic::resume_unwind(panic);
                }
            };
            Builder::new()
                .name(name.clone())
                .spawn(guarded)
                .map_err(|error| crate::Error::io(format_args!("start thread {name}"), error))
        };
        for i in 0..pool.options.evictors {
            let evictor = Evictor::new(pool.clone(), i as u64);
            background
                .evictors
                .push(spawn(format!("wattle-evict-{i}"), Box::new(move || evictor.run()))?);
        }
        let batch = pool.options.write_concurrency.div_ceil(WRITERS);
        for i in 0..WRITERS {
            let writer = Writer::new(pool.clone(), batch);
            background
                .writers
                .push(spawn(format!("wattle-write-{i}"), Box::new(move || writer.run()))?);
        }
        if !pool.free.are_all_ready() {
            let pool = pool.clone();
            let frames = move || make_frames_ready(&pool.free, &pool.memory);
            background.others.push(spawn("wattle-frames".to_string(), Box::new(frames))?);
        }
        pool.in_flight.watch.start();
        let ours = pool.clone();
        let watch = move || ours.in_flight.watch.run(&ours.in_flight);
        background.others.push(spawn("wattle-watch".to_string(), Box::new(watch))?);
        Ok(background)
    }
}

impl Background {
    /// Stops and joins the threads.
    ///
    /// # Errors
    /// [`crate::Error::Poisoned`] when one of them had panicked.
    pub fn stop(mut self) -> crate::Result<()> {
        self.join()
    }

    fn join(&mut self) -> crate::Result<()> {
        self.pool.free.stop_ready();
        // Evictors first: they feed the writers, who empty their queue before they end.
        self.pool.signal.stop();
        let evictors = self.evictors.drain(..).filter_map(|thread| thread.join().err()).count();
        self.pool.writes.stop();
        let writers = self.writers.drain(..).filter_map(|thread| thread.join().err()).count();
        self.pool.in_flight.watch.stop();
        let others = self.others.drain(..).filter_map(|thread| thread.join().err()).count();
        if evictors + writers + others == 0 {
            return Ok(());
        }
        let what =
            format!("{evictors} evictor, {writers} writer and {others} other threads panicked");
        Err(crate::Error::Poisoned(what))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Err(error) = self.join() {
            tracing::error!(%error, "background threads of the pool had ended early");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_next_in_line_get_memory_before_they_are_used() {
        const FRAMES: usize = 16 * 1024;
        let free = FreeFrames::new(FRAMES);
        let memory = FrameMemory::map(FRAMES).expect("64 MiB");
        if let Err(error) = memory.populate(0..1) {
            return eprintln!("skipped: the kernel gives memory only when it is touched: {error}");
        }
        free.start_ready();
        let mut taken = Vec::new();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| make_frames_ready(&free, &memory));
            for _ in 0..64 {
                free.take(memory.headers(), 50, &mut taken);
            }
            let until = Instant::now() + Duration::from_secs(60);
            while memory.populated(3584..6144) < 6144 - 3584 {
                assert!(Instant::now() < until, "nobody sees to the frames behind those in use");
                std::thread::sleep(Duration::from_millis(1));
            }
            // As many as are in use and no more.
            assert_eq!(memory.populated(6656..FRAMES as u32), 0);
            free.stop_ready();
            thread.join().expect("ends");
        });
        free.start_ready();
        while free.take(memory.headers(), 50, &mut taken) > 0 {}
        while let Some(frames) = free.wait_unready() {
            memory.populate(frames).expect("once more");
        }
        assert!(taken.iter().map(|frame| frame.0).eq(0..FRAMES as u32), "each once, in order");
    }
}
