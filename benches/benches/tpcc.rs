//! Performance bars of TPC-C. In memory: relative to look-ups of a `std::collections::BTreeMap`,
//! measured between the runs. With a pool of a fraction of the data: `watt` and `random` alternate.
//! With a pool of a fifth of the data: pages relative to those of the device with the same mix of
//! reads and writes.
//!
//! `cargo bench -p wattle-benches --bench tpcc -- [part=memory|larger|fifth] [rounds=5]
//! [seconds=10] [records=10000000] [warehouses=5|15] [pool=600MiB] [log=LIMIT|off] [home=no|yes]
//! [hints=on|off] [dir=.]`
//!
//! The last line of the last part is the device's rate while all processors are busy counting. If
//! the work of the device comes out of the machine's quota of processor time, no engine can reach
//! more.
//!
//! Runs use `--hints prefetch --delivery-queue on --pin=auto`, as the bars were set with them.
//! `hints=off` leaves the first two out; these are the defaults of `wattle tpcc`, and a comparison
//! with another engine must use them.
//!
//! `home` is for the first part: each thread stays at one warehouse and on one core. Its last line
//! is the rate of transactions without a log beside a thread that writes and syncs as much, and as
//! often, as the log of the run with two threads. `log` is for the second part: the limit of the
//! log, as `16GiB`, or `off`. The writes of checkpoints do not depend on the policy.
//!
//! Every run is a process of its own that loads a new store, as `wattle tpcc` does.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    hint::black_box,
    path::Path,
    process::{Command, ExitCode},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    time::{Duration, Instant},
};
use wattle_benches::{NEAR_NS, argument, directory, line_ns, median, stolen, text};
use wattle_buffer::{
    PAGE_SIZE,
    io::{
        IoKind, LogBuffer, LogStorage, open_log,
        probe::{ProbeOptions, probe},
    },
};
use wattle_workloads::{key::fnv1a, rng::Rng};

/// First argument of a process that is a run.
const RUN: &str = "wattle";
/// Look-ups of one calibration.
const LOOKUPS: usize = 2_000_000;

/// Output of a run.
struct Run(serde_json::Value);

impl Run {
    /// Runs `wattle tpcc` with these arguments on a store below `dir`.
    fn of(arguments: &str, dir: &Path) -> Run {
        let folder = tempfile::tempdir_in(dir).expect("a folder for the store");
        let mut command = Command::new(std::env::current_exe().expect("own path"));
        command.args([RUN, "tpcc", "--format", "json", "--durability", "group"]);
        if text("hints", "on") == "on" {
            command.args(["--hints", "prefetch", "--delivery-queue", "on"]);
        }
        command.args(["--pin=auto", "--db"]);
        command.arg(folder.path()).args(arguments.split(' '));
        let output = command.output().expect("run");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments}: {error}");
        Run(serde_json::from_slice(&output.stdout).expect("an object"))
    }

    fn number(&self, part: &str, name: &str) -> f64 {
        self.0[part][name].as_f64().unwrap_or_else(|| panic!("there is no {part}.{name}"))
    }

    /// Transactions per second.
    fn speed(&self) -> f64 {
        self.number("run", "throughput")
    }

    /// Of all of the run, for each transaction.
    fn per_transaction(&self, counter: &str) -> f64 {
        self.number("buffer", counter) / self.number("run", "operations")
    }
}

fn key(i: u64) -> [u8; 8] {
    fnv1a(i).to_be_bytes()
}

/// Look-ups per second of uniformly random records of 120 bytes.
fn calibrate(map: &BTreeMap<[u8; 8], [u8; 120]>, round: usize) -> f64 {
    let mut rng = Rng::new(7, round as u64);
    let keys: Vec<_> = (0..LOOKUPS).map(|_| key(rng.next_u64() % map.len() as u64)).collect();
    let start = Instant::now();
    for key in &keys {
        black_box(*map.get(key).expect("found"));
    }
    LOOKUPS as f64 / start.elapsed().as_secs_f64()
}

/// Seconds before the measured part of a run in memory.
const WARM_UP: usize = 2;
/// Index of the case whose writes the last case repeats.
const LOGGED: usize = 1;
/// Bytes of the file that [`Writes`] writes round and round.
const RING_BYTES: u64 = 64 << 20;

/// The load of a log on its device, without a log.
#[derive(Debug, Clone, Copy)]
struct Writes {
    /// Between the beginnings of two writes.
    every: Duration,
    /// Bytes of one write, in whole pages.
    bytes: usize,
}

impl Writes {
    /// The writes of a run with a log, which took this long with its warm-up.
    fn of(run: &Run, seconds: usize) -> Writes {
        let (syncs, seconds) = (run.number("log", "syncs").max(1.0), seconds as f64);
        let pages = (run.number("log", "bytes") / syncs / PAGE_SIZE as f64).ceil().max(1.0);
        Writes {
            every: Duration::from_secs_f64(seconds / syncs),
            bytes: pages as usize * PAGE_SIZE,
        }
    }

    /// Writes and syncs once per `every`, or back to back if the device takes longer, until the
    /// other end of `stop` is dropped.
    fn make(self, log: &dyn LogStorage, stop: &Receiver<()>) -> std::io::Result<()> {
        let buffer = LogBuffer::new(self.bytes);
        let (mut at, mut next) = (0, Instant::now());
        loop {
            if at + self.bytes as u64 > RING_BYTES {
                at = 0;
            }
            log.write(0, &[(at, &buffer[..])])?;
            log.sync(0)?;
            at += self.bytes as u64;
            next = (next + self.every).max(Instant::now());
            let rest = next.saturating_duration_since(Instant::now());
            if stop.recv_timeout(rest) == Err(RecvTimeoutError::Disconnected) {
                return Ok(());
            }
        }
    }

    /// Runs `body` beside these writes. `body` may panic.
    fn beside<T>(self, dir: &Path, what: impl FnOnce() -> T) -> T {
        let folder = tempfile::tempdir_in(dir).expect("a folder for the writes");
        let log = open_log(IoKind::Uring, folder.path()).expect("a log");
        log.create(0, RING_BYTES).expect("a segment");
        std::thread::scope(|scope| {
            let (going, stop) = channel();
            let writer = scope.spawn(move || self.make(&*log, &stop));
            let done = what();
            drop(going);
            writer.join().expect("no panic").expect("writes");
            done
        })
    }
}

fn in_memory(rounds: usize, seconds: usize, dir: &Path) {
    let records = argument("records", 10_000_000) as u64;
    let warehouses = argument("warehouses", 5);
    let others = match text("home", "no").as_str() {
        "no" => "",
        _ => " --affinity --pin",
    };
    let cases = [
        ("group, 1 thread", "--threads 1", Some(0.058)),
        ("group, 2 threads", "--threads 2", Some(0.105)),
        ("log off, 1 thread", "--threads 1 --log off", Some(0.07)),
        ("log off, 2 threads", "--threads 2 --log off", Some(0.13)),
        ("log off, 2, beside writes", "--threads 2 --log off", None),
    ];
    // The writes of the log in the run with two threads.
    let mut writes = None;
    println!(
        "{warehouses} warehouses, pool 2 GiB, {seconds} s{others}; BTreeMap of {records} records \
         of 8 + 120 bytes; {rounds} rounds, medians"
    );
    let map: BTreeMap<_, _> = (0..records).map(|i| (key(i), [i as u8; 120])).collect();
    let mut look_ups = Vec::new();
    let mut speeds = vec![Vec::new(); cases.len()];
    let mut ratios = speeds.clone();
    // Runs during which the cores were near each other.
    let (mut lines, mut near) = (Vec::new(), ratios.clone());
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let mut lost = ratios.clone();
    for round in 0..rounds {
        for (case, (_, flags, _)) in cases.iter().enumerate() {
            // Measures the machine before and after the run.
            let before = (calibrate(&map, 2 * round), line_ns());
            let flags = format!(
                "--warehouses {warehouses} --pool 2GiB --warmup {WARM_UP}s --duration {seconds}s \
                 {flags}{others}"
            );
            let (began, stolen_before) = (Instant::now(), stolen());
            let run = match cases[case].2 {
                Some(_) => Run::of(&flags, dir),
                None => {
                    let writes: Writes = writes.expect("the run with a log comes first");
                    writes.beside(dir, || Run::of(&flags, dir))
                }
            };
            let passed = began.elapsed().as_secs_f64() * processors;
            lost[case].push(100.0 * (stolen() - stolen_before) / passed);
            if case == LOGGED {
                writes = Some(Writes::of(&run, WARM_UP + seconds));
            }
            let speed = run.speed();
            let line = before.1.max(line_ns());
            let now = (before.0 + calibrate(&map, 2 * round + 1)) / 2.0;
            look_ups.push(now);
            speeds[case].push(speed);
            ratios[case].push(speed / now);
            lines.push(line);
            if line < NEAR_NS {
                near[case].push(speed / now);
            }
        }
    }
    lines.sort_by(f64::total_cmp);
    println!(
        "BTreeMap                  {:9.0} look-ups/s; a cache line takes {:.0} to {:.0} ns from \
         core to core, median {:.0}",
        median(look_ups),
        lines[0],
        lines[lines.len() - 1],
        median(lines.clone()),
    );
    for (case, (name, _, bar)) in cases.iter().enumerate() {
        print_case(name, *bar, &[&speeds[case], &ratios[case], &lost[case]], near[case].clone());
    }
}

/// Prints the medians of one case: transactions per second, those for each look-up, and the share
/// of the processors that was stolen. `near`: those for each look-up while the cores were near.
fn print_case(name: &str, bar: Option<f64>, measured: &[&Vec<f64>; 3], near: Vec<f64>) {
    let [speed, ratio, lost] = measured.map(|numbers| median(numbers.clone()));
    print!("{name:25} {speed:9.0} transactions/s = {ratio:.4} of a look-up each");
    if let Some(bar) = bar {
        print!(" (bar {bar})");
    }
    print!(", {lost:.0} % of the processors stolen");
    match near.len() {
        0 => println!(),
        runs => {
            let ratio = median(near);
            println!("; {ratio:.4} in {runs} runs with less than {NEAR_NS} ns");
        }
    }
}

fn larger_than_memory(rounds: usize, seconds: usize, dir: &Path) {
    let (warehouses, pool) = (argument("warehouses", 15), text("pool", "600MiB"));
    let log = text("log", "default");
    let log_flags = match log.as_str() {
        "default" => String::new(),
        "off" => " --log off".to_owned(),
        limit => format!(" --log-limit {limit}"),
    };
    println!(
        "{warehouses} warehouses, pool {pool}, log {log}, 2 threads of 64 tasks, {seconds} s; \
         {rounds} rounds, medians"
    );
    let policies = ["watt", "random"];
    let mut runs: [Vec<Run>; 2] = Default::default();
    for _ in 0..rounds {
        for (policy, runs) in policies.iter().zip(&mut runs) {
            let flags = format!(
                "--warehouses {warehouses} --pool {pool} --threads 2 --tasks 64 --affinity \
                 --duration {seconds}s --policy {policy}{log_flags}"
            );
            runs.push(Run::of(&flags, dir));
        }
    }
    let of = |of: &dyn Fn(&Run) -> f64| {
        runs.each_ref().map(|runs| median(runs.iter().map(of).collect()))
    };
    let speed = of(&Run::speed);
    let reads = of(&|run| run.per_transaction("pages_read"));
    let writes = of(&|run| run.per_transaction("pages_written"));
    for (i, policy) in policies.iter().enumerate() {
        let (pages, speed) = (reads[i] + writes[i], speed[i]);
        println!(
            "{policy:7} {speed:7.0} transactions/s, {:.2} reads and {:.2} writes each: {:.0} \
             pages/s",
            reads[i],
            writes[i],
            pages * speed
        );
    }
    let fewer = |pages: [f64; 2]| 100.0 * (1.0 - pages[0] / pages[1]);
    println!(
        "watt against random: {:.0} % fewer reads (bar 10), {:.0} % fewer writes (bar 25)",
        fewer(reads),
        fewer(writes)
    );
}

/// Best rate of random reads and writes of the device under `dir`, with this share of reads.
fn mixed(dir: &Path, reads: f64) -> f64 {
    let at = |depth| {
        let options = ProbeOptions {
            file_bytes: 512 << 20,
            point_time: Duration::from_secs(1),
            depths: vec![depth],
            mixed_depth: depth,
            mixed_reads: reads,
            syncs: 1,
            ..ProbeOptions::new(dir)
        };
        let report = probe(&options, &Arc::new(AtomicBool::new(false)), &mut |_, _| {});
        let report = report.expect("a device that can be probed");
        report.mixed_reads.per_second + report.mixed_writes.per_second
    };
    [32, 64, 128].into_iter().map(at).fold(0.0, f64::max)
}

/// Runs `body` while all processors count. A virtual machine with a quota of processor time may pay
/// for the work of the device out of that quota.
fn beside_counting<T>(what: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let stop = StopAtEnd(&stop);
        for _ in 0..processors {
            let stop = stop.0;
            scope.spawn(move || {
                let mut count = 0_u64;
                while !stop.load(Relaxed) {
                    count = black_box(count + 1);
                }
            });
        }
        what()
    })
}

/// Stops the counting threads also when `body` panics.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn a_fifth(rounds: usize, seconds: usize, dir: &Path) {
    // 85 MiB of pages for each warehouse.
    let warehouses = argument("warehouses", 5);
    let pool = text("pool", &format!("{}MiB", 16 * warehouses));
    println!(
        "{warehouses} warehouses, pool {pool}, 2 threads of 64 tasks, group, {seconds} s; \
         {rounds} rounds, medians"
    );
    let (mut speeds, mut pages, mut devices, mut shares) = (vec![], vec![], vec![], vec![]);
    let (mut busy_devices, mut busy_shares) = (vec![], vec![]);
    let mut reads = 0.6;
    for _ in 0..rounds {
        // Measures the device before and after the run.
        let before = mixed(dir, reads);
        let run = Run::of(
            &format!(
                "--warehouses {warehouses} --pool {pool} --threads 2 --tasks 64 --affinity \
                 --duration {seconds}s"
            ),
            dir,
        );
        let of = ["pages_read", "pages_written"].map(|counter| run.per_transaction(counter));
        reads = of[0] / (of[0] + of[1]);
        let device = (before + mixed(dir, reads)) / 2.0;
        let busy_device = beside_counting(|| mixed(dir, reads));
        let rate = (of[0] + of[1]) * run.speed();
        speeds.push(run.speed());
        pages.push(rate);
        devices.push(device);
        shares.push(rate / device);
        busy_devices.push(busy_device);
        busy_shares.push(rate / busy_device);
    }
    println!(
        "{:.0} transactions/s, {:.0} pages/s, {:.0} % of them reads; the device does {:.0}: {:.2} \
         of it (bar 0.85)",
        median(speeds),
        median(pages),
        100.0 * reads,
        median(devices),
        median(shares)
    );
    println!(
        "beside processors that only count the device does {:.0}: {:.2} of it",
        median(busy_devices),
        median(busy_shares)
    );
}

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if arguments.first().is_some_and(|first| first == RUN) {
        return wattle_workloads::cli::main(arguments);
    }
    let (rounds, seconds) = (argument("rounds", 5), argument("seconds", 10));
    let dir = directory(".");
    match text("part", "memory").as_str() {
        "larger" => larger_than_memory(rounds, seconds, &dir),
        "fifth" => a_fifth(rounds, seconds, &dir),
        _ => in_memory(rounds, seconds, &dir),
    }
    ExitCode::SUCCESS
}
