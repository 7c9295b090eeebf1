//! Auto-committed changes of records that an open transaction holds: how long they wait, and for
//! whom not.

use std::{
    thread,
    time::{Duration, Instant},
};
use wattle::{Engine, Error, Options, Result, Session, Tree};
use wattle_tests::harness::{Device, Watchdog, assert_verified, small_pool};

const KEY: &[u8] = b"key";
/// Longer than anything that does not wait takes, on a machine with other work.
const LONG: Duration = Duration::from_secs(15);

fn opened(wait: Duration) -> (Engine, Tree) {
    let engine = Device::memory().open(small_pool(256).conflict_wait(wait)).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    session.put(&tree, KEY, b"old").expect("put");
    (engine, tree)
}

/// Every auto-committed change of the record.
fn changes(session: &Session, tree: &Tree) -> [(&'static str, Result<()>); 6] {
    let large = vec![1; 20_000];
    [
        ("put", session.put(tree, KEY, b"new")),
        ("insert", session.insert(tree, KEY, b"new")),
        ("update", session.update(tree, KEY, b"new").map(drop)),
        ("modify", session.modify(tree, KEY, |value| value[0] = 1).map(drop)),
        ("remove", session.remove(tree, KEY).map(drop)),
        ("put of a large value", session.put(tree, KEY, &large)),
    ]
}

fn assert_conflicts(session: &Session, tree: &Tree) {
    for (what, outcome) in changes(session, tree) {
        assert!(matches!(outcome, Err(Error::Conflict(_))), "{what}: {outcome:?}");
    }
}

#[test]
fn a_session_does_not_wait_for_its_own_transaction() {
    let _watchdog = Watchdog::start("own transaction", Duration::from_secs(60));
    let (engine, tree) = opened(Duration::from_secs(60));
    let session = engine.session().expect("session");
    for large in [false, true] {
        let value = vec![2; if large { 20_000 } else { 3 }];
        let mut txn = session.begin().expect("begin");
        txn.put(&tree, KEY, &value).expect("put");
        let begun = Instant::now();
        assert_conflicts(&session, &tree);
        assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
        // It is not in the way of other records, nor hurt.
        session.put(&tree, b"other", b"value").expect("put");
        txn.put(&tree, b"more", b"value").expect("put");
        txn.commit().expect("commit");
        assert_eq!(session.get(&tree, KEY).expect("get"), Some(value));
    }
    assert_verified(&engine);
}

#[test]
fn a_session_does_not_wait_for_a_tree_that_its_own_transaction_has_for_itself() {
    let _watchdog = Watchdog::start("own closed tree", Duration::from_secs(60));
    let options = small_pool(1024).version_bytes(1 << 20).conflict_wait(Duration::from_secs(60));
    let engine = Device::memory().open(options).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    session.bulk_load(&tree, (0..3000u32).map(|i| (i.to_be_bytes(), [1u8; 500]))).expect("load");
    let mut txn = session.begin().expect("begin");
    for i in 0..3000u32 {
        txn.put(&tree, &i.to_be_bytes(), &[2; 500]).expect("put");
    }
    let begun = Instant::now();
    let outcome = session.put(&tree, b"new", b"value");
    assert!(matches!(outcome, Err(Error::Conflict(_))), "{outcome:?}");
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
    txn.abort().expect("abort");
    session.put(&tree, b"new", b"value").expect("put");
    assert_verified(&engine);
}

#[test]
fn others_wait_as_long_as_the_option_says() {
    let _watchdog = Watchdog::start("conflict_wait", Duration::from_secs(60));
    let default = Options::default();
    assert!(default.check().is_ok());
    assert!(default.clone().conflict_wait(Duration::from_secs(60)).check().is_ok());
    let refused = default.conflict_wait(Duration::from_secs(61)).check();
    assert!(matches!(refused, Err(Error::InvalidOption(_))), "{refused:?}");
    for wait in [Duration::ZERO, Duration::from_millis(200)] {
        let (engine, tree) = opened(wait);
        let (holder, other) =
            (engine.session().expect("session"), engine.session().expect("session"));
        let mut txn = holder.begin().expect("begin");
        txn.put(&tree, KEY, b"held").expect("put");
        let begun = Instant::now();
        assert_conflicts(&other, &tree);
        let took = begun.elapsed();
        assert!(took >= 6 * wait && took < 6 * wait + LONG, "{took:?} with {wait:?}");
        txn.commit().expect("commit");
        other.put(&tree, KEY, b"new").expect("no conflict");
        assert_verified(&engine);
    }
}

#[test]
fn a_change_goes_on_as_soon_as_the_transaction_has_ended() {
    let _watchdog = Watchdog::start("a transaction that ends", Duration::from_secs(60));
    let (engine, tree) = opened(Duration::from_secs(30));
    for commits in [false, true] {
        let holder = engine.session().expect("session");
        let mut txn = holder.begin().expect("begin");
        txn.put(&tree, KEY, b"held").expect("put");
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                let session = engine.session().expect("session");
                let begun = Instant::now();
                session.put(&tree, KEY, b"new").expect("put");
                begun.elapsed()
            });
            thread::sleep(Duration::from_millis(100));
            let ended = Instant::now();
            match commits {
                true => txn.commit().expect("commit"),
                false => txn.abort().expect("abort"),
            }
            other.join().expect("the other one");
            assert!(ended.elapsed() < LONG, "{:?}", ended.elapsed());
        });
        assert_eq!(holder.get(&tree, KEY).expect("get").as_deref(), Some(&b"new"[..]));
    }
    assert_verified(&engine);
}

/// Other tasks of its thread run meanwhile, that of the transaction among them.
#[cfg(feature = "async")]
#[test]
fn a_task_waits_without_its_thread() {
    use std::{cell::Cell, rc::Rc};

    let _watchdog = Watchdog::start("a task that waits", Duration::from_secs(60));
    let (engine, tree) = opened(Duration::from_secs(30));
    let (shared_engine, tree) = (&engine, &tree);
    wattle::run(64, async move {
        let session = Rc::new(shared_engine.async_session().expect("session"));
        let mut txn = session.begin().expect("begin");
        txn.put(tree, KEY, b"held").await.expect("put");
        let waited = Rc::new(Cell::new(false));
        let put = async {
            session.put(tree, KEY, b"new").await.expect("put");
            waited.set(true);
        };
        let other = async {
            // Others of the thread run meanwhile, this one until the other is let go on.
            for _ in 0..50 {
                assert!(!waited.get(), "the record is held");
                session.get(tree, KEY).await.expect("get");
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            txn.commit().await.expect("commit");
        };
        tokio::join!(put, other);
        assert_eq!(session.get(tree, KEY).await.expect("get").as_deref(), Some(&b"new"[..]));
    })
    .expect("runtime");
    assert_verified(&engine);
}
