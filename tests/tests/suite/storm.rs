//! Everything at once, with epochs and checkpoints that follow each other as fast as they can:
//! transfers with savepoints, large values, trees that are created, loaded and dropped, tasks that
//! are cancelled half way, backups. Meanwhile the power is cut again and again: each time the store
//! opens, is sound, has all acknowledged commits, and no money is lost.

use std::{
    future::Future,
    io::ErrorKind,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    task::{Context, Waker},
    time::{Duration, Instant},
};
use wattle::{
    Durability, Engine, Error, MIN_LOG_BYTES, Options, Tree,
    io::{Cut, Fault, FaultPlan, Op, SimStorage, Unit},
};
use wattle_tests::harness::{Device, Random, Watchdog, assert_verified, rounds, seed, small_pool};

const ACCOUNTS: u64 = 60;
const BALANCE: i64 = 1000;
const MOVERS: usize = 2;

fn options(frames: u64, durability: Durability) -> Options {
    small_pool(frames).log_bytes(MIN_LOG_BYTES).durability(durability)
}

fn balance(value: &[u8]) -> i64 {
    i64::from_le_bytes(value[..8].try_into().expect("8 bytes"))
}

/// Shared by the threads.
struct Storm {
    engine: Engine,
    device: Arc<SimStorage>,
    done: AtomicBool,
    /// The log failed, or a checkpoint could not finish: all changes are refused.
    poisoned: AtomicBool,
    /// The last acknowledged transaction of each mover.
    acknowledged: [AtomicU64; MOVERS],
    watchdog: Watchdog,
}

impl Storm {
    /// The outcome of an operation, unless it failed in a way that it may: others are in its way,
    /// or the device is at fault.
    fn passed<T>(&self, outcome: Result<T, Error>) -> Option<T> {
        match outcome {
            Ok(value) => return Some(value),
            Err(Error::Conflict(_) | Error::SnapshotTooOld(_) | Error::MustAbort(_)) => {}
            Err(Error::DiskFull { .. } | Error::PoolExhausted { .. }) => {}
            Err(error @ (Error::Io { .. } | Error::Limit(_))) => {
                let says = error.to_string();
                // On a busy machine a bulk load or a backup may outlast the stall timeout of 1 s.
                let slow = says.contains("has not ended for");
                assert!(says.contains("injected") || slow, "{says}");
            }
            Err(Error::Poisoned(why) | Error::CommitUnknown(why)) => {
                assert!(why.contains("injected"), "{why}");
                self.poisoned.store(true, SeqCst);
                self.done.store(true, SeqCst);
            }
            Err(error) => panic!("{error:?}"),
        }
        None
    }

    fn goes_on(&self) -> bool {
        self.watchdog.step();
        !self.done.load(SeqCst)
    }

    /// Moves money, with detours.
    fn mover(&self, number: usize, random: &mut Random) {
        let (accounts, notes) = (self.tree("accounts"), self.tree("notes"));
        let session = self.engine.session().expect("session");
        let mut count = 0u64;
        while self.goes_on() {
            let Some(mut txn) = self.passed(session.begin()) else { continue };
            let outcome = (|| -> Result<bool, Error> {
                for _ in 0..1 + random.below(3) {
                    let before = txn.savepoint();
                    let (from, to) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
                    for (account, amount) in [(from, -7i64), (to, 7)] {
                        let key = account.to_be_bytes();
                        let now = balance(&txn.get(&accounts, &key)?.expect("an account"));
                        let mut value = (now + amount).to_le_bytes().to_vec();
                        value.resize(8 + random.below(500) as usize, 0);
                        txn.put(&accounts, &key, &value)?;
                    }
                    let note = random.below(30).to_be_bytes();
                    match random.below(3) {
                        0 => drop(txn.remove(&notes, &note)?),
                        1 => txn.put(&notes, &note, &vec![7; random.below(12_000) as usize])?,
                        _ => txn.put(&notes, &note, &vec![8; random.below(200) as usize])?,
                    }
                    if random.below(3) == 0 {
                        txn.rollback_to(&before)?;
                    }
                }
                let mine = [b"mover", &[number as u8][..]].concat();
                txn.put(&notes, &mine, &(count + 1).to_le_bytes())?;
                Ok(random.below(5) != 0)
            })();
            match self.passed(outcome) {
                Some(true) => {
                    if self.passed(txn.commit()).is_some() {
                        count += 1;
                        self.acknowledged[number].store(count, SeqCst);
                    }
                }
                _ => drop(self.passed(txn.abort())),
            }
        }
    }

    fn tree(&self, name: &str) -> Tree {
        loop {
            match self.passed(self.engine.tree(name)) {
                Some(tree) => return tree,
                None => assert!(self.goes_on(), "there is no tree {name:?}"),
            }
        }
    }

    /// Large values are written and removed by auto-committed operations: pages move from session
    /// to session.
    fn values(&self, random: &mut Random) {
        let tree = self.tree("values");
        let session = self.engine.session().expect("session");
        while self.goes_on() {
            let key = random.below(8).to_be_bytes();
            self.passed(session.put(&tree, &key, &vec![1; random.below(40_000) as usize]));
            if random.below(2) == 0 {
                self.passed(session.remove(&tree, &key));
            }
        }
    }

    /// Trees come and go, filled by records or by a bulk load.
    fn trees(&self, random: &mut Random) {
        let session = self.engine.session().expect("session");
        while self.goes_on() {
            let Some(tree) = self.passed(self.engine.tree("passing")) else { continue };
            let value = |key: u32| vec![key as u8; if key % 50 == 7 { 5000 } else { 150 }];
            if random.below(2) == 0 {
                let load = (0..400u32).map(|key| (key.to_be_bytes(), value(key)));
                match session.bulk_load(&tree, load) {
                    // One that could not be dropped.
                    Err(Error::NotEmpty) => {}
                    outcome => drop(self.passed(outcome)),
                }
            }
            for key in 0..random.below(300) as u32 {
                self.passed(session.put(&tree, &key.to_be_bytes(), &value(key + 1)));
            }
            match self.engine.drop_tree(tree) {
                // By a transaction of its own that could not be rolled back yet.
                Err(Error::TreeInUse(_)) => {}
                outcome => drop(self.passed(outcome)),
            }
        }
    }

    /// Operations of a task that is cancelled after a few polls.
    fn tasks(&self, random: &mut Random) {
        let tree = self.tree("tasks");
        let session = self.engine.async_session().expect("session");
        while self.goes_on() {
            let keys: Vec<u64> = (0..4).map(|_| random.below(100)).collect();
            let size = random.below(9000) as usize;
            let work = async {
                let mut txn = session.begin()?;
                for key in keys {
                    txn.put(&tree, &key.to_be_bytes(), &vec![3; size]).await?;
                }
                let mark = txn.savepoint();
                txn.put(&tree, b"again", &vec![4; size]).await?;
                txn.rollback_to(&mark).await?;
                txn.commit().await
            };
            let mut work = pin!(work);
            for _ in 0..1 + random.below(12) {
                let polled = work.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                if let std::task::Poll::Ready(outcome) = polled {
                    self.passed(outcome);
                    break;
                }
                std::thread::sleep(Duration::from_micros(random.below(300)));
            }
        }
    }

    /// Epochs follow each other.
    fn epochs(&self) {
        while self.goes_on() {
            self.passed(self.engine.sync());
        }
    }

    fn checkpoints(&self, random: &mut Random) {
        while self.goes_on() {
            match random.below(4) {
                // Pages get other ids, and the file other lengths.
                0 => drop(self.passed(self.engine.compact())),
                _ => drop(self.passed(self.engine.checkpoint())),
            }
            std::thread::sleep(Duration::from_micros(random.below(3000)));
        }
    }

    /// Cuts the power of a copy, or backs the store up, and looks at what is left.
    fn look(&self, seed: u64, random: &mut Random) -> u64 {
        let mut looks = 0;
        while self.goes_on() {
            let known: Vec<u64> =
                self.acknowledged.iter().map(|count| count.load(SeqCst)).collect();
            let cuts = [Cut::Sectors, Cut::Nothing, Cut::Prefix, Cut::Process, Cut::All];
            let cut = cuts[random.below(5) as usize];
            let what = format!("seed {seed}, look {looks}, {cut:?}");
            let left = if looks % 5 == 4 {
                let target = Arc::new(SimStorage::new(FaultPlan::new(1)));
                match self.passed(self.engine.backup_on(target.clone(), target.clone())) {
                    Some(_) => target,
                    None => continue,
                }
            } else {
                Arc::new(self.device.crash_as(random.next_u64(), cut))
            };
            self.check(left, &known, &what);
            looks += 1;
        }
        looks
    }

    fn check(&self, left: Arc<SimStorage>, known: &[u64], what: &str) {
        let opened = Device::sim(&left).open(options(64, Durability::Sync));
        let engine = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
        let session = engine.session().expect("session");
        let tree = |name: &str| engine.open_tree(name).expect("open a tree").expect("it was there");
        let (accounts, notes) = (tree("accounts"), tree("notes"));
        let entries = session.scan(&accounts).expect("scan").map(|entry| entry.expect("entry"));
        let sum: i64 = entries.map(|(_, value)| balance(&value)).sum();
        assert_eq!(sum, BALANCE * ACCOUNTS as i64, "{what}: the sum of all accounts");
        for (number, known) in known.iter().enumerate() {
            let mine = [b"mover", &[number as u8][..]].concat();
            let found = session.get(&notes, &mine).expect("get");
            let found = found.map_or(0, |value| balance(&value) as u64);
            assert!(found >= *known, "{what}: mover {number} is at {found}, not at {known}");
        }
        drop((session, accounts, notes));
        assert_verified(&engine);
        engine.close().unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}

fn storm(time: Duration, seed: u64, frames: u64, plan: FaultPlan) {
    println!("seed {seed}, {frames} frames");
    let device = Arc::new(SimStorage::new(FaultPlan::new(seed)));
    let engine = Device::sim(&device).open(options(frames, Durability::Sync)).expect("open");
    let accounts = engine.tree("accounts").expect("tree");
    for name in ["notes", "values", "tasks"] {
        engine.tree(name).expect("tree");
    }
    let mut txn = engine.begin().expect("begin");
    for account in 0..ACCOUNTS {
        let value = BALANCE.to_le_bytes();
        txn.put(&accounts, &account.to_be_bytes(), &value).expect("put");
    }
    txn.commit().expect("commit");
    drop(accounts);
    device.set_plan(plan);
    let storm = Storm {
        engine,
        device,
        done: AtomicBool::new(false),
        poisoned: AtomicBool::new(false),
        acknowledged: Default::default(),
        watchdog: Watchdog::start("storm", Duration::from_secs(60)),
    };
    let random = |number: u64| Random::new(seed ^ (number << 32));
    let looks = std::thread::scope(|scope| {
        let storm = &storm;
        for number in 0..MOVERS {
            scope.spawn(move || storm.mover(number, &mut random(number as u64)));
        }
        scope.spawn(move || storm.values(&mut random(10)));
        scope.spawn(move || storm.trees(&mut random(11)));
        scope.spawn(move || storm.tasks(&mut random(12)));
        scope.spawn(move || storm.epochs());
        scope.spawn(move || storm.checkpoints(&mut random(13)));
        let looking = scope.spawn(move || storm.look(seed, &mut random(14)));
        let end = Instant::now() + time;
        while Instant::now() < end && !storm.done.load(SeqCst) && !looking.is_finished() {
            std::thread::sleep(Duration::from_millis(10));
        }
        storm.done.store(true, SeqCst);
        looking.join().expect("what was left is sound")
    });
    storm.device.heal();
    let known: Vec<u64> = storm.acknowledged.iter().map(|count| count.load(SeqCst)).collect();
    println!("{looks} looks, {known:?} transfers");
    let Storm { engine, device, .. } = &storm;
    if !storm.poisoned.load(SeqCst) {
        assert_verified(engine);
    }
    for cut in [Cut::Sectors, Cut::Nothing, Cut::Process] {
        storm.check(Arc::new(device.crash_as(seed, cut)), &known, "the end");
    }
}

#[test]
fn in_a_storm_the_power_may_be_cut_at_any_moment() {
    let seed = seed();
    for (turn, frames) in [60, 400].into_iter().enumerate() {
        let seed = seed + turn as u64;
        storm(Duration::from_millis(700 * rounds()), seed, frames, FaultPlan::new(seed));
    }
}

#[test]
fn in_a_storm_on_a_device_with_faults_nothing_is_lost() {
    let seed = seed();
    let io = Fault::Error(ErrorKind::Other);
    let plan = FaultPlan::new(seed)
        .sometimes(Op::Read, 0.003, io)
        .sometimes(Op::Read, 0.003, Fault::Short(Unit::Sector))
        .sometimes(Op::Write, 0.0005, io)
        .sometimes(Op::Write, 0.0005, Fault::Short(Unit::Sector))
        .sometimes(Op::Reserve, 0.3, io)
        .sometimes(Op::LogCreate, 0.02, io)
        .sometimes(Op::LogCreate, 0.02, Fault::Unsettled(ErrorKind::StorageFull))
        .sometimes(Op::LogRemove, 0.2, Fault::Unsettled(ErrorKind::Other));
    storm(Duration::from_millis(900 * rounds()), seed, 100, plan);
}

#[test]
fn when_the_log_fails_in_a_storm_nothing_acknowledged_is_lost() {
    let (seed, io) = (seed(), ErrorKind::Other);
    let faults = [
        (Op::LogSync, Fault::Unsettled(io)),
        (Op::LogSync, Fault::Error(io)),
        (Op::LogWrite, Fault::Short(Unit::Sector)),
        (Op::Sync, Fault::Unsettled(io)),
    ];
    for (op, fault) in faults {
        let nth = 5 + Random::new(seed).below(if op == Op::Sync { 20 } else { 400 });
        println!("{op:?} {nth}: {fault:?}");
        let plan = FaultPlan::new(seed).nth(op, nth, fault);
        storm(Duration::from_millis(250 * rounds()), seed, 100, plan);
    }
}
