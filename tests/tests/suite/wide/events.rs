//! Events outside of transactions: changes of single records by a session, trees that are made,
//! renamed, dropped and loaded, and backups.

use super::{
    data::{Change, Id, Key, Kind, key_of, value},
    state::{Records, State, read_all, short},
    world::{SESSIONS, TICKETS, World, block_on},
};
use rand::RngExt;
use std::{collections::BTreeMap, rc::Rc, sync::Arc};
use wattle::{
    AsyncSession, Engine, Error, MIN_LOG_BYTES, MIN_POOL_BYTES, Options, Result, Session, Ticket,
    Tree,
    io::{Cut, FaultPlan, SimStorage},
};
use wattle_tests::{
    crash::check::{close, verify},
    harness::give_up_after,
};

/// Trees at a time.
const TREES: usize = 4;

/// Gives whether the change was done, as [`Change::is_done`], but for [`Error::KeyExists`].
fn change(session: &Session, tree: &Tree, key: &[u8], change: &Change) -> Result<(bool, Ticket)> {
    match change {
        Change::Modify(edit) => session.modify_ticket(tree, key, |value| edit.make(value)),
        Change::Put(value) => session.put_ticket(tree, key, value).map(|ticket| (true, ticket)),
        Change::Update(value) => session.update_ticket(tree, key, value),
        Change::Insert(value) => {
            session.insert_ticket(tree, key, value).map(|ticket| (true, ticket))
        }
        Change::Remove => session.remove_ticket(tree, key),
    }
}

/// As [`change`].
async fn change_asynchronously(
    session: &AsyncSession,
    tree: &Tree,
    key: &[u8],
    change: &Change,
) -> Result<(bool, Ticket)> {
    match change {
        Change::Modify(edit) => session.modify_ticket(tree, key, |value| edit.make(value)).await,
        Change::Put(value) => Ok((true, session.put_ticket(tree, key, value).await?)),
        Change::Update(value) => session.update_ticket(tree, key, value).await,
        Change::Insert(value) => Ok((true, session.insert_ticket(tree, key, value).await?)),
        Change::Remove => session.remove_ticket(tree, key).await,
    }
}

impl World<'_> {
    /// Changes a record without a transaction, unless one has changed it.
    pub fn change_alone(&mut self) {
        let (id, tree) = self.any_tree();
        let key = key_of(id, self.any_number());
        if self.is_owned(id, &key, None) {
            return;
        }
        let session = self.random.random_range(0..=SESSIONS);
        let kinds = [Kind::Modify, Kind::Put, Kind::Update, Kind::Insert, Kind::Remove];
        let kind = kinds[self.random.random_range(0..kinds.len())];
        let change = Change::any(&mut self.random, kind, key.len(), self.setting.sizes);
        let mut next = (*self.now()).clone();
        let before = next.trees[&id].get(&key).cloned();
        let done = change.is_done(before.is_some());
        let number = if done { self.issue() } else { self.history.newest() };
        let what = || {
            let (name, key) = (change.name(), short(&key));
            format!("session {session} {name} {key} in tree {id} as {number}: done {done}")
        };
        self.tell(|| format!("  {}", what()));
        match self.try_change(session, &tree, &key, &change) {
            Some(Ok((was_done, ticket))) => {
                assert_eq!(was_done, done, "{}", what());
                if done {
                    next.set(id, &key, change.after(before.as_ref()));
                    self.changed_alone(session, (id, key), next, ticket);
                } else if self.one_in(2) && !self.setting.never_durable {
                    ticket.wait().expect("a ticket");
                    self.ack_what_was_found(session, id, &key);
                }
                let left = if self.one_in(2) { 0 } else { TICKETS };
                self.wait_for_tickets(left);
            }
            Some(Err(Error::KeyExists)) => {
                assert!(matches!(change, Change::Insert(_)) && !done, "{}: it is there", what());
                if !self.setting.never_durable {
                    self.ack_what_was_found(session, id, &key);
                }
            }
            failed => {
                self.take_back();
                match failed {
                    Some(Err(Error::Conflict(_))) => self.counts.conflict(false),
                    Some(Err(error)) => self.expect_failed_read(&error, "a change by a session"),
                    // A cancelled operation has no effect.
                    _ => self.counts.given_up += 1,
                }
            }
        }
    }

    fn try_change(
        &mut self,
        session: usize,
        tree: &Tree,
        key: &[u8],
        to_do: &Change,
    ) -> Option<Result<(bool, Ticket)>> {
        if let Some(session) = self.sessions.get(session) {
            return Some(change(session, tree, key, to_do));
        }
        let polls = self.patience(8);
        let changed = change_asynchronously(&self.async_session, tree, key, to_do);
        block_on(give_up_after(polls, changed))
    }

    fn changed_alone(&mut self, session: usize, record: (Id, Key), next: State, ticket: Ticket) {
        self.history.push(next);
        let number = self.history.newest();
        self.own[session] = number;
        self.last.insert(record, number);
        if !self.setting.never_durable {
            self.tickets.push_back((number, ticket));
        }
    }

    /// An operation that a session skipped, because a record is or is not there, acknowledges the
    /// change that caused this, unless that is the session's own.
    fn ack_what_was_found(&mut self, session: usize, tree: Id, key: &[u8]) {
        let number = self.last_change(tree, key);
        if number > self.own[session] {
            self.ack(number);
        }
    }

    /// Makes, renames, drops or loads a tree.
    pub fn change_trees(&mut self) {
        let quiet = self.writers.iter().all(Option::is_none) && self.readers.is_empty();
        match self.below(5) {
            0 | 1 if self.trees.len() < TREES => self.create_tree(),
            2 => self.rename_tree(),
            3 if self.trees.len() > 2 => self.drop_tree(),
            _ if quiet => self.load_tree(),
            _ => {}
        }
    }

    /// Makes a tree.
    pub fn create_tree(&mut self) {
        let id = *self.next_tree;
        *self.next_tree += 1;
        let name = format!("t{id}");
        let mut next = (*self.now()).clone();
        next.create(id, name.clone());
        let number = self.issue();
        self.tell(|| format!("  makes tree {id} as {number}"));
        let tree = self.engine.create_tree(&name).expect("create a tree");
        self.trees.insert(id, tree);
        self.history.push(next);
        self.ack_if_durable(number);
    }

    fn rename_tree(&mut self) {
        let (id, _) = self.any_tree();
        let mut next = (*self.now()).clone();
        let old = next.name(id);
        let number = self.issue();
        let end = if self.one_in(3) { "x".repeat(200) } else { String::new() };
        let name = format!("r{id}.{number}{end}");
        next.names.remove(&old);
        next.names.insert(name.clone(), id);
        self.tell(|| format!("  renames tree {id} as {number}"));
        let tree = self.trees.remove(&id).expect("it is open");
        match self.engine.rename_tree(tree, &name) {
            Ok(tree) => {
                self.trees.insert(id, tree);
                self.history.push(next);
                self.ack_if_durable(number);
            }
            Err(error) => self.expect_in_use(id, &old, &error),
        }
    }

    fn drop_tree(&mut self) {
        let (id, _) = self.any_tree();
        let mut next = (*self.now()).clone();
        let name = next.name(id);
        next.names.remove(&name);
        next.trees.remove(&id);
        let number = self.issue();
        self.tell(|| format!("  drops tree {id} as {number}"));
        let tree = self.trees.remove(&id).expect("it is open");
        match self.engine.drop_tree(tree) {
            Ok(()) => {
                self.history.push(next);
                self.ack_if_durable(number);
            }
            Err(error) => self.expect_in_use(id, &name, &error),
        }
    }

    /// The tree is as it was, and in use.
    fn expect_in_use(&mut self, id: Id, name: &str, error: &Error) {
        assert!(matches!(error, Error::TreeInUse(_)), "tree {id}: {error}");
        self.take_back();
        let tree = self.engine.open_tree(name).expect("open a tree").expect("it is there");
        self.trees.insert(id, tree);
    }

    /// Loads records into a tree that is empty, if there is one.
    fn load_tree(&mut self) {
        let mut next = (*self.now()).clone();
        let Some((id, _)) = next.trees.iter().find(|(_, records)| records.is_empty()) else {
            return;
        };
        let id = *id;
        let mut records = Records::new();
        for _ in 0..self.below(200) {
            let key = key_of(id, self.any_number());
            let value = value(&mut self.random, key.len(), self.setting.sizes);
            records.insert(key, Rc::new(value));
        }
        let list: Vec<(Key, Vec<u8>)> =
            records.iter().map(|(key, value)| (key.clone(), value.to_vec())).collect();
        let keys: Vec<Key> = records.keys().cloned().collect();
        next.trees.insert(id, Rc::new(records));
        let number = self.issue();
        self.tell(|| format!("  loads {} records into tree {id} as {number}", keys.len()));
        match self.sessions[self.random.random_range(0..SESSIONS)].bulk_load(&self.trees[&id], list)
        {
            Ok(_) => {
                self.last.extend(keys.into_iter().map(|key| ((id, key), number)));
                self.history.push(next);
                self.ack(number);
            }
            // Removed values are not cleared yet.
            Err(Error::NotEmpty) => self.take_back(),
            Err(error) => panic!("a bulk load: {error}"),
        }
    }

    /// Makes a backup and opens it after a power cut.
    pub fn back_up(&mut self) {
        let target = Arc::new(SimStorage::new(FaultPlan::new(1)));
        self.engine.backup_on(target.clone(), target.clone()).expect("a backup");
        self.counts.backups += 1;
        let cut = [Cut::Nothing, Cut::Sectors, Cut::Pages][self.random.random_range(0..3)];
        let copy = Arc::new(target.crash_as(self.random.random(), cut));
        let options = Options::default()
            .pool_bytes(MIN_POOL_BYTES * 2)
            .log_bytes(MIN_LOG_BYTES)
            .write_concurrency(8)
            .evictors(1);
        let engine = Engine::open_on(copy.clone(), copy, options).expect("open a backup");
        let found: BTreeMap<_, _> = read_all(&engine).expect("read a backup");
        let now = self.now();
        assert!(now.is(&found), "a backup: {}", now.differences(&found));
        verify(&engine, "a backup");
        close(engine, "a backup");
    }
}
