//! Memory of versions: writers that insert and remove beside snapshots that are held. The load runs
//! in a process of its own, a second run of this binary, so that all of its memory counts. How fast
//! the writers are is a benchmark: `cargo bench -p wattle-benches --bench beside_snapshot`.

use std::{
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};
use wattle::{Durability, Engine, Error, Options};
use wattle_tests::harness::memory;

/// Tells a child to run the load.
const LOAD: &str = "WATTLE_TEST_VERSIONS";
const POOL: u64 = 32 << 20;
const VERSION_BYTES: u64 = 16 << 20;
/// Memory of everything but the pool.
const REST: u64 = 64 << 20;
const WRITERS: u8 = 4;
/// Records that a writer inserts, and then removes.
const BATCH: u64 = 5000;

fn key(writer: u8, number: u64) -> [u8; 9] {
    let mut key = [writer; 9];
    key[1..].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key
}

/// Inserts and removes until it is stopped.
fn write(engine: &Engine, writer: u8, stop: &AtomicBool) {
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    for batch in 0_u64.. {
        let keys = batch * BATCH..(batch + 1) * BATCH;
        for number in keys.clone() {
            drop(session.put_ticket(&tree, &key(writer, number), &[writer; 200]).expect("put"));
            if stop.load(Ordering::Relaxed) {
                return;
            }
        }
        for number in keys {
            let (found, _) = session.remove_ticket(&tree, &key(writer, number)).expect("remove");
            assert!(found, "record {number} of writer {writer} is missing");
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

/// Runs the load in this process and checks its memory.
fn load(time: Duration) {
    let directory = tempfile::tempdir().expect("temporary directory");
    let options = Options::default()
        .pool_bytes(POOL)
        .log_bytes(256 << 20)
        .version_bytes(VERSION_BYTES)
        .durability(Durability::None);
    let engine = Engine::open(directory.path().join("store"), options).expect("open");
    engine.tree("tree").expect("tree");
    let stop = AtomicBool::new(false);
    let (mut most, mut cancelled) = (0, 0);
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (engine, stop) = (&engine, &stop);
            scope.spawn(move || write(engine, writer, stop));
        }
        let reader = scope.spawn(|| hold_snapshots(&engine, &stop));
        let begun = Instant::now();
        while begun.elapsed() < time {
            thread::sleep(Duration::from_millis(2));
            most = most.max(engine.stats().version_bytes);
        }
        stop.store(true, Ordering::Relaxed);
        cancelled = reader.join().expect("reader");
    });
    engine.close().expect("close");
    let peak = memory("VmHWM");
    println!("{} KiB of versions, {} KiB of memory, {cancelled} cancelled", most >> 10, peak >> 10);
    assert!(most <= 2 * VERSION_BYTES, "{most} bytes of versions");
    assert!(peak <= POOL + REST, "{} KiB beside the pool", (peak - POOL) >> 10);
    assert!(cancelled > 0, "the versions of one snapshot fitted");
}

#[test]
fn versions_beside_a_held_snapshot_stay_within_their_memory() {
    if std::env::var_os(LOAD).is_some() {
        return load(Duration::from_secs(3));
    }
    let binary = std::env::current_exe().expect("this binary");
    let test = "versions_beside_a_held_snapshot_stay_within_their_memory";
    let child = Command::new(binary)
        .args(["--exact", test, "--nocapture"])
        .env(LOAD, "1")
        .output()
        .expect("run this binary");
    println!("{}", String::from_utf8_lossy(&child.stdout));
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
}
