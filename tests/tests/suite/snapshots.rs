//! Snapshots that threads share, and their ranges, which own what they need and are read from both
//! ends.

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};
use wattle::{Durability, Engine, Error, MIN_LOG_BYTES, Reads, Session, Snapshot, Tree};
use wattle_tests::harness::{Device, Watchdog, rounds, seed, small_pool};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn opened(frames: u64) -> (Engine, Tree) {
    let options = small_pool(frames).durability(Durability::None).log_bytes(MIN_LOG_BYTES);
    let engine = Device::memory().open(options).expect("open");
    let tree = engine.tree("tree").expect("tree");
    (engine, tree)
}

fn key(number: u32) -> Vec<u8> {
    format!("key-{number:04}").into_bytes()
}

fn change(session: &Session, tree: &Tree, model: &mut Map, random: &mut SmallRng) {
    for _ in 0..random.random_range(1..60) {
        let key = key(random.random_range(0..600));
        if random.random_bool(0.3) {
            let existed = session.remove(tree, &key).expect("remove");
            assert_eq!(existed, model.remove(&key).is_some());
            continue;
        }
        let len = match random.random_range(0..40) {
            0 => random.random_range(2_000..9_000),
            n => n * 8,
        };
        let value = vec![random.random(); len];
        session.put(tree, &key, &value).expect("put");
        model.insert(key, value);
    }
}

/// Compares everything that a snapshot can say with a map.
fn check(snapshot: &Snapshot, tree: &Tree, model: &Map, random: &mut SmallRng) {
    let owned = |record: Option<(&Vec<u8>, &Vec<u8>)>| record.map(|(k, v)| (k.clone(), v.clone()));
    assert_eq!(snapshot.first(tree).expect("first"), owned(model.first_key_value()));
    assert_eq!(snapshot.last(tree).expect("last"), owned(model.last_key_value()));
    let keys: Vec<_> = (0..10).map(|_| key(random.random_range(0..600))).collect();
    let expected: Vec<_> = keys.iter().map(|key| model.get(key).cloned()).collect();
    assert_eq!(snapshot.get_many(tree, &keys).expect("get"), expected);
    assert_eq!(snapshot.get(tree, &keys[0]).expect("get"), expected[0]);
    assert_eq!(snapshot.contains(tree, &keys[1]).expect("contains"), expected[1].is_some());
    // A range that is read from both ends in any order, and jumps.
    let (low, high) =
        (&keys[2].clone().min(keys[3].clone()), &keys[2].clone().max(keys[3].clone()));
    let mut range = snapshot.range(tree, low..high).expect("range");
    let (mut from, mut to) = (Bound::Included(low.clone()), Bound::Excluded(high.clone()));
    for _ in 0..80 {
        let within = match crosses(&from, &to) {
            true => Map::new(),
            false => model
                .range((from.clone(), to.clone()))
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect(),
        };
        match random.random_range(0..9) {
            0..4 => {
                let given = range.next().map(|entry| entry.expect("an entry"));
                assert_eq!(given, owned(within.first_key_value()));
                from = given.map_or(from, |(key, _)| Bound::Excluded(key));
            }
            4..7 => {
                let given = range.next_back().map(|entry| entry.expect("an entry"));
                assert_eq!(given, owned(within.last_key_value()));
                to = given.map_or(to, |(key, _)| Bound::Excluded(key));
            }
            7 => {
                let given = range.next_key().expect("a key").map(<[u8]>::to_vec);
                assert_eq!(given.as_ref(), within.keys().next());
                from = given.map_or(from, Bound::Excluded);
            }
            _ => {
                let to_key = key(random.random_range(0..600));
                range.seek(&to_key);
                from = Bound::Included(to_key.max(low.clone()));
            }
        }
    }
}

fn crosses(from: &Bound<Vec<u8>>, to: &Bound<Vec<u8>>) -> bool {
    match (from, to) {
        (Bound::Excluded(from), Bound::Excluded(to)) => from >= to,
        (Bound::Included(from), Bound::Excluded(to)) => from >= to,
        _ => false,
    }
}

#[test]
fn snapshots_stay_as_they_were_while_the_tree_changes() {
    let seed = seed();
    println!("seed {seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    for frames in [48, 400] {
        let (engine, tree) = opened(frames);
        let session = engine.session().expect("session");
        let mut model = Map::new();
        let mut kept: Vec<(Snapshot, Map)> = Vec::new();
        for round in 0..60 * rounds() {
            change(&session, &tree, &mut model, &mut random);
            let snapshot = if round % 2 == 0 { engine.snapshot() } else { session.snapshot() };
            kept.push((snapshot.expect("snapshot"), model.clone()));
            let at = random.random_range(0..kept.len());
            let (snapshot, map) = &kept[at];
            check(&snapshot.clone(), &tree, map, &mut random);
            if kept.len() > 4 {
                let (snapshot, map) = kept.swap_remove(at);
                let all = snapshot.scan(&tree).expect("scan");
                drop(snapshot);
                assert_eq!(all.map(|entry| entry.expect("an entry")).collect::<Map>(), map);
            }
        }
    }
}

/// Threads share one snapshot while writers keep the sum of all records the same.
#[test]
fn threads_that_share_a_snapshot_see_the_same_moment() {
    let _watchdog = Watchdog::start("shared snapshots", Duration::from_secs(60));
    let (engine, tree) = opened(96);
    let session = engine.session().expect("session");
    let (records, each) = (300_u32, 100_u64);
    for number in 0..records {
        session
            .put(&tree, &key(number), &[&each.to_be_bytes()[..], &[0; 60]].concat())
            .expect("put");
    }
    let over = AtomicBool::new(false);
    let number = |value: &[u8]| u64::from_be_bytes(value[..8].try_into().expect("8 bytes"));
    thread::scope(|scope| {
        let (engine, tree, over, number) = (&engine, &tree, &over, &number);
        let writer = scope.spawn(move || {
            let session = engine.session().expect("session");
            let mut random = SmallRng::seed_from_u64(7);
            while !over.load(Ordering::Relaxed) {
                let keys = [0; 2].map(|_| key(random.random_range(0..records)));
                session
                    .transact(|txn| {
                        for (key, sign) in keys.iter().zip([1_u64, u64::MAX]) {
                            let value = txn.get(tree, key)?.expect("a record");
                            let new = number(&value).wrapping_add(sign).to_be_bytes();
                            txn.put(tree, key, &[&new[..], &value[8..]].concat())?;
                        }
                        Ok(())
                    })
                    .expect("transact");
            }
        });
        for _ in 0..15 * rounds() {
            let snapshot = engine.snapshot().expect("snapshot");
            let sums: Vec<_> = (0..3)
                .map(|reader| {
                    let snapshot = snapshot.clone();
                    scope.spawn(move || {
                        let values: Vec<u64> = match reader {
                            0 => snapshot
                                .scan(tree)
                                .expect("scan")
                                .map(|entry| number(&entry.expect("an entry").1))
                                .collect(),
                            1 => snapshot
                                .scan(tree)
                                .expect("scan")
                                .rev()
                                .map(|entry| number(&entry.expect("an entry").1))
                                .rev()
                                .collect(),
                            _ => (0..records)
                                .map(|at| {
                                    let value = snapshot.get(tree, &key(at)).expect("get");
                                    number(&value.expect("a record"))
                                })
                                .collect(),
                        };
                        values
                    })
                })
                .map(|reader| reader.join().expect("no panic"))
                .collect();
            let sum = sums[0].iter().fold(0_u64, |sum, value| sum.wrapping_add(*value));
            assert_eq!(sum, u64::from(records) * each);
            let mut backwards = sums[1].clone();
            backwards.reverse();
            assert!(sums[0] == sums[2] && (sums[0] == sums[1] || sums[0] == backwards));
        }
        over.store(true, Ordering::Relaxed);
        writer.join().expect("no panic");
    });
}

#[test]
fn a_range_goes_to_another_thread_and_outlives_everything_but_the_engine() {
    let (engine, tree) = opened(64);
    let session = engine.session().expect("session");
    let records: Vec<_> = (0..2_000).map(|number| (key(number), [3; 40])).collect();
    session.put_many(&tree, &records).expect("put");
    let mut range = engine.snapshot().expect("snapshot").scan(&tree).expect("scan");
    assert_eq!(range.next().expect("a record").expect("an entry").0, key(0));
    let keys: Vec<_> = (0..2_000).map(key).collect();
    assert_eq!(session.remove_many(&tree, &keys).expect("remove"), 2_000);
    drop((session, tree));
    let engine = engine.close().expect_err("a snapshot is alive");
    assert!(
        matches!(engine.error(), Error::StillInUse(what) if what == "1 snapshot"),
        "{engine:?}"
    );
    let engine = engine.into_engine().expect("not closed");
    let rest = thread::spawn(move || {
        let backwards = range.by_ref().rev().take(10).count();
        backwards + range.count()
    });
    assert_eq!(rest.join().expect("no panic"), 1_999);
    engine.close().expect("nothing holds the engine");
}

#[test]
fn a_snapshot_that_is_too_old_says_so_in_every_reader() {
    let options = small_pool(1_500).durability(Durability::None).version_bytes(1 << 20);
    let engine = Device::memory().open(options).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    session.put(&tree, b"a", b"first").expect("put");
    let records: Vec<_> = (0..2_000).map(|number| (key(number), [1; 1_000])).collect();
    session.bulk_load(&engine.tree("versions").expect("tree"), records).expect("load");
    let versions = engine.tree("versions").expect("tree");
    let snapshot = engine.snapshot().expect("snapshot");
    // Readers, and a range, that have begun.
    assert_eq!(snapshot.get(&tree, b"a").expect("get").as_deref(), Some(&b"first"[..]));
    let mut range = snapshot.scan(&tree).expect("scan");
    let begun = Instant::now();
    session.put(&tree, b"a", b"second").expect("put");
    let mut numbers = (0..2_000).cycle();
    while snapshot.get(&tree, b"a").is_ok() {
        let number = numbers.next().expect("endless");
        session.put(&versions, &key(number), &[number as u8; 1_000]).expect("put");
        assert!(begun.elapsed() < Duration::from_secs(20), "it is never cancelled");
    }
    let too_old = |error: Option<Error>| matches!(error, Some(Error::SnapshotTooOld(_)));
    assert!(too_old(range.next_entry().err()) && too_old(snapshot.clone().get(&tree, b"a").err()));
    assert!(too_old(range.next().and_then(Result::err)) && range.next().is_none());
    let fresh = engine.snapshot().expect("snapshot");
    assert!(fresh.contains(&tree, b"a").expect("contains"));
}

#[test]
fn a_snapshot_of_durable_reads_has_the_commits_of_its_session() {
    let options = small_pool(128).log_bytes(MIN_LOG_BYTES).reads(Reads::Durable);
    let engine = Device::memory().open(options).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    let ticket = session.put_ticket(&tree, b"a", b"mine").expect("put");
    let own = session.snapshot().expect("snapshot");
    assert!(own.contains(&tree, b"a").expect("contains"));
    ticket.wait().expect("durable");
    assert!(engine.snapshot().expect("snapshot").contains(&tree, b"a").expect("contains"));
}

#[cfg(feature = "async")]
#[test]
fn readers_that_no_thread_uses_make_room_for_sessions() {
    let _watchdog = Watchdog::start("idle readers", Duration::from_secs(60));
    let (engine, tree) = opened(48);
    let session = engine.session().expect("session");
    // Each keeps a reader, as long as there is room.
    let snapshots: Vec<Snapshot> = (0..100)
        .map(|number| {
            session.put(&tree, b"a", &key(number)).expect("put");
            let snapshot = engine.snapshot().expect("snapshot");
            assert_eq!(snapshot.get(&tree, b"a").expect("get"), Some(key(number)));
            snapshot
        })
        .collect();
    let mut sessions = vec![session];
    let full = loop {
        match engine.session() {
            Ok(session) => sessions.push(session),
            Err(error) => break error,
        }
    };
    assert!(matches!(full, Error::Limit(_)), "{full}");
    assert!(sessions.len() > 1);
    // No reader is left, and none can begin.
    assert!(matches!(snapshots[0].get(&tree, b"a"), Err(Error::Limit(_))));
    drop(sessions.pop());
    for (number, snapshot) in (0..).zip(&snapshots) {
        assert_eq!(snapshot.get(&tree, b"a").expect("get"), Some(key(number)));
    }
    // A range is a reader that is used.
    let range = snapshots[0].scan(&tree).expect("scan");
    assert!(matches!(engine.session().err(), Some(Error::Limit(_))));
    drop(range);
    drop(engine.async_session().expect("the room of the range"));
    drop(engine.spawn(async |_| ()).expect("the same room"));
    wattle_tests::harness::eventually("the task has ended", || engine.session().is_ok());
}

#[test]
fn trees_of_other_engines_are_refused() {
    let ((engine, tree), (other, foreign)) = (opened(48), opened(48));
    let snapshot = engine.snapshot().expect("snapshot");
    assert!(matches!(snapshot.get(&foreign, b"a"), Err(Error::ForeignTree(_))));
    assert!(matches!(snapshot.scan(&foreign).err(), Some(Error::ForeignTree(_))));
    assert!(matches!(snapshot.get(&tree, &[0; 2_000]), Err(Error::KeyTooLong { .. })));
    drop(other);
}
