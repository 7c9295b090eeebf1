//! Snapshots that are held while writers go on: they stay consistent, no writer waits for them, and
//! the memory for old versions has a limit, at which the oldest snapshot is cancelled.

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::{
    collections::BTreeMap,
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
                        .and_then(|_| txn.commit_ticket());
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
        let is_early = |limit| begun.elapsed() < Duration::from_secs(limit);
        let are_few = || transfers.load(Ordering::Relaxed) <= 500;
        while is_early(2) || looked < 20 || are_few() && is_early(60) {
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
    let watchdog = Watchdog::start("a cancelled snapshot", Duration::from_secs(60));
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
    // It reads the right value or gets an error.
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

/// A transaction that changes a byte of each record, and another one: of the second time on the
/// versions have whole records, and count as such.
#[test]
fn versions_that_grow_with_a_second_change_stay_within_their_memory() {
    const RECORDS: u32 = 2000;
    const VERSION_BYTES: u64 = 1 << 20;
    let (engine, tree) = opened(VERSION_BYTES);
    let session = engine.session().expect("session");
    let old = [1u8; 1000];
    session.bulk_load(&tree, (0..RECORDS).map(|i| (key(i), old))).expect("load");
    let mut txn = session.begin().expect("begin");
    for at in [10, 900] {
        for i in 0..RECORDS {
            assert!(txn.modify(&tree, &key(i), |value| value[at] = 2).expect("modify"));
        }
    }
    let bytes = engine.stats().version_bytes;
    assert!(bytes <= VERSION_BYTES, "{bytes} bytes of versions");
    assert_eq!(txn.get(&tree, &key(7)).expect("get").map(|value| value[900]), Some(2));
    txn.abort().expect("abort");
    let mut range = session.scan(&tree).expect("scan");
    while let Some((_, value)) = range.next_entry().expect("entry") {
        assert_eq!(value, old);
    }
    drop(range);
    assert_verified(&engine);
}

const FIELDS: usize = 24;
const ROWS: u32 = 300;

/// Numbers, followed by some bytes.
fn row(fields: [u64; FIELDS], behind: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = fields.iter().flat_map(|field| field.to_le_bytes()).collect();
    bytes.resize(bytes.len() + behind, 7);
    bytes
}

fn field(row: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(row[8 * at..8 * at + 8].try_into().expect("a field"))
}

/// Adds to a field.
fn add(row: &mut [u8], at: usize, by: u64) {
    let sum = field(row, at).wrapping_add(by);
    row[8 * at..8 * at + 8].copy_from_slice(&sum.to_le_bytes());
}

/// One transaction that moves something from a row to another one, in one field or two, in place or
/// by replacing the rows, and does or does not.
fn move_something(session: &wattle::Session, tree: &Tree, random: &mut SmallRng) {
    let mut txn = session.begin().expect("begin");
    let mut work = || -> wattle::Result<()> {
        for _ in 0..random.random_range(1..4) {
            let (from, to) = (random.random_range(0..ROWS), random.random_range(0..ROWS));
            let (at, by) = (random.random_range(0..FIELDS), random.random_range(0..1 << 40));
            let mark = txn.savepoint();
            for (account, by) in [(from, by), (to, 0u64.wrapping_sub(by))] {
                if random.random_range(0..4) > 0 {
                    assert!(txn.modify(tree, &key(account), |row| add(row, at, by))?);
                    continue;
                }
                let mut row = txn.get(tree, &key(account))?.expect("a row");
                add(&mut row, at, by);
                row.resize(8 * FIELDS + random.random_range(0..3) * 20, 7);
                if random.random_range(0..3) == 0 {
                    assert!(txn.remove(tree, &key(account))?);
                }
                txn.put(tree, &key(account), &row)?;
            }
            if random.random_range(0..4) == 0 {
                txn.rollback_to(&mark)?;
            }
        }
        Ok(())
    };
    match work() {
        Ok(()) if random.random_range(0..4) > 0 => drop(txn.commit_ticket().expect("commit")),
        Ok(()) | Err(Error::Conflict(_)) => txn.abort().expect("abort"),
        Err(error) => panic!("a writer failed: {error}"),
    }
}

/// Stops the others, also when a check fails.
struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Snapshots of any age see rows as they were, whose bytes were changed here and there, again and
/// again by one transaction or by many, while the pages go to the device and come back.
#[test]
fn rows_that_are_changed_in_a_few_bytes_stay_as_they_were_for_older_snapshots() {
    let seed = u64::from(rand::random::<u32>());
    println!("seed {seed}");
    let watchdog = Watchdog::start("rows of fields", Duration::from_secs(60));
    let options = small_pool(32).log_bytes(MIN_LOG_BYTES);
    let engine = Device::memory().open(options).expect("open");
    let tree = engine.tree("rows").expect("tree");
    let session = engine.session().expect("session");
    for i in 0..ROWS {
        session.insert(&tree, &key(i), &row([FIRST; FIELDS], 0)).expect("insert");
    }
    let all = |txn: &Transaction<'_>| -> BTreeMap<Vec<u8>, Vec<u8>> {
        txn.scan(&tree).expect("scan").map(|entry| entry.expect("entry")).collect()
    };
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..2 {
            let (engine, tree, stop) = (&engine, &tree, &stop);
            scope.spawn(move || {
                let session = engine.session().expect("session");
                let mut random = SmallRng::seed_from_u64(seed + writer);
                while !stop.load(Ordering::Relaxed) {
                    move_something(&session, tree, &mut random);
                }
            });
        }
        let _stop = Stop(&stop);
        let mut random = SmallRng::seed_from_u64(seed + 2);
        let mut held = Vec::new();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(3) {
            if held.len() == 4 {
                held.swap_remove(random.random_range(0..4));
            }
            let txn = session.begin_read().expect("begin");
            let rows = all(&txn);
            assert_eq!(rows.len(), ROWS as usize);
            for at in 0..FIELDS {
                let sum = rows.values().fold(0, |sum, row| field(row, at).wrapping_add(sum));
                assert_eq!(sum, u64::from(ROWS) * FIRST, "field {at}");
            }
            held.push((txn, rows));
            let (txn, rows) = &held[random.random_range(0..held.len())];
            assert_eq!(all(txn), *rows);
            let keys: Vec<_> = (0..20).map(|_| key(random.random_range(0..ROWS))).collect();
            for key in &keys {
                assert_eq!(txn.get(&tree, key).expect("get").as_ref(), rows.get(&key[..]));
            }
            let look = |i: usize, row: Option<&[u8]>| {
                assert_eq!(row, rows.get(&keys[i][..]).map(|row| &row[..]));
            };
            txn.multi_get(&tree, &keys, look).expect("get");
            watchdog.step();
        }
    });
    assert_verified(&engine);
}
