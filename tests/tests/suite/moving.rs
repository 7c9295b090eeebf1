//! Transactions that go to another thread between any two of their operations, those of
//! [`Engine::begin`] and those that a session lends itself to, against a model; while others change
//! the same trees, the pool is small, and checkpoints are made. `WATTLE_ROUNDS` multiplies the
//! length.

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
};
use wattle::{
    Direction, Engine, Error, Isolation, MIN_LOG_BYTES, Options, Savepoint, Transaction, Tree,
    TxnOptions,
};
use wattle_tests::harness::{Device, assert_verified, rounds, seed, small_pool};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

const KEYS: u32 = 400;
const WALKERS: u32 = 6;
const THREADS: usize = 3;

fn options() -> Options {
    small_pool(200).log_bytes(MIN_LOG_BYTES)
}

/// Keys of a walker: no other one writes them, and all share the leaves.
fn key(walker: u32, number: u32) -> Vec<u8> {
    format!("{number:05}-{walker}").into_bytes()
}

fn is_of(walker: u32, key: &[u8]) -> bool {
    key.ends_with(format!("-{walker}").as_bytes())
}

/// A transaction on its way, with the model of what it should see.
struct Walker<'s> {
    number: u32,
    txn: Option<Transaction<'s>>,
    /// The transaction's view of its walker's keys, and their state at its beginning.
    now: Map,
    before: Map,
    savepoint: Option<(Savepoint, Map)>,
    random: SmallRng,
    left: u32,
    /// Others may have changed what it has scanned.
    serializable: bool,
}

impl Walker<'_> {
    fn write(&mut self, tree: &Tree) -> wattle::Result<()> {
        let key = key(self.number, self.random.random_range(0..KEYS));
        let len = match self.random.random_range(0..30) {
            0 => 9_000,
            n => n * 7,
        };
        let value = vec![self.random.random::<u8>(); len];
        let txn = self.txn.as_mut().expect("not ended");
        match self.random.random_range(0..4) {
            0 => {
                assert_eq!(txn.remove(tree, &key)?, self.now.remove(&key).is_some());
            }
            1 => {
                let found = txn.modify(tree, &key, |value| value.fill(9))?;
                assert_eq!(found, self.now.contains_key(&key));
                self.now.entry(key).and_modify(|value| value.fill(9));
            }
            2 if !self.now.contains_key(&key) => {
                txn.insert_many(tree, &[(&key, &value)])?;
                self.now.insert(key, value);
            }
            _ => {
                txn.put(tree, &key, &value)?;
                self.now.insert(key, value);
            }
        }
        Ok(())
    }

    fn read(&mut self, tree: &Tree) -> wattle::Result<()> {
        let txn = self.txn.as_ref().expect("not ended");
        let key = key(self.number, self.random.random_range(0..KEYS));
        assert_eq!(txn.get(tree, &key)?.as_ref(), self.now.get(&key), "{}", key.escape_ascii());
        if self.random.random_range(0..8) == 0 {
            let mut found = Map::new();
            for entry in txn.scan(tree)? {
                let (key, value) = entry?;
                found.insert(key, value);
            }
            found.retain(|key, _| is_of(self.number, key));
            assert_eq!(found, self.now);
            let mut last = None;
            let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
            txn.visit(tree, all, Direction::Backward, |key, _| {
                if !is_of(self.number, key) {
                    return ControlFlow::Continue(());
                }
                last = Some(key.to_vec());
                ControlFlow::Break(())
            })?;
            assert_eq!(last.as_ref(), self.now.last_key_value().map(|(key, _)| key));
        }
        Ok(())
    }

    /// One step; true when the transaction has ended.
    fn step(&mut self, tree: &Tree) -> wattle::Result<bool> {
        let txn = self.txn.as_mut().expect("not ended");
        match self.random.random_range(0..40) {
            0 => {
                self.txn.take().expect("not ended").commit()?;
                return Ok(true);
            }
            1 => {
                self.now.clone_from(&self.before);
                match self.random.random_bool(0.5) {
                    true => self.txn.take().expect("not ended").abort()?,
                    false => drop(self.txn.take()),
                }
                return Ok(true);
            }
            2 => self.savepoint = Some((txn.savepoint(), self.now.clone())),
            3 => {
                if let Some((savepoint, map)) = self.savepoint.take() {
                    txn.rollback_to(&savepoint)?;
                    self.now = map;
                }
            }
            4..10 => self.read(tree)?,
            _ => self.write(tree)?,
        }
        Ok(false)
    }
}

/// Shared by the threads of a walk.
struct Walk<'w, 's> {
    engine: &'w Engine,
    tree: &'w Tree,
    senders: Vec<Sender<Walker<'s>>>,
    ended: Mutex<Vec<Walker<'s>>>,
    moves: AtomicU64,
}

impl<'s> Walk<'_, 's> {
    /// A thread: takes each walker a step or a few, and sends it on, to itself at times.
    fn run(&self, walkers: Receiver<Walker<'s>>, mut random: SmallRng) {
        for mut walker in walkers {
            if walker.txn.is_none() {
                return;
            }
            for _ in 0..random.random_range(1..4) {
                walker.left = walker.left.saturating_sub(1);
                let ended = match walker.step(self.tree) {
                    Ok(ended) => ended,
                    Err(error)
                        if matches!(error, Error::SnapshotTooOld(_))
                            || matches!(error, Error::Conflict(_)) && walker.serializable =>
                    {
                        walker.now.clone_from(&walker.before);
                        drop(walker.txn.take());
                        true
                    }
                    Err(error) => panic!("walker {}: {error}", walker.number),
                };
                if ended {
                    walker.savepoint = None;
                    walker.before.clone_from(&walker.now);
                    if walker.left == 0 {
                        break;
                    }
                    walker.serializable = random.random_bool(0.3);
                    let isolation = match walker.serializable {
                        true => Isolation::Serializable,
                        false => Isolation::Snapshot,
                    };
                    let isolation = TxnOptions { isolation, ..TxnOptions::default() };
                    // The first one may be of a session on another thread; these are of the engine.
                    let txn = self.engine.begin_with(isolation).expect("begin");
                    walker.txn = Some(txn);
                }
            }
            self.moves.fetch_add(1, Ordering::Relaxed);
            if walker.txn.is_none() {
                let mut ended = self.ended.lock().expect("lock");
                ended.push(walker);
                if ended.len() == WALKERS as usize {
                    return;
                }
                continue;
            }
            let to = random.random_range(0..THREADS);
            if self.senders[to].send(walker).is_err() {
                panic!("thread {to} has ended");
            }
        }
    }
}

#[test]
fn transactions_that_move_between_threads_at_every_step_agree_with_a_model() {
    let seed = seed();
    println!("seed {seed}");
    let device = Device::memory();
    let engine = device.open(options()).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let mut maps: Vec<Map> = vec![Map::new(); WALKERS as usize];
    for round in 0..2 * rounds() {
        let session = engine.session().expect("session");
        let stop = AtomicBool::new(false);
        let random = |stream: u64| SmallRng::seed_from_u64(seed ^ (round << 32) ^ stream);
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| channel()).unzip();
        let walk = Walk {
            engine: &engine,
            tree: &tree,
            senders,
            ended: Mutex::default(),
            moves: AtomicU64::new(0),
        };
        std::thread::scope(|scope| {
            scope.spawn(|| load(&engine, &tree, &stop));
            for number in 0..WALKERS {
                let map = &maps[number as usize];
                // Some are of the session of this thread, which goes on with it meanwhile.
                let txn = match number % 2 {
                    0 => session.begin().expect("begin"),
                    _ => engine.begin().expect("begin"),
                };
                let walker = Walker {
                    number,
                    txn: Some(txn),
                    now: map.clone(),
                    before: map.clone(),
                    savepoint: None,
                    random: random(1 + u64::from(number)),
                    left: 400,
                    serializable: false,
                };
                walk.senders[number as usize % THREADS].send(walker).expect("it listens");
            }
            let threads: Vec<_> = receivers
                .into_iter()
                .enumerate()
                .map(|(at, walkers)| {
                    let (walk, random) = (&walk, random(100 + at as u64));
                    scope.spawn(move || walk.run(walkers, random))
                })
                .collect();
            for n in 0u32.. {
                if threads.iter().any(std::thread::ScopedJoinHandle::is_finished) {
                    break;
                }
                // The session is in use here all the time.
                session
                    .put(&tree, format!("z-{}-session", n % 50).as_bytes(), &[1; 60])
                    .expect("put");
                session.get(&tree, b"00000-0").expect("get");
            }
            stop.store(true, Ordering::Relaxed);
            // The others end when all senders are dropped.
            let Walk { senders, .. } = &walk;
            assert_eq!(senders.len(), THREADS);
            for (at, sender) in senders.iter().enumerate() {
                let over = Walker {
                    number: WALKERS + at as u32,
                    txn: None,
                    now: Map::new(),
                    before: Map::new(),
                    savepoint: None,
                    random: random(0),
                    left: 0,
                    serializable: false,
                };
                // Refused by the thread that has ended already.
                let _refused = sender.send(over).is_err();
            }
        });
        let moves = walk.moves.load(Ordering::Relaxed);
        println!("round {round}: {moves} moves");
        let Walk { ended, .. } = walk;
        for walker in ended.into_inner().expect("lock") {
            if walker.number < WALKERS {
                maps[walker.number as usize] = walker.now;
            }
        }
        check(&engine, &tree, &maps);
    }
    // As a crash would leave it, and after recovery.
    drop(tree);
    engine.close().expect("close");
    let engine = device.open(options()).expect("open again");
    check(&engine, &engine.tree("tree").expect("tree"), &maps);
    assert_verified(&engine);
}

fn check(engine: &Engine, tree: &Tree, maps: &[Map]) {
    let session = engine.session().expect("session");
    let mut found: Vec<Map> = vec![Map::new(); maps.len()];
    for entry in session.scan(tree).expect("scan") {
        let (key, value) = entry.expect("entry");
        if let Some(at) = (0..WALKERS).find(|walker| is_of(*walker, &key)) {
            found[at as usize].insert(key, value);
        }
    }
    assert!(found == maps, "records differ from the model");
}

/// Others on the same leaves, and checkpoints.
fn load(engine: &Engine, tree: &Tree, stop: &AtomicBool) {
    let session = engine.session().expect("session");
    for n in 0u32.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let key = format!("{:05}-other", n * 7 % KEYS);
        match n % 3 {
            0 => session.put(tree, key.as_bytes(), &vec![3; n as usize % 500]).map(|()| true),
            1 => session.update(tree, key.as_bytes(), &[4; 9]),
            _ => session.remove(tree, key.as_bytes()),
        }
        .expect("a change of another");
        if n % 500 == 0 {
            engine.checkpoint().expect("checkpoint");
        }
    }
}

/// Records of one transaction come from the appenders of two sessions, and recovery must take back
/// exactly what is not taken back yet.
#[test]
fn a_crash_in_the_middle_of_a_roll_back_on_another_thread_takes_back_the_rest() {
    use std::sync::Arc;
    use wattle::io::{FaultPlan, SimStorage};
    for cut in 0..20u8 {
        let storage = Arc::new(SimStorage::new(FaultPlan::new(u64::from(cut))));
        let device = Device::sim(&storage);
        let engine = device.open(options()).expect("open");
        let tree = engine.tree("tree").expect("tree");
        let other = engine.tree("other").expect("tree");
        let session = engine.session().expect("session");
        for n in 0..20u8 {
            session.put(&tree, &[n], b"before").expect("put");
            session.put(&other, &[n], b"before").expect("put");
        }
        let mut txn = session.begin().expect("begin");
        // Numbers of the records of this session get far ahead of those of a new one.
        for n in 0..500u32 {
            txn.put(&tree, &n.to_be_bytes(), b"inserted").expect("put");
        }
        std::thread::scope(|scope| {
            let (engine, other) = (&engine, &other);
            scope.spawn(move || {
                for n in 0..10u8 {
                    txn.put(other, &[n], b"changed").expect("put");
                }
                let savepoint = txn.savepoint();
                for n in 10..20u8 {
                    txn.put(other, &[n], b"changed").expect("put");
                }
                // Puts some back, each with a record that takes the newest change off.
                if cut % 2 == 0 {
                    txn.rollback_to(&savepoint).expect("roll back");
                }
                engine.sync().expect("sync");
                std::mem::forget(txn);
            });
        });
        let crashed = Arc::new(storage.crash(u64::from(cut)));
        drop((session, tree, other));
        engine.abandon().expect("abandon");
        let engine = Device::sim(&crashed).open(options()).expect("recover");
        let session = engine.session().expect("session");
        for name in ["tree", "other"] {
            let tree = engine.tree(name).expect("tree");
            let found: Vec<_> =
                session.scan(&tree).expect("scan").map(|entry| entry.expect("entry")).collect();
            let expected: Vec<_> = (0..20u8).map(|n| (vec![n], b"before".to_vec())).collect();
            assert_eq!(found, expected, "{cut}: {name}");
        }
        assert_verified(&engine);
    }
}
