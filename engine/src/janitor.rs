//! The janitor: one background thread that clears away what no snapshot needs in the pages: ghosts, and
//! large values that were replaced; and transactions whose owner dropped them where it could not wait.
//! Versions in memory are the keeper's (`keeper.rs`).
//!
//! One round, of [`SLICE`] or a little more:
//! 1. roll back abandoned transactions;
//! 2. clear replaced large values away whose commit lies before the oldest snapshot;
//! 3. remove ghosts of such commits. Those of a tree that a large transaction has for itself, or had, wait
//!    until that is over. Where there were too many to remember, the tree is searched for them, a piece in
//!    each round.
//!
//! The list of ghosts has a limit, in number and in bytes; replaced values have theirs in `replaced.rs`.

use crate::{
    background::BackgroundThread,
    catalog::{OpenTree, TreeTag},
    engine::Core,
    internal::Internal,
    limits::limit,
    ops::Resolve,
    replaced::Replaced,
    session::now,
    txn::{BoxedTxn, Garbage, SystemOf, rollback},
};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::VecDeque,
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use wattle_btree::{Context, Cursor, Direction, LargeValue, Newest, run};
use wattle_buffer::Result;

/// Time between rounds while there is something to do. Ghosts that lie in the same leaf go together: each time
/// the leaf is taken away from the processor that uses it.
const BUSY: Duration = Duration::from_millis(10);
/// And while there is not.
const IDLE: Duration = Duration::from_millis(100);
/// Time after which a round begins nothing new.
const SLICE: Duration = Duration::from_millis(20);

/// Pieces of garbage that are sorted together.
const BATCH: usize = limit(4096, 16);
/// Ghosts that are removed under one latch at most.
const AT_ONCE: usize = limit(32, 5);

/// Ghosts that are remembered one by one, and bytes of their keys.
const MAX_GHOSTS: (usize, usize) = (limit(1 << 16, 24), 4 << 20);

/// What waits for the janitor.
pub(crate) struct Janitor {
    queue: Mutex<Queue>,
    /// Bytes of large values that were replaced, until their chunks are gone.
    replaced_bytes: AtomicU64,
    /// Held during a round.
    round: Mutex<()>,
    thread: BackgroundThread,
}

impl Default for Janitor {
    fn default() -> Janitor {
        Janitor {
            queue: Mutex::default(),
            replaced_bytes: AtomicU64::new(0),
            round: Mutex::new(()),
            thread: BackgroundThread::new("janitor"),
        }
    }
}

#[derive(Default)]
struct Queue {
    /// Ghosts with the times of their commits.
    ghosts: VecDeque<(u64, Ghost)>,
    /// Bytes of their keys.
    key_bytes: usize,
    /// Trees to search for ghosts.
    searches: Vec<Search>,
    /// Large values with the times of the commits that replaced them.
    replaced: VecDeque<(u64, Arc<TreeTag>, LargeValue)>,
    /// Ghosts that a large transaction keeps from being removed, by tree.
    held: Vec<Held>,
    abandoned: Vec<BoxedTxn>,
    /// Transactions that could not be rolled back so far.
    again: Vec<BoxedTxn>,
}

/// The ghost of a record.
struct Ghost {
    tree: Arc<TreeTag>,
    key: Vec<u8>,
}

/// A tree is searched for ghosts of commits up to a time.
struct Search {
    time: u64,
    tree: Arc<TreeTag>,
    /// Where to go on, once begun.
    from: Option<Vec<u8>>,
    /// Behind this search it begins anew, for commits up to this time.
    again: Option<u64>,
}

/// Ghosts of one tree that wait for the end of a large transaction.
struct Held {
    tree: Arc<OpenTree>,
    ghosts: Vec<(u64, Vec<u8>)>,
    /// It is to be searched, for commits up to this time: there were more.
    search: Option<u64>,
}

impl Queue {
    fn has_work(&self) -> bool {
        let garbage =
            !self.ghosts.is_empty() || !self.searches.is_empty() || !self.replaced.is_empty();
        garbage || !self.held.is_empty() || !self.again.is_empty()
    }

    /// Ghosts that wait for an old snapshot must not fill the memory: above the limit their trees are
    /// searched for them instead.
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
            Some(Search { from: Some(_), again, .. }) => *again = (*again).max(Some(time)),
            Some(search) => search.time = search.time.max(time),
            None => self.searches.push(Search { time, tree, from: None, again: None }),
        }
    }

    fn held(&mut self, tree: &Arc<OpenTree>) -> &mut Held {
        let at = self.held.iter().position(|held| Arc::ptr_eq(&held.tree, tree));
        let at = at.unwrap_or_else(|| {
            self.held.push(Held { tree: tree.clone(), ghosts: Vec::new(), search: None });
            self.held.len() - 1
        });
        &mut self.held[at]
    }

    /// Keeps ghosts of a tree until [`Queue::release`].
    fn hold(&mut self, tree: &Arc<OpenTree>, ghosts: impl Iterator<Item = (u64, Vec<u8>)>) {
        let held = self.held(tree);
        held.ghosts.extend(ghosts);
        let bytes: usize = held.ghosts.iter().map(|(_, key)| key.len()).sum();
        if held.ghosts.len() > MAX_GHOSTS.0 || bytes > MAX_GHOSTS.1 {
            let last = held.ghosts.drain(..).map(|(time, _)| time).max();
            held.search = held.search.max(last);
        }
    }

    /// Lets those of some trees go on.
    fn release(&mut self, is_over: impl Fn(&Arc<OpenTree>) -> bool) {
        let released: Vec<_> = self.held.extract_if(.., |held| is_over(&held.tree)).collect();
        for Held { tree, ghosts, search } in released {
            ghosts.into_iter().for_each(|(time, key)| self.add_ghost(time, tree.tag.clone(), key));
            search.into_iter().for_each(|time| self.add_search(time, tree.tag.clone()));
        }
    }
}

/// Garbage of one tree, kept without it.
#[derive(Default)]
pub(crate) struct OwnedVersion {
    ghosts: Vec<(u64, Vec<u8>)>,
    search: Option<u64>,
    replaced: Vec<(u64, LargeValue)>,
}

impl Janitor {
    /// What a commit at `time` left behind.
    pub fn add(&self, time: u64, garbage: Vec<Garbage>) {
        if garbage.is_empty() {
            return;
        }
        let mut queue = self.queue.lock();
        for garbage in garbage {
            match garbage {
                Garbage::Ghost(tree, key) => queue.add_ghost(time, tree, key),
                Garbage::Ghosts(tree) => queue.add_search(time, tree),
                Garbage::Large(tree, large) => {
                    self.replaced_bytes.fetch_add(large.len, Ordering::Relaxed);
                    queue.replaced.push_back((time, tree, large));
                }
            }
        }
    }

    /// Large values that no record refers to, nor ever did.
    pub fn add_large(&self, tree: &Arc<OpenTree>, large: Vec<LargeValue>) {
        self.add(
            0,
            large.into_iter().map(|large| Garbage::Large(tree.tag.clone(), large)).collect(),
        );
    }

    /// Bytes of large values that were replaced, until their chunks are gone.
    #[inline]
    pub fn replaced_bytes(&self) -> u64 {
        self.replaced_bytes.load(Ordering::Relaxed)
    }

    /// Of these, bytes that were replaced after the time `from` and up to the time `to`.
    pub fn replaced_between(&self, from: u64, to: u64) -> u64 {
        if self.replaced_bytes() == 0 {
            return 0;
        }
        let queue = self.queue.lock();
        let held = queue.replaced.iter().filter(|(time, ..)| from < *time && *time <= to);
        held.map(|(.., large)| large.len).sum()
    }

    /// Takes a value of `tree` that was replaced up to the time `before`; the caller makes a [`Replaced`] of it.
    pub fn take_replaced_of(&self, tree: &Arc<OpenTree>, before: u64) -> Option<(u64, LargeValue)> {
        let mut queue = self.queue.lock();
        let ready = |(time, open, _): &(u64, Arc<TreeTag>, LargeValue)| {
            *time <= before && open.id == tree.tag.id
        };
        let at = queue.replaced.iter().position(ready)?;
        queue.replaced.remove(at).map(|(time, _, large)| (time, large))
    }

    fn take_replaced<'c>(&self, core: &'c Core, before: u64) -> Option<Replaced<'c>> {
        let mut queue = self.queue.lock();
        let at = queue.replaced.iter().position(|(time, ..)| *time <= before)?;
        let (time, tree, large) = queue.replaced.remove(at)?;
        Some(Replaced::new(core, time, tree, large))
    }

    /// A value that was taken is gone.
    pub fn note_cleared(&self, large: LargeValue) {
        self.replaced_bytes.fetch_sub(large.len, Ordering::Relaxed);
    }

    /// A value that was taken is not, or not wholly.
    pub fn put_back(&self, time: u64, tree: Arc<TreeTag>, large: LargeValue) {
        self.queue.lock().replaced.push_back((time, tree, large));
    }

    /// A transaction with changes that nobody will end.
    pub fn abandon(&self, txn: BoxedTxn) {
        txn.state.iter().for_each(|state| state.abandon());
        txn.trees
            .iter()
            .for_each(|tree| tree.closed.abandon(txn.state.as_ref().map_or(0, |state| state.id())));
        self.queue.lock().abandoned.push(txn);
        self.thread.wake();
    }

    /// Starts the thread.
    pub fn start(core: &Arc<Core>) -> Result<()> {
        let (ours, cx) = (core.clone(), core.context());
        core.janitor.thread.start(move || work(&ours, &cx))
    }

    /// Stops the thread.
    pub fn stop(&self) {
        self.thread.stop();
    }

    /// Lets go of everything that is still to be done.
    pub fn forget(&self) {
        *self.queue.lock() = Queue::default();
        self.replaced_bytes.store(0, Ordering::Relaxed);
    }

    /// Transactions are left that could not be rolled back.
    pub fn is_stuck(&self) -> bool {
        let queue = self.queue.lock();
        !queue.abandoned.is_empty() || !queue.again.is_empty()
    }

    fn take_abandoned(&self) -> Vec<BoxedTxn> {
        let mut queue = self.queue.lock();
        let mut abandoned = std::mem::take(&mut queue.abandoned);
        abandoned.append(&mut queue.again);
        abandoned
    }

    /// Takes the garbage of a tree, which is about to be dropped or renamed. The caller has the only
    /// handle, so there will be no more.
    pub fn take_of(&self, tree: &Arc<OpenTree>) -> OwnedVersion {
        let _between_rounds = self.round.lock();
        let mut queue = self.queue.lock();
        queue.release(|open| Arc::ptr_eq(open, tree));
        let mut kept = OwnedVersion::default();
        let Queue { ghosts, searches, replaced, key_bytes, .. } = &mut *queue;
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

    /// The tree, perhaps under another name, is still there.
    pub fn give_back(&self, tree: &Arc<TreeTag>, kept: OwnedVersion) {
        for (time, large) in kept.replaced {
            self.add(time, vec![Garbage::Large(tree.clone(), large)]);
        }
        let mut queue = self.queue.lock();
        kept.ghosts.into_iter().for_each(|(time, key)| queue.add_ghost(time, tree.clone(), key));
        kept.search.into_iter().for_each(|time| queue.add_search(time, tree.clone()));
    }

    /// While it lives, nobody clears anything away. Waits for a round that is under way.
    pub fn pause(&self) -> MutexGuard<'_, ()> {
        self.round.lock()
    }

    /// Takes some ghosts that nobody needs, by tree and key.
    fn take_ghosts(&self, before: u64) -> Vec<(u64, Ghost)> {
        let mut queue = self.queue.lock();
        // Times are nearly in order; one that is not only waits a little longer.
        let ready = queue.ghosts.iter().take(BATCH).take_while(|(time, _)| *time <= before).count();
        let mut ready: Vec<_> = queue.ghosts.drain(..ready).collect();
        queue.key_bytes -= ready.iter().map(|(_, ghost)| ghost.key.len()).sum::<usize>();
        drop(queue);
        ready.sort_by(|(_, a), (_, b)| a.place().cmp(&b.place()));
        ready
    }

    /// Those that were not cleared away come first the next time, or last after a failure.
    fn give_ghosts_back(&self, ghosts: impl DoubleEndedIterator<Item = (u64, Ghost)>, first: bool) {
        let mut queue = self.queue.lock();
        for (time, ghost) in ghosts.rev() {
            queue.key_bytes += ghost.key.len();
            match first {
                true => queue.ghosts.push_front((time, ghost)),
                false => queue.ghosts.push_back((time, ghost)),
            }
        }
    }

    fn take_search(&self, before: u64) -> Option<Search> {
        let mut queue = self.queue.lock();
        let at = queue.searches.iter().position(|search| search.time <= before)?;
        Some(queue.searches.swap_remove(at))
    }

    /// A search that has not come to its end goes on later; one that has begins anew when that was asked for.
    fn give_search_back(&self, search: Search) {
        let mut queue = self.queue.lock();
        // Ghosts that came meanwhile.
        let other = queue.searches.iter().position(|other| other.tree.id == search.tree.id);
        let other = other.map(|at| queue.searches.swap_remove(at).time);
        let again = search.again.max(other);
        match (&search.from, again) {
            (Some(_), _) => queue.searches.push(Search { again, ..search }),
            (None, Some(time)) => queue.add_search(time, search.tree),
            (None, None) => {}
        }
    }
}

impl Ghost {
    fn place(&self) -> (u32, &[u8]) {
        (self.tree.id.0, &self.key)
    }
}

/// When a round begins nothing new.
#[derive(Clone, Copy)]
struct Until(Option<Instant>);

impl Until {
    fn is_over(self) -> bool {
        self.0.is_some_and(|end| Instant::now() >= end)
    }
}

fn work(core: &Core, cx: &Context) {
    let janitor = &core.janitor;
    let mut is_done = true;
    let pause = |is_done: bool| {
        let queue = janitor.queue.lock();
        if !is_done || !queue.abandoned.is_empty() {
            return None;
        }
        Some(if queue.has_work() { BUSY } else { IDLE })
    };
    while janitor.thread.wait(|| pause(is_done)) {
        is_done = core.round(cx, Some(SLICE));
    }
}

impl Core {
    /// Looks at all versions, and clears all garbage away that was there when it began, as far as nobody needs
    /// it.
    pub fn janitor_round(&self, cx: &Context) {
        self.tend();
        self.round(cx, None);
    }

    /// What was replaced or removed by commits up to this time, nobody needs.
    pub fn ready_before(&self) -> u64 {
        // In this order, as in a look of the keeper.
        let visible = self.visible();
        let active = self.snapshots.collect(&self.clock, &self.ids);
        self.versions.raise_horizon(active.oldest.min(visible))
    }

    /// One round, see the module documentation; one at a time. False: it ended because of its time.
    fn round(&self, cx: &Context, time: Option<Duration>) -> bool {
        let _round = self.janitor.round.lock();
        let internal = Internal::new(self, cx);
        let begun = Instant::now();
        let until = |part: u32| Until(time.map(|time| begun + time / part));
        // 1. Transactions.
        for mut txn in self.janitor.take_abandoned() {
            match now(rollback(&internal, &mut txn, None)) {
                Ok(()) => internal.give_idle(txn),
                Err(error) => {
                    tracing::warn!(%error, "a transaction could not be rolled back yet");
                    self.janitor.queue.lock().again.push(txn);
                }
            }
        }
        let before = self.ready_before();
        self.janitor.queue.lock().release(|open| open.closed.is_over(before));
        // 2. Large values, for half of the time: ghosts must not wait for them.
        let mut is_done = true;
        while let Some(replaced) = self.janitor.take_replaced(self, before) {
            if let Err(error) = self.clear_replaced(&internal, replaced) {
                tracing::warn!(%error, "a replaced value stays for a while");
                break;
            }
            if until(2).is_over() {
                is_done = false;
                break;
            }
        }
        // 3. Ghosts.
        match self.clear_ghosts(cx, before, until(1)) {
            Ok(all) => is_done && all,
            Err(error) => {
                tracing::warn!(%error, "ghosts stay for a while");
                true
            }
        }
    }

    fn clear_replaced(&self, internal: &Internal<'_>, replaced: Replaced<'_>) -> Result<()> {
        match self.catalog.reopen(self, internal.cx, &replaced.tag)? {
            Some(tree) => now(replaced.clear(internal, &tree)),
            None => {
                replaced.went_with_its_tree();
                Ok(())
            }
        }
    }

    /// Removes ghosts; gives whether that was all.
    fn clear_ghosts(&self, cx: &Context, before: u64, until: Until) -> Result<bool> {
        loop {
            let mut ready = self.janitor.take_ghosts(before);
            if ready.is_empty() {
                break;
            }
            let mut at = 0;
            let cleared = self.clear_batch(cx, &mut ready, &mut at, until);
            self.janitor.give_ghosts_back(ready.drain(at..), cleared.is_ok());
            cleared?;
            if until.is_over() {
                return Ok(false);
            }
        }
        while let Some(mut search) = self.janitor.take_search(before) {
            let searched = self.search(cx, &mut search, until);
            if searched.is_err() && search.from.is_none() {
                search.again = search.again.max(Some(search.time));
            }
            self.janitor.give_search_back(search);
            searched?;
            if until.is_over() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes these ghosts, `at` of which are done, until the time is over.
    fn clear_batch(
        &self,
        cx: &Context,
        ready: &mut Vec<(u64, Ghost)>,
        at: &mut usize,
        until: Until,
    ) -> Result<()> {
        while *at < ready.len() && !until.is_over() {
            let tag = ready[*at].1.tree.clone();
            let same = ready[*at..].iter().take_while(|(_, ghost)| ghost.tree.id == tag.id);
            let Some(tree) = self.catalog.reopen(self, cx, &tag)? else {
                // It was dropped, with everything in it.
                *at += same.count();
                continue;
            };
            let keys: Vec<&[u8]> = same.map(|(_, ghost)| &*ghost.key).take(AT_ONCE).collect();
            let (pieces, refused) = self.purge(cx, &tree, &keys)?;
            if refused {
                let held = ready.drain(*at..*at + pieces).map(|(time, ghost)| (time, ghost.key));
                self.janitor.queue.lock().hold(&tree, held);
            } else {
                *at += pieces;
            }
        }
        Ok(())
    }

    /// Removes the ghosts of the first of these keys and of those behind it in the same leaf, as far as
    /// no snapshot needs them. Gives how many keys are done, and whether a large transaction keeps some of
    /// them.
    fn purge(&self, cx: &Context, tree: &OpenTree, keys: &[&[u8]]) -> Result<(usize, bool)> {
        if !tree.closed.is_over(self.versions.horizon()) {
            return Ok((keys.len(), true));
        }
        let mut author = SystemOf::purging(self, tree);
        let (done, underfull) = run(cx, |_| tree.tree.purge_step(cx, keys, &mut author))?;
        if underfull {
            run(cx, |_| tree.tree.merge_step(cx, keys[0], 0))?;
        }
        Ok((done, author.was_refused()))
    }

    /// Removes all ghosts of a tree that no snapshot needs, from where it was left, until the time is over.
    fn search(&self, cx: &Context, search: &mut Search, until: Until) -> Result<()> {
        let Some(tree) = self.catalog.reopen(self, cx, &search.tree)? else {
            // It was dropped, with everything in it.
            (search.from, search.again) = (None, None);
            return Ok(());
        };
        let low = search.from.clone().map_or(Bound::Unbounded, Bound::Included);
        let mut cursor = Cursor::new(low, Bound::Unbounded, Direction::Forward);
        let mut keys: Vec<Vec<u8>> = Vec::new();
        while cursor.is_loaded() || !cursor.is_at_end() {
            if !cursor.is_loaded() {
                run(cx, |_| cursor.load_step(&tree.tree, &mut Newest))?;
                continue;
            }
            while cursor.is_loaded() && keys.len() < AT_ONCE {
                if cursor.take()?.is_none() {
                    keys.push(cursor.key().to_vec());
                }
            }
            while !keys.is_empty() {
                let refs: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                let (done, refused) = self.purge(cx, &tree, &refs)?;
                if refused {
                    // All of it again, when the large transaction is over.
                    let time = search.again.unwrap_or(0).max(search.time);
                    let mut queue = self.janitor.queue.lock();
                    let held = queue.held(&tree);
                    held.search = held.search.max(Some(time));
                    (search.from, search.again) = (None, None);
                    return Ok(());
                }
                keys.drain(..done);
            }
            search.from = Some(cursor.key().to_vec());
            if until.is_over() {
                return Ok(());
            }
        }
        search.from = None;
        Ok(())
    }
}
