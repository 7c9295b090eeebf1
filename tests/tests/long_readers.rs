//! Snapshots that are held while writers go on: they stay consistent, nobody waits for them, and the
//! memory for old versions has a limit, at which the oldest snapshot is given up.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};
use wattle::{Engine, Error, MIN_LOG_BYTES, Transaction, Tree};
use wattle_tests::harness::{Device, Watchdog, assert_verified, small_pool};

const ACCOUNTS: u32 = 100;
const FIRST: u64 = 1000;

fn key(i: u32) -> [u8; 4] {
    i.to_be_bytes()
}

fn opened(version_bytes: u64) -> (Engine, Tree) {
    let options = small_pool(512).log_bytes(MIN_LOG_BYTES).version_bytes(version_bytes);
    let engine = Device::memory().open(options).expect("open");
    let tree = engine.tree("accounts").expect("tree");
    (engine, tree)
}

/// The sum over all accounts, as one transaction sees it.
fn sum(txn: &Transaction<'_>, tree: &Tree) -> wattle::Result<u64> {
    let (mut sum, mut count) = (0, 0);
    let mut range = txn.scan(tree)?;
    while let Some((_, value)) = range.next_entry()? {
        // Balances may be below zero.
        sum = u64::wrapping_add(sum, u64::from_le_bytes(value[..8].try_into().expect("a balance")));
        count += 1;
    }
    assert_eq!(count, ACCOUNTS, "accounts of one moment");
    Ok(sum)
}

#[test]
fn a_snapshot_held_for_a_whole_run_stays_as_it_was_and_stops_nobody() {
    // The default. Beside the snapshot's versions it holds what is not durable yet.
    const VERSION_BYTES: u64 = 16 << 20;
    let watchdog = Watchdog::start("a snapshot of a whole run", Duration::from_secs(60));
    let (engine, tree) = opened(VERSION_BYTES);
    let session = engine.session().expect("session");
    for i in 0..ACCOUNTS {
        session.insert(&tree, &key(i), &FIRST.to_le_bytes()).expect("insert");
    }
    let reader_session = engine.session().expect("session");
    let reader = reader_session.begin_read().expect("begin");
    let total = u64::from(ACCOUNTS) * FIRST;
    let (stop, transfers) = (AtomicBool::new(false), AtomicU64::new(0));
    let most = AtomicU64::new(0);
    thread::scope(|scope| {
        for writer in 0..2u32 {
            let (engine, tree, stop, transfers) = (&engine, &tree, &stop, &transfers);
            scope.spawn(move || {
                let session = engine.session().expect("session");
                let mut number = writer * 7919;
                while !stop.load(Ordering::Relaxed) {
                    number = number.wrapping_mul(1_103_515_245).wrapping_add(12_345);
                    let (from, to) = (number >> 8 & 63, 64 + (number >> 16 & 31));
                    let mut txn = session.begin().expect("begin");
                    let change = |txn: &mut Transaction<'_>, account, by: u64| {
                        txn.modify(tree, &key(account), |value| {
                            let old = u64::from_le_bytes(value[..8].try_into().expect("balance"));
                            value[..8].copy_from_slice(&old.wrapping_add(by).to_le_bytes());
                        })
                    };
                    let done = change(&mut txn, from, u64::MAX)
                        .and_then(|_| change(&mut txn, to, 1))
                        .and_then(|_| txn.commit_async());
                    match done {
                        Ok(_ticket) => _ = transfers.fetch_add(1, Ordering::Relaxed),
                        Err(Error::Conflict(_)) => {}
                        Err(error) => panic!("a writer failed: {error}"),
                    }
                }
            });
        }
        let begun = Instant::now();
        let mut looked = 0;
        while begun.elapsed() < Duration::from_secs(2) || looked < 20 {
            assert_eq!(sum(&reader, &tree).expect("the old snapshot"), total);
            let account = reader.get(&tree, &key(looked % ACCOUNTS)).expect("get");
            assert_eq!(account.as_deref(), Some(&FIRST.to_le_bytes()[..]), "as it was at first");
            // A new one sees a moment too.
            let young = session.begin_read().expect("begin");
            assert_eq!(sum(&young, &tree).expect("a young snapshot").wrapping_sub(total), 0);
            most.fetch_max(engine.stats().version_bytes, Ordering::Relaxed);
            looked += 1;
            watchdog.step();
        }
        stop.store(true, Ordering::Relaxed);
    });
    // Of each account the version of the snapshot is kept, and not the thousands after it.
    let (transfers, most) = (transfers.into_inner(), most.into_inner());
    println!("{transfers} transfers beside the snapshot, at most {most} bytes of versions");
    assert!(transfers > 500, "only {transfers} transfers");
    assert!(most <= VERSION_BYTES * 5 / 4, "{most} bytes of versions");
    assert_eq!(sum(&reader, &tree).expect("the old snapshot"), total);
    reader.commit().expect("commit");
    assert_verified(&engine);
}

#[test]
fn the_oldest_snapshot_is_given_up_when_versions_take_all_their_memory() {
    const RECORDS: u32 = 20_000;
    const VERSION_BYTES: u64 = 1 << 20;
    let watchdog = Watchdog::start("a snapshot given up", Duration::from_secs(60));
    let (engine, tree) = opened(VERSION_BYTES);
    let session = engine.session().expect("session");
    let (old, new) = ([1u8; 100], [2u8; 100]);
    let entries: Vec<_> = (0..RECORDS).map(|i| (key(i), old)).collect();
    session.bulk_load(&tree, entries).expect("load");
    let reader_session = engine.session().expect("session");
    let reader = reader_session.begin_read().expect("begin");
    assert_eq!(reader.get(&tree, &key(7)).expect("get").as_deref(), Some(&old[..]));
    for i in 0..RECORDS {
        assert!(session.update(&tree, &key(i), &new).expect("writers are not held up"));
    }
    // The janitor looks at least ten times a second.
    while engine.stats().version_bytes > VERSION_BYTES {
        thread::sleep(Duration::from_millis(5));
    }
    watchdog.step();
    // What it reads is right, or it is told.
    let mut refused = 0;
    for i in (0..RECORDS).step_by(37) {
        match reader.get(&tree, &key(i)) {
            Ok(value) => assert_eq!(value.as_deref(), Some(&old[..]), "record {i}"),
            Err(Error::SnapshotTooOld(_)) => refused += 1,
            Err(error) => panic!("record {i}: {error}"),
        }
    }
    assert!(refused > 0, "2 MB of versions do not fit 1 MiB");
    drop(reader);
    assert_eq!(session.get(&tree, &key(7)).expect("get").as_deref(), Some(&new[..]));
    assert_verified(&engine);
}
