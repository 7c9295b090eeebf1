//! The pages that one redo worker has in memory.
//!
//! Pages are read and written in batches, sorted, because one after the other leaves a device idle.
//! When there is no room, the least recently used half is evicted.
//!
//! A page that was freed before the checkpoint reached it may hold stale content on storage, or
//! none. Without page images in the log its records have no base to apply to. Such a page is
//! *lost*. A later record may free or re-create it; a page that is still lost at the end of the log
//! is damage.
//!
//! Invariants: a page that is written is sealed, and its structure is sound. Memory is bounded by
//! the limit plus one batch of reads.

use super::{FoundGhosts, redo_state::RedoState};
use crate::store::StoreFile;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use wattle_btree::{node, record};
use wattle_buffer::{
    Error, Gsn, ImageMemory, PAGE_SIZE, PageId, PageImage, Result, io::PageWrite, page::header,
    prefetch_write,
};

/// Fewest pages of a cache.
pub(super) const MIN_PAGES: usize = 64;
/// Limit of pages that are read ahead.
const READ_BATCH: usize = 64;
/// Reads in flight for one worker.
const READ_THREADS: usize = 8;
/// Pages written at once.
const WRITE_BATCH: usize = 64;
/// Fewest neighbours that are written with one call; others are in flight side by side.
const LEAST_RUN: usize = 4;

/// See the module documentation.
pub(super) struct Cache<'f> {
    file: &'f StoreFile,
    shared: &'f RedoState,
    /// Held while room on the device is reserved.
    reserving: &'f Mutex<()>,
    limit: usize,
    /// Slots of the pages in memory.
    pages: HashMap<PageId, CacheSlot, RandomState>,
    /// By slot; as many as were ever taken.
    entries: Vec<CachedPage>,
    images: ImageMemory,
    /// Slots without a page.
    free: Vec<CacheSlot>,
    /// Where reads arrive.
    arrived: Vec<PageImage>,
    /// Pages that are lost, and why.
    lost: BTreeMap<PageId, Error>,
    /// Rises with every use of a page.
    clock: u64,
    pub counts: Counts,
    pub ghosts: FoundGhosts,
}

/// A place for a page in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CacheSlot(u32);

struct CachedPage {
    /// None: the slot is free.
    page: Option<PageId>,
    dirty: bool,
    used: u64,
}

/// Counters of a cache.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub read: u64,
    pub written: u64,
    /// The newest page that was read.
    pub newest: (Gsn, PageId),
}

impl<'f> Cache<'f> {
    /// An empty cache of up to `limit` pages.
    pub fn new(
        file: &'f StoreFile,
        shared: &'f RedoState,
        reserving: &'f Mutex<()>,
        limit: usize,
    ) -> Result<Cache<'f>> {
        let limit = limit.max(MIN_PAGES);
        Ok(Cache {
            file,
            shared,
            reserving,
            limit,
            pages: HashMap::default(),
            entries: Vec::new(),
            images: ImageMemory::map(limit)?,
            free: Vec::new(),
            arrived: Vec::new(),
            lost: BTreeMap::new(),
            clock: 0,
            counts: Counts::default(),
            ghosts: FoundGhosts::default(),
        })
    }

    /// Pages that [`Cache::read_ahead`] takes at once.
    pub fn read_batch(&self) -> usize {
        READ_BATCH.min(self.limit / 4)
    }

    /// Where the page is in memory.
    pub fn find(&self, page: PageId) -> Option<CacheSlot> {
        self.pages.get(&page).copied()
    }

    /// As [`Cache::find`], for a page that was found in `slot` before, if it was.
    pub fn find_again(&self, page: PageId, slot: Option<CacheSlot>) -> Option<CacheSlot> {
        let still = |slot: &CacheSlot| self.entries[slot.0 as usize].page == Some(page);
        slot.filter(still).or_else(|| self.find(page))
    }

    /// The image in a slot, which may have got another page since it was found.
    pub fn peek(&self, slot: CacheSlot) -> &PageImage {
        &self.images[slot.0 as usize]
    }

    /// Prefetches what a change of the page in a slot reads first: the entry, and the first lines
    /// of the page. Waits for the entry were a third of the time of redo.
    pub fn prefetch(&self, slot: CacheSlot) {
        prefetch_write((&raw const self.entries[slot.0 as usize]).cast());
        record::prefetch_page(self.peek(slot));
    }

    /// The page in a slot, which is used now.
    pub fn get(&mut self, slot: CacheSlot) -> &mut PageImage {
        self.clock += 1;
        self.entries[slot.0 as usize].used = self.clock;
        &mut self.images[slot.0 as usize]
    }

    /// The page in memory differs from storage.
    pub fn set_dirty(&mut self, slot: CacheSlot) {
        self.entries[slot.0 as usize].dirty = true;
    }

    /// Whether changes of the page have nothing to start from.
    pub fn is_lost(&self, page: PageId) -> bool {
        self.lost.contains_key(&page)
    }

    /// The page does not fit the log: it is lost.
    pub fn lose(&mut self, page: PageId, why: Error) {
        self.forget(page);
        self.lost.insert(page, why);
    }

    /// A page of zeroes, without reading storage.
    pub fn make(&mut self, page: PageId) -> Result<CacheSlot> {
        self.make_room(1)?;
        self.lost.remove(&page);
        let slot = self.insert(page);
        self.images[slot.0 as usize].0.fill(0);
        Ok(slot)
    }

    /// Drops a page that is no longer in a tree.
    pub fn forget(&mut self, page: PageId) {
        self.lost.remove(&page);
        if let Some(slot) = self.pages.remove(&page) {
            self.entries[slot.0 as usize].page = None;
            self.free.push(slot);
        }
    }

    /// Reads pages that are not in memory, at most [`Cache::read_batch`], each named once.
    pub fn read_ahead(&mut self, wanted: &mut [PageId]) -> Result<()> {
        if wanted.is_empty() {
            return Ok(());
        }
        wanted.sort_unstable();
        self.make_room(wanted.len())?;
        let mut arrived = std::mem::take(&mut self.arrived);
        arrived.resize(arrived.len().max(wanted.len()), PageImage([0; PAGE_SIZE]));
        let checked = read_all(self.file, wanted, &mut arrived[..wanted.len()])?;
        for ((&page, read), checked) in wanted.iter().zip(&arrived).zip(checked) {
            self.counts.read += 1;
            if let Err(why) = checked {
                self.lost.insert(page, why);
                continue;
            }
            let gsn = Gsn(read.u64_at(header::GSN));
            self.shared.check_read(page, gsn)?;
            self.counts.newest = self.counts.newest.max((gsn, page));
            let slot = self.insert(page);
            self.images[slot.0 as usize].0 = read.0;
        }
        self.arrived = arrived;
        Ok(())
    }

    /// Writes everything that is not on storage.
    ///
    /// # Errors
    /// Failed writes; a page that is lost.
    pub fn write_all(&mut self) -> Result<()> {
        let pages: Vec<PageId> = self.pages.keys().copied().collect();
        self.write_back(pages.clone())?;
        self.look_for_ghosts(&pages);
        self.lost.pop_first().map_or(Ok(()), |(_, why)| Err(why))
    }

    /// Of pages that are sound, because they were read or written.
    fn look_for_ghosts(&mut self, pages: &[PageId]) {
        for slot in pages.iter().filter_map(|page| self.pages.get(page)) {
            self.ghosts.look(&self.images[slot.0 as usize]);
        }
    }

    /// Makes room for some pages more, by writing and forgetting the half that was not used for
    /// longest.
    fn make_room(&mut self, more: usize) -> Result<()> {
        if self.pages.len() + more <= self.limit {
            return Ok(());
        }
        let used = self.entries.iter().filter_map(|entry| Some((entry.used, entry.page?)));
        let mut old: Vec<(u64, PageId)> = used.collect();
        let half = old.len().div_ceil(2);
        if half < old.len() {
            old.select_nth_unstable(half);
        }
        let old: Vec<PageId> = old[..half].iter().map(|(_, page)| *page).collect();
        self.write_back(old.clone())?;
        self.look_for_ghosts(&old);
        // A page that turns out not to be a node is lost, and is remembered as lost.
        for page in old {
            if !self.is_lost(page) {
                self.forget(page);
            }
        }
        Ok(())
    }

    /// Writes the dirty ones of some pages. Their log is durable, so this is allowed at any time.
    fn write_back(&mut self, mut pages: Vec<PageId>) -> Result<()> {
        pages.retain(|page| self.entries[self.pages[page].0 as usize].dirty);
        pages.sort_unstable();
        pages.retain(|&page| {
            let image = &mut self.images[self.pages[&page].0 as usize];
            assert_eq!(image.u64_at(header::PAGE_ID), page.0, "a page is in its own place");
            match node::check(&image.0, PageId::MAX) {
                Ok(()) => image.seal(),
                Err(what) => {
                    let what = format_args!("the log made it a node that is none: {what}");
                    self.lose(page, Error::corruption(page, what));
                }
            }
            !self.is_lost(page)
        });
        // Neighbours together: a device takes little longer for all of them than for one.
        let runs = pages.chunk_by(|page, next| next.0 == page.0 + 1);
        let runs = runs.flat_map(|run| run.chunks(WRITE_BATCH));
        let (runs, others): (Vec<_>, Vec<_>) = runs.partition(|run| run.len() >= LEAST_RUN);
        for run in runs {
            self.prepare_write(run)?;
            let images: Vec<_> = run.iter().map(|page| self.peek(self.pages[page])).collect();
            self.file.write_neighbours(run[0], &images)?;
            self.note_written(run);
        }
        for batch in others.concat().chunks(WRITE_BATCH) {
            self.prepare_write(batch)?;
            let writes: Vec<PageWrite<'_>> = batch
                .iter()
                .map(|&page| PageWrite { page, image: self.peek(self.pages[&page]) })
                .collect();
            self.file.write(&writes)?;
            self.note_written(batch);
        }
        Ok(())
    }

    /// Makes room on the device for some pages in ascending order.
    fn prepare_write(&self, pages: &[PageId]) -> Result<()> {
        if self.shared.is_stopped() {
            // Why is known already.
            return Err(Error::Interrupted);
        }
        let last = pages.last().expect("there are some");
        reserve(self.file, self.reserving, last.0 + 1)
    }

    fn note_written(&mut self, pages: &[PageId]) {
        self.counts.written += pages.len() as u64;
        for page in pages {
            self.entries[self.pages[page].0 as usize].dirty = false;
        }
    }

    /// A slot for a page that is not in memory; there is room for it.
    fn insert(&mut self, page: PageId) -> CacheSlot {
        self.clock += 1;
        let entry = CachedPage { page: Some(page), dirty: false, used: self.clock };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.entries[slot.0 as usize] = entry;
                slot
            }
            None => {
                self.entries.push(entry);
                CacheSlot(self.entries.len() as u32 - 1)
            }
        };
        let old = self.pages.insert(page, slot);
        assert!(old.is_none(), "page {page} is in memory twice");
        slot
    }
}

/// Makes sure that the device has room for `pages` pages.
pub(super) fn reserve(file: &StoreFile, reserving: &Mutex<()>, pages: u64) -> Result<()> {
    if pages <= file.storage.capacity_pages() {
        return Ok(());
    }
    let _one_at_a_time = reserving.lock();
    if pages > file.storage.capacity_pages() {
        let reserved = file.storage.reserve(pages);
        reserved.map_err(|e| Error::io(format_args!("reserve room for {pages} pages"), e))?;
    }
    Ok(())
}

/// Reads pages, several at a time, and says of each whether it is sound. It may be of any tree:
/// since the change that asks for it, it can have gone to another tree and been written, and then
/// its number is above the change's.
fn read_all(
    file: &StoreFile,
    wanted: &[PageId],
    images: &mut [PageImage],
) -> Result<Vec<Result<()>>> {
    let check = |page: PageId, image: &PageImage| {
        image.verify_of_any_tree(page)?;
        node::check(&image.0, PageId::MAX).map_err(|what| Error::corruption(page, what))
    };
    let read = |wanted: &[PageId], images: &mut [PageImage]| {
        let pages = wanted.iter().zip(images);
        pages
            .map(|(&page, image)| file.read(page, image).map(|()| check(page, image)))
            .collect::<Result<Vec<_>>>()
    };
    let share = wanted.len().div_ceil(READ_THREADS).max(2);
    if wanted.len() <= share {
        return read(wanted, images);
    }
    std::thread::scope(|scope| {
        let parts = wanted.chunks(share).zip(images.chunks_mut(share));
        let threads: Vec<_> =
            parts.map(|(wanted, images)| scope.spawn(move || read(wanted, images))).collect();
        let mut checked = Vec::with_capacity(wanted.len());
        for thread in threads {
            match thread.join() {
                Ok(result) => checked.extend(result?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(checked)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{epochs::Gaps, options::Options};
    use std::sync::Arc;
    use wattle_buffer::io::{MemoryLog, MemoryStorage, Storage};

    #[test]
    fn a_page_that_the_log_made_no_node_is_damage_also_when_it_has_to_go() {
        for others in [0, 200] {
            let pages = Arc::new(MemoryStorage::new());
            pages.reserve(4096).expect("room");
            let file = StoreFile::on(pages, Arc::new(MemoryLog::default()));
            let (shared, reserving) =
                (RedoState::new(Gaps::default(), &Options::default()), Mutex::new(()));
            let mut cache = Cache::new(&file, &shared, &reserving, MIN_PAGES).expect("memory");
            let bad = cache.make(PageId(10)).expect("made");
            let image = cache.get(bad);
            image.set_u64(header::PAGE_ID, 10);
            image.set_u64(header::GSN, 7);
            cache.set_dirty(bad);
            for other in 0..others {
                cache.make(PageId(100 + other)).expect("made");
            }
            assert!(cache.write_all().is_err(), "with {others} others the damage is forgotten");
        }
    }
}
