//! The janitor: one background thread that clears away what no snapshot needs any more. Versions of
//! records, ghosts, large values that were replaced; and transactions whose owner dropped them where
//! it could not wait.
//!
//! One round:
//! 1. look at who is active; publish the oldest writer, which lets readers settle page hints;
//! 2. in every tenth round, drop versions that were replaced before the oldest snapshot and are
//!    visible ([`Core::visible`]), as far as the sessions that stored them have handed them over; now
//!    and then all, because a session that does nothing drops nothing;
//! 3. roll back abandoned transactions;
//! 4. in every fifth round, remove garbage of commits before the oldest snapshot. Ghosts of a tree that a
//!    large transaction has for itself, or had, wait until that is over.
//!
//! When versions take more than the limit of the engine, the oldest snapshot is cancelled: its owner
//! gets [`wattle_buffer::Error::SnapshotTooOld`] at its next read, and nobody else notices. Again
//! until it is enough, or only transactions with changes of their own are left.

use crate::{
    catalog::{OpenTree, TreeTag},
    engine::Core,
    internal::Internal,
    limits::limit,
    mvcc::{Active, Stored},
    ops::Resolve,
    session::now,
    txn::{BoxedTxn, Garbage, SystemOf, rollback},
};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};
use wattle_btree::{Context, Cursor, Direction, LargeValue, Newest, run};
use wattle_buffer::{Error, Result};

/// Time between rounds while there is something to do.
const BUSY: Duration = Duration::from_millis(2);
/// And while there is not.
const IDLE: Duration = Duration::from_millis(100);
/// Rounds from one pass over all versions to the next, while there is something to do. A pass takes
/// the shards of the version index away from the processors that use them.
const PASS_EVERY: u64 = 10;

/// Least time between sweeps of all versions, and how many times longer it is than a sweep takes.
const SWEEP_EVERY: (Duration, u32) =
    (Duration::from_millis(limit(1000, 20) as u64), limit(50, 2) as u32);
/// Rounds from one look at the memory of all versions to the next: the sums of all shards.
const SUM_EVERY: u64 = 5 * PASS_EVERY;

/// Rounds from one look at garbage to the next, while there is something to do. Ghosts that lie in the same
/// leaf go together: each time the leaf is taken away from the processor that uses it.
const GARBAGE_EVERY: u64 = 5;
/// Pieces of garbage that are sorted together.
const BATCH: usize = limit(4096, 16);
/// Ghosts that are removed under one latch at most.
const AT_ONCE: usize = limit(32, 5);

/// Pieces of garbage that are remembered one by one.
const MAX_QUEUE: usize = limit(1 << 16, 24);

/// What waits for the janitor.
#[derive(Default)]
pub(crate) struct Janitor {
    queue: Mutex<Queue>,
    wake: Condvar,
    /// See [`Core::oldest_writer`].
    pub oldest_writer: AtomicU64,
    /// Held during a round.
    round: Mutex<()>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Queue {
    garbage: VecDeque<(u64, Garbage)>,
    /// Ghosts that a large transaction keeps from being removed, by tree.
    held: Vec<Held>,
    abandoned: Vec<BoxedTxn>,
    /// Transactions that could not be rolled back so far.
    again: Vec<BoxedTxn>,
    stopping: bool,
}

/// Ghosts of one tree.
struct Held {
    tree: Arc<OpenTree>,
    ghosts: Vec<(u64, Garbage)>,
}

impl Queue {
    /// Keeps ghosts of a tree until [`Queue::release`].
    fn hold(&mut self, tree: &Arc<OpenTree>, mut ghosts: Vec<(u64, Garbage)>) {
        let at = self.held.iter().position(|held| Arc::ptr_eq(&held.tree, tree));
        let at = at.unwrap_or_else(|| {
            self.held.push(Held { tree: tree.clone(), ghosts: Vec::new() });
            self.held.len() - 1
        });
        let held = &mut self.held[at].ghosts;
        held.append(&mut ghosts);
        if held.len() > MAX_QUEUE {
            let last = held.iter().map(|(time, _)| *time).max().unwrap_or(0);
            *held = vec![(last, Garbage::Ghosts(tree.tag.clone()))];
        }
    }

    /// Lets those of some trees go on.
    fn release(&mut self, is_over: impl Fn(&Arc<OpenTree>) -> bool) {
        for held in self.held.extract_if(.., |held| is_over(&held.tree)) {
            self.garbage.extend(held.ghosts);
        }
    }
}

/// Garbage of one tree, kept without it.
pub(crate) struct Kept(Vec<(u64, Piece)>);

enum Piece {
    Ghost(Vec<u8>),
    Ghosts,
    Large(LargeValue),
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
                // Ghosts that wait for an old snapshot must not fill the memory: their trees are
                // searched for them instead.
                Garbage::Ghost(tree, _) | Garbage::Ghosts(tree)
                    if queue.garbage.len() >= MAX_QUEUE =>
                {
                    let same = |(_, other): &&mut (u64, Garbage)| matches!(other, Garbage::Ghosts(tag) if tag.id == tree.id);
                    match queue.garbage.range_mut(MAX_QUEUE..).find(same) {
                        Some((since, _)) => *since = time.max(*since),
                        None => queue.garbage.push_back((time, Garbage::Ghosts(tree))),
                    }
                }
                garbage => queue.garbage.push_back((time, garbage)),
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

    /// A transaction with changes that nobody will end.
    pub fn abandon(&self, txn: BoxedTxn) {
        self.queue.lock().abandoned.push(txn);
        self.wake.notify_all();
    }

    /// Starts the thread.
    pub fn start(core: &Arc<Core>) -> Result<()> {
        let thread = std::thread::Builder::new().name("janitor".to_string());
        let (ours, cx) = (core.clone(), core.context());
        let thread = thread.spawn(move || work(&ours, &cx));
        let thread = thread.map_err(|error| Error::io("start a thread", error))?;
        *core.janitor.thread.lock() = Some(thread);
        Ok(())
    }

    /// Stops the thread and gives what was not cleared away.
    pub fn stop(&self) {
        self.queue.lock().stopping = true;
        self.wake.notify_all();
        let thread = self.thread.lock().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the janitor ended by a panic");
        }
    }

    /// Lets go of everything that is still to be done.
    pub fn forget(&self) {
        let mut queue = self.queue.lock();
        queue.garbage.clear();
        queue.held.clear();
        queue.abandoned.clear();
        queue.again.clear();
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
    pub fn take_of(&self, tree: &Arc<OpenTree>) -> Kept {
        let _between_rounds = self.round.lock();
        let mut queue = self.queue.lock();
        queue.release(|open| Arc::ptr_eq(open, tree));
        let mut kept = Vec::new();
        queue.garbage.retain(|(time, garbage)| {
            let piece = match garbage {
                Garbage::Ghost(tag, key) if tag.id == tree.tag.id => Piece::Ghost(key.clone()),
                Garbage::Ghosts(tag) if tag.id == tree.tag.id => Piece::Ghosts,
                Garbage::Large(tag, large) if tag.id == tree.tag.id => Piece::Large(*large),
                _ => return true,
            };
            kept.push((*time, piece));
            false
        });
        Kept(kept)
    }

    /// The tree, perhaps under another name, is still there.
    pub fn give_back(&self, tree: &Arc<TreeTag>, kept: Kept) {
        for (time, piece) in kept.0 {
            let garbage = match piece {
                Piece::Ghost(key) => Garbage::Ghost(tree.clone(), key),
                Piece::Ghosts => Garbage::Ghosts(tree.clone()),
                Piece::Large(large) => Garbage::Large(tree.clone(), large),
            };
            self.add(time, vec![garbage]);
        }
    }

    /// While it lives, nobody clears anything away. Waits for a round that is under way.
    pub fn pause(&self) -> MutexGuard<'_, ()> {
        self.round.lock()
    }

    /// Takes some of what nobody needs any more, ghosts first, by tree and key.
    fn take_ready(&self, before: u64) -> Vec<(u64, Garbage)> {
        let mut queue = self.queue.lock();
        // Times are nearly in order; one that is not only waits a little longer.
        let ready =
            queue.garbage.iter().take(BATCH).take_while(|(time, _)| *time <= before).count();
        let mut ready: Vec<_> = queue.garbage.drain(..ready).collect();
        drop(queue);
        ready.sort_by(|(_, a), (_, b)| a.place().cmp(&b.place()));
        ready
    }
}

/// What a round does with versions.
#[derive(Clone, Copy)]
struct Pass {
    /// Look at all of them.
    sweep: bool,
    /// Add up what they take.
    sum: bool,
}

/// What became of the first pieces of garbage.
struct Cleared {
    pieces: usize,
    /// A large transaction has this tree for itself, or had it, and they have to wait.
    held: Option<Arc<OpenTree>>,
}

/// The key, if this is a ghost of the tree.
fn ghost_of<'g>(tree: &TreeTag, garbage: &'g Garbage) -> Option<&'g [u8]> {
    match garbage {
        Garbage::Ghost(tag, key) if tag.id == tree.id => Some(key),
        _ => None,
    }
}

fn work(core: &Core, cx: &Context) {
    let janitor = &core.janitor;
    let mut any_versions = true;
    let mut next_sweep = Instant::now();
    for number in 0_u64.. {
        let busy;
        {
            let mut queue = janitor.queue.lock();
            busy = !queue.garbage.is_empty() || any_versions;
            if queue.abandoned.is_empty() && !queue.stopping {
                let pause = if busy { BUSY } else { IDLE };
                janitor.wake.wait_until(&mut queue, Instant::now() + pause);
            }
            if queue.stopping {
                return;
            }
        }
        let begun = Instant::now();
        let is_due = |every: u64| !busy || number.is_multiple_of(every);
        let (sweep, sum) = (begun >= next_sweep, is_due(SUM_EVERY));
        let pass = is_due(PASS_EVERY).then_some(Pass { sweep, sum });
        core.round(cx, pass, is_due(GARBAGE_EVERY));
        if pass.is_some() && sweep {
            let (least, times) = SWEEP_EVERY;
            next_sweep = Instant::now() + least.max(times * begun.elapsed());
        }
        if pass.is_some() {
            any_versions = match sum {
                true => core.versions.bytes() > 0,
                false => any_versions || core.versions.is_queued(),
            };
        }
    }
}

impl Core {
    /// One round, see the module documentation. Gives who was active. One at a time, so that what was
    /// there when it began is cleared away when it ends, as far as nobody needs it.
    pub fn janitor_round(&self, cx: &Context) -> Active {
        self.round(cx, Some(Pass { sweep: true, sum: true }), true)
    }

    fn round(&self, cx: &Context, pass: Option<Pass>, garbage: bool) -> Active {
        let _round = self.janitor.round.lock();
        // Before the look at the snapshots: a snapshot that is opened at a visible commit after this
        // look is at this one or a later one.
        let visible = self.visible();
        let mut active = self.snapshots.collect(&self.clock, &self.ids);
        active.as_of = active.as_of.min(visible);
        // Never back: what one thread concluded from it, another must not deny.
        self.janitor.oldest_writer.fetch_max(active.oldest_writer_since, Ordering::AcqRel);
        if let Some(Pass { sweep, sum }) = pass {
            self.versions.collect(&active, visible, sweep);
            if sum {
                self.shed_versions(&active, visible, sweep);
            }
        } else {
            self.versions.publish(&active, visible);
        }
        for mut txn in self.janitor.take_abandoned() {
            let internal = Internal::new(self, cx);
            match now(rollback(&internal, &mut txn, None)) {
                Ok(()) => internal.give_idle(txn),
                Err(error) => {
                    tracing::warn!(%error, "a transaction could not be rolled back yet");
                    self.janitor.queue.lock().again.push(txn);
                }
            }
        }
        if garbage {
            let horizon = self.versions.horizon();
            self.janitor.queue.lock().release(|open| open.closed.is_over(horizon));
        }
        let take_ready = || self.janitor.take_ready(active.oldest.min(visible));
        let mut ready = if garbage { take_ready() } else { Vec::new() };
        while !ready.is_empty() {
            if let Err((error, left)) = self.clear_all(cx, ready) {
                tracing::warn!(%error, "garbage stays for a while");
                self.janitor.queue.lock().garbage.extend(left);
                break;
            }
            ready = take_ready();
        }
        active
    }

    /// Clears garbage away; gives what is left when that fails.
    fn clear_all(
        &self,
        cx: &Context,
        mut ready: Vec<(u64, Garbage)>,
    ) -> Result<(), (Error, Vec<(u64, Garbage)>)> {
        let mut at = 0;
        while at < ready.len() {
            match self.clear_away(cx, &ready[at..]) {
                Ok(Cleared { pieces, held: None }) => at += pieces,
                Ok(Cleared { pieces, held: Some(tree) }) => {
                    let held = ready.drain(at..at + pieces).collect();
                    self.janitor.queue.lock().hold(&tree, held);
                }
                Err(error) => return Err((error, ready.split_off(at))),
            }
        }
        Ok(())
    }

    /// Drops what a session stored, as far as nobody needs it.
    #[inline]
    pub fn drop_stored(&self, stored: &mut Stored) {
        let Some(oldest) = stored.oldest() else { return };
        if self.versions.horizon() >= oldest || (stored.is_worth_a_look() && self.look(oldest)) {
            stored.drop_old(&self.versions);
        }
    }

    /// Looks at the snapshots, unless the commit at `oldest` is not visible or somebody else does.
    fn look(&self, oldest: u64) -> bool {
        // In this order, as in a round.
        let visible = self.visible();
        if visible < oldest {
            return false;
        }
        let snapshot = self.snapshots.try_oldest(&self.clock);
        snapshot
            .inspect(|snapshot| _ = self.versions.raise_horizon(visible.min(*snapshot)))
            .is_some()
    }

    /// Cancels snapshots when versions take too much memory. `swept`: all versions were just looked at.
    fn shed_versions(&self, active: &Active, visible: u64, swept: bool) {
        let mut bytes = self.versions.bytes();
        if bytes > self.version_bytes && !swept {
            // Sessions that do nothing may keep many that nobody needs any more.
            self.versions.collect(active, visible, true);
            bytes = self.versions.bytes();
        }
        if bytes <= self.version_bytes {
            return;
        }
        if let Some(oldest) = active.list.first().filter(|oldest| **oldest < active.as_of) {
            let cancelled = self.snapshots.cancel_below(oldest + 1);
            // They may have ended meanwhile.
            if cancelled > 0 {
                let limit = self.version_bytes;
                tracing::warn!(bytes, limit, cancelled, "old snapshots cancelled");
            }
        }
    }

    /// Clears the first piece away, and those that go with it.
    fn clear_away(&self, cx: &Context, ready: &[(u64, Garbage)]) -> Result<Cleared> {
        let tag = ready[0].1.tree();
        let Some(tree) = &self.catalog.reopen(self, cx, tag)? else {
            // It was dropped, with everything in it.
            return Ok(Cleared { pieces: 1, held: None });
        };
        match &ready[0].1 {
            Garbage::Ghost(..) => {
                let ghosts = ready.iter().map_while(|(_, garbage)| ghost_of(tag, garbage));
                let keys: Vec<&[u8]> = ghosts.take(AT_ONCE).collect();
                let (pieces, refused) = self.purge(cx, tree, &keys)?;
                Ok(Cleared { pieces, held: refused.then(|| tree.clone()) })
            }
            Garbage::Ghosts(_) => {
                let refused = self.purge_all(cx, tree)?;
                Ok(Cleared { pieces: 1, held: refused.then(|| tree.clone()) })
            }
            Garbage::Large(_, large) => {
                if let Some(store) = tree.large.get() {
                    for chunk in 0..large.chunks() {
                        let key = large.chunk_key(chunk);
                        let mut author = SystemOf::new(self, store.tree.id(), None);
                        let step = run(cx, |_| store.tree.remove_step(cx, &key, &mut author))?;
                        if step.1 {
                            run(cx, |_| store.tree.merge_step(cx, &key, 0))?;
                        }
                    }
                    self.catalog.unlist_garbage(cx, tree, *large)?;
                }
                Ok(Cleared { pieces: 1, held: None })
            }
        }
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

    /// Removes all ghosts of a tree that no snapshot needs. Gives whether a large transaction keeps some of
    /// them.
    fn purge_all(&self, cx: &Context, tree: &OpenTree) -> Result<bool> {
        let unbounded = std::ops::Bound::Unbounded;
        let mut cursor = Cursor::new(unbounded.clone(), unbounded, Direction::Forward);
        while cursor.is_loaded() || !cursor.is_at_end() {
            if !cursor.is_loaded() {
                run(cx, |_| cursor.load_step(&tree.tree, &mut Newest))?;
            } else if cursor.take()?.is_none() {
                let (_, refused) = self.purge(cx, tree, &[cursor.key()])?;
                if refused {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// All transactions up to this one have ended, by what the janitor last saw.
    #[inline]
    pub fn oldest_writer(&self) -> u64 {
        self.janitor.oldest_writer.load(Ordering::Acquire)
    }
}
