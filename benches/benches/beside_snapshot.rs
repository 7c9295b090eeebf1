//! Changes of four writers beside a held snapshot, as a share of those without one.
//!
//! Writers insert records and remove them again. A snapshot that is held keeps the versions of all
//! of these changes until they exceed their memory; then the engine cancels it, and the benchmark
//! takes another one. Runs with and without snapshots alternate, each on a new store.
//!
//! `cargo bench -p wattle-benches --bench beside_snapshot -- [rounds=5] [seconds=5] [dir=PATH]`

use std::{
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};
use wattle::{Durability, Engine, Error, Options};
use wattle_benches::{argument, directory, median};

const POOL: u64 = 32 << 20;
const LOG: u64 = 256 << 20;
/// Memory of versions, small enough that snapshots are cancelled.
const VERSION_BYTES: u64 = 16 << 20;
const WRITERS: u8 = 4;
/// Records that a writer inserts, and then removes.
const BATCH: u64 = 5000;

fn key(writer: u8, number: u64) -> [u8; 9] {
    let mut key = [writer; 9];
    key[1..].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key
}

/// Inserts and removes records until it is stopped.
fn write(engine: &Engine, writer: u8, stop: &AtomicBool, changes: &AtomicU64) {
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    for batch in 0_u64.. {
        let numbers = batch * BATCH..(batch + 1) * BATCH;
        let inserts = numbers.clone().map(|number| (number, true));
        for (number, insert) in inserts.chain(numbers.map(|number| (number, false))) {
            let key = key(writer, number);
            if insert {
                session.put(&tree, &key, &[writer; 200]).expect("put");
            } else {
                assert!(session.remove(&tree, &key).expect("remove"), "a record is missing");
            }
            changes.fetch_add(1, Ordering::Relaxed);
            if stop.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}

/// Holds a snapshot until it is cancelled, then another one. Returns how many were cancelled.
fn hold_snapshots(engine: &Engine, stop: &AtomicBool) -> u64 {
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    let mut cancelled = 0;
    while !stop.load(Ordering::Relaxed) {
        let txn = session.begin().expect("begin");
        while !stop.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(20));
            match txn.get(&tree, b"no such key") {
                Ok(found) => assert_eq!(found, None),
                Err(Error::SnapshotTooOld(_)) => {
                    cancelled += 1;
                    break;
                }
                Err(error) => panic!("a reader failed: {error}"),
            }
        }
    }
    cancelled
}

/// Changes per second, and cancelled snapshots.
fn run(parent: &Path, snapshots: bool, seconds: u64) -> (f64, u64) {
    let directory = tempfile::tempdir_in(parent).expect("a directory for the store");
    let options = Options::default()
        .pool_bytes(POOL)
        .log_bytes(LOG)
        .version_bytes(VERSION_BYTES)
        .durability(Durability::None);
    let engine = Engine::open(directory.path().join("store"), options).expect("open");
    engine.tree("tree").expect("tree");
    let (stop, changes) = (AtomicBool::new(false), AtomicU64::new(0));
    let cancelled = thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (engine, stop, changes) = (&engine, &stop, &changes);
            scope.spawn(move || write(engine, writer, stop, changes));
        }
        let reader = snapshots.then(|| scope.spawn(|| hold_snapshots(&engine, &stop)));
        thread::sleep(Duration::from_secs(seconds));
        stop.store(true, Ordering::Relaxed);
        reader.map_or(0, |reader| reader.join().expect("reader"))
    });
    engine.close().expect("close");
    (changes.into_inner() as f64 / seconds as f64, cancelled)
}

fn main() {
    let (rounds, seconds) = (argument("rounds", 5), argument("seconds", 5) as u64);
    let dir = directory(".");
    let mut shares = Vec::new();
    for _ in 0..rounds {
        let (beside, cancelled) = run(&dir, true, seconds);
        let (alone, _) = run(&dir, false, seconds);
        let share = beside / alone;
        println!(
            "{beside:.0} changes/s beside a snapshot ({cancelled} cancelled), {alone:.0} without: \
             {share:.2}"
        );
        shares.push(share);
    }
    println!("changes beside a held snapshot against none: {:.2}", median(shares));
}
