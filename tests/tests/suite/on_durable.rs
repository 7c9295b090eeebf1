//! Tickets: closures that wait for a commit, and the order in which the commits of a session become
//! durable.

use std::{
    future::Future,
    io::ErrorKind,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};
use wattle::{
    Engine, Error, MIN_LOG_BYTES, Session, Tree,
    io::{Fault, FaultPlan, Op, SimStorage},
};
use wattle_tests::harness::{Device, Watchdog, rounds, small_pool};

const LONG: Duration = Duration::from_secs(20);

fn opened() -> (Engine, Tree) {
    let engine = Device::memory().open(small_pool(256).log_bytes(MIN_LOG_BYTES)).expect("open");
    let tree = engine.tree("tree").expect("tree");
    (engine, tree)
}

/// Runs `then` on the thread that flushes the log; gives the receiver of its result when it begins.
fn on_flusher<T: Send + 'static>(
    session: &Session,
    tree: &Tree,
    then: impl FnOnce() -> T + Send + 'static,
) -> mpsc::Receiver<T> {
    let (sender, receiver) = mpsc::channel();
    let (left, here) = (Arc::new(Mutex::new(Some(then))), thread::current().id());
    // The closure is called at once when the commit is durable by then. Try until it is not.
    for number in 0..10_000_u32 {
        let key = [b"flusher", &number.to_be_bytes()[..]].concat();
        let ticket = session.put_ticket(tree, &key, b"value").expect("put");
        let ((begun, begins), left, sender) = (mpsc::channel(), left.clone(), sender.clone());
        ticket.on_durable(move |_| {
            let elsewhere = thread::current().id() != here;
            begun.send(elsewhere).expect("it is awaited");
            if elsewhere {
                let then = left.lock().expect("no panic").take().expect("only once");
                sender.send(then()).expect("it is awaited");
            }
        });
        if begins.recv_timeout(LONG).expect("it was called") {
            return receiver;
        }
    }
    panic!("the commit was always durable at once");
}

#[test]
fn the_commits_of_a_session_become_durable_in_their_order() {
    let _watchdog = Watchdog::start("order of tickets", Duration::from_secs(60));
    let (engine, tree) = opened();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        // Other sessions, whose flushes fall between the commits.
        for _ in 0..2 {
            scope.spawn(|| {
                let session = engine.session().expect("session");
                let mut number = 0_u32;
                while !over.load(Ordering::Relaxed) {
                    number += 1;
                    session.put(&tree, &number.to_be_bytes(), b"").expect("put");
                }
            });
        }
        let session = engine.session().expect("session");
        for round in 0..40 * rounds() {
            let tickets: Vec<_> = (0..50_u32)
                .map(|number| {
                    let key = [b"k", &number.to_be_bytes()[..]].concat();
                    match number % 3 {
                        0 => session.put_ticket(&tree, &key, &round.to_be_bytes()).expect("put"),
                        1 => {
                            let mut txn = session.begin().expect("begin");
                            txn.put(&tree, &key, b"in a transaction").expect("put");
                            txn.commit_ticket().expect("commit")
                        }
                        _ => session.put_ticket(&tree, &key, &[1; 5_000]).expect("put"),
                    }
                })
                .collect();
            let mut all = false;
            while !all {
                // The later ones first: what is durable by then stays so.
                let durable: Vec<_> =
                    tickets.iter().rev().map(|ticket| ticket.is_durable()).collect();
                let first = durable.iter().position(|durable| *durable);
                let earlier = first.map_or(&[][..], |first| &durable[first..]);
                assert!(earlier.iter().all(|durable| *durable), "{durable:?}");
                all = durable[0];
            }
        }
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn every_closure_runs_once_when_its_commit_is_durable() {
    let _watchdog = Watchdog::start("closures of tickets", Duration::from_secs(60));
    let (engine, tree) = opened();
    let session = engine.session().expect("session");
    let calls = Arc::new(AtomicU64::new(0));
    let (sender, receiver) = mpsc::channel();
    for number in 0..200_u64 {
        let ticket = session.put_ticket(&tree, &number.to_be_bytes(), b"value").expect("put");
        let (seen, sender, calls) = (ticket.clone(), sender.clone(), calls.clone());
        ticket.on_durable(move |outcome| {
            calls.fetch_add(1, Ordering::Relaxed);
            sender.send((outcome.is_ok(), seen.is_durable())).expect("it is awaited");
            // Contained: the thread that flushes goes on.
            assert!(!number.is_multiple_of(7), "a panic of the closure {number}");
        });
    }
    for _ in 0..200 {
        assert_eq!(receiver.recv_timeout(LONG), Ok((true, true)));
    }
    // Durable already: called at once, on this thread.
    let ticket = session.put_ticket(&tree, b"a", b"value").expect("put");
    engine.sync().expect("sync");
    session.put(&tree, b"b", b"value").expect("the log goes on");
    let here = thread::current().id();
    ticket.on_durable(move |_| sender.send((thread::current().id() == here, true)).expect("sent"));
    assert_eq!(receiver.recv_timeout(LONG), Ok((true, true)));
    assert_eq!(calls.load(Ordering::Relaxed), 200);
}

#[test]
fn a_closure_that_would_wait_for_the_log_gets_an_error_and_may_drop_the_engine() {
    let _watchdog = Watchdog::start("calls in closures", Duration::from_secs(60));
    let directory = tempfile::tempdir().expect("a directory");
    let options = small_pool(256).log_bytes(MIN_LOG_BYTES);
    let open = || Engine::open(directory.path().join("store"), options.clone());
    let engine = open().expect("open");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    let (sender, receiver) = mpsc::channel();
    // The closure is called at once when the commit is durable by then. Try until it is not.
    for number in 0..10_000_u32 {
        let ticket = session.put_ticket(&tree, &number.to_be_bytes(), b"value").expect("put");
        let (engine, here, sender) = (engine.clone(), thread::current().id(), sender.clone());
        ticket.on_durable(move |_| {
            let elsewhere = thread::current().id() != here;
            let synced = if elsewhere { engine.sync() } else { Ok(()) };
            sender.send((elsewhere, synced)).expect("it is awaited");
        });
        let (elsewhere, synced) = receiver.recv_timeout(LONG).expect("it was called");
        if elsewhere {
            assert!(matches!(synced, Err(Error::Reentrant(_))), "{synced:?}");
            break;
        }
        assert!(number < 9_999, "the commit was always durable at once");
    }
    // The last handle goes with the closure.
    let ticket = session.put_ticket(&tree, b"last", b"value").expect("put");
    drop((session, tree));
    ticket.on_durable(move |_| drop(engine));
    let again = (0..2_000).find_map(|_| {
        thread::sleep(Duration::from_millis(10));
        open().ok()
    });
    let engine = again.expect("the store was closed");
    let tree = engine.tree("tree").expect("tree");
    assert!(engine.session().expect("session").contains(&tree, b"last").expect("contains"));
}

#[test]
fn a_closure_hears_of_a_log_that_fails() {
    let _watchdog = Watchdog::start("a failed log", Duration::from_secs(60));
    let sim = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let engine = Device::sim(&sim).open(small_pool(256).log_bytes(MIN_LOG_BYTES)).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    session.put(&tree, b"a", b"1").expect("put");
    sim.set_plan(FaultPlan::new(2).always(Op::LogWrite, Fault::Error(ErrorKind::Other)));
    let (sender, receiver) = mpsc::channel();
    if let Ok(ticket) = session.put_ticket(&tree, b"a", b"2") {
        ticket.on_durable(move |outcome| sender.send(outcome).expect("it is awaited"));
        let outcome = receiver.recv_timeout(LONG).expect("it was called");
        assert!(matches!(outcome, Err(Error::CommitUnknown(_))), "{outcome:?}");
    }
}

#[test]
fn an_engine_is_abandoned_while_a_closure_drops_handles() {
    let _watchdog = Watchdog::start("abandon and a closure", Duration::from_secs(60));
    let (engine, tree) = opened();
    let session = engine.session().expect("session");
    let (ended, snapshot) = (engine.session().expect("session"), engine.snapshot().expect("one"));
    assert!(!snapshot.contains(&tree, b"k").expect("contains"));
    let mut txn = engine.begin().expect("begin");
    txn.put(&tree, b"uncommitted", b"value").expect("put");
    let (go, waits) = mpsc::channel::<()>();
    let dropped = on_flusher(&session, &tree, move || {
        waits.recv().expect("sent");
        drop((ended, snapshot, txn));
    });
    let abandoned = thread::spawn(move || engine.abandon());
    // It refuses changes by now, and waits for the flush.
    while session.put_ticket(&tree, b"k", b"value").is_ok() {
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(Duration::from_millis(50));
    go.send(()).expect("it is awaited");
    dropped.recv_timeout(LONG).expect("the closure ended");
    abandoned.join().expect("no panic").expect("abandon");
}

#[test]
fn a_change_in_a_closure_that_would_wait_for_its_commit_changes_nothing() {
    let _watchdog = Watchdog::start("changes in closures", Duration::from_secs(60));
    let (engine, tree) = opened();
    let session = engine.session().expect("session");
    let records = engine.tree("records").expect("tree");
    session.put_many(&records, &[("a", "1"), ("b", "2")]).expect("put");
    let (inner, inside) = (engine.session().expect("session"), records.clone());
    let outcomes = on_flusher(&session, &tree, move || {
        let (s, t) = (&inner, &inside);
        let mut txn = s.begin().expect("begin");
        txn.put(t, b"k", b"v").expect("put");
        let outcomes = vec![
            s.insert(t, b"k", b"v"),
            s.put(t, b"a", b"v"),
            txn.commit(),
            s.update(t, b"a", b"v").map(|_| ()),
            s.modify(t, b"a", |value| value[0] = b'v').map(|_| ()),
            s.remove(t, b"a").map(|_| ()),
            s.put_many(t, &[("k", "v")]),
            s.remove_many(t, &["a"]).map(|_| ()),
            s.compare_and_swap(t, b"a", Some(b"1"), None).map(|_| ()),
            s.fetch_update(t, b"a", |_| None).map(|_| ()),
            s.pop_first(t).map(|_| ()),
            s.pop_last(t).map(|_| ()),
            s.delete_range(t, "a"..).map(|_| ()),
            s.clear(t).map(|_| ()),
            s.transact(|txn| txn.put(t, b"k", b"v")),
        ];
        let found = s.scan(t).and_then(Iterator::collect::<wattle::Result<Vec<_>>>);
        let ticket = s.put_ticket(t, b"ticket", b"v");
        (outcomes, found, ticket)
    });
    let (outcomes, found, ticket) = outcomes.recv_timeout(LONG).expect("it was called");
    for (number, outcome) in outcomes.iter().enumerate() {
        assert!(matches!(outcome, Err(Error::Reentrant(_))), "{number}: {outcome:?}");
    }
    let expected = [("a", "1"), ("b", "2")].map(|(k, v)| (k.into(), v.into()));
    assert_eq!(found.expect("a scan"), expected);
    ticket.expect("it does not wait").wait().expect("durable");
    assert!(session.contains(&records, b"ticket").expect("contains"));
}

fn poll_once<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Poll<T> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn futures_that_would_wait_for_the_log_in_a_closure_give_an_error() {
    let _watchdog = Watchdog::start("futures in closures", Duration::from_secs(60));
    let (engine, tree) = opened();
    let session = engine.session().expect("session");
    let mut durable = session.put_ticket(&tree, b"durable", b"").expect("put");
    durable.clone().wait().expect("durable");
    let (go, goes) = tokio::sync::oneshot::channel::<()>();
    let mut task =
        engine.spawn(async move |_| goes.await.expect("the sender lives")).expect("spawn");
    let (inner, inside) = (engine.session().expect("session"), tree.clone());
    let (sender, receiver) = mpsc::channel();
    let polled = on_flusher(&session, &tree, move || {
        let put = || inner.put_ticket(&inside, b"k", b"v").expect("it does not wait");
        // Another closure does not wait.
        put().on_durable(move |outcome| sender.send(outcome).expect("it is awaited"));
        let polled = [poll_once(&mut put()), poll_once(&mut task), poll_once(&mut durable)];
        (polled, task)
    });
    let (polled, mut task) = polled.recv_timeout(LONG).expect("it was called");
    let [ticket, spawned, durable] = polled;
    assert!(matches!(ticket, Poll::Ready(Err(Error::Reentrant(_)))), "{ticket:?}");
    assert!(matches!(spawned, Poll::Ready(Err(Error::Reentrant(_)))), "{spawned:?}");
    assert!(matches!(durable, Poll::Ready(Ok(()))), "{durable:?}");
    receiver.recv_timeout(LONG).expect("it was called").expect("durable");
    // The task goes on, and its future still gives its result.
    go.send(()).expect("the task lives");
    while poll_once(&mut task).map(Result::unwrap).is_pending() {
        thread::yield_now();
    }
}
