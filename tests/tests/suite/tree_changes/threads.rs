//! Threads that replace trees while others read and write them.

use super::options;
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};
use wattle::{Durability, Engine, Error, Session};
use wattle_tests::harness::{Device, Watchdog, assert_verified, rounds};

const RECORDS: u32 = 40;
/// Changes of a thread for each drop.
const CHANGES: u64 = 20;

/// Replaces the tree by one whose records all have the next number. Gives that.
fn replace(session: &Session, name: &str) -> Result<u64, Error> {
    let mut txn = session.begin()?;
    let old = txn.tree(name)?;
    let number = txn.get(&old, &0_u32.to_be_bytes())?.expect("the tree is never empty");
    let number = u64::from_le_bytes(number.try_into().expect("8 bytes")) + 1;
    txn.drop_tree(name)?;
    let new = txn.create_tree(name)?;
    for key in 0..RECORDS {
        txn.put(&new, &key.to_be_bytes(), &number.to_le_bytes())?;
    }
    txn.commit()?;
    Ok(number)
}

/// Reads the tree: all of its records have the same number, and none is missing.
fn read(session: &Session, name: &str) -> Result<u64, Error> {
    let txn = session.begin()?;
    let tree = txn.tree(name)?;
    let mut numbers = Vec::new();
    for record in txn.scan(&tree)? {
        numbers.push(u64::from_le_bytes(record?.1.try_into().expect("8 bytes")));
    }
    assert_eq!(numbers.len(), RECORDS as usize, "{numbers:?}");
    assert!(numbers.iter().all(|number| *number == numbers[0]), "{numbers:?}");
    Ok(numbers[0])
}

fn start(engine: &Engine) {
    let mut txn = engine.begin().expect("begin");
    let tree = txn.create_tree("t").expect("create");
    for key in 0..RECORDS {
        txn.put(&tree, &key.to_be_bytes(), &0_u64.to_le_bytes()).expect("put");
    }
    txn.commit().expect("commit");
}

#[test]
fn of_transactions_that_replace_a_tree_one_commits_at_a_time_and_readers_see_whole_trees() {
    let watchdog = Watchdog::start("threads that replace trees", Duration::from_secs(60));
    let engine = Device::memory().open(options(256).durability(Durability::None)).expect("open");
    start(&engine);
    let replacements = 150 * rounds();
    let (committed, done) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let session = engine.session().expect("session");
                    while committed.load(Ordering::Relaxed) < replacements {
                        match replace(&session, "t") {
                            Ok(_) => {
                                committed.fetch_add(1, Ordering::Relaxed);
                                watchdog.step();
                            }
                            Err(error) => assert!(error.is_retryable(), "{error}"),
                        }
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            scope.spawn(|| {
                let session = engine.session().expect("session");
                let mut newest = 0;
                while !done.load(Ordering::Relaxed) {
                    match read(&session, "t") {
                        Ok(number) => {
                            assert!(number >= newest, "{number} after {newest}");
                            newest = number;
                        }
                        Err(error) => assert!(error.is_retryable(), "{error}"),
                    }
                }
            });
        }
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        done.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok), "a writer failed");
    });
    let session = engine.session().expect("session");
    assert_eq!(read(&session, "t").expect("read"), committed.into_inner());
    drop(session);
    assert_verified(&engine);
    engine.close().expect("close");
}

/// A record that was committed before the tree is dropped is one that the dropping transaction has
/// counted, or it is in conflict.
#[test]
fn a_change_is_before_a_drop_or_fails() {
    let watchdog = Watchdog::start("changes and drops", Duration::from_secs(60));
    let engine = Device::memory().open(options(256).durability(Durability::None)).expect("open");
    let tree = engine.tree("t").expect("tree");
    drop(tree);
    let drops = 60 * rounds();
    let (dropped, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let (added, mut found) = (AtomicU64::new(0), 0);
    thread::scope(|scope| {
        for thread in 0..2_u64 {
            let (engine, added, dropped, done) = (&engine, &added, &dropped, &done);
            scope.spawn(move || {
                let session = engine.session().expect("session");
                let mut turn = 0_u64;
                while !done.load(Ordering::Relaxed) {
                    // Otherwise each drop would be in conflict with some change.
                    if turn > CHANGES * (dropped.load(Ordering::Relaxed) + 1) {
                        thread::yield_now();
                        continue;
                    }
                    let mut txn = session.begin().expect("begin");
                    let key = (turn << 1 | thread).to_be_bytes();
                    let outcome = txn.tree("t").and_then(|tree| txn.put(&tree, &key, b""));
                    match outcome.and_then(|()| txn.commit()) {
                        Ok(()) => {
                            added.fetch_add(1, Ordering::Relaxed);
                            turn += 1;
                        }
                        Err(Error::NoSuchTree(_)) => {}
                        Err(error) => assert!(error.is_retryable(), "{error}"),
                    }
                }
            });
        }
        let session = engine.session().expect("session");
        while dropped.load(Ordering::Relaxed) < drops {
            let counted = (|| {
                let mut txn = session.begin()?;
                let count = txn.scan(&txn.tree("t")?)?.count() as u64;
                txn.drop_tree("t")?;
                txn.create_tree("t")?;
                txn.commit()?;
                Ok::<u64, Error>(count)
            })();
            match counted {
                Ok(count) => {
                    found += count;
                    dropped.fetch_add(1, Ordering::Relaxed);
                    watchdog.step();
                }
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    let session = engine.session().expect("session");
    let left = session.scan(&engine.tree("t").expect("tree")).expect("scan").count() as u64;
    assert_eq!(found + left, added.into_inner(), "records that were lost");
    drop(session);
    assert_verified(&engine);
}
