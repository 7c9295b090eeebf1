//! Several open transactions of one thread, and a model that knows every outcome: names of trees
//! and their records, of the last commit and of each transaction, with savepoints and conflicts.

use super::state::{State, of_engine};
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use wattle::{Engine, Error, Isolation, Savepoint, Transaction, Tree, TxnOptions};
use wattle_tests::{
    crash::device::Capturing,
    harness::{assert_verified, eventually},
};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const KEYS: u8 = 6;
/// Transactions that are open at a time.
const OPEN: usize = 3;

/// A record: the number of its tree in the model, and its key.
type Record = (u64, Vec<u8>);

/// The state of a transaction, to which a savepoint takes it back.
#[derive(Clone)]
struct View {
    state: State,
    /// Names that the transaction has changed.
    names: BTreeSet<String>,
    /// Records that it has changed.
    records: BTreeSet<Record>,
    created: BTreeSet<u64>,
    dropped: BTreeSet<u64>,
}

struct Open {
    txn: Transaction<'static>,
    /// Events before it began.
    snapshot: u64,
    view: View,
    handles: BTreeMap<u64, Tree>,
    savepoints: Vec<(Savepoint, View)>,
    is_serializable: bool,
}

/// How often something happened that a test wants to have seen.
#[derive(Debug, Default)]
pub struct Seen {
    pub commits: u64,
    pub conflicts: u64,
    pub stale_names: u64,
    pub dropped_trees: u64,
    pub errors: u64,
}

/// See the module documentation.
pub struct World {
    pub engine: Engine,
    pub committed: State,
    /// The states after all events so far.
    pub states: Vec<State>,
    pub seen: Seen,
    random: SmallRng,
    names: BTreeMap<String, u64>,
    records: BTreeMap<Record, u64>,
    writers: BTreeMap<Record, usize>,
    open: [Option<Open>; OPEN],
    next_tree: u64,
    camera: Option<Arc<Capturing>>,
    /// The device may fail.
    pub fails: bool,
}

impl World {
    pub fn new(engine: Engine, seed: u64, camera: Option<Arc<Capturing>>) -> World {
        World {
            engine,
            committed: State::default(),
            states: vec![State::default()],
            seen: Seen::default(),
            random: SmallRng::seed_from_u64(seed),
            names: BTreeMap::new(),
            records: BTreeMap::new(),
            writers: BTreeMap::new(),
            open: Default::default(),
            next_tree: 0,
            camera,
            fails: false,
        }
    }

    fn now(&self) -> u64 {
        self.states.len() as u64 - 1
    }

    fn name(&mut self) -> String {
        NAMES[self.random.random_range(0..NAMES.len())].to_string()
    }

    fn key(&mut self) -> Vec<u8> {
        vec![self.random.random_range(0..KEYS)]
    }

    fn value(&mut self) -> Vec<u8> {
        let len = match self.random.random_range(0..12) {
            0 => 5000,
            1..4 => 900,
            _ => 20,
        };
        vec![self.random.random(); len]
    }

    /// An event may happen from here on.
    fn begin_event(&self) {
        if let Some(camera) = &self.camera {
            camera.issue(0, self.now() + 1);
        }
    }

    /// It has happened, or not.
    fn end_event(&mut self, happened: bool) {
        if happened {
            self.states.push(self.committed.clone());
        }
        if let Some(camera) = &self.camera {
            camera.issue(0, self.now());
            camera.ack(0, self.now());
        }
    }

    /// One random operation.
    pub fn step(&mut self) {
        let at = self.random.random_range(0..OPEN);
        if self.open[at].is_none() {
            return self.begin(at);
        }
        match self.random.random_range(0..40) {
            0..4 => self.create(at),
            4..7 => self.drop_tree(at),
            7..10 => self.rename(at),
            10..12 => self.ask(at),
            12..22 => self.write(at),
            22..28 => self.read(at),
            28..30 => self.save(at),
            30..32 => self.roll_back_to(at),
            32..35 => self.commit(at),
            35 => self.abort(at),
            36..38 => self.auto_put(),
            38 => self.engine_create(),
            _ => self.engine_drop_or_rename(),
        }
    }

    fn begin(&mut self, at: usize) {
        let is_serializable = self.random.random_range(0..4) == 0;
        let mut options = TxnOptions::default();
        if is_serializable {
            options.isolation = Isolation::Serializable;
        }
        let txn = self.engine.begin_with(options).expect("begin");
        let view = View {
            state: self.committed.clone(),
            names: BTreeSet::new(),
            records: BTreeSet::new(),
            created: BTreeSet::new(),
            dropped: BTreeSet::new(),
        };
        let (snapshot, handles) = (self.now(), BTreeMap::new());
        let savepoints = Vec::new();
        self.open[at] = Some(Open { txn, snapshot, view, handles, savepoints, is_serializable });
    }

    fn open(&mut self, at: usize) -> &mut Open {
        self.open[at].as_mut().expect("open")
    }

    /// Takes a transaction out of the model: it has ended.
    fn end(&mut self, at: usize) -> Open {
        self.writers.retain(|_, writer| *writer != at);
        self.open[at].take().expect("open")
    }

    /// An outcome other than the model's: right only if the device fails, or the pool is too small.
    /// The transaction ends.
    fn unexpected(&mut self, at: usize, error: &Error) {
        let is_full = matches!(error, Error::Limit(_));
        assert!(is_full || self.fails, "{error}");
        self.seen.errors += 1;
        let Open { txn, .. } = self.end(at);
        // The janitor goes on with a rollback that fails.
        let _ = txn.abort();
    }

    /// The transaction is in conflict by now, and can only be aborted.
    fn conflict(&mut self, at: usize) {
        self.seen.conflicts += 1;
        let Open { mut txn, .. } = self.end(at);
        let refused = txn.create_tree("refused").expect_err("only an abort is possible");
        assert!(matches!(refused, Error::MustAbort(_)), "{refused}");
        match txn.commit() {
            Err(Error::MustAbort(_)) => {}
            other => assert!(self.fails, "{other:?}"),
        }
    }

    /// Whether a name is one that another transaction changed after the snapshot.
    fn is_stale(&self, at: usize, name: &str) -> bool {
        let open = self.open[at].as_ref().expect("open");
        let changed = self.names.get(name).copied().unwrap_or(0);
        !open.view.names.contains(name) && changed > open.snapshot
    }

    /// Compares the outcome of a change of names with the model: `None` if it ended the
    /// transaction.
    fn compare<T>(
        &mut self,
        at: usize,
        names: &[&str],
        outcome: Result<T, Error>,
        refusal: Option<fn(&Error) -> bool>,
    ) -> Option<T> {
        // The first name is looked up first, and may already be a reason to refuse.
        let is_stale = names.iter().any(|name| self.is_stale(at, name));
        match outcome {
            Ok(value) => {
                assert!(!is_stale && refusal.is_none(), "{names:?}: not refused");
                Some(value)
            }
            Err(Error::Conflict(_)) if is_stale => {
                self.conflict(at);
                None
            }
            Err(error) if refusal.is_some_and(|is_right| is_right(&error)) => None,
            Err(error) => {
                self.unexpected(at, &error);
                None
            }
        }
    }

    fn create(&mut self, at: usize) {
        let name = self.name();
        let open = self.open(at);
        let outcome = open.txn.create_tree(&name);
        let exists = open.view.state.names.contains_key(&name);
        let exists = exists.then_some((|e| matches!(e, Error::TreeExists(_))) as fn(&Error) -> _);
        if let Some(tree) = self.compare(at, &[&name], outcome, exists) {
            let number = self.next_tree;
            self.next_tree += 1;
            let Open { view, handles, .. } = self.open(at);
            view.names.insert(name.clone());
            view.created.insert(number);
            view.state.names.insert(name, number);
            view.state.trees.insert(number, BTreeMap::new());
            handles.insert(number, tree);
        }
    }

    fn drop_tree(&mut self, at: usize) {
        let name = self.name();
        let open = self.open(at);
        let outcome = open.txn.drop_tree(&name);
        let is_none = !open.view.state.names.contains_key(&name);
        let is_none = is_none.then_some((|e| matches!(e, Error::NoSuchTree(_))) as fn(&Error) -> _);
        if self.compare(at, &[&name], outcome, is_none).is_some() {
            let view = &mut self.open(at).view;
            let number = view.state.names.remove(&name).expect("it was there");
            view.names.insert(name);
            view.dropped.insert(number);
        }
    }

    fn rename(&mut self, at: usize) {
        let (from, to) = (self.name(), self.name());
        let open = self.open(at);
        let outcome = open.txn.rename_tree(&from, &to);
        let names = &open.view.state.names;
        let refusal: Option<fn(&Error) -> bool> =
            match (names.contains_key(&from), names.contains_key(&to)) {
                (false, _) => Some(|e| matches!(e, Error::NoSuchTree(_))),
                (true, true) => Some(|e| matches!(e, Error::TreeExists(_))),
                (true, false) => None,
            };
        if self.compare(at, &[&from, &to], outcome, refusal).is_some() {
            let view = &mut self.open(at).view;
            let number = view.state.names.remove(&from).expect("it was there");
            view.state.names.insert(to.clone(), number);
            view.names.extend([from, to]);
        }
    }

    /// Looks a name up; gives the number of the tree and its handle.
    fn look_up(&mut self, at: usize) -> Option<(u64, Tree)> {
        let name = self.name();
        let is_stale = self.is_stale(at, &name);
        let open = self.open(at);
        let known = open.view.state.names.get(&name).copied();
        match (open.txn.tree(&name), known) {
            (Err(Error::Conflict(_)), _) if is_stale => {
                self.seen.stale_names += 1;
                // It may go on, with a tree that it knows already.
                let (number, tree) = self.open(at).handles.first_key_value()?;
                Some((*number, tree.clone()))
            }
            (Err(Error::NoSuchTree(_)), None) if !is_stale => None,
            (Ok(tree), Some(number)) if !is_stale => {
                let Open { handles, .. } = self.open(at);
                if let Some(handle) = handles.insert(number, tree.clone()) {
                    assert_eq!(handle.name(), tree.name());
                }
                Some((number, tree))
            }
            (Err(error), _) => {
                self.unexpected(at, &error);
                None
            }
            (Ok(_), _) => panic!("{name:?} was found; the model has {known:?}, stale {is_stale}"),
        }
    }

    fn ask(&mut self, at: usize) {
        self.look_up(at);
    }

    /// Whether somebody has dropped a tree of which a transaction has a handle.
    fn is_gone(&self, at: usize, tree: u64) -> bool {
        let view = &self.open[at].as_ref().expect("open").view;
        !self.committed.trees.contains_key(&tree) && !view.created.contains(&tree)
    }

    fn write(&mut self, at: usize) {
        let Some((number, tree)) = self.look_up(at) else { return };
        let (key, value) = (self.key(), self.value());
        let removes = self.random.random_range(0..4) == 0;
        let is_gone = self.is_gone(at, number);
        let record = (number, key.clone());
        let changed = self.records.get(&record).copied().unwrap_or(0);
        let writer = self.writers.get(&record).copied();
        let open = self.open(at);
        let known = open.view.state.trees[&number].contains_key(&key);
        let outcome = match removes {
            true => open.txn.remove(&tree, &key).map(|found| assert_eq!(found, known)),
            false => open.txn.put(&tree, &key, &value),
        };
        let conflicts = changed > open.snapshot || writer.is_some_and(|writer| writer != at);
        match outcome {
            Ok(()) => {
                assert!(!conflicts, "a change of {record:?} in conflict");
                // A removal of nothing is no change.
                assert!(!is_gone || removes && !known, "a change of a tree that was dropped");
                if removes && !known {
                    return;
                }
                let records = open.view.state.trees.get_mut(&number).expect("known");
                match removes {
                    true => records.remove(&key),
                    false => records.insert(key, value),
                };
                open.view.records.insert(record.clone());
                self.writers.insert(record, at);
            }
            Err(Error::NoSuchTree(_)) if is_gone => self.seen.dropped_trees += 1,
            Err(Error::Conflict(_)) if conflicts => self.conflict(at),
            Err(error) => self.unexpected(at, &error),
        }
    }

    fn read(&mut self, at: usize) {
        let Some((number, tree)) = self.look_up(at) else { return };
        let open = self.open(at);
        let found: Result<BTreeMap<_, _>, _> =
            open.txn.scan(&tree).and_then(|records| records.collect());
        match found {
            Ok(found) => assert_eq!(found, open.view.state.trees[&number], "tree {number}"),
            Err(error) => self.unexpected(at, &error),
        }
    }

    fn save(&mut self, at: usize) {
        let open = self.open(at);
        open.savepoints.push((open.txn.savepoint(), open.view.clone()));
    }

    fn roll_back_to(&mut self, at: usize) {
        let count = self.open(at).savepoints.len();
        if count == 0 {
            return;
        }
        let target = self.random.random_range(0..count);
        let fails = self.fails;
        let open = self.open(at);
        let (savepoint, view) = open.savepoints[target].clone();
        if let Err(error) = open.txn.rollback_to(&savepoint) {
            return self.unexpected(at, &error);
        }
        let later = open.savepoints.split_off(target + 1);
        let is_earlier = |later: &View| {
            later.names != view.names || later.state != view.state || later.records != view.records
        };
        for (later, its) in later.iter().rev().take(1) {
            if is_earlier(its) {
                let refused = open.txn.rollback_to(later).expect_err("it was passed");
                assert!(matches!(refused, Error::Limit(_)), "{refused}");
            }
        }
        let taken_back: Vec<u64> = open.view.created.difference(&view.created).copied().collect();
        for number in taken_back {
            let handle = open.handles.remove(&number).expect("it was created here");
            let refused = open.txn.put(&handle, b"k", b"").expect_err("it was not created");
            assert!(fails || matches!(refused, Error::NoSuchTree(_)), "{refused}");
        }
        let open = self.open(at);
        open.view = view;
        let records = open.view.records.clone();
        self.writers.retain(|record, writer| *writer != at || records.contains(record));
    }

    fn commit(&mut self, at: usize) {
        let open = self.open[at].as_ref().expect("open");
        let view = &open.view;
        let newer = |changed: Option<&u64>| changed.is_some_and(|at| *at > open.snapshot);
        let in_dropped =
            |record: &Record| view.dropped.contains(&record.0) && !view.created.contains(&record.0);
        let conflicts = view.names.iter().any(|name| newer(self.names.get(name)))
            || self.records.iter().any(|(record, at)| in_dropped(record) && newer(Some(at)))
            || self.writers.iter().any(|(record, writer)| *writer != at && in_dropped(record));
        self.begin_event();
        let Open { txn, view, is_serializable, .. } = self.end(at);
        let has_changes = !view.names.is_empty() || !view.records.is_empty();
        match txn.commit() {
            Ok(()) => {
                assert!(!conflicts, "{:?}: no conflict", view.names);
                self.seen.commits += 1;
                if has_changes {
                    self.apply(view);
                }
                self.end_event(has_changes);
            }
            Err(error) => {
                let is_conflict = matches!(error, Error::Conflict(_));
                assert!(self.fails || is_conflict && (conflicts || is_serializable), "{error}");
                self.seen.conflicts += 1;
                self.end_event(false);
            }
        }
    }

    /// The changes of a transaction that has committed.
    fn apply(&mut self, view: View) {
        let event = self.now() + 1;
        for name in view.names {
            match view.state.names.get(&name) {
                Some(number) => self.committed.names.insert(name.clone(), *number),
                None => self.committed.names.remove(&name),
            };
            self.names.insert(name, event);
        }
        for number in view.created.difference(&view.dropped) {
            self.committed.trees.insert(*number, BTreeMap::new());
        }
        for number in &view.dropped {
            self.committed.trees.remove(number);
        }
        for record in view.records {
            let Some(records) = self.committed.trees.get_mut(&record.0) else { continue };
            match view.state.trees[&record.0].get(&record.1) {
                Some(value) => records.insert(record.1.clone(), value.clone()),
                None => records.remove(&record.1),
            };
            self.records.insert(record, event);
        }
    }

    fn abort(&mut self, at: usize) {
        let Open { txn, .. } = self.end(at);
        match self.random.random_range(0..2) {
            0 => drop(txn),
            _ => match txn.abort() {
                Ok(()) => {}
                Err(error) => assert!(self.fails, "{error}"),
            },
        }
    }

    fn auto_put(&mut self) {
        let (name, key, value) = (self.name(), self.key(), self.value());
        let Some(number) = self.committed.names.get(&name).copied() else { return };
        let record = (number, key.clone());
        let is_held = self.writers.contains_key(&record);
        self.begin_event();
        let session = self.engine.session().expect("session");
        let put = self.engine.tree(&name).and_then(|tree| session.put(&tree, &key, &value));
        let done = put.is_ok();
        match put {
            Ok(()) => {
                assert!(!is_held, "{record:?} is held");
                let records = self.committed.trees.get_mut(&number).expect("it exists");
                records.insert(key, value);
                self.records.insert(record, self.now() + 1);
            }
            Err(Error::Conflict(_)) if is_held => {}
            Err(error) => assert!(self.fails || matches!(error, Error::Limit(_)), "{error}"),
        }
        self.end_event(done);
    }

    fn engine_create(&mut self) {
        let name = self.name();
        let exists = self.committed.names.contains_key(&name);
        self.begin_event();
        let created = self.engine.create_tree(&name);
        let done = created.is_ok();
        match created {
            Ok(_) => {
                assert!(!exists, "{name:?} exists");
                self.committed.names.insert(name.clone(), self.next_tree);
                self.committed.trees.insert(self.next_tree, BTreeMap::new());
                self.next_tree += 1;
                self.names.insert(name, self.now() + 1);
            }
            Err(Error::TreeExists(_)) if exists => {}
            Err(error) => assert!(self.fails || matches!(error, Error::Limit(_)), "{error}"),
        }
        self.end_event(done);
    }

    fn engine_drop_or_rename(&mut self) {
        if self.fails {
            // A drop that fails may go on later.
            return;
        }
        let (name, to) = (self.name(), self.name());
        let Some(number) = self.committed.names.get(&name).copied() else { return };
        let renames = self.random.random_range(0..2) == 0;
        let exists = renames && self.committed.names.contains_key(&to);
        let Ok(tree) = self.engine.tree(&name) else {
            return assert!(self.fails, "it could not be opened");
        };
        self.begin_event();
        let outcome = match renames {
            true => self.engine.rename_tree(tree, &to).map(drop),
            false => self.engine.drop_tree(tree),
        };
        let done = outcome.is_ok();
        match outcome {
            Ok(()) => {
                let event = self.now() + 1;
                self.committed.names.remove(&name);
                self.names.insert(name, event);
                if renames {
                    self.committed.names.insert(to.clone(), number);
                    self.names.insert(to, event);
                } else {
                    self.committed.trees.remove(&number);
                }
            }
            Err(Error::TreeExists(_)) if exists => {}
            // A transaction has a handle.
            Err(Error::TreeInUse(_)) => {}
            Err(error) => assert!(self.fails, "{error}"),
        }
        self.end_event(done);
    }

    /// Ends all transactions.
    pub fn end_all(&mut self) {
        for at in 0..OPEN {
            if self.open[at].is_some() {
                self.abort(at);
            }
        }
    }

    /// Ends all transactions, and compares the store with the model.
    pub fn check(&mut self) {
        self.end_all();
        assert_eq!(of_engine(&self.engine), self.committed.by_name());
        assert_verified(&self.engine);
    }

    /// Drops everything: then the store has as few pages as when it was new.
    pub fn check_that_space_is_given_back(&mut self, pages: u64) {
        self.end_all();
        let mut txn = self.engine.begin().expect("begin");
        for name in self.engine.trees().expect("names") {
            txn.drop_tree(&name).expect("drop");
        }
        txn.commit().expect("commit");
        eventually("all pages of dropped trees are free", || {
            let report = self.engine.verify(&mut |_| {}).expect("verify");
            report.problems.is_empty() && report.pages <= pages
        });
    }
}
