//! Large values that are replaced again and again: the file stays at the size of the live data and
//! the limit of versions, for any order of waits and beside readers that hold snapshots, and the
//! right value is there all the time.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};
use wattle::{Durability, Engine, Error, PAGE_SIZE, Reads, Tree};
use wattle_tests::harness::{Device, Watchdog, assert_verified, eventually, small_pool};

const VALUE: usize = 256 << 10;
const VERSION_BYTES: u64 = 2 << 20;
/// Times that a writer replaces the value.
const TIMES: u32 = 150;
/// Pages of chunks are full to two thirds at least, and each writer may have one value in the
/// making and one that it clears away.
const SLACK: u64 = 3 * VALUE as u64;

fn value(writer: u8, time: u32) -> Vec<u8> {
    let mut value = vec![writer ^ time as u8; VALUE];
    value[..4].copy_from_slice(&time.to_le_bytes());
    value
}

fn opened(durability: Durability, reads: Reads) -> (Engine, Tree) {
    let options = small_pool(1024)
        .version_bytes(VERSION_BYTES)
        .log_bytes(16 << 20)
        .durability(durability)
        .reads(reads);
    let engine = Device::memory().open(options).expect("open");
    let tree = engine.tree("tree").expect("tree");
    (engine, tree)
}

fn used_bytes(engine: &Engine) -> u64 {
    engine.stats().used_pages * PAGE_SIZE as u64
}

/// A writer ends, also by a check that fails.
struct Ends<'r>(&'r AtomicU64);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs writers, and checks what the file had in use meanwhile.
fn watched(engine: &Engine, writers: u64, work: impl Fn(u8) + Sync) {
    let (running, most) = (AtomicU64::new(writers), AtomicU64::new(0));
    thread::scope(|scope| {
        for writer in 0..writers {
            let (work, running) = (&work, &running);
            scope.spawn(move || {
                let _ends = Ends(running);
                work(writer as u8);
            });
        }
        while running.load(Ordering::Relaxed) > 0 {
            most.fetch_max(used_bytes(engine), Ordering::Relaxed);
            thread::sleep(Duration::from_millis(1));
        }
    });
    let live = writers * VALUE as u64;
    let limit = (live + VERSION_BYTES + writers * SLACK) * 3 / 2 + (1 << 20);
    let most = most.into_inner();
    println!("{} KiB in use at most, {} KiB live", most >> 10, live >> 10);
    assert!(most <= limit, "{} KiB in use, {} KiB live", most >> 10, live >> 10);
}

/// Without snapshots, all replaced values are removed.
fn assert_cleared(engine: &Engine) {
    eventually("all that was replaced is gone", || engine.stats().replaced_bytes == 0);
    assert_verified(engine);
}

#[test]
fn one_value_that_is_replaced_again_and_again_takes_no_more_than_the_limit() {
    for (durability, reads, wait) in [
        (Durability::Sync, Reads::Newest, false),
        (Durability::Sync, Reads::Durable, false),
        (Durability::Group, Reads::Newest, true),
        (Durability::None, Reads::Newest, true),
    ] {
        println!("{durability:?}, {reads:?}");
        let _watchdog = Watchdog::start("replaced values", Duration::from_secs(60));
        let (engine, tree) = opened(durability, reads);
        watched(&engine, 2, |writer| {
            let session = engine.session().expect("session");
            for time in 0..TIMES {
                let value = value(writer, time);
                let ticket = session.put_ticket(&tree, &[writer], &value).expect("put");
                if wait {
                    ticket.wait().expect("durable");
                }
                let found = session.get(&tree, &[writer]).expect("get");
                assert!(found.as_ref() == Some(&value), "writer {writer}, time {time}");
            }
        });
        assert_cleared(&engine);
    }
}

#[test]
fn values_replaced_by_transactions_and_by_small_ones_count_too() {
    let _watchdog = Watchdog::start("values replaced in transactions", Duration::from_secs(60));
    let (engine, tree) = opened(Durability::Group, Reads::Newest);
    watched(&engine, 2, |writer| {
        let session = engine.session().expect("session");
        for time in 0..TIMES {
            let value = value(writer, time);
            let put = || {
                let mut txn = session.begin()?;
                txn.put(&tree, &[writer], &value)?;
                txn.commit_ticket().map(drop)
            };
            // Its own snapshot may be the one that holds what the other writer has replaced
            // meanwhile.
            let old = |put: &wattle::Result<()>| matches!(put, Err(Error::SnapshotTooOld(_)));
            let mut attempts = std::iter::repeat_with(put).skip_while(old);
            attempts.next().expect("one that is not too old").expect("put");
            match time % 3 {
                0 => assert!(session.remove(&tree, &[writer]).expect("remove")),
                1 => session.put(&tree, &[writer], b"small").expect("put"),
                _ => {}
            }
        }
    });
    assert_cleared(&engine);
}

#[test]
fn a_snapshot_that_holds_replaced_values_above_the_limit_is_cancelled() {
    let _watchdog = Watchdog::start("an idle reader of values", Duration::from_secs(60));
    let (engine, tree) = opened(Durability::Sync, Reads::Newest);
    let session = engine.session().expect("session");
    session.put(&tree, &[0], &value(0, 7)).expect("put");
    let reader = session.begin_read().expect("begin");
    assert!(reader.get(&tree, &[0]).expect("get") == Some(value(0, 7)));
    watched(&engine, 1, |writer| {
        let session = engine.session().expect("session");
        for time in 0..3 {
            drop(session.put_ticket(&tree, &[writer], &value(writer, time)).expect("put"));
        }
        // Below the limit no snapshot is cancelled.
        assert!(reader_sees(&engine, &tree));
        for time in 3..TIMES {
            drop(session.put_ticket(&tree, &[writer], &value(writer, time)).expect("put"));
        }
    });
    let outcome = reader.get(&tree, &[0]);
    assert!(matches!(outcome, Err(Error::SnapshotTooOld(_))), "{:?}", outcome.map(|_| ()));
    drop(reader);
    assert!(session.get(&tree, &[0]).expect("get") == Some(value(0, TIMES - 1)));
    assert_cleared(&engine);
}

/// A new snapshot reads the value whole.
fn reader_sees(engine: &Engine, tree: &Tree) -> bool {
    let session = engine.session().expect("session");
    let txn = session.begin_read().expect("begin");
    txn.get(tree, &[0]).expect("get").is_some_and(|value| value.len() == VALUE)
}

#[cfg(feature = "async")]
#[test]
fn tasks_that_replace_values_clear_others_away_and_may_be_dropped_meanwhile() {
    use std::{rc::Rc, sync::atomic::AtomicBool};

    let _watchdog = Watchdog::start("replaced values of tasks", Duration::from_secs(60));
    let (engine, tree) = opened(Durability::Group, Reads::Newest);
    let done = AtomicBool::new(false);
    watched(&engine, 1, |writer| {
        let (engine, tree) = (&engine, &tree);
        wattle::run(64, async move {
            let session = Rc::new(engine.async_session().expect("session"));
            let mut dropped = 0;
            for time in 0..TIMES {
                let (key, new) = ([writer], value(writer, time));
                let put = session.put_ticket(tree, &key, &new);
                if time % 4 == 3 {
                    // Dropped in the middle, wherever that is: the next one goes on.
                    let wait = Duration::from_micros(u64::from(time) * 7 % 900);
                    dropped += u32::from(tokio::time::timeout(wait, put).await.is_err());
                    continue;
                }
                drop(put.await.expect("put"));
                let found = session.get(tree, &key).await.expect("get");
                assert!(found == Some(new), "time {time}");
            }
            println!("{dropped} dropped half way");
        })
        .expect("runtime");
        done.store(true, Ordering::Relaxed);
    });
    assert!(done.into_inner());
    assert_cleared(&engine);
}

/// Transactions that hold versions of twice the limit block no other transaction.
#[test]
fn nobody_waits_for_what_open_transactions_hold() {
    const RECORDS: u32 = 4000;
    const OPEN: u32 = 24;
    let _watchdog = Watchdog::start("open transactions", Duration::from_secs(60));
    let options = small_pool(2048).version_bytes(1 << 20).stall_timeout(Duration::from_secs(20));
    let engine = Device::memory().open(options).expect("open");
    let trees: Vec<_> =
        (0..OPEN).map(|i| engine.tree(&format!("tree {i}")).expect("tree")).collect();
    let session = engine.session().expect("session");
    let mut open = Vec::new();
    for tree in &trees {
        let entries = (0..RECORDS / OPEN).map(|i| (i.to_be_bytes(), [1u8; 900]));
        session.bulk_load(tree, entries).expect("load");
        let mut txn = engine.begin().expect("begin");
        for i in 0..RECORDS / OPEN {
            txn.put(tree, &i.to_be_bytes(), &[2; 900]).expect("put");
        }
        open.push(txn);
    }
    let bytes = engine.stats().version_bytes;
    assert!(bytes > 2 << 20, "{bytes} bytes of versions are too few for this test");
    thread::sleep(Duration::from_millis(150));
    let free = engine.tree("free").expect("tree");
    let begun = Instant::now();
    for i in 0..100u32 {
        drop(session.put_ticket(&free, &i.to_be_bytes(), b"value").expect("put"));
    }
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    for (tree, txn) in trees.iter().zip(open) {
        txn.abort().expect("abort");
        assert_eq!(session.get(tree, &0u32.to_be_bytes()).expect("get"), Some(vec![1; 900]));
    }
    assert_verified(&engine);
}
