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
use wattle::{AsyncSession, Engine, Error, MIN_LOG_BYTES, Session, Spawned, Tree};
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

/// Takes all rooms for sessions that are left.
fn all_sessions(engine: &Engine) -> Vec<Session> {
    let mut sessions = Vec::new();
    loop {
        match engine.session() {
            Ok(session) => sessions.push(session),
            Err(Error::Limit(_)) => return sessions,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn tasks_share_the_sessions_of_other_tasks_where_there_is_no_room_for_more() {
    let _watchdog = Watchdog::start("tasks at the limit", Duration::from_secs(60));
    let (engine, tree) = opened(48);
    let (go, goes) = tokio::sync::oneshot::channel::<()>();
    let first = engine.spawn(async move |session| {
        goes.await.expect("the sender lives");
        drop(session);
    });
    let first = first.expect("spawn");
    let sessions = all_sessions(&engine);
    assert!(!sessions.is_empty());
    let put = |number: u64| {
        let tree = tree.clone();
        engine.spawn(async move |session| session.put(&tree, &key(number), b"").await)
    };
    let others: Vec<_> = (0..20).map(|number| put(number).expect("spawn")).collect();
    for task in others {
        wait(task).expect("the task ends").expect("put");
    }
    go.send(()).expect("the task lives");
    wait(first).expect("the task ends");
    assert_eq!(sessions[0].scan(&tree).expect("scan").count(), 20);
    // The room of the tasks is free again, and without a task there is none to share.
    let last = engine.session().expect("the room of the tasks");
    assert!(matches!(put(20).err(), Some(Error::Limit(_))));
    drop(last);
    wait(put(20).expect("spawn")).expect("the task ends").expect("put");
}

#[test]
fn the_room_of_a_session_that_ends_is_kept_for_the_task_that_was_sent_to_share_it() {
    let _watchdog = Watchdog::start("a session handed over", Duration::from_secs(60));
    let (engine, tree) = opened(48);
    let ((begun, begins), (go, goes)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
    let of_task = engine.clone();
    // It blocks its thread, so that the next task has not begun when this one ends.
    let first = engine.spawn(async move |session: AsyncSession| {
        begun.send(()).expect("it is awaited");
        goes.recv().expect("the sender lives");
        drop(session);
        of_task.session().map(drop)
    });
    let first = first.expect("spawn");
    begins.recv().expect("the task runs");
    let sessions = all_sessions(&engine);
    let of_second = tree.clone();
    let second = engine.spawn(async move |session| session.put(&of_second, b"second", b"").await);
    let second = second.expect("spawn");
    go.send(()).expect("the task lives");
    let stolen = wait(first).expect("the task ends");
    assert!(matches!(stolen, Err(Error::Limit(_))), "{stolen:?}");
    wait(second).expect("the task ends").expect("put");
    assert!(sessions[0].contains(&tree, b"second").expect("contains"));
    drop(engine.session().expect("the room of the tasks"));
}

/// Sends a task when it is dropped.
struct Sends(Engine, std::sync::mpsc::Sender<Option<Spawned<()>>>);

impl Drop for Sends {
    fn drop(&mut self) {
        self.1.send(self.0.spawn(async |_| ()).ok()).expect("it is awaited");
    }
}

#[test]
fn a_closure_that_is_dropped_may_send_another_task() {
    let _watchdog = Watchdog::start("dropped closures", Duration::from_secs(60));
    let (engine, _tree) = opened(48);
    let (sender, sent) = std::sync::mpsc::channel();
    let spawn = || {
        let sends = Sends(engine.clone(), sender.clone());
        engine.spawn(async move |_| drop(sends))
    };
    // In the task, and where there is no room for it.
    wait(spawn().expect("spawn")).expect("the task ends");
    wait(sent.recv().expect("dropped").expect("sent")).expect("the task ends");
    let _sessions = all_sessions(&engine);
    assert!(matches!(spawn().err(), Some(Error::Limit(_))));
    assert!(sent.recv().expect("dropped").is_none());
}
