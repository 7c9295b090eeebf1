//! The time that a store takes to open and to close, and the room that it takes.
//!
//! `cargo bench -p wattle-benches --bench open_close -- [records=100000] [rounds=21] [pool=64]
//! [dir=PATH]`
//!
//! `pool`: of all stores, MiB; 0 for the default pool.
//!
//! | row | value |
//! |---|---|
//! | `create` | creating an empty store and closing it, ms |
//! | `unchanged` | opening a store of `records` records of 8 + 120 bytes and closing it, ms |
//! | `read` | the same with one look-up |
//! | `changed` | the same with one durable put |
//! | `empty`, `data`, `log` | bytes of an empty store; of the data file and the log of the other one, closed |
//! | `written` | bytes that the process wrote in an `unchanged` round |
//! | `sync` | for comparison: a write of 4 KiB and an `fdatasync` on the same device, ms |
//!
//! Times are medians of `rounds`.

use std::{fs, io::Write, path::Path, process::ExitCode, time::Instant};
use wattle::{Engine, LOG_DIRECTORY, Options};
use wattle_benches::{argument, directory, median};

fn options() -> Options {
    match argument("pool", 64) {
        0 => Options::default(),
        mib => Options::default().pool_bytes((mib as u64) << 20),
    }
}

/// Median milliseconds of `rounds` calls.
fn milliseconds(rounds: usize, mut call: impl FnMut(usize)) -> f64 {
    let time = |round| {
        let start = Instant::now();
        call(round);
        start.elapsed().as_secs_f64() * 1e3
    };
    median((0..rounds).map(time).collect())
}

/// Bytes of the files in a folder, without those in folders in it.
fn bytes(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).expect("a folder").map(|file| file.expect("an entry"));
    let lengths = files.map(|file| file.metadata().expect("metadata"));
    lengths.filter(fs::Metadata::is_file).map(|file| file.len()).sum()
}

/// Bytes that this process has caused to be written.
fn written() -> u64 {
    let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

fn main() -> ExitCode {
    let (records, rounds) = (argument("records", 100_000) as u64, argument("rounds", 21));
    let scratch = tempfile::tempdir_in(directory(".")).expect("a folder for stores");
    let open = |path: &Path| Engine::open(path, options()).expect("open");

    let create = milliseconds(rounds, |round| {
        open(&scratch.path().join(format!("empty {round}"))).close().expect("close");
    });
    let empty = scratch.path().join("empty 0");
    let empty = bytes(&empty) + bytes(&empty.join(LOG_DIRECTORY));

    let path = scratch.path().join("store");
    let engine = open(&path);
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    for i in 0..records {
        let key = i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        drop(session.put_ticket(&tree, &key, &[7; 120]).expect("put"));
    }
    drop((session, tree));
    engine.close().expect("close");
    let (data, log) = (bytes(&path), bytes(&path.join(LOG_DIRECTORY)));

    let before = written();
    let unchanged = milliseconds(rounds, |_| open(&path).close().expect("close"));
    let written = (written() - before) / rounds as u64;
    let with = |change: bool| {
        milliseconds(rounds, |round| {
            let engine = open(&path);
            let tree = engine.tree("tree").expect("tree");
            let session = engine.session().expect("session");
            match change {
                true => session.put(&tree, b"key", &[round as u8; 120]).expect("put"),
                false => _ = session.get(&tree, b"key").expect("get"),
            }
            drop((session, tree));
            engine.close().expect("close");
        })
    };
    let (read, changed) = (with(false), with(true));

    let mut file = tempfile::tempfile_in(scratch.path()).expect("a file");
    let sync = milliseconds(rounds, |_| {
        file.write_all(&[7; 4096]).expect("write");
        file.sync_data().expect("sync");
    });
    println!("create {create:.2} ms, unchanged {unchanged:.2} ms, read {read:.2} ms");
    println!("changed {changed:.2} ms, sync {sync:.2} ms");
    println!("empty {empty} bytes, data {data}, log {log}, written {written}");
    ExitCode::SUCCESS
}
