//! ACE's bars (Papon, Athanassoulis, ICDE 2023, Figure 8 and Table III): the four mixes of its
//! Table II with and without it, on a simulated device or on a real one.
//!
//! `cargo bench -p wattle-benches --bench ace -- [dir=PATH] [mixes=ms,wis,ris,mu]
//! [subjects=one,off,kw,writer,full] [rounds=5] [seconds=2] [threads=4] [device=read_us=1000,..]
//! [records=60000] [pool=6] [writes=8]`
//!
//! Subjects run in turns. `one` writes one page at a time, as the paper's baseline; `off` is the
//! default write queue; `kw` is the same with k_w writes in flight; `writer` and `full` are ACE
//! with n_w = k_w. With `dir=` the stores are files there and `writes=` is k_w of that device;
//! otherwise the device is the simulated one. `pool=` is the size of the pool in per cent of the
//! data (the paper: 6). `order=clustered` writes by place in the file. There is no log.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use wattle::{
    Ace, Durability, Engine, Options, Stats, Tree, WriteOrder,
    io::{DeviceModel, MemoryLog, TimedStorage},
};
use wattle_benches::{argument, median, text};
use wattle_buffer::random::SeededRandom;

const VALUE: [u8; 1000] = [7; 1000];
/// Bytes of the data file for each record: three records to a page.
const RECORD_BYTES: usize = 1366;

/// A workload of Table II: shares of updates, and of operations and records that are hot.
#[derive(Clone, Copy)]
struct Mix {
    name: &'static str,
    updates: f64,
    hot: Option<(f64, f64)>,
}

const MIXES: [Mix; 4] = [
    Mix { name: "ms", updates: 0.5, hot: Some((0.9, 0.1)) },
    Mix { name: "wis", updates: 0.9, hot: Some((0.9, 0.1)) },
    Mix { name: "ris", updates: 0.1, hot: Some((0.9, 0.1)) },
    Mix { name: "mu", updates: 0.5, hot: None },
];

struct Subject {
    name: &'static str,
    engine: Engine,
    tree: Tree,
}

struct Setting {
    records: u64,
    threads: usize,
    seconds: f64,
}

impl Mix {
    /// The record of the next operation, and whether it is changed.
    fn choose(&self, records: u64, random: &mut SeededRandom) -> (u64, bool) {
        let of = |from: u64, to: u64, random: &mut SeededRandom| from + random.below(to - from);
        let record = match self.hot {
            None => of(0, records, random),
            Some((operations, part)) => {
                let end = ((records as f64 * part) as u64).max(1);
                if random.unit() < operations {
                    of(0, end, random)
                } else {
                    of(end, records, random)
                }
            }
        };
        (record, random.unit() < self.updates)
    }
}

fn open(name: &'static str, place: &Path, setting: &Setting) -> Subject {
    let bytes = setting.records * RECORD_BYTES as u64;
    let pool = bytes * argument("pool", 6) as u64 / 100;
    let model = text("device", "read_us=1000,asymmetry=2.8,kr=80,kw=8");
    let model = DeviceModel::parse(&model).expect("a device");
    let options = Options::default().pool_bytes(pool).log(false);
    let options = options.durability(Durability::None).policy(text("policy", "watt"));
    let options = match text("order", "value").as_str() {
        "value" => options,
        "clustered" => options.write_order(WriteOrder::Clustered),
        other => panic!("order={other}: known are value and clustered"),
    };
    let writes = argument("writes", 8);
    let options = match name {
        "one" => options.write_concurrency(1),
        "off" => options,
        "kw" => options.write_concurrency(writes),
        "writer" => options.ace(Ace::Writer).write_concurrency(writes),
        "full" => options.ace(Ace::Full).write_concurrency(writes),
        other => panic!("subject {other}: known are one, off, kw, writer, full"),
    };
    // The store is loaded by a fast device.
    let fast = DeviceModel { read_us: 1, write_us: 1, ..model };
    let device = Arc::new(TimedStorage::new(fast));
    let engine = match text("dir", "").as_str() {
        "" => Engine::open_on(device.clone(), Arc::new(MemoryLog::default()), options),
        _ => Engine::open(place.join(name), options),
    };
    let engine = engine.expect("a store");
    let tree = engine.tree("records").expect("a tree");
    let session = engine.session().expect("a session");
    let entries = (0..setting.records).map(|record| (record.to_be_bytes(), VALUE));
    session.bulk_load(&tree, entries).expect("load");
    device.set_model(model);
    Subject { name, engine, tree }
}

/// Runs the mix for a time; gives operations per second, and pages read and written for each.
fn measure(subject: &Subject, mix: Mix, setting: &Setting, seed: u64) -> [f64; 3] {
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let stats = |engine: &Engine| -> Stats { engine.stats() };
    std::thread::scope(|scope| {
        for thread in 0..setting.threads as u64 {
            let (stop, done) = (&stop, &done);
            scope.spawn(move || {
                let session = subject.engine.session().expect("a session");
                let mut random = SeededRandom::new(seed << 8 | thread);
                while !stop.load(Ordering::Relaxed) {
                    let (record, is_update) = mix.choose(setting.records, &mut random);
                    let key = record.to_be_bytes();
                    if is_update {
                        session.put(&subject.tree, &key, &VALUE).expect("put");
                    } else {
                        let found = session.get_with(&subject.tree, &key, |value| value.len());
                        assert_eq!(found.expect("get"), Some(VALUE.len()));
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        std::thread::sleep(Duration::from_secs_f64(setting.seconds / 4.0));
        let (start, before) = (Instant::now(), stats(&subject.engine));
        let first = done.load(Ordering::Relaxed);
        std::thread::sleep(Duration::from_secs_f64(setting.seconds));
        let count = (done.load(Ordering::Relaxed) - first) as f64;
        let (seconds, after) = (start.elapsed().as_secs_f64(), stats(&subject.engine));
        stop.store(true, Ordering::Relaxed);
        [
            count / seconds,
            (after.pages_read - before.pages_read) as f64 / count,
            (after.pages_written - before.pages_written) as f64 / count,
        ]
    })
}

fn main() {
    let setting = Setting {
        records: argument("records", 60_000) as u64,
        threads: argument("threads", 4),
        seconds: text("seconds", "2").parse().expect("seconds"),
    };
    let names = text("subjects", "one,off,kw,writer,full");
    let known = ["one", "off", "kw", "writer", "full"];
    for name in names.split(',') {
        assert!(known.contains(&name), "subject {name}: known are {}", known.join(", "));
    }
    let mixes = text("mixes", "ms,wis,ris,mu");
    println!("mix  subject  operations/s  of off  reads/op  writes/op  writes of off");
    for mix in MIXES.iter().filter(|mix| mixes.split(',').any(|name| name == mix.name)) {
        let place = tempfile::tempdir_in(match text("dir", "").as_str() {
            "" => std::env::temp_dir(),
            directory => directory.into(),
        });
        let place = place.expect("a directory");
        let chosen = known.iter().filter(|name| names.split(',').any(|chosen| chosen == **name));
        let subjects: Vec<_> = chosen.map(|name| open(name, place.path(), &setting)).collect();
        let mut rounds = vec![Vec::new(); subjects.len()];
        // The first round fills the pools.
        for round in 0..=argument("rounds", 5) as u64 {
            for (subject, results) in subjects.iter().zip(&mut rounds) {
                let result = measure(subject, *mix, &setting, round);
                if round > 0 {
                    results.push(result);
                }
            }
        }
        let medians: Vec<[f64; 3]> = (rounds.iter())
            .map(|results| [0, 1, 2].map(|at| median(results.iter().map(|r| r[at]).collect())))
            .collect();
        let base = subjects.iter().position(|subject| subject.name == "off").unwrap_or(0);
        for (subject, [rate, reads, writes]) in subjects.iter().zip(&medians) {
            let [off_rate, _, off_writes] = medians[base];
            println!(
                "{:<4} {:<8} {rate:>12.0} {:>7.2} {reads:>9.3} {writes:>10.3} {:>9.3}",
                mix.name,
                subject.name,
                rate / off_rate,
                writes / off_writes
            );
        }
    }
}
