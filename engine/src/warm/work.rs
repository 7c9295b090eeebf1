//! The thread of the warm start. Its steps:
//! 1. read the list, and choose the pages that fit into the free frames, the most valuable classes
//!    first; the others are never in memory;
//! 2. find the names of their trees;
//! 3. for each tree, from its root down: find the children of nodes that are listed, and read them
//!    in the order of the file. The memory for their places is bounded; with keys of 24 bytes, some
//!    400 thousand leaves (1.6 GB) are read in one pass over the file.
//!
//! It ends when all is read, when no frames are left, when the store is closed or has failed, or
//! when reads fail one after the other.

use super::list::{EncodedList, MAX_BYTES};
use crate::{
    core::Core,
    limits::limit,
    store::{CATALOG, WARM_FILE},
};
use std::{
    collections::{BTreeSet, VecDeque},
    io::{self, Read},
    ops::ControlFlow,
    sync::atomic::Ordering,
    time::Duration,
};
use wattle_btree::{Context, NodePlace, Step, Stop, Tree};
use wattle_buffer::{Error, PageId, Pool, ReadsBeside, TreeId};

/// A store that is opened and closed at once need not wait for the reads of a warm start.
const DELAY: Duration = Duration::from_millis(10);
/// Pages that are asked for together.
const BATCH: usize = 128;
/// Batches on their way at most. One call reads up to 64 neighbours, so these are 8 reads or a few
/// more: enough for the speed of a device, and half of the reads that the storage runs at once, so
/// that those of operations find their turn.
const DEPTH: usize = 4;
/// All pages on their way are at most this part of the pool, 1 of 16.
const SHARE: usize = 16;
/// Children are collected, to be read in the order of the file, until their places take so many
/// bytes; then they are read before their own children are looked at. The more there are, the more
/// of them are neighbours in the file, which one call reads.
const GROUP_BYTES: usize = limit(32 << 20, 2 << 10);
/// Memory of a place without the bytes of its key: the place itself, and what an allocator adds.
const PLACE_BYTES: usize = size_of::<NodePlace>() + 16;
/// Pages of the list that are kept in memory, at most: so many times the frames of the pool, or
/// [`MANY`]. A list of a much larger pool has more in its most valuable class, but each takes 8
/// bytes. It is more than the frames, because some pages are gone, or in memory already.
const TIMES: usize = 4;
/// See [`TIMES`]; 8 MiB.
const MANY: usize = 1 << 20;
/// Attempts at a node that others change.
const ATTEMPTS: usize = 8;

/// Whether to go on. An end is no error: the store is being closed, or no frame is left.
type Going = ControlFlow<()>;

/// Pages of a batch.
fn batch_of(pool: &Pool) -> usize {
    BATCH.min(pool.frames() / (SHARE * DEPTH)).max(1)
}

/// The body of the thread.
pub(crate) fn work(core: &Core, cx: &Context) {
    if !core.warm.thread.sleep(DELAY) {
        return;
    }
    let path = core.file.path.join(WARM_FILE);
    match read_list(core) {
        Ok(chosen) => read_pages(core, cx, &chosen),
        Err(why) => tracing::warn!(path = %path.display(), why, "a list of pages is not used"),
    }
    cx.worker.release();
    if !core.warm.thread.is_stopping() {
        core.warm.end();
        let (listed, read) = core.warm.progress();
        tracing::info!(listed, read, "the warm start is over");
    }
}

/// The pages that are to be read, of each tree: step 1.
fn read_list(core: &Core) -> Result<Vec<(TreeId, Vec<PageId>)>, String> {
    let read = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if let Some(directory) = core.file.home() {
            directory.open_regular(WARM_FILE)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    };
    let bytes = read().map_err(|error| error.to_string())?;
    let list = EncodedList::check(&bytes, core.checkpoints.block().store_id)?;
    core.warm.on_file.store(list.pages() as u64, Ordering::Relaxed);
    list.chosen(core.pool.spare_frames(), (TIMES * core.pool.frames()).max(MANY))
}

fn read_pages(core: &Core, cx: &Context, chosen: &[(TreeId, Vec<PageId>)]) {
    let count = chosen.iter().map(|(_, pages)| pages.len() as u64).sum();
    core.warm.listed.store(count, Ordering::Relaxed);
    // 2. Names.
    let ids: BTreeSet<TreeId> =
        chosen.iter().map(|(tree, _)| *tree).filter(|id| *id != CATALOG).collect();
    let is_stopped = || core.warm.thread.is_stopping();
    let names = match core.catalog.owners_until(cx, &ids, false, &is_stopped) {
        Ok(names) => names,
        Err(Error::Interrupted) => return,
        Err(error) => return tracing::warn!(%error, "the warm start does not know the trees"),
    };
    // 3. Trees.
    for (id, pages) in chosen {
        // A tree that is gone has none.
        let Some(name) = names.get(id) else { continue };
        if (WarmTree { core, cx, id: *id, name, pages }).read().is_break() {
            return;
        }
    }
}

/// One tree, and its pages that are to be read, ascending.
struct WarmTree<'a> {
    core: &'a Core,
    cx: &'a Context,
    id: TreeId,
    name: &'a str,
    pages: &'a [PageId],
}

impl WarmTree<'_> {
    /// Reads the pages of the tree.
    fn read(&self) -> Going {
        match self.step(|tree| tree.depth())? {
            Some(depth) if depth > 1 => {
                // Every page of the tree is below its root, which contains the least key.
                let root = NodePlace { page: PageId(0), key: Vec::new() };
                self.below(vec![root], (depth - 1) as u8)
            }
            _ => Going::Continue(()),
        }
    }

    /// Reads what is listed below these nodes of `level`, at least 1.
    fn below(&self, nodes: Vec<NodePlace>, level: u8) -> Going {
        let mut nodes = nodes.into_iter().peekable();
        while nodes.peek().is_some() {
            let (mut found, mut bytes) = (Vec::<NodePlace>::new(), 0);
            while bytes < GROUP_BYTES
                && let Some(node) = nodes.next()
            {
                let before = found.len();
                let wanted = |page: PageId| self.pages.binary_search(&page).is_ok();
                self.step(|tree| tree.children_step(&node.key, level, &wanted, &mut found))?;
                let new = &found[before..];
                bytes += new.iter().map(|place| PLACE_BYTES + place.key.len()).sum::<usize>();
            }
            found.sort_unstable_by_key(|place| place.page);
            self.load(&found, level - 1)?;
            if level > 1 {
                found.sort_unstable_by(|a, b| a.key.cmp(&b.key));
                self.below(found, level - 1)?;
            }
        }
        Going::Continue(())
    }

    /// Reads these nodes of `level`, several batches at a time.
    fn load(&self, places: &[NodePlace], level: u8) -> Going {
        let mut on_their_way = VecDeque::with_capacity(DEPTH);
        let mut going = Going::Continue(());
        for batch in places.chunks(batch_of(&self.core.pool)) {
            if on_their_way.len() == DEPTH {
                self.finish(&mut on_their_way, level);
            }
            match self.step(|tree| tree.places_step(level, batch)) {
                ControlFlow::Continue(None) => {}
                ControlFlow::Continue(Some(faults)) => {
                    on_their_way.push_back((batch, self.cx.worker.start_beside(faults)));
                }
                ControlFlow::Break(()) => {
                    going = Going::Break(());
                    break;
                }
            }
        }
        while !on_their_way.is_empty() {
            self.finish(&mut on_their_way, level);
        }
        going
    }

    /// Waits for the oldest batch.
    fn finish(&self, on_their_way: &mut VecDeque<(&[NodePlace], ReadsBeside)>, level: u8) {
        let Some((batch, reads)) = on_their_way.pop_front() else { return };
        let asked = reads.count();
        let came = self.cx.worker.wait_beside(reads);
        match came {
            0 => self.core.warm.failed.fetch_add(asked as u64, Ordering::Relaxed),
            _ => self.core.warm.failed.swap(0, Ordering::Relaxed),
        };
        self.core.warm.read.fetch_add(came as u64, Ordering::Relaxed);
        // They are in memory, and become part of the tree. Reads that failed are not tried again.
        let _hint = self.with_tree(|tree| tree.places_step(level, batch).map(drop));
    }

    /// Runs a step of the tree, and waits for pages that it lacks. None: the tree is gone, or the
    /// step gave up.
    fn step<T>(&self, mut step: impl FnMut(&Tree) -> Step<T>) -> ControlFlow<(), Option<T>> {
        for _ in 0..ATTEMPTS {
            self.check()?;
            let stop = match self.with_tree(&mut step) {
                None => return ControlFlow::Continue(None),
                Some(Ok(value)) => return ControlFlow::Continue(Some(value)),
                Some(Err(stop)) => stop,
            };
            self.cx.worker.begin_waiting();
            let waited = match stop {
                Stop::Restart => {
                    std::thread::yield_now();
                    Ok(())
                }
                Stop::Fault(fault) => self.cx.worker.resolve(fault),
                Stop::Faults(faults) => self.cx.worker.resolve_all(faults),
                Stop::Log => Ok(()),
                Stop::Error(error) => Err(error),
            };
            if let Err(error) = waited {
                self.core.warm.failed.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(tree = self.name, %error, "the warm start leaves a node out");
                break;
            }
        }
        ControlFlow::Continue(None)
    }

    /// Calls `look` with the tree, unless it was dropped or renamed or cannot be opened now.
    fn with_tree<T>(&self, look: impl FnOnce(&Tree) -> T) -> Option<T> {
        let left_out = self.core.warm.left_out();
        if left_out.contains(&self.id) {
            return None;
        }
        let open = self.core.catalog.reopen_owner(&self.core.txns, self.cx, self.name, self.id);
        match open {
            Ok(open) => open.as_ref().and_then(|open| open.tree_of(self.id)).map(look),
            Err(error) => {
                tracing::debug!(tree = self.name, %error, "the warm start leaves a tree out");
                None
            }
        }
    }

    /// Whether to go on.
    fn check(&self) -> Going {
        let pool = &self.core.pool;
        let batches = DEPTH * batch_of(pool);
        let warm = &self.core.warm;
        let is_vain = warm.is_given_up() || self.core.txns.failure().is_some();
        match is_vain || warm.thread.is_stopping() || pool.spare_frames() < batches {
            true => Going::Break(()),
            false => Going::Continue(()),
        }
    }
}
