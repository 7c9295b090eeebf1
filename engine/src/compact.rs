//! Compaction of an open store: pages at the end of the data file get lower ids, then the file is
//! shortened to the last page in use. All other work goes on meanwhile.
//!
//! 1. The allocator gives out low pages first; those below some limit have room for all that are in
//!    use.
//! 2. Each tree is walked, one at a time, and pages at or above the limit move below. The module
//!    `renumber` of `wattle-btree` says what this means for a page. The id of a root is in the
//!    catalog, and changes with it by one record ([`crate::catalog::Catalog::move_root`]). The root
//!    of the catalog stays: it is one of the first pages of a store. So do the bitmaps, each in its
//!    group.
//! 3. The capacity is lowered to the end of the last page in use, also when some pages could not be
//!    moved.
//! 4. A checkpoint makes a superblock durable with this capacity. Recovery begins there from now
//!    on: only records after new room was reserved name pages past the end. The checkpoint also
//!    writes the moved pages; when leaves are merged on the way, steps 1 to 4 follow once more.
//! 5. The file is shortened ([`wattle_buffer::PageAllocator::shrink_storage`]).
//!
//! **A crash** before step 4 leaves the store as any crash does, with its old length. Between 4 and
//! 5, or when the new length is lost, the file is longer than the superblock says: the pages past
//! the end are free, and copies of bitmaps there are written again before a superblock names them.
//! The file is never shorter than a durable superblock says, because it is shortened after that is
//! durable.
//!
//! **Backups and bulk loads** know pages by their ids, on storage: there are none meanwhile.
//! Snapshots and transactions know keys.

use crate::{
    catalog::{OpenFor, OpenTree},
    core::Core,
    store::CATALOG,
};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use wattle_btree::{Context, Renumbered, Tree, run};
use wattle_buffer::{Error, PAGE_SIZE, PageAllocator, PageId, Result};

/// The outcome of [`crate::Engine::compact`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CompactReport {
    /// Pages that were moved.
    pub moved_pages: u64,
    /// Bytes of the data file before.
    pub bytes_before: u64,
    /// And after.
    pub bytes_after: u64,
}

/// Limit of walks over all trees: other operations may put pages at the end again, or free some, so
/// that fewer pages are enough.
const PASSES: usize = 4;
/// Another walk must give back more than this part of the file.
const WORTH: u64 = 64;
/// Ids that are taken at a time.
const IDS: usize = 8;
/// How often, and how long, a page that is in use is waited for.
const BUSY: (u32, Duration) = (20, Duration::from_millis(1));

/// While it lives, low pages are given out first.
struct LowFirst<'c>(&'c PageAllocator);

impl Drop for LowFirst<'_> {
    fn drop(&mut self) {
        self.0.end_compaction();
    }
}

/// Low page ids that no page has yet.
struct Ids<'c> {
    allocator: &'c PageAllocator,
    ids: Vec<PageId>,
}

impl Ids<'_> {
    /// Some ids; none when there are no more.
    fn get(&mut self) -> Option<&mut Vec<PageId>> {
        while self.ids.len() < IDS
            && let Some(page) = self.allocator.allocate_low()
        {
            self.ids.push(page);
        }
        (!self.ids.is_empty()).then_some(&mut self.ids)
    }
}

impl Drop for Ids<'_> {
    fn drop(&mut self) {
        self.ids.iter().for_each(|page| self.allocator.free(*page));
    }
}

impl Core {
    /// See the module documentation.
    pub fn compact(&self, stop: &AtomicBool) -> Result<CompactReport> {
        let _span = tracing::info_span!("compaction").entered();
        self.check_alive()?;
        if self.log.is_none() {
            let what = "a store that is used without a log cannot be compacted while it is open";
            return Err(Error::Limit(what.to_string()));
        }
        // With a limit: the operation that it waits for may be waiting for the caller.
        let limit = self.stall_timeout;
        let alone = self.compacting.try_lock_for(limit);
        let _alone = alone.ok_or_else(|| {
            let others = "a compaction or a verification";
            Error::Limit(format!("no compaction: {others} did not end within {limit:?}"))
        })?;
        let _by_their_ids = self.no_bulk_loads("a compaction")?;
        // Not after the engine was abandoned while this waited.
        self.check_alive()?;
        let bytes = || self.file.storage.capacity_pages() * PAGE_SIZE as u64;
        let bytes_before = bytes();
        let allocator = self.pool.allocator();
        let cx = self.context();
        // First clear garbage away, and write pages, which merges leaves: both make the store
        // smaller.
        self.sync_log()?;
        self.janitor_round(&cx);
        self.checkpoint_asked()?;
        let mut moved_pages = 0;
        for pass in 0..PASSES {
            {
                let _low_first = LowFirst(allocator);
                let Some(from) = allocator.begin_compaction() else { break };
                if pass > 0 && allocator.surplus() < allocator.counts().0 / WORTH {
                    break;
                }
                moved_pages += self.move_pages(&cx, from, stop)?;
            }
            // Pages that are freed once their write has ended.
            drop(self.pool.quiet());
            allocator.cut();
            self.checkpoint_asked()?;
        }
        // Also where no page needs to move, the file may end after the last page in use.
        if allocator.cut() != self.checkpoints.block().capacity {
            self.checkpoint_asked()?;
        }
        let least = self.checkpoints.block().capacity;
        if least * PAGE_SIZE as u64 != bytes_before {
            allocator
                .shrink_storage(&*self.file.storage, least)
                .map_err(|e| Error::io(format_args!("cut off {}", self.file.path.display()), e))?;
            self.sync_pages()?;
        }
        let bytes_after = bytes();
        tracing::info!(moved_pages, bytes_before, bytes_after, "compacted");
        Ok(CompactReport { moved_pages, bytes_before, bytes_after })
    }

    /// Walks all trees once. Gives how many pages it moved.
    fn move_pages(&self, cx: &Context, from: PageId, stop: &AtomicBool) -> Result<u64> {
        let allocator = self.pool.allocator();
        let mut moved = 0;
        self.pool.lower_reserves(from);
        let mut ids = Ids { allocator, ids: Vec::new() };
        if let Some(catalog) = self.catalog.system_tree(CATALOG) {
            moved += move_below_root(cx, catalog, from, &mut ids, stop)?;
        }
        // Before the others: one of them may get a name meanwhile.
        for open in self.catalog.nameless() {
            self.check_alive()?;
            moved += self.move_tree(cx, &open, from, &mut ids, stop)?;
        }
        for name in self.catalog.names(cx)? {
            self.check_alive()?;
            if let Some(open) = self.catalog.open(&self.txns, cx, &name, OpenFor::Engine)? {
                moved += self.move_tree(cx, &open, from, &mut ids, stop)?;
            }
        }
        drop(ids);
        self.pool.lower_reserves(from);
        Ok(moved)
    }

    /// Moves the pages of a tree and of its large values. Gives how many.
    fn move_tree(
        &self,
        cx: &Context,
        open: &OpenTree,
        from: PageId,
        ids: &mut Ids<'_>,
        stop: &AtomicBool,
    ) -> Result<u64> {
        let mut moved = 0;
        let large = open.large.get().map(|large| &large.tree);
        for tree in [Some(&open.tree), large].into_iter().flatten() {
            if tree.root_page() >= from
                && let Some(to) = ids.get().and_then(Vec::pop)
            {
                let old = self.catalog.move_root(cx, open, tree, to);
                old.inspect_err(|_| ids.allocator.free(to))?;
                moved += 1;
            }
            moved += move_below_root(cx, tree, from, ids, stop)?;
        }
        Ok(moved)
    }
}

/// Moves the pages of a tree, without its root. Gives how many.
fn move_below_root(
    cx: &Context,
    tree: &Tree,
    from: PageId,
    ids: &mut Ids<'_>,
    stop: &AtomicBool,
) -> Result<u64> {
    let mut moved = 0;
    for level in 1..run(cx, |_| tree.depth())? as u8 {
        let (mut key, mut busy) = (Vec::new(), 0);
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let Some(ids) = ids.get() else { return Ok(moved) };
            let step = run(cx, |_| tree.renumber_step(cx, (level, &key), from, ids))?;
            let next = match step {
                Renumbered::Pages(pages) => {
                    (moved, busy) = (moved + pages as u64, 0);
                    continue;
                }
                Renumbered::Busy(_) if busy < BUSY.0 => {
                    busy += 1;
                    std::thread::sleep(BUSY.1);
                    continue;
                }
                Renumbered::Busy(next) => next,
                Renumbered::Next(next) => Some(next),
                Renumbered::End => None,
            };
            let Some(next) = next else { break };
            (key, busy) = (next, 0);
        }
    }
    Ok(moved)
}
