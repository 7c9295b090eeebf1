//! The free frames of a pool.
//!
//! Free frames form a stack through their headers. Frames that were never used are only counted, so
//! opening a large pool touches no memory. The thread `wattle-frames` has the kernel provide the
//! memory of the next unused frames ahead of time ([`FreeFrames::wait_unready`]). Workers take
//! frames in batches ([`crate::Worker`]).

use crate::{
    frame::FrameHeader,
    ids::FrameId,
    memory::{HUGE_PAGE, HUGE_PAGES_MIN},
    page::PAGE_SIZE,
    scope::{ScopePart, scope},
    sync::{AtomicUsize, Condvar, Mutex, Ordering},
    tuning,
};
use std::{collections::VecDeque, ops::Range, task::Waker};

const END: u32 = u32::MAX;

/// Frames that get memory in one step: a huge page.
const READY_STEP: u32 = (HUGE_PAGE / PAGE_SIZE) as u32;
/// Upper bound on unused frames with memory. It is also at most the number of frames in use, so
/// that a small store in a large pool takes little memory.
const READY_AHEAD: u32 = 32 * READY_STEP;
/// Smaller pools have no huge pages, so no frame gets its memory ahead of use.
const READY_MIN: usize = if tuning::POPULATE { HUGE_PAGES_MIN / PAGE_SIZE } else { usize::MAX };

/// The stack of free frames, and the operations that wait for one.
pub(crate) struct FreeFrames {
    list: Mutex<FreeList>,
    /// Signalled when unused frames should get memory, and when that work must stop.
    unready: Condvar,
    /// Copy of the length, to be read without the lock.
    len: AtomicUsize,
    /// Frames given back after use, in total: the measure of progress.
    freed: AtomicUsize,
    /// With fewer free frames than this the evictors are woken. They stop at twice as many.
    low_water: usize,
    /// Number of free frames that a worker takes at once.
    batch: usize,
}

struct FreeList {
    head: u32,
    listed: usize,
    /// The frames from here on were never used.
    fresh: u32,
    frames: u32,
    /// Unused frames below this have memory, or will have it soon.
    ready: u32,
    /// No thread provides memory ahead of use.
    ready_stopped: bool,
    waiters: VecDeque<Waker>,
    /// How often all waiters were told to give an error.
    failures: u64,
    /// Set once waiting is pointless for good: the reason.
    dead: Option<String>,
}

impl FreeList {
    /// Start of the next huge page of frames that needs memory. The page that `fresh` lies in was
    /// touched by the frames before it.
    fn first_unready(&self) -> u32 {
        self.ready.max(self.fresh.next_multiple_of(READY_STEP))
    }

    /// The next huge page of frames that should get memory now, if any.
    fn unready(&self) -> Option<Range<u32>> {
        let start = self.first_unready();
        let frames = start..start + READY_STEP;
        let target = self.frames.min(self.fresh + self.fresh.min(READY_AHEAD));
        (frames.end <= target).then_some(frames)
    }

    fn are_all_ready(&self) -> bool {
        self.first_unready() + READY_STEP > self.frames
    }
}

impl FreeFrames {
    pub(crate) fn new(frames: usize, batch: usize) -> Self {
        let list = FreeList {
            head: END,
            listed: 0,
            fresh: 0,
            frames: frames as u32,
            ready: if frames < READY_MIN { frames as u32 } else { 0 },
            ready_stopped: true,
            waiters: VecDeque::new(),
            failures: 0,
            dead: None,
        };
        FreeFrames {
            list: Mutex::new(list),
            unready: Condvar::new(),
            len: AtomicUsize::new(frames),
            freed: AtomicUsize::new(0),
            low_water: (frames / 128).clamp(4, 512),
            batch,
        }
    }

    /// With fewer free frames than this the evictors are woken.
    pub(crate) fn low_water(&self) -> usize {
        self.low_water
    }

    /// Evictors stop when this many frames are free.
    pub(crate) fn high_water(&self) -> usize {
        2 * self.low_water
    }

    /// Number of free frames that a worker takes at once.
    pub(crate) fn batch(&self) -> usize {
        self.batch
    }

    /// Frames from this number on were never used.
    pub(crate) fn first_unused(&self) -> u32 {
        self.list.lock().fresh
    }

    /// Frames given back after use, in total.
    pub(crate) fn freed(&self) -> usize {
        self.freed.load(Ordering::Relaxed)
    }

    /// Number of free frames, without those in the caches of workers.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Moves up to `count` frames into `into`; returns how many are left.
    pub(crate) fn take(
        &self,
        headers: &[FrameHeader],
        count: usize,
        into: &mut Vec<FrameId>,
    ) -> usize {
        let _scope = scope(ScopePart::FreeList);
        let mut list = self.list.lock();
        for _ in 0..count {
            if list.listed > 0 {
                let frame = list.head;
                list.head = headers[frame as usize].link();
                list.listed -= 1;
                into.push(FrameId(frame));
            } else if list.fresh < list.frames {
                into.push(FrameId(list.fresh));
                list.fresh += 1;
            } else {
                break;
            }
        }
        let left = list.listed + (list.frames - list.fresh) as usize;
        self.len.store(left, Ordering::Relaxed);
        if !list.ready_stopped && list.unready().is_some() {
            self.unready.notify_one();
        }
        left
    }

    /// Waits until unused frames should get memory, and returns them; the caller provides it.
    /// Returns `None` when the caller must stop.
    pub(crate) fn wait_unready(&self) -> Option<Range<u32>> {
        let mut list = self.list.lock();
        while !list.ready_stopped && !list.are_all_ready() {
            if let Some(frames) = list.unready() {
                list.ready = frames.end;
                return Some(frames);
            }
            self.unready.wait(&mut list);
        }
        None
    }

    /// Whether no frame is left for [`FreeFrames::wait_unready`].
    pub(crate) fn are_all_ready(&self) -> bool {
        self.list.lock().are_all_ready()
    }

    /// Makes [`FreeFrames::wait_unready`] wait for work.
    pub(crate) fn start_ready(&self) {
        self.list.lock().ready_stopped = false;
    }

    /// Makes [`FreeFrames::wait_unready`] return `None`.
    pub(crate) fn stop_ready(&self) {
        self.list.lock().ready_stopped = true;
        self.unready.notify_all();
    }

    /// Gives back frames that were in use, and wakes one waiter for each.
    pub(crate) fn give(&self, headers: &[FrameHeader], frames: &[FrameId]) {
        self.put_back(headers, frames);
        self.freed.fetch_add(frames.len(), Ordering::Relaxed);
    }

    /// Gives back frames that were not used, and wakes one waiter for each.
    pub(crate) fn put_back(&self, headers: &[FrameHeader], frames: &[FrameId]) {
        if frames.is_empty() {
            return;
        }
        let mut wake = Vec::new();
        {
            let mut list = self.list.lock();
            for frame in frames {
                headers[frame.0 as usize].set_link(list.head);
                list.head = frame.0;
                list.listed += 1;
            }
            self.len.store(list.listed + (list.frames - list.fresh) as usize, Ordering::Relaxed);
            let count = frames.len().min(list.waiters.len());
            wake.extend(list.waiters.drain(..count));
        }
        wake.into_iter().for_each(Waker::wake);
    }

    /// Registers a waiter unless `count` frames are free. Returns whether it did, and the failure
    /// count to compare with later.
    pub(crate) fn wait(&self, waker: &Waker, count: usize) -> (bool, u64) {
        let mut list = self.list.lock();
        let free = list.listed + (list.frames - list.fresh) as usize >= count;
        if !free && list.dead.is_some() {
            // With the previous count the caller sees a failure at once.
            return (true, list.failures.wrapping_sub(1));
        }
        if !free {
            list.waiters.push_back(waker.clone());
        }
        (!free, list.failures)
    }

    /// Whether an operation waits for a frame.
    pub(crate) fn has_waiters(&self) -> bool {
        !self.list.lock().waiters.is_empty()
    }

    /// Wakes all waiters, because a cancelled one may have consumed the wake-up of another.
    pub(crate) fn wake_all(&self) {
        let waiters = std::mem::take(&mut self.list.lock().waiters);
        waiters.into_iter().for_each(Waker::wake);
    }

    /// Wakes all waiters with a failure: each that has waited long enough returns an error.
    pub(crate) fn fail_waiters(&self) {
        let waiters = {
            let mut list = self.list.lock();
            list.failures += 1;
            std::mem::take(&mut list.waiters)
        };
        waiters.into_iter().for_each(Waker::wake);
    }

    /// Makes waiting fail from now on.
    pub(crate) fn fail_for_ever(&self, why: &str) {
        self.list.lock().dead.get_or_insert_with(|| why.to_string());
        self.fail_waiters();
    }

    pub(crate) fn failed_for_ever(&self) -> Option<String> {
        self.list.lock().dead.clone()
    }

    pub(crate) fn failures(&self) -> u64 {
        self.list.lock().failures
    }
}
