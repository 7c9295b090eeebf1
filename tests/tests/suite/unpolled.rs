//! Futures that are polled and then kept, as `select!` over `&mut future` and buffered streams do,
//! runtimes whose thread is blocked, and blocking calls inside of a runtime: no other task waits
//! for them, and no wait is forever.

use std::{
    future::Future,
    path::Path,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};
use tokio::task::{spawn_local, yield_now};
use wattle::{AsyncSession, Durability, Engine, Error, IoKind, Options, Result, Tree, run};
use wattle_tests::harness::{Random, Watchdog, assert_verified, eventually};

/// Records of a tree that is several times larger than the pool.
const RECORDS: u64 = 8000;
/// Frames are lacking for this long: an error.
const STALL: Duration = Duration::from_secs(20);
/// No operation may take longer beside futures that are not polled.
const SOON: Duration = Duration::from_secs(5);
const BACK_ENDS: [IoKind; 3] = [IoKind::Uring, IoKind::Threads, IoKind::Buffered];

fn key(i: u64) -> Vec<u8> {
    format!("key{i:08}").into_bytes()
}

fn value(i: u64) -> [u8; 100] {
    [i as u8; 100]
}

/// A store in `directory` with one tree, most of it not in memory.
fn store(directory: &Path, io: IoKind) -> (Engine, Tree) {
    let options = Options::default()
        .pool_bytes(420_000)
        .log_bytes(32 << 20)
        .io(io)
        .durability(Durability::None)
        .stall_timeout(STALL);
    let engine = Engine::open(directory, options).expect("open");
    let tree = engine.tree("t").expect("a tree");
    let session = engine.session().expect("a session");
    for i in 0..RECORDS {
        session.put(&tree, &key(i), &value(i)).expect("put");
    }
    drop(session);
    engine.checkpoint().expect("a checkpoint");
    (engine, tree)
}

fn on_each(what: &'static str, test: impl Fn(Engine, Tree, &Watchdog)) {
    let watchdog = Watchdog::start(what, Duration::from_secs(60));
    for io in BACK_ENDS {
        let directory = tempfile::tempdir().expect("a directory");
        let (engine, tree) = store(directory.path(), io);
        test(engine.clone(), tree, &watchdog);
        assert_verified(&engine);
        engine.close().expect("close");
        watchdog.step();
    }
}

fn poll_once<T>(future: &mut Pin<Box<dyn Future<Output = T> + '_>>) -> Option<T> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

type Get<'a> = Pin<Box<dyn Future<Output = Result<Option<Vec<u8>>>> + 'a>>;

/// Begins look-ups of records that are not in memory, until so many wait; gives them and their
/// keys.
async fn begin_gets<'a>(
    session: &'a AsyncSession,
    tree: &'a Tree,
    count: usize,
) -> Vec<(u64, Get<'a>)> {
    let mut kept = Vec::new();
    for i in (0..RECORDS).step_by(37) {
        if kept.len() == count {
            break;
        }
        let name = key(i);
        let mut get: Get<'a> = Box::pin(async move { session.get(tree, &name).await });
        if let Some(found) = poll_once(&mut get) {
            assert_eq!(found.expect("get"), Some(value(i).to_vec()));
        } else {
            kept.push((i, get));
        }
        // Those in memory are others now.
        if i % 2 == 0 {
            session.get(tree, &key(RECORDS - 1 - i)).await.expect("get");
        }
    }
    assert_eq!(kept.len(), count, "everything is in memory");
    kept
}

/// Reads and changes these records in a blocking session of another thread.
fn others_use(engine: &Engine, tree: &Tree, keys: Vec<u64>) -> std::thread::JoinHandle<()> {
    let (engine, tree) = (engine.clone(), tree.clone());
    std::thread::spawn(move || {
        let session = engine.session().expect("a session");
        for i in keys {
            let began = Instant::now();
            assert_eq!(session.get(&tree, &key(i)).expect("get"), Some(value(i).to_vec()));
            session.put(&tree, &key(i), &value(i)).expect("put");
            assert!(began.elapsed() < SOON, "record {i} was there after {:?}", began.elapsed());
        }
    })
}

/// Goes on with other work of the task until the thread has ended.
async fn work_beside(
    session: &AsyncSession,
    tree: &Tree,
    thread: std::thread::JoinHandle<()>,
    watchdog: &Watchdog,
) {
    let mut random = Random::new(7);
    while !thread.is_finished() {
        let i = random.below(RECORDS);
        let began = Instant::now();
        assert_eq!(session.get(tree, &key(i)).await.expect("get"), Some(value(i).to_vec()));
        assert!(began.elapsed() < SOON, "record {i} was there after {:?}", began.elapsed());
        watchdog.step();
    }
    thread.join().expect("no panic");
}

#[test]
fn look_ups_that_are_begun_and_kept_hold_no_page_from_others() {
    on_each("kept futures", |engine, tree, watchdog| {
        // More than the ring has places.
        for count in [1, 4, 40] {
            run(4, async {
                let session = engine.async_session().expect("a session");
                let kept = begin_gets(&session, &tree, count).await;
                let keys = kept.iter().map(|(i, _)| *i).collect();
                let others = others_use(&engine, &tree, keys);
                work_beside(&session, &tree, others, watchdog).await;
                // Tasks of the same thread want the same pages.
                for (i, _) in &kept {
                    let found = session.get(&tree, &key(*i)).await.expect("get");
                    assert_eq!(found, Some(value(*i).to_vec()));
                }
                for (number, (i, get)) in kept.into_iter().enumerate() {
                    if number % 2 == 0 {
                        assert_eq!(get.await.expect("get"), Some(value(i).to_vec()));
                    }
                }
            })
            .expect("a runtime");
        }
    });
}

#[test]
fn look_ups_of_a_thread_that_is_blocked_hold_no_page_from_others() {
    on_each("a blocked runtime", |engine, tree, watchdog| {
        run(4, async {
            let session = engine.async_session().expect("a session");
            for _ in 0..3 {
                // Some are in the ring, the others wait for a place in it.
                let kept = begin_gets(&session, &tree, 12).await;
                let keys = kept.iter().map(|(i, _)| *i).collect();
                let others = others_use(&engine, &tree, keys);
                // No task of this thread runs meanwhile.
                others.join().expect("no panic");
                watchdog.step();
                for (i, get) in kept {
                    assert_eq!(get.await.expect("get"), Some(value(i).to_vec()));
                }
            }
        })
        .expect("a runtime");
    });
}

#[test]
fn a_task_reads_for_itself_what_the_task_of_a_blocked_thread_has_begun_to_read() {
    on_each("tasks beside a blocked runtime", |engine, tree, watchdog| {
        run(4, async {
            let session = engine.async_session().expect("a session");
            let kept = begin_gets(&session, &tree, 12).await;
            let keys: Vec<_> = kept.iter().map(|(i, _)| *i).collect();
            let (other, same) = (engine.clone(), tree.clone());
            let tasks = std::thread::spawn(move || {
                run(4, async {
                    let session = other.async_session().expect("a session");
                    for i in keys {
                        let began = Instant::now();
                        let found = session.get(&same, &key(i)).await.expect("get");
                        assert_eq!(found, Some(value(i).to_vec()));
                        assert!(began.elapsed() < SOON, "after {:?}", began.elapsed());
                    }
                })
                .expect("a runtime");
            });
            tasks.join().expect("no panic");
            watchdog.step();
            drop(kept);
        })
        .expect("a runtime");
    });
}

#[test]
fn the_janitor_is_not_held_by_a_look_up_that_is_kept() {
    on_each("the janitor beside a kept future", |engine, tree, watchdog| {
        run(4, async {
            let session = engine.async_session().expect("a session");
            let old = session.begin().expect("begin");
            session.remove(&tree, &key(17)).await.expect("remove");
            for i in 0..4000 {
                session.get(&tree, &key(1000 + i * 13 % 7000)).await.expect("get");
            }
            // The leaf of the ghost, which the janitor is to remove.
            let name = key(16);
            let mut get: Get<'_> = Box::pin(async { session.get(&tree, &name).await });
            let waits = poll_once(&mut get).is_none();
            drop(old);
            // A roll-back that the janitor is to make.
            let mut abandoned = session.begin().expect("begin");
            abandoned.put(&tree, &key(6000), b"abandoned").await.expect("put");
            drop(abandoned);
            let began = Instant::now();
            session.put(&tree, &key(6000), &value(6000)).await.expect("put");
            assert!(began.elapsed() < SOON, "rolled back after {:?}", began.elapsed());
            let bytes = || engine.stats().version_bytes;
            let reader = engine.clone();
            let rest = move || {
                eventually("versions are dropped", || reader.stats().version_bytes < 1 << 16)
            };
            // Without polling the future, on a thread that waits.
            std::thread::spawn(rest).join().unwrap_or_else(|_| panic!("{} bytes", bytes()));
            watchdog.step();
            if waits {
                assert_eq!(get.await.expect("get"), Some(value(16).to_vec()));
            }
            session.put(&tree, &key(17), &value(17)).await.expect("put");
        })
        .expect("a runtime");
    });
}

/// Runs `call` again and again on the thread of a runtime whose tasks read.
fn call_beside_tasks(
    engine: &Engine,
    tree: &Tree,
    watchdog: &Watchdog,
    mut call: impl FnMut(&mut Random),
) {
    run(8, async {
        let session = engine.async_session().expect("a session");
        let mut tasks = Vec::new();
        for task in 0..12 {
            let (session, tree) = (session.clone(), tree.clone());
            tasks.push(spawn_local(async move {
                let mut random = Random::new(task);
                loop {
                    let i = random.below(RECORDS);
                    assert!(session.get(&tree, &key(i)).await.expect("get").is_some());
                }
            }));
        }
        let (began, mut random, mut calls) = (Instant::now(), Random::new(99), 0);
        while began.elapsed() < Duration::from_millis(500) || calls < 20 {
            // Their reads are under way.
            for _ in 0..random.below(20) {
                yield_now().await;
            }
            let call_began = Instant::now();
            call(&mut random);
            assert!(call_began.elapsed() < SOON * 3, "a call took {:?}", call_began.elapsed());
            calls += 1;
            watchdog.step();
        }
        for task in tasks {
            task.abort();
        }
    })
    .expect("a runtime");
}

#[test]
fn calls_that_block_work_inside_of_a_runtime() {
    on_each("blocking calls in a runtime", |engine, tree, watchdog| {
        let call = |call: &mut dyn FnMut(&mut Random)| {
            call_beside_tasks(&engine, &tree, watchdog, |random| call(random));
        };
        call(&mut |random| {
            let i = random.below(RECORDS);
            let session = engine.session().expect("a session");
            assert_eq!(session.get(&tree, &key(i)).expect("get"), Some(value(i).to_vec()));
            let keys: Vec<_> = (0..20).map(|_| key(random.below(RECORDS))).collect();
            session.multi_get(&tree, &keys, |_, found| assert!(found.is_some())).expect("get");
        });
        call(&mut |random| {
            let mut txn = engine.begin().expect("begin");
            let i = random.below(RECORDS);
            txn.put(&tree, &key(i), &value(i)).expect("put");
            txn.commit().expect("commit");
        });
        call(&mut |_| _ = engine.tree_stats().expect("sizes"));
        call(&mut |_| engine.checkpoint().expect("a checkpoint"));
        let mut verified = 0;
        call(&mut |_| {
            verified += 1;
            if verified <= 5 {
                assert_verified(&engine);
            }
        });
        call(&mut |_| {
            let other = engine.tree("other").expect("a tree");
            engine.drop_tree(other).expect("drop");
        });
        let scan = engine.session().expect("a session");
        call(&mut |random| {
            let from = key(random.below(RECORDS - 200));
            let range = scan.range(&tree, from.as_slice()..).expect("a range");
            assert_eq!(range.take(200).filter(|entry| entry.is_ok()).count(), 200);
        });
        drop(scan);
        let target = tempfile::tempdir().expect("a directory");
        let mut number = 0;
        call(&mut |_| {
            number += 1;
            if number <= 2 {
                let path = target.path().join(number.to_string());
                engine.backup(&path).expect("a backup");
            }
        });
    });
}

#[test]
fn a_wait_for_a_transaction_of_the_same_thread_ends_with_an_error() {
    on_each("a conflict in a runtime", |engine, tree, _| {
        run(4, async {
            let session = engine.async_session().expect("a session");
            let mut open = session.begin().expect("begin");
            open.put(&tree, &key(5), &value(5)).await.expect("put");
            let blocking = engine.session().expect("a session");
            let began = Instant::now();
            let refused = blocking.put(&tree, &key(5), b"other");
            assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
            assert!(began.elapsed() < 2 * STALL, "after {:?}", began.elapsed());
            open.commit().await.expect("commit");
        })
        .expect("a runtime");
    });
}
