//! Power cuts: everything acknowledged is there afterwards, with everything that it depends on, and
//! no part of a flush that is not whole. Each test prints its seed when it fails.

mod common;

use common::*;
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};
use wattle_buffer::{
    Gsn, PageId,
    io::{Fault, FaultPlan, LogStorage, Op, SimStorage},
};
use wattle_wal::{Log, LogStart, Urgency};

/// Pages of the workload. Each has a lock, which orders its changes as a latch would, its last GSN,
/// and the number of its last record.
type Pages = Vec<Mutex<(Gsn, u64)>>;

/// Results of the threads of a workload.
struct Run {
    pages: Pages,
    next_id: AtomicU64,
    /// Acknowledged records of each worker, under the same lock as the crash.
    acknowledged: Mutex<BTreeSet<u64>>,
    /// For each record, the previous record of the same page.
    before: Mutex<BTreeMap<u64, u64>>,
    stop: AtomicBool,
}

fn workload(log: &Arc<Log>, run: &Run, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let appender = log.appender();
    let mut mine = Vec::new();
    while !run.stop.load(Ordering::Relaxed) {
        while !appender.check_room().expect("a good log") {
            log.wait_flush().expect("a flush");
        }
        let page = random.random_range(0..run.pages.len());
        let id = run.next_id.fetch_add(1, Ordering::Relaxed);
        let len = if random.random_bool(0.05) { 30_000 } else { random.random_range(0..600) };
        {
            let mut latched = run.pages[page].lock();
            let (last, before) = *latched;
            let epoch_before = log.epoch();
            let gsn = append_to(&appender, id, len, PageId(page as u64), last);
            assert!(gsn > last && gsn.0 >> 20 >= epoch_before);
            run.before.lock().insert(id, before);
            *latched = (gsn, id);
        }
        mine.push((log.epoch(), id));
        if random.random_bool(0.2) {
            let (epoch, _) = mine[mine.len() - 1];
            let urgency = if random.random_bool(0.5) { Urgency::Now } else { Urgency::Soon };
            log.request(epoch, urgency);
            log.wait_durable(epoch).expect("durable");
            run.acknowledged.lock().extend(mine.drain(..).map(|(_, id)| id));
        }
    }
}

/// Checks the records that were read against those that were appended.
fn check(run: &BTreeMap<u64, u64>, acknowledged: &BTreeSet<u64>, found: &[Found], what: &str) {
    let mut seen = BTreeSet::from([0]);
    let mut by_page = BTreeMap::new();
    let mut by_worker = BTreeMap::new();
    for record in found {
        assert!(seen.insert(record.id), "{what}: record {} is there twice", record.id);
        let last = by_worker.insert(record.worker, record.gsn).unwrap_or_default();
        assert!(record.gsn > last, "{what}: numbers of worker {} descend", record.worker);
        by_page.entry(record.page).or_insert_with(Vec::new).push((record.gsn, record.id));
    }
    for id in acknowledged {
        assert!(seen.contains(id), "{what}: record {id} was acknowledged and is lost");
    }
    for records in by_page.values_mut() {
        records.sort();
        let mut last = 0;
        for (_, id) in records {
            assert_eq!(run[id], last, "{what}: record {id} is there without its predecessor");
            last = *id;
        }
    }
}

fn crash_run(seed: u64) {
    let device = Arc::new(SimStorage::new(
        FaultPlan::new(seed)
            .sometimes(Op::LogSync, 0.5, Fault::Latency(Duration::from_micros(300)))
            .sometimes(Op::LogWrite, 0.02, Fault::Latency(Duration::from_micros(300))),
    ));
    let storage: Arc<dyn LogStorage> = device.clone();
    let log = start(&storage, LogStart::default());
    let run = Run {
        pages: (0..40).map(|_| Mutex::default()).collect(),
        next_id: AtomicU64::new(1),
        acknowledged: Mutex::default(),
        before: Mutex::default(),
        stop: AtomicBool::new(false),
    };
    let mut images = Vec::new();
    thread::scope(|scope| {
        for worker in 0..3 {
            let (log, run) = (&log, &run);
            scope.spawn(move || workload(log, run, seed * 100 + worker));
        }
        let mut random = StdRng::seed_from_u64(seed);
        for index in 0..12 {
            thread::sleep(Duration::from_micros(random.random_range(0..4000)));
            // Acknowledged before the cut; the image may have more.
            let acknowledged = run.acknowledged.lock().clone();
            images.push((acknowledged, device.crash(seed * 1000 + index)));
        }
        run.stop.store(true, Ordering::Relaxed);
    });
    let all: BTreeSet<u64> = (1..run.next_id.load(Ordering::Relaxed)).collect();
    let before = run.before.into_inner();
    log.close().expect("closed");
    let what = format!("seed {seed}, closed");
    check(&before, &all, &records(&read(&storage, 1).expect(&what).0), &what);
    for (index, (acknowledged, image)) in images.into_iter().enumerate() {
        let what = format!("seed {seed}, image {index}");
        let storage: Arc<dyn LogStorage> = Arc::new(image);
        let (flushes, end) = read(&storage, 1).unwrap_or_else(|error| panic!("{what}: {error}"));
        let found = records(&flushes);
        check(&before, &acknowledged, &found, &what);
        // The log goes on after the torn remains, and crashes again before and after a flush.
        let log = start(&storage, LogStart::after(end));
        let again = read(&storage, 1).unwrap_or_else(|error| panic!("{what}, started: {error}"));
        assert_eq!(again, (flushes.clone(), end), "{what}: reading is repeatable");
        append(&log.appender(), 1 << 40, 100);
        log.flush_now().expect("a flush");
        log.close().expect("closed");
        let (flushes, second) = read(&storage, 1).unwrap_or_else(|error| panic!("{what}: {error}"));
        let more = records(&flushes);
        assert_eq!(more.len(), found.len() + 1, "{what}: all of it, and one more");
        assert_eq!(more[found.len()].id, 1 << 40);
        assert!(second.sequence > end.sequence && second.segment > end.segment);
    }
}

#[test]
fn a_power_cut_takes_nothing_that_was_acknowledged() {
    for seed in 1..=12 * rounds() {
        crash_run(seed);
    }
}

#[test]
fn a_flush_that_was_not_synced_is_there_as_a_whole_or_not_at_all() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..200 * rounds() {
        let device = Arc::new(SimStorage::new(FaultPlan::new(seed)));
        let storage: Arc<dyn LogStorage> = device.clone();
        let log = start(&storage, LogStart::default());
        let appender = log.appender();
        append(&appender, 1, 5000);
        log.flush_now().expect("a flush");
        // The second flush fails at its sync, so all of it is in the cache of the device.
        device.set_plan(
            FaultPlan::new(seed).always(Op::LogSync, Fault::Error(std::io::ErrorKind::Other)),
        );
        let len = [10, 3000, 40_000][seed as usize % 3];
        append(&appender, 2, len);
        append(&appender, 3, len);
        assert!(log.flush_now().is_err());
        drop(log);
        let image: Arc<dyn LogStorage> = Arc::new(device.crash(seed));
        let (flushes, end) = read(&image, 1).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let numbers: Vec<u64> = records(&flushes).iter().map(|found| found.id).collect();
        assert!(numbers == [1] || numbers == [1, 2, 3], "seed {seed}: {numbers:?}");
        outcomes.insert((len, numbers.len()));
        // In either case the log can go on, and reads the same later.
        let log = start(&image, LogStart::after(end));
        append(&log.appender(), 4, 10);
        log.close().expect("closed");
        let (flushes, _) = read(&image, 1).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(records(&flushes).len(), numbers.len() + 1, "seed {seed}");
    }
    assert!(outcomes.len() >= 4, "{outcomes:?}");
}

#[test]
fn a_flush_across_segments_is_whole_or_not_there() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..100 * rounds() {
        let device = Arc::new(SimStorage::new(FaultPlan::new(seed)));
        let storage: Arc<dyn LogStorage> = device.clone();
        let log = start(&storage, LogStart::default());
        let appender = log.appender();
        append(&appender, 1, 5000);
        log.flush_now().expect("a flush");
        // About 300 KB do not fit two segments. The flush fails at one of its syncs.
        let plan = FaultPlan::new(seed);
        let fault = Fault::Error(std::io::ErrorKind::Other);
        device.set_plan(plan.nth(Op::LogSync, 1 + seed % 6, fault));
        let mut section = appender.begin();
        for id in 2..12 {
            section.start(wattle_wal::Kind::Change, 0, id, Gsn(0));
            section.op(PageId(id), wattle_buffer::TreeId(1), 1, &[&contents(id, 30_000)]);
            section.finish();
        }
        drop(section);
        let done = log.flush_now().is_ok();
        drop(log);
        let image: Arc<dyn LogStorage> = Arc::new(device.crash(seed));
        let (flushes, end) = read(&image, 1).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let count = records(&flushes).len();
        assert!(count == 11 || (count == 1 && !done), "seed {seed}: {count} records");
        outcomes.insert((count, end.segment));
        let log = start(&image, LogStart::after(end));
        append(&log.appender(), 100, 10);
        log.close().expect("closed");
        let (flushes, _) = read(&image, 1).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(records(&flushes).len(), count + 1, "seed {seed}");
    }
    assert!(outcomes.len() >= 4, "{outcomes:?}");
}

#[test]
fn a_record_is_never_there_without_the_one_that_it_names() {
    for seed in 0..6 * rounds() {
        let plan = FaultPlan::new(seed);
        let latency = Fault::Latency(Duration::from_micros(100));
        let device = Arc::new(SimStorage::new(plan.sometimes(Op::LogSync, 0.7, latency)));
        let storage: Arc<dyn LogStorage> = device.clone();
        let log = start(&storage, LogStart::default());
        // The latch: it holds the number of the last record, which the next record names.
        let last = Mutex::new((Gsn(0), 0));
        let stop = AtomicBool::new(false);
        let mut images = Vec::new();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let appender = log.appender();
                    while !stop.load(Ordering::Relaxed) {
                        while !appender.check_room().expect("a good log") {
                            log.wait_flush().expect("a flush");
                        }
                        let mut last = last.lock();
                        let id = last.1 + 1;
                        *last = (append_to(&appender, id, 40, PageId(0), last.0), id);
                    }
                });
            }
            for index in 0..20 {
                log.request(log.epoch(), Urgency::Now);
                thread::sleep(Duration::from_micros(700));
                images.push(device.crash(seed * 100 + index));
            }
            stop.store(true, Ordering::Relaxed);
        });
        for (index, image) in images.into_iter().enumerate() {
            let storage: Arc<dyn LogStorage> = Arc::new(image);
            let (flushes, _) = read(&storage, 1).expect("a good log");
            let mut numbers: Vec<u64> = records(&flushes).iter().map(|found| found.id).collect();
            numbers.sort_unstable();
            let whole = (1..=numbers.len() as u64).collect::<Vec<_>>();
            assert!(numbers == whole, "seed {seed}, image {index}: records are missing in between");
        }
    }
}

#[test]
fn generation_after_generation_nothing_read_once_is_lost() {
    for seed in 0..60 * rounds() {
        let mut random = StdRng::seed_from_u64(seed);
        let mut device = Arc::new(SimStorage::new(FaultPlan::new(seed)));
        let mut begin = LogStart::default();
        let (mut id, mut known) = (0u64, Vec::new());
        for generation in 0..6 {
            let what = format!("seed {seed}, generation {generation}");
            let storage: Arc<dyn LogStorage> = device.clone();
            let log = start(&storage, begin);
            let appender = log.appender();
            let fault = Fault::Error(std::io::ErrorKind::Other);
            let (op, nth) = match random.random_range(0..3) {
                0 => (Op::LogWrite, random.random_range(1..60)),
                1 => (Op::LogSync, random.random_range(1..12)),
                _ => (Op::LogSync, 1000),
            };
            device.set_plan(FaultPlan::new(seed).nth(op, nth, fault));
            let mut acknowledged = known.clone();
            let mut mine = Vec::new();
            for _ in 0..random.random_range(0..30) {
                id += 1;
                append(&appender, id, [20, 900, 25_000][random.random_range(0..3)]);
                mine.push(id);
                if random.random_bool(0.4) {
                    if log.flush_now().is_err() {
                        break;
                    }
                    acknowledged.append(&mut mine);
                }
            }
            // Some of these close in order; others lose their power first.
            let before = device.crash(seed * 10 + generation);
            drop(log);
            let left = if random.random_bool(0.5) { before } else { device.crash(seed) };
            device = Arc::new(left);
            let storage: Arc<dyn LogStorage> = device.clone();
            let (flushes, end) = read(&storage, 1).unwrap_or_else(|e| panic!("{what}: {e}"));
            let found: Vec<u64> = records(&flushes).iter().map(|found| found.id).collect();
            let lost: Vec<_> = acknowledged.iter().filter(|id| !found.contains(id)).collect();
            assert!(lost.is_empty(), "{what}: {lost:?} are lost");
            assert!(found.is_sorted() && found.starts_with(&known), "{what}");
            // A record that was read once must be there in all later generations.
            known = found;
            begin = LogStart::after(end);
        }
    }
}
