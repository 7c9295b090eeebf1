//! Removal of whole ranges: against a `BTreeMap`, beside snapshots, other writers and rollbacks.
//! Crashes in the middle are among those of the suite `crash`.

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};
use wattle::{
    Durability, Engine, Error, Isolation, KeyInterval, MIN_LOG_BYTES, Options, Session, Tree,
    TxnOptions,
};
use wattle_tests::harness::{
    Device, Watchdog, assert_verified, eventually, rounds, seed, small_pool,
};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

const KEYS: u32 = 3_000;

fn key(number: u32) -> Vec<u8> {
    format!("key-{number:05}").into_bytes()
}

fn options(frames: u64) -> Options {
    small_pool(frames).durability(Durability::None).log_bytes(MIN_LOG_BYTES)
}

fn opened(frames: u64) -> (Engine, Tree) {
    let engine = Device::memory().open(options(frames)).expect("open");
    let tree = engine.tree("tree").expect("tree");
    (engine, tree)
}

fn fill(session: &Session, tree: &Tree, model: &mut Map, random: &mut SmallRng) {
    let count = random.random_range(1..1_200);
    let first = random.random_range(0..KEYS);
    let records: Vec<_> = (first..first + count)
        .map(|number| {
            let len = match random.random_range(0..150) {
                0 => random.random_range(2_000..9_000),
                n => n,
            };
            (key(number % KEYS), vec![random.random::<u8>(); len])
        })
        .collect();
    session.put_many(tree, &records).expect("put");
    model.extend(records);
}

fn bounds(random: &mut SmallRng) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let mut bound = || {
        let key = key(random.random_range(0..KEYS));
        match random.random_range(0..9) {
            0 => Bound::Unbounded,
            1..5 => Bound::Included(key),
            _ => Bound::Excluded(key),
        }
    };
    (bound(), bound())
}

/// The effect of a loop; gives how many records there were.
fn remove(model: &mut Map, range: &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> u64 {
    let before = model.len();
    let (low, high) = range.key_bounds();
    let within = |key: &[u8]| {
        let above = match low {
            Bound::Included(low) => key >= low,
            Bound::Excluded(low) => key > low,
            Bound::Unbounded => true,
        };
        above
            && match high {
                Bound::Included(high) => key <= high,
                Bound::Excluded(high) => key < high,
                Bound::Unbounded => true,
            }
    };
    model.retain(|key, _| !within(key));
    (before - model.len()) as u64
}

fn contents(range: impl Iterator<Item = wattle::Result<(Vec<u8>, Vec<u8>)>>) -> Map {
    range.map(|entry| entry.expect("an entry")).collect()
}

#[test]
fn a_range_is_removed_as_from_a_map_and_snapshots_still_see_it() {
    let seed = seed();
    println!("seed {seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    // In memory, and ten times larger than the pool.
    for frames in [600, 48] {
        let (engine, tree) = opened(frames);
        let session = engine.session().expect("session");
        let mut model = Map::new();
        for _ in 0..30 * rounds() {
            fill(&session, &tree, &mut model, &mut random);
            let (before, range) = (model.clone(), bounds(&mut random));
            let snapshot = engine.snapshot().expect("snapshot");
            let mut after = model.clone();
            let expected = remove(&mut after, &range);
            let keeps = match random.random_range(0..4) {
                0 => {
                    let removed = session.delete_range(&tree, range).expect("delete");
                    assert_eq!(removed, expected);
                    true
                }
                serializable => {
                    let isolation = match serializable {
                        1 => Isolation::Serializable,
                        _ => Isolation::Snapshot,
                    };
                    let options = TxnOptions { isolation, ..TxnOptions::default() };
                    let mut txn = session.begin_with(options).expect("begin");
                    txn.put(&tree, b"own", b"of the transaction").expect("put");
                    let savepoint = txn.savepoint();
                    assert_eq!(
                        txn.delete_range(&tree, &range).expect("delete"),
                        expected + u64::from(range.1 == Bound::Unbounded && low_is_below(&range.0))
                    );
                    if random.random_bool(0.3) {
                        // Records that were removed come back, and go again.
                        txn.rollback_to(&savepoint).expect("roll back");
                        txn.delete_range(&tree, &range).expect("delete again");
                    }
                    txn.remove(&tree, b"own").expect("remove");
                    assert_eq!(contents(txn.scan(&tree).expect("scan")), after);
                    let keeps = random.random_bool(0.6);
                    match keeps {
                        true => txn.commit().expect("commit"),
                        false => txn.abort().expect("abort"),
                    }
                    keeps
                }
            };
            if keeps {
                model = after;
            }
            assert_eq!(contents(session.scan(&tree).expect("scan")), model);
            assert_eq!(contents(snapshot.scan(&tree).expect("scan")), before);
        }
        assert_eq!(session.clear(&tree).expect("clear"), model.len() as u64);
        assert_eq!(session.first(&tree).expect("first"), None);
        assert_verified(&engine);
    }
}

/// Whether the record "own" lies above a low bound.
fn low_is_below(low: &Bound<Vec<u8>>) -> bool {
    match low {
        Bound::Included(low) => low.as_slice() <= &b"own"[..],
        Bound::Excluded(low) => low.as_slice() < &b"own"[..],
        Bound::Unbounded => true,
    }
}

#[test]
fn the_first_committer_wins_and_what_was_added_meanwhile_stays() {
    let (engine, tree) = opened(256);
    let session = engine.session().expect("session");
    let value = |session: &Session, number| session.get(&tree, &key(number)).expect("get");
    for number in 0..500 {
        session.put(&tree, &key(number), b"old").expect("put");
    }
    // A record of the range was changed after the snapshot.
    let mut txn = engine.begin().expect("begin");
    session.put(&tree, &key(250), b"new").expect("put");
    session.put(&tree, b"key-00100 and more", b"added").expect("put");
    let refused = txn.delete_range(&tree, ..);
    assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    let again = txn.delete_range(&tree, ..);
    assert!(matches!(again, Err(Error::MustAbort(_))), "{again:?}");
    txn.abort().expect("abort");
    assert_eq!(session.scan(&tree).expect("scan").count(), 501);
    // Or is held by a transaction that has not ended.
    let mut other = engine.begin().expect("begin");
    other.remove(&tree, &key(10)).expect("remove");
    let refused = session.delete_range(&tree, ..);
    assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    other.abort().expect("abort");
    // The other way round: the records of the range belong to the remover until it ends.
    let mut txn = engine.begin().expect("begin");
    session.put(&tree, b"key-00100 and yet more", b"added").expect("put");
    assert_eq!(txn.delete_range(&tree, key(100)..key(200)).expect("delete"), 101);
    let refused = session.put(&tree, &key(150), b"new");
    assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    let mut late = engine.begin().expect("begin");
    session.put(&tree, &key(50), b"new").expect("outside of the range");
    txn.commit().expect("commit");
    let refused = late.put(&tree, &key(150), b"late");
    assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    late.abort().expect("abort");
    assert_eq!(value(&session, 150), None);
    let added = session.get(&tree, b"key-00100 and yet more").expect("get");
    assert_eq!(added.as_deref(), Some(&b"added"[..]), "it was not in the snapshot");
    session.insert(&tree, &key(150), b"again").expect("insert");
    assert_verified(&engine);
}

#[test]
fn a_serializable_removal_sees_phantoms() {
    let (engine, tree) = opened(256);
    let session = engine.session().expect("session");
    session.put(&tree, b"a", b"").expect("put");
    let options = TxnOptions { isolation: Isolation::Serializable, ..TxnOptions::default() };
    let mut txn = engine.begin_with(options).expect("begin");
    assert_eq!(txn.delete_range(&tree, "a".."c").expect("delete"), 1);
    session.put(&tree, b"b", b"").expect("put");
    let refused = txn.commit();
    assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    assert_eq!(session.scan(&tree).expect("scan").count(), 2);
}

/// Writers move a token from range to range; a remover clears ranges that it then fills again.
#[test]
fn readers_see_a_range_whole_or_not_at_all() {
    let _watchdog = Watchdog::start("ranges", Duration::from_secs(60));
    let (engine, tree) = opened(96);
    let session = engine.session().expect("session");
    let (ranges, each) = (4_u8, 120_u32);
    let record = |range: u8, number: u32| ([&[range][..], &number.to_be_bytes()].concat(), [7; 60]);
    let fill = |session: &Session, range: u8| {
        let records: Vec<_> = (0..each).map(|number| record(range, number)).collect();
        session.put_many(&tree, &records).expect("put");
    };
    (0..ranges).for_each(|range| fill(&session, range));
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..2 {
            let (engine, tree, over) = (&engine, &tree, &over);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    for range in 0..ranges {
                        let snapshot = engine.snapshot().expect("snapshot");
                        let keys = snapshot.prefix(tree, &[range]).expect("prefix").keys();
                        let count = match thread {
                            0 => keys.filter(|key| key.is_ok()).count(),
                            _ => keys.rev().filter(|key| key.is_ok()).count(),
                        };
                        assert!(count == 0 || count == each as usize, "{count} records");
                    }
                }
            });
        }
        let writers: Vec<_> = (0..2_u8)
            .map(|writer| {
                let (engine, tree, fill) = (&engine, &tree, &fill);
                scope.spawn(move || {
                    let session = engine.session().expect("session");
                    for round in 0..25 * rounds() {
                        let range = writer * 2 + (round % 2) as u8;
                        let removed = session.delete_range(tree, [range]..[range + 1]);
                        assert_eq!(removed.expect("delete"), u64::from(each));
                        fill(&session, range);
                    }
                })
            })
            .collect();
        let ends: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        over.store(true, Ordering::Relaxed);
        ends.into_iter().for_each(|end| end.expect("no panic"));
    });
    assert_eq!(session.clear(&tree).expect("clear"), u64::from(each) * u64::from(ranges));
    assert_verified(&engine);
}

#[test]
fn the_space_of_a_range_is_used_again() {
    let (engine, tree) = opened(256);
    let session = engine.session().expect("session");
    let records: Vec<_> = (0..4_000).map(|number| (key(number), [1_u8; 200])).collect();
    let mut full = 0;
    for round in 0..4 {
        for records in records.chunks(500) {
            session.put_many(&tree, records).expect("put");
        }
        let used = engine.stats().used_pages;
        if round == 0 {
            full = used;
        }
        // The pages of the last round were there for this one.
        assert!(used <= full + full / 4, "{used} pages in round {round}, {full} in the first");
        session.clear(&tree).expect("clear");
        eventually("its pages are freed", || engine.stats().used_pages < full / 4);
    }
}

/// Prints the times; `WATTLE_RECORDS` is the number of records, 200,000 by default.
#[test]
#[ignore = "a measurement"]
fn how_long_a_range_takes_key_by_key_and_at_once() {
    let records = std::env::var("WATTLE_RECORDS").ok().and_then(|records| records.parse().ok());
    let records: u32 = records.unwrap_or(200_000);
    let directory = tempfile::tempdir().expect("a directory");
    let options = Options::default().pool_bytes(1 << 30).durability(Durability::None);
    let engine = Engine::open(directory.path().join("store"), options).expect("open");
    let session = engine.session().expect("session");
    let all = || (0..records).map(|number| (u64::from(number).to_be_bytes(), [7_u8; 100]));
    type Removal = fn(&Session, &Tree) -> u64;
    let ways: [(&str, Removal); 4] = [
        ("a transaction for each key", |session, tree| {
            let keys = session.scan(tree).expect("scan").keys();
            let removed = keys.map(|key| session.remove(tree, &key.expect("a key")));
            removed.filter(|removed| matches!(removed, Ok(true))).count() as u64
        }),
        ("remove in one transaction", |session, tree| {
            let mut txn = session.begin().expect("begin");
            let keys = session.scan(tree).expect("scan").keys();
            let keys: Vec<_> = keys.map(|key| key.expect("a key")).collect();
            let removed = keys.iter().filter(|key| txn.remove(tree, key).expect("remove")).count();
            txn.commit().expect("commit");
            removed as u64
        }),
        ("remove_many", |session, tree| {
            let keys = session.scan(tree).expect("scan").keys();
            let keys: Vec<_> = keys.map(|key| key.expect("a key")).collect();
            session.remove_many(tree, &keys).expect("remove") as u64
        }),
        ("clear", |session, tree| session.clear(tree).expect("clear")),
    ];
    for (number, (name, way)) in ways.into_iter().enumerate() {
        let tree = engine.tree(&format!("tree {number}")).expect("tree");
        session.bulk_load(&tree, all()).expect("load");
        let (used, begun) = (engine.stats().used_pages, Instant::now());
        assert_eq!(way(&session, &tree), u64::from(records));
        let took = begun.elapsed();
        let least = used - u64::from(records) / 40;
        eventually("its pages are freed", || engine.stats().used_pages < least);
        println!(
            "{name}: {took:.2?}, {:.0} ns a record; its pages were free {:.2?} later",
            took.as_nanos() as f64 / f64::from(records),
            begun.elapsed() - took,
        );
    }
}
