//! Allocation of pages of the store.
//!
//! **Why compaction cuts off no page in use.** [`PageAllocator::cut`] lowers the capacity, under
//! the lock, to the end of the last page in use. A page is in use if it is in a tree, held in
//! reserve, or freed while a write of it is still in flight. So no thread reads or writes a page
//! past the new capacity, and none is allocated there without [`Storage::reserve`]. The file itself
//! is cut later ([`PageAllocator::shrink_storage`]), once a superblock with the lower capacity is
//! durable. That step takes the lock again and uses the current capacity, because the file may have
//! grown since.

use crate::{
    error::Result,
    ids::{Gsn, PageId},
    io::Storage,
    logged_map::LoggedMap,
    page_map::{BITMAP_GROUP, PageMap},
    sync::Mutex,
};

/// The pages of the store that are in use, seen in two ways.
///
/// The first map says which pages may be allocated now. It counts pages that sessions hold in
/// reserve and pages whose last write is still in flight as used. The second map follows the log,
/// up to any durable epoch: a page is in use from the record that puts it into a tree to the record
/// that takes it out. A checkpoint stores the second map.
pub struct PageAllocator {
    pages: Mutex<PageMap>,
    logged: Mutex<LoggedMap>,
}

impl PageAllocator {
    /// An allocator in which the pages of `bitmap` (bit set: in use) and all reserved pages are
    /// used.
    pub fn new(bitmap: Vec<u64>, capacity: u64) -> PageAllocator {
        let pages = PageMap::new(bitmap, capacity);
        let logged = LoggedMap::new(pages.words().to_vec());
        PageAllocator { pages: Mutex::new(pages), logged: Mutex::new(logged) }
    }

    /// Replaces both maps, before any page was allocated. A group whose words differ from `stored`
    /// counts as changed: no stored bitmap has its log records yet.
    pub fn reset(&self, bitmap: Vec<u64>, stored: &[u64], capacity: u64) {
        let pages = PageMap::new(bitmap, capacity);
        let mut logged = LoggedMap::new(pages.words().to_vec());
        logged.compare_with(stored, capacity);
        *self.pages.lock() = pages;
        *self.logged.lock() = logged;
    }

    /// Notes a log record of `epoch` that puts `count` pages, starting at `first`, into a tree or
    /// takes them out.
    pub fn log_change(&self, epoch: u64, first: PageId, count: u64, in_use: bool) {
        self.logged.lock().log_change(epoch, first, count, in_use);
    }

    /// Whether the log may still hold changes of this page from before it was freed. Recovery would
    /// redo them, so such a page must not get contents that are not in the log.
    pub fn is_recently_freed(&self, page: PageId) -> bool {
        self.logged.lock().is_recently_freed(page)
    }

    /// From now on recovery starts at `epoch`.
    pub fn forget_freed_before(&self, epoch: u64) {
        self.logged.lock().forget_freed_before(epoch);
    }

    /// The record numbered `gsn` took pages out of a tree.
    pub fn log_freed(&self, gsn: Gsn) {
        self.logged.lock().log_freed(gsn);
    }

    /// A page that is put into a tree must get change numbers above this one, whatever it held
    /// before.
    pub fn freed_gsn(&self) -> Gsn {
        self.logged.lock().freed_gsn()
    }

    /// Applies the records of all epochs up to `epoch`, which must be durable.
    pub fn settle(&self, epoch: u64) {
        self.logged.lock().settle(epoch);
    }

    /// The pages in use after the records of all epochs up to `epoch`, which must be durable: the
    /// bitmap that a checkpoint would store.
    pub fn logged(&self, epoch: u64) -> Vec<u64> {
        let mut logged = self.logged.lock();
        logged.settle(epoch);
        logged.words().to_vec()
    }

    /// Applies records as [`PageAllocator::settle`] does, then takes the bitmap and the number of
    /// each group that changed since the last call.
    pub fn take_changed_groups(&self, epoch: u64) -> Vec<(u64, Vec<u64>)> {
        let mut logged = self.logged.lock();
        logged.settle(epoch);
        logged.take_changed_groups()
    }

    /// Marks groups as changed again, because their bitmaps could not be stored.
    pub fn keep_changed_groups(&self, groups: impl IntoIterator<Item = u64>) {
        self.logged.lock().mark_changed(groups);
    }

    /// Adds room that is already reserved on the device.
    pub fn extend(&self, capacity: u64) {
        self.pages.lock().set_capacity(capacity);
    }

    /// Takes a free page. If there is none, reserves room on the device for at least `least` pages:
    /// 1, or [`GROW_MIN`](crate::page_map::GROW_MIN) and more.
    ///
    /// # Errors
    /// [`DiskFull`](crate::Error::DiskFull) if the device has no room; nothing was changed.
    pub(crate) fn allocate(&self, storage: &dyn Storage, least: u64) -> Result<PageId> {
        let mut map = self.pages.lock();
        if let Some(page) = map.take_low() {
            return Ok(page);
        }
        while map.used() == map.capacity() {
            self.grow(&mut map, storage, least)?;
        }
        Ok(map.take_next())
    }

    /// Takes `count` free pages that are not recently freed ([`Self::is_recently_freed`]), as rows:
    /// first page and count of each. Reserves room on the device for at least `least` pages more
    /// where there are too few.
    ///
    /// # Errors
    /// [`DiskFull`](crate::Error::DiskFull) if the device has no room; nothing was changed.
    pub(crate) fn allocate_rows(
        &self,
        storage: &dyn Storage,
        count: u64,
        least: u64,
    ) -> Result<Vec<(u64, u64)>> {
        let (mut rows, mut left) = (Vec::new(), count);
        let mut map = self.pages.lock();
        loop {
            {
                let logged = self.logged.lock();
                left -= map.take_rows(left, |page| !logged.is_recently_freed(page), &mut rows);
            }
            if left == 0 {
                return Ok(rows);
            }
            if let Err(error) = self.grow(&mut map, storage, least) {
                // Before another thread finds the map full.
                let pages = rows.iter().flat_map(|&(first, count)| first..first + count);
                pages.for_each(|page| map.give(PageId(page)));
                return Err(error);
            }
        }
    }

    fn grow(&self, map: &mut PageMap, storage: &dyn Storage, least: u64) -> Result<()> {
        let groups = map.capacity().div_ceil(BITMAP_GROUP);
        map.grow(storage, least)?;
        // The device may hold copies of these bitmaps from before the file was cut.
        let new = groups..map.capacity().div_ceil(BITMAP_GROUP);
        self.logged.lock().mark_changed(new);
        Ok(())
    }

    /// Pages that were freed since the start point of recovery: they get only contents that are in
    /// the log until the next checkpoint.
    pub fn recently_freed(&self) -> usize {
        self.logged.lock().recently_freed()
    }

    /// Frees a page.
    ///
    /// # Panics
    /// If the page is free already: a page with two owners would be lost to both.
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

    /// Starts to allocate pages below the result before all others; all pages in use would fit
    /// there. `None` if they lie there already. A second call computes a new bound from the current
    /// use.
    pub fn begin_compaction(&self) -> Option<PageId> {
        self.pages.lock().begin_compaction()
    }

    /// Ends the compaction: pages are allocated in the usual order again.
    pub fn end_compaction(&self) {
        self.pages.lock().end_compaction();
    }

    /// Allocates a page below the bound of the compaction; `None` if all of them are in use.
    pub fn allocate_low(&self) -> Option<PageId> {
        self.pages.lock().take_low()
    }

    /// Number of pages that compaction could give back to the device.
    pub fn surplus(&self) -> u64 {
        self.pages.lock().surplus()
    }

    /// Lowers the capacity to the end of the last page in use, and returns it.
    pub fn cut(&self) -> u64 {
        self.pages.lock().cut()
    }

    /// Gives the device back the room of all pages at or above both the capacity and `least`.
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
    fn rows_have_no_page_that_was_freed_since_the_last_checkpoint() {
        let storage = MemoryStorage::new();
        let allocator = PageAllocator::new(Vec::new(), 0);
        let rows = |count: u64| {
            let rows = allocator.allocate_rows(&storage, count, GROW_MIN).expect("room");
            assert_eq!(rows.iter().map(|row| row.1).sum::<u64>(), count);
            let pages: Vec<u64> = rows.iter().flat_map(|&(at, len)| at..at + len).collect();
            (rows.len(), pages)
        };
        let (pieces, first) = rows(600);
        assert_eq!((pieces, first[0]), (1, 4), "one row after the reserved pages");
        // Every third page is freed, in two epochs.
        for (number, page) in first.iter().enumerate().step_by(3) {
            let epoch = if number % 2 == 0 { 5 } else { 6 };
            allocator.log_change(epoch, PageId(*page), 1, false);
            allocator.free(PageId(*page));
        }
        assert_eq!(allocator.recently_freed(), 200);
        let (_, second) = rows(300);
        assert!(second.iter().all(|page| *page > first[599]), "only new ones");
        allocator.forget_freed_before(6);
        let (pieces, third) = rows(600);
        let reused = third.iter().filter(|page| first.contains(page)).count();
        assert_eq!(reused, 100, "those of the earlier epoch, in {pieces} rows");
        assert!(third.iter().all(|page| !second.contains(page)), "a page has two owners");
        assert_eq!(allocator.recently_freed(), 100);
    }

    #[test]
    fn rows_for_which_the_device_has_no_room_leave_all_pages_free() {
        let storage = MemoryStorage::with_limit(3 * GROW_MIN);
        let allocator = PageAllocator::new(Vec::new(), 0);
        let few = allocator.allocate_rows(&storage, 100, GROW_MIN).expect("room");
        let error = allocator.allocate_rows(&storage, 4 * GROW_MIN, GROW_MIN).expect_err("no room");
        assert!(matches!(error, crate::Error::DiskFull { .. }), "{error}");
        let used = few.iter().map(|row| row.1).sum::<u64>() + 4;
        let rest = allocator.pages.lock().capacity() - used;
        let all = allocator.allocate_rows(&storage, rest, GROW_MIN).expect("all were given back");
        assert_eq!(all.iter().map(|row| row.1).sum::<u64>(), rest);
    }

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
        // The file grows again, and each page is allocated once.
        let mut seen: Vec<PageId> = left.iter().filter(|page| **page < below).copied().collect();
        seen.extend((0..40_000).map(|_| allocator.allocate(&storage, 1).expect("room")));
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count);
    }
}
