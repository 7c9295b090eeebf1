//! Performance bars larger than memory: how much of the device the engine uses, and what WATT saves
//! against random replacement. Pool 1/5 of the pages, Zipfian 0.9, 8-byte keys, 120-byte values.
//!
//! `cargo bench -p wattle-benches --bench larger_than_memory -- [records=10000000] [rounds=5]
//! [seconds=6] [dir=/tmp] [part=all|device|policies]`

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use wattle::{Engine, Options, Stats, Tree, io::probe};
use wattle_benches::{argument, directory, median, text};
use wattle_workloads::{key::fnv1a, rng::Rng, zipf::Zipfian};

const VALUE: usize = 120;

/// Keys in flight: 64 blocking threads, or 2 threads of 64 tasks.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Threads,
    Tasks,
}

struct Setup {
    path: PathBuf,
    records: u64,
    pool: u64,
    seconds: u64,
}

struct Outcome {
    operations: u64,
    seconds: f64,
    stats: Stats,
    before: Stats,
    cpu_us: f64,
}

impl Outcome {
    fn reads(&self) -> f64 {
        (self.stats.pages_read - self.before.pages_read) as f64
    }
    fn writes(&self) -> f64 {
        (self.stats.pages_written - self.before.pages_written) as f64
    }
}

fn cpu_us() -> f64 {
    let usage = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    usage.tv_sec as f64 * 1e6 + usage.tv_nsec as f64 / 1e3
}

fn load(setup: &Setup) -> u64 {
    let options = Options::default().log(false).pool_bytes(setup.records * 300);
    let engine = Engine::open(&setup.path, options).expect("open");
    let tree = engine.tree("bench").expect("tree");
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (engine, tree) = (&engine, &tree);
            scope.spawn(move || {
                let session = engine.session().expect("session");
                for i in (thread..setup.records).step_by(2) {
                    session.insert(tree, &fnv1a(i).to_be_bytes(), &[i as u8; VALUE]).expect("load");
                }
            });
        }
    });
    let pages = engine.stats().used_pages;
    drop(tree);
    engine.close().expect("close");
    pages
}

/// Runs reads, and one update in `update_every` operations (0: none). The measured part begins
/// after as much time again and as many full replacements of the pool as `replacements` says.
fn run(setup: &Setup, mode: Mode, policy: &str, update_every: u64, replacements: u64) -> Outcome {
    let options = Options::default().log(false).pool_bytes(setup.pool).policy(policy);
    let engine = Engine::open(&setup.path, options).expect("open");
    let tree = engine.tree("bench").expect("tree");
    let zipf = Zipfian::new(setup.records, 0.9);
    let stop = AtomicBool::new(false);
    let count = AtomicU64::new(0);
    let outcome = std::thread::scope(|scope| {
        let threads = if mode == Mode::Threads { 64 } else { 2 };
        for thread in 0..threads {
            let (engine, tree, zipf, stop, count) = (&engine, &tree, &zipf, &stop, &count);
            scope.spawn(move || match mode {
                Mode::Threads => blocking(engine, tree, zipf, stop, count, thread, update_every),
                Mode::Tasks => tasks(engine, tree, zipf, stop, count, thread, update_every),
            });
        }
        let length = Duration::from_secs(setup.seconds);
        std::thread::sleep(length);
        let steady = |stats: Stats| stats.evictions >= replacements * stats.frames;
        while !steady(engine.stats()) {
            std::thread::sleep(Duration::from_millis(100));
        }
        let (start, cpu) = (Instant::now(), cpu_us());
        let (before, operations) = (engine.stats(), count.load(Ordering::Relaxed));
        std::thread::sleep(length);
        let seconds = start.elapsed().as_secs_f64();
        let outcome = Outcome {
            operations: count.load(Ordering::Relaxed) - operations,
            seconds,
            stats: engine.stats(),
            before,
            cpu_us: cpu_us() - cpu,
        };
        stop.store(true, Ordering::Relaxed);
        outcome
    });
    drop(tree);
    engine.close().expect("close");
    outcome
}

fn blocking(
    engine: &Engine,
    tree: &Tree,
    zipf: &Zipfian,
    stop: &AtomicBool,
    count: &AtomicU64,
    seed: u64,
    update_every: u64,
) {
    let session = engine.session().expect("session");
    let mut rng = Rng::new(seed, 1);
    while !stop.load(Ordering::Relaxed) {
        for i in 0..16u64 {
            let key = fnv1a(fnv1a(zipf.next(&mut rng)) % zipf.items()).to_be_bytes();
            if update_every > 0 && (rng.next_u64() + i).is_multiple_of(update_every) {
                assert!(session.update(tree, &key, &[9; VALUE]).expect("update"));
            } else {
                assert!(session.contains(tree, &key).expect("get"));
            }
        }
        count.fetch_add(16, Ordering::Relaxed);
    }
}

fn tasks(
    engine: &Engine,
    tree: &Tree,
    zipf: &Zipfian,
    stop: &AtomicBool,
    count: &AtomicU64,
    seed: u64,
    update_every: u64,
) {
    wattle::run(256, async {
        let session = engine.async_session().expect("session");
        let tasks = (0..64).map(|task| {
            let session = session.clone();
            async move {
                let mut rng = Rng::new(seed, 100 + task);
                let mut value = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..16 {
                        let key = fnv1a(fnv1a(zipf.next(&mut rng)) % zipf.items()).to_be_bytes();
                        if update_every > 0 && rng.next_u64().is_multiple_of(update_every) {
                            let found = session.update(tree, &key, &[9; VALUE]).await;
                            assert!(found.expect("update"));
                        } else {
                            let found = session.get_into(tree, &key, &mut value).await;
                            assert!(found.expect("get"));
                        }
                    }
                    count.fetch_add(16, Ordering::Relaxed);
                }
            }
        });
        futures_util::future::join_all(tasks).await;
    })
    .expect("runtime");
}

/// Random reads per second of the device at the given depth.
fn device(directory: &Path, depth: usize) -> f64 {
    let mut options = probe::ProbeOptions::new(directory);
    options.depths = vec![depth];
    options.point_time = Duration::from_secs(3);
    options.syncs = 1;
    let stop = Arc::new(AtomicBool::new(false));
    let report = probe::probe(&options, &stop, &mut |_, _| {}).expect("probe");
    report.reads[0].per_second
}

fn main() {
    let directory = tempfile::tempdir_in(directory("/tmp")).expect("directory");
    let mut setup = Setup {
        path: directory.path().join("store"),
        records: argument("records", 10_000_000) as u64,
        pool: 0,
        seconds: argument("seconds", 6) as u64,
    };
    let rounds = argument("rounds", 5);
    let pages = load(&setup);
    setup.pool = pages / 5 * 4224;
    println!("{pages} pages, pool {} MiB, {rounds} rounds, medians", setup.pool >> 20);
    let part = text("part", "all");
    if part != "policies" {
        device_bars(&setup, directory.path(), rounds);
    }
    if part != "device" {
        policy_bars(&setup, rounds);
    }
}

/// How much of the device the engine uses.
fn device_bars(setup: &Setup, directory: &Path, rounds: usize) {
    let mut device_rates: [Vec<f64>; 2] = Default::default();
    let mut rates: [Vec<f64>; 4] = Default::default();
    let mut cpu: [Vec<f64>; 2] = Default::default();
    let modes = [(Mode::Threads, 0), (Mode::Tasks, 0), (Mode::Threads, 20), (Mode::Tasks, 20)];
    for _ in 0..rounds {
        device_rates[0].push(device(directory, 64));
        for (i, (mode, every)) in modes.into_iter().enumerate() {
            let outcome = run(setup, mode, "watt", every, 1);
            rates[i].push(outcome.reads() / outcome.seconds);
            if every == 0 {
                cpu[i].push(outcome.cpu_us / outcome.reads());
            }
        }
        device_rates[1].push(device(directory, 128));
    }
    let [at_64, at_128] = device_rates.map(median);
    let [c_threads, c_tasks, b_threads, b_tasks] = rates.map(median);
    let [cpu_threads, cpu_tasks] = cpu.map(median);
    println!("device {at_64:.0} reads/s at depth 64, {at_128:.0} at depth 128");
    println!("C, 64 threads   {c_threads:.0} reads/s = {:.2} of the device", c_threads / at_64);
    println!("C, 2 x 64 tasks {c_tasks:.0} reads/s = {:.2} of the device", c_tasks / at_128);
    println!("B, 64 threads   {b_threads:.0} reads/s = {:.2} of the device", b_threads / at_64);
    println!("B, 2 x 64 tasks {b_tasks:.0} reads/s = {:.2} of the device", b_tasks / at_128);
    println!("processor time per fault: threads {cpu_threads:.1} us, tasks {cpu_tasks:.1} us");
}

/// What WATT saves against random replacement in a steady state: after ten full replacements of the
/// pool.
fn policy_bars(setup: &Setup, rounds: usize) {
    let mut policies: [Vec<f64>; 6] = Default::default();
    for _ in 0..rounds {
        for (i, (policy, every)) in
            [("watt", 0), ("random", 0), ("watt", 10), ("random", 10)].into_iter().enumerate()
        {
            let outcome = run(setup, Mode::Tasks, policy, every, 10);
            let operations = outcome.operations as f64;
            policies[i].push(outcome.reads() / operations);
            if every > 0 {
                policies[i + 2].push(outcome.writes() / operations);
            }
        }
    }
    let [watt_c, random_c, watt_rw, random_rw, watt_w, random_w] = policies.map(median);
    println!(
        "reads per operation, 100 % reads: watt {watt_c:.3}, random {random_c:.3}: {:.0} % fewer",
        100.0 * (1.0 - watt_c / random_c)
    );
    println!(
        "10 % updates: reads watt {watt_rw:.3}, random {random_rw:.3}; writes watt {watt_w:.4}, \
         random {random_w:.4}: {:.0} % fewer writes",
        100.0 * (1.0 - watt_w / random_w)
    );
}
