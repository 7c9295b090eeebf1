//! A transaction: its snapshot, its state, and the undo entries of its changes. This file begins,
//! commits and ends it.

use super::{
    Durability, Isolation, LogHandle, ReadSet, Ticket, TreeChanges, TxnOptions, TxnSystem,
    tree_handles::SessionHandles,
};
use crate::{
    catalog::OpenTree,
    garbage::{Garbage, ListedValue},
    limits::limit,
    mvcc::{OwnedVersion, Savepoint, SnapshotSlot, TxnState, UndoBuffer},
};
use std::{
    cell::{Cell, RefCell},
    sync::Arc,
};
use wattle_btree::{Context, Hint, Journal};
use wattle_buffer::{Error, FrameId, Gsn, Owner, Result, ScopePart, scope};
use wattle_wal::Kind;

/// How many frames a transaction remembers because their pages have its mark as version hint.
/// Readers replace the hints of further pages.
const MAX_FRAMES: usize = limit(4096, 6);
/// Ghosts that a transaction remembers one by one, and bytes of their keys.
const MAX_GHOSTS: (usize, usize) = (limit(1 << 14, 6), 1 << 20);

/// Number of recent garbage entries that are searched for one that already names the tree.
const MAX_TREES: usize = 64;

/// A place in the changes of a transaction: the undo entries before it, and the changes of trees.
/// Both only grow, except by rollbacks.
pub(crate) type Place = (Savepoint, usize);

/// A place to which a transaction can roll back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub undo: Savepoint,
    /// Length of [`Txn::garbage`].
    pub garbage: usize,
    /// Length of [`Txn::adopted`].
    pub adopted: usize,
}

/// Boxed, so that it does not move. A session begins its next transaction in the box of one that
/// has ended.
pub(crate) type BoxedTxn = Box<Txn>;

/// See the module documentation.
pub(crate) struct Txn {
    /// Unique among all transactions of the engine.
    pub number: u64,
    /// Number of its session, 0 if that does not matter.
    pub session: u64,
    pub slot: Arc<SnapshotSlot>,
    pub snapshot: u64,
    /// From the first change on.
    pub state: Option<Owner<TxnState>>,
    pub undo: UndoBuffer,
    /// Position of the last undo entry, while its change is not made yet.
    pub pending: Option<Savepoint>,
    /// An undo entry was taken off the list, and its record is not restored yet.
    pub taken_off: bool,
    pub frames: Vec<FrameId>,
    /// Trees that were changed: they must stay open until the end.
    pub trees: Vec<Arc<OpenTree>>,
    handles: Arc<SessionHandles>,
    /// The newest commit that was read and may not be durable.
    pub seen: Cell<u64>,
    pub reads: Option<RefCell<ReadSet>>,
    pub garbage: Vec<Garbage>,
    /// Large values that a commit takes off the list in the catalog, and a rollback gives to the
    /// janitor.
    pub adopted: Vec<ListedValue>,
    /// Bytes of the keys of ghosts among it, and of some that were taken back.
    ghost_bytes: usize,
    /// Why it can only be aborted.
    pub must_abort: Option<String>,
    /// A read has met a tree that a large transaction changes, or has changed since the snapshot.
    pub hidden: Cell<bool>,
    /// An operation of several steps is under way, or was dropped half way.
    pub half_done: bool,
    /// Rollbacks to savepoints: the number of each, and its target, both ascending. A rollback is
    /// left out once a later one went further back.
    rollbacks: Vec<(u64, Place)>,
    next_rollback: u64,
    pub last_gsn: Gsn,
    /// Approximate memory of its versions.
    pub version_bytes: u64,
    /// It may own trees.
    pub closes: bool,
    /// Trees that it has created, dropped or renamed.
    pub tree_changes: Option<Box<TreeChanges>>,
    /// The first [`crate::mvcc::MAX_OF_ONE`] versions that it stored.
    pub stored: Vec<OwnedVersion>,
    pub options: TxnOptions,
}

impl Txn {
    /// One that has not begun.
    pub fn idle(system: &TxnSystem) -> BoxedTxn {
        let mut txn = Txn::at(system, system.snapshots.acquire(), 0);
        txn.options.read_only = false;
        txn
    }

    /// One that only reads, from a snapshot that its caller has opened in `slot`, and will close.
    /// It is never begun or ended, so it does not change the slot, and several may share one.
    pub fn at(system: &TxnSystem, slot: Arc<SnapshotSlot>, snapshot: u64) -> BoxedTxn {
        Box::new(Txn {
            number: 0,
            session: 0,
            slot,
            snapshot,
            state: None,
            undo: system.undo_buffer(),
            pending: None,
            taken_off: false,
            frames: Vec::new(),
            trees: Vec::new(),
            handles: system.handles.register(),
            seen: Cell::new(0),
            reads: None,
            garbage: Vec::new(),
            adopted: Vec::new(),
            ghost_bytes: 0,
            must_abort: None,
            hidden: Cell::new(false),
            half_done: false,
            rollbacks: Vec::new(),
            next_rollback: 0,
            last_gsn: Gsn(0),
            version_bytes: 0,
            closes: false,
            tree_changes: None,
            stored: Vec::new(),
            options: TxnOptions { read_only: true, ..TxnOptions::default() },
        })
    }

    /// Begins, new or after an [`Txn::end`]. `own` is the newest commit of the session.
    pub fn begin(&mut self, system: &TxnSystem, options: TxnOptions, own: u64) {
        let _scope = scope(ScopePart::Transactions);
        self.stored.clear();
        self.snapshot = match options.read_only {
            true => self.slot.open_at(|| system.visible().min(system.clock.now()).max(own)),
            false => self.slot.open(&system.clock),
        };
        self.number = self.slot.next_number();
        let serializable = options.isolation == Isolation::Serializable && !options.read_only;
        debug_assert!(self.reads.is_none(), "`end` has dropped them");
        if serializable {
            self.reads = Some(RefCell::default());
        }
        self.must_abort = None;
        self.hidden.set(false);
        self.half_done = false;
        self.next_rollback = 0;
        self.last_gsn = Gsn(0);
        self.version_bytes = 0;
        self.closes = false;
        self.options = options;
    }

    /// Fails when the transaction can only abort.
    #[inline]
    pub fn check(&self) -> Result<()> {
        match &self.must_abort {
            None if !self.half_done => Ok(()),
            None => Err(Error::MustAbort("an operation of it was dropped half way".to_string())),
            Some(why) => Err(Error::MustAbort(why.clone())),
        }
    }

    /// Whether another transaction was in its way: run again, it may succeed.
    pub fn is_in_conflict(&self) -> bool {
        self.must_abort.is_some() || self.hidden.get() || self.slot.is_cancelled()
    }

    /// Fails when the transaction may not change anything.
    pub fn check_write(&self) -> Result<()> {
        self.check()?;
        if self.options.read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Replaces the snapshot by a current one. The transaction has changed no record, and the
    /// caller has used nothing that it read.
    pub fn renew_snapshot(&mut self, system: &TxnSystem) {
        debug_assert!(
            self.stored.is_empty() && self.reads.is_none(),
            "it may be of both snapshots"
        );
        self.snapshot = self.slot.reopen(&system.clock);
    }

    /// Before a change: registers the tree, and announces the first change to all threads. Gives
    /// the id.
    pub fn start_writing(&mut self, system: &TxnSystem, tree: &Arc<OpenTree>) -> u64 {
        if !self.trees.iter().any(|open| Arc::ptr_eq(open, tree)) {
            self.trees.push(self.handles.take(tree));
        }
        if self.state.is_none() {
            self.start_system(system);
        }
        self.state.as_ref().map_or(0, |state| state.id())
    }

    /// Takes the changes of trees after the first `len` back, after the records in them.
    pub fn take_back_trees(&mut self, len: usize) {
        if let Some(changes) = &mut self.tree_changes {
            changes.truncate(len);
        }
    }

    /// Before the first change of records that only the engine reads.
    pub fn start_system(&mut self, system: &TxnSystem) {
        // The clock is read and then drawn from: prefetch its line once, for writing.
        system.ids.prefetch();
        self.slot.start_writing(&system.ids);
        if let Some(log) = &system.log {
            self.slot.start_logging(log.epoch());
        }
        self.state = Some(Owner::new(TxnState::of_session(system.ids.draw(), self.session)));
    }

    /// Remembers that the page in `frame` has the mark of this transaction. False: it remembers too
    /// many already.
    pub fn remember_frame(&mut self, frame: FrameId) -> bool {
        let room = self.frames.len() < MAX_FRAMES;
        if room {
            self.frames.push(frame);
        }
        room
    }

    /// A record was deleted.
    pub fn add_ghost(&mut self, tree: &Arc<OpenTree>, key: &[u8]) {
        let (ghosts, bytes) = MAX_GHOSTS;
        if self.garbage.len() < ghosts && self.ghost_bytes + key.len() <= bytes {
            self.ghost_bytes += key.len();
            return self.garbage.push(Garbage::Ghost(tree.tag.clone(), key.to_vec()));
        }
        let id = tree.tag.id;
        let known = |garbage: &Garbage| matches!(garbage, Garbage::Ghosts(tag) if tag.id == id);
        if !self.garbage.iter().rev().take(MAX_TREES).any(known) {
            self.garbage.push(Garbage::Ghosts(tree.tag.clone()));
        }
    }

    /// Makes the undo entries match the changes that were made. They may differ after an operation
    /// was leaked half way, after which the transaction can only abort, or after a rollback was
    /// dropped.
    pub fn repair_undo(&mut self) -> Result<()> {
        if std::mem::take(&mut self.taken_off) {
            self.undo.unpop();
        }
        if let Some(mark) = self.pending {
            self.undo.pop(mark)?;
            self.pending = None;
        }
        Ok(())
    }

    /// The position to which [`super::rollback`] can go back.
    pub fn savepoint(&self) -> Mark {
        let (garbage, adopted) = (self.garbage.len(), self.adopted.len());
        Mark { undo: self.undo.mark(), garbage, adopted }
    }

    /// Gives the large values after the first `len` to the janitor: a rollback has put the records
    /// back that referred to them.
    pub fn forsake(&mut self, system: &TxnSystem, len: usize) {
        if len < self.adopted.len() {
            system.garbage.add_forsaken(self.adopted.drain(len..));
        }
    }

    /// Number of the next roll-back to a savepoint.
    pub fn next_rollback(&self) -> u64 {
        self.next_rollback
    }

    /// The place after all changes so far.
    pub fn place(&self) -> Place {
        (self.undo.mark(), self.tree_changes.as_ref().map_or(0, |changes| changes.len()))
    }

    /// Whether the changes before `place` are still there. `next_rollback`: number of the next
    /// rollback when `place` was noted.
    pub fn reaches(&self, place: Place, next_rollback: u64) -> bool {
        let since = self.rollbacks.partition_point(|(number, _)| *number < next_rollback);
        // The first one since went furthest back.
        place <= self.place() && self.rollbacks.get(since).is_none_or(|(_, to)| place <= *to)
    }

    /// Notes that everything after `place` was rolled back.
    pub fn rolled_back_to(&mut self, place: Place) {
        while self.rollbacks.last().is_some_and(|(_, to)| place <= *to) {
            self.rollbacks.pop();
        }
        self.rollbacks.push((self.next_rollback, place));
        self.next_rollback += 1;
    }

    /// Commits: all threads see the changes from here on. Gives the commit time, 0 without changes.
    /// The caller has checked for room in the log, and validated.
    pub fn commit(
        &mut self,
        system: &TxnSystem,
        cx: &Context,
        log: Option<&Arc<LogHandle>>,
    ) -> (Ticket, u64) {
        let _scope = scope(ScopePart::Transactions);
        let durability = self.durability(system);
        let ticket = |epoch: u64, time: u64| match (log, durability.urgency()) {
            (Some(log), Some(urgency)) => Ticket::new(log, epoch, time, urgency),
            _ => Ticket::done(),
        };
        let Some(state) = self.state.as_ref().map(Owner::share) else {
            // The caller may rely on the reads only once they are durable.
            let pending = self.seen.get() > system.durable();
            let epoch = system.log.as_ref().map_or(0, |log| log.epoch());
            let ticket = if pending { ticket(epoch, self.seen.get()) } else { Ticket::done() };
            self.end();
            return (ticket, 0);
        };
        let (epoch, time) = match &cx.journal {
            Journal::Off => (0, self.draw(system, &state)),
            Journal::On(_, appender) => {
                appender.observe(self.last_gsn);
                let mut section = appender.begin();
                // Drawn inside of the section: see `TxnSystem::durable`. So is that of a validated
                // transaction: the lock of validations is held until it has committed.
                let time = self.draw(system, &state);
                section.note_time(time);
                section.start(Kind::Commit, 0, state.id(), Gsn(0));
                section.finish();
                (section.epoch(), time)
            }
        };
        state.committed(time);
        self.resolve_hints(system, state.id(), time);
        self.open_trees(state.id(), time);
        let ticket = ticket(epoch, time);
        system.garbage.add(time, std::mem::take(&mut self.garbage));
        if !self.adopted.is_empty() {
            system.garbage.add_adopted(self.adopted.drain(..));
        }
        self.end();
        (ticket, time)
    }

    /// Draws the time of the commit.
    fn draw(&self, system: &TxnSystem, state: &TxnState) -> u64 {
        state.start_commit();
        let time = system.clock.draw();
        state.set_ts(time);
        time
    }

    /// The durability that a commit of this transaction waits for.
    pub fn durability(&self, system: &TxnSystem) -> Durability {
        self.options.durability.unwrap_or(system.durability)
    }

    /// Replaces the mark of this transaction on pages by its commit time.
    pub fn resolve_hints(&mut self, system: &TxnSystem, id: u64, time: u64) {
        let (mark, time) = (Hint::Txn(id).word(), Hint::Committed(time).word());
        for frame in self.frames.drain(..) {
            system.pool.header(frame).resolve_version_hint(mark, time);
        }
    }

    /// Gives up the ownership of trees.
    pub fn open_trees(&self, id: u64, time: u64) {
        if self.closes {
            self.trees.iter().for_each(|tree| tree.closed.open(id, time));
        }
    }

    /// The transaction is over: releases its snapshot, and everything else it holds.
    pub fn end(&mut self) {
        self.slot.close();
        self.state = None;
        self.handles.give(&mut self.trees);
        self.undo.clear();
        (self.pending, self.taken_off) = (None, false);
        self.frames.clear();
        debug_assert!(self.adopted.is_empty(), "a commit and a rollback hand them on");
        // Frees memory that only large transactions need.
        (self.garbage, self.ghost_bytes) = (Vec::new(), 0);
        self.rollbacks = Vec::new();
        if self.reads.is_some() {
            self.reads = None;
        }
        self.seen.set(0);
    }
}
