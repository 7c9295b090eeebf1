//! Estimates of ranges: near what a model has, without a read of a leaf, in tiny pools, and while
//! other threads change the tree.

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::Duration,
};
use wattle::{
    Durability, Engine, MIN_LOG_BYTES, Options, PAGE_SIZE, RangeEstimate, Session, Tree, TreeStat,
};
use wattle_tests::harness::{Device, Watchdog, seed, small_pool};

fn options(frames: u64) -> Options {
    small_pool(frames)
        .durability(Durability::None)
        .log_bytes(MIN_LOG_BYTES)
        .conflict_wait(Duration::from_secs(10))
        .warm_start(false)
}

fn opened(frames: u64) -> (Engine, Tree) {
    let engine = Device::memory().open(options(frames)).expect("open");
    let tree = engine.tree("tree").expect("tree");
    (engine, tree)
}

fn stat_of(engine: &Engine) -> TreeStat {
    let stats = engine.tree_stats().expect("stats");
    stats.into_iter().find(|stat| stat.name == "tree").expect("it is there")
}

fn number_key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Within a factor of two, but for a few units.
fn assert_near(found: u64, real: f64, few: f64, what: &str) {
    let found = found as f64;
    let is_near = found <= 2.0 * real + few && real <= 2.0 * found + few;
    assert!(is_near, "{found} for {real} {what}");
}

#[test]
fn a_range_has_about_as_many_records_and_leaves_as_the_estimate_says() {
    let seed = seed();
    println!("seed {seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let (engine, tree) = opened(1_500);
    let session = engine.session().expect("session");
    let nothing = RangeEstimate { records: Some(0), bytes: 0 };
    assert_eq!(session.approximate_range(&tree, ..).expect("an estimate"), nothing);
    // Long keys make inner nodes small, so that there are three levels.
    let key = |number: u32| [&number.to_be_bytes()[..], &[b'k'; 200]].concat();
    let mut numbers: Vec<u32> = (0..8_000).map(|_| random.random()).collect();
    numbers.iter().for_each(|number| session.put(&tree, &key(*number), &[1; 100]).expect("put"));
    numbers.sort_unstable();
    numbers.dedup();
    let leaves = stat_of(&engine).leaf_pages as f64;
    let estimate = |from: usize, to: usize| {
        let range = key(numbers[from])..=key(numbers[to]);
        // Pages may be evicted between two estimates, which then differ.
        if from.is_multiple_of(2) {
            let snapshot = engine.snapshot().expect("a snapshot");
            return snapshot.approximate_range(&tree, &range).expect("an estimate");
        }
        session.approximate_range(&tree, &range).expect("an estimate")
    };
    for _ in 0..200 {
        let mut ends = [0; 2].map(|_| random.random_range(0..numbers.len()));
        ends.sort_unstable();
        let records = (ends[1] - ends[0] + 1) as f64;
        let found = estimate(ends[0], ends[1]);
        assert_near(found.records.expect("leaves are in memory"), records, 120.0, "records");
        let share = records / numbers.len() as f64 * leaves;
        assert_near(found.bytes / PAGE_SIZE as u64, share, 10.0, "leaves");
    }
    // Exact within a leaf.
    assert_eq!(estimate(4_000, 4_000).records, Some(1));
    let whole = session.approximate_range(&tree, ..).expect("an estimate");
    assert_near(whole.records.expect("known"), numbers.len() as f64, 0.0, "records");
    let (low, high) = (key(numbers[200]), key(numbers[7_000]));
    for empty in [&high..&low, &low..&low] {
        assert_eq!(session.approximate_range(&tree, empty).expect("an estimate"), nothing);
    }
    // A transaction sees what it has not committed.
    let mut txn = session.begin().expect("begin");
    let (first, last) = (key(numbers[4_000]), [&key(numbers[4_000])[..], b"z"].concat());
    txn.put(&tree, &last, b"").expect("put");
    let found = txn.approximate_range(&tree, &first..=&last).expect("an estimate");
    assert!(found.records.is_some_and(|records| (1..120).contains(&records)), "{found:?}");
}

/// A closed store whose tree has three levels.
fn loaded(device: &Device, records: u32) -> TreeStat {
    let engine = device.open(options(200)).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    let all = (0..records).map(|number| (number_key(number), [7; 90]));
    session.bulk_load(&tree, all).expect("load");
    let stat = stat_of(&engine);
    assert_eq!(stat.depth, 3, "{stat:?}");
    drop((session, tree));
    engine.close().expect("close");
    stat
}

/// Estimates of ranges of numbers, with the records that they have.
fn estimates(session: &Session, tree: &Tree, records: u32) -> Vec<(RangeEstimate, u32)> {
    let ends = [(0, records), (0, records / 2), (records / 4, records / 4 * 3), (100, 9_000)];
    let estimate = |(from, to): (u32, u32)| {
        let range = number_key(from)..number_key(to);
        (session.approximate_range(tree, range).expect("an estimate"), to - from)
    };
    ends.map(estimate).to_vec()
}

#[test]
fn no_leaf_is_read_for_an_estimate() {
    const RECORDS: u32 = 60_000;
    let device = Device::memory();
    let stat = loaded(&device, RECORDS);
    for (frames, swizzling) in [(200, true), (200, false), (48, true)] {
        let engine = device.open(options(frames).swizzling(swizzling)).expect("open");
        let tree = engine.tree("tree").expect("tree");
        let session = engine.session().expect("session");
        let pages_read = || engine.stats().pages_read;
        let before = pages_read();
        for (found, records) in estimates(&session, &tree, RECORDS) {
            assert_eq!(found.records, None, "no leaf has been in memory");
            let leaves = f64::from(records) / f64::from(RECORDS) * stat.leaf_pages as f64;
            assert_near(found.bytes / PAGE_SIZE as u64, leaves, 3.0, "leaves");
        }
        // The root is in memory.
        assert!(pages_read() - before < stat.inner_pages, "with {frames} frames");
        // One leaf is enough to know what leaves have.
        assert!(session.contains(&tree, &number_key(30_000)).expect("a look-up"));
        let before = pages_read();
        for (found, records) in estimates(&session, &tree, RECORDS) {
            assert_near(found.records.expect("known"), records.into(), 80.0, "records");
        }
        assert_eq!(pages_read(), before, "with {frames} frames");
        // Inner nodes are evicted by a scan of a small pool, and read again: they alone.
        assert_eq!(session.scan(&tree).expect("a scan").count(), RECORDS as usize);
        let before = pages_read();
        for (found, records) in estimates(&session, &tree, RECORDS) {
            assert_near(found.records.expect("known"), records.into(), 80.0, "records");
        }
        assert!(pages_read() - before < 4 * 10, "with {frames} frames");
    }
}

/// Ends the writers, also when the test panics.
struct Stop<'f>(&'f AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn estimates_are_near_while_other_threads_change_the_tree() {
    const KEPT: u32 = 20_000;
    let _watchdog = Watchdog::start("estimates", Duration::from_secs(120));
    let (engine, tree) = opened(150);
    let session = engine.session().expect("session");
    // Every tenth number stays.
    let kept = (0..KEPT).map(|number| (number_key(10 * number), [1; 90]));
    session.bulk_load(&tree, kept).expect("load");
    let (stop, changes) = (AtomicBool::new(false), AtomicU64::new(0));
    let writer = |writer: u32| {
        let mut random = SmallRng::seed_from_u64(writer.into());
        let session = engine.session().expect("session");
        while !stop.load(Relaxed) {
            let first = random.random_range(0..10 * KEPT - 100) / 10 * 10;
            // The numbers of one writer only.
            let others = (first..first + 100).filter(|number| (number % 10).div_ceil(4) == writer);
            let keys: Vec<_> = others.map(number_key).collect();
            let records: Vec<_> = keys.iter().map(|key| (key, [2; 90])).collect();
            session.put_many(&tree, &records).expect("put");
            session.remove_many(&tree, &keys).expect("remove");
            changes.fetch_add(1, Relaxed);
        }
    };
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        for number in [1, 2] {
            scope.spawn(move || writer(number));
        }
        let mut random = SmallRng::seed_from_u64(seed());
        let mut rounds = 0;
        // Until the tree has changed often and many estimates were made.
        while rounds < 300 || changes.load(Relaxed) < 300 {
            let width = random.random_range(KEPT..5 * KEPT);
            let first = random.random_range(0..10 * KEPT - width);
            let range = number_key(first)..number_key(first + width);
            let found = session.approximate_range(&tree, range).expect("an estimate");
            let records = found.records.expect("leaves were met");
            // Ghosts of removed records count until they are cleared away.
            let (least, most) = (u64::from(width / 10), u64::from(width));
            // Leaves whose records were just removed have few of them, and are in memory.
            let is_near = (least / 8..=4 * most).contains(&records);
            assert!(is_near, "{records} for {least} to {most}");
            rounds += 1;
        }
    });
}
