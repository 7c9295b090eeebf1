//! Each choice of `buffer/src/tuning.rs`, off against on.
//!
//! `cargo bench -p wattle-benches --bench heuristics -- off=NAME [work=get,update,..] [rounds=5]
//! [records=1000000] [dir=PATH]`
//!
//! Builds this benchmark once more with `WATTLE_OFF=NAME` in `target/off`, runs both builds in
//! turns, A B A B, and prints medians and the ratio off / on: above 1 the choice helps.
//! `off=writes` needs no build: it compares 64 with 128 images in flight. `other=PATH` runs a build
//! that exists.
//!
//! | work | value |
//! |---|---|
//! | `load` | inserts in random key order, ns each |
//! | `load-p9999`, `load-max` | the slowest of these inserts, us of time |
//! | `get`, `multi-get` | resident look-ups at random, ns each |
//! | `update` | auto-committed updates at random, `Durability::None`, ns each |
//! | `transaction` | transactions of four updates, `Durability::None`, ns each |
//! | `evict` | evictions of clean pages, ns each |
//! | `write-back` | updates at random with a pool of 64 MiB on a device, ns of time each |
//!
//! Where nothing else is said, ns are those of the processor for the thread that runs the work.

use rustix::time::{ClockId, clock_gettime};
use std::{
    collections::BTreeMap,
    hint::black_box,
    process::{Command, ExitCode, Stdio},
    time::Instant,
};
use wattle::{Durability, Engine, IoKind, Options, Session, Tree};
use wattle_benches::{argument, directory, median, text};
use wattle_buffer::random::{GOLDEN, mix};

const VALUE: [u8; 120] = [7; 120];
/// Operations of each work.
const OPERATIONS: u64 = 1_000_000;
/// Keys of a batch.
const BATCH: usize = 32;

/// Key of record `i`: hashed (SplitMix64), so that neighbours in time are strangers in the tree.
fn key(i: u64) -> [u8; 8] {
    mix(i.wrapping_mul(GOLDEN).wrapping_add(GOLDEN)).to_be_bytes()
}

/// Keys of records at random, in an order that is the same in each process.
fn keys(records: u64, count: u64) -> impl Iterator<Item = [u8; 8]> {
    (0..count).map(move |i| key(u64::from_be_bytes(key(i ^ 0x5555_0000_0000)) % records))
}

/// Processor time of the calling thread, nanoseconds: other work on the machine hardly changes it.
fn cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Nanoseconds of processor time for each of `count` operations of `body`.
fn ns_each(count: u64, body: impl FnOnce()) -> f64 {
    let start = cpu_ns();
    body();
    (cpu_ns() - start) / count as f64
}

fn tell(work: &str, value: f64) {
    println!("{work} {value}");
}

/// Inserts all records; tells the mean and the slowest inserts.
fn load(session: &Session, tree: &Tree, records: u64) {
    let mut took = Vec::with_capacity(records as usize);
    let each = ns_each(records, || {
        let mut before = Instant::now();
        for i in 0..records {
            session.insert(tree, &key(i), &VALUE).expect("insert");
            let now = Instant::now();
            took.push((now - before).as_nanos() as u32);
            before = now;
        }
    });
    took.sort_unstable();
    tell("load", each);
    tell("load-p9999", f64::from(took[took.len() - 1 - took.len() / 10_000]) / 1e3);
    tell("load-max", f64::from(took[took.len() - 1]) / 1e3);
}

/// All works of a resident store.
fn resident(records: u64) {
    let bytes = (records * 256).max(64 << 20);
    let options = Options::default().io(IoKind::Memory).pool_bytes(bytes);
    let options = options.durability(Durability::None);
    let engine = Engine::open("", options).expect("open");
    let (tree, session) = (engine.tree("bench").expect("tree"), engine.session().expect("session"));
    load(&session, &tree, records);
    let wanted: Vec<_> = keys(records, OPERATIONS).collect();
    let get = || {
        for key in &wanted {
            let found = session.get_with(&tree, key, |value| black_box(value[0]));
            assert!(found.expect("get").is_some());
        }
    };
    get();
    tell("get", ns_each(OPERATIONS, get));
    let multi_get = || {
        for keys in wanted.chunks(BATCH) {
            let visit = |_, value: Option<&[u8]>| _ = black_box(value.expect("found")[0]);
            session.multi_get(&tree, keys, visit).expect("multi_get");
        }
    };
    tell("multi-get", ns_each(OPERATIONS, multi_get));
    let update = || {
        for key in &wanted {
            session.update(&tree, key, &VALUE).expect("update");
        }
    };
    tell("update", ns_each(OPERATIONS, update));
    let transactions = || {
        for keys in wanted.chunks(4) {
            let mut transaction = session.begin().expect("begin");
            for key in keys {
                transaction.update(&tree, key, &VALUE).expect("update");
            }
            transaction.commit().expect("commit");
        }
    };
    tell("transaction", ns_each(OPERATIONS / 4, transactions));
    drop(session);
    engine.checkpoint().expect("checkpoint");
    let pages = (records / 60) as usize;
    let start = cpu_ns();
    let evicted = engine.pool().evict_pages(pages);
    tell("evict", (cpu_ns() - start) / evicted.max(1) as f64);
}

/// Updates of a store that is larger than its pool.
fn write_back(records: u64) {
    let directory = tempfile::tempdir_in(directory("target/heuristics")).expect("a directory");
    let writes = argument("writes", 128);
    let options = Options::default().pool_bytes(64 << 20).durability(Durability::None);
    let engine = Engine::open(directory.path().join("store"), options.write_concurrency(writes));
    let engine = engine.expect("open");
    let (tree, session) = (engine.tree("bench").expect("tree"), engine.session().expect("session"));
    let mut sorted: Vec<_> = (0..records).map(key).collect();
    sorted.sort_unstable();
    session.bulk_load(&tree, sorted.iter().map(|key| (key, VALUE))).expect("load");
    let count = OPERATIONS / 20;
    let update = || {
        for key in keys(records, count) {
            session.update(&tree, &key, &VALUE).expect("update");
        }
    };
    update();
    let start = Instant::now();
    update();
    tell("write-back", start.elapsed().as_nanos() as f64 / count as f64);
}

/// Runs one build once; the values of its works.
fn values(binary: &str, works: &str, arguments: &[String]) -> BTreeMap<String, f64> {
    let mut command = Command::new(binary);
    command.args(["child=1", &format!("work={works}")]).args(arguments);
    let output = command.stderr(Stdio::inherit()).output().expect("a build that runs");
    assert!(output.status.success(), "{binary} failed");
    let text = String::from_utf8(output.stdout).expect("text");
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs.map(|(work, value)| (work.to_string(), value.parse().expect("a number"))).collect()
}

/// Builds this benchmark without the choice `off`; the path of the build.
fn build_without(off: &str) -> String {
    let mut command = Command::new(env!("CARGO"));
    command.args(["bench", "-p", "wattle-benches", "--bench", "heuristics", "--no-run"]);
    command.args(["--target-dir", "target/off", "--message-format=json"]);
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).env("WATTLE_OFF", off);
    let output = command.stderr(Stdio::inherit()).output().expect("cargo");
    assert!(output.status.success(), "the build without {off} failed");
    let text = String::from_utf8(output.stdout).expect("text");
    let messages = text.lines().filter_map(|line| serde_json::from_str(line).ok());
    let mut paths = messages.filter_map(|message: serde_json::Value| {
        let is_ours = message["target"]["name"] == "heuristics";
        message["executable"].as_str().filter(|_| is_ours).map(str::to_string)
    });
    paths.next().expect("an executable")
}

fn main() -> ExitCode {
    let records = argument("records", 1_000_000) as u64;
    let works = text("work", "load,load-p9999,load-max,get,multi-get,update,transaction,evict");
    let has = |work: &str| works.split(',').any(|name| name == work);
    if argument("child", 0) == 1 {
        if works != "write-back" {
            resident(records);
        }
        if has("write-back") {
            write_back(records);
        }
        return ExitCode::SUCCESS;
    }
    let (off, mut other, rounds) = (text("off", ""), text("other", ""), argument("rounds", 5));
    if off.is_empty() {
        eprintln!("name a choice of buffer/src/tuning.rs: off=prefetch, or off=writes");
        return ExitCode::FAILURE;
    }
    let ours = std::env::current_exe().expect("a path").display().to_string();
    let mut arguments = [vec![format!("records={records}")], vec![format!("records={records}")]];
    if off == "writes" {
        other = ours.clone();
        arguments[0].push("writes=64".to_string());
        arguments[1].push("writes=128".to_string());
    } else if other.is_empty() {
        other = build_without(&off);
    }
    let mut measured: BTreeMap<String, [Vec<f64>; 2]> = BTreeMap::new();
    for _ in 0..rounds {
        for (side, binary) in [&other, &ours].into_iter().enumerate() {
            for (work, value) in values(binary, &works, &arguments[side]) {
                measured.entry(work).or_default()[side].push(value);
            }
        }
    }
    println!(
        "work, without {off}, with it, without / with (medians of {rounds}, {records} records)"
    );
    for (work, [off, on]) in measured.into_iter().filter(|(work, _)| has(work)) {
        let (off, on) = (median(off), median(on));
        println!("{work:<12} {off:>12.1} {on:>12.1} {:>7.3}", off / on);
    }
    ExitCode::SUCCESS
}
