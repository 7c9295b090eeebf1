//! Garbage that commits leave in the pages until no snapshot needs it: ghosts of deleted records,
//! and large values that were replaced.
//!
//! Commits add it with their times. The janitor takes garbage that is ready, and clears it away.
//! Only ghosts that a large transaction holds back keep their tree open.
//!
//! The list of ghosts has a limit, in number and in bytes. Above it their trees are searched for
//! them instead. Replaced values are counted in bytes; `session/large_room.rs` holds them to their
//! limit.

use crate::{
    catalog::{OpenTree, TreeTag},
    limits::limit,
};
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use wattle_btree::{Before, LargeValue, Undo, is_ghost};
use wattle_buffer::TreeId;

/// Pieces of garbage that are sorted together.
const BATCH: usize = limit(4096, 16);
/// Ghosts that are remembered one by one, and bytes of their keys.
const MAX_GHOSTS: (usize, usize) = (limit(1 << 16, 24), 4 << 20);

/// One piece of garbage. It does not keep its tree open.
pub(crate) enum Garbage {
    /// The ghost of a record.
    Ghost(Arc<TreeTag>, Vec<u8>),
    /// Ghosts somewhere in a tree.
    Ghosts(Arc<TreeTag>),
    /// A large value that no record refers to, listed in the catalog.
    Large(Arc<TreeTag>, LargeValue),
}

/// A large value whose bytes are in the data file and not in the log, listed in the catalog.
pub(crate) struct ListedValue {
    pub tag: Arc<TreeTag>,
    /// The tree of its chunks.
    pub chunks: TreeId,
    pub large: LargeValue,
}

/// See the module documentation.
#[derive(Default)]
pub(crate) struct GarbageQueue {
    lists: Mutex<Lists>,
    /// Bytes of large values that were replaced, until their chunks are gone.
    replaced_bytes: AtomicU64,
}

#[derive(Default)]
struct Lists {
    /// Ghosts with the times of their commits.
    ghosts: VecDeque<(u64, Ghost)>,
    /// Bytes of their keys.
    key_bytes: usize,
    /// Trees to search for ghosts.
    searches: Vec<GhostSearch>,
    /// Large values with the times of the commits that replaced them.
    replaced: VecDeque<(u64, Arc<TreeTag>, LargeValue)>,
    /// Ghosts that a large transaction keeps from being removed, by tree.
    held: Vec<HeldGhosts>,
    /// Large values to be taken off the list in the catalog, because a record refers to them: the
    /// tree of the chunks, and the time that the horizon must have reached.
    adopted: VecDeque<(u64, TreeId, LargeValue)>,
}

/// The ghost of a record.
pub(crate) struct Ghost {
    pub tree: Arc<TreeTag>,
    pub key: Vec<u8>,
}

/// A search of a whole tree for ghosts of commits up to `time`.
pub(crate) struct GhostSearch {
    pub time: u64,
    pub tree: Arc<TreeTag>,
    /// The key at which a search that has begun goes on.
    pub from: Option<Vec<u8>>,
    /// The search starts again after this one, for commits up to this time.
    pub again: Option<u64>,
}

/// Ghosts of one tree that wait for the end of a large transaction.
struct HeldGhosts {
    tree: Arc<OpenTree>,
    ghosts: Vec<(u64, Vec<u8>)>,
    /// There were more ghosts than the limit: search the tree for commits up to this time.
    search: Option<u64>,
}

impl Lists {
    fn has_work(&self) -> bool {
        let garbage =
            !self.ghosts.is_empty() || !self.searches.is_empty() || !self.replaced.is_empty();
        garbage || !self.held.is_empty() || !self.adopted.is_empty()
    }

    /// Adds a ghost. Above the limit its tree is searched instead: ghosts that wait for an old
    /// snapshot must not fill the memory.
    fn add_ghost(&mut self, time: u64, tree: Arc<TreeTag>, key: Vec<u8>) {
        let (ghosts, bytes) = MAX_GHOSTS;
        if self.ghosts.len() >= ghosts || self.key_bytes + key.len() > bytes {
            return self.add_search(time, tree);
        }
        self.key_bytes += key.len();
        self.ghosts.push_back((time, Ghost { tree, key }));
    }

    fn add_search(&mut self, time: u64, tree: Arc<TreeTag>) {
        match self.searches.iter_mut().find(|search| search.tree.id == tree.id) {
            Some(GhostSearch { from: Some(_), again, .. }) => *again = (*again).max(Some(time)),
            Some(search) => search.time = search.time.max(time),
            None => self.searches.push(GhostSearch { time, tree, from: None, again: None }),
        }
    }

    fn held(&mut self, tree: &Arc<OpenTree>) -> &mut HeldGhosts {
        let at = self.held.iter().position(|held| Arc::ptr_eq(&held.tree, tree));
        let at = at.unwrap_or_else(|| {
            self.held.push(HeldGhosts { tree: tree.clone(), ghosts: Vec::new(), search: None });
            self.held.len() - 1
        });
        &mut self.held[at]
    }

    /// Keeps ghosts of a tree until [`GarbageQueue::release`].
    fn hold(&mut self, tree: &Arc<OpenTree>, ghosts: impl Iterator<Item = (u64, Vec<u8>)>) {
        let held = self.held(tree);
        held.ghosts.extend(ghosts);
        let bytes: usize = held.ghosts.iter().map(|(_, key)| key.len()).sum();
        if held.ghosts.len() > MAX_GHOSTS.0 || bytes > MAX_GHOSTS.1 {
            let last = held.ghosts.drain(..).map(|(time, _)| time).max();
            held.search = held.search.max(last);
        }
    }

    /// Moves the held ghosts of trees that are over to the queue.
    fn release(&mut self, is_over: impl Fn(&Arc<OpenTree>) -> bool) {
        let released: Vec<_> = self.held.extract_if(.., |held| is_over(&held.tree)).collect();
        for HeldGhosts { tree, ghosts, search } in released {
            ghosts.into_iter().for_each(|(time, key)| self.add_ghost(time, tree.tag.clone(), key));
            search.into_iter().for_each(|time| self.add_search(time, tree.tag.clone()));
        }
    }
}

/// Garbage of one tree that is dropped or renamed, taken off the queue.
#[derive(Default)]
pub(crate) struct TreeGarbage {
    ghosts: Vec<(u64, Vec<u8>)>,
    search: Option<u64>,
    replaced: Vec<(u64, LargeValue)>,
}

impl GarbageQueue {
    /// Adds the garbage of a commit at `time`.
    pub fn add(&self, time: u64, garbage: Vec<Garbage>) {
        if garbage.is_empty() {
            return;
        }
        let mut lists = self.lists.lock();
        for garbage in garbage {
            match garbage {
                Garbage::Ghost(tree, key) => lists.add_ghost(time, tree, key),
                Garbage::Ghosts(tree) => lists.add_search(time, tree),
                Garbage::Large(tree, large) => {
                    self.replaced_bytes.fetch_add(large.len, Ordering::Relaxed);
                    lists.replaced.push_back((time, tree, large));
                }
            }
        }
    }

    /// Adds large values that no record has ever referred to.
    pub fn add_large(&self, tree: &Arc<OpenTree>, large: Vec<LargeValue>) {
        self.add(
            0,
            large.into_iter().map(|large| Garbage::Large(tree.tag.clone(), large)).collect(),
        );
    }

    /// Adds listed values of a transaction that was rolled back.
    pub fn add_forsaken(&self, values: impl IntoIterator<Item = ListedValue>) {
        let values = values.into_iter();
        self.add(0, values.map(|value| Garbage::Large(value.tag, value.large)).collect());
    }

    /// Adds listed values of a transaction that has committed.
    pub fn add_adopted(&self, values: impl IntoIterator<Item = ListedValue>) {
        let values = values.into_iter().map(|value| (0, value.chunks, value.large));
        self.lists.lock().adopted.extend(values);
    }

    /// Takes a value that is to be taken off the list in the catalog.
    pub fn take_adopted(&self, before: u64) -> Option<(TreeId, LargeValue)> {
        let mut lists = self.lists.lock();
        let at = lists.adopted.iter().position(|(time, ..)| *time <= before)?;
        lists.adopted.remove(at).map(|(_, chunks, large)| (chunks, large))
    }

    /// Gives it back, for when no snapshot is older than `time`.
    pub fn give_adopted_back(&self, time: u64, (chunks, large): (TreeId, LargeValue)) {
        self.lists.lock().adopted.push_back((time, chunks, large));
    }

    /// Whether something waits.
    pub fn has_work(&self) -> bool {
        self.lists.lock().has_work()
    }

    /// Keeps ghosts of a tree until [`GarbageQueue::release`].
    pub fn hold(&self, tree: &Arc<OpenTree>, ghosts: impl Iterator<Item = (u64, Vec<u8>)>) {
        self.lists.lock().hold(tree, ghosts);
    }

    /// Keeps the search of a tree, for commits up to `time`, until [`GarbageQueue::release`].
    pub fn hold_search(&self, tree: &Arc<OpenTree>, time: u64) {
        let mut lists = self.lists.lock();
        let held = lists.held(tree);
        held.search = held.search.max(Some(time));
    }

    /// Moves the held ghosts of trees that are over to the queue.
    pub fn release(&self, is_over: impl Fn(&Arc<OpenTree>) -> bool) {
        self.lists.lock().release(is_over);
    }

    /// A rollback has put a record back at `time`. If it is a ghost it is queued again: the janitor
    /// may have met the newer record in its place.
    pub fn add_put_back(&self, time: u64, open: Option<&Arc<OpenTree>>, undo: &Undo<'_>) {
        if let (Before::Value { bytes, special: true }, Some(open)) = (undo.before, open)
            && is_ghost((bytes, true))
        {
            self.add(time, vec![Garbage::Ghost(open.tag.clone(), undo.key.to_vec())]);
        }
    }

    /// Bytes of large values that were replaced, until their chunks are gone.
    #[inline]
    pub fn replaced_bytes(&self) -> u64 {
        self.replaced_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of large values that were replaced after the time `from` and up to the time `to`.
    pub fn replaced_between(&self, from: u64, to: u64) -> u64 {
        if self.replaced_bytes() == 0 {
            return 0;
        }
        let lists = self.lists.lock();
        let held = lists.replaced.iter().filter(|(time, ..)| from < *time && *time <= to);
        held.map(|(.., large)| large.len).sum()
    }

    /// Takes a value of `tree` that was replaced up to the time `before`.
    pub fn take_replaced_of(&self, tree: &Arc<OpenTree>, before: u64) -> Option<(u64, LargeValue)> {
        let mut lists = self.lists.lock();
        let ready = |(time, open, _): &(u64, Arc<TreeTag>, LargeValue)| {
            *time <= before && open.id == tree.tag.id
        };
        let at = lists.replaced.iter().position(ready)?;
        lists.replaced.remove(at).map(|(time, _, large)| (time, large))
    }

    /// Takes a value of any tree that was replaced up to the time `before`.
    pub fn take_replaced(&self, before: u64) -> Option<(u64, Arc<TreeTag>, LargeValue)> {
        let mut lists = self.lists.lock();
        let at = lists.replaced.iter().position(|(time, ..)| *time <= before)?;
        lists.replaced.remove(at)
    }

    /// A value that was taken has been cleared away.
    pub fn note_cleared(&self, large: LargeValue) {
        self.replaced_bytes.fetch_sub(large.len, Ordering::Relaxed);
    }

    /// A value that was taken has not been cleared away completely.
    pub fn put_back(&self, time: u64, tree: Arc<TreeTag>, large: LargeValue) {
        self.lists.lock().replaced.push_back((time, tree, large));
    }

    /// Drops all garbage from the queue.
    pub fn forget(&self) {
        *self.lists.lock() = Lists::default();
        self.replaced_bytes.store(0, Ordering::Relaxed);
    }

    /// Takes the garbage of a tree that is about to be dropped or renamed. The caller has the only
    /// handle and has paused the janitor, so no more is added.
    pub fn take_of(&self, tree: &Arc<OpenTree>) -> TreeGarbage {
        let mut lists = self.lists.lock();
        lists.release(|open| Arc::ptr_eq(open, tree));
        let mut kept = TreeGarbage::default();
        let Lists { ghosts, searches, replaced, key_bytes, .. } = &mut *lists;
        ghosts.retain_mut(|(time, ghost)| {
            let other = ghost.tree.id != tree.tag.id;
            if !other {
                *key_bytes -= ghost.key.len();
                kept.ghosts.push((*time, std::mem::take(&mut ghost.key)));
            }
            other
        });
        let of_tree = searches.extract_if(.., |search| search.tree.id == tree.tag.id);
        kept.search = of_tree.map(|search| search.time.max(search.again.unwrap_or(0))).max();
        replaced.retain(|(time, open, large)| {
            let other = open.id != tree.tag.id;
            if !other {
                self.note_cleared(*large);
                kept.replaced.push((*time, *large));
            }
            other
        });
        kept
    }

    /// Adds garbage that [`GarbageQueue::take_of`] has taken: the tree still exists, perhaps under
    /// another name.
    pub fn give_back(&self, tree: &Arc<TreeTag>, kept: TreeGarbage) {
        for (time, large) in kept.replaced {
            self.add(time, vec![Garbage::Large(tree.clone(), large)]);
        }
        let mut lists = self.lists.lock();
        kept.ghosts.into_iter().for_each(|(time, key)| lists.add_ghost(time, tree.clone(), key));
        kept.search.into_iter().for_each(|time| lists.add_search(time, tree.clone()));
    }

    /// Takes a batch of ghosts of commits up to `before`, in the order of tree and key.
    pub fn take_ghosts(&self, before: u64) -> Vec<(u64, Ghost)> {
        let mut lists = self.lists.lock();
        // Times are nearly in order. A ghost out of order only waits longer.
        let ready = lists.ghosts.iter().take(BATCH).take_while(|(time, _)| *time <= before).count();
        let mut ready: Vec<_> = lists.ghosts.drain(..ready).collect();
        lists.key_bytes -= ready.iter().map(|(_, ghost)| ghost.key.len()).sum::<usize>();
        drop(lists);
        ready.sort_by(|(_, a), (_, b)| a.place().cmp(&b.place()));
        ready
    }

    /// Gives back ghosts that were not cleared away: to the front of the queue, or to its end after
    /// a failure.
    pub fn give_ghosts_back(
        &self,
        ghosts: impl DoubleEndedIterator<Item = (u64, Ghost)>,
        first: bool,
    ) {
        let mut lists = self.lists.lock();
        for (time, ghost) in ghosts.rev() {
            lists.key_bytes += ghost.key.len();
            match first {
                true => lists.ghosts.push_front((time, ghost)),
                false => lists.ghosts.push_back((time, ghost)),
            }
        }
    }

    pub fn take_search(&self, before: u64) -> Option<GhostSearch> {
        let mut lists = self.lists.lock();
        let at = lists.searches.iter().position(|search| search.time <= before)?;
        Some(lists.searches.swap_remove(at))
    }

    /// Gives back a search: one that has not reached the end goes on later; one that has starts
    /// again if a repetition was requested.
    pub fn give_search_back(&self, search: GhostSearch) {
        let mut lists = self.lists.lock();
        // Searches that were requested meanwhile.
        let other = lists.searches.iter().position(|other| other.tree.id == search.tree.id);
        let other = other.map(|at| lists.searches.swap_remove(at).time);
        let again = search.again.max(other);
        match (&search.from, again) {
            (Some(_), _) => lists.searches.push(GhostSearch { again, ..search }),
            (None, Some(time)) => lists.add_search(time, search.tree),
            (None, None) => {}
        }
    }
}

impl Ghost {
    fn place(&self) -> (u32, &[u8]) {
        (self.tree.id.0, &self.key)
    }
}
