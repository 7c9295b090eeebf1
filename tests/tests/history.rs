//! Random histories of concurrent transactions on a small pool, checked in the manner of Elle, also
//! across a crash.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use wattle::{
    Engine, Error, Isolation, MIN_LOG_BYTES, Session, Tree, TxnOptions,
    io::{FaultPlan, SimStorage},
};
use wattle_tests::{
    harness::{Device, Random, assert_verified, rounds, seed, small_pool},
    history::{Action, Outcome, Txn, check},
};

const LISTS: u64 = 40;
const THREADS: u64 = 4;
const TRANSACTIONS: u64 = 250;

fn numbers(value: Option<Vec<u8>>) -> Vec<u64> {
    let value = value.unwrap_or_default();
    value.chunks(8).map(|number| u64::from_le_bytes(number.try_into().expect("8"))).collect()
}

/// One transaction of up to six actions.
fn one(
    session: &Session,
    tree: &Tree,
    isolation: Isolation,
    random: &mut Random,
    next: &AtomicU64,
) -> Option<Txn> {
    let options = TxnOptions { isolation, ..TxnOptions::default() };
    let mut txn = session.begin_with(options).ok()?;
    let mut actions = Vec::new();
    let mut run = || -> Result<(), Error> {
        for _ in 0..1 + random.below(6) {
            // A few lists are hot.
            let list = random.below(LISTS).min(random.below(LISTS));
            let key = list.to_be_bytes();
            if random.below(2) == 0 {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let mut value = txn.get(tree, &key)?.unwrap_or_default();
                // What it read to append counts as read.
                actions.push(Action::Read(list, numbers(Some(value.clone()))));
                value.extend_from_slice(&number.to_le_bytes());
                txn.put(tree, &key, &value)?;
                actions.push(Action::Append(list, number));
            } else if random.below(8) == 0 {
                for entry in txn.range(tree, &key[..]..)?.take(5) {
                    let (key, value) = entry?;
                    let list = u64::from_be_bytes(key.try_into().expect("8 bytes"));
                    actions.push(Action::Read(list, numbers(Some(value))));
                }
            } else {
                actions.push(Action::Read(list, numbers(txn.get(tree, &key)?)));
            }
            if random.below(16) == 0 {
                std::thread::yield_now();
            }
        }
        Ok(())
    };
    let ran = run();
    let outcome = match ran {
        Err(Error::Conflict(_)) => {
            txn.abort().expect("abort");
            Outcome::Aborted
        }
        Err(error) => panic!("{error}"),
        Ok(()) if random.below(10) == 0 => {
            txn.abort().expect("abort");
            Outcome::Aborted
        }
        Ok(()) => match txn.commit() {
            Ok(()) => Outcome::Committed,
            Err(Error::Conflict(_)) => Outcome::Aborted,
            Err(_) => Outcome::Unknown,
        },
    };
    Some(Txn { actions, outcome })
}

fn run(engine: &Engine, isolation: Isolation, seed: u64, next: &AtomicU64) -> Vec<Txn> {
    let tree = engine.tree("lists").expect("tree");
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (engine, tree) = (engine, &tree);
                scope.spawn(move || {
                    let session = engine.session().expect("session");
                    let mut random = Random::new(seed * 100 + thread);
                    (0..TRANSACTIONS)
                        .filter_map(|_| one(&session, tree, isolation, &mut random, next))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
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

#[test]
fn histories_have_no_anomaly_that_their_level_forbids() {
    let first = seed();
    for round in 0..6 * rounds() {
        let seed = first.wrapping_add(round) % (1 << 32);
        for isolation in [Isolation::Snapshot, Isolation::Serializable] {
            let device = Arc::new(SimStorage::new(FaultPlan::new(seed)));
            let options = small_pool(64).log_bytes(MIN_LOG_BYTES);
            let engine = Device::sim(&device).open(options.clone()).expect("open");
            let next = AtomicU64::new(1);
            let mut history = run(&engine, isolation, seed, &next);
            history.push(last(&engine));
            assert_checked(&history, isolation, seed);
            // A power cut, and on: what was acknowledged is still there, in the same order.
            let crashed = Arc::new(device.crash(seed));
            let _ = engine.close();
            let engine = Device::sim(&crashed).open(options).expect("recover");
            history.extend(run(&engine, isolation, seed + 1, &next));
            history.push(last(&engine));
            assert_checked(&history, isolation, seed);
            assert_verified(&engine);
        }
    }
}
