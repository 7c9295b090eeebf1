//! Memory of versions: writers that insert and remove beside snapshots that are held. Each load runs in a
//! process of its own, which runs this binary again, so that all of its memory counts.

use std::{
    process::Command,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};
use wattle::{Durability, Engine, Error, Options};
use wattle_tests::harness::memory;

/// Tells a child what to do: with snapshots or without, and for how many seconds.
const LOAD: &str = "WATTLE_TEST_VERSIONS";
const POOL: u64 = 32 << 20;
const VERSION_BYTES: u64 = 16 << 20;
/// What everything but the pool may take.
const REST: u64 = 64 << 20;
const WRITERS: u8 = 4;
/// Records that a writer adds, and then removes.
const TURN: u64 = 5000;

fn key(writer: u8, number: u64) -> [u8; 9] {
    let mut key = [writer; 9];
    key[1..].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key
}

/// Inserts and removes until it is stopped.
fn write(engine: &Engine, writer: u8, stop: &AtomicBool, changes: &AtomicU64) {
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    for turn in 0_u64.. {
        let keys = turn * TURN..(turn + 1) * TURN;
        for number in keys.clone() {
            drop(session.put_async(&tree, &key(writer, number), &[writer; 200]).expect("put"));
            changes.fetch_add(1, Ordering::Relaxed);
            if stop.load(Ordering::Relaxed) {
                return;
            }
        }
        for number in keys {
            let (found, _) = session.remove_async(&tree, &key(writer, number)).expect("remove");
            assert!(found, "record {number} of writer {writer} is missing");
            changes.fetch_add(1, Ordering::Relaxed);
            if stop.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}

/// Holds a snapshot until it is cancelled, and then a new one. Gives how many were.
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

/// The load in this process; checks its memory. Prints how many changes were made.
fn load(snapshots: bool, time: Duration) {
    let directory = tempfile::tempdir().expect("temporary directory");
    let options = Options::default()
        .pool_bytes(POOL)
        .log_bytes(256 << 20)
        .version_bytes(VERSION_BYTES)
        .durability(Durability::None);
    let engine = Engine::open(directory.path().join("store"), options).expect("open");
    engine.tree("tree").expect("tree");
    let (stop, changes) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut most, mut cancelled) = (0, 0);
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (engine, stop, changes) = (&engine, &stop, &changes);
            scope.spawn(move || write(engine, writer, stop, changes));
        }
        let reader = snapshots.then(|| scope.spawn(|| hold_snapshots(&engine, &stop)));
        let begun = Instant::now();
        while begun.elapsed() < time {
            thread::sleep(Duration::from_millis(2));
            most = most.max(engine.stats().version_bytes);
        }
        stop.store(true, Ordering::Relaxed);
        cancelled = reader.map_or(0, |reader| reader.join().expect("reader"));
    });
    engine.close().expect("close");
    let peak = memory("VmHWM");
    println!("{} KiB of versions, {} KiB of memory, {cancelled} cancelled", most >> 10, peak >> 10);
    println!("changes {}", changes.into_inner());
    assert!(most <= 2 * VERSION_BYTES, "{most} bytes of versions");
    assert!(peak <= POOL + REST, "{} KiB beside the pool", (peak - POOL) >> 10);
    assert!(!snapshots || cancelled > 0, "the versions of one snapshot fitted");
}

/// Runs the load in a process; gives the number of changes.
fn child(test: &str, snapshots: bool, seconds: u64) -> u64 {
    let binary = std::env::current_exe().expect("this binary");
    let child = Command::new(binary)
        .args(["--exact", test, "--nocapture", "--include-ignored"])
        .env(LOAD, format!("{} {seconds}", u8::from(snapshots)))
        .output()
        .expect("run this binary");
    let output = String::from_utf8_lossy(&child.stdout);
    println!("{output}");
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
    let line = output.lines().find_map(|line| line.strip_prefix("changes "));
    line.and_then(|number| number.parse().ok()).expect("the number of changes")
}

/// In a child: runs the load.
fn is_child() -> bool {
    let Ok(what) = std::env::var(LOAD) else { return false };
    let (snapshots, seconds) = what.split_once(' ').expect("two numbers");
    load(snapshots == "1", Duration::from_secs(seconds.parse().expect("a number")));
    true
}

#[test]
fn versions_beside_a_held_snapshot_stay_within_their_memory() {
    if is_child() {
        return;
    }
    child("versions_beside_a_held_snapshot_stay_within_their_memory", true, 3);
}

/// Beside snapshots writers make at least half of the changes that they make without. In turns, because
/// other work on the machine takes some of both.
#[test]
#[ignore = "a minute, on a machine without other work"]
fn writers_beside_held_snapshots_are_half_as_fast_at_least() {
    if is_child() {
        return;
    }
    let test = "writers_beside_held_snapshots_are_half_as_fast_at_least";
    let mut shares: Vec<f64> =
        (0..5).map(|_| child(test, true, 5) as f64 / child(test, false, 5) as f64).collect();
    shares.sort_by(f64::total_cmp);
    println!("changes beside snapshots, as a share of those without: {shares:.2?}");
    assert!(shares[2] >= 0.5, "{shares:.2?}");
}
