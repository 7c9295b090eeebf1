//! Ranges of blocking and asynchronous sessions and transactions against a `BTreeMap`: the same
//! bounds through each of them, in both directions, left in the middle, in a pool smaller than the
//! data. `WATTLE_ROUNDS` multiplies the length.

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::{
    collections::BTreeMap,
    future::Future,
    ops::Bound,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};
use wattle::{
    AsyncRange, AsyncSession, Durability, Error, IoKind, Isolation, MIN_LOG_BYTES, Range, Session,
    Tree, TxnOptions,
};
use wattle_buffer::io::{Fault, FaultPlan, Op, SimStorage};
use wattle_tests::harness::{Device, assert_verified, rounds, seed, small_pool};

const KEYS: u32 = 4_000;

type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);
type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn key(number: u32) -> Vec<u8> {
    format!("key-{number:06}").into_bytes()
}

/// Two bounds that a `BTreeMap` takes: the low one is below the high one.
fn bounds(random: &mut SmallRng) -> Bounds {
    let (a, b) = (random.random_range(0..KEYS), random.random_range(0..KEYS));
    let (low, high) = (key(a.min(b)), key(a.max(b) + 1));
    let low = match random.random_range(0..4) {
        0 => Bound::Unbounded,
        1 => Bound::Excluded(low),
        _ => Bound::Included(low),
    };
    let high = match random.random_range(0..4) {
        0 => Bound::Unbounded,
        1 => Bound::Excluded(high),
        _ => Bound::Included(high),
    };
    (low, high)
}

fn borrowed((low, high): &Bounds) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice))
}

fn read(mut range: Range<'_>, wanted: usize) -> Entries {
    let mut seen = Vec::new();
    while seen.len() < wanted
        && let Some((key, value)) = range.next_entry().expect("an entry")
    {
        seen.push((key.to_vec(), value.to_vec()));
    }
    seen
}

async fn read_async(mut range: AsyncRange<'_>, wanted: usize) -> Entries {
    let mut seen = Vec::new();
    while seen.len() < wanted
        && let Some((key, value)) = range.next_entry().await.expect("an entry")
    {
        seen.push((key.to_vec(), value.to_vec()));
    }
    seen
}

/// One range through all four kinds of callers.
async fn compare(
    session: &Session,
    tasks: &AsyncSession,
    tree: &Tree,
    model: &BTreeMap<Vec<u8>, Vec<u8>>,
    random: &mut SmallRng,
) {
    let bounds = bounds(random);
    let is_reverse = random.random_bool(0.5);
    let wanted = if random.random_bool(0.5) { random.random_range(1..60) } else { usize::MAX };
    let pair = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
    let range = model.range(bounds.clone()).map(pair);
    let expected: Entries = match is_reverse {
        true => range.rev().take(wanted).collect(),
        false => range.take(wanted).collect(),
    };
    let what = format!("{bounds:?}, reverse: {is_reverse}, at most {wanted}");

    let range = session.range(tree, borrowed(&bounds)).expect("a range");
    let range = if is_reverse { range.rev() } else { range };
    assert!(read(range, wanted) == expected, "session: {what}");

    let txn = session.begin().expect("a transaction");
    let range = txn.range(tree, borrowed(&bounds)).expect("a range");
    let range = if is_reverse { range.rev() } else { range };
    assert!(read(range, wanted) == expected, "transaction: {what}");
    drop(txn);

    let range = tasks.range(tree, borrowed(&bounds)).await.expect("a range");
    let range = if is_reverse { range.rev() } else { range };
    assert!(read_async(range, wanted).await == expected, "asynchronous session: {what}");

    let txn = tasks.begin().expect("a transaction");
    let range = txn.range(tree, borrowed(&bounds)).expect("a range");
    let range = if is_reverse { range.rev() } else { range };
    assert!(read_async(range, wanted).await == expected, "asynchronous transaction: {what}");
    drop(txn);

    let prefix = &key(random.random_range(0..KEYS))[..8];
    let of_prefix = |key: &[u8]| key.starts_with(prefix);
    let expected: Entries = model.iter().filter(|(key, _)| of_prefix(key)).map(pair).collect();
    let range = tasks.prefix(tree, prefix).await.expect("a range");
    assert!(read_async(range, usize::MAX).await == expected, "prefix {prefix:?}");

    let any = key(random.random_range(0..KEYS));
    assert_eq!(tasks.contains(tree, &any).await.expect("contains"), model.contains_key(&any));
}

#[test]
fn all_kinds_of_ranges_agree_with_a_map() {
    let seed = seed();
    println!("seed {seed}");
    let device = Device::memory();
    let engine = device
        .open(small_pool(200).durability(Durability::None).log_bytes(MIN_LOG_BYTES))
        .expect("open");
    let mut random = SmallRng::seed_from_u64(seed);
    let tree = engine.tree("ranges").expect("a tree");
    let mut model = BTreeMap::new();
    wattle::run(8, async {
        let session = engine.session().expect("a session");
        let tasks = engine.async_session().expect("an asynchronous session");
        let sorted: Vec<_> = (0..KEYS).step_by(3).map(|i| (key(i), vec![i as u8; 40])).collect();
        assert_eq!(
            tasks.bulk_load(&tree, sorted.iter().cloned()).expect("a load"),
            sorted.len() as u64
        );
        model.extend(sorted);
        for _ in 0..60 * rounds() {
            for _ in 0..40 {
                let key = key(random.random_range(0..KEYS));
                match random.random_range(0..5) {
                    0 => {
                        let found = tasks.remove(&tree, &key).await.expect("a removal");
                        assert_eq!(found, model.remove(&key).is_some());
                    }
                    kind => {
                        let large = kind == 1 && random.random_bool(0.1);
                        let len = random.random_range(0..if large { 9_000 } else { 300 });
                        let value = vec![random.random::<u8>(); len];
                        tasks.put(&tree, &key, &value).await.expect("a put");
                        model.insert(key, value);
                    }
                }
            }
            compare(&session, &tasks, &tree, &model, &mut random).await;
        }
    })
    .expect("a runtime");
    assert_verified(&engine);
    engine.close().expect("close");
}

/// A serializable transaction that reads a part of a range conflicts with an insert into that part,
/// and with no insert into the rest.
#[test]
fn a_range_of_a_task_counts_as_read_as_far_as_it_came() {
    let device = Device::memory();
    let engine = device.open(small_pool(200)).expect("open");
    let tree = engine.tree("ranges").expect("a tree");
    wattle::run(8, async {
        let tasks = engine.async_session().expect("an asynchronous session");
        for number in (0..100).step_by(2) {
            tasks.put(&tree, &key(number), b"").await.expect("a put");
        }
        let options = TxnOptions { isolation: Isolation::Serializable, ..TxnOptions::default() };
        for (is_reverse, inserted, is_conflict) in
            [(false, 3, true), (false, 71, false), (true, 71, false), (true, 93, true)]
        {
            let mut txn = tasks.begin_with(options).expect("a transaction");
            let range = txn.range(&tree, ..).expect("a range");
            let range = if is_reverse { range.rev() } else { range };
            assert_eq!(read_async(range, 5).await.len(), 5);
            tasks.put(&tree, &key(inserted), b"").await.expect("a put");
            txn.put(&tree, b"result", b"").await.expect("a put");
            let outcome = txn.commit().await;
            assert_eq!(matches!(outcome, Err(Error::Conflict(_))), is_conflict, "{outcome:?}");
            tasks.remove(&tree, &key(inserted)).await.expect("a removal");
            tasks.remove(&tree, b"result").await.expect("a removal");
        }
    })
    .expect("a runtime");
    engine.close().expect("close");
}

/// Large values of a tree that does not fit into the pool.
const LARGE: u32 = 40;

fn fill_large(session: &Session, tree: &Tree) {
    for number in 0..LARGE {
        // Every third value is small.
        let len = if number % 3 == 0 { 10 } else { 20_000 };
        session.put(tree, &key(number), &vec![number as u8; len]).expect("put");
    }
}

fn assert_all_large(seen: &[Vec<u8>]) {
    let all: Vec<_> = (0..LARGE).map(key).collect();
    assert_eq!(seen, all, "the range skipped or repeated records");
}

#[test]
fn a_range_that_failed_at_a_large_value_goes_on_at_that_record() {
    let mut failures = 0;
    for n in 1..80 {
        let storage = Arc::new(SimStorage::new(FaultPlan::new(n)));
        let engine = Device::sim(&storage).open(small_pool(64)).expect("open");
        let (tree, session) = (engine.tree("t").expect("tree"), engine.session().expect("session"));
        fill_large(&session, &tree);
        engine.checkpoint().expect("checkpoint");
        let mut range = session.scan(&tree).expect("scan");
        let (mut seen, mut failed) = (Vec::new(), 0);
        storage.set_plan(FaultPlan::new(n).nth(
            Op::Read,
            n,
            Fault::Error(std::io::ErrorKind::Other),
        ));
        loop {
            match range.next_entry() {
                Ok(Some((key, value))) => {
                    assert!(value.iter().all(|byte| *byte == value[0]));
                    seen.push(key.to_vec());
                }
                Ok(None) => break,
                Err(_) => failed += 1,
            }
            assert!(failed <= 1, "one read fails");
        }
        assert_all_large(&seen);
        failures += failed;
    }
    assert!(failures > 10, "{failures} of the reads that failed were needed at once");
}

#[test]
fn a_range_whose_future_is_dropped_goes_on_at_the_same_record() {
    let seed = seed();
    let mut random = SmallRng::seed_from_u64(seed);
    let directory = tempfile::tempdir().expect("a directory");
    let device = Device::files(IoKind::Threads, directory.path());
    let engine = device.open(small_pool(64)).expect("open");
    let tree = engine.tree("t").expect("tree");
    fill_large(&engine.session().expect("session"), &tree);
    engine.checkpoint().expect("checkpoint");
    let mut dropped = 0;
    let seen = wattle::run(8, async {
        let session = engine.async_session().expect("session");
        let mut range = session.scan(&tree).await.expect("scan");
        let mut seen = Vec::new();
        loop {
            if random.random_bool(0.5) {
                let mut next = pin!(range.next_entry());
                match next.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Pending => dropped += 1,
                    Poll::Ready(entry) => match entry.expect("no read fails") {
                        Some((key, _)) => seen.push(key.to_vec()),
                        None => break,
                    },
                }
                continue;
            }
            match range.next_entry().await.expect("no read fails") {
                Some((key, _)) => seen.push(key.to_vec()),
                None => break,
            }
        }
        seen
    });
    assert_all_large(&seen.expect("a runtime"));
    assert!(dropped > 5, "seed {seed}: only {dropped} futures waited");
}
