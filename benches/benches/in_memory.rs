//! Performance bars in memory: point look-ups, batched look-ups and updates against
//! `std::collections::BTreeMap` with the same keys and values, alternating in one process.
//!
//! `cargo bench -p wattle-benches --bench in_memory -- [records=10000000] [rounds=5] [key=8|24]`

use std::{
    collections::BTreeMap,
    hint::black_box,
    time::{Duration, Instant},
};
use wattle::{Engine, IoKind, Options, Session, Tree};
use wattle_benches::{argument, median};
use wattle_workloads::{key::fnv1a, rng::Rng, zipf::Zipfian};

const VALUE: usize = 120;
const LOOKUPS: usize = 2_000_000;
const BATCH: usize = 32;

/// Key of record `i`: hashed, so that keys in order of time are scattered over the tree.
fn key<const K: usize>(i: u64) -> [u8; K] {
    let hash = fnv1a(i);
    let mut key = [0; K];
    if K == 8 {
        key.copy_from_slice(&hash.to_be_bytes());
    } else {
        let text = format!("user{hash:020}");
        key.copy_from_slice(text.as_bytes());
    }
    key
}

/// Look-ups per second of `body`, which does `LOOKUPS` of them.
fn rate(body: impl FnOnce()) -> f64 {
    let start = Instant::now();
    body();
    LOOKUPS as f64 / start.elapsed().as_secs_f64()
}

fn lookups<const K: usize>(session: &Session, tree: &Tree, keys: &[[u8; K]]) {
    let mut value = [0; VALUE];
    for key in keys {
        let found = session.get_with(tree, key, |bytes| value.copy_from_slice(bytes));
        assert!(found.expect("get").is_some());
        black_box(&value);
    }
}

fn batches<const K: usize>(session: &Session, tree: &Tree, keys: &[[u8; K]]) {
    let mut value = [0; VALUE];
    for keys in keys.chunks(BATCH) {
        session
            .multi_get(tree, keys, |_, bytes| {
                value.copy_from_slice(bytes.expect("found"));
                black_box(&value);
            })
            .expect("multi_get");
    }
}

/// Half reads, half in-place updates.
fn mixed<const K: usize>(session: &Session, tree: &Tree, keys: &[[u8; K]]) {
    let mut value = [7; VALUE];
    for (i, key) in keys.iter().enumerate() {
        if i % 2 == 0 {
            session.get_with(tree, key, |bytes| value.copy_from_slice(bytes)).expect("get");
        } else {
            assert!(session.update(tree, key, &value).expect("update"));
        }
        black_box(&value);
    }
}

fn run<const K: usize>(records: usize, rounds: usize) {
    println!("records {records}, key {K} B, value {VALUE} B, {rounds} alternating rounds, medians");
    let pool = (records * (K + VALUE + 40) * 3 / 2).max(64 << 20) as u64;
    let options = Options::default().log(false).io(IoKind::Memory).pool_bytes(pool);
    let engine = Engine::open("in memory", options).expect("open");
    let tree = engine.tree("bench").expect("tree");
    let mut map = BTreeMap::new();
    let start = Instant::now();
    {
        let session = engine.session().expect("session");
        for i in 0..records as u64 {
            let value = [i as u8; VALUE];
            session.insert(&tree, &key::<K>(i), &value).expect("insert");
        }
    }
    println!("loaded by inserts in {:.1?}", start.elapsed());
    for i in 0..records as u64 {
        map.insert(key::<K>(i), [i as u8; VALUE]);
    }
    let distributions: [(&str, Vec<u64>); 2] = [
        ("uniform", {
            let mut random = Rng::new(1, 1);
            (0..LOOKUPS).map(|_| random.below(records as u64)).collect()
        }),
        ("zipf 0.9", {
            let zipf = Zipfian::new(records as u64, 0.9);
            let mut rng = Rng::new(7, 0);
            (0..LOOKUPS).map(|_| fnv1a(zipf.next(&mut rng)) % records as u64).collect()
        }),
    ];
    for (name, numbers) in &distributions {
        let keys: Vec<[u8; K]> = numbers.iter().map(|i| key::<K>(*i)).collect();
        let mut rates: [Vec<f64>; 5] = Default::default();
        let session = engine.session().expect("session");
        lookups(&session, &tree, &keys);
        for _ in 0..rounds {
            rates[0].push(rate(|| {
                let mut value = [0; VALUE];
                for key in &keys {
                    value.copy_from_slice(map.get(key).expect("found"));
                    black_box(&value);
                }
            }));
            rates[1].push(rate(|| lookups(&session, &tree, &keys)));
            rates[2].push(rate(|| batches(&session, &tree, &keys)));
            rates[3].push(rate(|| mixed(&session, &tree, &keys)));
            rates[4].push(2.0 * two_threads(&engine, &tree, &keys));
        }
        let [map, get, batch, mixed, two] = rates.map(median);
        println!(
            "{name:9} BTreeMap {:5.2} M/s | get {:5.2} M/s = {:.2} x | multi_get({BATCH}) {:5.2} \
             M/s = {:.2} x | 50/50 {:5.2} M/s = {:.2} of get | 2 threads {:5.2} M/s = {:.2} x 1 \
             thread",
            map / 1e6,
            get / 1e6,
            get / map,
            batch / 1e6,
            batch / map,
            mixed / 1e6,
            mixed / get,
            two / 1e6,
            two / get,
        );
    }
}

/// Rate of one of two threads that both do all look-ups.
fn two_threads<const K: usize>(engine: &Engine, tree: &Tree, keys: &[[u8; K]]) -> f64 {
    let times: Vec<Duration> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let session = engine.session().expect("session");
                    let start = Instant::now();
                    lookups(&session, tree, keys);
                    start.elapsed()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("thread")).collect()
    });
    LOOKUPS as f64 / times.iter().max().expect("two").as_secs_f64()
}

fn main() {
    let (records, rounds) = (argument("records", 10_000_000), argument("rounds", 5));
    match argument("key", 8) {
        8 => run::<8>(records, rounds),
        24 => run::<24>(records, rounds),
        other => panic!("key must be 8 or 24, not {other}"),
    }
}
