//! Allocation: free frames of the pool and free pages of the store.
//!
//! Free frames form a stack through the headers; frames never used yet are counted, not listed, so
//! that opening a large pool touches nothing; a thread has the kernel give the memory of those next
//! in line ahead of their use ([`FreeFrames::wait_unready`]). Workers take frames in batches
//! ([`crate::Worker`]).
//!
//! Free pages are a bitmap, one bit for each page of the store: 32 KiB for each GiB of data,
//! however fragmented. Room on the device is reserved before a page id is given out, so a device
//! that is full refuses new pages and never a page that already has contents.

use crate::{
    error::{Error, Result},
    frame::FrameHeader,
    ids::{FrameId, Gsn, PageId},
    io::Storage,
    memory::{HUGE_PAGE, HUGE_PAGES_MIN},
    page::PAGE_SIZE,
    sync::{AtomicUsize, Condvar, Mutex, Ordering},
};
mod compact;

use compact::Compaction;
use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    ops::Range,
    task::Waker,
};

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
    pub(crate) fn new(frames: usize) -> Self {
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
        }
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

    /// Returns frames and wakes as many waiters.
    pub(crate) fn give(&self, headers: &[FrameHeader], frames: &[FrameId]) {
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

/// Pages described by one page of the stored bitmap. The first two pages of each group hold copies of
/// the bitmap of its group, in the first group behind the two superblocks. Their places are fixed, so
/// that storing a bitmap on a full device never lacks room for it.
pub const BITMAP_GROUP: u64 = 32_256;

/// The page that holds copy 0 or 1 of the bitmap of group `group`.
pub fn bitmap_page(group: u64, copy: u64) -> PageId {
    PageId(if group == 0 { 2 + copy } else { group * BITMAP_GROUP + copy })
}

/// The page belongs to the store itself and is never given out.
pub fn is_reserved_page(page: PageId) -> bool {
    page.0 <= 3 || page.0 % BITMAP_GROUP <= 1
}

/// Smallest and largest step in which room on the device is reserved, in pages.
pub(crate) const GROW_MIN: u64 = 256;
const GROW_MAX: u64 = 16 * 1024;

/// Which pages of the store are in use.
///
/// There are two answers. The first is what may be given out now; it includes pages that sessions
/// hold in reserve and pages whose last write is still in flight. The second is what the log says,
/// as of any epoch that is durable: a page is in use from the record that puts it into a tree to
/// the record that takes it out. A checkpoint stores the second.
pub struct PageAllocator {
    pages: Mutex<PageMap>,
    logged: Mutex<LoggedMap>,
}

/// What the log says about pages.
#[derive(Default)]
struct LoggedMap {
    /// Bit set: in use, as of the records applied so far.
    words: Vec<u64>,
    /// Records not yet applied, in the order in which they were logged for each page: epoch, first
    /// page and number of pages, whether they are in use.
    changes: VecDeque<(u64, u64, u64, bool)>,
    /// Pages that the log took out of a tree, and when, since the place where recovery would begin.
    recent: HashMap<PageId, u64>,
    /// Groups whose words changed since they were last taken.
    dirty: BTreeSet<u64>,
    /// Above the numbers of all records that freed a page: a page that is used again begins there.
    freed: Gsn,
}

struct PageMap {
    /// Bit set: in use.
    words: Vec<u64>,
    /// Pages that may be given out: room is reserved on the device.
    capacity: u64,
    used: u64,
    /// Word at which the next search starts.
    cursor: usize,
    /// See [`PageAllocator::begin_compaction`].
    compaction: Option<Compaction>,
}

impl PageAllocator {
    /// An allocator in which the pages of `bitmap` (bit set: in use) and all reserved pages are
    /// taken.
    pub fn new(bitmap: Vec<u64>, capacity: u64) -> PageAllocator {
        let mut words = bitmap;
        words.resize(capacity.div_ceil(64) as usize, 0);
        if let (Some(last), used @ 1..) = (words.last_mut(), capacity % 64) {
            // Bits beyond the end name no page, whatever the bytes on disk say.
            *last &= (1 << used) - 1;
        }
        let mut map = PageMap { words, capacity, used: 0, cursor: 0, compaction: None };
        map.take_reserved(0);
        map.used = map.words.iter().map(|w| u64::from(w.count_ones())).sum();
        let logged = LoggedMap { words: map.words.clone(), ..LoggedMap::default() };
        PageAllocator { pages: Mutex::new(map), logged: Mutex::new(logged) }
    }

    /// Begins anew with other pages in use, before any was given out. Groups whose words are not
    /// those that are `stored` count as changed: what the log said about them is in no bitmap yet.
    pub fn reset(&self, bitmap: Vec<u64>, stored: &[u64], capacity: u64) {
        let fresh = PageAllocator::new(bitmap, capacity);
        {
            let logged = &mut *fresh.logged.lock();
            for group in 0..capacity.div_ceil(BITMAP_GROUP) {
                let start = group as usize * GROUP_WORDS;
                let words = logged.words.iter().skip(start).take(GROUP_WORDS);
                // The file is longer than the superblock knows: copies there are not of this store any
                // more, but could be taken for it.
                let is_unknown = start >= stored.len();
                let stored = stored.iter().skip(start).chain(std::iter::repeat(&0));
                if is_unknown || words.zip(stored).any(|(word, stored)| word != stored) {
                    logged.dirty.insert(group);
                }
            }
        }
        *self.pages.lock() = fresh.pages.into_inner();
        *self.logged.lock() = fresh.logged.into_inner();
    }

    /// A record of `epoch` puts `count` pages from `first` on into a tree, or takes them out.
    pub fn log_change(&self, epoch: u64, first: PageId, count: u64, in_use: bool) {
        let mut logged = self.logged.lock();
        logged.changes.push_back((epoch, first.0, count, in_use));
        if !in_use {
            let pages = (first.0..first.0 + count).map(|page| (PageId(page), epoch));
            logged.recent.extend(pages);
        }
    }

    /// The log may still have changes of this page from before it was freed: recovery would make
    /// them again. Such a page must not get contents that the log does not know.
    pub fn is_recently_freed(&self, page: PageId) -> bool {
        self.logged.lock().recent.contains_key(&page)
    }

    /// Recovery begins at `epoch` from now on.
    pub fn forget_freed_before(&self, epoch: u64) {
        self.logged.lock().recent.retain(|_, freed| *freed >= epoch);
    }

    /// The record numbered `gsn` took pages out of a tree.
    pub fn log_freed(&self, gsn: Gsn) {
        let mut logged = self.logged.lock();
        logged.freed = logged.freed.max(gsn);
    }

    /// The numbers of a page that is put into a tree must be above this, whatever it held before.
    pub fn freed_gsn(&self) -> Gsn {
        self.logged.lock().freed
    }

    /// Applies the records of all epochs up to `epoch`, which must be durable.
    pub fn settle(&self, epoch: u64) {
        self.logged.lock().settle(epoch);
    }

    /// The pages that are in use by the records of all epochs up to `epoch`, which must be durable: what
    /// a checkpoint would store.
    pub fn logged(&self, epoch: u64) -> Vec<u64> {
        let mut logged = self.logged.lock();
        logged.settle(epoch);
        logged.words.clone()
    }

    /// Settles, and takes the bitmaps of all groups that changed since they were last taken, with
    /// the group's number.
    pub fn take_changed_groups(&self, epoch: u64) -> Vec<(u64, Vec<u64>)> {
        let mut logged = self.logged.lock();
        logged.settle(epoch);
        let dirty = std::mem::take(&mut logged.dirty);
        dirty.into_iter().map(|group| (group, logged.group(group))).collect()
    }

    /// Groups whose bitmaps could not be stored: they count as changed again.
    pub fn keep_changed_groups(&self, groups: impl IntoIterator<Item = u64>) {
        self.logged.lock().dirty.extend(groups);
    }

    /// Takes over room that was reserved on the device already.
    pub fn extend(&self, capacity: u64) {
        self.pages.lock().set_capacity(capacity);
    }

    /// Takes a page, reserving more room on the device when none is free: for `least` pages, which is 1 or
    /// [`GROW_MIN`], or more.
    ///
    /// # Errors
    /// [`Error::DiskFull`] when the device has no room; nothing was changed.
    pub(crate) fn allocate(&self, storage: &dyn Storage, least: u64) -> Result<PageId> {
        let mut map = self.pages.lock();
        if let Some(page) = map.take_low() {
            return Ok(page);
        }
        while map.used == map.capacity {
            let groups = map.capacity.div_ceil(BITMAP_GROUP);
            map.grow(storage, least)?;
            // There may be copies of their bitmaps from before the file was cut off.
            let new = groups..map.capacity.div_ceil(BITMAP_GROUP);
            self.logged.lock().dirty.extend(new);
        }
        loop {
            let cursor = map.cursor;
            let word = map.words[cursor];
            if word != u64::MAX {
                let page = cursor as u64 * 64 + u64::from(word.trailing_ones());
                if page < map.capacity {
                    map.words[cursor] |= 1 << (page % 64);
                    map.used += 1;
                    return Ok(PageId(page));
                }
            }
            map.cursor = if cursor + 1 == map.words.len() { 0 } else { cursor + 1 };
        }
    }

    /// Gives a page back.
    ///
    /// # Panics
    /// If it is free already: two owners of one page would be the end of both.
    pub fn free(&self, page: PageId) {
        let mut map = self.pages.lock();
        let word = page.0 as usize / 64;
        let bit = 1 << (page.0 % 64);
        assert!(page.0 < map.capacity && map.words[word] & bit != 0, "page {page} was freed twice");
        map.words[word] &= !bit;
        map.used -= 1;
        if let Some(compaction) = &mut map.compaction {
            compaction.low = compaction.low.min(word);
        }
        // Low pages first keeps the store dense, but only when the search comes round.
        if word < map.cursor && map.cursor - word > 1024 {
            map.cursor = word;
        }
    }

    /// The bitmap (bit set: in use), the capacity in pages and the number of pages in use.
    pub fn snapshot(&self) -> (Vec<u64>, u64, u64) {
        let map = self.pages.lock();
        (map.words.clone(), map.capacity, map.used)
    }

    /// Capacity in pages and pages in use.
    pub fn counts(&self) -> (u64, u64) {
        let map = self.pages.lock();
        (map.capacity, map.used)
    }
}

/// Words of the bitmap of a group.
const GROUP_WORDS: usize = (BITMAP_GROUP / 64) as usize;
const _: () = assert!(BITMAP_GROUP.is_multiple_of(64));

impl LoggedMap {
    fn settle(&mut self, epoch: u64) {
        let LoggedMap { words, changes, dirty, .. } = self;
        changes.retain(|&(of, first, count, in_use)| {
            if of > epoch {
                return true;
            }
            for page in first..first + count {
                let at = page as usize / 64;
                if at >= words.len() {
                    words.resize(at + 1, 0);
                }
                let bit = 1 << (page % 64);
                words[at] = if in_use { words[at] | bit } else { words[at] & !bit };
                dirty.insert(page / BITMAP_GROUP);
            }
            false
        });
    }

    fn group(&self, group: u64) -> Vec<u64> {
        let start = group as usize * GROUP_WORDS;
        let mut words: Vec<u64> =
            self.words.iter().skip(start).take(GROUP_WORDS).copied().collect();
        words.resize(GROUP_WORDS, 0);
        words
    }
}

impl PageMap {
    /// Marks the reserved pages from `start` on; gives how many were free before.
    fn take_reserved(&mut self, start: u64) -> u64 {
        let groups = start / BITMAP_GROUP..self.capacity.div_ceil(BITMAP_GROUP);
        let copies = groups.flat_map(|group| [bitmap_page(group, 0), bitmap_page(group, 1)]);
        let pages = [PageId(0), PageId(1)].into_iter().chain(copies);
        let mut taken = 0;
        for page in pages.filter(|page| page.0 >= start && page.0 < self.capacity) {
            let word = &mut self.words[page.0 as usize / 64];
            taken += u64::from(*word >> (page.0 % 64) & 1 == 0);
            *word |= 1 << (page.0 % 64);
        }
        taken
    }

    fn grow(&mut self, storage: &dyn Storage, least: u64) -> Result<()> {
        let step = (self.capacity / 8).clamp(GROW_MIN, GROW_MAX);
        // Nearly full devices may still take a smaller step.
        let wanted = [step, GROW_MIN, 1].into_iter().filter(|step| *step >= least);
        let mut wanted = wanted.map(|step| self.capacity + step);
        let capacity = loop {
            let Some(target) = wanted.next() else { unreachable!("the last step returns") };
            if target > PageId::MAX.0 {
                return Err(Error::Limit(format!("the store has its maximum of {target} pages")));
            }
            match storage.reserve(target) {
                Ok(()) => break target,
                Err(error) => {
                    let error = Error::io(format_args!("reserve room for {target} pages"), error);
                    if target == self.capacity + least || !matches!(error, Error::DiskFull { .. }) {
                        return Err(error);
                    }
                }
            }
        };
        self.set_capacity(capacity);
        tracing::debug!(pages = capacity, "reserved room on the device");
        Ok(())
    }

    fn set_capacity(&mut self, capacity: u64) {
        let old = std::mem::replace(&mut self.capacity, capacity);
        self.words.resize(capacity.div_ceil(64) as usize, 0);
        self.used += self.take_reserved(old);
        self.cursor = (old / 64) as usize % self.words.len().max(1);
    }
}
