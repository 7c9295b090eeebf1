//! Random operations against a `BTreeMap`, with pools of tens of frames and several threads, and
//! reopening in between. `WATTLE_ROUNDS` multiplies the length.

use rand::{RngExt, SeedableRng, rngs::SmallRng, seq::SliceRandom};
use std::{
    cell::Cell,
    time::{Duration, Instant},
};
use wattle::{Durability, IoKind, MIN_LOG_BYTES, Options, Tree};
use wattle_buffer::{PageId, is_reserved_page};
use wattle_tests::{
    harness::{Device, assert_verified, built, rounds, seed, small_pool},
    model::{ALL_KEYS, Client, Keys, Plan},
};

pub fn options(frames: u64) -> Options {
    // A loaded machine may take longer than a second to free a frame.
    small_pool(frames).stall_timeout(Duration::from_secs(10))
}

/// Without a log, with one that commits wait for or not, and without swizzling.
fn modes(options: &Options) -> [Options; 4] {
    let logged = options.clone().log_bytes(MIN_LOG_BYTES);
    let soon = logged.clone().durability(Durability::None);
    let by_page_table = soon.clone().swizzling(false);
    [options.clone().log(false), logged, soon, by_page_table]
}

/// Runs `clients` threads for `steps` operations each, in `lives` lives of the engine, in each of
/// the [`modes`].
fn run(
    device: &dyn Fn() -> Device,
    options: Options,
    plan: Plan,
    steps: u64,
    lives: u64,
    seed: u64,
) {
    for (mode, options) in modes(&options).into_iter().enumerate() {
        run_in(&device(), options, plan, steps / 2, lives, seed + 10_000 * mode as u64);
    }
}

pub fn run_in(device: &Device, options: Options, plan: Plan, steps: u64, lives: u64, seed: u64) {
    println!("seed {seed}, {plan:?}, {options:?}");
    let mut clients: Vec<_> =
        (0..plan.clients).map(|client| Client::new(Plan { client, ..plan }, seed)).collect();
    for life in 0..lives {
        let engine = device.open(options.clone()).expect("open");
        let tree = engine.tree("model").expect("tree");
        std::thread::scope(|scope| {
            for client in &mut clients {
                let (engine, tree) = (&engine, &tree);
                scope.spawn(move || {
                    let session = engine.session().expect("session");
                    client.check_all(&session, tree);
                    for _ in 0..steps {
                        client.step(&session, tree);
                    }
                    client.check_all(&session, tree);
                });
            }
        });
        assert_verified(&engine);
        drop(tree);
        engine.close().unwrap_or_else(|error| panic!("life {life}: {error}"));
    }
}

/// Writers of neighbouring keys stay at one leaf without a descent: whatever others do to the leaf
/// meanwhile, every record must end up where a look-up finds it.
#[test]
fn a_leaf_that_others_split_merge_and_evict_between_two_writes_of_neighbours() {
    let seed = seed();
    println!("seed {seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let mut records = std::collections::BTreeMap::new();
    let mut value = move |i: u32| vec![i as u8; random.random_range(1..300)];
    let mut random = SmallRng::seed_from_u64(seed + 1);
    let device = Device::memory();
    let engine = device.open(options(48).durability(Durability::None)).expect("open");
    let tree = engine.tree("model").expect("tree");
    let (ours, theirs) = (engine.session().expect("session"), engine.session().expect("session"));
    const UNIVERSE: u32 = 20_000;
    let key = |i: u32| i.to_be_bytes();
    for _ in 0..2_000 * rounds() {
        // Even keys are ours, odd ones theirs.
        let start = random.random_range(0..UNIVERSE / 2) * 2;
        let run: Vec<u32> = (0..random.random_range(2..12)).map(|i| start + 2 * i).collect();
        for i in run {
            match random.random_range(0..4) {
                0 => {
                    let bytes = value(i);
                    let same = |value: &mut [u8]| value.fill(i as u8);
                    let found = ours.modify(&tree, &key(i), same).expect("modify");
                    assert_eq!(found, records.contains_key(&i), "modify {i}");
                    if !found {
                        ours.insert(&tree, &key(i), &bytes).expect("insert");
                        records.insert(i, bytes);
                    }
                }
                1 => {
                    let found = ours.remove(&tree, &key(i)).expect("remove");
                    assert_eq!(found, records.remove(&i).is_some(), "remove {i}");
                }
                _ => {
                    let bytes = value(i);
                    ours.put(&tree, &key(i), &bytes).expect("put");
                    records.insert(i, bytes);
                }
            }
            match random.random_range(0..8) {
                // A split, or an emptier leaf.
                0 => (0..40).map(|j| i + 1 + 2 * j).for_each(|i| {
                    let bytes = value(i);
                    theirs.put(&tree, &key(i), &bytes).expect("put");
                    records.insert(i, bytes);
                }),
                1 => (0..60).map(|j| (i + 1 + 2 * j).saturating_sub(60)).for_each(|i| {
                    let found = theirs.remove(&tree, &key(i)).expect("remove");
                    assert_eq!(found, records.remove(&i).is_some(), "remove {i}");
                }),
                // Other pages take its place in memory.
                2 => (0..60).map(|_| random.random_range(0..UNIVERSE)).for_each(|i| {
                    let found = theirs.get(&tree, &key(i)).expect("get");
                    assert_eq!(found.as_ref(), records.get(&i));
                }),
                _ => {}
            }
        }
    }
    let expected = records.iter().map(|(i, value)| (key(*i).to_vec(), value.clone()));
    let found = ours.scan(&tree).expect("scan").collect::<Result<Vec<_>, _>>().expect("entries");
    assert_eq!(found, expected.collect::<Vec<_>>());
    assert_verified(&engine);
}

pub fn plan(keys: Keys, universe: u32, clients: u32) -> Plan {
    Plan { keys, universe, value: 300, large_every: 0, large: 300_000, client: 0, clients }
}

#[test]
fn every_key_shape_in_a_tiny_pool_one_thread() {
    for (i, keys) in ALL_KEYS.into_iter().enumerate() {
        run(
            &Device::memory,
            options(48),
            plan(keys, 3000, 1),
            40_000 * rounds(),
            2,
            100 + i as u64,
        );
    }
}

#[test]
fn every_key_shape_in_a_tiny_pool_four_threads() {
    for (i, keys) in ALL_KEYS.into_iter().enumerate() {
        run(
            &Device::memory,
            options(64),
            plan(keys, 2000, 4),
            15_000 * rounds(),
            2,
            200 + i as u64,
        );
    }
}

#[test]
fn large_and_maximal_values_beside_small_ones() {
    for (clients, seed) in [(1, 300), (4, 301)] {
        let plan = Plan { value: 1900, large_every: 50, ..plan(Keys::Wild, 600, clients) };
        run(&Device::memory, options(96), plan, 4_000 * rounds(), 2, seed);
    }
}

#[test]
fn real_files_with_both_back_ends() {
    let kinds = [IoKind::Uring, IoKind::Threads, IoKind::Buffered];
    for (io, seed) in built(kinds).zip(400..) {
        let directory = tempfile::tempdir().expect("temporary directory");
        let turn = Cell::new(0);
        let device = || {
            turn.set(turn.get() + 1);
            let path = directory.path().join(turn.get().to_string());
            std::fs::create_dir(&path).expect("directory");
            Device::files(io, &path)
        };
        run(&device, options(128), plan(Keys::Random, 6000, 4), 5_000 * rounds(), 2, seed);
    }
}

#[test]
fn random_replacement_keeps_everything_too() {
    let options = options(48).policy("random");
    run(&Device::memory, options, plan(Keys::Random, 4000, 4), 15_000 * rounds(), 2, 500);
}

#[test]
fn values_of_several_mib_come_back_whole() {
    for (clients, seed) in [(1, 600), (2, 601)] {
        let plan = Plan { large_every: 15, large: 5 << 20, ..plan(Keys::Random, 40, clients) };
        run(&Device::memory, options(96), plan, 150 * rounds(), 2, seed);
    }
}

#[test]
fn trees_come_and_go_while_others_are_used() {
    for options in modes(&options(160)) {
        trees_come_and_go(&options);
    }
}

fn trees_come_and_go(options: &Options) {
    println!("{options:?}");
    let device = Device::memory();
    let plan =
        |client| Plan { large_every: 60, large: 20_000, client, ..plan(Keys::Nested, 900, 1) };
    // Three threads with four trees each, all in the same pool.
    let mut threads: Vec<Vec<Client>> = (0..3u32)
        .map(|thread| {
            (0..4).map(|i| Client::new(plan(i), 700 + u64::from(thread * 4 + i))).collect()
        })
        .collect();
    for life in 0..3u64 {
        let engine = device.open(options.clone()).expect("open");
        std::thread::scope(|scope| {
            for (thread, clients) in threads.iter_mut().enumerate() {
                let engine = &engine;
                scope.spawn(move || {
                    let seed = 700 + 10 * life + thread as u64;
                    println!("seed {seed}");
                    let mut random = SmallRng::seed_from_u64(seed);
                    let session = engine.session().expect("session");
                    let mut trees: Vec<Option<Tree>> = vec![None; clients.len()];
                    for turn in 0..120 * rounds() {
                        let i = random.random_range(0..clients.len());
                        let name = format!("tree {thread}.{i}");
                        let known = trees[i].take();
                        let tree = known.unwrap_or_else(|| engine.tree(&name).expect("tree"));
                        clients[i].check_all(&session, &tree);
                        if turn % 7 == 6 {
                            engine.drop_tree(tree).expect("the only handle");
                            assert!(engine.open_tree(&name).expect("look").is_none());
                            clients[i] = Client::new(plan(i as u32), seed ^ turn << 20);
                            continue;
                        }
                        for _ in 0..random.random_range(1..400) {
                            clients[i].step(&session, &tree);
                        }
                        trees[i] = Some(tree);
                    }
                });
            }
        });
        assert_verified(&engine);
        engine.close().unwrap_or_else(|error| panic!("life {life}: {error}"));
    }
    // Whatever was dropped gave its pages back.
    let engine = device.open(options.clone()).expect("open");
    for name in engine.trees().expect("names") {
        engine.drop_tree(engine.tree(&name).expect("tree")).expect("drop");
    }
    assert_verified(&engine);
    let stats = engine.stats();
    let reserved = (0..stats.pages).map(PageId).filter(|page| is_reserved_page(*page)).count();
    let used = stats.used_pages - reserved as u64;
    assert!(used <= 2, "{used} pages in use for a catalog of no trees");
}

#[test]
fn bulk_loaded_trees_hold_their_input_and_take_changes() {
    let modes = modes(&options(64));
    for (i, keys) in ALL_KEYS.into_iter().enumerate() {
        for (j, (records, large_every)) in
            [(0, 0), (1, 0), (300, 10), (6000, 200)].into_iter().enumerate()
        {
            let seed = 800 + i as u64;
            let options = modes[(i + j) % modes.len()].clone();
            println!("seed {seed}, {keys:?}, {records} records, {options:?}");
            let engine = Device::memory().open(options).expect("open");
            let tree = engine.tree("tree").expect("tree");
            let plan = Plan { large_every, large: 30_000, ..plan(keys, 9000, 1) };
            let mut client = Client::new(plan, seed);
            client.imagine(records);
            let session = engine.session().expect("session");
            let count = session.bulk_load(&tree, &client.model).expect("bulk load");
            assert_eq!(count, client.model.len() as u64);
            client.check_all(&session, &tree);
            drop(session);
            assert_verified(&engine);
            let session = engine.session().expect("session");
            for _ in 0..8000 * rounds() {
                client.step(&session, &tree);
            }
            client.check_all(&session, &tree);
            drop(session);
            assert_verified(&engine);
        }
    }
}

#[test]
fn writers_that_meet_at_one_leaf_lose_no_change() {
    for options in modes(&options(256)) {
        writers_meet_at_one_leaf(options);
    }
}

fn writers_meet_at_one_leaf(options: Options) {
    const KEYS: u64 = 16;
    println!("{options:?}");
    let engine = Device::memory().open(options).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    for key in 0..KEYS {
        session.put(&tree, &key.to_be_bytes(), &0u64.to_le_bytes()).expect("put");
    }
    let started = Instant::now();
    let mut done = [0u64; KEYS as usize];
    let mut split = false;
    // Until it happened: writers must meet for it, which on a busy machine they may hardly do. That
    // a leaf is split where they do is shown by a test of the tree.
    while !split && started.elapsed() < Duration::from_secs(30) {
        let counts = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|thread| {
                    let (engine, tree) = (&engine, &tree);
                    scope.spawn(move || {
                        let session = engine.session().expect("session");
                        let mut random = SmallRng::seed_from_u64(900 + thread);
                        let mut done = [0u64; KEYS as usize];
                        for _ in 0..100_000 {
                            let key = random.random_range(0..KEYS);
                            let add = |value: &mut [u8]| {
                                let old = u64::from_le_bytes(value.try_into().expect("8 bytes"));
                                value.copy_from_slice(&(old + 1).to_le_bytes());
                            };
                            assert!(session.modify(tree, &key.to_be_bytes(), add).expect("modify"));
                            done[key as usize] += 1;
                        }
                        done
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("thread")).collect::<Vec<_>>()
        });
        for count in counts {
            done.iter_mut().zip(count).for_each(|(sum, count)| *sum += count);
        }
        for (key, count) in (0..KEYS).zip(done) {
            let value = session.get(&tree, &key.to_be_bytes()).expect("get").expect("it exists");
            assert_eq!(value, count.to_le_bytes(), "key {key} lost changes");
        }
        split = engine.stats().contention_splits > 0;
    }
    let stats = engine.stats();
    println!("{:?}, {stats:?}", started.elapsed());
    let met = stats.restarts * 100 >= done.iter().sum::<u64>();
    assert!(split || !met, "four writers met at one leaf for 30 s and no contention split");
    drop(session);
    assert_verified(&engine);
    let depth = engine.tree_stats().expect("sizes")[0].depth;
    assert!(!split || depth == 2, "a leaf that was split has a parent, at depth {depth}");
}

#[test]
fn removing_everything_gives_the_pages_back() {
    let modes = modes(&options(64));
    for (i, keys) in ALL_KEYS.into_iter().enumerate() {
        for order in 0..5 {
            let seed = 1000 + i as u64 * 5 + order;
            let options = modes[(i + order as usize) % modes.len()].clone();
            println!("seed {seed}, {keys:?}, {options:?}");
            let engine = Device::memory().open(options).expect("open");
            let tree = engine.tree("tree").expect("tree");
            let mut random = SmallRng::seed_from_u64(seed);
            let plan = Plan { large_every: 300, large: 100_000, ..plan(keys, 9000, 1) };
            let mut client = Client::new(plan, seed);
            client.imagine(6000);
            let before = engine.stats().used_pages;
            let session = engine.session().expect("session");
            for (key, value) in &client.model {
                session.insert(&tree, key, value).expect("insert");
            }
            assert!(engine.stats().used_pages > before + 50, "it takes room");
            let mut all: Vec<_> = client.model.keys().cloned().collect();
            match order {
                0 => {}
                1 => all.reverse(),
                _ => all.shuffle(&mut random),
            }
            for key in &all {
                assert!(session.remove(&tree, key).expect("remove"), "{key:02x?} was inserted");
            }
            assert_eq!(session.scan(&tree).expect("scan").count(), 0);
            drop(session);
            assert_verified(&engine);
            let after = engine.stats().used_pages;
            println!("{before} pages in use before, {after} after");
            // The root; and what two merges at a time may have left to each other.
            assert!(after <= before + 4, "{before} pages in use before, {after} after");
        }
    }
}
