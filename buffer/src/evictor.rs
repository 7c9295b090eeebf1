//! Background eviction: WATT's sampled, decentralised replacement (WATT, section 5.2, Listing 2).
//!
//! Evictor threads sleep while there are enough free frames. When woken, each runs rounds until
//! there are enough again. A round takes the threshold from a sample of 8 frames and samples 64
//! candidates, whose headers it prefetches. Of the candidates at or below the threshold it evicts
//! the clean ones and queues the dirty ones for write-back. Evictors share no list, no lock and no
//! order.
//!
//! A policy with an order of its own proposes the victims of a round instead, and only as many as
//! are missing. Both kinds of rounds end at once if nothing can leave. Evictors then wait as they
//! do for the writers, so no order makes them spin: each page of a round leaves, is written, or is
//! refused and then no longer the next one of its order.

use crate::{
    ace::{DirtyVictims, ORDERED},
    counters::{Counters, Refusal},
    evict::{evict, obstacle},
    frame::FrameState,
    ids::FrameId,
    pool::Pool,
    random::SeededRandom,
    replacement::{Frames, Leave, Order, Replacement, Standing, Tracker, with_policy},
    scope::{ScopePart, scope},
    thread::cpu_time_ns,
    writeback::queue_write,
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Frames sampled for the threshold (Figure 3).
const SAMPLE: usize = 8;
/// Candidates of a round.
const CANDIDATES: usize = 64;
/// Number of candidates by which headers are prefetched ahead.
const AHEAD: usize = 16;
/// A loaded page that no operation swizzled for this long is reclaimed.
const LOADED_GRACE_MS: u32 = if cfg!(shuttle) { 0 } else { 100 };
/// Rounds without success after which an evictor sleeps until a thread waits for a frame.
const IDLE_ROUNDS: u32 = if cfg!(shuttle) { 4 } else { 1000 };

/// One evictor.
pub(crate) struct Evictor {
    pool: Arc<Pool>,
    counters: Arc<Counters>,
    random: SeededRandom,
    freed: Vec<FrameId>,
    /// Frames that the order of the policy proposes.
    proposed: Vec<FrameId>,
    /// Dirty victims, if they are written in batches.
    victims: Option<DirtyVictims>,
    /// Evicts although enough frames are free.
    for_ever: bool,
}

impl Evictor {
    pub(crate) fn new(pool: Arc<Pool>, seed: u64) -> Evictor {
        let counters = pool.register_counters();
        let random = SeededRandom::new(seed).mix(0);
        let (freed, proposed) = (Vec::with_capacity(CANDIDATES), Vec::with_capacity(CANDIDATES));
        let victims = DirtyVictims::new(&pool, seed);
        Evictor { pool, counters, random, freed, proposed, victims, for_ever: false }
    }

    fn sample<const N: usize>(&mut self) -> [FrameId; N] {
        let frames = self.pool.frames() as u64;
        std::array::from_fn(|_| FrameId(self.random.below(frames) as u32))
    }

    /// Body of an evictor thread.
    pub(crate) fn run(mut self) {
        let pool = self.pool.clone();
        let mut gave_up = false;
        loop {
            let needed = || {
                if gave_up {
                    pool.free.has_waiters()
                } else {
                    pool.free.len() < pool.free.low_water()
                }
            };
            pool.evict_signal.sleep(needed);
            if pool.evict_signal.is_stopping() {
                break;
            }
            gave_up = !self.refill();
            self.counters.evictor_cpu_ns.set(cpu_time_ns());
        }
        pool.unregister_counters(&self.counters);
    }

    /// Evicts until enough frames are free. Returns false if no page can be evicted and no thread
    /// waits.
    fn refill(&mut self) -> bool {
        let pool = self.pool.clone();
        let mut last_progress = (Instant::now(), pool.free.freed());
        let mut idle_rounds = 0u32;
        while pool.free.len() < pool.free.high_water() {
            if pool.evict_signal.is_stopping() {
                return true;
            }
            let (evicted, queued) = self.round();
            if evicted > 0 || queued > 0 {
                idle_rounds = 0;
            } else {
                idle_rounds += 1;
            }
            let freed = pool.free.freed();
            if freed != last_progress.1 {
                last_progress = (Instant::now(), freed);
            } else if pool.is_stalled(last_progress.0) {
                tracing::warn!(
                    frames = pool.frames(),
                    free = pool.free.len(),
                    "back-pressure: no frame could be freed for {:?}",
                    last_progress.0.elapsed()
                );
                pool.free.fail_waiters();
                return false;
            }
            if idle_rounds > 2 {
                // A cancelled operation may have consumed the wake-up of another one, which would
                // sleep although a frame is free.
                if pool.free.len() > 0 && pool.free.has_waiters() {
                    pool.free.wake_all();
                }
                // Either all cold pages are being written or no page is cold: more samples would
                // not help.
                if idle_rounds > IDLE_ROUNDS && !pool.free.has_waiters() {
                    return false;
                }
                let limit = Duration::from_micros(50 << idle_rounds.min(8));
                pool.evict_signal.wait_progress(limit);
            }
        }
        // A wake-up may have gone to a cancelled operation.
        if pool.free.has_waiters() {
            pool.free.wake_all();
        }
        true
    }

    /// Runs one round. Returns how many pages were evicted and how many were queued.
    pub(crate) fn round(&mut self) -> (usize, usize) {
        let _scope = scope(ScopePart::Victims);
        let pool = self.pool.clone();
        match pool.policy.order() {
            Some(order) => self.round_in_order(order),
            None => with_policy!(&pool.policy, policy => self.round_by_value(policy)),
        }
    }

    /// Evicts the pages that `order` proposes, or queues them for write-back: as many as are needed
    /// beside those that are being written already.
    fn round_in_order(&mut self, order: &dyn Order) -> (usize, usize) {
        let pool = self.pool.clone();
        let evicted = self.evict_written();
        if evicted > 0 {
            return (evicted, 0);
        }
        // 1. Loaded pages that no operation swizzled are in no order: look for them in a sample.
        for frame in self.sample::<SAMPLE>() {
            if pool.header(frame).state() == FrameState::Loaded {
                self.reclaim(frame);
            }
        }
        // 2. Ask for victims.
        let (staying, found) = match &self.victims {
            Some(victims) => (victims.staying(), victims.found()),
            None => (0, 0),
        };
        let coming = pool.free.len() + self.freed.len() + pool.writes.evictions() + staying;
        let most = match self.for_ever {
            true => CANDIDATES,
            false => pool.free.high_water().saturating_sub(coming).min(CANDIDATES),
        };
        let mut proposed = std::mem::take(&mut self.proposed);
        proposed.clear();
        if most > found {
            order.propose(&PoolFrames(&pool), most - found, &mut proposed);
        }
        self.counters.candidates.add(proposed.len() as u64);
        // 3. Evict the clean ones and queue the dirty ones.
        let mut queued = 0;
        for frame in proposed.iter().copied() {
            let header = pool.header(frame);
            let left = if !header.is_dirty() {
                let evicted = evict(&pool, &self.counters, frame, ORDERED);
                evicted.then(|| self.freed.push(frame)).is_some()
            } else if let Some(victims) = &mut self.victims {
                victims.add(&pool, frame, ORDERED);
                true
            } else {
                match queue_write(&pool, frame, ORDERED) {
                    Ok(()) => {
                        queued += 1;
                        true
                    }
                    Err(why) => {
                        self.counters.refuse(why);
                        // While the queue is full the page is the next victim still.
                        pool.writes.is_full()
                    }
                }
            };
            if !left {
                order.refused(frame, &header.tracker);
            }
        }
        if let Some(victims) = &mut self.victims
            && most > 0
        {
            let order: (&dyn Order, &dyn Frames) = (order, &PoolFrames(&pool));
            queued += victims.write_in_order(&pool, &self.counters, order, &proposed);
        }
        self.counters.queued.add(queued as u64);
        self.proposed = proposed;
        (self.give_freed(), queued)
    }

    /// Runs one round of Listing 2.
    fn round_by_value<P: Replacement>(&mut self, policy: &P) -> (usize, usize) {
        let pool = self.pool.clone();
        let epoch = pool.epoch();
        let evicted = self.evict_written();
        if evicted > 0 {
            return (evicted, 0);
        }
        // 1. The threshold is the lowest value in a small sample.
        let sample: [FrameId; SAMPLE] = self.sample();
        let candidates: [FrameId; CANDIDATES] = self.sample();
        for frame in sample.iter().chain(&candidates[..AHEAD]) {
            pool.prefetch_evict_candidate(*frame);
        }
        let mut threshold = f32::INFINITY;
        for frame in sample {
            let header = pool.header(frame);
            // Only pages that could be evicted count: a cold root, or a page that is being written,
            // would set a threshold that no candidate reaches.
            if header.state() == FrameState::Hot && obstacle(header).is_none() {
                threshold = threshold.min(policy.value(&header.tracker, epoch));
            }
        }
        if threshold.is_finite() {
            self.counters.thresholds.add(1);
            self.counters.threshold_sum.add(f64::from(threshold));
        }
        // 2. Sample candidates, and keep those at or below the threshold.
        self.counters.candidates.add(CANDIDATES as u64);
        let mut cold = [FrameId(0); CANDIDATES];
        let mut count = 0;
        for (i, frame) in candidates.iter().enumerate() {
            if let Some(ahead) = candidates.get(i + AHEAD) {
                pool.prefetch_evict_candidate(*ahead);
            }
            let header = pool.header(*frame);
            let refused = match header.state() {
                FrameState::Hot => obstacle(header).or_else(|| {
                    (policy.value(&header.tracker, epoch) > threshold).then_some(Refusal::Hotter)
                }),
                FrameState::Loaded => {
                    self.reclaim(*frame);
                    Some(Refusal::NoPage)
                }
                _ => Some(Refusal::NoPage),
            };
            if let Some(why) = refused {
                self.counters.refuse(why);
                continue;
            }
            pool.prefetch_evict_candidate(header.parent_hint().0);
            cold[count] = *frame;
            count += 1;
        }
        // 3. Evict the clean ones and queue the dirty ones.
        let mut queued = 0;
        for frame in &cold[..count] {
            let header = pool.header(*frame);
            if !header.is_dirty() {
                if evict(&pool, &self.counters, *frame, threshold) {
                    self.freed.push(*frame);
                }
            } else if let Some(victims) = &mut self.victims {
                victims.add(&pool, *frame, policy.value(&header.tracker, epoch));
            } else {
                match queue_write(&pool, *frame, threshold) {
                    Ok(()) => queued += 1,
                    Err(why) => self.counters.refuse(why),
                }
            }
        }
        if let Some(victims) = &mut self.victims {
            queued += victims.write(&pool, &self.counters, policy, threshold);
        }
        self.counters.queued.add(queued as u64);
        (self.give_freed(), queued)
    }

    /// Evicts pages that were written in batches, as many as are needed. Returns their number.
    fn evict_written(&mut self) -> usize {
        let Some(victims) = &mut self.victims else { return 0 };
        let pool = &self.pool;
        let needed = pool.free.high_water().saturating_sub(pool.free.len());
        let (evicted, written) =
            victims.evict_written(pool, &self.counters, needed, &mut self.freed);
        self.counters.evictions_dirty.add(written as u64);
        if evicted > 0 { self.give_freed() } else { 0 }
    }

    /// Frees the frames whose pages were evicted, and advances the epoch clock, which counts
    /// evictions. Returns their number.
    fn give_freed(&mut self) -> usize {
        let evicted = self.freed.len();
        if evicted > 0 {
            self.counters.evictions.add(evicted as u64);
            self.pool.give_frames(&self.freed);
            self.freed.clear();
            self.pool.count_evictions(evicted as u64);
        }
        evicted
    }

    /// The counters of the evictor.
    #[cfg(shuttle)]
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The frames that [`Evictor::reclaim`] freed outside of a round.
    #[cfg(shuttle)]
    pub(crate) fn take_freed(&mut self) -> Vec<FrameId> {
        std::mem::take(&mut self.freed)
    }

    /// Reclaims a loaded page that no operation swizzled.
    pub(crate) fn reclaim(&mut self, frame: FrameId) {
        let pool = &self.pool;
        let header = pool.header(frame);
        if pool.elapsed_ms().wrapping_sub(header.link()) < LOADED_GRACE_MS {
            return;
        }
        if pool.in_flight.reclaim(header.page_id(), frame) {
            let visit = pool.visit(frame, header);
            pool.policy.on_leave(visit, header.page_id(), Leave::Dropped);
            header.change_state(FrameState::Loaded, FrameState::Free);
            self.freed.push(frame);
        }
    }
}

/// The frames of a pool, for an order.
struct PoolFrames<'p>(&'p Pool);

impl Frames for PoolFrames<'_> {
    fn count(&self) -> usize {
        self.0.frames()
    }

    fn epoch(&self) -> u32 {
        self.0.epoch()
    }

    fn tracker(&self, frame: FrameId) -> &Tracker {
        &self.0.header(frame).tracker
    }

    fn standing(&self, frame: FrameId) -> Standing {
        let header = self.0.header(frame);
        if header.state() != FrameState::Hot {
            Standing::Empty
        } else if header.is_pinned() || header.hot_children() > 0 {
            Standing::Held
        } else if header.is_writing() {
            Standing::Writing
        } else if header.is_dirty() {
            Standing::Dirty
        } else {
            Standing::Clean
        }
    }
}

impl Pool {
    /// Runs eviction rounds on the calling thread until `count` pages were evicted, or a thousand
    /// rounds in a row evicted none. Returns how many were evicted. For the micro-benchmark of the
    /// evictor.
    #[doc(hidden)]
    pub fn evict_pages(self: &Arc<Self>, count: usize) -> usize {
        self.evict_while(77, |evicted| evicted < count)
    }

    /// As [`Pool::evict_pages`], while `goes_on` says so, which gets the number of evicted pages
    /// before each round. Each thread needs a seed of its own, and one call for all of its rounds:
    /// the frames that a round looks at follow from the seed and the rounds before.
    #[doc(hidden)]
    pub fn evict_while(
        self: &Arc<Self>,
        seed: u64,
        mut goes_on: impl FnMut(usize) -> bool,
    ) -> usize {
        let mut evictor = Evictor::new(self.clone(), seed);
        evictor.for_ever = true;
        let (mut evicted, mut idle) = (0, 0);
        while idle < 1000 && goes_on(evicted) {
            let (pages, _) = evictor.round();
            evicted += pages;
            idle = if pages > 0 { 0 } else { idle + 1 };
        }
        self.unregister_counters(&evictor.counters);
        evicted
    }
}
