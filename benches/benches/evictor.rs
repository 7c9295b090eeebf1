//! Performance bar of the evictor: clean pages that one thread evicts in a second, `watt` against
//! `random`, alternating.
//!
//! `cargo bench -p wattle-benches --bench evictor -- [frames=262144] [rounds=5]`

use std::{sync::Arc, time::Instant};
use wattle::{Engine, IoKind, Options, Storage, io};
use wattle_benches::{argument, median};
use wattle_workloads::{key::fnv1a, rng::Rng, zipf::Zipfian};

/// Loads a data set of about `frames` leaves and gives its storage.
fn load(frames: usize) -> Arc<dyn Storage> {
    let storage = io::open(IoKind::Memory, "memory".as_ref()).expect("memory");
    let options = Options::default().log(false).pool_bytes(frames as u64 * 4224 * 2);
    let no_log = Arc::new(io::MemoryLog::default());
    let engine = Engine::open_on(storage.clone(), no_log, options).expect("open");
    let tree = engine.tree("bench").expect("tree");
    let session = engine.session().expect("session");
    let entries = (0..frames as u64 * 25).map(|i| (i.to_be_bytes(), [1u8; 120]));
    session.bulk_load(&tree, entries).expect("load");
    drop((session, tree));
    engine.close().expect("close");
    storage
}

/// Evictions per second over half of the pool, every frame of which is clean and hot.
fn rate(storage: &Arc<dyn Storage>, frames: usize, policy: &str) -> f64 {
    let pool = frames as u64 * 4224 * 2;
    let options = Options::default().log(false).pool_bytes(pool).policy(policy);
    let no_log = Arc::new(io::MemoryLog::default());
    let engine = Engine::open_on(storage.clone(), no_log, options).expect("open");
    let tree = engine.tree("bench").expect("tree");
    let session = engine.session().expect("session");
    let mut range = session.scan(&tree).expect("scan");
    while range.next_entry().expect("entry").is_some() {}
    // Pages of many different values: skewed accesses while epochs pass.
    let records = frames as u64 * 25;
    let zipf = Zipfian::new(records, 0.9);
    let mut rng = Rng::new(3, 3);
    for _ in 0..24 {
        engine.pool().evict_pages(frames / 8);
        for _ in 0..frames {
            let key = (fnv1a(zipf.next(&mut rng)) % records).to_be_bytes();
            assert!(session.contains(&tree, &key).expect("get"));
        }
    }
    let mut range = session.scan(&tree).expect("scan");
    while range.next_entry().expect("entry").is_some() {}
    let start = Instant::now();
    let evicted = engine.pool().evict_pages(frames / 2);
    let seconds = start.elapsed().as_secs_f64();
    assert!(evicted >= frames / 2, "only {evicted} pages could be evicted");
    evicted as f64 / seconds
}

fn main() {
    let (frames, rounds) = (argument("frames", 262_144), argument("rounds", 5));
    let storage = load(frames);
    let mut rates: [Vec<f64>; 2] = Default::default();
    for _ in 0..rounds {
        rates[0].push(rate(&storage, frames, "random"));
        rates[1].push(rate(&storage, frames, "watt"));
    }
    let [random, watt] = rates.map(median);
    println!(
        "evictions/s of one thread, clean pages, {frames} leaves, medians of {rounds}: random \
         {:.2} M, watt {:.2} M = {:.2} x",
        random / 1e6,
        watt / 1e6,
        watt / random
    );
}
