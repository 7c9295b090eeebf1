//! The time to open a store whose process died, against the time to read its log.
//!
//! A child process updates records at random, without a checkpoint, until the log holds `log_mib`,
//! and aborts. Then the log is read once from the device, as fast as it goes, and the store is
//! opened.
//!
//! `cargo bench -p wattle-benches --bench recovery -- [records=2000000] [log_mib=1024] [rounds=3]
//! [dir=PATH]`

use std::{
    fs::File,
    io::Read,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};
use wattle::{Durability, Engine, Options};
use wattle_benches::{argument, directory, median};
use wattle_workloads::{key::fnv1a, rng::Rng};

const VALUE: usize = 120;

fn key(i: u64) -> [u8; 8] {
    fnv1a(i).to_be_bytes()
}

fn options(records: u64, log_bytes: u64) -> Options {
    // Checkpoints begin at half of the limit.
    let pool = (records * 330).max(64 << 20);
    Options::default().pool_bytes(pool).log_bytes(log_bytes * 4).durability(Durability::Group)
}

/// The process that dies.
fn write_and_die(store: &Path, records: u64, log_bytes: u64) -> ! {
    let engine = Engine::open(store, options(records, log_bytes)).expect("open");
    let tree = engine.tree("bench").expect("tree");
    let session = engine.session().expect("session");
    for first in (0..records).step_by(1000) {
        let mut txn = session.begin().expect("begin");
        for i in first..(first + 1000).min(records) {
            txn.insert(&tree, &key(i), &[i as u8; VALUE]).expect("insert");
        }
        let _ticket = txn.commit_ticket().expect("commit");
    }
    engine.sync().expect("checkpoint");
    let (before, mut rng) = (engine.stats().log_bytes, Rng::new(7, 0));
    let mut last = None;
    while engine.stats().log_bytes - before < log_bytes {
        for round in 0..1000u64 {
            let i = rng.below(records);
            let updated = session.update_ticket(&tree, &key(i), &[round as u8; VALUE]);
            last = Some(updated.expect("update").1);
        }
    }
    last.expect("at least one").wait().expect("durable");
    std::process::abort()
}

/// Bytes of the log and seconds to read them.
fn read_log(store: &Path) -> (u64, f64) {
    let begun = Instant::now();
    let (mut bytes, mut buffer) = (0, vec![0; 1 << 20]);
    for entry in std::fs::read_dir(store.join("log")).expect("the log") {
        let mut file = File::open(entry.expect("entry").path()).expect("segment");
        loop {
            match file.read(&mut buffer).expect("read") {
                0 => break,
                read => bytes += read as u64,
            }
        }
        // Recovery must not find it in memory.
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("fadvise");
    }
    (bytes, begun.elapsed().as_secs_f64())
}

/// Processor time of this process.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn main() {
    let records = argument("records", 2_000_000) as u64;
    let log_bytes = (argument("log_mib", 1024) as u64) << 20;
    let (rounds, dir) = (argument("rounds", 3), directory("."));
    if let Some(store) = std::env::var_os("WATTLE_RECOVERY_CHILD") {
        write_and_die(Path::new(&store), records, log_bytes);
    }
    let (mut rates, mut device, mut cores) = (vec![], vec![], vec![]);
    for _ in 0..rounds {
        let directory = tempfile::tempdir_in(&dir).expect("a directory for the store");
        let store = directory.path().join("store");
        let died = Command::new(std::env::current_exe().expect("this program"))
            .args(std::env::args().skip(1))
            .env("WATTLE_RECOVERY_CHILD", &store)
            .status()
            .expect("start a process");
        assert!(died.code().is_none(), "the process that writes was not killed: {died}");
        let (bytes, seconds) = read_log(&store);
        let gib = bytes as f64 / (1u64 << 30) as f64;
        device.push(gib / seconds);
        let (begun, before) = (Instant::now(), cpu());
        let engine = Engine::open(&store, options(records, log_bytes)).expect("recover");
        let seconds = begun.elapsed().as_secs_f64();
        cores.push((cpu() - before).as_secs_f64() / seconds);
        rates.push(gib / seconds);
        println!(
            "log of {gib:.2} GiB, file of {:.2} GiB: opened in {seconds:.2} s",
            engine.stats().file_bytes as f64 / (1u64 << 30) as f64
        );
        engine.close().expect("close");
    }
    let (rate, device, cores) = (median(rates), median(device), median(cores));
    println!(
        "recovery {rate:.2} GiB/s of log = {:.2} of reading it ({device:.2} GiB/s), on {cores:.1} \
         cores, with reading and writing the pages that it touches",
        rate / device
    );
}
