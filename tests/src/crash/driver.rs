//! A workload of numbered events, one after the other, whose every choice follows from a seed.
//!
//! Before an event begins, its changes go to the history and its number to the device as begun;
//! when it has returned durable, the number goes there as acknowledged. Transactions leave their
//! number in a record of a tree of their own. Changes that are aborted, or rolled back to a
//! savepoint, are no event.

use super::{
    device::Capturing,
    history::{Bytes, Change, History, META, SEQUENCE, State},
};
use rand::{RngExt, SeedableRng, rngs::SmallRng, seq::IndexedRandom};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};
use wattle::{Engine, Error, Session, Ticket, Transaction, Tree};

/// Trees that there are at most, that of the sequence aside.
const MOST_TREES: usize = 4;
/// Records above which a tree is more likely to shrink.
const FULL: usize = 500;
/// Bytes above which large values are rather removed.
const MOST_BYTES: usize = 900_000;
/// Commits that are waited for later.
const MOST_TICKETS: usize = 8;
/// Keys of the transaction that stays open begin with this.
const HELD: u8 = b'~';

/// The other operations.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// One event in this many is followed by a checkpoint.
    pub checkpoint_every: u32,
    /// One event in this many has to do with trees as a whole.
    pub tree_every: u32,
    /// One event in this many has to do with large values.
    pub large_every: u32,
}

impl Habits {
    /// Some habits, chosen by `seed`.
    pub fn of(seed: u64) -> Habits {
        let mut random = SmallRng::seed_from_u64(seed ^ 0x4a61_6269_7473);
        let mut one = |of: &[u32]| *of.choose(&mut random).expect("not empty");
        Habits {
            checkpoint_every: one(&[6, 20, 60, 10_000]),
            tree_every: one(&[6, 12, 40]),
            large_every: one(&[4, 10, 30]),
        }
    }
}

/// A transaction that stays open while events go by.
struct Held {
    txn: Transaction<'static>,
    changes: Vec<Change>,
    trees: Vec<Tree>,
}

/// See the module documentation.
pub struct Driver {
    random: SmallRng,
    habits: Habits,
    history: Arc<History>,
    device: Arc<Capturing>,
    state: State,
    tickets: VecDeque<(u64, Ticket)>,
    trees: BTreeMap<String, Tree>,
    held: Option<Held>,
    loads: bool,
    session: Option<Session>,
    engine: Engine,
}

/// Changes of a transaction that is being made.
struct Work {
    state: State,
    changes: Vec<Change>,
}

impl Work {
    fn apply(&mut self, change: Change) {
        self.state.apply(&change);
        self.changes.push(change);
    }
}

impl Driver {
    /// Goes on with a store that holds what `history` says.
    pub fn new(engine: Engine, device: Arc<Capturing>, history: Arc<History>, seed: u64) -> Driver {
        let state = history.state(history.newest());
        Driver {
            random: SmallRng::seed_from_u64(seed),
            habits: Habits::of(seed),
            history,
            device,
            state,
            tickets: VecDeque::new(),
            trees: BTreeMap::new(),
            held: None,
            loads: true,
            session: None,
            engine,
        }
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Gives the engine back, with nothing open and everything durable.
    pub fn finish(mut self) -> Engine {
        if let Some(held) = self.held.take() {
            held.txn.abort().expect("abort");
        }
        self.wait_for(0);
        drop(self.session.take());
        self.engine.clone()
    }

    fn below(&mut self, bound: u32) -> u32 {
        self.random.random_range(0..bound)
    }

    fn one_in(&mut self, many: u32) -> bool {
        self.below(many) == 0
    }

    /// As [`Driver::step`], while a backup runs, which a bulk load would wait for.
    pub fn step_without_bulk_load(&mut self) {
        self.loads = false;
        self.step();
        self.loads = true;
    }

    /// One event, or something that is none.
    pub fn step(&mut self) {
        if !self.state.trees.contains_key(META) {
            return self.create(META.to_string());
        }
        if self.session.is_none() {
            self.session = Some(self.engine.session().expect("session"));
        }
        if self.names().is_empty() || self.one_in(self.habits.tree_every) {
            self.tree_event();
        } else {
            match self.below(100) {
                0..38 => self.transaction(),
                38..50 => self.single(),
                50..60 => self.many(),
                60..66 => self.aborted(),
                66..74 => self.savepoint(),
                74..82 => self.hold(),
                82..86 => self.wait_for(0),
                86..88 => std::thread::sleep(Duration::from_millis(2)),
                _ => self.transaction(),
            }
        }
        if self.one_in(self.habits.checkpoint_every) {
            self.engine.checkpoint().expect("checkpoint");
        }
    }

    /// Names of the trees that records go to.
    fn names(&self) -> Vec<String> {
        self.state.trees.keys().filter(|name| *name != META).cloned().collect()
    }

    fn any_name(&mut self) -> String {
        self.names().choose(&mut self.random).expect("a tree").clone()
    }

    fn tree(&mut self, name: &str) -> Tree {
        if let Some(tree) = self.trees.get(name) {
            return tree.clone();
        }
        let tree = self.engine.open_tree(name).expect("open a tree").expect("it exists");
        self.trees.insert(name.to_string(), tree.clone());
        tree
    }

    // Events.

    /// Announces an event; gives its number.
    fn issue(&mut self, changes: Vec<Change>) -> u64 {
        for change in &changes {
            self.state.apply(change);
        }
        let number = self.history.add(changes);
        self.device.issue(0, number);
        number
    }

    /// The event has returned durable, and so have all before it.
    fn ack(&mut self, number: u64) {
        self.tickets.clear();
        self.device.ack(0, number);
    }

    /// Waits until no more than some commits are not known to be durable.
    fn wait_for(&mut self, left: usize) {
        while self.tickets.len() > left {
            let (number, ticket) = self.tickets.pop_front().expect("not empty");
            ticket.wait().expect("a commit");
            self.device.ack(0, number);
        }
    }

    fn commit(&mut self, txn: Transaction<'_>, changes: Vec<Change>) {
        let number = self.issue(changes);
        if self.one_in(3) {
            let ticket = txn.commit_ticket().expect("commit");
            self.tickets.push_back((number, ticket));
            self.wait_for(MOST_TICKETS);
        } else {
            txn.commit().expect("commit");
            self.ack(number);
        }
    }

    /// A transaction that leaves its number, unless it is aborted.
    fn in_transaction(
        &mut self,
        body: impl FnOnce(&mut Driver, &mut Transaction<'_>, &mut Work) -> bool,
    ) {
        let session = self.session.take().expect("a session");
        let mut txn = session.begin().expect("begin");
        let mut work = Work { state: self.state.clone(), changes: Vec::new() };
        let commits = body(self, &mut txn, &mut work);
        if commits {
            let number = self.history.newest() + 1;
            let value: Bytes = number.to_le_bytes().as_slice().into();
            let meta = self.tree(META);
            txn.put(&meta, SEQUENCE, &value).expect("put the number");
            work.apply(Change::Put(META.to_string(), SEQUENCE.to_vec(), value));
            self.commit(txn, work.changes);
        } else if self.one_in(2) {
            txn.abort().expect("abort");
        } else {
            drop(txn);
        }
        self.session = Some(session);
    }

    fn transaction(&mut self) {
        let count = 1 + self.below(8);
        self.in_transaction(|driver, txn, work| {
            (0..count).for_each(|_| driver.change(txn, work));
            true
        });
    }

    fn aborted(&mut self) {
        let count = 1 + self.below(12);
        self.in_transaction(|driver, txn, work| {
            for _ in 0..count {
                driver.change(txn, work);
            }
            if driver.one_in(3) {
                driver.range(txn, work);
            }
            false
        });
    }

    fn savepoint(&mut self) {
        let (before, between, after) = (self.below(5), 1 + self.below(8), self.below(5));
        self.in_transaction(|driver, txn, work| {
            (0..before).for_each(|_| driver.change(txn, work));
            let mark = txn.savepoint();
            let (state, changes) = (work.state.clone(), work.changes.len());
            (0..between).for_each(|_| driver.change(txn, work));
            if driver.one_in(4) {
                driver.range(txn, work);
            }
            txn.rollback_to(&mark).expect("roll back to a savepoint");
            work.state = state;
            work.changes.truncate(changes);
            (0..after).for_each(|_| driver.change(txn, work));
            driver.below(5) != 0
        });
    }

    fn many(&mut self) {
        self.in_transaction(|driver, txn, work| {
            driver.range(txn, work);
            true
        });
    }

    /// A transaction that stays open, or the end of one.
    fn hold(&mut self) {
        let Some(held) = self.held.take() else {
            let mut txn = self.engine.begin().expect("begin");
            let (mut changes, mut trees) = (Vec::new(), Vec::new());
            for _ in 0..1 + self.below(20) {
                let name = self.any_name();
                let tree = self.tree(&name);
                let mut key = vec![HELD];
                key.extend_from_slice(&self.key(&name));
                key.truncate(1000);
                // It sees only the state at its beginning.
                let known = self.state.records(&name).get(&key).map(|value| value.to_vec());
                let is_same = |change: &Change| match change {
                    Change::Put(at, of, _) | Change::Remove(at, of) => *at == name && *of == key,
                    _ => false,
                };
                let is_first = !changes.iter().any(is_same);
                if let Some(mut value) = known.filter(|_| is_first && self.one_in(2)) {
                    let change = self.change_of_bytes();
                    change(&mut value);
                    assert!(txn.modify(&tree, &key, change).expect("modify"));
                    changes.push(Change::Put(name, key, value.into()));
                } else if self.one_in(3) {
                    txn.remove(&tree, &key).expect("remove");
                    changes.push(Change::Remove(name, key));
                } else {
                    let value = self.value(key.len());
                    txn.put(&tree, &key, &value).expect("put");
                    changes.push(Change::Put(name, key, value));
                }
                trees.push(tree);
            }
            // Other transactions may change the records that it rolled back, although it continues.
            let mark = txn.savepoint();
            for _ in 0..self.below(6) {
                let name = self.any_name();
                let (tree, key) = (self.tree(&name), self.key(&name));
                let value = self.value(key.len());
                txn.put(&tree, &key, &value).expect("put");
                trees.push(tree);
            }
            txn.rollback_to(&mark).expect("roll back to a savepoint");
            self.held = Some(Held { txn, changes, trees });
            return;
        };
        drop(held.trees);
        match self.below(3) {
            0 => held.txn.abort().expect("abort"),
            _ => self.commit(held.txn, held.changes),
        }
    }

    /// An operation that is a transaction of its own. It cannot leave its number.
    fn single(&mut self) {
        let name = self.any_name();
        let (key, tree) = (self.key(&name), self.tree(&name));
        let session = self.session.take().expect("a session");
        let exists = self.state.records(&name).contains_key(&key);
        let waits = !self.one_in(3);
        let (number, ticket) = match self.below(5) {
            0 if exists => {
                let number = self.issue(vec![Change::Remove(name, key.clone())]);
                let (removed, ticket) = session.remove_ticket(&tree, &key).expect("remove");
                assert!(removed, "it was there");
                (number, ticket)
            }
            1 if exists => {
                let mut value = self.state.records(&name)[&key].to_vec();
                let change = self.change_of_bytes();
                change(&mut value);
                let number = self.issue(vec![Change::Put(name, key.clone(), value.into())]);
                let (found, ticket) = session.modify_ticket(&tree, &key, change).expect("modify");
                assert!(found, "it was there");
                (number, ticket)
            }
            2 if exists => {
                let value = self.value(key.len());
                let number = self.issue(vec![Change::Put(name, key.clone(), value.clone())]);
                let (found, ticket) = session.update_ticket(&tree, &key, &value).expect("update");
                assert!(found, "it was there");
                (number, ticket)
            }
            _ => {
                let value = self.value(key.len());
                let number = self.issue(vec![Change::Put(name, key.clone(), value.clone())]);
                let ticket = match exists {
                    true => session.put_ticket(&tree, &key, &value).expect("put"),
                    false => session.insert_ticket(&tree, &key, &value).expect("insert"),
                };
                (number, ticket)
            }
        };
        if waits {
            ticket.wait().expect("a commit");
            self.ack(number);
        } else {
            self.tickets.push_back((number, ticket));
            self.wait_for(MOST_TICKETS);
        }
        self.session = Some(session);
    }

    // Trees as a whole.

    fn tree_event(&mut self) {
        let names = self.names();
        match self.below(6) {
            0 | 1 if !names.is_empty() && self.held.is_none() && names.len() > 1 => {
                let name = self.any_name();
                let number = self.issue(vec![Change::Drop(name.clone())]);
                self.alone(&name, |engine, tree| engine.drop_tree(tree));
                self.ack(number);
            }
            2 if !names.is_empty() && self.held.is_none() => {
                let (old, new) = (self.any_name(), self.new_name());
                let number = self.issue(vec![Change::Rename(old.clone(), new.clone())]);
                let tree = self.alone(&old, |engine, tree| engine.rename_tree(tree, &new));
                self.trees.insert(new, tree);
                self.ack(number);
            }
            3 | 4 => match names.iter().find(|name| self.state.records(name).is_empty()) {
                Some(name) if self.held.is_none() && self.loads => self.bulk_load(name.clone()),
                _ if names.len() < MOST_TREES => {
                    let name = self.new_name();
                    self.create(name.clone());
                    if self.one_in(2) && self.held.is_none() && self.loads {
                        self.bulk_load(name);
                    }
                }
                _ => {}
            },
            _ if names.len() < MOST_TREES => {
                let name = self.new_name();
                self.create(name);
            }
            _ => {}
        }
    }

    /// Does something with the last handle of a tree. The janitor may have one for a moment.
    fn alone<T>(
        &mut self,
        name: &str,
        mut what: impl FnMut(&Engine, Tree) -> wattle::Result<T>,
    ) -> T {
        for _ in 0..100 {
            let tree = self.tree(name);
            self.trees.remove(name);
            match what(&self.engine, tree) {
                Ok(done) => return done,
                Err(Error::TreeInUse(_)) => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => panic!("{name}: {error}"),
            }
        }
        panic!("the tree {name:?} stays in use");
    }

    fn create(&mut self, name: String) {
        let number = self.issue(vec![Change::Create(name.clone())]);
        let tree = match self.one_in(2) {
            true => self.engine.create_tree(&name).expect("create a tree"),
            false => self.engine.tree(&name).expect("create a tree"),
        };
        self.trees.insert(name, tree);
        self.ack(number);
    }

    fn new_name(&mut self) -> String {
        loop {
            let long = if self.one_in(8) { "n".repeat(200) } else { String::new() };
            let name =
                format!("{}{}{long}", ["a", "b", "c"][self.below(3) as usize], self.below(100));
            if !self.state.trees.contains_key(&name) {
                return name;
            }
        }
    }

    fn bulk_load(&mut self, name: String) {
        let count = [0, 1, 40, 400, 1500][self.below(5) as usize];
        let mut records: BTreeMap<Vec<u8>, Bytes> = BTreeMap::new();
        for _ in 0..count {
            let key = self.key(&name);
            let value = match self.one_in(100) {
                true => self.value_of(2500),
                false => self.value_of(40),
            };
            records.insert(key, value);
        }
        let put = |(key, value): (&Vec<u8>, &Bytes)| {
            Change::Put(name.clone(), key.clone(), value.clone())
        };
        let number = self.issue(records.iter().map(put).collect());
        let tree = self.tree(&name);
        let session = self.session.take().expect("a session");
        self.wait_for(0);
        for attempt in 0.. {
            match session.bulk_load(&tree, &records) {
                Ok(loaded) => {
                    assert_eq!(loaded, records.len() as u64);
                    break;
                }
                // Ghosts of what was there go in the background.
                Err(Error::NotEmpty) if attempt < 20 => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                // A tree that was emptied may keep a page too many.
                Err(Error::NotEmpty) => {
                    let mut txn = session.begin().expect("begin");
                    for (key, value) in &records {
                        txn.put(&tree, key, value).expect("put");
                    }
                    txn.commit().expect("commit");
                    break;
                }
                Err(error) => panic!("bulk load: {error}"),
            }
        }
        self.session = Some(session);
        self.ack(number);
    }

    // Records.

    /// A random change in a transaction.
    fn change(&mut self, txn: &mut Transaction<'_>, work: &mut Work) {
        let name = self.any_name();
        let tree = self.tree(&name);
        let key = self.key(&name);
        let records = work.state.records(&name);
        let exists = records.contains_key(&key);
        let full = records.len() > FULL || self.bytes(records) > MOST_BYTES / MOST_TREES;
        let removes = if full { 60 } else { 20 };
        match self.below(100) {
            dice if dice < removes => {
                // One that exists, if there is one near.
                let near = records.range(key.clone()..).next().map(|(key, _)| key.clone());
                let key = near.filter(|near| near[..1] != [HELD]).unwrap_or(key);
                let existed = work.state.records(&name).contains_key(&key);
                assert_eq!(txn.remove(&tree, &key).expect("remove"), existed);
                work.apply(Change::Remove(name, key));
            }
            dice if dice < removes + 10 && exists => {
                let mut value = records[&key].to_vec();
                let change = self.change_of_bytes();
                change(&mut value);
                assert!(txn.modify(&tree, &key, change).expect("modify"));
                work.apply(Change::Put(name, key, value.into()));
            }
            dice => {
                let value = self.value(key.len());
                match (exists, dice % 2) {
                    (true, 0) => assert!(txn.update(&tree, &key, &value).expect("update")),
                    (false, 0) => txn.insert(&tree, &key, &value).expect("insert"),
                    _ => txn.put(&tree, &key, &value).expect("put"),
                }
                work.apply(Change::Put(name, key, value));
            }
        }
    }

    fn bytes(&self, records: &super::history::Records) -> usize {
        records.values().map(|value| value.len()).sum()
    }

    /// Fills or clears a range, so that many pages split or merge.
    fn range(&mut self, txn: &mut Transaction<'_>, work: &mut Work) {
        let name = self.any_name();
        let tree = self.tree(&name);
        let records = work.state.records(&name);
        if records.len() > FULL || self.bytes(records) > MOST_BYTES / MOST_TREES || self.one_in(3) {
            let from = self.key(&name);
            let count = 20 + self.below(300) as usize;
            let keys: Vec<_> = (records.range(from..).map(|(key, _)| key.clone()))
                .filter(|key| key[0] != HELD)
                .take(count)
                .collect();
            if let ([first, ..], true) = (&keys[..], self.one_in(2)) {
                let last = &keys[keys.len() - 1];
                let removed = txn.delete_range(&tree, first..=last).expect("delete a range");
                assert_eq!(removed, keys.len() as u64);
            } else {
                for key in &keys {
                    assert!(txn.remove(&tree, key).expect("remove"));
                }
            }
            for key in keys {
                work.apply(Change::Remove(name.clone(), key));
            }
            return;
        }
        let (from, count) = (self.below(1000), 20 + self.below(120));
        let len = [10, 60, 300, 1200][self.below(4) as usize];
        let count = if len > 1000 { count / 4 } else { count };
        if self.one_in(2) {
            let keys = (from..from + count).map(|number| key_of(&name, number));
            return self.at_once(txn, work, &name, keys.collect(), len);
        }
        for number in from..from + count {
            let key = key_of(&name, number);
            let value = self.value_of(len);
            txn.put(&tree, &key, &value).expect("put");
            work.apply(Change::Put(name.clone(), key, value));
        }
    }

    /// Changes those records of a range that there are, and adds the others.
    fn at_once(
        &mut self,
        txn: &mut Transaction<'_>,
        work: &mut Work,
        name: &str,
        keys: Vec<Vec<u8>>,
        len: usize,
    ) {
        let tree = self.tree(name);
        let records = work.state.records(name);
        let (old, new): (Vec<_>, Vec<_>) =
            keys.into_iter().partition(|key| records.contains_key(key));
        let new: Vec<_> = new.into_iter().map(|key| (key, self.value_of(len))).collect();
        let change = self.change_of_bytes();
        let changed: Vec<_> = (old.iter())
            .map(|key| {
                let mut value = records[key].to_vec();
                change(&mut value);
                value
            })
            .collect();
        let found = txn.modify_many(&tree, &old, |_, value| change(value)).expect("modify");
        assert_eq!(found, old.len());
        txn.insert_many(&tree, &new).expect("insert");
        let changed = old.into_iter().zip(changed.into_iter().map(Bytes::from));
        for (key, value) in changed.chain(new) {
            work.apply(Change::Put(name.to_string(), key, value));
        }
    }

    /// A change in place: of all bytes, or of a few that are next to each other.
    fn change_of_bytes(&mut self) -> impl Fn(&mut [u8]) + use<> {
        let (at, mark): (u16, u8) = self.random.random();
        let len = [1, 8, 100, usize::MAX][self.below(4) as usize];
        move |value: &mut [u8]| {
            let from = if len == usize::MAX { 0 } else { usize::from(at) % value.len().max(1) };
            value.iter_mut().skip(from).take(len).for_each(|byte| *byte ^= mark);
        }
    }

    fn key(&mut self, name: &str) -> Vec<u8> {
        let number = self.below(1000);
        key_of(name, number)
    }

    fn value(&mut self, key: usize) -> Bytes {
        let len = match self.below(100) {
            _ if self.one_in(self.habits.large_every * 3) => 1950 + self.below(20_000) as usize,
            0..60 => self.below(40) as usize,
            60..90 => self.below(500) as usize,
            90..95 => 1916 - key.min(1900) + self.below(5) as usize,
            _ => self.below(1900) as usize,
        };
        self.value_of(len)
    }

    fn value_of(&mut self, len: usize) -> Bytes {
        let start: u32 = self.random.random();
        let byte = |at: u32| (start.wrapping_add(at.wrapping_mul(2_654_435_761)) >> 24) as u8;
        (0..len as u32).map(byte).collect()
    }
}

/// Keys of a tree look as its name says: short ones, long ones that make deep trees, and long ones
/// with a common beginning.
fn key_of(name: &str, number: u32) -> Vec<u8> {
    match name.as_bytes()[0] {
        b'a' => format!("{number:05}").into_bytes(),
        b'b' => {
            let digits = [number / 216, number / 36 % 6, number / 6 % 6, number % 6];
            digits.into_iter().flat_map(|digit| [b'a' + digit as u8; 90]).collect()
        }
        _ => format!("{}{number:x}", "common/".repeat(20)).into_bytes(),
    }
}
