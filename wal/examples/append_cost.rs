//! The cost of an append: a section with one record of one operation, 120 bytes of payload, by one
//! thread, while the flusher empties the buffer into memory.
//!
//! With the argument `apart` the appender runs on one core and the threads of the log on another,
//! so that each line of the buffer comes from the cache of that other core. This is the measure for
//! `AHEAD_LINES` of `append.rs`: compare with a build in which it is 0.

use rustix::thread::{CpuSet, sched_setaffinity};
use std::{sync::Arc, time::Instant};
use wattle_buffer::{Gsn, PageId, TreeId, io::MemoryLog};
use wattle_wal::{AUTO, Kind, Log, LogOptions, LogStart};

const ROUNDS: u64 = 40;
const RECORDS: u64 = 3000;

/// Binds this thread, and the threads that it will start, to a core.
fn bind(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).expect("a core with this number");
}

fn main() -> wattle_buffer::Result<()> {
    let apart = std::env::args().nth(1).is_some_and(|argument| argument == "apart");
    if apart {
        bind(1);
    }
    let storage = Arc::new(MemoryLog::default());
    let start = LogStart::default();
    let log = Log::start(storage, LogOptions::default(), start, Box::new(|| 0))?;
    if apart {
        bind(0);
    }
    let appender = log.appender();
    let payload = [7; 120];
    let mut rounds = Vec::new();
    let mut last = Gsn(0);
    for _ in 0..ROUNDS {
        // The flusher is idle within a round: the buffer stays below the 256 KiB that request a
        // flush. It has read the buffer before, so the lines are in the cache of its processor.
        log.flush_now()?;
        for _ in 0..2 {
            log.flush_now()?;
            let began = Instant::now();
            for id in 0..RECORDS / 2 {
                let mut section = appender.begin();
                last = section.start(Kind::Change, AUTO, id, last);
                section.op(PageId(id), TreeId(1), 1, &[&payload]);
                section.finish();
            }
            rounds.push(began.elapsed().as_nanos() as f64 / (RECORDS / 2) as f64);
        }
        log.truncate(log.epoch());
    }
    rounds.sort_by(f64::total_cmp);
    let (best, median) = (rounds[0], rounds[rounds.len() / 2]);
    println!("{best:.1} ns for each section in the best round, {median:.1} ns in the median one");
    log.close()
}
