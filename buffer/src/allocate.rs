//! Allocation of pages of the store.
//!
//! **Why compaction cuts off nothing that is in use.** [`PageAllocator::cut`] lowers the capacity, under the lock, to
//! behind the last page in use; a page in use is one that is in a tree, or held in reserve, or freed
//! with a write of it still in flight. So nobody reads or writes pages behind the new capacity, and
//! none is given out there without [`Storage::reserve`]. The file is cut off later
//! ([`PageAllocator::shrink_storage`]), when a superblock with the lower capacity is durable, and
//! again under the lock, to the capacity of that moment: it may have grown meanwhile.

use crate::{
    error::Result,
    ids::{Gsn, PageId},
    io::Storage,
    logged_map::LoggedMap,
    page_map::{BITMAP_GROUP, PageMap},
    sync::Mutex,
};

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

impl PageAllocator {
    /// An allocator in which the pages of `bitmap` (bit set: in use) and all reserved pages are
    /// taken.
    pub fn new(bitmap: Vec<u64>, capacity: u64) -> PageAllocator {
        let pages = PageMap::new(bitmap, capacity);
        let logged = LoggedMap::new(pages.words().to_vec());
        PageAllocator { pages: Mutex::new(pages), logged: Mutex::new(logged) }
    }

    /// Begins anew with other pages in use, before any was given out. Groups whose words are not
    /// those that are `stored` count as changed: what the log said about them is in no bitmap yet.
    pub fn reset(&self, bitmap: Vec<u64>, stored: &[u64], capacity: u64) {
        let pages = PageMap::new(bitmap, capacity);
        let mut logged = LoggedMap::new(pages.words().to_vec());
        logged.compare_with(stored, capacity);
        *self.pages.lock() = pages;
        *self.logged.lock() = logged;
    }

    /// A record of `epoch` puts `count` pages from `first` on into a tree, or takes them out.
    pub fn log_change(&self, epoch: u64, first: PageId, count: u64, in_use: bool) {
        self.logged.lock().log_change(epoch, first, count, in_use);
    }

    /// The log may still have changes of this page from before it was freed: recovery would make
    /// them again. Such a page must not get contents that the log does not know.
    pub fn is_recently_freed(&self, page: PageId) -> bool {
        self.logged.lock().is_recently_freed(page)
    }

    /// Recovery begins at `epoch` from now on.
    pub fn forget_freed_before(&self, epoch: u64) {
        self.logged.lock().forget_freed_before(epoch);
    }

    /// The record numbered `gsn` took pages out of a tree.
    pub fn log_freed(&self, gsn: Gsn) {
        self.logged.lock().log_freed(gsn);
    }

    /// The numbers of a page that is put into a tree must be above this, whatever it held before.
    pub fn freed_gsn(&self) -> Gsn {
        self.logged.lock().freed_gsn()
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
        logged.words().to_vec()
    }

    /// Settles, and takes the bitmaps of all groups that changed since they were last taken, with
    /// the group's number.
    pub fn take_changed_groups(&self, epoch: u64) -> Vec<(u64, Vec<u64>)> {
        let mut logged = self.logged.lock();
        logged.settle(epoch);
        logged.take_changed_groups()
    }

    /// Groups whose bitmaps could not be stored: they count as changed again.
    pub fn keep_changed_groups(&self, groups: impl IntoIterator<Item = u64>) {
        self.logged.lock().mark_changed(groups);
    }

    /// Takes over room that was reserved on the device already.
    pub fn extend(&self, capacity: u64) {
        self.pages.lock().set_capacity(capacity);
    }

    /// Takes a page, reserving more room on the device when none is free: for `least` pages, which is 1 or
    /// [`GROW_MIN`](crate::page_map::GROW_MIN), or more.
    ///
    /// # Errors
    /// [`DiskFull`](crate::Error::DiskFull) when the device has no room; nothing was changed.
    pub(crate) fn allocate(&self, storage: &dyn Storage, least: u64) -> Result<PageId> {
        let mut map = self.pages.lock();
        if let Some(page) = map.take_low() {
            return Ok(page);
        }
        while map.used() == map.capacity() {
            let groups = map.capacity().div_ceil(BITMAP_GROUP);
            map.grow(storage, least)?;
            // There may be copies of their bitmaps from before the file was cut off.
            let new = groups..map.capacity().div_ceil(BITMAP_GROUP);
            self.logged.lock().mark_changed(new);
        }
        Ok(map.take_next())
    }

    /// Gives a page back.
    ///
    /// # Panics
    /// If it is free already: two owners of one page would be the end of both.
    pub fn free(&self, page: PageId) {
        self.pages.lock().give(page);
    }

    /// The bitmap (bit set: in use), the capacity in pages and the number of pages in use.
    pub fn snapshot(&self) -> (Vec<u64>, u64, u64) {
        let map = self.pages.lock();
        (map.words().to_vec(), map.capacity(), map.used())
    }

    /// Capacity in pages and pages in use.
    pub fn counts(&self) -> (u64, u64) {
        let map = self.pages.lock();
        (map.capacity(), map.used())
    }

    /// From now on pages below the result are given out before all others: those in use would all have
    /// room there. None: they lie so already. Begun again, it gives a result for the pages in use by then.
    pub fn begin_compaction(&self) -> Option<PageId> {
        self.pages.lock().begin_compaction()
    }

    /// The end of the compaction: pages are given out as before.
    pub fn end_compaction(&self) {
        self.pages.lock().end_compaction();
    }

    /// Takes a page that is given out first; none when all of them are in use.
    pub fn allocate_low(&self) -> Option<PageId> {
        self.pages.lock().take_low()
    }

    /// Pages that compaction could give back.
    pub fn surplus(&self) -> u64 {
        self.pages.lock().surplus()
    }

    /// Gives up the pages behind the last one in use. Gives the new capacity.
    pub fn cut(&self) -> u64 {
        self.pages.lock().cut()
    }

    /// Gives the room of pages back that are not below the capacity, nor below `least`.
    ///
    /// # Errors
    /// Those of the storage.
    pub fn shrink_storage(&self, storage: &dyn Storage, least: u64) -> std::io::Result<()> {
        let map = self.pages.lock();
        storage.shrink(map.capacity().max(least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{io::MemoryStorage, page_map::GROW_MIN};

    #[test]
    fn low_pages_go_first_and_the_rest_is_cut_off() {
        let storage = MemoryStorage::new();
        let allocator = PageAllocator::new(Vec::new(), 0);
        let pages: Vec<PageId> =
            (0..70_000).map(|_| allocator.allocate(&storage, GROW_MIN).expect("room")).collect();
        assert_eq!(allocator.begin_compaction(), None, "all are in use");
        for page in pages.iter().filter(|page| page.0 % 7 != 0) {
            allocator.free(*page);
        }
        let left: Vec<PageId> = pages.into_iter().filter(|page| page.0 % 7 == 0).collect();
        let surplus = allocator.surplus();
        let (before, _) = allocator.counts();
        let below = allocator.begin_compaction().expect("most are free");
        assert_eq!(below.0, before - surplus);
        for page in left.iter().filter(|page| **page >= below) {
            assert!(allocator.allocate_low().expect("room for all") < below);
            allocator.free(*page);
        }
        assert_eq!(allocator.allocate_low(), None, "not one too many");
        assert!(allocator.allocate(&storage, GROW_MIN).expect("others") >= below);
        allocator.end_compaction();
        let end = allocator.cut();
        assert!(end > below.0, "there is that other page");
        storage.reserve(end + 1000).expect("room");
        allocator.shrink_storage(&storage, end + 500).expect("cut");
        assert_eq!(storage.capacity_pages(), end + 500);
        allocator.shrink_storage(&storage, 0).expect("cut");
        assert_eq!(storage.capacity_pages(), end);
        // It grows again, and no page is given out twice.
        let mut seen: Vec<PageId> = left.iter().filter(|page| **page < below).copied().collect();
        seen.extend((0..40_000).map(|_| allocator.allocate(&storage, 1).expect("room")));
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count);
    }
}
