//! Transactions that are repeated after conflicts.

use std::{
    cell::Cell,
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use wattle::{Durability, Engine, Error, Isolation, Result, Tree, TxnOptions};
use wattle_tests::harness::{Device, Watchdog, small_pool};

const KEYS: [&[u8]; 2] = [b"one", b"two"];

fn opened() -> (Engine, Tree) {
    let engine = Device::memory().open(small_pool(256)).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    for key in KEYS {
        session.put(&tree, key, &number(0)).expect("put");
    }
    (engine, tree)
}

fn number(value: u64) -> [u8; 8] {
    value.to_be_bytes()
}

fn read(bytes: Option<Vec<u8>>) -> u64 {
    u64::from_be_bytes(bytes.expect("a record").try_into().expect("8 bytes"))
}

#[test]
fn every_attempt_is_whole_and_no_increment_is_lost() {
    let _watchdog = Watchdog::start("increments", Duration::from_secs(60));
    let (engine, tree) = opened();
    let (threads, rounds) = (4, 100);
    let (start, attempts) = (Barrier::new(threads), AtomicU64::new(0));
    thread::scope(|scope| {
        for thread in 0..threads {
            let (engine, tree, start, attempts) = (&engine, &tree, &start, &attempts);
            scope.spawn(move || {
                let session = engine.session().expect("session");
                start.wait();
                for _ in 0..rounds {
                    // Half of the threads take the records in the other order.
                    let order = if thread % 2 == 0 { [0, 1] } else { [1, 0] };
                    let seen = session.transact(|txn| {
                        attempts.fetch_add(1, Ordering::Relaxed);
                        let mut seen = [0; 2];
                        for at in order {
                            seen[at] = read(txn.get(tree, KEYS[at])?);
                            thread::yield_now();
                            txn.put(tree, KEYS[at], &number(seen[at] + 1))?;
                        }
                        Ok(seen)
                    });
                    let seen = seen.expect("transact");
                    assert_eq!(seen[0], seen[1], "both records of one snapshot");
                }
            });
        }
    });
    let session = engine.session().expect("session");
    let all = threads as u64 * rounds;
    for key in KEYS {
        assert_eq!(read(session.get(&tree, key).expect("get")), all);
    }
    assert!(attempts.load(Ordering::Relaxed) >= all);
}

/// Holds a record for a while, in a transaction of its own.
fn in_the_way(engine: &Engine, tree: &Tree, key: &[u8], change: impl FnOnce()) {
    let mut other = engine.begin().expect("begin");
    other.put(tree, key, &number(100)).expect("put");
    change();
    other.commit().expect("commit");
}

#[derive(Debug)]
struct Mine;

impl From<Error> for Mine {
    fn from(_: Error) -> Mine {
        Mine
    }
}

#[test]
fn a_conflict_that_the_closure_hides_is_one() {
    let (engine, tree) = opened();
    let session = engine.session().expect("session");
    // The error of the caller says nothing of a conflict; nor does a value.
    for swallow in [false, true] {
        let attempts = Cell::new(0);
        let done = session.transact_with(TxnOptions::default(), |txn| {
            attempts.set(attempts.get() + 1);
            let seen = read(txn.get(&tree, KEYS[0])?);
            if attempts.get() == 1 {
                in_the_way(&engine, &tree, KEYS[0], || ());
            }
            match txn.put(&tree, KEYS[0], &number(seen + 1)) {
                Ok(()) => Ok(seen),
                Err(_) if swallow => Ok(u64::MAX),
                Err(_) => Err(Mine),
            }
        });
        assert_eq!((done.expect("transact"), attempts.get()), (100, 2));
    }
}

#[test]
fn errors_and_panics_of_the_closure_roll_back_and_are_not_repeated() {
    let (engine, tree) = opened();
    let attempts = Cell::new(0);
    let failed: Result<(), Mine> =
        engine.session().expect("session").transact_with(TxnOptions::default(), |txn| {
            attempts.set(attempts.get() + 1);
            txn.put(&tree, KEYS[0], &number(7))?;
            Err(Mine)
        });
    assert!(failed.is_err() && attempts.get() == 1);
    let failed = engine.transact(|txn| {
        txn.put(&tree, KEYS[0], &number(7))?;
        txn.insert(&tree, KEYS[1], b"again")
    });
    assert!(matches!(failed, Err(Error::KeyExists)), "{failed:?}");
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        engine.transact(|txn| -> Result<()> {
            txn.put(&tree, KEYS[0], &number(7))?;
            std::panic::resume_unwind(Box::new("of the closure"))
        })
    }));
    assert!(panicked.is_err());
    let session = engine.session().expect("session");
    assert_eq!(read(session.get(&tree, KEYS[0]).expect("get")), 0);
    session.put(&tree, KEYS[0], &number(1)).expect("nothing holds the record");
    drop((session, tree));
    engine.close().expect("nothing holds the engine");
}

#[test]
fn attempts_end_when_a_record_stays_held() {
    let _watchdog = Watchdog::start("a held record", Duration::from_secs(60));
    let (engine, tree) = opened();
    let session = engine.session().expect("session");
    in_the_way(&engine, &tree, KEYS[1], || {
        let (begun, attempts) = (Instant::now(), Cell::new(0_u64));
        let outcome = session.transact(|txn| {
            attempts.set(attempts.get() + 1);
            txn.put(&tree, KEYS[1], &number(1))
        });
        assert!(matches!(outcome, Err(Error::Conflict(_))), "{outcome:?}");
        assert!(begun.elapsed() >= Duration::from_secs(1), "the stall timeout of the pool");
        // Without pauses it would be a million.
        assert!((10..20_000).contains(&attempts.get()), "{} attempts", attempts.get());
    });
    assert_eq!(read(session.get(&tree, KEYS[1]).expect("get")), 100);
}

#[test]
fn a_cancelled_snapshot_is_repeated() {
    let options = small_pool(1_500).durability(Durability::None).version_bytes(1 << 20);
    let engine = Device::memory().open(options).expect("open");
    let (tree, versions) = (engine.tree("tree").expect("tree"), engine.tree("v").expect("tree"));
    let session = engine.session().expect("session");
    let writer = engine.session().expect("session");
    let records = 2_000_u64;
    let all = (0..records).map(|record| (number(record), [1; 1_000]));
    session.bulk_load(&versions, all).expect("load");
    session.put(&tree, b"a", b"old").expect("put");
    let begun = Instant::now();
    let attempts = Cell::new(0);
    let done: Result<(), Mine> = session.transact_with(TxnOptions::default(), |txn| {
        attempts.set(attempts.get() + 1);
        let mut numbers = (0..records).cycle();
        writer.put(&tree, b"a", &[attempts.get()])?;
        while attempts.get() == 1 {
            txn.get(&tree, b"a")?;
            let record = number(numbers.next().expect("endless"));
            writer.put(&versions, &record, &[record[7]; 1_000])?;
            assert!(begun.elapsed() < Duration::from_secs(20), "the snapshot is never cancelled");
        }
        Ok(())
    });
    assert!(done.is_ok() && attempts.get() == 2, "{} attempts", attempts.get());
}

#[test]
fn serializable_transactions_are_repeated_after_their_validation() {
    let (engine, tree) = opened();
    let session = engine.session().expect("session");
    let options = TxnOptions { isolation: Isolation::Serializable, ..TxnOptions::default() };
    let attempts = Cell::new(0);
    let sum = session.transact_with(options, |txn| -> Result<u64> {
        attempts.set(attempts.get() + 1);
        let sum = read(txn.get(&tree, KEYS[0])?);
        txn.put(&tree, KEYS[1], &number(sum))?;
        if attempts.get() == 1 {
            // Read, not written, by this transaction: only its commit finds out.
            in_the_way(&engine, &tree, KEYS[0], || ());
        }
        Ok(sum)
    });
    assert_eq!((sum.expect("transact"), attempts.get()), (100, 2));
}

#[cfg(feature = "async")]
fn increment_in_tasks(session: &wattle::Session, engine: &Engine, tree: &Tree) {
    let tasks = wattle::run(16, async {
        let session = engine.async_session().expect("session");
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let (session, tree) = (session.clone(), tree.clone());
                tokio::task::spawn_local(async move {
                    for _ in 0..20 {
                        let done = session.transact(async |txn| {
                            let seen = read(txn.get(&tree, KEYS[0]).await?);
                            tokio::task::yield_now().await;
                            txn.put(&tree, KEYS[0], &number(seen + 1)).await
                        });
                        done.await.expect("transact");
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no panic");
        }
    });
    tasks.expect("a runtime");
    assert_eq!(read(session.get(tree, KEYS[0]).expect("get")), 160);
}

#[cfg(feature = "async")]
#[test]
fn tasks_repeat_their_transactions_too() {
    let _watchdog = Watchdog::start("tasks", Duration::from_secs(60));
    let (engine, tree) = opened();
    increment_in_tasks(&engine.session().expect("session"), &engine, &tree);
}
