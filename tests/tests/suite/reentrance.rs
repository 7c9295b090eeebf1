//! Calls of the engine from inside of closures and iterators that the engine calls: each gives a
//! right result or an error, and none waits for ever.

use std::{
    ops::{Bound, ControlFlow},
    time::{Duration, Instant},
};
use wattle::{Direction, Durability, Engine, Error, Options, Tree};
use wattle_tests::harness::{Watchdog, assert_verified};

const RECORDS: u64 = 40_000;
const STALL: Duration = Duration::from_secs(3);

fn key(i: u64) -> Vec<u8> {
    format!("key{i:08}").into_bytes()
}

struct Store {
    directory: tempfile::TempDir,
    engine: Engine,
    tree: Tree,
    _watchdog: Watchdog,
}

impl Store {
    fn new(what: &'static str, records: u64) -> Store {
        let directory = tempfile::tempdir().expect("a directory");
        let options = Options::default()
            .pool_bytes(1 << 20)
            .log_bytes(32 << 20)
            .durability(Durability::None)
            .stall_timeout(STALL);
        let engine = Engine::open(directory.path().join("store"), options).expect("open");
        let tree = engine.tree("t").expect("a tree");
        let session = engine.session().expect("a session");
        for i in 0..records {
            session.put(&tree, &key(i), b"value").expect("put");
        }
        drop(session);
        let watchdog = Watchdog::start(what, Duration::from_secs(60));
        Store { directory, engine, tree, _watchdog: watchdog }
    }

    fn check(self) {
        assert_verified(&self.engine);
        drop(self.tree);
        self.engine.close().expect("close");
    }
}

fn is_refused<T>(outcome: wattle::Result<T>) -> bool {
    matches!(outcome, Err(Error::Reentrant(_)))
}

/// Everything that may be called from inside of the change of record 10.
#[cfg(feature = "async")]
fn call_everything(store: &Store, session: &wattle::Session, scanned: &wattle::Session) {
    let Store { engine, tree, directory, .. } = store;
    // The same leaf: latched.
    assert!(is_refused(session.get(tree, &key(11))));
    assert!(is_refused(session.put(tree, &key(11), b"other")));
    assert!(is_refused(session.remove(tree, &key(11))));
    assert!(is_refused(session.modify(tree, &key(11), |_| ())));
    assert!(is_refused(session.multi_get(tree, &[key(11)], |_, _| ())));
    let scan = scanned.scan(tree).expect("a scan").next().expect("records");
    assert!(is_refused(scan));
    // Other leaves, in memory or not.
    for i in (5000..RECORDS).step_by(3000) {
        match session.get(tree, &key(i)) {
            Ok(found) => assert_eq!(found.as_deref(), Some(&b"value"[..])),
            other => assert!(is_refused(other)),
        }
        let put = session.put(tree, &key(i), b"value");
        assert!(put.is_ok() || is_refused(put));
    }
    let mut txn = session.begin().expect("begin");
    if txn.put(tree, &key(20_000), b"value").is_ok() {
        assert!(is_refused(txn.commit()));
    }
    // The engine as a whole.
    assert!(is_refused(engine.tree("other")));
    assert!(is_refused(engine.trees()));
    assert!(is_refused(engine.drop_tree(tree.clone())));
    assert!(is_refused(engine.rename_tree(tree.clone(), "x")));
    assert!(is_refused(engine.checkpoint()));
    assert!(is_refused(engine.compact()));
    assert!(is_refused(engine.sync()));
    assert!(is_refused(engine.backup(directory.path().join("backup"))));
    assert!(is_refused(engine.verify(&mut |_| ())));
    assert!(is_refused(engine.tree_stats()));
    assert!(is_refused(engine.session()));
    assert!(is_refused(session.bulk_load(tree, [(b"k", b"v")])));
    let closed = engine.clone().close().expect_err("refused");
    assert!(matches!(closed.error(), Error::Reentrant(_)));
    assert!(is_refused(engine.clone().abandon()));
}

#[cfg(feature = "async")]
#[test]
fn a_closure_that_changes_a_value_cannot_wait_for_the_leaf_that_it_is_in() {
    let store = Store::new("re-entrance from modify", RECORDS);
    let (session, inner) = (store.engine.session().unwrap(), store.engine.session().unwrap());
    let scanned = store.engine.session().unwrap();
    let mut calls = 0;
    let mut change = |value: &mut [u8]| {
        call_everything(&store, &inner, &scanned);
        calls += 1;
        value.copy_from_slice(b"VALUE");
    };
    assert!(session.modify(&store.tree, &key(10), &mut change).expect("modify"));
    let mut txn = session.begin().expect("begin");
    assert!(txn.modify(&store.tree, &key(10), &mut change).expect("modify"));
    let mut many = |_: usize, value: &mut [u8]| change(value);
    assert_eq!(txn.modify_many(&store.tree, &[key(10), key(12)], &mut many).expect("modify"), 2);
    txn.commit().expect("commit");
    wattle::run(4, async {
        let session = store.engine.async_session().expect("a session");
        assert!(session.modify(&store.tree, &key(10), &mut change).await.expect("modify"));
        let mut txn = session.begin().expect("begin");
        assert!(txn.modify(&store.tree, &key(10), &mut change).await.expect("modify"));
        txn.commit().await.expect("commit");
    })
    .expect("a runtime");
    assert!(calls >= 6);
    for (i, expected) in [(10, b"VALUE"), (11, b"value"), (12, b"VALUE")] {
        assert_eq!(session.get(&store.tree, &key(i)).unwrap().as_deref(), Some(&expected[..]));
    }
    drop((session, inner, scanned));
    store.check();
}

#[test]
fn a_closure_that_waits_for_a_thread_that_needs_its_leaf_is_waited_for_no_longer_than_a_while() {
    let store = Store::new("a closure that waits for a thread", 100);
    let session = store.engine.session().expect("a session");
    let modified = session.modify(&store.tree, &key(10), |value| {
        value.copy_from_slice(b"VALUE");
        let (engine, tree) = (store.engine.clone(), store.tree.clone());
        let read = std::thread::spawn(move || {
            let began = Instant::now();
            let found = engine.session().expect("a session").get(&tree, &key(11));
            assert!(matches!(found, Err(Error::Limit(_))), "{found:?}");
            assert!(began.elapsed() < 8 * STALL, "after {:?}", began.elapsed());
        });
        read.join().expect("no panic");
    });
    assert!(modified.expect("modify"));
    assert_eq!(session.get(&store.tree, &key(10)).unwrap().as_deref(), Some(&b"VALUE"[..]));
    drop(session);
    store.check();
}

#[test]
fn a_closure_that_panics_leaves_nothing_behind_that_refuses_calls() {
    let store = Store::new("a closure that panics", 100);
    let session = store.engine.session().expect("a session");
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        session.modify(&store.tree, &key(10), |_| panic!("expected by this test"))
    }));
    assert!(panicked.is_err());
    store.engine.checkpoint().expect("a checkpoint");
    assert_eq!(session.get(&store.tree, &key(10)).unwrap().as_deref(), Some(&b"value"[..]));
    drop(session);
    store.check();
}

#[test]
fn the_entries_of_a_bulk_load_may_use_the_engine_but_not_begin_a_backup() {
    let store = Store::new("re-entrance from a bulk load", 5000);
    let Store { engine, tree, directory, .. } = &store;
    let loaded = engine.tree("loaded").expect("a tree");
    let session = engine.session().expect("a session");
    let entries = (0..3000_u64).map(|i| {
        if i % 1000 == 500 {
            let other = engine.session().expect("a session");
            assert!(is_refused(engine.backup(directory.path().join("backup"))));
            assert!(is_refused(engine.compact()));
            engine.checkpoint().expect("a checkpoint");
            engine.tree_stats().expect("sizes");
            assert!(engine.drop_tree(loaded.clone()).is_err());
            other.put(tree, &key(i), b"value").expect("put");
            assert_eq!(session.get(tree, &key(i)).unwrap().as_deref(), Some(&b"value"[..]));
            let mut inner = 0;
            let second = engine.tree(&format!("second{i}")).expect("a tree");
            let entries = (0..100_u64).map(|i| {
                inner += 1;
                (key(i), b"inner")
            });
            assert_eq!(other.bulk_load(&second, entries).expect("loaded"), 100);
            assert_eq!(inner, 100);
            assert_eq!(other.get(&second, &key(7)).unwrap().as_deref(), Some(&b"inner"[..]));
        }
        (key(i), b"loaded")
    });
    assert_eq!(session.bulk_load(&loaded, entries).expect("loaded"), 3000);
    engine.backup(directory.path().join("backup")).expect("a backup");
    drop((session, loaded));
    store.check();
}

#[test]
fn a_backup_does_not_wait_for_a_bulk_load_that_waits_for_it() {
    let store = Store::new("a bulk load that waits for a backup", 100);
    let Store { engine, directory, .. } = &store;
    let loaded = engine.tree("loaded").expect("a tree");
    let session = engine.session().expect("a session");
    let entries = (0..10_u64).map(|i| {
        if i == 5 {
            let (engine, path) = (engine.clone(), directory.path().join("backup"));
            let backup = std::thread::spawn(move || engine.backup(path).map(|_| ()));
            let outcome = backup.join().expect("no panic");
            assert!(matches!(outcome, Err(Error::Limit(_))), "{outcome:?}");
        }
        (key(i), b"loaded")
    });
    assert_eq!(session.bulk_load(&loaded, entries).expect("loaded"), 10);
    drop((session, loaded));
    store.check();
}

#[test]
fn the_progress_of_a_verification_may_read_but_not_begin_what_waits_for_its_end() {
    let store = Store::new("re-entrance from a verification", RECORDS);
    let Store { engine, tree, directory, .. } = &store;
    let session = engine.session().expect("a session");
    let mut calls = 0;
    let report = engine.verify(&mut |_| {
        calls += 1;
        assert_eq!(session.get(tree, &key(5)).unwrap().as_deref(), Some(&b"value"[..]));
        assert_eq!(session.scan(tree).expect("a scan").take(5).count(), 5);
        engine.tree_stats().expect("sizes");
        assert!(is_refused(engine.verify(&mut |_| ())));
        assert!(is_refused(engine.drop_tree(tree.clone())));
        assert!(is_refused(engine.rename_tree(tree.clone(), "x")));
        assert!(is_refused(engine.checkpoint()));
        assert!(is_refused(engine.compact()));
        assert!(is_refused(engine.backup(directory.path().join("backup"))));
        assert!(is_refused(session.bulk_load(tree, [(b"k", b"v")])));
    });
    assert!(calls > 0);
    assert!(report.expect("verified").problems.is_empty());
    drop(session);
    store.check();
}

#[test]
fn closures_that_read_may_use_the_engine() {
    let store = Store::new("re-entrance from reads", 3000);
    let Store { engine, tree, .. } = &store;
    let (session, other) = (engine.session().unwrap(), engine.session().unwrap());
    let work = |i: u64| {
        other.put(tree, &key(i), b"again").expect("put");
        assert_eq!(session.get(tree, &key(i)).unwrap().as_deref(), Some(&b"again"[..]));
        engine.checkpoint().expect("a checkpoint");
    };
    session.get_with(tree, &key(1), |_| work(1)).expect("get").expect("there");
    let keys: Vec<_> = (0..40).map(key).collect();
    session.multi_get(tree, &keys, |i, _| work(i as u64)).expect("get");
    for entry in session.scan(tree).expect("a scan").take(10) {
        entry.expect("an entry");
        work(3);
    }
    let txn = session.begin_read().expect("begin");
    let (mut seen, all) = (0, (Bound::Unbounded, Bound::Unbounded));
    txn.visit(tree, all, Direction::Forward, |_, _| {
        work(seen);
        seen += 1;
        if seen == 10 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .expect("visit");
    txn.get_with(tree, &key(1), |_| work(1)).expect("get").expect("there");
    drop(txn);
    drop((session, other));
    store.check();
}
