//! The cost of a commit on a device: one thread appends 120 bytes and waits until they are durable.
//! Arguments: directory, back end (`uring` or `threads`).

use std::{path::Path, time::Instant};
use wattle_buffer::{
    Gsn, PageId, TreeId,
    io::{IoKind, open_log},
};
use wattle_wal::{AUTO, Kind, Log, LogOptions, LogStart};

const COMMITS: u32 = 2000;

fn main() -> wattle_buffer::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(directory), Some(kind)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: commit_cost DIRECTORY uring|threads");
        std::process::exit(2);
    };
    let kind = if kind == "uring" { IoKind::Uring } else { IoKind::Threads };
    let storage = open_log(kind, Path::new(&directory)).expect("a log");
    let start = LogStart::default();
    let log = Log::start(storage, LogOptions::default(), start, Box::new(|| 0))?;
    let appender = log.appender();
    let began = Instant::now();
    for id in 0..COMMITS {
        let mut section = appender.begin();
        section.start(Kind::Change, AUTO, u64::from(id), Gsn(0));
        section.op(PageId(1), TreeId(1), 1, &[&[7; 120]]);
        section.finish();
        drop(section);
        log.flush_now()?;
    }
    let each = began.elapsed() / COMMITS;
    let stats = log.stats();
    let median = stats.sync_median_ns / 1000;
    println!("{each:?} for each commit; median sync {median} us; {stats:?}");
    log.close()
}
