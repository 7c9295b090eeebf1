//! The log fails or is full in the middle of any operation: changes in place, large values, splits
//! and merges, rollbacks to savepoints and of whole transactions. A refused operation has changed
//! nothing, a rollback is exact, and after a crash the store holds all commits, with those of
//! unknown outcome up to one of them.

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::{
    collections::BTreeMap,
    io::ErrorKind,
    ops::{Bound, ControlFlow},
    sync::Arc,
    time::{Duration, Instant},
};
use wattle::{
    Direction, Durability, Engine, Error, MIN_LOG_BYTES, Options, Reads, Session, Ticket,
    Transaction, Tree,
    io::{Cut, Fault, FaultPlan, Op, SimStorage, Unit},
};
use wattle_tests::harness::{
    Change, Context, Device, Watchdog, assert_verified, rounds, small_pool,
};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

const RECORDS: u32 = 900;

fn key_of(number: u32) -> Vec<u8> {
    // Long keys make the tree deep, and many splits and merges.
    let mut key = format!("{number:06}").into_bytes();
    key.resize(6 + (number as usize * 37) % 200, b'k');
    key
}

fn options() -> Options {
    small_pool(96).log_bytes(MIN_LOG_BYTES).durability(Durability::Sync)
}

/// The result of a step.
#[derive(PartialEq, Eq)]
enum Outcome {
    Done,
    /// The transaction can only be aborted.
    Ended,
}

struct Run<'e> {
    random: SmallRng,
    session: &'e Session,
    tree: &'e Tree,
    device: &'e SimStorage,
    /// The committed state that is known to be durable, and the state after each later commit.
    committed: Vec<Map>,
    tickets: Vec<Ticket>,
    /// The log takes no more records.
    dead: bool,
    /// Something is wrong with the device just now.
    faulty: bool,
    refused: u64,
    not_taken_back: u64,
}

impl Run<'_> {
    fn below(&mut self, bound: u32) -> u32 {
        self.random.random_range(0..bound)
    }

    fn newest(&self) -> &Map {
        self.committed.last().expect("there is always one")
    }

    fn value(&mut self) -> Vec<u8> {
        let len = match self.below(40) {
            0..2 => 2000 + self.below(20_000),
            2..20 => self.below(300),
            _ => 30 + self.below(30),
        };
        let start: u8 = self.random.random();
        (0..len).map(|at| start.wrapping_add((at * 7) as u8)).collect()
    }

    /// An error that a device which fails explains.
    fn explain(&mut self, error: &Error) {
        // The log tries only now and then whether there is room again, and does not recover.
        let says = error.to_string();
        let late = says.contains("make log segment") || says.contains("injected into log");
        assert!(self.faulty || late, "{error:?}");
        match error {
            Error::Poisoned(_) | Error::CommitUnknown(_) => self.dead = true,
            Error::DiskFull { .. } | Error::Io { .. } | Error::PoolExhausted { .. } => {}
            Error::MustAbort(_) => {}
            error => panic!("{error:?}"),
        }
        self.refused += 1;
    }

    /// One change in a transaction that sees `map`.
    fn change(&mut self, txn: &mut Transaction<'_>, map: &mut Map) -> Outcome {
        let number = self.below(RECORDS);
        let key = key_of(number);
        let change = match self.below(10) {
            0..5 => Change::Modify {
                at: self.below(60) as usize,
                len: 1 + self.below(50) as usize,
                mark: 1 + self.below(255) as u8,
            },
            5 => Change::Remove,
            6 => Change::Update(self.value()),
            _ => Change::Put(self.value()),
        };
        let tree = self.tree;
        if let Err(error) = change.make(txn, tree, &key, map) {
            self.explain(&error);
            match txn.get(tree, &key) {
                Ok(found) => {
                    assert!(found.as_ref() == map.get(&key), "record {number}: it was refused");
                }
                Err(Error::MustAbort(_)) => return Outcome::Ended,
                Err(error) => self.explain(&error),
            }
        }
        Outcome::Done
    }

    /// Many changes side by side, so that pages split and merge.
    fn range(&mut self, txn: &mut Transaction<'_>, map: &mut Map) -> Outcome {
        let (from, removes) = (self.below(RECORDS), self.below(2) == 0);
        for number in from..(from + 20 + self.below(120)).min(RECORDS) {
            let key = key_of(number);
            let value = self.value();
            let outcome = match removes {
                true => txn.remove(self.tree, &key).map(drop),
                false => txn.put(self.tree, &key, &value),
            };
            match outcome {
                Ok(()) if removes => drop(map.remove(&key)),
                Ok(()) => drop(map.insert(key, value)),
                Err(error) => {
                    self.explain(&error);
                    match txn.get(self.tree, &key) {
                        Ok(found) => assert!(found.as_ref() == map.get(&key), "record {number}"),
                        Err(Error::MustAbort(_)) => return Outcome::Ended,
                        Err(error) => self.explain(&error),
                    }
                    break;
                }
            }
        }
        Outcome::Done
    }

    /// Something goes wrong from now on, or no more.
    fn break_or_mend(&mut self, seed: u64) {
        if self.faulty && !self.dead {
            self.device.heal();
            self.faulty = false;
            return;
        }
        let plan = FaultPlan::new(seed);
        let nth = u64::from(1 + self.below(12));
        let plan = match self.below(12) {
            0 => plan.nth(Op::LogWrite, nth, Fault::Error(ErrorKind::Other)),
            1 => plan.nth(Op::LogWrite, nth, Fault::Short(Unit::Sector)),
            2 => plan.nth(Op::LogSync, nth, Fault::Error(ErrorKind::Other)),
            3 => plan.nth(Op::LogSync, nth, Fault::Unsettled(ErrorKind::Other)),
            4 => plan.sometimes(Op::LogCreate, 0.7, Fault::Unsettled(ErrorKind::Other)),
            5..8 => plan.log_limit(MIN_LOG_BYTES / 4),
            _ => plan.always(Op::LogCreate, Fault::Error(ErrorKind::StorageFull)),
        };
        self.device.set_plan(plan);
        self.faulty = true;
    }

    fn transaction(&mut self) {
        let mut txn = match self.session.begin() {
            Ok(txn) => txn,
            Err(error) => return self.explain(&error),
        };
        let (mut map, mut savepoints) = (self.newest().clone(), Vec::new());
        let mut outcome = Outcome::Done;
        let steps = [3, 20, 150][self.below(3) as usize];
        for _ in 0..steps {
            outcome = match self.below(100) {
                0..4 => {
                    savepoints.push((txn.savepoint(), map.clone()));
                    Outcome::Done
                }
                4..8 if !savepoints.is_empty() => {
                    let at = self.below(savepoints.len() as u32) as usize;
                    savepoints.truncate(at + 1);
                    match txn.rollback_to(&savepoints[at].0) {
                        Ok(()) => {
                            map = savepoints[at].1.clone();
                            Outcome::Done
                        }
                        Err(error) => {
                            self.explain(&error);
                            Outcome::Ended
                        }
                    }
                }
                8..11 => self.range(&mut txn, &mut map),
                11 => {
                    let seed = self.random.random();
                    self.break_or_mend(seed);
                    Outcome::Done
                }
                _ => self.change(&mut txn, &mut map),
            };
            if outcome == Outcome::Ended {
                break;
            }
        }
        if outcome == Outcome::Ended || self.below(3) == 0 {
            if let Err(error) = txn.abort() {
                self.explain(&error);
                self.not_taken_back += 1;
            }
            return;
        }
        // One that waits for room waits until there is some, which is here; others follow it.
        match txn.commit_ticket() {
            Ok(ticket) => {
                self.committed.push(map);
                self.tickets.push(ticket);
            }
            Err(error) => {
                self.explain(&error);
                self.not_taken_back += u64::from(!matches!(error, Error::DiskFull { .. }));
            }
        }
        if self.below(2) == 0 {
            self.settle();
        }
    }

    /// Waits for all commits.
    fn settle(&mut self) {
        if self.faulty && !self.dead && self.below(3) > 0 {
            self.device.heal();
            self.faulty = false;
        } else if self.faulty && !self.dead {
            return;
        }
        for ticket in std::mem::take(&mut self.tickets) {
            match ticket.wait() {
                Ok(()) => drop(self.committed.remove(0)),
                Err(error) => {
                    self.faulty = true;
                    self.explain(&error);
                    assert!(self.dead, "{error:?}");
                    return;
                }
            }
        }
    }
}

fn read(session: &Session, tree: &Tree) -> Result<Map, Error> {
    session.scan(tree)?.collect()
}

fn run(seed: u64, watchdog: &Watchdog) -> (bool, u64) {
    let device = Arc::new(SimStorage::new(FaultPlan::new(seed)));
    let engine = Device::sim(&device).open(options()).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    let mut run = Run {
        random: SmallRng::seed_from_u64(seed),
        session: &session,
        tree: &tree,
        device: &device,
        committed: vec![Map::new()],
        tickets: Vec::new(),
        dead: false,
        faulty: false,
        refused: 0,
        not_taken_back: 0,
    };
    for _ in 0..40 {
        run.transaction();
        watchdog.step();
        if run.dead {
            break;
        }
    }
    if !run.dead {
        device.heal();
        (run.faulty, run.not_taken_back) = (false, 0);
        // Whatever could not be taken back is taken back now.
        let since = Instant::now();
        for number in 0..RECORDS {
            while let Err(error) = session.modify(&tree, &key_of(number), |_| {}) {
                let late = since.elapsed() > Duration::from_secs(10);
                assert!(!late, "seed {seed}: it does not go on: {error:?}");
                if let Error::Poisoned(_) = error {
                    run.dead = true;
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    if !run.dead {
        run.settle();
        let found = read(&session, &tree).expect("scan");
        assert!(&found == run.newest(), "seed {seed}: records differ");
    } else if run.not_taken_back == 0 {
        // Pages in memory are correct.
        match read(&session, &tree) {
            Ok(found) => {
                let known = run.committed.contains(&found);
                assert!(known, "seed {seed}: the log failed, and records differ");
            }
            Err(error) => run.explain(&error),
        }
    }
    let (dead, refused) = (run.dead, run.refused);
    let committed = if dead { run.committed } else { vec![run.newest().clone()] };
    drop((session, tree));
    let cut = [Cut::Sectors, Cut::Nothing, Cut::All, Cut::Process, Cut::Prefix][seed as usize % 5];
    let before = Arc::new(device.crash_as(seed, cut));
    let closed = engine.close();
    assert_eq!(closed.is_err(), dead, "seed {seed}: {closed:?}");
    device.heal();
    for (device, what) in [(before, "crashed"), (device, "closed")] {
        let engine: Engine = Device::sim(&device).open(options()).expect("open");
        let tree = engine.open_tree("tree").expect("open").expect("there");
        let session = engine.session().expect("session");
        let found = read(&session, &tree).expect("scan");
        assert!(committed.contains(&found), "seed {seed}: {what}, {cut:?}: records differ");
        drop((session, tree));
        assert_verified(&engine);
        watchdog.step();
    }
    (dead, refused)
}

#[test]
fn wherever_the_log_fails_or_is_full_nothing_is_half_done() {
    let watchdog = Watchdog::start("a log that fails", Duration::from_secs(30));
    let (mut dead, mut refused) = (0, 0);
    for seed in 0..12 * rounds() {
        let context = Context(("seed", seed));
        let (died, more) = run(seed, &watchdog);
        dead += u64::from(died);
        refused += more;
        drop(context);
    }
    assert!(dead > 0 && refused > 0, "{dead} logs failed, {refused} operations were refused");
}

/// Records of the stores below.
const MANY: u32 = 4000;

/// A store of many records, all of them 1s, with so much room for versions: a MiB is too little for
/// a transaction that changes every record.
fn ones(seed: u64, version_bytes: u64) -> (Arc<SimStorage>, Engine, Tree) {
    let device = Arc::new(SimStorage::new(FaultPlan::new(seed)));
    let options = small_pool(4000).log_bytes(8 * MIN_LOG_BYTES).version_bytes(version_bytes);
    let options = options.reads(Reads::Durable);
    let engine = Device::sim(&device).open(options).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    for number in 0..MANY {
        session.put_ticket(&tree, &number.to_be_bytes(), &[1; 100]).map(drop).expect("put");
    }
    engine.sync().expect("sync");
    drop(session);
    (device, engine, tree)
}

/// A transaction that has changed every record.
fn change_all<'s>(session: &'s Session, tree: &Tree, new: u8) -> Transaction<'s> {
    let mut txn = session.begin().expect("begin");
    for number in 0..MANY {
        txn.update(tree, &number.to_be_bytes(), &[new; 100]).expect("update");
    }
    txn
}

/// After the commit of a transaction that was too large for versions, an auto-committed operation
/// waits until that commit is durable; an older transaction gets an error.
#[test]
fn operations_by_themselves_wait_for_a_large_commit_to_be_durable() {
    let _watchdog = Watchdog::start("reads after a large commit", Duration::from_secs(20));
    let (device, engine, tree) = ones(3, 1 << 20);
    let (one, two) = (engine.session().expect("session"), engine.session().expect("session"));
    let task = engine.async_session().expect("session");
    let (large_key, large) = (b"\0\0\0\x03 is after it", vec![9; 50_000]);
    one.put(&tree, large_key, &large).expect("put");
    let before = two.begin_read().expect("begin");
    let read: [&dyn Fn(u8); 7] = [
        &|new| {
            let value = two.get(&tree, &7u32.to_be_bytes()).expect("get");
            assert_eq!(value.as_deref(), Some(&[new; 100][..]));
        },
        &|new| {
            let mut range = two.scan(&tree).expect("scan");
            let (_, value) = range.next_entry().expect("entry").expect("one");
            assert_eq!(value, [new; 100]);
        },
        &|new| {
            let from = 7u32.to_be_bytes();
            let mut range = two.range(&tree, &from[..]..).expect("range").rev();
            let (_, value) = range.next_entry().expect("entry").expect("one");
            assert_eq!(value, [new; 100]);
        },
        &|new| {
            let key = 9u32.to_be_bytes();
            let look = |_: usize, value: Option<&[u8]>| assert_eq!(value, Some(&[new; 100][..]));
            two.multi_get(&tree, &[key], look).expect("multi_get");
        },
        &|_| {
            let value = two.get(&tree, large_key).expect("get");
            assert_eq!(value.as_ref(), Some(&large));
        },
        &|_| {
            let value = wattle::run(8, task.get(&tree, large_key)).expect("run").expect("get");
            assert_eq!(value.as_ref(), Some(&large));
        },
        &|new| {
            let (all, mut seen) = ((Bound::Unbounded, Bound::Unbounded), 0);
            let scan = task.visit(&tree, all, Direction::Backward, |_, value| {
                assert_eq!(value, [new; 100]);
                seen += 1;
                if seen < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            wattle::run(8, scan).expect("run").expect("scan");
            assert_eq!(seen, 3);
        },
    ];
    for (new, read) in (2..).zip(read) {
        let txn = change_all(&one, &tree, new);
        let slow = Fault::Latency(Duration::from_millis(30));
        device.set_plan(FaultPlan::new(3).always(Op::LogSync, slow));
        let ticket = txn.commit_ticket().expect("commit");
        read(new);
        assert!(ticket.is_durable(), "it was seen, and could still be lost");
        device.heal();
    }
    let told = before.get(&tree, &7u32.to_be_bytes());
    assert!(matches!(told, Err(Error::SnapshotTooOld(_))), "{told:?}");
}

/// It has kept no versions, and what it did is not durable and never will be.
#[test]
fn reads_end_when_the_log_failed_behind_a_large_transaction() {
    let _watchdog = Watchdog::start("reads after a large transaction", Duration::from_secs(20));
    // With room for all versions, and without.
    for version_bytes in [64 << 20, 1 << 20] {
        let (engine, tree) = loop {
            let (device, engine, tree) = ones(2, version_bytes);
            let one = engine.session().expect("session");
            let txn = change_all(&one, &tree, 2);
            let fault = Fault::Error(ErrorKind::Other);
            device.set_plan(FaultPlan::new(2).always(Op::LogWrite, fault));
            match txn.commit_ticket() {
                Ok(ticket) => ticket.wait().expect_err("the log cannot be written"),
                // The log was flushed in the background in between.
                Err(Error::Poisoned(_)) => continue,
                Err(error) => panic!("{error}"),
            };
            drop(one);
            break (engine, tree);
        };
        let two = engine.session().expect("session");
        let key = 7u32.to_be_bytes();
        let told = |read: Result<(), Error>| match read {
            Err(Error::Poisoned(_)) => assert!(version_bytes == 1 << 20, "there are versions"),
            Err(error) => panic!("{error}"),
            Ok(()) => assert!(version_bytes > 1 << 20, "the value is unknown"),
        };
        told(two.get(&tree, &key).map(|value| assert_eq!(value.as_deref(), Some(&[1; 100][..]))));
        let mut seen = None;
        told(two.multi_get(&tree, &[key], |_, value| seen = value.map(<[u8]>::to_vec)));
        assert!(seen.is_none_or(|value| value == [1; 100]));
        let first = |mut range: wattle::Range<'_>| {
            let (_, value) = range.next_entry()?.expect("an entry");
            assert_eq!(value, [1; 100]);
            Ok(())
        };
        told(two.scan(&tree).and_then(first));
    }
}
