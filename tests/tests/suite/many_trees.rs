//! More trees than the pool can keep open: unused ones are closed when room is needed, and
//! operations on all trees need only a few at a time.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};
use wattle::{
    Durability, Engine, Error, MIN_POOL_BYTES, Session, Tree, TxnOptions,
    io::{FaultPlan, SimStorage},
};
use wattle_tests::harness::{
    Context, Device, Random, Watchdog, assert_verified, eventually, rounds, seed, small_pool,
};

fn name(number: usize) -> String {
    format!("tree {number:06}")
}

/// The value that a tree holds; that of a few is large.
fn value(number: usize) -> Vec<u8> {
    let len = if number % 50 == 7 { 9000 } else { 20 };
    number.to_le_bytes().into_iter().cycle().take(len).collect()
}

fn check(session: &Session, tree: &Tree, number: usize) {
    let found = session.get(tree, b"key").expect("get");
    assert!(found.as_deref() == Some(&value(number)[..]), "tree {number}");
}

/// Creates so many trees, reads each, and opens the store again with this pool and with the
/// smallest.
fn many(trees: usize, pool: u64) {
    let watchdog = Watchdog::start("many trees", Duration::from_secs(120));
    let device = Device::memory();
    let options = |bytes| {
        small_pool(0)
            .pool_bytes(bytes)
            .stall_timeout(Duration::from_secs(20))
            .durability(Durability::None)
    };
    let engine = device.open(options(pool)).expect("open");
    let session = engine.session().expect("session");
    for number in 0..trees {
        let tree = engine.create_tree(&name(number)).expect("create");
        session.put(&tree, b"key", &value(number)).expect("put");
        watchdog.step();
    }
    let read_all = |engine: &Engine, step: usize| {
        let session = engine.session().expect("session");
        for number in (0..trees).step_by(step) {
            let tree = engine.open_tree(&name(number)).expect("open").expect("it exists");
            check(&session, &tree, number);
            watchdog.step();
        }
    };
    read_all(&engine, 1);
    drop(session);
    engine.close().expect("close");
    for bytes in [pool, MIN_POOL_BYTES] {
        let engine = device.open(options(bytes)).expect("open");
        read_all(&engine, 1 + trees / 10_000);
        watchdog.step();
        assert_eq!(engine.trees().expect("names").len(), trees);
        let stats = engine.tree_stats().expect("stats");
        assert_eq!(stats.iter().map(|tree| tree.records).sum::<u64>(), trees as u64);
        watchdog.step();
        assert_verified(&engine);
        // And so that the pages of many are dirty when their trees close.
        let session = engine.session().expect("session");
        for number in (0..trees).step_by(1 + trees / 3000) {
            let tree = engine.tree(&name(number)).expect("open");
            session.put(&tree, b"key", &value(number)).expect("put");
            watchdog.step();
        }
        drop(session);
        engine.close().expect("close");
    }
}

#[test]
fn thousands_of_trees_work_in_a_pool_that_can_keep_a_few_open() {
    many(4000, 1 << 20);
}

#[test]
#[ignore = "long: run with the other long ones"]
fn a_hundred_thousand_trees_work_in_a_pool_of_16_mib() {
    many(100_000, 16 << 20);
}

#[test]
fn trees_that_are_in_use_stay_open_and_others_make_room() {
    let engine = Device::memory().open(small_pool(48)).expect("open");
    let session = engine.session().expect("session");
    let mut held = Vec::new();
    let error = loop {
        match engine.tree(&name(held.len())) {
            Ok(tree) => held.push(tree),
            Err(error) => break error,
        }
        assert!(held.len() < 48, "more trees than frames");
    };
    assert!(matches!(error, Error::Limit(_)), "{error}");
    // A quarter of the frames, without the root of the catalog.
    assert_eq!(held.len(), 11);
    // The background work of the engine continues.
    session.put(&held[3], b"key", b"value").expect("put");
    session.remove(&held[3], b"key").expect("remove");
    assert_eq!(engine.tree_stats().expect("stats").len(), 11);
    assert_verified(&engine);
    // A transaction that changed a tree holds it, although its handle is gone.
    let mut txn = session.begin().expect("begin");
    txn.put(&held[0], b"key", b"value").expect("put");
    held.remove(0);
    engine.tree("one more").expect_err("all are in use");
    txn.commit().expect("commit");
    drop(engine.tree("one more").expect("one is no longer in use"));
    held.truncate(2);
    for number in 0..200 {
        let tree = engine.tree(&name(number)).expect("open");
        session.put(&tree, b"key", &value(number)).expect("put");
    }
    for number in 0..200 {
        check(&session, &engine.tree(&name(number)).expect("open"), number);
    }
    drop((session, held));
    assert_verified(&engine);
    engine.close().expect("close");
}

#[test]
fn ghosts_and_large_values_that_a_snapshot_holds_do_not_hold_their_trees() {
    const TREES: usize = 150;
    let engine = Device::memory().open(small_pool(64)).expect("open");
    let session = engine.session().expect("session");
    let (mut renamed, mut dropped) = (0, 0);
    for number in 0..TREES {
        let tree = engine.tree(&name(number)).expect("create");
        session.put(&tree, b"gone", b"a record").expect("put");
        session.put(&tree, b"large", &vec![3; 9000]).expect("put");
    }
    let reader = engine.session().expect("session");
    let old = reader.begin_with(TxnOptions { read_only: true, ..TxnOptions::default() });
    let old = old.expect("begin");
    let used = engine.stats().used_pages;
    for number in 0..TREES {
        let tree = engine.tree(&name(number)).expect("open");
        assert!(session.remove(&tree, b"gone").expect("remove"));
        session.put(&tree, b"large", &vec![4; 9000]).expect("put");
        match number % 10 {
            3 => {
                drop(engine.rename_tree(tree, &format!("renamed {number}")).expect("rename"));
                renamed += 1;
            }
            4 => {
                engine.drop_tree(tree).expect("drop");
                dropped += 1;
            }
            _ => {}
        }
    }
    for number in (0..TREES).filter(|number| number % 10 != 4) {
        let name = if number % 10 == 3 { format!("renamed {number}") } else { name(number) };
        let tree = engine.open_tree(&name).expect("open").expect("it exists");
        assert_eq!(old.get(&tree, b"gone").expect("get").as_deref(), Some(&b"a record"[..]));
        assert_eq!(session.get(&tree, b"gone").expect("get"), None);
        assert_eq!(old.get(&tree, b"large").expect("get"), Some(vec![3; 9000]));
    }
    old.commit().expect("end");
    drop((session, reader));
    assert!(renamed > 0 && dropped > 0, "both happen");
    // The old values go, whichever trees are open.
    eventually("the old values are cleared away", || engine.stats().used_pages <= used);
    assert_verified(&engine);
    engine.close().expect("close");
}

/// Committed records and an open transaction in every tree; then the power is cut.
fn crash_with_losers(trees: usize, pool: u64, seed: u64) -> Arc<SimStorage> {
    let device = Arc::new(SimStorage::new(FaultPlan::new(seed)));
    let engine = Device::sim(&device).open(small_pool(pool)).expect("open");
    let session = engine.session().expect("session");
    let handles: Vec<Tree> =
        (0..trees).map(|number| engine.tree(&name(number)).expect("create")).collect();
    for (number, tree) in handles.iter().enumerate() {
        session.put(tree, b"key", &value(number)).expect("put");
        session.put(tree, b"removed", b"before").expect("put");
    }
    let mut loser = session.begin().expect("begin");
    for round in 0..2 {
        for tree in &handles {
            loser.put(tree, b"key", b"loser").expect("put");
            loser.put(tree, &[round], b"loser").expect("put");
            loser.remove(tree, b"removed").expect("remove");
        }
    }
    engine.sync().expect("sync");
    let left = Arc::new(device.crash(seed));
    drop(loser);
    left
}

#[test]
fn losers_and_ghosts_of_more_trees_than_the_pool_can_keep_open_are_rolled_back() {
    const TREES: usize = 250;
    let watchdog = Watchdog::start("losers", Duration::from_secs(60));
    for turn in 0..2 * rounds() {
        let seed = seed() + turn;
        let _context = Context(("seed", seed));
        let mut left = crash_with_losers(TREES, 1200, seed);
        // Interrupted again and again.
        for attempt in 0..3 {
            let stop = Arc::new(AtomicBool::new(false));
            let image = thread::scope(|scope| {
                let opening = scope.spawn(|| {
                    let opened = Device::sim(&left).open(small_pool(48));
                    stop.store(true, Ordering::Relaxed);
                    drop(opened.expect("open"));
                });
                while !stop.load(Ordering::Relaxed) && !opening.is_finished() {
                    thread::sleep(Duration::from_millis(3 * (attempt + 1)));
                    if !stop.load(Ordering::Relaxed) {
                        return Arc::new(left.crash(seed + attempt));
                    }
                }
                left.clone()
            });
            left = image;
            watchdog.step();
        }
        let engine = Device::sim(&left).open(small_pool(48)).expect("open in the smallest pool");
        let session = engine.session().expect("session");
        for number in 0..TREES {
            let tree = engine.open_tree(&name(number)).expect("open").expect("it exists");
            check(&session, &tree, number);
            let removed = session.get(&tree, b"removed").expect("get");
            assert_eq!(removed.as_deref(), Some(&b"before"[..]), "tree {number}");
            assert_eq!(session.get(&tree, &[0]).expect("get"), None, "tree {number}");
            watchdog.step();
        }
        drop(session);
        assert_verified(&engine);
        engine.close().expect("close");
    }
}

/// Trees of one thread, and what is in them.
struct Own {
    thread: usize,
    random: Random,
    trees: BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>,
    named: usize,
}

impl Own {
    fn step(&mut self, engine: &Engine, session: &Session) {
        let dice = self.random.below(100);
        if self.trees.len() < 40 || dice < 5 {
            self.named += 1;
            let name = format!("{} of {}", self.named, self.thread);
            drop(engine.create_tree(&name).expect("create"));
            self.trees.insert(name, BTreeMap::new());
            return;
        }
        let at = self.random.below(self.trees.len() as u64) as usize;
        let name = self.trees.keys().nth(at).expect("below the length").clone();
        let tree = engine.open_tree(&name).expect("open").expect("it exists");
        let key = [b'k', self.random.below(8) as u8];
        match dice {
            5..10 if self.trees.len() > 60 => {
                if done_unless_walked(engine.drop_tree(tree)).is_some() {
                    self.trees.remove(&name);
                }
            }
            10..15 => {
                self.named += 1;
                let new = format!("{} of {}", self.named, self.thread);
                if done_unless_walked(engine.rename_tree(tree, &new)).is_some() {
                    let map = self.trees.remove(&name).expect("known");
                    self.trees.insert(new, map);
                }
            }
            _ => {
                let map = self.trees.get_mut(&name).expect("known");
                match dice {
                    ..60 => {
                        let len = if self.random.below(20) == 0 { 7000 } else { 100 };
                        let value = vec![self.random.below(256) as u8; len];
                        session.put(&tree, &key, &value).expect("put");
                        map.insert(key.to_vec(), value);
                    }
                    60..70 => {
                        let was = map.remove(&key[..]).is_some();
                        assert_eq!(session.remove(&tree, &key).expect("remove"), was);
                    }
                    70..80 => {
                        let mut txn = session.begin().expect("begin");
                        txn.put(&tree, &key, b"taken back").expect("put");
                        txn.abort().expect("abort");
                    }
                    _ => Own::check(session, &tree, map),
                }
            }
        }
    }

    fn check(session: &Session, tree: &Tree, map: &BTreeMap<Vec<u8>, Vec<u8>>) {
        let mut found = BTreeMap::new();
        let mut records = session.scan(tree).expect("scan");
        while let Some((key, value)) = records.next_entry().expect("next") {
            found.insert(key.to_vec(), value.to_vec());
        }
        assert!(found == *map, "{}: {:?} and not {:?}", tree.name(), found.keys(), map.keys());
    }
}

/// Trees that all threads count in.
const SHARED: usize = 30;

fn count_up(engine: &Engine, session: &Session, number: usize) -> bool {
    let tree = engine.tree(&format!("shared {number}")).expect("open");
    let mut txn = session.begin().expect("begin");
    let before = match txn.get(&tree, b"count") {
        Ok(value) => value.map_or(0, |v| u64::from_le_bytes(v[..].try_into().expect("8 bytes"))),
        Err(error) => panic!("{error}"),
    };
    // The transaction goes on without a handle of the tree.
    let put = txn.put(&tree, b"count", &(before + 1).to_le_bytes());
    drop(tree);
    match put.and_then(|()| txn.commit()) {
        Ok(_) => true,
        Err(Error::Conflict(_)) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn threads_that_open_drop_and_rename_many_trees_find_what_they_put() {
    const THREADS: usize = 4;
    let watchdog = Watchdog::start("threads", Duration::from_secs(60));
    let seed = seed();
    let _context = Context(("seed", seed));
    let device = Arc::new(SimStorage::new(FaultPlan::new(seed)));
    let options = small_pool(96).stall_timeout(Duration::from_secs(20));
    let engine = Device::sim(&device).open(options.clone()).expect("open");
    let counts: Vec<AtomicU64> = (0..SHARED).map(|_| AtomicU64::new(0)).collect();
    let done = AtomicBool::new(false);
    let owns: Vec<Own> = thread::scope(|scope| {
        scope.spawn(|| {
            // Whatever is walked meanwhile, tree by tree.
            while !done.load(Ordering::Relaxed) {
                engine.tree_stats().expect("stats");
                engine.checkpoint().expect("checkpoint");
                thread::sleep(Duration::from_millis(5));
            }
        });
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (engine, watchdog, counts) = (&engine, &watchdog, &counts);
                scope.spawn(move || {
                    let session = engine.session().expect("session");
                    let random = Random::new(seed + thread as u64);
                    let mut own = Own { thread, random, trees: BTreeMap::new(), named: 0 };
                    for _ in 0..1500 * rounds() {
                        own.step(engine, &session);
                        let shared = own.random.below(SHARED as u64) as usize;
                        if count_up(engine, &session, shared) {
                            counts[shared].fetch_add(1, Ordering::Relaxed);
                        }
                        watchdog.step();
                    }
                    own
                })
            })
            .collect();
        let owns = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        done.store(true, Ordering::Relaxed);
        owns
    });
    let check_all = |engine: &Engine| {
        let session = engine.session().expect("session");
        for own in &owns {
            for (name, map) in &own.trees {
                let tree = engine.open_tree(name).expect("open").expect("it exists");
                Own::check(&session, &tree, map);
            }
        }
        for (number, count) in counts.iter().enumerate() {
            let tree = engine.tree(&format!("shared {number}")).expect("open");
            let found = session.get(&tree, b"count").expect("get").unwrap_or(vec![0; 8]);
            assert_eq!(found, count.load(Ordering::Relaxed).to_le_bytes(), "shared {number}");
        }
        drop(session);
        assert_verified(engine);
    };
    check_all(&engine);
    // After a power cut, and after a clean end.
    engine.sync().expect("sync");
    let left = Arc::new(device.crash(seed));
    let recovered = Device::sim(&left).open(small_pool(48)).expect("recover");
    check_all(&recovered);
    drop(recovered);
    engine.close().expect("close");
    let engine = Device::sim(&device).open(options).expect("open");
    check_all(&engine);
    engine.close().expect("close");
}

/// A tree that is measured just then cannot be dropped or renamed.
fn done_unless_walked<T>(outcome: Result<T, Error>) -> Option<T> {
    match outcome {
        Ok(done) => Some(done),
        Err(Error::TreeInUse(_)) => None,
        Err(error) => panic!("{error}"),
    }
}
