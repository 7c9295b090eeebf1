//! Appending records of 128 bytes to the log, whose flushes run in the background into memory.

use criterion::{Criterion, Throughput};
use std::sync::Arc;
use wattle::io::MemoryLog;
use wattle_buffer::{Gsn, PageId, TreeId};
use wattle_wal::{AUTO, Kind, Log, LogOptions, LogStart};

const PAYLOAD: usize = 128;
/// Records after which the flushed ones are removed from memory.
const TRUNCATE: u64 = 100_000;

pub fn benches(criterion: &mut Criterion) {
    let storage = Arc::new(MemoryLog::default());
    let log = Log::start(storage, LogOptions::default(), LogStart::default(), Box::new(|| 0))
        .expect("a log");
    let appender = log.appender();
    let mut group = criterion.benchmark_group("append");
    group.throughput(Throughput::Elements(1));
    let mut number = 0;
    group.bench_function("one record", |bencher| {
        bencher.iter(|| {
            while !appender.check_room().expect("room") {
                log.flush_now().expect("flush");
            }
            number += 1;
            let mut section = appender.begin();
            section.start(Kind::Change, AUTO, number, Gsn(0));
            section.op(PageId(number), TreeId(1), 1, &[&[7; PAYLOAD]]);
            section.finish();
            drop(section);
            if number % TRUNCATE == 0 {
                log.truncate(log.durable_epoch());
            }
        });
    });
    group.finish();
    drop(appender);
    log.close().expect("close");
}
