//! The counters of evictors add up: every candidate was evicted, queued or refused.

use wattle::{Engine, IoKind, Options, Refused, Stats};
use wattle_tests::harness::{Random, eventually, unlogged_pool};

const FRAMES: u64 = 256;
const RECORDS: u64 = 8000;

fn options() -> Options {
    unlogged_pool(FRAMES).io(IoKind::Threads)
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn all(refused: Refused) -> u64 {
    let Refused {
        no_page,
        pinned,
        hot_children,
        being_written,
        hotter,
        latched,
        parent_latched,
        changed,
        queue_full,
    } = refused;
    let held = pinned + hot_children + being_written + latched + parent_latched;
    held + no_page + hotter + changed + queue_full
}

/// Reads records at random, and changes every record that `change` picks.
fn work(engine: &Engine, seed: u64, change: impl Fn(u64) -> bool) {
    let (tree, mut random) = (engine.tree("tree").expect("tree"), Random::new(seed));
    let session = engine.session().expect("session");
    for _ in 0..4 * RECORDS {
        let number = random.below(RECORDS);
        match change(number) {
            true => session.put(&tree, &key(number), &[7; 500]).expect("put"),
            false => {
                let found = session.get(&tree, &key(number)).expect("get");
                assert_eq!(found.map(|value| value.len()), Some(500), "record {number}");
            }
        }
    }
}

/// Swips that are hot were swizzled, or their pages are new.
fn check_values(stats: &Stats) {
    assert!(stats.swizzles > FRAMES && stats.unswizzles > FRAMES, "{stats:?}");
    assert!(stats.unswizzles <= stats.evictions, "{stats:?}");
    assert!(stats.swizzles <= stats.pages_read, "{stats:?}");
    assert!(stats.refused.hotter > 0 && stats.refused.pinned > 0, "{stats:?}");
    let threshold = stats.threshold_sum / stats.thresholds as f64;
    // Values of WATT: up to 8 accesses and 4 writes of weight 4, in as many epochs.
    assert!((0.0..40.0).contains(&threshold), "{threshold}, {stats:?}");
}

#[test]
fn every_candidate_was_evicted_queued_or_refused() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("store");
    let engine = Engine::open(&path, options()).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    for number in 0..RECORDS {
        session.put(&tree, &key(number), &[7; 500]).expect("put");
    }
    drop((session, tree));
    // Some reasons need evictors and sessions to meet.
    for seed in 0..20 {
        work(&engine, seed, |number| number % 4 == 0);
        let Refused { hotter, pinned, being_written, .. } = engine.stats().refused;
        if [hotter, pinned, being_written].iter().all(|count| *count > 0) {
            break;
        }
    }
    eventually("the evictors have ended their rounds", || {
        let stats = engine.stats();
        let clean = stats.evictions - stats.evictions_dirty;
        let ended = clean + stats.queued + all(stats.refused);
        // Writers refuse pages as well, after a write, so the sum may be larger.
        stats.candidates <= ended && stats.candidates >= clean + stats.queued
    });
    let stats = engine.stats();
    check_values(&stats);
    assert!(stats.queued >= stats.evictions_dirty && stats.queued > 0, "{stats:?}");
    assert!(stats.refused.being_written > 0, "{stats:?}");
    eventually("the write queue is empty", || engine.stats().queued_writes == 0);
    engine.close().expect("close");

    let engine = Engine::open(&path, options().read_only(true)).expect("open again");
    work(&engine, 2, |_| false);
    eventually("the sums are equal without writes", || {
        let stats = engine.stats();
        stats.candidates == stats.evictions + all(stats.refused)
    });
    let stats = engine.stats();
    check_values(&stats);
    assert_eq!((stats.queued, stats.refused.being_written, stats.refused.queue_full), (0, 0, 0));
    engine.close().expect("close");
}
