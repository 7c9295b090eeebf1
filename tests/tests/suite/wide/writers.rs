//! Transactions that change something: a few at a time, with futures and without. Each is compared
//! with a map of what it sees, and with what the others have changed: whether a change or a commit
//! conflicts is known.
//!
//! A conflict that is not expected is counted only: one with a transaction that is still being
//! rolled back is right, and a serializable one may be told of a page in place of a record.

use super::{
    data::{Change, Edit, Id, Key, Kind, UNIVERSE, key_of, value},
    state::{Records, set, short},
    world::{SESSIONS, TICKETS, World, block_on},
};
use rand::RngExt;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::{Bound, RangeBounds},
    rc::Rc,
};
use wattle::{
    AsyncTransaction, Durability, Error, Isolation, Result, Savepoint, Ticket, Transaction, Tree,
    TxnOptions,
};
use wattle_tests::harness::give_up_after;

/// A transaction of a session without futures, or of one with futures.
pub enum AnyTransaction<'s> {
    /// Without.
    Waiting(Transaction<'s>),
    /// With.
    Asynchronous(AsyncTransaction),
}

/// An operation of a transaction. That of an asynchronous one may be cancelled after some polls:
/// `None`.
macro_rules! operation {
    ($polls:expr, $txn:expr, $name:ident($($argument:expr),*)) => {
        match $txn {
            AnyTransaction::Waiting(txn) => Some(txn.$name($($argument),*)),
            AnyTransaction::Asynchronous(txn) => {
                block_on(give_up_after($polls, txn.$name($($argument),*)))
            }
        }
    };
}

impl AnyTransaction<'_> {
    /// Gives whether the change was done, as [`Change::is_done`].
    fn change(
        &mut self,
        polls: u32,
        tree: &Tree,
        key: &[u8],
        change: &Change,
    ) -> Option<Result<bool>> {
        let outcome = match change {
            Change::Put(value) => operation!(polls, self, put(tree, key, value)),
            Change::Insert(value) => match operation!(polls, self, insert(tree, key, value)) {
                Some(Err(Error::KeyExists)) => return Some(Ok(false)),
                outcome => outcome,
            },
            Change::Modify(edit) => {
                return operation!(polls, self, modify(tree, key, |value| edit.make(value)));
            }
            Change::Update(value) => return operation!(polls, self, update(tree, key, value)),
            Change::Remove => return operation!(polls, self, remove(tree, key)),
        };
        outcome.map(|outcome| outcome.map(|()| true))
    }
}

/// The reads of a serializable transaction.
#[derive(Default)]
pub struct Reads {
    /// Records that it has looked for, or changed.
    pub points: BTreeSet<(Id, Key)>,
    /// Ranges that it has gone through.
    pub ranges: Vec<(Id, Bound<Key>, Bound<Key>)>,
}

impl Reads {
    /// Whether one of the records that were changed after an event is among them.
    fn changed(&self, last: &BTreeMap<(Id, Key), u64>, since: u64) -> bool {
        let has = |record: &(Id, Key)| {
            let within = |(tree, low, high): &(Id, Bound<Key>, Bound<Key>)| {
                *tree == record.0 && (low.as_ref(), high.as_ref()).contains(&record.1)
            };
            self.points.contains(record) || self.ranges.iter().any(within)
        };
        last.iter().any(|(record, number)| *number > since && has(record))
    }
}

struct Kept {
    savepoint: Savepoint,
    trees: BTreeMap<Id, Rc<Records>>,
    own: BTreeSet<(Id, Key)>,
}

/// A transaction and what is known of it.
pub struct Writer<'s> {
    pub(super) txn: AnyTransaction<'s>,
    /// Its view.
    pub(super) trees: BTreeMap<Id, Rc<Records>>,
    /// Its changes.
    pub(super) own: BTreeSet<(Id, Key)>,
    savepoints: Vec<Kept>,
    /// The newest event that it sees.
    began: u64,
    /// It is not one that only reads.
    wrote: bool,
    /// Its reads, if it is serializable.
    pub(super) reads: Option<Reads>,
    /// It can only abort.
    pub(super) failed: bool,
    session: usize,
    durability: Option<Durability>,
}

impl Writer<'_> {
    /// Whether its futures may have been cancelled.
    pub fn is_asynchronous(&self) -> bool {
        matches!(self.txn, AnyTransaction::Asynchronous(_))
    }

    /// It looks for records.
    pub fn reads_records<'k>(&mut self, tree: Id, keys: impl IntoIterator<Item = &'k Key>) {
        if let Some(reads) = &mut self.reads {
            reads.points.extend(keys.into_iter().map(|key| (tree, key.clone())));
        }
    }
}

/// A change of many records and what it does if nothing is in its way.
struct Many {
    outcome: Option<Result<()>>,
    /// Another change is in the way.
    conflict: bool,
    /// A record is there that should not be.
    exists: bool,
    records: Rc<Records>,
    own: BTreeSet<(Id, Key)>,
}

impl<'s> World<'s> {
    fn begin(&mut self, who: usize) {
        let serializable = self.one_in(3);
        let isolation = if serializable { Isolation::Serializable } else { Isolation::Snapshot };
        let durability = match self.below(6) {
            0 => Some(Durability::None),
            1 => Some(Durability::Sync),
            _ => None,
        };
        let options = TxnOptions { isolation, read_only: false, durability };
        let session = if self.one_in(3) { SESSIONS } else { self.any_session() };
        let txn = match self.sessions.get(session) {
            Some(session) => AnyTransaction::Waiting(session.begin_with(options).expect("begin")),
            None => {
                let txn = self.async_session.begin_with(options).expect("begin");
                AnyTransaction::Asynchronous(txn)
            }
        };
        let began = self.history.newest();
        self.tell(|| format!("  writer {who} begins at {began} in session {session}, {options:?}"));
        self.writers[who] = Some(Writer {
            txn,
            trees: self.now().trees.clone(),
            own: BTreeSet::new(),
            savepoints: Vec::new(),
            began,
            wrote: false,
            reads: serializable.then(Reads::default),
            failed: false,
            session,
            durability,
        });
    }

    /// A transaction for a change of a tree, unless that one cannot.
    fn take_writer(&mut self, who: usize, tree: Id) -> Option<Writer<'s>> {
        if self.writers[who].is_none() {
            self.begin(who);
        }
        self.writers[who].take_if(|writer| !writer.failed && writer.trees.contains_key(&tree))
    }

    /// Whether a change of a record by a transaction that began then conflicts.
    fn conflicts(&self, who: usize, began: u64, tree: Id, key: &[u8]) -> bool {
        self.is_owned(tree, key, Some(who)) || self.last_change(tree, key) > began
    }

    /// Changes a record.
    pub fn write(&mut self, who: usize) {
        let (id, tree) = self.any_tree();
        let key = key_of(id, self.any_number());
        let kind = Kind::any(&mut self.random);
        self.write_record(who, id, &tree, key, kind);
    }

    fn write_record(&mut self, who: usize, id: Id, tree: &Tree, key: Key, kind: Kind) {
        let Some(mut writer) = self.take_writer(who, id) else { return };
        let polls = self.patience(4);
        let change = Change::any(&mut self.random, kind, key.len(), self.setting.sizes);
        let conflict = self.conflicts(who, writer.began, id, &key);
        writer.wrote = true;
        writer.reads_records(id, [&key]);
        let before = writer.trees[&id].get(&key).cloned();
        let done = change.is_done(before.is_some());
        let what = || {
            let (name, key) = (change.name(), short(&key));
            format!("writer {who} {name} {key} in tree {id}: conflict {conflict}, done {done}")
        };
        self.tell(|| format!("  {}, polls {polls}", what()));
        match writer.txn.change(polls, tree, &key, &change) {
            // A cancelled operation has no effect, or the transaction must abort: its next
            // operation shows which.
            None => self.counts.given_up += 1,
            Some(Ok(was_done)) => {
                assert!(!conflict, "changed over another change: {}", what());
                assert_eq!(was_done, done, "{}", what());
                if done {
                    let records = writer.trees.get_mut(&id).expect("it sees the tree");
                    set(records, &key, change.after(before.as_ref()));
                    writer.own.insert((id, key));
                }
            }
            Some(Err(error)) => self.write_failed(&mut writer, error, conflict),
        }
        self.writers[who] = Some(writer);
    }

    fn write_failed(&mut self, writer: &mut Writer<'s>, error: Error, conflict: bool) {
        self.tell(|| format!("    {error}"));
        match error {
            Error::Conflict(_) => {
                self.counts.conflict(conflict);
                writer.failed = true;
            }
            Error::SnapshotTooOld(_) => {
                self.counts.too_old += 1;
                writer.failed = true;
            }
            // After a cancelled operation, or one that failed half way.
            Error::MustAbort(_) if writer.is_asynchronous() || self.faulty => writer.failed = true,
            error => self.expect_fault(&error, "a change"),
        }
    }

    /// Changes several records in one call.
    pub fn write_many(&mut self, who: usize) {
        let (id, tree) = self.any_tree();
        let keys = self.any_keys(id);
        let Some(mut writer) = self.take_writer(who, id) else { return };
        let polls = self.patience(3);
        writer.wrote = true;
        writer.reads_records(id, &keys);
        let many = match self.random.random() {
            true => self.insert_many(who, &mut writer, polls, (id, &tree), keys),
            false => self.modify_many(who, &mut writer, polls, (id, &tree), &keys),
        };
        match many.outcome {
            None => self.counts.given_up += 1,
            Some(Err(Error::KeyExists)) => assert!(many.exists, "none of many was there"),
            Some(Err(error)) => self.write_failed(&mut writer, error, many.conflict),
            Some(Ok(())) => {
                assert!(!many.conflict, "one of many was changed over another change");
                assert!(!many.exists, "one of many was inserted twice");
                writer.own.extend(many.own);
                writer.trees.insert(id, many.records);
            }
        }
        self.writers[who] = Some(writer);
    }

    /// Neighbours in order or against it, or any records, some of them twice.
    fn any_keys(&mut self, tree: Id) -> Vec<Key> {
        let (first, count) = (self.any_number(), self.random.random_range(1..40));
        let neighbour = |number| key_of(tree, (first + number) % UNIVERSE);
        match self.below(5) {
            0 => (0..count).map(|_| key_of(tree, self.any_number())).collect(),
            1 => (0..count).rev().map(neighbour).collect(),
            _ => (0..count).map(neighbour).collect(),
        }
    }

    fn insert_many(
        &mut self,
        who: usize,
        writer: &mut Writer<'s>,
        polls: u32,
        (id, tree): (Id, &Tree),
        keys: Vec<Key>,
    ) -> Many {
        let mut many = Many {
            outcome: None,
            conflict: false,
            exists: false,
            records: writer.trees[&id].clone(),
            own: BTreeSet::new(),
        };
        let mut random_value = |key: &Key| value(&mut self.random, key.len(), self.setting.sizes);
        let new: Vec<(Key, Vec<u8>)> =
            keys.into_iter().map(|key| (key.clone(), random_value(&key))).collect();
        for (key, value) in &new {
            // The first one that cannot be added decides.
            many.conflict = self.conflicts(who, writer.began, id, key);
            many.exists = !many.conflict && many.records.contains_key(key);
            if many.conflict || many.exists {
                break;
            }
            set(&mut many.records, key, Some(Rc::new(value.clone())));
            many.own.insert((id, key.clone()));
        }
        let (count, conflict, exists) = (new.len(), many.conflict, many.exists);
        self.tell(|| {
            format!(
                "  writer {who} inserts {count} in tree {id}: conflict {conflict}, exists {exists}"
            )
        });
        many.outcome = operation!(polls, &mut writer.txn, insert_many(tree, &new));
        many
    }

    fn modify_many(
        &mut self,
        who: usize,
        writer: &mut Writer<'s>,
        polls: u32,
        (id, tree): (Id, &Tree),
        keys: &[Key],
    ) -> Many {
        let edits: Vec<Edit> = keys.iter().map(|_| Edit::any(&mut self.random)).collect();
        let conflict = keys.iter().any(|key| self.conflicts(who, writer.began, id, key));
        let (mut records, mut own) = (writer.trees[&id].clone(), BTreeSet::new());
        let mut there = 0;
        for (key, edit) in keys.iter().zip(&edits) {
            if let Some(value) = records.get(key) {
                let value = edit.made(value);
                set(&mut records, key, Some(value));
                own.insert((id, key.clone()));
                there += 1;
            }
        }
        let count = keys.len();
        self.tell(|| format!("  writer {who} modifies {count} in tree {id}: conflict {conflict}"));
        let modify = |index: usize, value: &mut [u8]| edits[index].make(value);
        let outcome = operation!(polls, &mut writer.txn, modify_many(tree, keys, modify));
        let outcome = outcome.map(|outcome| {
            outcome.map(|found| assert!(found == there || conflict, "{found} of {there} modified"))
        });
        Many { outcome, conflict, exists: false, records, own }
    }

    /// Removes many neighbours, or puts or modifies them.
    pub fn write_neighbours(&mut self, who: usize) {
        let (id, tree) = self.any_tree();
        let (first, count) = (self.any_number(), self.random.random_range(5..90u32));
        let back: bool = self.random.random();
        let kinds = [Kind::Remove, Kind::Remove, Kind::Put, Kind::Modify];
        let kind = kinds[self.random.random_range(0..kinds.len())];
        for index in 0..count {
            let index = if back { count - index } else { index };
            self.write_record(who, id, &tree, key_of(id, (first + index) % UNIVERSE), kind);
        }
    }

    /// A transaction that changes a lot.
    pub fn write_much(&mut self, who: usize) {
        for _ in 0..self.random.random_range(10..80) {
            self.write(who);
        }
        if self.one_in(2) {
            self.use_savepoint(who);
        }
        self.check_writer(who);
    }

    /// Makes a savepoint, or goes back to one.
    pub fn use_savepoint(&mut self, who: usize) {
        let Some(mut writer) = self.writers[who].take() else { return };
        if !writer.failed && (writer.savepoints.is_empty() || self.one_in(2)) {
            let savepoint = match &writer.txn {
                AnyTransaction::Waiting(txn) => txn.savepoint(),
                AnyTransaction::Asynchronous(txn) => txn.savepoint(),
            };
            let (trees, own) = (writer.trees.clone(), writer.own.clone());
            writer.savepoints.push(Kept { savepoint, trees, own });
            self.tell(|| format!("  writer {who} has savepoint {}", writer.savepoints.len()));
        } else if !writer.failed {
            self.roll_back(who, &mut writer);
        }
        self.writers[who] = Some(writer);
    }

    fn roll_back(&mut self, who: usize, writer: &mut Writer<'s>) {
        let left = self.random.random_range(0..writer.savepoints.len()) + 1;
        writer.savepoints.truncate(left);
        let polls = self.patience(4);
        self.tell(|| format!("  writer {who} rolls back to savepoint {left}, polls {polls}"));
        let kept = &writer.savepoints[left - 1];
        match operation!(polls, &mut writer.txn, rollback_to(&kept.savepoint)) {
            Some(Ok(())) => (writer.trees, writer.own) = (kept.trees.clone(), kept.own.clone()),
            Some(Err(Error::MustAbort(_))) => writer.failed = true,
            // Records changed after the savepoint may belong to other transactions already.
            None => (writer.failed, writer.own) = (true, kept.own.clone()),
            Some(Err(error)) => {
                self.expect_fault(&error, "a roll-back to a savepoint");
                (writer.failed, writer.own) = (true, kept.own.clone());
            }
        }
    }

    /// Ends a transaction, if it has begun.
    pub fn end(&mut self, who: usize) {
        let Some(writer) = self.writers[who].take() else { return };
        let how = self.below(8);
        match writer.failed || how < 3 {
            true => self.abort(who, writer.txn, how),
            false => self.commit(who, writer, how),
        }
    }

    fn abort(&mut self, who: usize, txn: AnyTransaction<'s>, how: u32) {
        self.counts.aborts += 1;
        self.tell(|| format!("  writer {who} aborts in way {how}"));
        let outcome = match (txn, how) {
            (txn, 0) => {
                drop(txn);
                return;
            }
            (AnyTransaction::Waiting(txn), _) => Some(txn.abort()),
            (AnyTransaction::Asynchronous(txn), how) => {
                let polls = if how == 1 { self.below(3) } else { u32::MAX };
                block_on(give_up_after(polls, txn.abort()))
            }
        };
        if let Some(Err(error)) = outcome {
            self.expect_fault(&error, "an abort");
        }
    }

    fn commit(&mut self, who: usize, writer: Writer<'s>, how: u32) {
        let Writer { txn, trees, own, began, wrote, reads, session, durability, .. } = writer;
        let changes = !own.is_empty();
        // 1. Whether it conflicts with what it has read.
        let conflict = wrote && reads.is_some_and(|reads| reads.changed(&self.last, began));
        // 2. The results.
        let mut next = (*self.now()).clone();
        for (id, key) in &own {
            next.set(*id, key, trees[id].get(key).cloned());
        }
        let number = if changes { self.issue() } else { self.history.newest() };
        self.tell(|| {
            format!(
                "  writer {who} commits as {number} in way {how}: changes {changes}, conflict \
                 {conflict}"
            )
        });
        // 3. It commits.
        let outcome: Option<Result<Option<Ticket>>> = match (txn, how) {
            (AnyTransaction::Waiting(txn), 3 | 4) => Some(txn.commit_ticket().map(Some)),
            (AnyTransaction::Waiting(txn), _) => Some(txn.commit().map(|()| None)),
            (AnyTransaction::Asynchronous(txn), 3) => {
                let outcome = block_on(give_up_after(self.below(3), txn.commit_ticket()));
                outcome.map(|outcome| outcome.map(Some))
            }
            (AnyTransaction::Asynchronous(txn), 4 | 5) => {
                Some(block_on(txn.commit_ticket()).map(Some))
            }
            (AnyTransaction::Asynchronous(txn), _) => Some(block_on(txn.commit()).map(|()| None)),
        };
        // 4. It has committed, or nothing of it is there.
        match outcome {
            Some(Ok(ticket)) => {
                assert!(!conflict, "writer {who} committed over a change of what it has read");
                self.counts.commits += 1;
                if changes {
                    self.history.push(next);
                    self.own[session] = number;
                    self.last.extend(own.into_iter().map(|record| (record, number)));
                    self.committed(number, ticket, durability);
                } else if let Some(ticket) = ticket.filter(|_| self.one_in(2)) {
                    ticket.wait().expect("a ticket");
                }
            }
            outcome => {
                self.take_back();
                let is_asynchronous = session == SESSIONS;
                match outcome {
                    Some(Err(error)) => self.commit_failed(&error, is_asynchronous, conflict),
                    _ => self.counts.given_up += 1,
                }
            }
        }
        self.wait_for_tickets(TICKETS);
    }

    /// A commit that has changed something.
    fn committed(&mut self, number: u64, ticket: Option<Ticket>, durability: Option<Durability>) {
        let never_durable = match durability {
            Some(durability) => durability == Durability::None,
            None => self.setting.never_durable,
        };
        match ticket {
            _ if never_durable => {}
            Some(ticket) => self.tickets.push_back((number, ticket)),
            None => self.ack(number),
        }
    }

    fn commit_failed(&mut self, error: &Error, is_asynchronous: bool, conflict: bool) {
        match error {
            Error::Conflict(_) => self.counts.conflict(conflict),
            Error::SnapshotTooOld(_) => self.counts.too_old += 1,
            Error::MustAbort(_) if is_asynchronous || self.faulty => {}
            error => self.expect_fault(error, "a commit"),
        }
    }
}
