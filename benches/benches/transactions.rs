//! Performance bars of transactions and of the log. Subjects run alternately in one process, on
//! stores on a real device; medians of the rounds are printed.
//!
//! `cargo bench -p wattle-benches --bench transactions -- [records=1000000] [rounds=5] [dir=PATH]
//! [part=all|reads|updates|mixed|sync|checkpoints] [seconds=120] [window=2048] [sync_us=0]`
//!
//! `window`: commits under way at once. `sync_us`: least time of a sync, to simulate slower
//! devices.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    hint::black_box,
    io::{self, Seek, Write},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use wattle::{Durability, Engine, Error, IoKind, Options, Session, Ticket, Tree, TxnOptions};
use wattle_benches::{NEAR_NS, argument, directory, line_ns, median, stolen, text};
use wattle_buffer::io::{self as device, LogStorage, Zeroes};
use wattle_workloads::{key::fnv1a, rng::Rng, zipf::Zipfian};

const VALUE: usize = 120;
const OPERATIONS: usize = 600_000;

fn key(i: u64) -> [u8; 8] {
    fnv1a(i).to_be_bytes()
}

/// A log whose syncs take at least this long.
struct SlowLog(Arc<dyn LogStorage>, Duration);

impl LogStorage for SlowLog {
    fn segments(&self) -> io::Result<Vec<(u64, u64)>> {
        self.0.segments()
    }

    fn create(&self, segment: u64, bytes: u64) -> io::Result<()> {
        self.0.create(segment, bytes)
    }

    fn create_beside(
        &self,
        segment: u64,
        bytes: u64,
        zeroes: Zeroes,
        pace: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> io::Result<()> {
        self.0.create_beside(segment, bytes, zeroes, pace)
    }

    fn remove(&self, segment: u64) -> io::Result<()> {
        self.0.remove(segment)
    }

    fn retire(&self, segment: u64) -> io::Result<()> {
        self.0.retire(segment)
    }

    fn pass_on(&self, segment: u64) -> io::Result<()> {
        self.0.pass_on(segment)
    }

    fn give_back(&self, all: bool) -> io::Result<bool> {
        self.0.give_back(all)
    }

    fn read(&self, segment: u64, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read(segment, offset, into)
    }

    fn write(&self, segment: u64, writes: &[(u64, &[u8])]) -> io::Result<()> {
        self.0.write(segment, writes)
    }

    fn sync(&self, segment: u64) -> io::Result<()> {
        let begun = Instant::now();
        self.0.sync(segment)?;
        std::thread::sleep(self.1.saturating_sub(begun.elapsed()));
        Ok(())
    }
}

/// Commits under way at once.
fn window() -> usize {
    argument("window", 2048)
}

/// Least time of a sync.
fn least_sync() -> Duration {
    Duration::from_micros(argument("sync_us", 0) as u64)
}

/// A store with all records, in a directory of its own.
struct Store {
    engine: Engine,
    tree: Tree,
    _directory: tempfile::TempDir,
}

impl Store {
    fn new(parent: &Path, records: u64, options: Options) -> Store {
        let directory = tempfile::tempdir_in(parent).expect("a directory for the store");
        let pool = (records * 330).max(64 << 20);
        let options = options.pool_bytes(pool);
        let engine = if least_sync().is_zero() {
            Engine::open(directory.path().join("store"), options)
        } else {
            let pages = device::open(IoKind::Uring, &directory.path().join("data"));
            let log = device::open_log(IoKind::Uring, &directory.path().join("log"));
            let log = SlowLog(log.expect("log"), least_sync());
            Engine::open_on(pages.expect("pages"), Arc::new(log), options)
        };
        let engine = engine.expect("open");
        let tree = engine.tree("bench").expect("tree");
        let session = engine.session().expect("session");
        for first in (0..records).step_by(1000) {
            let mut txn = session.begin().expect("begin");
            for i in first..(first + 1000).min(records) {
                txn.insert(&tree, &key(i), &[i as u8; VALUE]).expect("insert");
            }
            let _ticket = txn.commit_ticket().expect("commit");
        }
        drop(session);
        engine.sync().expect("sync");
        Store { engine, tree, _directory: directory }
    }

    fn session(&self) -> Session {
        self.engine.session().expect("session")
    }
}

/// Commits that are not known to be durable yet.
struct Window {
    size: usize,
    tickets: VecDeque<(Instant, Ticket)>,
    latencies: Vec<f64>,
}

impl Window {
    fn new() -> Window {
        Window { size: window(), tickets: VecDeque::new(), latencies: Vec::new() }
    }

    fn push(&mut self, begun: Instant, ticket: Ticket) {
        self.tickets.push_back((begun, ticket));
        while self.tickets.front().is_some_and(|(_, ticket)| ticket.is_durable()) {
            let (begun, _) = self.tickets.pop_front().expect("looked at");
            self.latencies.push(begun.elapsed().as_secs_f64() * 1e6);
        }
        if self.tickets.len() >= self.size {
            self.wait_first();
        }
    }

    fn wait_first(&mut self) {
        let (begun, ticket) = self.tickets.pop_front().expect("not empty");
        ticket.wait().expect("durable");
        self.latencies.push(begun.elapsed().as_secs_f64() * 1e6);
    }

    fn finish(&mut self) {
        while !self.tickets.is_empty() {
            self.wait_first();
        }
    }
}

fn numbers(records: u64, seed: u64, zipf: bool) -> Vec<u64> {
    let mut rng = Rng::new(seed, 0);
    let zipfian = Zipfian::new(records, 0.99);
    let next = |_| match zipf {
        true => fnv1a(zipfian.next(&mut rng)) % records,
        false => fnv1a(rng.next_u64()) % records,
    };
    (0..OPERATIONS).map(next).collect()
}

/// Operations per second; every commit is durable at the end.
fn updates(store: &Store, numbers: &[u64], round: usize, in_transactions: bool) -> f64 {
    let session = store.session();
    let (mut window, value) = (Window::new(), [round as u8 + 1; VALUE]);
    let start = Instant::now();
    for i in numbers {
        let begun = Instant::now();
        let ticket = if in_transactions {
            loop {
                let mut txn = session.begin().expect("begin");
                match txn.update(&store.tree, &key(*i), &value) {
                    Ok(found) => assert!(found),
                    // Or the processor was taken away for so long that the other thread filled the
                    // memory for versions.
                    Err(Error::Conflict(_) | Error::SnapshotTooOld(_)) => continue,
                    Err(error) => panic!("update: {error}"),
                }
                break txn.commit_ticket().expect("commit");
            }
        } else {
            let (found, ticket) =
                session.update_ticket(&store.tree, &key(*i), &value).expect("update");
            assert!(found);
            ticket
        };
        window.push(begun, ticket);
    }
    window.finish();
    numbers.len() as f64 / start.elapsed().as_secs_f64()
}

/// Microseconds that the device under `dir` needs to make 4 KiB durable on an idle machine: median
/// of a file that grows, then median and 99.9 % of one that is overwritten.
fn device_syncs(dir: &Path) -> [f64; 3] {
    const GROWING: usize = 100;
    const BYTES: usize = 16 << 20;
    let mut file = tempfile::tempfile_in(dir).expect("a file");
    let timed = |file: &mut std::fs::File, piece: &[u8]| {
        let begun = Instant::now();
        file.write_all(piece).expect("write");
        file.sync_data().expect("sync");
        begun.elapsed().max(least_sync()).as_secs_f64() * 1e6
    };
    let growing = (0..GROWING).map(|_| timed(&mut file, &[1; 4096])).collect();
    file.write_all(&vec![0; BYTES]).expect("write");
    file.sync_all().expect("sync");
    file.rewind().expect("rewind");
    let mut over: Vec<_> = (0..BYTES / 4096).map(|_| timed(&mut file, &[2; 4096])).collect();
    over.sort_by(f64::total_cmp);
    [median(growing), over[over.len() / 2], over[over.len() * 999 / 1000]]
}

/// The best p99.9 wait of commits that arrive all the time, microseconds: one thread only waits for
/// [`GATHER`], writes [`FLUSH`] bytes and syncs, while another one is as busy as a thread that
/// commits.
fn best_tail(dir: &Path) -> f64 {
    const GATHER: Duration = Duration::from_micros(150);
    const FLUSH: usize = 32 << 10;
    const SPACE: usize = 16 << 20;
    let mut file = tempfile::tempfile_in(dir).expect("a file");
    file.write_all(&vec![0; SPACE]).expect("write");
    file.sync_all().expect("sync");
    let end = Instant::now() + Duration::from_secs(2);
    let flushes: Vec<(Instant, Instant)> = std::thread::scope(|scope| {
        let flusher = scope.spawn(move || {
            let (mut flushes, mut at) = (Vec::new(), 0);
            while Instant::now() < end {
                std::thread::sleep(GATHER);
                let begun = Instant::now();
                file.seek(std::io::SeekFrom::Start(at as u64)).expect("seek");
                file.write_all(&[1; FLUSH]).expect("write");
                let written = Instant::now();
                file.sync_data().expect("sync");
                std::thread::sleep(least_sync().saturating_sub(written.elapsed()));
                at = (at + FLUSH) % SPACE;
                flushes.push((begun, Instant::now()));
            }
            flushes
        });
        let mut spins = 0_u64;
        while Instant::now() < end {
            spins = black_box(spins + 1);
        }
        flusher.join().expect("thread")
    });
    // A commit between the beginnings of two flushes waits for the end of the later one.
    let mut waits = Vec::new();
    for pair in flushes.windows(2) {
        let (mut commit, (next, durable)) = (pair[0].0, pair[1]);
        while commit < next {
            waits.push((durable - commit).as_secs_f64() * 1e6);
            commit += Duration::from_micros(5);
        }
    }
    waits.sort_by(f64::total_cmp);
    waits[waits.len() * 999 / 1000]
}

/// Half look-ups, half updates.
fn mixed(store: &Store, numbers: &[u64], round: usize) -> (f64, Vec<f64>) {
    let session = store.session();
    let (mut window, mut value) = (Window::new(), [round as u8; VALUE]);
    let start = Instant::now();
    for (at, i) in numbers.iter().enumerate() {
        if at % 2 == 0 {
            let found = session.get_with(&store.tree, &key(*i), |v| value.copy_from_slice(v));
            assert!(found.expect("get").is_some());
            black_box(&value);
        } else {
            let begun = Instant::now();
            value[0] = round as u8;
            let updated = session.update_ticket(&store.tree, &key(*i), &value);
            window.push(begun, updated.expect("update").1);
        }
    }
    window.finish();
    (numbers.len() as f64 / start.elapsed().as_secs_f64(), window.latencies)
}

fn on_two_threads(run: impl Fn(usize) -> f64 + Sync) -> f64 {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|thread| {
                scope.spawn({
                    let run = &run;
                    move || run(thread)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("thread")).sum()
    })
}

/// The rate of two threads relative to one in the same round.
#[derive(Default)]
struct Twice {
    ratios: Vec<f64>,
    /// Runs during which the cores were near each other.
    near: Vec<f64>,
}

impl Twice {
    fn add(&mut self, one: f64, two: impl FnOnce() -> f64) {
        let before = line_ns();
        let ratio = two() / one;
        self.ratios.push(ratio);
        if before.max(line_ns()) < NEAR_NS {
            self.near.push(ratio);
        }
    }
}

impl fmt::Display for Twice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "2 threads {:.2} x (bar 1.7)", median(self.ratios.clone()))?;
        if !self.near.is_empty() {
            let (near, all) = (self.near.len(), self.ratios.len());
            let ratio = median(self.near.clone());
            write!(
                f,
                ", {ratio:.2} x in {near} of {all} rounds with lines of less than {NEAR_NS} ns"
            )?;
        }
        Ok(())
    }
}

/// Share of changed bytes and padding: log bytes without images for each transaction.
fn log_bytes(store: &Store, run: impl FnOnce()) -> f64 {
    let before = store.engine.stats();
    run();
    let after = store.engine.stats();
    let bytes =
        (after.log_bytes - after.log_image_bytes) - (before.log_bytes - before.log_image_bytes);
    bytes as f64 / (after.commits - before.commits) as f64
}

fn bench_updates(dir: &Path, records: u64, rounds: usize) {
    let off = Store::new(dir, records, Options::default().log(false));
    let on = Store::new(dir, records, Options::default());
    for in_transactions in [false, true] {
        let mut rates = [vec![], vec![]];
        let (mut two_off, mut two) = (Twice::default(), Twice::default());
        let mut bytes = Vec::new();
        for round in 0..rounds {
            let numbers =
                [numbers(records, round as u64, false), numbers(records, round as u64 + 99, false)];
            rates[0].push(updates(&off, &numbers[0], round, in_transactions));
            bytes.push(log_bytes(&on, || {
                rates[1].push(updates(&on, &numbers[0], round, in_transactions));
            }));
            let one = rates.each_ref().map(|rates| rates[round]);
            let run = |store, t: usize| updates(store, &numbers[t], round, in_transactions);
            two_off.add(one[0], || on_two_threads(|t| run(&off, t)));
            two.add(one[1], || on_two_threads(|t| run(&on, t)));
        }
        let [off, on] = rates.map(median);
        println!(
            "durable updates, {}: log off {:.3} M/s | sync, {} in flight {:.3} M/s = {:.2} (bar \
             0.60) | off: {two_off} | sync: {two} | log {:.0} B each without images (bar {:.0})",
            if in_transactions { "transactions" } else { "auto-committed" },
            off / 1e6,
            window(),
            on / 1e6,
            on / off,
            median(bytes),
            2.5 * VALUE as f64 + 100.0,
        );
    }
}

fn bench_mixed(dir: &Path, records: u64, rounds: usize) {
    let off = Store::new(dir, records, Options::default().log(false));
    let group = Store::new(dir, records, Options::default().durability(Durability::Group));
    let (mut rates, mut two) = ([vec![], vec![]], Twice::default());
    let (mut tails, mut best, mut device) = (vec![], vec![], [vec![], vec![], vec![]]);
    for round in 0..rounds {
        let numbers =
            [numbers(records, round as u64, true), numbers(records, round as u64 + 99, true)];
        rates[0].push(mixed(&off, &numbers[0], round).0);
        let (rate, mut latencies) = mixed(&group, &numbers[0], round);
        rates[1].push(rate);
        latencies.sort_by(f64::total_cmp);
        tails.push(latencies[latencies.len() * 999 / 1000]);
        best.push(best_tail(dir));
        for (all, now) in device.iter_mut().zip(device_syncs(dir)) {
            all.push(now);
        }
        two.add(rate, || on_two_threads(|t| mixed(&group, &numbers[t], round).0));
    }
    let [off, group] = rates.map(median);
    let (tail, device) = (median(tails), device.map(median));
    println!(
        "YCSB A, Zipfian 0.99: log off {:.3} M/s | group {:.3} M/s = {:.2} (bar 0.55) | {two} | \
         commit p99.9 {tail:.0} us = {:.1} x the device's sync of {:.0} us (bar 5), which takes \
         {:.0} us, p99.9 {:.0} us, where the file does not grow, as in the log; a thread that \
         only waits, writes and syncs beside a busy one gives p99.9 {:.0} us",
        off / 1e6,
        group / 1e6,
        group / off,
        tail / device[0],
        device[0],
        device[1],
        device[2],
        median(best),
    );
}

fn bench_reads(dir: &Path, records: u64, rounds: usize) {
    let store = Store::new(dir, records, Options::default());
    let map: BTreeMap<[u8; 8], [u8; VALUE]> =
        (0..records).map(|i| (key(i), [i as u8; VALUE])).collect();
    let read_only = TxnOptions { read_only: true, ..TxnOptions::default() };
    let mut rates = [vec![], vec![], vec![], vec![], vec![]];
    let session = store.session();
    let lookups = |session: &Session, numbers: &[u64], options: TxnOptions| {
        let (mut value, start) = ([0; VALUE], Instant::now());
        for i in numbers {
            let txn = session.begin_with(options).expect("begin");
            let found = txn.get_with(&store.tree, &key(*i), |v| value.copy_from_slice(v));
            assert!(found.expect("get").is_some());
            txn.commit().expect("commit");
            black_box(&value);
        }
        numbers.len() as f64 / start.elapsed().as_secs_f64()
    };
    for round in 0..rounds {
        let numbers = numbers(records, round as u64, false);
        let (mut value, start) = ([0; VALUE], Instant::now());
        for i in &numbers {
            value.copy_from_slice(map.get(&key(*i)).expect("found"));
            black_box(&value);
        }
        rates[0].push(numbers.len() as f64 / start.elapsed().as_secs_f64());
        let start = Instant::now();
        for i in &numbers {
            let found = session.get_with(&store.tree, &key(*i), |v| value.copy_from_slice(v));
            assert!(found.expect("get").is_some());
            black_box(&value);
        }
        rates[1].push(numbers.len() as f64 / start.elapsed().as_secs_f64());
        rates[2].push(lookups(&session, &numbers, read_only));
        rates[3].push(lookups(&session, &numbers, TxnOptions::default()));
        rates[4].push(on_two_threads(|_| lookups(&store.session(), &numbers, read_only)));
    }
    let [map, get, read, write, two] = rates.map(median);
    println!(
        "look-ups: BTreeMap {:.2} M/s | get {:.2} = {:.2} x | read-only transaction {:.2} = {:.2} \
         of get (bar 0.75) | transaction {:.2} = {:.2} of get | 2 threads {:.2} = {:.2} x (bar \
         1.7)",
        map / 1e6,
        get / 1e6,
        get / map,
        read / 1e6,
        read / get,
        write / 1e6,
        write / get,
        two / 1e6,
        two / read,
    );
}

/// Blocking commits from many threads.
fn bench_sync(dir: &Path, records: u64, rounds: usize) {
    const THREADS: u64 = 64;
    let store = Store::new(dir, records, Options::default());
    let (mut shared, mut rates) = (vec![], vec![]);
    for round in 0..rounds {
        let before = store.engine.stats();
        let (end, done) = (Instant::now() + Duration::from_secs(3), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (store, done) = (&store, &done);
                scope.spawn(move || {
                    let session = store.session();
                    let mut rng = Rng::new(thread + 1000 * round as u64, 1);
                    while Instant::now() < end {
                        let i = rng.next_u64() % records;
                        assert!(session.update(&store.tree, &key(i), &[1; VALUE]).expect("update"));
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        let after = store.engine.stats();
        rates.push(done.into_inner() as f64 / 3.0);
        shared.push(
            (after.commits - before.commits) as f64 / (after.log_syncs - before.log_syncs) as f64,
        );
    }
    println!(
        "64 blocking threads, sync: {:.0} commits/s, {:.1} commits for each sync (bar 20)",
        median(rates),
        median(shared)
    );
}

/// Whether checkpoints show: samples of a second of a long run.
fn bench_checkpoints(dir: &Path, records: u64, _: usize) {
    let seconds = argument("seconds", 120);
    let store = Store::new(dir, records, Options::default().durability(Durability::Group));
    let (done, ended) = (AtomicU64::new(0), AtomicU64::new(0));
    let (mut samples, before) = (Vec::new(), store.engine.stats());
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (store, done, ended) = (&store, &done, &ended);
            scope.spawn(move || {
                let (session, mut window) = (store.session(), Window::new());
                let numbers = numbers(records, thread, true);
                let mut value = [thread as u8; VALUE];
                for (at, i) in numbers.iter().cycle().enumerate() {
                    if at % 2 == 0 {
                        let found =
                            session.get_with(&store.tree, &key(*i), |v| value.copy_from_slice(v));
                        assert!(found.expect("get").is_some());
                    } else {
                        let updated = session.update_ticket(&store.tree, &key(*i), &value);
                        window.push(Instant::now(), updated.expect("update").1);
                        window.latencies.clear();
                    }
                    if at % 64 == 0 {
                        done.fetch_add(64, Ordering::Relaxed);
                        if ended.load(Ordering::Relaxed) != 0 {
                            break;
                        }
                    }
                }
                window.finish();
            });
        }
        std::thread::sleep(Duration::from_secs(3));
        let (mut last, mut steal) = (done.load(Ordering::Relaxed), stolen());
        let mut begun = Instant::now();
        for _ in 0..seconds {
            std::thread::sleep(Duration::from_secs(1));
            let (now, taken, passed) = (done.load(Ordering::Relaxed), stolen(), begun.elapsed());
            begun = Instant::now();
            samples.push(((now - last) as f64 / passed.as_secs_f64(), taken - steal));
            (last, steal) = (now, taken);
        }
        ended.store(1, Ordering::Relaxed);
    });
    let middle = median(samples.iter().map(|sample| sample.0).collect());
    let low: Vec<_> = samples.iter().filter(|sample| sample.0 < 0.6 * middle).collect();
    let least = samples.iter().map(|sample| sample.0).fold(f64::MAX, f64::min);
    println!(
        "YCSB A, group, 2 threads, {seconds} s with {} checkpoints: median {:.3} M/s, least \
         second {:.2} of it; {} of {seconds} below 0.60 (bar 0), in which the machine took {:?} s \
         of its 2 processors away",
        store.engine.stats().checkpoints - before.checkpoints,
        middle / 1e6,
        least / middle,
        low.len(),
        low.iter().map(|sample| (sample.1 * 100.0).round() / 100.0).collect::<Vec<_>>(),
    );
}

fn main() {
    let (records, rounds) = (argument("records", 1_000_000) as u64, argument("rounds", 5));
    let (dir, part) = (directory("."), text("part", "all"));
    println!(
        "{records} records of 8 + {VALUE} B in memory, log on the device, medians of {rounds} \
         rounds"
    );
    for (name, bench) in [
        ("reads", bench_reads as fn(&Path, u64, usize)),
        ("updates", bench_updates),
        ("mixed", bench_mixed),
        ("sync", bench_sync),
        ("checkpoints", bench_checkpoints),
    ] {
        if part == "all" || part == name {
            bench(&dir, records, rounds);
        }
    }
}
