//! Tasks on threads of the engine.

use std::{
    future::Future,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};
use wattle::{Engine, Error, MIN_LOG_BYTES, Tree};
use wattle_tests::harness::{Device, Watchdog, eventually, rounds, small_pool};

fn opened(frames: u64) -> (Engine, Tree) {
    let options = small_pool(frames).log_bytes(MIN_LOG_BYTES);
    let engine = Device::memory().open(options).expect("open");
    let tree = engine.tree("tree").expect("tree");
    (engine, tree)
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Any runtime will do: this one knows nothing of io_uring.
fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(future)
}

#[test]
fn requests_of_many_threads_share_the_threads_of_the_engine() {
    let _watchdog = Watchdog::start("requests", Duration::from_secs(60));
    // Much smaller than the data, so that tasks wait for pages.
    let (engine, tree) = opened(192);
    let session = engine.session().expect("session");
    let records = 6_000;
    session.bulk_load(&tree, (0..records).map(|number| (key(number), [1_u8; 200]))).expect("load");
    drop(session);
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        for client in 0..4 {
            let (engine, tree, done) = (&engine, &tree, &done);
            scope.spawn(move || {
                wait(async {
                    for round in 0..15 * rounds() {
                        let requests: Vec<_> = (0..16)
                            .map(|request| {
                                let at = (client * 7_919 + round * 613 + request * 89) % records;
                                let tree = tree.clone();
                                let task = engine.spawn(async move |session| {
                                    // Neither `Send` nor `Sync`: it stays on its thread.
                                    let value = Rc::new(session.get(&tree, &key(at)).await?);
                                    session
                                        .transact(async |txn| {
                                            txn.put(&tree, &key(records + at), b"seen").await
                                        })
                                        .await?;
                                    Ok::<_, Error>(value.as_ref().as_ref().map(Vec::len))
                                });
                                is_send(task.expect("spawn"))
                            })
                            .collect();
                        for request in requests {
                            let length = request.await.expect("the task ends").expect("no error");
                            assert_eq!(length, Some(200));
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            });
        }
    });
    assert_eq!(done.load(Ordering::Relaxed), 4 * 16 * 15 * rounds());
    drop(tree);
    engine.close().expect("no task is left");
}

fn is_send<F: Future + Send>(future: F) -> F {
    future
}

#[test]
fn a_task_goes_on_without_its_future_and_a_panic_is_that_of_the_future() {
    let _watchdog = Watchdog::start("tasks alone", Duration::from_secs(60));
    let (engine, tree) = opened(128);
    let detached = {
        let tree = tree.clone();
        engine.spawn(async move |session| session.put(&tree, b"detached", b"").await)
    };
    drop(detached.expect("spawn"));
    let session = engine.session().expect("session");
    eventually("the task is done", || session.contains(&tree, b"detached").expect("contains"));
    // In the task, or before there is one.
    let tasks = Arc::new(AtomicU64::new(0));
    for early in [false, true] {
        let (tree, tasks) = (tree.clone(), tasks.clone());
        let task = engine.spawn(move |session| {
            tasks.fetch_add(1, Ordering::Relaxed);
            if early {
                std::panic::resume_unwind(Box::new("early"));
            }
            async move {
                let mut txn = session.begin().expect("begin");
                txn.put(&tree, b"half", b"").await.expect("put");
                std::panic::resume_unwind(Box::new("late"));
                #[expect(unreachable_code, reason = "gives the task its type")]
                txn.commit().await
            }
        });
        let task = task.expect("spawn");
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| wait(task)));
        let panic = panicked.expect_err("it panics");
        let expected = if early { "early" } else { "late" };
        assert_eq!(panic.downcast_ref::<&str>(), Some(&expected));
    }
    assert_eq!(tasks.load(Ordering::Relaxed), 2);
    // The thread goes on, and the transaction was rolled back.
    let of_task = tree.clone();
    let found = engine.spawn(async move |session| session.contains(&of_task, b"half").await);
    assert!(!wait(found.expect("spawn")).expect("the task ends").expect("no error"));
    eventually("it is rolled back", || session.put(&tree, b"half", b"").is_ok());
}

#[test]
fn an_engine_with_tasks_stays_open_until_the_last_one_ends() {
    let _watchdog = Watchdog::start("an open engine", Duration::from_secs(60));
    let (engine, tree) = opened(128);
    let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
    let task = engine.spawn(async move |session| {
        receiver.await.expect("the sender lives");
        session.put(&tree, b"late", b"").await
    });
    let task = task.expect("spawn");
    let refused = engine.close().expect_err("a task runs");
    assert!(matches!(refused.error(), Error::StillInUse(_)), "{refused:?}");
    let engine = refused.into_engine().expect("not closed");
    sender.send(()).expect("the task lives");
    wait(task).expect("the task ends").expect("put");
    engine.close().expect("nothing holds the engine");
}
