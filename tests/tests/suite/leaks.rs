//! Handles that are leaked (`std::mem::forget`): the engine stays correct, only their resources
//! stay in use. The suite `closing` has leaked transactions and sessions at the close of the
//! engine.

use std::{
    ops::{Bound, ControlFlow},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Waker},
};
use wattle::{
    Direction, Engine, Error, Isolation, Range, Session, Transaction, Tree, TxnOptions,
    io::{FaultPlan, SimStorage},
};
use wattle_tests::harness::{Device, assert_verified, small_pool};

const SERIALIZABLE: TxnOptions =
    TxnOptions { isolation: Isolation::Serializable, read_only: false, durability: None };

fn key(number: u32) -> Vec<u8> {
    format!("k{number:05}").into_bytes()
}

/// A tree with 2,000 records, and an empty one.
fn filled() -> (Engine, Tree, Tree) {
    let engine = Device::memory().open(small_pool(1000)).expect("open");
    let (tree, other) = (engine.tree("tree").expect("tree"), engine.tree("other").expect("tree"));
    let session = engine.session().expect("session");
    session.bulk_load(&tree, (0..2000).map(|n| (key(2 * n), [7; 50]))).expect("load");
    (engine, tree, other)
}

/// Makes a range of a transaction.
type Make = for<'t> fn(&'t Transaction<'_>, &'t Tree) -> wattle::Result<Range<'t>>;

/// Whether a serializable transaction that has read some records of a range, and leaked or dropped
/// it, commits after another one has inserted a record.
fn commits(make: Make, entries: usize, leak: bool, inserted: u32) -> bool {
    let (engine, tree, other) = filled();
    let session = engine.session().expect("session");
    let mut txn = session.begin_with(SERIALIZABLE).expect("begin");
    let mut range = make(&txn, &tree).expect("range");
    for _ in 0..entries {
        if range.next_entry().expect("entry").is_none() {
            break;
        }
    }
    match leak {
        true => std::mem::forget(range),
        false => drop(range),
    }
    txn.put(&other, b"count", b"what was read").expect("put");
    let mut writer = engine.begin_with(SERIALIZABLE).expect("begin");
    writer.insert(&tree, &key(inserted), b"phantom").expect("insert");
    writer.commit().expect("commit");
    let outcome = txn.commit();
    assert!(matches!(outcome, Ok(()) | Err(Error::Conflict(_))), "{outcome:?}");
    drop(session);
    engine.close().expect("close");
    outcome.is_ok()
}

#[test]
fn a_range_that_is_leaked_loses_no_serializable_reads() {
    let scan: Make = |txn, tree| txn.scan(tree);
    let back: Make = |txn, tree| Ok(txn.scan(tree)?.rev());
    let part: Make = |txn, tree| txn.range(tree, &b"k00100"[..]..&b"k00200"[..]);
    let prefix: Make = |txn, tree| txn.prefix(tree, b"k001");
    // (range, entries read, a key among them, one in the range after them, one outside of it)
    let cases = [
        (scan, 10, 3, Some(3001), None),
        (back, 10, 3991, Some(301), None),
        (part, 10, 105, Some(151), Some(99)),
        (prefix, 10, 105, Some(151), Some(201)),
        (scan, 1, 0, Some(1001), None),
        (scan, usize::MAX, 1001, None, None),
        (back, usize::MAX, 1001, None, None),
        (part, usize::MAX, 151, None, Some(201)),
    ];
    for (at, (make, entries, read, later, outside)) in cases.into_iter().enumerate() {
        for leak in [false, true] {
            // The record with an even number exists; its predecessor, which does not, is looked up.
            let read = if read == 0 { None } else { Some(read) };
            if let Some(read) = read {
                assert!(!commits(make, entries, leak, read), "case {at}, leaked: {leak}");
            }
            if let Some(outside) = outside {
                assert!(commits(make, entries, leak, outside), "case {at}: it was not read");
            }
        }
        if let Some(later) = later {
            assert!(commits(make, entries, false, later), "case {at}: it was not read");
            assert!(!commits(make, entries, true, later), "case {at}: it may have been read");
        }
        assert!(commits(make, 0, true, 1001), "case {at}: nothing was read");
    }
}

/// Polls a future a few times; leaks it if it is not ready then.
fn leak_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = Box::pin(future);
    for _ in 0..polls {
        let mut context = Context::from_waker(Waker::noop());
        if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
    }
    std::mem::forget(future);
    None
}

#[test]
fn a_scan_whose_future_is_leaked_loses_no_serializable_reads() {
    let mut leaked = 0;
    for polls in 1..30 {
        let storage = Arc::new(SimStorage::new(FaultPlan::new(3)));
        let engine = Device::sim(&storage).open(small_pool(512)).expect("open");
        let tree = engine.tree("tree").expect("tree");
        let other = engine.tree("other").expect("tree");
        let session = engine.session().expect("session");
        let records = (0..8_000).map(|n| (key(2 * n), [7; 1000]));
        session.bulk_load(&tree, records).expect("load");
        assert!(session.contains(&tree, &key(0)).expect("the first leaf is in memory"));
        let seen = AtomicUsize::new(0);
        wattle::run(8, async {
            let tasks = engine.async_session().expect("session");
            let mut txn = tasks.begin_with(SERIALIZABLE).expect("begin");
            let all = (Bound::Unbounded, Bound::Unbounded);
            let scan = txn.visit(&tree, all, Direction::Forward, |_, _| {
                seen.fetch_add(1, Relaxed);
                ControlFlow::Continue(())
            });
            if leak_after(polls, scan).is_some() || seen.load(Relaxed) < 2 {
                return;
            }
            leaked += 1;
            txn.put(&other, b"count", b"what was read").await.expect("put");
            // Into the leaf that was read first.
            session.insert(&tree, &key(1), b"phantom").expect("insert");
            let outcome = txn.commit().await;
            assert!(matches!(outcome, Err(Error::Conflict(_))), "{polls}: {outcome:?}");
        })
        .expect("run");
        drop((session, tree, other));
        engine.abandon().expect("abandon");
    }
    assert!(leaked > 0, "no scan was leaked in the middle");
}

#[test]
fn leaked_tickets_ranges_and_readers_are_in_nobodys_way() {
    let device = Device::memory();
    let engine = device.open(small_pool(300).version_bytes(1 << 20)).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let session: Session = engine.session().expect("session");
    for n in 0..100 {
        std::mem::forget(session.put_ticket(&tree, &key(n), &[1; 100]).expect("put"));
    }
    let mut txn = session.begin().expect("begin");
    txn.put(&tree, &key(100), &[1; 100]).expect("put");
    std::mem::forget(txn.commit_ticket().expect("commit"));
    // A snapshot of each stays open, until its versions would take too much memory.
    let mut range = session.scan(&tree).expect("scan");
    assert!(range.next_entry().expect("entry").is_some());
    std::mem::forget(range);
    let reader = session.begin_read().expect("begin");
    assert!(reader.contains(&tree, &key(5)).expect("get"));
    std::mem::forget(reader);
    for round in 0..200u32 {
        for n in 0..101 {
            session.put(&tree, &key(n), &[round as u8; 100]).expect("put");
        }
    }
    assert_eq!(session.scan(&tree).expect("scan").count(), 101);
    let stats = engine.stats();
    assert!(stats.version_bytes < 8 << 20, "{} bytes of versions", stats.version_bytes);
    drop(session);
    // A tree's handle that is leaked keeps the tree from being dropped.
    std::mem::forget(tree.clone());
    assert!(matches!(engine.drop_tree(tree), Err(Error::TreeInUse(_))));
    assert_verified(&engine);
    engine.close().expect("close");
    let engine = device.open(small_pool(300)).expect("open again");
    let tree = engine.tree("tree").expect("tree");
    assert_eq!(engine.session().expect("session").scan(&tree).expect("scan").count(), 101);
}
