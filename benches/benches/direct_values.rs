//! Puts of large values, through the log against directly to the data file
//! ([`Options::direct_value_bytes`]).
//!
//! `cargo bench -p wattle-benches --bench direct_values -- [kib=64,256,1024,16384] [mib=256]
//! [writers=1,4] [durability=group,sync,none] [replace=0] [pool=256] [rounds=5] [dir=PATH]`
//!
//! Each writer puts values of `kib` KiB without order until all have put `mib` MiB, on keys of its
//! own: new ones, or with `replace=1` eight that it replaces in turns. The time includes a
//! checkpoint at the end, so that all pages are on storage. The two ways run in turns, each in a
//! store of its own with a pool of `pool` MiB.
//!
//! Columns: MB/s of values, medians of `rounds`; the rate of `direct` by that of `log`; bytes that
//! the log has for each byte of the values; bytes of the data file for each byte that is live.

use std::{
    path::Path,
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};
use wattle::{Durability, Engine, Options};
use wattle_benches::{argument, directory, median, text};
use wattle_buffer::random::SeededRandom;

/// Keys that a writer replaces.
const REPLACED: u64 = 8;

/// The words of a list.
fn words(name: &str, default: &str) -> Vec<String> {
    text(name, default).split(',').map(str::to_string).collect()
}

/// The numbers of a list.
fn numbers(name: &str, default: &str) -> Vec<usize> {
    words(name, default).iter().map(|word| word.parse().expect("a number")).collect()
}

fn durability(name: &str) -> Durability {
    match name {
        "sync" => Durability::Sync,
        "group" => Durability::Group,
        "none" => Durability::None,
        _ => panic!("{name} is no durability"),
    }
}

/// MB/s, log bytes for each byte, file bytes for each live byte.
fn run(dir: &Path, len: usize, writers: u64, waits: Durability, direct: bool) -> [f64; 3] {
    let options = Options::default()
        .pool_bytes((argument("pool", 256) as u64) << 20)
        .log_bytes(1 << 30)
        .durability(waits)
        .direct_value_bytes(if direct { len as u64 } else { 0 });
    let scratch = tempfile::tempdir_in(dir).expect("a folder for the store");
    let engine = Engine::open(scratch.path().join("store"), options).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let count = ((argument("mib", 256) << 20) / len).max(writers as usize) as u64;
    let next = AtomicU64::new(0);
    let logged = engine.stats().log_bytes;
    let replace = argument("replace", 0) > 0;
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let (engine, tree, next) = (&engine, &tree, &next);
            scope.spawn(move || {
                let session = engine.session().expect("session");
                let mut random = SeededRandom::new(writer);
                let mut value = vec![0; len];
                value.chunks_mut(8).for_each(|word| {
                    word.copy_from_slice(&random.next_u64().to_le_bytes()[..word.len()]);
                });
                for turn in 0.. {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        break;
                    }
                    value[..8].copy_from_slice(&number.to_le_bytes());
                    let key = if replace { (writer << 32) | (turn % REPLACED) } else { number };
                    session.put(tree, &key.to_be_bytes(), &value).expect("put");
                }
            });
        }
    });
    engine.checkpoint().expect("checkpoint");
    let took = begun.elapsed().as_secs_f64();
    let bytes = (count * len as u64) as f64;
    let stats = engine.stats();
    let live = if replace { (writers * REPLACED * len as u64) as f64 } else { bytes };
    let logged = (stats.log_bytes - logged) as f64;
    [bytes / took / 1e6, logged / bytes, stats.file_bytes as f64 / live]
}

fn main() -> ExitCode {
    let dir = directory(".");
    println!("durability writers    KiB  way       MB/s  by log  log/byte  file/live");
    for waits in words("durability", "group,sync,none") {
        for writers in numbers("writers", "1,4") {
            for kib in numbers("kib", "64,256,1024,16384") {
                let mut rows = [const { [const { Vec::new() }; 3] }; 2];
                for _ in 0..argument("rounds", 5) {
                    for (way, columns) in rows.iter_mut().enumerate() {
                        let figures =
                            run(&dir, kib << 10, writers as u64, durability(&waits), way == 1);
                        columns.iter_mut().zip(figures).for_each(|(all, one)| all.push(one));
                    }
                }
                let rows = rows.map(|columns| columns.map(median));
                for (name, [rate, logged, file]) in ["log", "direct"].iter().zip(rows) {
                    let by = rate / rows[0][0];
                    println!(
                        "{waits:<10} {writers:>7} {kib:>6}  {name:<6} {rate:>7.1} {by:>7.2} \
                         {logged:>9.3} {file:>10.2}"
                    );
                }
            }
        }
    }
    ExitCode::SUCCESS
}
