//! Reads and writes of a store that is all in memory: scans, short ranges and large values.
//!
//! `cargo bench -p wattle-benches --bench resident -- [part=scan,range,large] [records=100000]
//! [rounds=5] [threads=2] [seconds=0.3] [dir=PATH]`
//!
//! | row | value |
//! |---|---|
//! | scan | records per second of a scan of all records, `Session::visit` |
//! | scan, all bytes | the same; the closure reads each byte of the value |
//! | range | ranges of 100 records at random places per second, `Range::next_entry`, all threads |
//! | range, all bytes | the same; each byte of the values is read |
//! | large get | look-ups of values of 10,000 bytes per second, `Session::get_with` |
//! | large get, all bytes | the same; each byte is read |
//! | large load | puts of such values in key order, 100 a transaction: MB per second |
//! | large put | puts of such values over others per second, auto-committed |
//!
//! Records have 24 + 1000 bytes and were put in random order, so a leaf is 70 % full. Durability
//! `none`. With `dir=` the store is a file there, otherwise it is in memory. One figure for each
//! row is the median of `rounds`. To compare two builds, run their programs in turns.

use std::{
    hint::black_box,
    ops::{Bound::Unbounded, ControlFlow},
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use wattle::{Direction, Durability, Engine, IoKind, Options, Session, Tree};
use wattle_benches::{argument, median, text};
use wattle_workloads::{key::fnv1a, rng::Rng};

/// Bytes of a value.
const VALUE: usize = 1000;
/// Bytes of a large value.
const LARGE: usize = 10_000;
/// Records of a range.
const RANGE: usize = 100;
/// There are so many times fewer large values.
const FEWER: u64 = 25;
/// Large values of a transaction.
const BATCH: usize = 100;

type Key = [u8; 24];

/// Neighbouring numbers have keys in random places.
fn key(number: u64) -> Key {
    let text = format!("user{:020}", fnv1a(number));
    text.as_bytes().try_into().expect("24 bytes")
}

/// Reads some bytes of a value: all, or the first.
fn look(value: &[u8], all: bool) -> u64 {
    match all {
        true => {
            let (words, rest) = value.as_chunks::<8>();
            let sum = words.iter().fold(0_u64, |sum, word| sum ^ u64::from_le_bytes(*word));
            rest.iter().fold(sum, |sum, byte| sum ^ u64::from(*byte))
        }
        false => u64::from(value[0]),
    }
}

/// Runs `operation` in `threads` sessions for the time of a row; how often it ran, per second.
fn timed(engine: &Engine, threads: usize, operation: impl Fn(&Session, &mut Rng) + Sync) -> f64 {
    let seconds: f64 = text("seconds", "0.3").parse().expect("seconds");
    let (ended, start) = (AtomicBool::new(false), Barrier::new(threads + 1));
    let work = |thread: u64| {
        let session = engine.session().expect("a session");
        let mut rng = Rng::new(17, thread);
        start.wait();
        let mut done = 0_u64;
        while !ended.load(Ordering::Relaxed) {
            operation(&session, &mut rng);
            done += 1;
        }
        done
    };
    std::thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> =
            (0..threads as u64).map(|thread| scope.spawn(move || work(thread))).collect();
        start.wait();
        let started = Instant::now();
        std::thread::sleep(Duration::from_secs_f64(seconds));
        ended.store(true, Ordering::Relaxed);
        let done: u64 = workers.into_iter().map(|worker| worker.join().expect("no panic")).sum();
        done as f64 / started.elapsed().as_secs_f64()
    })
}

fn scan(session: &Session, tree: &Tree, records: u64, all: bool) -> f64 {
    let (mut seen, mut sum, started) = (0, 0, Instant::now());
    session
        .visit(tree, (Unbounded, Unbounded), Direction::Forward, |key, value| {
            sum ^= u64::from(key[5]) ^ look(value, all);
            seen += 1;
            ControlFlow::Continue(())
        })
        .expect("a scan");
    black_box(sum);
    assert_eq!(seen, records);
    records as f64 / started.elapsed().as_secs_f64()
}

fn range(session: &Session, tree: &Tree, first: &Key, all: bool) {
    let range = session.range(tree, &first[..]..).expect("a range");
    let (mut range, mut sum) = (range.expect_records(RANGE), 0);
    let mut left = RANGE;
    while left > 0
        && let Some((key, value)) = range.next_entry().expect("an entry")
    {
        sum ^= u64::from(key[5]) ^ look(value, all);
        left -= 1;
    }
    black_box(sum);
}

/// Prints the median of the rounds of a row.
fn row(name: &str, measure: impl FnMut() -> f64) {
    let mut measure = measure;
    let rates = (0..argument("rounds", 5)).map(|_| measure()).collect();
    println!("{name:<22} {:>14.0}", median(rates));
}

/// A store, in `dir=` or in memory.
struct Store {
    engine: Engine,
    tree: Tree,
    _directory: Option<tempfile::TempDir>,
}

impl Store {
    fn open(pool: u64) -> Store {
        let options = Options::default().durability(Durability::None).pool_bytes(pool);
        let (engine, directory) = match text("dir", "").as_str() {
            "" => (Engine::open("in memory", options.io(IoKind::Memory)), None),
            place => {
                let directory = tempfile::tempdir_in(place).expect("a directory");
                (Engine::open(directory.path().join("store"), options), Some(directory))
            }
        };
        let engine = engine.expect("a store");
        let tree = engine.tree("records").expect("a tree");
        Store { engine, tree, _directory: directory }
    }
}

/// The rows of records of 1000 bytes.
fn records(records: u64, wants: impl Fn(&str) -> bool) {
    let store = Store::open((records * 2048).max(64 << 20));
    let (engine, tree) = (&store.engine, &store.tree);
    let session = engine.session().expect("a session");
    for number in 0..records {
        session.put(tree, &key(number), &[number as u8; VALUE]).expect("put");
    }
    engine.sync().expect("sync");
    scan(&session, tree, records, true);
    if wants("scan") {
        row("scan", || scan(&session, tree, records, false));
        row("scan, all bytes", || scan(&session, tree, records, true));
    }
    if wants("range") {
        for (name, all) in [("range", false), ("range, all bytes", true)] {
            row(name, || {
                timed(engine, argument("threads", 2), |session, rng| {
                    range(session, tree, &key(rng.next_u64() % records), all);
                })
            });
        }
    }
}

/// Loads large values in key order; MB per second.
fn load(session: &Session, tree: &Tree, keys: &[Key]) -> f64 {
    let started = Instant::now();
    for keys in keys.chunks(BATCH) {
        let records: Vec<_> = keys.iter().map(|key| (key, [5; LARGE])).collect();
        session.put_many(tree, &records).expect("put_many");
    }
    (keys.len() * LARGE) as f64 / 1e6 / started.elapsed().as_secs_f64()
}

/// The rows of large values.
fn large(records: u64) {
    let mut keys: Vec<_> = (0..records).map(key).collect();
    keys.sort_unstable();
    let pool = (records * LARGE as u64 * 8).max(256 << 20);
    row("large load, MB/s", || {
        let store = Store::open(pool);
        load(&store.engine.session().expect("a session"), &store.tree, &keys)
    });
    let store = Store::open(pool);
    let (engine, tree) = (&store.engine, &store.tree);
    load(&engine.session().expect("a session"), tree, &keys);
    engine.sync().expect("sync");
    for (name, all) in [("large get", false), ("large get, all bytes", true)] {
        row(name, || {
            timed(engine, 1, |session, rng| {
                let key = &keys[(rng.next_u64() % records) as usize];
                let found = session.get_with(tree, key, |value| look(value, all));
                black_box(found.expect("get").expect("a value"));
            })
        });
    }
    let mut value = vec![9_u8; LARGE];
    row("large put", || {
        let turn = value[0].wrapping_add(1);
        value.fill(turn);
        timed(engine, 1, |session, rng| {
            let key = &keys[(rng.next_u64() % records) as usize];
            session.put(tree, key, &value).expect("put");
        })
    });
}

fn main() {
    let part = text("part", "scan,range,large");
    let has = |name: &str| part.split(',').any(|part| part == name);
    let count = argument("records", 100_000) as u64;
    println!("row                       a second");
    if has("scan") || has("range") {
        records(count, has);
    }
    if has("large") {
        large(count / FEWER);
    }
}
