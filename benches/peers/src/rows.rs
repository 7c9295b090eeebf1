//! The rows: what is measured, in parts. A part runs in a process of its own, once for each engine
//! and repetition, and gives one or more rows.

use crate::{
    data::{Rng, Values, Zipf, key},
    engines, machine,
    run::{Case, timed, warm_up},
    store::{Key, Result, Session, Store},
};
use std::{hint::black_box, process::Command, time::Instant};

/// Records of a transaction in rows that write many.
const BATCH: usize = 1000;

/// Records of a short range.
const RANGE: usize = 100;

/// Openings of one process.
const OPENINGS: usize = 9;

/// Single durable commits of one process.
const COMMITS: usize = 500;

/// Threads of the durable row with many writers.
const WRITERS: usize = 16;

/// The data are so many times as large as the cache, where they are larger.
const TIMES_LARGER: u64 = 5;

/// Bytes of a large value.
const LARGE: usize = 10_000;

/// Which of two figures is better.
#[derive(Clone, Copy, PartialEq)]
pub enum Better {
    /// The higher one.
    Higher,
    /// The lower one.
    Lower,
}

/// One line of the table.
pub struct Row {
    /// Its name on the command line.
    pub name: &'static str,
    /// The measurement, with its unit and durability.
    pub title: &'static str,
    /// Which figure is better.
    pub better: Better,
}

/// Rows that one process measures.
pub struct Part {
    /// Its name, for the process.
    pub name: &'static str,
    /// Its rows, in the order in which `run` gives them.
    pub rows: &'static [Row],
    /// Needs files, which a `BTreeMap` has not.
    pub files: bool,
    /// Works with data larger than the cache.
    pub larger: bool,
    /// Measures; one figure for each row.
    pub run: fn(&Case) -> Result<Vec<f64>>,
}

const fn higher(name: &'static str, title: &'static str) -> Row {
    Row { name, title, better: Better::Higher }
}

const fn lower(name: &'static str, title: &'static str) -> Row {
    Row { name, title, better: Better::Lower }
}

/// All parts, in the order in which they run. The first makes the store of 1000-byte records that
/// the others use; the last takes half of it away.
pub const PARTS: &[Part] = &[
    Part {
        name: "load",
        rows: &[
            higher(
                "load",
                "load in random order, 1000 a transaction, then sync and close: records/s",
            ),
            lower("space", "bytes on disk after that, per byte of keys and values"),
        ],
        files: false,
        larger: false,
        run: load,
    },
    Part {
        name: "open",
        rows: &[lower("open", "open and close of the unchanged store: ms")],
        files: true,
        larger: false,
        run: open_and_close,
    },
    Part {
        name: "cold-scan",
        rows: &[higher("cold-scan", "first full scan after open, page cache dropped: records/s")],
        files: true,
        larger: false,
        run: cold_scan,
    },
    Part {
        name: "cold-range",
        rows: &[higher(
            "cold-range",
            "ranges of 100 after open, page cache dropped, 2 threads: ranges/s",
        )],
        files: true,
        larger: false,
        run: cold_range,
    },
    Part {
        name: "resident",
        rows: &[
            higher("warm-scan", "warm full scan, first byte of each value: records/s"),
            higher("warm-scan-all", "the same, all bytes of each value"),
            higher("range", "warm range of 100, first bytes, 2 threads: ranges/s"),
            higher("range-all", "the same, all bytes of each value"),
            higher("get", "get, uniform, 1 thread: /s"),
            higher("get-2", "get, uniform, 2 threads: /s"),
            higher("get-txn", "100 gets in a read transaction, 2 threads: gets/s"),
        ],
        files: false,
        larger: false,
        run: resident,
    },
    Part {
        name: "update",
        rows: &[higher("update", "update, Zipfian, 2 threads, not durable: /s")],
        files: false,
        larger: false,
        run: update,
    },
    Part {
        name: "durable",
        rows: &[
            higher("durable", "durable put, 1 thread: /s"),
            lower("durable-p50", "the same: median us"),
            higher("durable-16", "durable put, 16 threads: /s"),
            lower("sync", "(the device: 4 KiB write + fdatasync, before and after: us)"),
        ],
        files: true,
        larger: false,
        run: durable,
    },
    Part {
        name: "larger",
        rows: &[
            higher("larger-get", "cache a fifth of the data: get, Zipfian, 2 threads: /s"),
            higher("larger-mixed", "the same: half get, half update, not durable: /s"),
        ],
        files: true,
        larger: true,
        run: larger,
    },
    Part {
        name: "overwrite",
        rows: &[higher(
            "overwrite",
            "overwrite all in random order after open, 1000 a transaction: records/s",
        )],
        files: true,
        larger: false,
        run: overwrite,
    },
    Part {
        name: "recovery",
        rows: &[lower("recovery", "open after a kill amid updates, and the first get: ms")],
        files: true,
        larger: false,
        run: recovery,
    },
    Part {
        name: "values",
        rows: &[
            higher("10k-load", "values of 10 KB: load in key order, 100 a transaction: MB/s"),
            lower("10k-space", "values of 10 KB: bytes on disk per byte, closed"),
            higher("10k-get", "values of 10 KB: get, no byte read, 1 thread: /s"),
            higher("10k-get-all", "the same, all bytes of the value"),
            higher("10k-put", "values of 10 KB: overwrite, 1 thread, not durable: /s"),
        ],
        files: true,
        larger: false,
        run: large_values,
    },
    Part {
        name: "delete",
        rows: &[higher(
            "delete",
            "delete half in random order after open, 1000 a transaction: records/s",
        )],
        files: true,
        larger: false,
        run: delete,
    },
];

/// Loads the records in random order. The values of a record differ between loads.
fn fill(case: &Case, store: &dyn Store) -> Result<()> {
    let values = Values::new(case.value_bytes);
    let mut rng = Rng::new(1);
    let mut session = store.session()?;
    for numbers in rng.permutation(case.records).chunks(BATCH) {
        put_all(&mut *session, numbers, &values, &mut rng)?;
    }
    Ok(())
}

fn put_all(
    session: &mut dyn Session,
    numbers: &[u64],
    values: &Values,
    rng: &mut Rng,
) -> Result<()> {
    let records: Vec<_> = numbers.iter().map(|number| (key(*number), values.draw(rng))).collect();
    session.put_many(&records)
}

/// The filled store, open.
fn opened(case: &Case, durable: bool, threads: usize) -> Result<Box<dyn Store>> {
    let store = engines::open(&case.engine, &case.config(durable, threads))?;
    if case.engine == "btreemap" {
        fill(case, &*store)?;
    }
    Ok(store)
}

fn user_bytes(records: u64, value_bytes: usize) -> f64 {
    records as f64 * (crate::store::KEY + value_bytes) as f64
}

fn load(case: &Case) -> Result<Vec<f64>> {
    case.clear()?;
    let started = Instant::now();
    let store = engines::open(&case.engine, &case.config(false, 1))?;
    fill(case, &*store)?;
    store.sync()?;
    store.close()?;
    let rate = case.records as f64 / started.elapsed().as_secs_f64();
    let bytes = machine::disk_bytes(&case.dir)? as f64;
    let space = bytes / user_bytes(case.records, case.value_bytes);
    Ok(vec![rate, if case.engine == "btreemap" { f64::NAN } else { space }])
}

fn open_and_close(case: &Case) -> Result<Vec<f64>> {
    let mut times = Vec::new();
    for _ in 0..OPENINGS {
        let started = Instant::now();
        opened(case, true, 1)?.close()?;
        times.push(started.elapsed().as_secs_f64() * 1e3);
    }
    Ok(vec![crate::median(times)])
}

/// How much of a value a row reads. Engines that lend values from their pages or from a map take no
/// time for bytes that are not read, so rows of both kinds stand beside each other.
#[derive(Clone, Copy, PartialEq)]
enum Look {
    /// The first byte.
    First,
    /// Each byte.
    All,
}

impl Look {
    fn at(self, value: &[u8]) -> u64 {
        if self == Look::First {
            return u64::from(value[0]);
        }
        let (words, rest) = value.as_chunks::<8>();
        let sum = words.iter().fold(0, |sum, word| sum ^ u64::from_le_bytes(*word));
        rest.iter().fold(sum, |sum, byte| sum ^ u64::from(*byte))
    }
}

/// Scans all records, each of which must be there; records per second.
fn full_scan(case: &Case, store: &dyn Store) -> Result<f64> {
    full_scan_with(case, store, Look::First)
}

fn full_scan_with(case: &Case, store: &dyn Store, look: Look) -> Result<f64> {
    let started = Instant::now();
    let mut sum = 0_u64;
    let records = store.session()?.scan(b"", usize::MAX, &mut |key, value| {
        sum ^= u64::from(key[5]) ^ look.at(value);
    })?;
    black_box(sum);
    if records as u64 != case.records {
        return Err(format!("{records} of {} records found", case.records).into());
    }
    Ok(records as f64 / started.elapsed().as_secs_f64())
}

fn cold_scan(case: &Case) -> Result<Vec<f64>> {
    machine::drop_from_page_cache(&case.dir)?;
    let store = opened(case, false, 1)?;
    let rate = full_scan(case, &*store)?;
    store.close()?;
    Ok(vec![rate])
}

/// A look at a range of 100.
fn look_at_range(case: &Case, session: &mut dyn Session, rng: &mut Rng, look: Look) -> Result<u64> {
    let mut sum = 0_u64;
    session.scan(&key(rng.below(case.records)), RANGE, &mut |key, value| {
        sum ^= u64::from(key[5]) ^ look.at(value);
    })?;
    black_box(sum);
    Ok(1)
}

fn cold_range(case: &Case) -> Result<Vec<f64>> {
    machine::drop_from_page_cache(&case.dir)?;
    let store = opened(case, false, 2)?;
    let look = Look::First;
    let rate = timed(case, &*store, 2, |session, rng| look_at_range(case, session, rng, look))?;
    store.close()?;
    Ok(vec![rate])
}

/// Reads a record, whose value must have its length.
fn get(case: &Case, session: &mut dyn Session, key: &Key) -> Result<u64> {
    let mut len = 0;
    let mut show = |value: &[u8]| len = black_box(value).len();
    if !session.get(key, &mut show)? || len != case.value_bytes {
        return Err(crate::store::absent(key));
    }
    Ok(1)
}

fn resident(case: &Case) -> Result<Vec<f64>> {
    let store = opened(case, false, 2)?;
    let n = case.records;
    full_scan(case, &*store)?;
    warm_up(case, &*store, |session, rng| get(case, session, &key(rng.below(n))))?;
    let (mut scans, mut ranges) = (Vec::new(), Vec::new());
    for look in [Look::First, Look::All] {
        let rates: Result<Vec<_>> = (0..3).map(|_| full_scan_with(case, &*store, look)).collect();
        scans.push(crate::median(rates?));
        ranges
            .push(timed(case, &*store, 2, |session, rng| look_at_range(case, session, rng, look))?);
    }
    let one = timed(case, &*store, 1, |session, rng| get(case, session, &key(rng.below(n))))?;
    let two = timed(case, &*store, 2, |session, rng| get(case, session, &key(rng.below(n))))?;
    let many = timed(case, &*store, 2, |session, rng| {
        let keys: [Key; 100] = std::array::from_fn(|_| key(rng.below(n)));
        session.get_many(&keys, &mut |value| {
            black_box(value);
        })?;
        Ok(100)
    })?;
    store.close()?;
    Ok(vec![scans[0], scans[1], ranges[0], ranges[1], one, two, many])
}

/// Puts a value under a key.
fn put(session: &mut dyn Session, number: u64, values: &Values, rng: &mut Rng) -> Result<u64> {
    session.put(&key(number), values.draw(rng))?;
    Ok(1)
}

fn update(case: &Case) -> Result<Vec<f64>> {
    let (values, zipf) = (Values::new(case.value_bytes), Zipf::new(case.records));
    let store = opened(case, false, 2)?;
    full_scan(case, &*store)?;
    let rate = timed(case, &*store, 2, |session, rng| put(session, zipf.draw(rng), &values, rng))?;
    store.close()?;
    Ok(vec![rate])
}

fn durable(case: &Case) -> Result<Vec<f64>> {
    let values = Values::new(case.value_bytes);
    let before = machine::sync_us(&case.dir)?;
    let store = opened(case, true, WRITERS)?;
    full_scan(case, &*store)?;
    let mut rng = Rng::new(case.seed);
    let mut times = Vec::new();
    let started = Instant::now();
    {
        let mut session = store.session()?;
        for _ in 0..COMMITS {
            let commit = Instant::now();
            put(&mut *session, rng.below(case.records), &values, &mut rng)?;
            times.push(commit.elapsed().as_secs_f64() * 1e6);
        }
    }
    let one = COMMITS as f64 / started.elapsed().as_secs_f64();
    let many = timed(case, &*store, WRITERS, |session, rng| {
        put(session, rng.below(case.records), &values, rng)
    })?;
    store.close()?;
    let sync = f64::midpoint(before, machine::sync_us(&case.dir)?);
    Ok(vec![one, crate::median(times), many, sync])
}

fn larger(case: &Case) -> Result<Vec<f64>> {
    let (values, zipf) = (Values::new(case.value_bytes), Zipf::new(case.records));
    machine::drop_from_page_cache(&case.dir)?;
    let store = opened(case, false, 2)?;
    let read = |session: &mut dyn Session, rng: &mut Rng| get(case, session, &key(zipf.draw(rng)));
    warm_up(case, &*store, read)?;
    let gets = timed(case, &*store, 2, read)?;
    let mixed = timed(case, &*store, 2, |session, rng| {
        if rng.word() & 1 == 0 {
            return get(case, session, &key(zipf.draw(rng)));
        }
        put(session, zipf.draw(rng), &values, rng)
    })?;
    store.close()?;
    Ok(vec![gets, mixed])
}

/// Bytes of the cache for data of this size that do not fit.
pub fn small_cache(records: u64, value_bytes: usize) -> u64 {
    user_bytes(records, value_bytes) as u64 / TIMES_LARGER
}

fn overwrite(case: &Case) -> Result<Vec<f64>> {
    let values = Values::new(case.value_bytes);
    let mut rng = Rng::new(case.seed);
    let numbers = rng.permutation(case.records);
    let store = opened(case, false, 1)?;
    let started = Instant::now();
    {
        let mut session = store.session()?;
        for numbers in numbers.chunks(BATCH) {
            put_all(&mut *session, numbers, &values, &mut rng)?;
        }
    }
    store.sync()?;
    let rate = case.records as f64 / started.elapsed().as_secs_f64();
    store.close()?;
    Ok(vec![rate])
}

fn delete(case: &Case) -> Result<Vec<f64>> {
    let mut numbers = Rng::new(case.seed).permutation(case.records);
    numbers.truncate(case.records as usize / 2);
    let store = opened(case, false, 1)?;
    let started = Instant::now();
    {
        let mut session = store.session()?;
        for numbers in numbers.chunks(BATCH) {
            let keys: Vec<_> = numbers.iter().map(|number| key(*number)).collect();
            session.remove_many(&keys)?;
        }
    }
    store.sync()?;
    let rate = numbers.len() as f64 / started.elapsed().as_secs_f64();
    store.close()?;
    Ok(vec![rate])
}

/// Updates for the time of a row and ends the process as a kill would: nothing is closed.
pub fn crash(case: &Case) -> Result<()> {
    let values = Values::new(case.value_bytes);
    let store = opened(case, false, 2)?;
    timed(case, &*store, 2, |session, rng| put(session, rng.below(case.records), &values, rng))?;
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)?;
    Ok(())
}

fn recovery(case: &Case) -> Result<Vec<f64>> {
    // The process that crashes has the same arguments, except for the part.
    let arguments = std::env::args().skip(1).map(|argument| match argument.as_str() {
        "recovery" => "crash".to_string(),
        _ => argument,
    });
    let status = Command::new(std::env::current_exe()?).args(arguments).status()?;
    if status.code().is_some() {
        return Err("the updates failed before the kill".into());
    }
    let started = Instant::now();
    let store = opened(case, false, 1)?;
    get(case, &mut *store.session()?, &key(0))?;
    let time = started.elapsed().as_secs_f64() * 1e3;
    full_scan(case, &*store)?;
    store.close()?;
    Ok(vec![time])
}

fn large_values(case: &Case) -> Result<Vec<f64>> {
    let case = &case.with_values(case.records / 25, LARGE);
    case.clear()?;
    let values = Values::new(LARGE);
    let mut rng = Rng::new(1);
    let started = Instant::now();
    let store = opened(case, false, 1)?;
    {
        let mut session = store.session()?;
        for numbers in (0..case.records).collect::<Vec<_>>().chunks(100) {
            put_all(&mut *session, numbers, &values, &mut rng)?;
        }
    }
    store.sync()?;
    let bytes = user_bytes(case.records, LARGE);
    let load = bytes / 1e6 / started.elapsed().as_secs_f64();
    store.close()?;
    let space = machine::disk_bytes(&case.dir)? as f64 / bytes;
    let store = opened(case, false, 1)?;
    full_scan(case, &*store)?;
    let n = case.records;
    let gets = timed(case, &*store, 1, |session, rng| get(case, session, &key(rng.below(n))))?;
    let gets_all = timed(case, &*store, 1, |session, rng| {
        let mut sum = 0;
        session.get(&key(rng.below(n)), &mut |value| sum = Look::All.at(value))?;
        black_box(sum);
        Ok(1)
    })?;
    let puts = timed(case, &*store, 1, |session, rng| put(session, rng.below(n), &values, rng))?;
    store.close()?;
    case.clear()?;
    Ok(vec![load, space, gets, gets_all, puts])
}
