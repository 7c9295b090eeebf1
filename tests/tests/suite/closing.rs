//! Closing an engine of which something is alive or was leaked: it says what, stays usable, and
//! there is a way out that leaves the store to be opened again at once.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use wattle::{CloseError, Durability, Engine, Error, IoKind, Options, Session, TxnOptions};
use wattle_tests::harness::{Device, assert_verified, eventually, small_pool};

fn options() -> Options {
    small_pool(256).io(IoKind::Threads)
}

/// Closing is refused because of `alive`; gives the engine back.
fn refused(closed: Result<(), CloseError>, alive: &str) -> Engine {
    let refused = closed.expect_err("something is alive");
    let sentence = format!("the store stays open because {alive} of it is alive");
    assert!(refused.to_string().starts_with(&sentence), "{refused}");
    assert!(matches!(refused.error(), Error::StillInUse(what) if what == alive), "{refused:?}");
    refused.into_engine().expect("it was not closed")
}

fn value(session: &Session, engine: &Engine, key: &[u8]) -> Option<Vec<u8>> {
    session.get(&engine.tree("tree").expect("tree"), key).expect("get")
}

fn reopen(path: &Path) -> Engine {
    Engine::open(path, options()).expect("open again")
}

#[test]
fn closing_names_what_is_alive_and_works_when_that_is_gone() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("store");
    let engine = reopen(&path);
    let tree = engine.tree("tree").expect("tree");
    let clones = [engine.clone(), engine.clone(), engine.clone()];
    let sessions = [engine.session().expect("session"), engine.session().expect("session")];
    let tasks = engine.async_session().expect("session");
    let more_tasks = tasks.clone();
    let mut txn = engine.begin().expect("begin");
    txn.put(&tree, b"a", b"1").expect("put");
    let alive = "3 clones of the engine, 2 sessions, 1 asynchronous session and 1 transaction";
    let engine = refused(engine.close(), alive);
    // Any handle may try, and nothing is spoilt.
    let [clone, others @ ..] = clones;
    let clone = refused(clone.close(), alive);
    drop((others, clone));
    txn.commit().expect("commit");
    let engine = refused(engine.close(), "2 sessions and 1 asynchronous session");
    drop(tasks);
    let [session, other] = sessions;
    drop(other);
    let engine = refused(engine.close(), "1 session and 1 asynchronous session");
    drop(more_tasks);
    session.put(&tree, b"b", b"2").expect("put");
    let range = session.scan(&tree).expect("scan");
    let engine = refused(engine.close(), "1 session");
    assert_eq!(range.count(), 2);
    drop(session);
    // Trees do not keep a store open.
    engine.close().expect("close");
    assert_eq!(tree.name(), "tree");
    let engine = reopen(&path);
    let session = engine.session().expect("session");
    assert_eq!(value(&session, &engine, b"a").as_deref(), Some(&b"1"[..]));
    assert_eq!(value(&session, &engine, b"b").as_deref(), Some(&b"2"[..]));
    // An engine that is dropped instead: the store is closed with its last session.
    let dropped: Error = engine.close().expect_err("a session is alive").into();
    assert!(matches!(dropped, Error::StillInUse(_)), "{dropped:?}");
    assert!(matches!(Engine::open(&path, options()), Err(Error::AlreadyOpen { .. })));
    drop(session);
    reopen(&path).close().expect("close");
}

#[test]
fn a_moved_transaction_counts_as_one_of_its_own() {
    let engine = Device::memory().open(small_pool(256)).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    let mut txn = session.begin().expect("begin");
    txn.put(&tree, b"a", b"1").expect("put");
    let (txn, engine) = std::thread::scope(|scope| {
        let moved = scope.spawn(|| {
            txn.put(&tree, b"b", b"2").expect("put");
            txn
        });
        let txn = moved.join().expect("no panic");
        (txn, refused(engine.close(), "1 session and 1 transaction"))
    });
    txn.commit().expect("commit");
    let engine = refused(engine.close(), "1 session");
    drop(session);
    engine.close().expect("close");
}

#[test]
fn a_leaked_transaction_is_taken_back_when_the_store_is_opened_next() {
    for leak_session in [false, true] {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("store");
        let engine = reopen(&path);
        let tree = engine.tree("tree").expect("tree");
        let session = engine.session().expect("session");
        session.put(&tree, b"a", b"old").expect("put");
        let none = TxnOptions { durability: Some(Durability::None), ..TxnOptions::default() };
        let mut committed = session.begin_with(none).expect("begin");
        committed.put(&tree, b"b", b"new").expect("put");
        committed.commit().expect("commit");
        if leak_session {
            let mut txn = engine.begin().expect("begin");
            txn.put(&tree, b"a", b"leaked").expect("put");
            std::mem::forget(txn);
            drop(session);
            let engine = refused(engine.close(), "1 transaction");
            assert!(matches!(Engine::open(&path, options()), Err(Error::AlreadyOpen { .. })));
            engine.abandon().expect("abandon");
        } else {
            let mut txn = session.begin().expect("begin");
            txn.put(&tree, b"a", b"leaked").expect("put");
            std::mem::forget(txn);
            drop(session);
            let failed = engine.close().expect_err("its changes are in the pages");
            let leaked = "a transaction that has changed something was leaked";
            assert!(matches!(failed.error(), Error::Poisoned(why) if why == leaked), "{failed:?}");
            assert!(failed.into_engine().is_none());
        }
        drop(tree);
        let engine = reopen(&path);
        let session = engine.session().expect("session");
        assert_eq!(value(&session, &engine, b"a").as_deref(), Some(&b"old"[..]));
        assert_eq!(value(&session, &engine, b"b").as_deref(), Some(&b"new"[..]));
        assert_verified(&engine);
        // A transaction without changes does not conflict with others.
        let reader = session.begin_read().expect("begin");
        assert!(reader.contains(&engine.tree("tree").expect("tree"), b"a").expect("get"));
        std::mem::forget(reader);
        std::mem::forget(session.begin().expect("begin"));
        drop(session);
        engine.close().expect("close");
    }
}

#[test]
fn an_engine_that_is_abandoned_in_use_loses_no_acknowledged_commit() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("store");
    for round in 0..6u64 {
        // Large values go through the log, or straight to the data file.
        let options = options().direct_value_bytes([0, 4096][round as usize % 2]);
        let engine = Engine::open(&path, options).expect("open again");
        let tree = engine.tree("tree").expect("tree");
        let acknowledged: Arc<Vec<AtomicU64>> = Arc::new((0..3).map(|_| 0.into()).collect());
        let abandoned = Arc::new(AtomicBool::new(false));
        let workers: Vec<_> = (0..3usize)
            .map(|worker| {
                let session = engine.session().expect("session");
                let (tree, acknowledged) = (tree.clone(), acknowledged.clone());
                let abandoned = abandoned.clone();
                std::thread::spawn(move || {
                    let key = |n: u64| format!("{round}-{worker}-{n}").into_bytes();
                    let mut failed = None;
                    for n in 1.. {
                        let outcome = match n % 3 {
                            0 => session.put(&tree, &key(n), &[5; 700]),
                            1 => session.begin().and_then(|mut txn| {
                                txn.put(&tree, &key(n), &[6; 50])?;
                                txn.commit()
                            }),
                            _ => session.get(&tree, &key(n - 1)).and_then(|found| {
                                assert!(found.is_some() || n < 2, "{n}");
                                session.put(&tree, &key(n), &[7; 9000])
                            }),
                        };
                        match outcome {
                            Ok(()) => acknowledged[worker].store(n, Ordering::Relaxed),
                            Err(error) => {
                                failed = Some(error);
                                break;
                            }
                        }
                    }
                    assert!(abandoned.load(Ordering::Relaxed), "{failed:?}");
                    // Live handles return errors and do not hang; dropping them is harmless.
                    let again = session.put(&tree, b"x", b"y");
                    assert!(matches!(again, Err(Error::Poisoned(_))), "{again:?}");
                    println!("worker {worker}: {failed:?}");
                })
            })
            .collect();
        let clone = engine.clone();
        let checkpoints = std::thread::spawn(move || {
            loop {
                if let Err(error) = clone.checkpoint() {
                    return error;
                }
            }
        });
        eventually("commits", || acknowledged.iter().all(|n| n.load(Ordering::Relaxed) > 20));
        abandoned.store(true, Ordering::Relaxed);
        let begun = Instant::now();
        engine.abandon().expect("abandon");
        // Others may be in the middle of something.
        let engine = reopen(&path);
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
        let refused = checkpoints.join().expect("no panic");
        println!("checkpoints: {refused}");
        let session = engine.session().expect("session");
        for (worker, last) in acknowledged.iter().enumerate() {
            for n in 1..=last.load(Ordering::Relaxed) {
                let key = format!("{round}-{worker}-{n}");
                assert!(value(&session, &engine, key.as_bytes()).is_some(), "{key} is lost");
            }
        }
        assert_verified(&engine);
        drop((session, tree));
        engine.close().expect("close");
    }
}

#[test]
fn an_engine_is_not_abandoned_in_the_middle_of_a_bulk_load() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("store");
    let engine = reopen(&path);
    let tree = engine.tree("tree").expect("tree");
    engine.tree("other").expect("tree");
    let session = engine.session().expect("session");
    let mut handle = Some(engine.clone());
    let entries = (0..30_000u32).map(|n| {
        if let Some(engine) = handle.take_if(|_| n == 20_000) {
            // Its pages are written, and would be those of a new engine.
            let refused = engine.abandon();
            let load = "a bulk load, a backup or a compaction";
            assert!(
                matches!(&refused, Err(Error::StillInUse(what)) if what == load),
                "{refused:?}"
            );
            assert!(matches!(Engine::open(&path, options()), Err(Error::AlreadyOpen { .. })));
        }
        (n.to_be_bytes(), [3; 100])
    });
    let loaded = session.bulk_load(&tree, entries);
    assert!(matches!(loaded, Ok(30_000) | Err(Error::Poisoned(_))), "{loaded:?}");
    // Once it has ended there is nothing in the way.
    engine.abandon().expect("abandon");
    let other = session.bulk_load(&tree, [(b"k", b"v")]);
    assert!(matches!(other, Err(Error::Poisoned(_))), "{other:?}");
    let engine = reopen(&path);
    let tree = engine.tree("tree").expect("tree");
    let found = engine.session().expect("session").scan(&tree).expect("scan").count();
    assert_eq!(found, if loaded.is_ok() { 30_000 } else { 0 });
    assert_verified(&engine);
    drop((session, tree));
    engine.close().expect("close");
}

/// A compaction ends by cutting the data file off: that must not be done to the file of another
/// engine.
#[test]
fn an_engine_that_was_abandoned_is_not_compacted() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store");
    let engine = reopen(&path);
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    for n in 0..20_000u32 {
        session.put_ticket(&tree, &n.to_be_bytes(), &[3; 200]).map(drop).expect("put");
    }
    let other = engine.clone();
    drop((session, tree));
    engine.abandon().expect("abandon");
    let again = reopen(&path);
    let before = again.stats().file_bytes;
    assert!(matches!(other.compact(), Err(Error::Poisoned(_))));
    again.drop_tree(again.tree("tree").expect("tree")).expect("drop");
    assert!(matches!(other.compact(), Err(Error::Poisoned(_))));
    assert_eq!(again.stats().file_bytes, before);
    let report = again.compact().expect("compact");
    assert!(report.bytes_after < before, "{report:?}");
    again.close().expect("close");
}
