//! Auto-committed scans of which the snapshot is cancelled on the way: they go on with a newer one,
//! give keys in order, none twice, and miss no record that was there all the time.

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::{
    collections::BTreeSet,
    ops::{Bound, ControlFlow},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};
use wattle::{Direction, Engine, Error, MIN_LOG_BYTES, Session, Tree};
use wattle_tests::harness::{Device, Watchdog, assert_verified, seed, small_pool};

const VERSION_BYTES: u64 = 1 << 20;

fn opened() -> (Engine, Tree) {
    let options = small_pool(1024).log_bytes(MIN_LOG_BYTES).version_bytes(VERSION_BYTES);
    let engine = Device::memory().open(options).expect("open");
    let tree = engine.tree("tree").expect("tree");
    (engine, tree)
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// A value of a record, which names its key; one in sixteen is large.
fn value(number: u32, turn: u8) -> Vec<u8> {
    let len = if number.is_multiple_of(16) { 5000 } else { 300 };
    let mut value = vec![turn; len];
    value[..4].copy_from_slice(&key(number));
    value
}

fn number_of(found: &[u8]) -> u32 {
    u32::from_be_bytes(found[..4].try_into().expect("a key"))
}

#[test]
fn a_loop_that_changes_each_record_that_it_scans_comes_to_its_end() {
    const RECORDS: u32 = 20_000;
    let _watchdog = Watchdog::start("a loop of changes", Duration::from_secs(120));
    let (engine, tree) = opened();
    let session = engine.session().expect("session");
    session.bulk_load(&tree, (0..RECORDS).map(|i| (key(i), value(i, 0)))).expect("load");
    for turn in 0..2u8 {
        let backward = turn == 1;
        let range = session.scan(&tree).expect("scan");
        let range = if backward { range.rev() } else { range };
        let mut seen = 0;
        for entry in range {
            let (found, old) = entry.expect("a scan that stands for itself goes on");
            let expected = if backward { RECORDS - 1 - seen } else { seen };
            assert_eq!(number_of(&found), expected);
            assert!(old == value(expected, turn), "record {expected}");
            let _ticket =
                session.put_ticket(&tree, &found, &value(expected, turn + 1)).expect("put");
            seen += 1;
        }
        assert_eq!(seen, RECORDS);
    }
    assert_verified(&engine);
}

#[test]
fn a_scan_in_a_transaction_is_of_one_snapshot_or_fails() {
    const RECORDS: u32 = 10_000;
    let (engine, tree) = opened();
    let session = engine.session().expect("session");
    session.bulk_load(&tree, (0..RECORDS).map(|i| (key(i), value(i, 0)))).expect("load");
    let reader = session.begin_read().expect("begin");
    let mut range = reader.scan(&tree).expect("scan");
    let writer = engine.session().expect("session");
    let (mut seen, mut failed) = (0, false);
    for i in 0..RECORDS {
        drop(
            writer
                .put_ticket(&tree, &key(RECORDS - 1 - i), &value(RECORDS - 1 - i, 1))
                .expect("put"),
        );
        match range.next_entry() {
            Ok(Some((found, old))) => {
                assert_eq!(number_of(found), seen);
                assert!(old == value(seen, 0), "record {seen}");
                seen += 1;
            }
            Ok(None) => panic!("not before all are seen"),
            Err(Error::SnapshotTooOld(_)) => failed = true,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(failed, "5 MB of versions do not fit {VERSION_BYTES} bytes");
}

const RECORDS: u32 = 3000;

/// Every third record is there all the time; the others come and go.
fn is_fixed(number: u32) -> bool {
    number.is_multiple_of(3)
}

/// Changes records until it is stopped.
fn write(engine: &Engine, tree: &Tree, seed: u64, stop: &AtomicBool) {
    let session = engine.session().expect("session");
    let mut random = SmallRng::seed_from_u64(seed);
    while !stop.load(Ordering::Relaxed) {
        let number = random.random_range(0..RECORDS);
        let turn = random.random();
        let changed = match random.random_range(0..8) {
            0..3 if !is_fixed(number) => session.remove_ticket(tree, &key(number)).map(drop),
            3 => {
                let mut txn = session.begin().expect("begin");
                let put = txn.put(tree, &key(number), &value(number, turn));
                put.and_then(|()| txn.commit_ticket().map(drop))
            }
            _ => session.put_ticket(tree, &key(number), &value(number, turn)).map(drop),
        };
        match changed {
            Ok(()) | Err(Error::Conflict(_) | Error::SnapshotTooOld(_)) => {}
            Err(error) => panic!("a writer failed: {error}"),
        }
    }
}

/// The result of a scan.
struct Pieces {
    backward: bool,
    last: Option<u32>,
    fixed: BTreeSet<u32>,
}

impl Pieces {
    fn new(backward: bool) -> Pieces {
        Pieces { backward, last: None, fixed: BTreeSet::new() }
    }

    fn add(&mut self, found: &[u8], whole: &[u8]) {
        let number = number_of(found);
        let follows =
            self.last.is_none_or(|last| (number > last) != self.backward && number != last);
        assert!(follows, "{number} after {:?}", self.last);
        assert!(whole == value(number, whole[whole.len() - 1]), "record {number} is a mixture");
        self.last = Some(number);
        if is_fixed(number) {
            self.fixed.insert(number);
        }
    }

    /// All records of the range that were there all the time.
    fn finish(self, from: u32, to: u32) {
        let expected: BTreeSet<_> = (from..to).filter(|number| is_fixed(*number)).collect();
        let missing: Vec<_> = expected.difference(&self.fixed).collect();
        assert!(missing.is_empty(), "{from}..{to} lacks {missing:?}");
        assert_eq!(self.fixed.len(), expected.len(), "records outside of {from}..{to}");
    }
}

/// One scan, slow enough that its snapshot is cancelled on the way.
fn scan(session: &Session, tree: &Tree, random: &mut SmallRng) {
    let backward = random.random();
    let kind = random.random_range(0..3);
    let (from, to) = match kind {
        0 => (0, RECORDS),
        1 => (random.random_range(0..RECORDS / 2), random.random_range(RECORDS / 2..RECORDS)),
        _ => (1 << 8, 2 << 8),
    };
    let (low, high) = (key(from), key(to));
    let range = match kind {
        0 => session.scan(tree),
        1 => session.range(tree, &low[..]..&high[..]),
        _ => session.prefix(tree, &low[..3]),
    };
    let range = range.expect("range");
    let mut range = if backward { range.rev() } else { range };
    let mut pieces = Pieces::new(backward);
    let mut count = 0;
    while let Some((found, whole)) = range.next_entry().expect("a scan goes on") {
        pieces.add(found, whole);
        count += 1;
        if count % 100 == 0 {
            thread::sleep(Duration::from_millis(3));
        }
    }
    pieces.finish(from, to);
}

async fn scan_as_task(session: &wattle::AsyncSession, tree: &Tree, random: &mut SmallRng) {
    let backward = random.random();
    let direction = if backward { Direction::Backward } else { Direction::Forward };
    let from = random.random_range(0..RECORDS / 2);
    let low = key(from);
    let bounds = (Bound::Included(&low[..]), Bound::Unbounded);
    let mut pieces = Pieces::new(backward);
    let mut count = 0;
    let visit = |found: &[u8], whole: &[u8]| {
        pieces.add(found, whole);
        count += 1;
        if count % 100 == 0 {
            thread::sleep(Duration::from_millis(3));
        }
        ControlFlow::Continue(())
    };
    session.visit(tree, bounds, direction, visit).await.expect("a scan goes on");
    pieces.finish(from, RECORDS);
}

#[test]
fn scans_of_pieces_miss_no_record_that_was_there_all_the_time() {
    let seed = seed();
    println!("seed {seed}");
    let watchdog = Watchdog::start("scans of pieces", Duration::from_secs(60));
    let (engine, tree) = opened();
    let session = engine.session().expect("session");
    for number in (0..RECORDS).filter(|number| is_fixed(*number)) {
        drop(session.put_ticket(&tree, &key(number), &value(number, 0)).expect("put"));
    }
    // A snapshot that is held says whether snapshots of that age are cancelled.
    let mut held = session.begin_read().expect("begin");
    let (stop, mut cancelled, mut scans) = (AtomicBool::new(false), 0, 0);
    thread::scope(|scope| {
        for writer in 0..2 {
            let (engine, tree, stop) = (&engine, &tree, &stop);
            scope.spawn(move || write(engine, tree, seed + writer, stop));
        }
        let stop = Stop(&stop);
        let mut random = SmallRng::seed_from_u64(seed + 2);
        let begun = Instant::now();
        let is_early = |limit| begun.elapsed() < Duration::from_secs(limit);
        while is_early(4) || scans < 10 || cancelled == 0 && is_early(60) {
            scan(&session, &tree, &mut random);
            let (engine, tree, random) = (&engine, &tree, &mut random);
            wattle::run(64, async move {
                let session = engine.async_session().expect("session");
                scan_as_task(&session, tree, random).await;
            })
            .expect("runtime");
            scans += 2;
            if held.get(tree, &key(1)).is_err() {
                cancelled += 1;
                held = session.begin_read().expect("begin");
            }
            watchdog.step();
        }
        drop(stop);
    });
    println!("{scans} scans, {cancelled} times a snapshot beside them was cancelled");
    assert!(cancelled > 0, "nothing was cancelled: the test tests nothing");
    drop(held);
    assert_verified(&engine);
}

/// Stops the writers, also when a check fails.
struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
