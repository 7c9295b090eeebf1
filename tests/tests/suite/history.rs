//! Random histories of concurrent transactions on a small pool, checked in the manner of Elle, also
//! across a crash.

use std::{
    ops::{Bound, ControlFlow},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use wattle::{
    AsyncSession, Direction, Engine, Error, Isolation, MIN_LOG_BYTES, Session, Tree, TxnOptions,
    io::{FaultPlan, SimStorage},
};
use wattle_tests::{
    harness::{Device, Random, assert_verified, rounds, seed, small_pool},
    history::{Action, Outcome, Txn, check},
};

const LISTS: u64 = 40;
const THREADS: u64 = 4;
const TRANSACTIONS: u64 = 250;
/// Of a thread that runs tasks.
const TASKS: u64 = 5;

fn numbers(value: Option<Vec<u8>>) -> Vec<u64> {
    let value = value.unwrap_or_default();
    value.chunks(8).map(|number| u64::from_le_bytes(number.try_into().expect("8"))).collect()
}

/// A planned step of a transaction.
enum Step {
    Append(u64, u64),
    Read(u64),
    /// A few lists from this one on.
    Scan(u64),
    /// Lets others run.
    Pause,
}

/// Lists that a scan reads.
const SCANNED: usize = 5;

/// Up to six actions, and whether it takes them back.
fn plan(random: &mut Random, next: &AtomicU64) -> (Vec<Step>, bool) {
    let mut steps = Vec::new();
    for _ in 0..1 + random.below(6) {
        // A few lists are hot.
        let list = random.below(LISTS).min(random.below(LISTS));
        steps.push(match random.below(16) {
            0..8 => Step::Append(list, next.fetch_add(1, Ordering::Relaxed)),
            8 => Step::Scan(list),
            _ => Step::Read(list),
        });
        if random.below(16) == 0 {
            steps.push(Step::Pause);
        }
    }
    (steps, random.below(10) == 0)
}

/// An append reads the list first, and that read counts.
fn appended(actions: &mut Vec<Action>, list: u64, number: u64, value: &mut Vec<u8>) {
    actions.push(Action::Read(list, numbers(Some(value.clone()))));
    value.extend_from_slice(&number.to_le_bytes());
    actions.push(Action::Append(list, number));
}

fn scanned(key: &[u8], value: &[u8]) -> Action {
    let list = u64::from_be_bytes(key.try_into().expect("8 bytes"));
    Action::Read(list, numbers(Some(value.to_vec())))
}

fn of_commit(commit: Result<(), Error>) -> Outcome {
    match commit {
        Ok(()) => Outcome::Committed,
        Err(Error::Conflict(_)) => Outcome::Aborted,
        Err(_) => Outcome::Unknown,
    }
}

/// One transaction of a thread.
fn one(
    session: &Session,
    tree: &Tree,
    isolation: Isolation,
    (steps, abort): (Vec<Step>, bool),
) -> Option<Txn> {
    let options = TxnOptions { isolation, ..TxnOptions::default() };
    let mut txn = session.begin_with(options).ok()?;
    let mut actions = Vec::new();
    let run = || -> Result<(), Error> {
        for step in steps {
            match step {
                Step::Append(list, number) => {
                    let mut value = txn.get(tree, &list.to_be_bytes())?.unwrap_or_default();
                    appended(&mut actions, list, number, &mut value);
                    txn.put(tree, &list.to_be_bytes(), &value)?;
                }
                Step::Read(list) => {
                    let value = txn.get(tree, &list.to_be_bytes())?;
                    actions.push(Action::Read(list, numbers(value)));
                }
                Step::Scan(list) => {
                    for entry in txn.range(tree, &list.to_be_bytes()[..]..)?.take(SCANNED) {
                        let (key, value) = entry?;
                        actions.push(scanned(&key, &value));
                    }
                }
                Step::Pause => std::thread::yield_now(),
            }
        }
        Ok(())
    };
    let outcome = match run() {
        Ok(()) if !abort => of_commit(txn.commit()),
        Ok(()) | Err(Error::Conflict(_)) => {
            txn.abort().expect("abort");
            Outcome::Aborted
        }
        Err(error) => panic!("{error}"),
    };
    Some(Txn { actions, outcome })
}

/// The same as a task.
async fn one_task(
    session: &AsyncSession,
    tree: &Tree,
    isolation: Isolation,
    (steps, abort): (Vec<Step>, bool),
) -> Option<Txn> {
    let options = TxnOptions { isolation, ..TxnOptions::default() };
    let mut txn = session.begin_with(options).ok()?;
    let mut actions = Vec::new();
    let ran: Result<(), Error> = async {
        for step in steps {
            match step {
                Step::Append(list, number) => {
                    let mut value = txn.get(tree, &list.to_be_bytes()).await?.unwrap_or_default();
                    appended(&mut actions, list, number, &mut value);
                    txn.put(tree, &list.to_be_bytes(), &value).await?;
                }
                Step::Read(list) => {
                    let value = txn.get(tree, &list.to_be_bytes()).await?;
                    actions.push(Action::Read(list, numbers(value)));
                }
                Step::Scan(list) => {
                    let (from, mut left) = (list.to_be_bytes(), SCANNED);
                    let bounds = (Bound::Included(&from[..]), Bound::Unbounded);
                    let visit = |key: &[u8], value: &[u8]| {
                        actions.push(scanned(key, value));
                        left -= 1;
                        if left > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                    };
                    txn.visit(tree, bounds, Direction::Forward, visit).await?;
                }
                Step::Pause => tokio::task::yield_now().await,
            }
        }
        Ok(())
    }
    .await;
    let outcome = match ran {
        Ok(()) if !abort => of_commit(txn.commit().await),
        Ok(()) | Err(Error::Conflict(_)) => {
            txn.abort().await.expect("abort");
            Outcome::Aborted
        }
        Err(error) => panic!("{error}"),
    };
    Some(Txn { actions, outcome })
}

/// Runs transactions in threads, or in tasks of half as many.
fn run(
    engine: &Engine,
    isolation: Isolation,
    tasks: bool,
    seed: u64,
    next: &Arc<AtomicU64>,
) -> Vec<Txn> {
    let tree = engine.tree("lists").expect("tree");
    std::thread::scope(|scope| {
        let thread = |thread: u64| {
            let (engine, tree) = (engine, &tree);
            scope.spawn(move || {
                let session = engine.session().expect("session");
                let mut random = Random::new(seed * 100 + thread);
                (0..TRANSACTIONS)
                    .filter_map(|_| one(&session, tree, isolation, plan(&mut random, next)))
                    .collect::<Vec<_>>()
            })
        };
        let thread_of_tasks = |thread: u64| {
            let (engine, tree, next) = (engine.clone(), tree.clone(), next.clone());
            scope.spawn(move || {
                let work = async move {
                    let session = engine.async_session().expect("session");
                    let spawn = |task| {
                        let (session, tree, next) = (session.clone(), tree.clone(), next.clone());
                        tokio::task::spawn_local(async move {
                            let mut random = Random::new(seed * 100 + thread * TASKS + task);
                            let mut done = Vec::new();
                            for _ in 0..2 * TRANSACTIONS / TASKS {
                                let plan = plan(&mut random, &next);
                                done.extend(one_task(&session, &tree, isolation, plan).await);
                            }
                            done
                        })
                    };
                    let tasks: Vec<_> = (0..TASKS).map(spawn).collect();
                    let mut done = Vec::new();
                    for task in tasks {
                        done.extend(task.await.expect("a task panicked"));
                    }
                    done
                };
                wattle::run(64, work).expect("runtime")
            })
        };
        let threads: Vec<_> = match tasks {
            false => (0..THREADS).map(thread).collect(),
            true => (0..THREADS / 2).map(thread_of_tasks).collect(),
        };
        threads.into_iter().flat_map(|thread| thread.join().expect("thread")).collect()
    })
}

/// The lists as they are now, read by a transaction of its own.
fn last(engine: &Engine) -> Txn {
    let (session, tree) = (engine.session().expect("session"), engine.tree("lists").expect("tree"));
    let read = |list: u64| numbers(session.get(&tree, &list.to_be_bytes()).expect("get"));
    let actions = (0..LISTS).map(|list| Action::Read(list, read(list))).collect();
    Txn { actions, outcome: Outcome::Committed }
}

fn assert_checked(history: &[Txn], isolation: Isolation, seed: u64) {
    let problems = check(history, isolation == Isolation::Serializable);
    let committed = history.iter().filter(|txn| txn.outcome == Outcome::Committed).count();
    assert!(problems.is_empty(), "seed {seed}, {isolation:?}: {problems:#?}");
    assert!(committed > history.len() / 10, "seed {seed}: only {committed} commits");
}

fn histories(tasks: bool, count: u64) {
    let first = seed();
    for round in 0..count * rounds() {
        let seed = first.wrapping_add(round) % (1 << 32);
        for isolation in [Isolation::Snapshot, Isolation::Serializable] {
            let device = Arc::new(SimStorage::new(FaultPlan::new(seed)));
            let options = small_pool(64).log_bytes(MIN_LOG_BYTES);
            let engine = Device::sim(&device).open(options.clone()).expect("open");
            let next = Arc::new(AtomicU64::new(1));
            let mut history = run(&engine, isolation, tasks, seed, &next);
            history.push(last(&engine));
            assert_checked(&history, isolation, seed);
            // A power cut, and on: what was acknowledged is still there, in the same order.
            let crashed = Arc::new(device.crash(seed));
            let _ = engine.close();
            let engine = Device::sim(&crashed).open(options).expect("recover");
            history.extend(run(&engine, isolation, tasks, seed + 1, &next));
            history.push(last(&engine));
            assert_checked(&history, isolation, seed);
            assert_verified(&engine);
        }
    }
}

#[test]
fn histories_have_no_anomaly_that_their_level_forbids() {
    histories(false, 6);
}

#[test]
fn histories_of_tasks_have_no_anomaly_that_their_level_forbids() {
    histories(true, 3);
}
