//! Garbage of transactions: replaced large values, ghosts of removed records, transactions that
//! were dropped where no thread could wait. Old snapshots see it while they live; then it is
//! cleared, and its room is free again.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use wattle::{
    Durability, Engine, Error, IoKind, MIN_LOG_BYTES, Options, Session, Transaction, Tree,
    io::{Cut, Fault, FaultPlan, Op, SimStorage},
};
use wattle_tests::harness::{Device, assert_verified, eventually, rounds, small_pool};

fn modes(frames: u64) -> [Options; 3] {
    let logged = small_pool(frames).log_bytes(MIN_LOG_BYTES).stall_timeout(Duration::from_secs(10));
    [logged.clone().log(false), logged.clone(), logged.durability(Durability::None)]
}

fn each_mode(test: impl Fn(&Engine, &Tree, &Session)) {
    for options in modes(96) {
        println!("{options:?}");
        let engine = Device::memory().open(options).expect("open");
        let tree = engine.tree("tree").expect("tree");
        let session = engine.session().expect("session");
        test(&engine, &tree, &session);
        drop(session);
        assert_verified(&engine);
        drop(tree);
        engine.close().expect("close");
    }
}

fn large(number: u32, version: u8) -> Vec<u8> {
    let len = 2000 + (number as usize * 7919 + usize::from(version) * 104_729) % 30_000;
    (0..len).map(|i| (i as u8).wrapping_mul(31) ^ version ^ number as u8).collect()
}

fn see(txn: &Transaction<'_>, tree: &Tree, number: u32) -> Option<Vec<u8>> {
    txn.get(tree, &number.to_be_bytes()).expect("get")
}

fn large_pages(engine: &Engine) -> u64 {
    engine.tree_stats().expect("sizes").iter().map(|tree| tree.large_pages).sum()
}

const VALUES: u32 = 40;

#[test]
fn old_snapshots_read_large_values_that_were_replaced_and_removed_until_they_end() {
    each_mode(|engine, tree, session| {
        let mut snapshots = Vec::new();
        for version in 0..5u8 {
            let mut txn = session.begin().expect("begin");
            for number in 0..VALUES {
                match (number + u32::from(version)) % 5 {
                    0 => drop(txn.remove(tree, &number.to_be_bytes()).expect("remove")),
                    1 => txn.put(tree, &number.to_be_bytes(), &[version; 10]).expect("put"),
                    _ => {
                        // Twice: the first of them is never seen by anyone.
                        txn.put(tree, &number.to_be_bytes(), &large(number, 99)).expect("put");
                        txn.put(tree, &number.to_be_bytes(), &large(number, version)).expect("put");
                    }
                }
            }
            if version == 3 {
                txn.abort().expect("abort");
                continue;
            }
            txn.commit().expect("commit");
            snapshots.push((version, engine.begin().expect("begin")));
        }
        let check = |version: u8, txn: &Transaction<'_>| {
            let expected = |number: u32| match (number + u32::from(version)) % 5 {
                0 => None,
                1 => Some(vec![version; 10]),
                _ => Some(large(number, version)),
            };
            for number in 0..VALUES {
                assert!(see(txn, tree, number) == expected(number), "{number} at {version}");
            }
            let found = txn.scan(tree).expect("scan").rev().map(|entry| entry.expect("entry").1);
            assert!(found.eq((0..VALUES).rev().filter_map(expected)), "a scan at {version}");
        };
        // The oldest one ends first, then the newest: the others see what they saw.
        for round in 0..4 {
            std::thread::sleep(Duration::from_millis(20));
            snapshots.iter().for_each(|(version, txn)| check(*version, txn));
            drop(snapshots.remove(if round == 0 { 0 } else { snapshots.len() - 1 }));
        }
        for number in 0..VALUES {
            session.remove(tree, &number.to_be_bytes()).expect("remove");
        }
        engine.sync().expect("sync");
        eventually("all chunks are cleared away", || large_pages(engine) <= 1);
    });
}

#[test]
fn aborted_large_values_leave_no_chunks() {
    each_mode(|engine, tree, session| {
        session.put(tree, &0u32.to_be_bytes(), &large(0, 1)).expect("put");
        let before = engine.stats().used_pages;
        for turn in 0..20 * rounds() {
            let mut txn = session.begin().expect("begin");
            for number in 0..VALUES {
                txn.put(tree, &number.to_be_bytes(), &large(number, turn as u8)).expect("put");
            }
            let savepoint = txn.savepoint();
            txn.remove(tree, &0u32.to_be_bytes()).expect("remove");
            txn.put(tree, &1u32.to_be_bytes(), &large(1, 200)).expect("put");
            if turn % 2 == 0 {
                txn.rollback_to(&savepoint).expect("roll back");
                assert!(see(&txn, tree, 1) == Some(large(1, turn as u8)));
            }
            if turn % 3 == 0 {
                drop(txn)
            } else {
                txn.abort().expect("abort")
            }
            assert_eq!(session.scan(tree).expect("scan").count(), 1);
        }
        assert!(session.get(tree, &0u32.to_be_bytes()).expect("get") == Some(large(0, 1)));
        // Some of them take a moment on a busy machine.
        eventually("the pages of the chunks are free again", || {
            engine.stats().used_pages <= before + 10
        });
    });
}

#[test]
fn ghosts_vanish_when_no_snapshot_needs_them() {
    const RECORDS: u32 = 20_000;
    each_mode(|engine, tree, session| {
        let empty = engine.stats().used_pages;
        for in_one in [false, true] {
            for number in 0..RECORDS {
                session.put_ticket(tree, &number.to_be_bytes(), &[7; 40]).map(drop).expect("put");
            }
            let old = engine.begin().expect("begin");
            let mut txn = session.begin().expect("begin");
            for number in 0..RECORDS {
                let key = number.to_be_bytes();
                if in_one {
                    assert!(txn.remove(tree, &key).expect("remove"));
                } else {
                    session.remove_ticket(tree, &key).map(drop).expect("remove");
                }
            }
            txn.commit().expect("commit");
            engine.sync().expect("sync");
            assert_eq!(session.scan(tree).expect("scan").count(), 0);
            assert_eq!(old.scan(tree).expect("scan").count(), RECORDS as usize);
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(old.scan(tree).expect("scan").rev().count(), RECORDS as usize);
            drop(old);
            eventually("the pages come back", || engine.stats().used_pages <= empty + 12);
        }
    });
}

#[test]
fn ghosts_that_a_roll_back_puts_back_vanish_too() {
    const RECORDS: u32 = 5000;
    each_mode(|engine, tree, session| {
        let empty = engine.stats().used_pages;
        for number in 0..RECORDS {
            session.put_ticket(tree, &number.to_be_bytes(), &[7; 100]).map(drop).expect("put");
        }
        let old = engine.begin().expect("begin");
        for number in 0..RECORDS {
            session.remove_ticket(tree, &number.to_be_bytes()).map(drop).expect("remove");
        }
        engine.sync().expect("sync");
        let mut txn = session.begin().expect("begin");
        for number in 0..RECORDS {
            txn.put(tree, &number.to_be_bytes(), &[8; 100]).expect("put");
        }
        drop(old);
        // The janitor finds records in the place of the ghosts.
        std::thread::sleep(Duration::from_millis(100));
        txn.abort().expect("abort");
        assert_eq!(session.scan(tree).expect("scan").count(), 0);
        eventually("the pages come back", || engine.stats().used_pages <= empty + 12);
    });
}

/// An engine whose transactions soon take their tree for themselves.
fn few_versions(bytes: u64) -> (Engine, Tree, Session) {
    let options = small_pool(16_000).version_bytes(bytes).durability(Durability::None);
    let engine = Device::memory().open(options).expect("open");
    let (tree, session) = (engine.tree("tree").expect("tree"), engine.session().expect("session"));
    (engine, tree, session)
}

/// As a program makes them that clears old records away, many in each transaction.
#[test]
fn ghosts_of_large_transactions_that_follow_each_other_vanish() {
    const EACH: u32 = 5000;
    let (engine, tree, session) = few_versions(1 << 20);
    let empty = engine.stats().used_pages;
    for number in 0..20 * EACH {
        session.put(&tree, &number.to_be_bytes(), &[1; 100]).expect("put");
    }
    for batch in 0..20 {
        let mut txn = session.begin().expect("begin");
        for number in batch * EACH..(batch + 1) * EACH {
            assert!(txn.remove(&tree, &number.to_be_bytes()).expect("remove"));
        }
        txn.commit().expect("commit");
    }
    eventually("the pages come back", || engine.stats().used_pages <= empty + 12);
    drop(session);
    assert_verified(&engine);
}

/// Of commits before a large transaction, which the janitor comes to while that has the tree for
/// itself.
#[test]
fn ghosts_vanish_although_a_large_transaction_has_the_tree_meanwhile() {
    let (engine, tree, session) = few_versions(8 << 20);
    let worker = engine.session().expect("session");
    let key = |part: u8, number: u32| [&[part][..], &number.to_be_bytes()].concat();
    for number in 0..6000 {
        session.put(&tree, &key(1, number), &[1; 600]).expect("put");
    }
    let before = engine.stats().used_pages;
    for number in 0..10_000 {
        session.put(&tree, &key(0, number), &[1; 40]).expect("put");
    }
    let old = engine.begin().expect("begin");
    for number in 0..10_000 {
        session.remove(&tree, &key(0, number)).expect("remove");
    }
    let mut txn = worker.begin().expect("begin");
    for number in 0..6000 {
        txn.update(&tree, &key(1, number), &[2; 600]).expect("update");
    }
    drop(old);
    // The janitor passes by.
    std::thread::sleep(Duration::from_millis(300));
    assert!(engine.stats().used_pages > before + 12, "the transaction is not large");
    txn.commit().expect("commit");
    eventually("the pages come back", || engine.stats().used_pages <= before + 12);
    drop((session, worker));
    assert_verified(&engine);
}

#[test]
fn ghosts_that_recovery_puts_back_vanish() {
    const RECORDS: u32 = 5000;
    let device = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let options = || small_pool(2000).log_bytes(8 * MIN_LOG_BYTES);
    let engine = Device::sim(&device).open(options()).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    let empty = engine.stats().used_pages;
    for number in 0..RECORDS {
        session.put_ticket(&tree, &number.to_be_bytes(), &[7; 100]).map(drop).expect("put");
    }
    let _old = engine.begin().expect("begin");
    for number in 0..RECORDS {
        session.remove_ticket(&tree, &number.to_be_bytes()).map(drop).expect("remove");
    }
    let mut txn = session.begin().expect("begin");
    for number in 0..RECORDS {
        txn.put(&tree, &number.to_be_bytes(), &[8; 100]).expect("put");
    }
    engine.sync().expect("sync");
    let left = Arc::new(device.crash_as(1, Cut::Nothing));
    let engine = Device::sim(&left).open(options()).expect("open after the crash");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    assert_eq!(session.scan(&tree).expect("scan").count(), 0);
    eventually("the pages come back", || engine.stats().used_pages <= empty + 12);
    drop(session);
    assert_verified(&engine);
}

#[test]
fn inserts_between_ghosts_find_room_in_their_leaves() {
    each_mode(|engine, tree, session| {
        // The same keys again and again: without reuse of the room of ghosts the tree would grow.
        for number in 0..2000u32 {
            session.put_ticket(tree, &number.to_be_bytes(), &[0; 100]).map(drop).expect("put");
        }
        engine.sync().expect("sync");
        let before = engine.stats().used_pages;
        for turn in 0..30 * rounds() {
            let mut txn = session.begin().expect("begin");
            for number in 0..2000u32 {
                let key = (number * 7 % 2000).to_be_bytes();
                assert!(txn.remove(tree, &key).expect("remove"));
                if number % 3 == turn as u32 % 3 {
                    txn.insert(tree, &key, &[turn as u8; 120]).expect("insert");
                } else {
                    txn.put(tree, &key, &[turn as u8; 60]).expect("put");
                }
            }
            txn.commit().expect("commit");
        }
        assert_eq!(session.scan(tree).expect("scan").count(), 2000);
        let after = engine.stats().used_pages;
        assert!(after <= before * 2 + 20, "{before} pages before, {after} after");
    });
}

#[cfg(feature = "async")]
#[test]
fn asynchronous_transactions_dropped_anywhere_are_rolled_back() {
    const RECORDS: u32 = 20_000;
    // Reads that take a while, so that tasks are dropped in the middle of operations.
    let latency = Fault::Latency(Duration::from_micros(300));
    let plan = FaultPlan::new(1).sometimes(Op::Read, 0.3, latency);
    for options in modes(48) {
        println!("{options:?}");
        let device = Device::sim(&Arc::new(SimStorage::new(plan.clone())));
        let engine = device.open(options).expect("open");
        let tree = engine.tree("tree").expect("tree");
        let session = engine.session().expect("session");
        let records = (0..RECORDS).map(|number| (number.to_be_bytes(), [0; 100]));
        session.bulk_load(&tree, records).expect("load");
        let before: Vec<_> = session.scan(&tree).expect("scan").map(Result::unwrap).collect();
        let (ours, theirs) = (engine.clone(), tree.clone());
        wattle::run(16, async move {
            let session = ours.async_session().expect("session");
            for turn in 0..30 * rounds() as u32 {
                let tasks: Vec<_> = (0..4u32)
                    .map(|task| {
                        let (session, tree) = (session.clone(), theirs.clone());
                        tokio::task::spawn_local(async move {
                            let mut txn = session.begin().expect("begin");
                            for i in 0..1000u32 {
                                // Its own keys, so that it meets no conflict.
                                let key = ((turn * 131 + i) * 977 % (RECORDS / 4) * 4 + task)
                                    .to_be_bytes();
                                match i % 5 {
                                    0 => drop(txn.remove(&tree, &key).await?),
                                    1 => txn.put(&tree, &key, &large(i, 3)).await?,
                                    2 => {
                                        let savepoint = txn.savepoint();
                                        txn.put(&tree, &key, b"for a moment").await?;
                                        txn.rollback_to(&savepoint).await?;
                                    }
                                    _ => txn.put(&tree, &key, &[turn as u8; 300]).await?,
                                }
                                tokio::task::yield_now().await;
                            }
                            txn.abort().await
                        })
                    })
                    .collect();
                for _ in 0..turn % 23 * 5 {
                    tokio::task::yield_now().await;
                }
                tasks.iter().for_each(tokio::task::JoinHandle::abort);
                for task in tasks {
                    match task.await {
                        // The roll-back of one that was dropped before is still under way.
                        Ok(Err(Error::Conflict(_) | Error::MustAbort(_))) | Ok(Ok(())) => {}
                        Ok(Err(error)) => panic!("{error}"),
                        Err(error) => assert!(error.is_cancelled(), "{error}"),
                    }
                }
            }
        })
        .expect("runtime");
        // Everything is free again, in a moment.
        for number in (0..RECORDS).step_by(7) {
            assert!(session.modify(&tree, &number.to_be_bytes(), |_| ()).expect("modify"));
        }
        let after: Vec<_> = session.scan(&tree).expect("scan").map(Result::unwrap).collect();
        assert!(before == after, "a transaction that was dropped left something");
        drop(session);
        assert_verified(&engine);
        drop(tree);
        engine.close().expect("close");
    }
}

/// Two leaves that would fill a page stay two; a leaf whose right neighbour is full goes into the
/// left one.
#[test]
fn an_underfull_leaf_goes_into_the_neighbour_that_has_room_for_it() {
    let engine = Device::memory().open(small_pool(96).log(false)).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    // Each leaf is full when the next one begins.
    let mut starts = vec![0];
    for i in 0..500u32 {
        let splits = engine.stats().splits;
        session.insert(&tree, &i.to_be_bytes(), &[1; 85]).expect("insert");
        if engine.stats().splits > splits {
            starts.push(i);
        }
    }
    // Keeps so many per cent of the records of a leaf, the last ones.
    let keep = |leaf: usize, percent: u32| {
        let (start, end) = (starts[leaf], starts[leaf + 1]);
        for i in start..end - (end - start) * percent / 100 {
            assert!(session.remove(&tree, &i.to_be_bytes()).expect("remove"));
        }
    };
    keep(3, 52);
    keep(2, 33);
    keep(5, 45);
    assert_eq!(engine.stats().merges, 0);
    keep(6, 20);
    eventually("leaf 6 goes into leaf 5", || engine.stats().merges > 0);
    // The ghosts of the first removals were cleared first.
    assert_eq!(engine.stats().merges, 1, "leaves 2 and 3 stay two");
    assert_eq!(engine.tree_stats().expect("sizes")[0].leaf_pages as usize, starts.len() - 1);
    assert_verified(&engine);
}

/// Ghosts are removed when the snapshots that need them are cancelled. The owner of such a snapshot
/// gets an error, not the answer that there is no record.
#[test]
fn snapshots_that_were_given_up_do_not_miss_records_silently() {
    const RECORDS: u32 = 2000;
    const FILLERS: u32 = 1500;
    let options = Options::default().io(IoKind::Memory).log(false).version_bytes(1 << 20);
    let engine = Engine::open("m", options).expect("open");
    let [tree, filler] = ["t", "filler"].map(|name| engine.tree(name).expect("tree"));
    let [session, other] = [(); 2].map(|()| engine.session().expect("session"));
    let key = |number: u32| number.to_be_bytes();
    for number in 0..FILLERS {
        session.put(&filler, &key(number), &[7; 1500]).expect("put");
    }
    let empty = engine.stats().used_pages;
    for number in 0..RECORDS {
        session.put(&tree, &key(number), &[7; 100]).expect("put");
    }
    let old = session.begin().expect("begin");
    let mut writers: [_; 4] = std::array::from_fn(|_| session.begin().expect("begin"));
    let reader = session.begin_read().expect("begin");
    for number in 0..RECORDS {
        assert!(other.remove(&tree, &key(number)).expect("remove"));
    }
    // More versions than there is room for, all of which the snapshots need.
    for number in 0..FILLERS {
        other.put(&filler, &key(number), &[8; 1500]).expect("put");
    }
    eventually("the removed records are gone", || engine.stats().used_pages <= empty + 50);
    let is_told = |what: &str, outcome: Result<(), Error>| {
        assert!(matches!(outcome, Err(Error::SnapshotTooOld(_))), "{what}: {outcome:?}");
    };
    for txn in [&old, &reader] {
        for number in [0, 1, RECORDS / 2, RECORDS - 1] {
            is_told("get", txn.get(&tree, &key(number)).map(drop));
            is_told("contains", txn.contains(&tree, &key(number)).map(drop));
            let look = |_: usize, found: Option<&[u8]>| panic!("found {found:?}");
            is_told("multi_get", txn.multi_get(&tree, &[key(number)], look));
        }
        let scan = || txn.scan(&tree).expect("scan");
        is_told("scan", scan().try_for_each(|entry| entry.map(drop)));
        is_told("scan", scan().rev().try_for_each(|entry| entry.map(drop)));
        let (low, high) = (key(5), key(10));
        let mut range = txn.range(&tree, &low..&high).expect("range");
        is_told("range", range.try_for_each(|entry| entry.map(drop)));
    }
    let [a, b, c, d] = &mut writers;
    is_told("update", a.update(&tree, &key(3), b"new").map(drop));
    is_told("modify", b.modify(&tree, &key(3), |value| value.fill(1)).map(drop));
    is_told("remove", c.remove(&tree, &key(3)).map(drop));
    is_told("insert", d.insert(&tree, &key(3), b"new"));
}

#[test]
fn versions_that_idle_sessions_keep_cost_nobody_the_snapshot() {
    const RECORDS: u32 = 4000;
    let latency = Fault::Latency(Duration::from_millis(100));
    let storage = Arc::new(SimStorage::new(FaultPlan::new(1).always(Op::LogSync, latency)));
    let device = Device::sim(&storage);
    let options = Options::default().pool_bytes(16 << 20).version_bytes(1 << 20);
    let engine = device.open(options).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let [idle, reader, other] = [(); 3].map(|()| engine.session().expect("session"));
    let key = |number: u32| number.to_be_bytes();
    for round in 0..4 {
        // More versions than fit, none of which is needed once it is durable.
        let mut last = None;
        for number in 0..RECORDS {
            last = Some(idle.put_ticket(&tree, &key(number), &[round; 300]).expect("put"));
        }
        last.expect("some").wait().expect("durable");
        let txn = reader.begin().expect("begin");
        let see = || txn.get(&tree, &key(7)).expect("a snapshot that asks for little");
        assert_eq!(see(), Some(vec![round; 300]));
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(600) {
            other.put(&tree, &key(7), &[99; 300]).expect("put");
            assert_eq!(see(), Some(vec![round; 300]));
        }
    }
}
