//! Operations that read a record and then change it, those at the ends of a tree, and ranges of
//! keys alone: against a `BTreeMap`, and from several threads at once.

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    thread,
    time::{Duration, Instant},
};
use wattle::{CompareFailed, Durability, Engine, Error, MIN_LOG_BYTES, Session, Tree};
use wattle_tests::harness::{Device, Watchdog, assert_verified, rounds, seed, small_pool};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn opened(frames: u64) -> (Engine, Tree) {
    // Threads may lose the processor in the middle of a change.
    let options = small_pool(frames).durability(Durability::None).log_bytes(MIN_LOG_BYTES);
    let options = options.conflict_wait(Duration::from_secs(10));
    let engine = Device::memory().open(options).expect("open");
    let tree = engine.tree("tree").expect("tree");
    (engine, tree)
}

fn key(random: &mut SmallRng) -> Vec<u8> {
    format!("key-{:03}", random.random_range(0..400)).into_bytes()
}

/// Sometimes large, so that it is stored in chunks.
fn value(random: &mut SmallRng) -> Vec<u8> {
    let len = match random.random_range(0..25) {
        0 => random.random_range(2_000..9_000),
        n => n * 12,
    };
    vec![random.random(); len]
}

fn owned(record: Option<(&Vec<u8>, &Vec<u8>)>) -> Option<(Vec<u8>, Vec<u8>)> {
    record.map(|(key, value)| (key.clone(), value.clone()))
}

/// Calls the same method of a session or of a transaction.
macro_rules! either {
    ($session:expr, $txn:expr, $method:ident($($argument:expr),*)) => {
        match &mut $txn {
            Some(txn) => txn.$method($($argument),*),
            None => $session.$method($($argument),*),
        }
        .expect(stringify!($method))
    };
}

#[test]
fn every_operation_does_to_a_tree_what_it_does_to_a_map() {
    let seed = seed();
    println!("seed {seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let (engine, tree) = opened(48);
    let session = engine.session().expect("session");
    let mut model = Map::new();
    for _ in 0..250 * rounds() {
        let before = model.clone();
        let mut txn = random.random_bool(0.5).then(|| session.begin().expect("begin"));
        for _ in 0..random.random_range(1..8) {
            let (key, value) = (key(&mut random), value(&mut random));
            match random.random_range(0..8) {
                0 => {
                    assert_eq!(either!(session, txn, first(&tree)), owned(model.first_key_value()));
                    assert_eq!(either!(session, txn, last(&tree)), owned(model.last_key_value()));
                }
                1 => assert_eq!(either!(session, txn, pop_first(&tree)), model.pop_first()),
                2 => assert_eq!(either!(session, txn, pop_last(&tree)), model.pop_last()),
                3 => {
                    let current = model.get(&key).cloned();
                    let expected = match random.random_range(0..4) {
                        0 => None,
                        1 => Some(value.clone()),
                        _ => current.clone(),
                    };
                    let new = random.random_bool(0.8).then_some(&value[..]);
                    let outcome = either!(
                        session,
                        txn,
                        compare_and_swap(&tree, &key, expected.as_deref(), new)
                    );
                    if expected == current {
                        assert_eq!(outcome, Ok(()));
                        model.remove(&key);
                        model.extend(new.map(|new| (key, new.to_vec())));
                    } else {
                        assert_eq!(outcome, Err(CompareFailed { current }));
                    }
                }
                4 | 5 => {
                    let removes = random.random_bool(0.2);
                    let update = |old: Option<&[u8]>| {
                        (!removes).then(|| {
                            [old.unwrap_or_default(), &value[..9.min(value.len())]].concat()
                        })
                    };
                    let current = model.get(&key).cloned();
                    let old = either!(session, txn, fetch_update(&tree, &key, update));
                    assert_eq!(old, current);
                    model.remove(&key);
                    model.extend(update(old.as_deref()).map(|new| (key, new)));
                }
                6 => {
                    let keys: Vec<_> = (0..40).map(|_| self::key(&mut random)).collect();
                    let expected: Vec<_> = keys.iter().map(|key| model.get(key).cloned()).collect();
                    assert_eq!(either!(session, txn, get_many(&tree, &keys)), expected);
                }
                _ => {
                    either!(session, txn, put(&tree, &key, &value));
                    model.insert(key, value);
                }
            }
        }
        check_keys(&session, &tree, if txn.is_some() { &before } else { &model });
        if let Some(txn) = txn {
            if random.random_bool(0.3) {
                txn.abort().expect("abort");
                model = before;
            } else {
                txn.commit().expect("commit");
            }
        }
    }
    assert_verified(&engine);
}

/// Ranges of keys, in both directions and with all kinds of bounds.
fn check_keys(session: &Session, tree: &Tree, model: &Map) {
    let all: Vec<_> = model.keys().cloned().collect();
    let keys = session.scan(tree).expect("scan").keys();
    assert_eq!(keys.collect::<Result<Vec<_>, _>>().expect("keys"), all);
    let (low, high) = ("key-100", "key-200");
    let among = |from: Bound<&str>, to: Bound<&str>| {
        let (from, to) = (from.map(str::as_bytes), to.map(str::as_bytes));
        model.range::<[u8], _>((from, to)).count()
    };
    let count = |range: wattle::Result<wattle::Range<'_>>| {
        let (mut range, mut count) = (range.expect("range").rev().keys(), 0);
        while range.next_key().expect("a key").is_some() {
            count += 1;
        }
        count
    };
    let (from, to) = (Bound::Included(low), Bound::Excluded(high));
    assert_eq!(count(session.range(tree, ..)), all.len());
    assert_eq!(count(session.range(tree, low..)), among(from, Bound::Unbounded));
    assert_eq!(count(session.range(tree, low..high)), among(from, to));
    assert_eq!(count(session.range(tree, ..high)), among(Bound::Unbounded, to));
    assert_eq!(count(session.range(tree, low..=high)), among(from, Bound::Included(high)));
    let after = Bound::Excluded(low.to_string());
    let range = session.range(tree, (after, Bound::Unbounded));
    assert_eq!(count(range), among(Bound::Excluded(low), Bound::Unbounded));
    assert_eq!(count(session.range(tree, high..low)), 0);
}

#[test]
fn threads_that_take_records_from_both_ends_share_them_out() {
    let _watchdog = Watchdog::start("pops", Duration::from_secs(60));
    let (engine, tree) = opened(128);
    let session = engine.session().expect("session");
    let records = 400_u32;
    for number in 0..records {
        session.put(&tree, &number.to_be_bytes(), b"job").expect("put");
    }
    let taken: Vec<Vec<u32>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let (engine, tree) = (&engine, &tree);
                scope.spawn(move || {
                    let session = engine.session().expect("session");
                    let pop = || match thread % 2 {
                        0 => session.pop_first(tree).expect("pop"),
                        _ => session.pop_last(tree).expect("pop"),
                    };
                    let number = |(key, _): (Vec<u8>, Vec<u8>)| {
                        u32::from_be_bytes(key.try_into().expect("4 bytes"))
                    };
                    std::iter::from_fn(pop).map(number).collect()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    for (thread, taken) in taken.iter().enumerate() {
        let sorted =
            if thread % 2 == 0 { taken.is_sorted() } else { taken.iter().rev().is_sorted() };
        assert!(sorted, "thread {thread} took {taken:?}");
    }
    let count: usize = taken.iter().map(Vec::len).sum();
    let all: BTreeSet<u32> = taken.into_iter().flatten().collect();
    assert_eq!((count, all.len()), (records as usize, records as usize));
}

#[test]
fn no_swap_and_no_update_is_lost() {
    let _watchdog = Watchdog::start("swaps", Duration::from_secs(60));
    let (engine, tree) = opened(128);
    let (threads, each) = (4, 60);
    thread::scope(|scope| {
        for thread in 0..threads {
            let (engine, tree) = (&engine, &tree);
            scope.spawn(move || {
                let session = engine.session().expect("session");
                for _ in 0..each {
                    session
                        .fetch_update(tree, b"text", |text| {
                            Some([text.unwrap_or_default(), &[thread]].concat())
                        })
                        .expect("update");
                    let mut expected = session.get(tree, b"count").expect("get");
                    loop {
                        let count = expected.as_ref().map_or(0, |value| value.len());
                        let new = vec![1; count + 1];
                        let swapped = session.compare_and_swap(
                            tree,
                            b"count",
                            expected.as_deref(),
                            Some(&new),
                        );
                        match swapped.expect("swap") {
                            Ok(()) => break,
                            Err(CompareFailed { current }) => expected = current,
                        }
                    }
                }
            });
        }
    });
    let session = engine.session().expect("session");
    let text = session.get(&tree, b"text").expect("get").expect("a record");
    for thread in 0..threads {
        assert_eq!(text.iter().filter(|byte| **byte == thread).count(), each);
    }
    let count = session.get(&tree, b"count").expect("get").expect("a record");
    assert_eq!(count.len(), each * usize::from(threads));
}

#[test]
fn a_pop_waits_for_the_transaction_that_holds_the_record_no_longer_than_the_options_say() {
    let engine = Device::memory().open(small_pool(128)).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    session.put(&tree, b"a", b"1").expect("put");
    let mut other = engine.begin().expect("begin");
    other.put(&tree, b"a", b"2").expect("put");
    let begun = Instant::now();
    let popped = session.pop_first(&tree);
    assert!(matches!(popped, Err(Error::Conflict(_))), "{popped:?}");
    // The default wait is 10 ms, the stall timeout 10 s.
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
    other.commit().expect("commit");
    assert_eq!(session.pop_first(&tree).expect("pop"), Some((b"a".to_vec(), b"2".to_vec())));
    assert_eq!(session.pop_first(&tree).expect("pop"), None);
}
