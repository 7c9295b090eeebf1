//! The engine without the feature `async`: blocking sessions do on files all that they do with it.

#![cfg(not(feature = "async"))]

use std::time::{Duration, Instant};
use wattle::{Durability, Engine, Error, IoKind, Isolation, Options, Tree, TxnOptions};

const RECORDS: u32 = 20_000;
const REMOVED: u32 = 5_000;
const LARGE: &[u8] = b"large";

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

#[test]
fn a_back_end_that_the_build_lacks_is_refused_before_the_store_is_touched() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let error = Engine::open(&path, Options::default().io(IoKind::Uring)).unwrap_err();
    assert!(matches!(&error, Error::InvalidOption(what) if what.contains("`async`")), "{error}");
    assert!(!path.exists());
    let engine = Engine::open(&path, Options::default()).unwrap();
    assert_eq!(engine.back_end(), "threads");
}

/// Fills a tree that is larger than the pool, and removes a part of it.
fn fill(engine: &Engine, tree: &Tree) {
    let session = engine.session().unwrap();
    let mut newest = None;
    for number in 0..RECORDS {
        newest = Some(session.put_ticket(tree, &key(number), &[7; 100]).unwrap());
    }
    newest.unwrap().wait().unwrap();
    session.put(tree, LARGE, &vec![7; 100_000]).unwrap();
    let snapshot = engine.snapshot().unwrap();
    let serializable = TxnOptions { isolation: Isolation::Serializable, ..TxnOptions::default() };
    let mut txn = session.begin_with(serializable).unwrap();
    assert_eq!(txn.delete_range(tree, ..key(REMOVED)).unwrap(), u64::from(REMOVED));
    txn.commit().unwrap();
    let before = snapshot.range(tree, ..key(RECORDS)).unwrap().count();
    assert_eq!(before, RECORDS as usize);
    let stats = engine.stats();
    assert!(stats.pages_written > 0 && stats.pages_read > 0, "{stats:?}");
}

fn assert_filled(engine: &Engine) {
    let tree = engine.tree("tree").unwrap();
    let session = engine.session().unwrap();
    let kept = session.range(&tree, ..key(RECORDS)).unwrap().map(|record| record.unwrap());
    let expected = (REMOVED..RECORDS).map(|number| (key(number).to_vec(), vec![7; 100]));
    assert!(kept.eq(expected));
    assert_eq!(session.get(&tree, LARGE).unwrap().as_deref(), Some(&[7; 100_000][..]));
    let report = engine.verify(&mut |_| ()).unwrap();
    assert!(report.problems.is_empty(), "{report:?}");
}

#[test]
fn a_store_larger_than_its_pool_survives_a_crash_a_close_and_a_backup() {
    for io in [IoKind::Threads, IoKind::Buffered] {
        let directory = tempfile::tempdir().unwrap();
        let (path, backup) = (directory.path().join("store"), directory.path().join("backup"));
        let options = || {
            let pool = wattle::MIN_POOL_BYTES * 4;
            Options::default().io(io).pool_bytes(pool).durability(Durability::Group)
        };
        let engine = Engine::open(&path, options()).unwrap();
        let tree = engine.tree("tree").unwrap();
        fill(&engine, &tree);
        engine.backup(&backup).unwrap();
        // An uncommitted change, which recovery rolls back.
        let mut txn = engine.begin().unwrap();
        txn.put(&tree, &key(RECORDS - 1), b"lost").unwrap();
        engine.sync().unwrap();
        std::mem::forget(txn);
        drop(tree);
        engine.abandon().unwrap();

        let engine = Engine::open(&path, options()).unwrap();
        assert_filled(&engine);
        engine.close().unwrap();
        for path in [&path, &backup] {
            let engine = Engine::open(path, options()).unwrap();
            let began = Instant::now();
            while engine.stats().is_warming {
                assert!(began.elapsed() < Duration::from_secs(20), "the warm start does not end");
                std::thread::sleep(Duration::from_millis(2));
            }
            assert_filled(&engine);
            engine.close().unwrap();
        }
    }
}
