//! Scans of cold data with and without read-ahead, and look-ups beside a scan.
//!
//! `cargo bench -p wattle-benches --bench scans -- [dir=PATH] [rounds=5] [records=300000]
//! [device=read_us=100,..] [ahead=32] [order=key|random]`
//!
//! The store is loaded in key order, or with `order=random` in random order, and opened again for
//! each measurement, so every page is cold. The two subjects run in turns:
//!
//! | row | value |
//! |---|---|
//! | cold scan | records per second of a scan of everything, pool larger than the data |
//! | larger than memory | the same with a pool of a tenth of the data |
//! | range of 100 | ranges of 100 records at random places per second, each cold |
//! | range of 100, expected | the same, with `expect_records(100)` |
//! | look-ups beside a scan | look-ups of resident records per second of processor time, and slow ones; without a scan, beside a scan of the same store, and beside one of another store, in a pool of its own: what that takes away is taken by processors, caches and memory, not by the engine |
//!
//! With `dir=` the store is a file there, otherwise it is on the simulated device, whose service
//! times do not depend on the machine.

use std::{
    hint::black_box,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};
use wattle::{Durability, Engine, Options, Session, Tree};
use wattle_benches::{Place, argument, median, text};

/// The simulated device.
const DEVICE: &str = "read_us=100,asymmetry=2.8,kr=80,kw=8";
const VALUE: [u8; 1000] = [7; 1000];
const RECORD_BYTES: u64 = 1366;
/// Records of a range.
const RANGE: usize = 100;
/// Ranges of one measurement.
const RANGES: u64 = 50;
/// A look-up that takes longer has waited for a page, or for a processor.
const SLOW: Duration = Duration::from_micros(50);
/// Records that the look-ups choose from.
const HOT: u64 = 2000;

/// Opens the store without a log, and without a warm start: every page is cold.
fn open(place: &Place, options: Options) -> (Engine, Tree) {
    place.open(options.durability(Durability::None).log(false).warm_start(false))
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// A permutation of the numbers below `records`, if the multiplier has no common divisor with it.
fn shuffled(number: u64, records: u64) -> u64 {
    (u128::from(number) * 1_000_003 % u128::from(records)) as u64
}

fn load(place: &Place, records: u64) {
    let (engine, tree) = open(place, Options::default().pool_bytes(records * 2 * RECORD_BYTES));
    let session = engine.session().expect("a session");
    match text("order", "key").as_str() {
        "key" => {
            let entries = (0..records).map(|number| (key(number), VALUE));
            session.bulk_load(&tree, entries).expect("load");
        }
        "random" => {
            for number in 0..records {
                session.put(&tree, &key(shuffled(number, records)), &VALUE).expect("put");
            }
        }
        other => panic!("order={other}: known are key and random"),
    }
    drop((session, tree));
    engine.close().expect("close");
}

fn count(session: &Session, tree: &Tree) -> u64 {
    let mut range = session.scan(tree).expect("a scan");
    let mut count = 0;
    while let Some((_, value)) = range.next_entry().expect("an entry") {
        count += u64::from(black_box(value)[0] == 7);
    }
    count
}

/// Records per second of a cold scan with a pool of so many bytes.
fn scan(place: &Place, records: u64, pool: u64, ahead: usize) -> f64 {
    let (engine, tree) = open(place, Options::default().pool_bytes(pool).read_ahead(ahead));
    let session = engine.session().expect("a session");
    let start = Instant::now();
    assert_eq!(count(&session, &tree), records);
    records as f64 / start.elapsed().as_secs_f64()
}

/// Cold ranges per second.
fn ranges(place: &Place, records: u64, ahead: usize, is_expected: bool) -> f64 {
    let pool = records * 2 * RECORD_BYTES;
    let (engine, tree) = open(place, Options::default().pool_bytes(pool).read_ahead(ahead));
    let session = engine.session().expect("a session");
    // The inner nodes are warm.
    for number in (0..records).step_by((records / RANGES) as usize) {
        session.get(&tree, &key(number)).expect("get").expect("found");
    }
    let start = Instant::now();
    for number in 0..RANGES {
        let first = key(number * (records / RANGES) + records / RANGES / 2);
        let range = session.range(&tree, &first[..]..).expect("a range");
        let range = if is_expected { range.expect_records(RANGE) } else { range };
        let mut range = range;
        for _ in 0..RANGE {
            black_box(range.next_entry().expect("an entry"));
        }
    }
    RANGES as f64 / start.elapsed().as_secs_f64()
}

fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The work beside look-ups.
#[derive(Clone, Copy)]
enum Beside<'a> {
    /// Nothing.
    Nothing,
    /// A scan of the same store, which reads so far ahead.
    Scan(usize),
    /// A scan of another store, which reads so far ahead.
    Other(&'a Place, usize),
}

/// Look-ups of resident records per second of processor time, and slow ones of each thousand.
fn look_ups(place: &Place, records: u64, beside: Beside<'_>) -> (f64, f64) {
    let pool = records * RECORD_BYTES / 10;
    let options = |ahead| Options::default().pool_bytes(pool).read_ahead(ahead);
    let (ahead, other) = match beside {
        Beside::Nothing => (0, None),
        Beside::Scan(ahead) => (ahead, None),
        Beside::Other(other, ahead) => (0, Some(open(other, options(ahead)))),
    };
    let (engine, tree) = open(place, options(ahead));
    let scanned = match (beside, &other) {
        (Beside::Nothing, _) => None,
        (_, Some((engine, tree))) => Some((engine, tree)),
        (_, None) => Some((&engine, &tree)),
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let look_up = |session: &Session, number: u64| {
            let key = key(shuffled(number, HOT) * (records / HOT));
            let found = session.get_with(&tree, &key, |value| black_box(value[0]));
            assert_eq!(found.expect("get"), Some(7));
        };
        let session = engine.session().expect("a session");
        (0..4 * HOT).for_each(|number| look_up(&session, number));
        if let Some((engine, tree)) = scanned {
            let (engine, stop) = (engine.clone(), &stop);
            scope.spawn(move || {
                let session = engine.session().expect("a session");
                while !stop.load(Ordering::Relaxed) {
                    let mut range = session.scan(tree).expect("a scan");
                    while range.next_entry().expect("an entry").is_some()
                        && !stop.load(Ordering::Relaxed)
                    {}
                }
            });
        }
        let (start, cpu) = (Instant::now(), cpu_seconds());
        let (mut done, mut slow) = (0u64, 0u64);
        while start.elapsed().as_secs_f64() < 2.0 {
            for number in done..done + 1000 {
                let begun = Instant::now();
                look_up(&session, number);
                slow += u64::from(begun.elapsed() > SLOW);
            }
            done += 1000;
        }
        let rate = done as f64 / (cpu_seconds() - cpu);
        stop.store(true, Ordering::Relaxed);
        (rate, 1000.0 * slow as f64 / done as f64)
    })
}

/// Runs the subjects in turns and prints their medians, and those of the others against the first.
fn row(name: &str, subjects: &[&str], measure: impl Fn(usize) -> f64) {
    let mut rounds = vec![Vec::new(); subjects.len()];
    for _ in 0..argument("rounds", 5) {
        for (subject, results) in rounds.iter_mut().enumerate() {
            results.push(measure(subject));
        }
    }
    let medians: Vec<f64> = rounds.into_iter().map(median).collect();
    for (subject, value) in subjects.iter().zip(&medians) {
        println!("{name:<24} {subject:<22} {value:>12.1} {:>7.2}", value / medians[0]);
    }
}

fn main() {
    let records = argument("records", 300_000) as u64;
    let ahead = argument("ahead", 32);
    let place = Place::of_arguments(DEVICE);
    load(&place, records);
    let part = text("part", "scan,larger,range,beside");
    let has = |name: &str| part.split(',').any(|part| part == name);
    println!("row                      read-ahead              median   of first");
    let both = ["off", "on"];
    let depth = |subject: usize| if subject == 0 { 0 } else { ahead };
    let whole = records * 2 * RECORD_BYTES;
    if has("scan") {
        row("cold scan, records/s", &both, |subject| scan(&place, records, whole, depth(subject)));
    }
    if has("larger") {
        let pool = records * RECORD_BYTES / 10;
        row("larger than memory", &both, |subject| scan(&place, records, pool, depth(subject)));
    }
    if has("range") {
        row("cold range of 100, /s", &["off", "on", "on, expected"], |subject| {
            ranges(&place, records, depth(subject), subject == 2)
        });
    }
    if has("beside") {
        let other = Place::of_arguments(DEVICE);
        load(&other, records);
        let subjects =
            ["no scan", "a scan, off", "a scan, on", "of another store, off", "another, on"];
        let of = [
            Beside::Nothing,
            Beside::Scan(0),
            Beside::Scan(ahead),
            Beside::Other(&other, 0),
            Beside::Other(&other, ahead),
        ];
        row("look-ups/s of processor", &subjects, |at| look_ups(&place, records, of[at]).0);
        row("slow look-ups of 1000", &subjects, |at| look_ups(&place, records, of[at]).1);
    }
}
