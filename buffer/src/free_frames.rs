//! The stack of free frames.
//!
//! Free frames form a stack through the headers; frames never used yet are counted, not listed, so
//! that opening a large pool touches nothing; a thread has the kernel give the memory of those next
//! in line ahead of their use ([`FreeFrames::wait_unready`]). Workers take frames in batches
//! ([`crate::Worker`]).

use crate::{
    frame::FrameHeader,
    ids::FrameId,
    memory::{HUGE_PAGE, HUGE_PAGES_MIN},
    page::PAGE_SIZE,
    sync::{AtomicUsize, Condvar, Mutex, Ordering},
};
use std::{collections::VecDeque, ops::Range, task::Waker};

const END: u32 = u32::MAX;

/// Frames that are made ready at once: a huge page.
const READY_STEP: u32 = (HUGE_PAGE / PAGE_SIZE) as u32;
/// Most fresh frames that are ready; no more than were used already, so that a small store in a large
/// pool takes little memory.
const READY_AHEAD: u32 = 32 * READY_STEP;
/// Pools with fewer frames are not made ready: they have no huge pages.
const READY_MIN: usize = HUGE_PAGES_MIN / PAGE_SIZE;

/// The stack of free frames and those who wait for one.
pub(crate) struct FreeFrames {
    list: Mutex<FreeList>,
    /// More fresh frames should be made ready, or none any more.
    unready: Condvar,
    /// Copy of the length, for reading without the lock.
    len: AtomicUsize,
    /// Frames ever given back after use: the measure of progress.
    freed: AtomicUsize,
    /// Free frames below this wake the evictors, who stop at twice as many.
    low_water: usize,
    /// Free frames that a worker takes at a time.
    batch: usize,
}

struct FreeList {
    head: u32,
    listed: usize,
    /// Frames from here on were never used.
    fresh: u32,
    frames: u32,
    /// Fresh frames up to here have memory, or will in a moment.
    ready: u32,
    /// Nobody makes frames ready.
    ready_stopped: bool,
    waiters: VecDeque<Waker>,
    /// Counts how often waiting was declared hopeless.
    failures: u64,
    /// Why waiting is hopeless from now on.
    dead: Option<String>,
}

impl FreeList {
    /// Where the next huge page of frames to make ready begins. Whoever is ahead of us has touched the one
    /// that it is in.
    fn first_unready(&self) -> u32 {
        self.ready.max(self.fresh.next_multiple_of(READY_STEP))
    }

    /// The next huge page of frames to make ready, if it is time.
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

    /// Free frames below this wake the evictors.
    pub(crate) fn low_water(&self) -> usize {
        self.low_water
    }

    /// Evictors stop when so many frames are free.
    pub(crate) fn high_water(&self) -> usize {
        2 * self.low_water
    }

    /// Free frames that a worker takes at a time.
    pub(crate) fn batch(&self) -> usize {
        self.batch
    }

    /// Frames ever given back after use.
    pub(crate) fn freed(&self) -> usize {
        self.freed.load(Ordering::Relaxed)
    }

    /// Free frames right now, those in the caches of workers not counted.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Moves up to `count` frames into `into`; gives how many are left.
    pub(crate) fn take(
        &self,
        headers: &[FrameHeader],
        count: usize,
        into: &mut Vec<FrameId>,
    ) -> usize {
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

    /// Waits until fresh frames should have memory that have none yet, and gives them to the caller to see
    /// to it; none when it is to end.
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

    /// There is nothing to do for [`FreeFrames::wait_unready`] any more.
    pub(crate) fn are_all_ready(&self) -> bool {
        self.list.lock().are_all_ready()
    }

    /// [`FreeFrames::wait_unready`] waits from now on.
    pub(crate) fn start_ready(&self) {
        self.list.lock().ready_stopped = false;
    }

    /// [`FreeFrames::wait_unready`] does not wait any more.
    pub(crate) fn stop_ready(&self) {
        self.list.lock().ready_stopped = true;
        self.unready.notify_all();
    }

    /// Returns frames that were in use, and wakes as many waiters.
    pub(crate) fn give(&self, headers: &[FrameHeader], frames: &[FrameId]) {
        self.put_back(headers, frames);
        self.freed.fetch_add(frames.len(), Ordering::Relaxed);
    }

    /// Returns frames that were free all the time, and wakes as many waiters.
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

    /// Registers a waiter unless `count` frames are free. Gives the failure count to compare later.
    pub(crate) fn wait(&self, waker: &Waker, count: usize) -> (bool, u64) {
        let mut list = self.list.lock();
        let free = list.listed + (list.frames - list.fresh) as usize >= count;
        if !free && list.dead.is_some() {
            // The count of before makes the caller see a failure.
            return (true, list.failures.wrapping_sub(1));
        }
        if !free {
            list.waiters.push_back(waker.clone());
        }
        (!free, list.failures)
    }

    /// Someone waits for a frame.
    pub(crate) fn has_waiters(&self) -> bool {
        !self.list.lock().waiters.is_empty()
    }

    /// Wakes everyone; a waiter that was cancelled may have swallowed a wake-up of another.
    pub(crate) fn wake_all(&self) {
        let waiters = std::mem::take(&mut self.list.lock().waiters);
        waiters.into_iter().for_each(Waker::wake);
    }

    /// Declares waiting hopeless: everyone who waits now gets an error, unless it has just come.
    pub(crate) fn fail_waiters(&self) {
        let waiters = {
            let mut list = self.list.lock();
            list.failures += 1;
            std::mem::take(&mut list.waiters)
        };
        waiters.into_iter().for_each(Waker::wake);
    }

    /// Declares waiting hopeless, now and from now on.
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
