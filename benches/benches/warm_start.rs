//! How soon a store that is opened again is as fast as before, with and without a warm start.
//!
//! `cargo bench -p wattle-benches --bench warm_start -- [pool=MIB] [data=MIB] [threads=2]
//! [limit=SECONDS] [dir=PATH]`
//!
//! A store of `data` MiB of records of 8 + 120 bytes, in a pool of `pool` MiB, is read by YCSB C
//! (single look-ups, Zipfian 0.99) until it is warm, and closed. Then it is opened again, and read
//! in the same way at once.
//!
//! | row | value |
//! |---|---|
//! | `warm` | look-ups per second in the last second before the store is closed |
//! | `sequential` | seconds to read the bytes of the pages in memory from the data file |
//! | `on`, `off` | time after the opening until 90 % of `warm` are reached; pages that the warm start read; look-ups in the first second |
//!
//! `sequential` reads with one thread, 1 MiB at a time, past the page cache. Rates are means of 200
//! ms.

use std::{
    fs::OpenOptions,
    io::Read,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    process::ExitCode,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};
use wattle::{DATA_FILE, Durability, Engine, Options, PAGE_SIZE, Stats, io::LogBuffer};
use wattle_benches::{argument, directory};
use wattle_workloads::{rng::Rng, zipf::Zipfian};

/// Between two samples.
const SAMPLE: Duration = Duration::from_millis(50);
/// Samples of a mean.
const WINDOW: usize = 4;
/// Bytes of a record in the file, about.
const RECORD: u64 = 140;

#[derive(Clone, Copy)]
struct Bench {
    records: u64,
    pool_bytes: u64,
    threads: u64,
    limit: Duration,
}

/// Look-ups in each sample.
struct Samples(Vec<u64>);

impl Samples {
    /// Look-ups per second in the window that ends with each sample.
    fn rates(&self) -> impl Iterator<Item = f64> {
        let seconds = WINDOW as f64 * SAMPLE.as_secs_f64();
        self.0.windows(WINDOW).map(move |window| window.iter().sum::<u64>() as f64 / seconds)
    }

    /// When the rate came to `bar` for the first time.
    fn reached(&self, bar: f64) -> Option<f64> {
        let at = self.rates().position(|rate| rate >= bar)?;
        Some((at + WINDOW) as f64 * SAMPLE.as_secs_f64())
    }

    fn first_second(&self) -> u64 {
        self.0.iter().take(20).sum()
    }
}

/// The key of a record: spread, so that the popular ones are not neighbours.
fn key(record: u64) -> [u8; 8] {
    record.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

impl Bench {
    fn open(&self, path: &Path, warm: bool) -> Engine {
        let options = Options::default().pool_bytes(self.pool_bytes).warm_start(warm);
        Engine::open(path, options.durability(Durability::None)).expect("open")
    }

    fn load(&self, path: &Path) {
        let engine = self.open(path, true);
        let tree = engine.tree("tree").expect("tree");
        let mut keys: Vec<u64> = (0..self.records).map(|i| u64::from_be_bytes(key(i))).collect();
        keys.sort_unstable();
        let session = engine.session().expect("session");
        let entries = keys.into_iter().map(|key| (key.to_be_bytes(), [7; 120]));
        session.bulk_load(&tree, entries).expect("load");
        drop((session, tree));
        engine.close().expect("close");
    }

    /// Reads until `enough`, which gets the samples so far.
    fn read(&self, engine: &Engine, enough: impl Fn(&Samples) -> bool) -> Samples {
        let tree = engine.tree("tree").expect("tree");
        let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
        let mut samples = Samples(Vec::new());
        thread::scope(|scope| {
            for number in 0..self.threads {
                let (tree, stop, count) = (&tree, &stop, &count);
                let records = self.records;
                scope.spawn(move || {
                    let session = engine.session().expect("session");
                    let (zipfian, mut rng) = (Zipfian::new(records, 0.99), Rng::new(1, number));
                    while !stop.load(Ordering::Relaxed) {
                        for _ in 0..16 {
                            let found = session.get(tree, &key(zipfian.next(&mut rng)));
                            assert!(found.expect("get").is_some());
                        }
                        count.fetch_add(16, Ordering::Relaxed);
                    }
                });
            }
            let (begun, mut last) = (Instant::now(), 0);
            while samples.0.len() < WINDOW || !enough(&samples) {
                let next = SAMPLE * (samples.0.len() as u32 + 1);
                thread::sleep(next.saturating_sub(begun.elapsed()));
                let now = count.load(Ordering::Relaxed);
                samples.0.push(now - last);
                last = now;
            }
            stop.store(true, Ordering::Relaxed);
        });
        samples
    }

    /// Reads until the pool is warm; gives look-ups per second and the last counters.
    fn heat(&self, path: &Path) -> (f64, Stats) {
        let engine = self.open(path, false);
        let span = (self.limit.as_secs_f64() / SAMPLE.as_secs_f64()) as usize;
        let samples = self.read(&engine, |samples| samples.0.len() >= span);
        let last = &samples.0[samples.0.len() - 20..];
        let (rate, stats) = (last.iter().sum::<u64>() as f64, engine.stats());
        engine.close().expect("close");
        (rate, stats)
    }
}

/// Seconds to read `bytes` of a file.
fn sequential(path: &Path, bytes: u64) -> f64 {
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let mut file = OpenOptions::new().read(true).custom_flags(direct).open(path).expect("open");
    let (begun, mut left) = (Instant::now(), bytes);
    let mut buffer = LogBuffer::new(1 << 20);
    while left > 0 {
        let read = file.read(&mut buffer).expect("read") as u64;
        if read == 0 {
            break;
        }
        left = left.saturating_sub(read);
    }
    begun.elapsed().as_secs_f64()
}

fn main() -> ExitCode {
    let mib = |name: &str, default: usize| (argument(name, default) as u64) << 20;
    let bench = Bench {
        records: mib("data", 400) / RECORD,
        pool_bytes: mib("pool", 512),
        threads: argument("threads", 2) as u64,
        limit: Duration::from_secs(argument("limit", 15) as u64),
    };
    let scratch = tempfile::tempdir_in(directory(".")).expect("a folder for stores");
    let path = scratch.path().join("store");
    bench.load(&path);
    // The list is written by a run with the warm start on, whose pages are those of `heat`.
    let engine = bench.open(&path, true);
    let span = (bench.limit.as_secs_f64() / SAMPLE.as_secs_f64()) as usize;
    bench.read(&engine, |samples| samples.0.len() >= span);
    let stats = engine.stats();
    engine.close().expect("close");
    let (warm, _) = bench.heat(&path);
    let pages = stats.frames - stats.free_frames;
    let whole = sequential(&path.join(DATA_FILE), pages * PAGE_SIZE as u64);
    println!("warm {warm:.0}/s, {pages} pages; sequential {whole:.3} s");
    for is_on in [false, true, false, true] {
        let engine = bench.open(&path, is_on);
        let bar = 0.9 * warm;
        let samples = bench.read(&engine, |samples| {
            samples.rates().last().is_some_and(|rate| rate >= bar) && samples.0.len() > 20
                || samples.0.len() >= 2 * span
        });
        let (stats, first) = (engine.stats(), samples.first_second());
        // Left as it is: the list stays the same for all rounds.
        engine.abandon().expect("abandoned");
        let time = samples.reached(bar);
        println!(
            "{} {} ({} x sequential), {} pages read by the warm start; first second {first}",
            if is_on { "on " } else { "off" },
            time.map_or("never".to_string(), |time| format!("{time:.2} s")),
            time.map_or("-".to_string(), |time| format!("{:.2}", time / whole)),
            stats.warm_pages_read,
        );
    }
    ExitCode::SUCCESS
}
