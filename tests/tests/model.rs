//! Random operations against a `BTreeMap`, with pools of tens of frames and several threads, and
//! reopening in between. `WATTLE_ROUNDS` multiplies the length.

use std::sync::Arc;
use wattle::{Engine, IoKind, Options, Storage, io::MemoryStorage};
use wattle_buffer::MIN_POOL_BYTES;
use wattle_tests::model::{ALL_KEYS, Client, Keys, Plan};

const FRAME: u64 = 4096 + 128;

fn rounds() -> u64 {
    std::env::var("WATTLE_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

fn options(frames: u64) -> Options {
    Options::default().pool_bytes((frames * FRAME).max(MIN_POOL_BYTES)).write_concurrency(8)
}

fn assert_verified(engine: &Engine) {
    let report = engine.verify(&mut |_| {}).expect("verify");
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
}

/// Runs `clients` threads for `steps` operations each, in `lives` lives of the engine.
fn run(storage: Arc<dyn Storage>, options: Options, plan: Plan, steps: u64, lives: u64, seed: u64) {
    println!("seed {seed}, {plan:?}, {options:?}");
    let mut clients: Vec<_> =
        (0..plan.clients).map(|client| Client::new(Plan { client, ..plan }, seed)).collect();
    for life in 0..lives {
        let engine = Engine::open_on(storage.clone(), options.clone()).expect("open");
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

fn plan(keys: Keys, universe: u32, clients: u32) -> Plan {
    Plan { keys, universe, value: 300, large_every: 0, client: 0, clients }
}

#[test]
fn every_key_shape_in_a_tiny_pool_one_thread() {
    for (i, keys) in ALL_KEYS.into_iter().enumerate() {
        let storage = Arc::new(MemoryStorage::new());
        run(storage, options(48), plan(keys, 3000, 1), 40_000 * rounds(), 2, 100 + i as u64);
    }
}

#[test]
fn every_key_shape_in_a_tiny_pool_four_threads() {
    for (i, keys) in ALL_KEYS.into_iter().enumerate() {
        let storage = Arc::new(MemoryStorage::new());
        run(storage, options(64), plan(keys, 2000, 4), 15_000 * rounds(), 2, 200 + i as u64);
    }
}

#[test]
fn large_and_maximal_values_beside_small_ones() {
    for (clients, seed) in [(1, 300), (4, 301)] {
        let storage = Arc::new(MemoryStorage::new());
        let plan = Plan { value: 1900, large_every: 50, ..plan(Keys::Wild, 600, clients) };
        run(storage, options(96), plan, 4_000 * rounds(), 2, seed);
    }
}

#[test]
fn real_files_with_both_back_ends() {
    for (io, seed) in [(IoKind::Uring, 400), (IoKind::Threads, 401)] {
        let directory = tempfile::tempdir().expect("temporary directory");
        let file = directory.path().join("data");
        let storage = wattle::io::open(io, &file).expect("open storage");
        run(storage, options(128), plan(Keys::Random, 6000, 4), 5_000 * rounds(), 2, seed);
    }
}

#[test]
fn random_replacement_keeps_everything_too() {
    let storage = Arc::new(MemoryStorage::new());
    let options = options(48).policy("random");
    run(storage, options, plan(Keys::Random, 4000, 4), 15_000 * rounds(), 2, 500);
}
