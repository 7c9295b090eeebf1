//! The device fails: the log is poisoned, tells every caller, and never tries again. Or the device
//! is full: the log refuses new changes, and recovers when there is room.

mod common;

use common::*;
use std::{
    io::{self, ErrorKind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    task::{Poll, Wake, Waker},
    thread,
    time::{Duration, Instant},
};
use wattle_buffer::{
    Error, Gsn, LogBarrier, PageId, TreeId,
    io::{Fault, FaultPlan, LogStorage, Op, SimStorage, Unit, Zeroes},
};
use wattle_wal::{AUTO, Appender, Kind, Log, LogOptions, LogReader, LogStart, Urgency};

fn device(plan: FaultPlan) -> (Arc<SimStorage>, Arc<dyn LogStorage>) {
    let device = Arc::new(SimStorage::new(plan));
    (device.clone(), device)
}

struct Flag(mpsc::Sender<()>);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        let _ = self.0.send(());
    }
}

#[test]
fn a_failed_write_or_sync_poisons_the_log_for_all_callers() {
    let faults = [
        (Op::LogWrite, Fault::Error(ErrorKind::Other)),
        (Op::LogWrite, Fault::Short(Unit::Sector)),
        (Op::LogWrite, Fault::Error(ErrorKind::StorageFull)),
        (Op::LogSync, Fault::Error(ErrorKind::Other)),
    ];
    for (op, fault) in faults {
        let (device, storage) = device(FaultPlan::new(3));
        let log = start(&storage, LogStart::default());
        let appender = log.appender();
        append(&appender, 1, 100);
        let durable = log.flush_now().expect("a flush");
        let slow = Fault::Latency(Duration::from_millis(50));
        device.set_plan(FaultPlan::new(3).nth(op, 1, slow).nth(op, 1, fault));
        let gsn = append(&appender, 2, 100);
        let epoch = log.epoch();
        let (sender, woken) = mpsc::channel();
        let waker = Waker::from(Arc::new(Flag(sender)));
        assert!(log.poll_durable(epoch, &waker).is_pending());
        thread::scope(|scope| {
            let waiter = scope.spawn(|| log.wait_durable(epoch));
            thread::sleep(Duration::from_millis(10));
            log.request(epoch, Urgency::Now);
            let result = waiter.join().expect("no panic");
            assert!(matches!(result, Err(Error::CommitUnknown(_))), "{op:?}: {result:?}");
        });
        woken.recv_timeout(Duration::from_secs(10)).expect("woken");
        let polled = log.poll_durable(epoch, &waker);
        assert!(matches!(polled, Poll::Ready(Err(Error::CommitUnknown(_)))), "{polled:?}");
        let why = log.is_poisoned().expect("poisoned");
        assert!(why.contains("log segment 1"), "{why}");
        // Records that were durable stay so; later ones are not durable, and never will be.
        log.wait_durable(durable).expect("durable before");
        assert!(matches!(log.wait_durable(log.epoch()), Err(Error::Poisoned(_))));
        assert!(matches!(log.ensure_durable(gsn), Err(Error::Poisoned(_))));
        assert!(matches!(appender.check_room(), Err(Error::Poisoned(_))));
        assert!(matches!(log.flush_now(), Err(Error::Poisoned(_))));
        assert!(matches!(log.wait_flush(), Err(Error::Poisoned(_))));
        assert!(matches!(log.begin_checkpoint(), Err(Error::Poisoned(_))));
        assert!(matches!(log.close(), Err(Error::Poisoned(_))));
        let counters = device.counters();
        assert_eq!(counters.faults, 1, "{op:?} was tried again");
        // After a reopening the log has the first record and perhaps the second.
        let (flushes, _) = read(&storage, 1).expect("a good log");
        assert!([1, 2].contains(&records(&flushes).len()));
    }
}

#[test]
fn a_panic_of_the_flusher_poisons_the_log() {
    let (_, storage) = device(FaultPlan::new(1));
    let clock = Box::new(|| panic!("the clock stopped"));
    let log = Log::start(storage, small(), store(), clock).expect("a log");
    let appender = log.appender();
    append(&appender, 1, 100);
    let result = log.flush_now();
    assert!(matches!(result, Err(Error::CommitUnknown(_) | Error::Poisoned(_))), "{result:?}");
    assert!(log.is_poisoned().expect("poisoned").contains("the clock stopped"));
}

#[test]
fn a_full_device_refuses_new_changes_until_there_is_room() {
    let segment = small().segment_bytes;
    let late = Fault::Latency(Duration::from_millis(20));
    let plan = FaultPlan::new(1).log_limit(3 * segment).always(Op::LogCreate, late);
    let (_, storage) = device(plan);
    let log = start(&storage, LogStart::default());
    let appender = log.appender();
    let mut id = 0;
    let error = loop {
        match appender.check_room() {
            Ok(true) => {
                id += 1;
                append(&appender, id, 10_000);
                log.flush_now().expect("there is room");
                // The thread that makes segments may be late, and flushes take no time here:
                // without a pause the last segment may be full before that thread finds out that
                // there is no other.
                until("the next segment, or no room for it", || {
                    let made = storage.segments().expect("segments").len() as u64;
                    made > log.stats().segments || appender.check_room().is_err()
                });
            }
            Ok(false) => log.wait_flush().expect("a flush"),
            Err(error) => break error,
        }
        assert!(id < 1000, "never full");
    };
    assert!(matches!(error, Error::DiskFull { .. }), "{error:?}");
    // Rollbacks do not check for room, and there is some left.
    id += 1;
    append(&appender, id, 100);
    let epoch = log.flush_now().expect("the rest of the segment");
    // Now it is used up: commits wait for room.
    for _ in 0..30 {
        id += 1;
        append(&appender, id, 10_000);
    }
    let last = log.epoch();
    log.request(last, Urgency::Now);
    thread::sleep(Duration::from_millis(150));
    assert!(log.durable_epoch() < last && log.is_poisoned().is_none());
    log.truncate(epoch);
    // Three segments are full, and one of them must stay: the log is as full as before, but goes
    // on.
    until("durable", || log.durable_epoch() >= last);
    log.truncate(last + 1);
    // The thread that makes segments may not have found out yet that there is no room for the next
    // one.
    until("the old ones are retired", || log.stats().segments == 1);
    until("room", || appender.check_room().is_ok());
    let first = storage.segments().expect("segments")[0].0;
    append(&appender, id + 1, 100);
    log.close().expect("closed");
    let (flushes, _) = read(&storage, first).expect("a good log");
    assert_eq!(records(&flushes).last().expect("records").id, id + 1);
}

#[test]
fn records_that_do_not_fit_the_rest_of_a_full_log_go_into_its_reserve() {
    let (_, storage) = device(FaultPlan::new(1).log_limit(4 * small().segment_bytes));
    let log = start(&storage, LogStart::default());
    let appender = log.appender();
    let mut id = 0;
    let mut flush = |records: u64| {
        for _ in 0..records {
            id += 1;
            append(&appender, id, 10_000);
        }
        let epoch = log.epoch();
        log.request(epoch, Urgency::Now);
        until("durable", || log.durable_epoch() >= epoch);
    };
    let room = || match appender.check_room() {
        Ok(room) => room,
        Err(error) => {
            assert!(matches!(error, Error::DiskFull { .. }), "{error:?}");
            false
        }
    };
    while room() {
        flush(1);
        until("the next segment, or no room for it", || {
            let made = storage.segments().expect("segments").len() as u64;
            made > log.stats().segments + 1 || !room()
        });
    }
    let full = log.stats().segments;
    assert_eq!(storage.segments().expect("segments").len() as u64, full + 1);
    // The flush that was begun first.
    while log.stats().segments == full {
        assert!(log.is_full());
        flush(6);
    }
    // After it a checkpoint begins, and makes room.
    let epoch = log.begin_checkpoint().expect("it needs little room");
    flush(1);
    log.truncate(epoch);
    until("room", room);
    until("a reserve beside the next segment", || {
        storage.segments().expect("segments").len() as u64 == log.stats().segments + 2
    });
    flush(1);
    log.close().expect("closed");
    let (flushes, _) = read(&storage, log.oldest_segment()).expect("a good log");
    assert_eq!(records(&flushes).last().expect("records").id, id);
}

#[test]
fn a_full_log_without_writers_takes_the_room_that_comes() {
    // The maker finds out on the way whether there is room, at the pace of the appenders.
    let full = Arc::new(AtomicBool::new(false));
    let no_room = Arc::clone(&full);
    let make = move |device: &SimStorage, segment: (u64, u64), _: Zeroes, pace: Pace<'_>| {
        make_paced(device, segment, pace, &mut |done| {
            let full = no_room.load(Ordering::Relaxed) && done >= segment.1 / 16;
            if full { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
        })
    };
    let device = SimStorage::new(FaultPlan::new(1));
    let storage: Arc<dyn LogStorage> = Arc::new(Makes { device, make });
    let log = start(&storage, LogStart::default());
    let appender = log.appender();
    append(&appender, 1, 100);
    log.flush_now().expect("a flush");
    until("a reserve", || storage.segments().expect("segments").len() == 2);
    full.store(true, Ordering::Relaxed);
    let mut id = 1;
    while appender.check_room().is_ok() {
        id += 1;
        append(&appender, id, 3000);
        log.flush_now().expect("a flush");
        thread::sleep(Duration::from_millis(5));
    }
    full.store(false, Ordering::Relaxed);
    until("room", || appender.check_room().is_ok());
    assert!(!log.is_full() && id < 30, "{id} records");
    log.close().expect("closed");
}

#[test]
fn zeroes_are_reserved_while_all_processors_append_and_no_thread_waits_for_a_flush() {
    let made = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&made);
    let make =
        move |device: &SimStorage, (segment, bytes): (u64, u64), how: Zeroes, _: Pace<'_>| {
            seen.lock().expect("no panic").push(how);
            device.create(segment, bytes)
        };
    let device = SimStorage::new(FaultPlan::new(1));
    let storage: Arc<dyn LogStorage> = Arc::new(Makes { device, make });
    let log = start(&storage, LogStart::default());
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let appenders: Vec<_> = (0..processors).map(|_| log.appender()).collect();
    let mut id = 0;
    // Runs until some more segments are made. Gives how the last of them was made.
    let mut last_made = |appenders: &[Appender], waits: bool| {
        let some = made.lock().expect("no panic").len() + 4;
        loop {
            for appender in appenders {
                id += 1;
                append(appender, id, 3000);
            }
            let epoch = log.epoch();
            match waits {
                true => log.wait_durable(epoch).expect("a flush"),
                false => {
                    log.request(epoch, Urgency::Soon);
                    until("a flush", || log.durable_epoch() >= epoch);
                }
            }
            let made = made.lock().expect("no panic");
            if made.len() >= some {
                return made[made.len() - 1];
            }
        }
    };
    assert_eq!(last_made(&appenders, false), Zeroes::Reserved);
    assert_eq!(last_made(&appenders, true), Zeroes::Written);
    assert_eq!(last_made(&appenders, false), Zeroes::Reserved);
    if processors > 1 {
        assert_eq!(last_made(&appenders[1..], false), Zeroes::Written);
    }
    log.close().expect("closed");
}

#[test]
fn flushes_are_five_times_as_far_apart_while_all_processors_append_and_no_thread_waits() {
    let (_, storage) = device(FaultPlan::new(1));
    let log = Log::start(storage, small(), store(), Box::new(|| 0)).expect("a log");
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let appenders: Vec<_> = (0..processors).map(|_| log.appender()).collect();
    let mut id = 0;
    let mut flush = |appenders: &[Appender], waits: bool| {
        for appender in appenders {
            id += 1;
            append(appender, id, 10);
        }
        let (began, epoch) = (Instant::now(), log.epoch());
        log.request(epoch, Urgency::Soon);
        match waits {
            true => log.wait_durable(epoch).expect("a flush"),
            false => until("a flush", || log.durable_epoch() >= epoch),
        }
        began.elapsed()
    };
    // Processors beyond the second make flushes cheaper for all.
    let apart = 5 * small().group_delay.min(Duration::from_millis(2) / processors as u32);
    for _ in 0..2 {
        // At the first flush the log has not seen the appenders yet, or a thread waited for the
        // flush before.
        flush(&appenders, false);
        let took = flush(&appenders, false);
        assert!(took >= apart, "{took:?}");
        flush(&appenders, true);
        if processors <= 4 {
            until("a flush soon", || flush(&appenders, true) < apart);
        }
    }
    if (2..=4).contains(&processors) {
        flush(&appenders[1..], false);
        until("a flush soon", || flush(&appenders[1..], false) < apart);
    }
    log.close().expect("closed");
}

/// A log that has just become full, and the last epoch that is durable.
fn full_log(room_timeout: Duration) -> (Arc<Log>, Appender, u64) {
    let (_, storage) = device(FaultPlan::new(1).log_limit(4 * small().segment_bytes));
    let options = LogOptions { room_timeout, ..small() };
    let log = Log::start(storage, options, store(), Box::new(|| 0)).expect("a log");
    let appender = log.appender();
    let (mut id, mut epoch) = (0, 0);
    while !log.is_full() {
        id += 1;
        append(&appender, id, 3000);
        epoch = log.flush_now().expect("a flush");
        thread::sleep(Duration::from_millis(1));
    }
    (log, appender, epoch)
}

#[test]
fn tasks_that_wait_for_a_full_log_do_not_keep_it_busy() {
    let (log, _appender, epoch) = full_log(Duration::from_secs(60));
    let (sender, woken) = mpsc::channel();
    let waker = Waker::from(Arc::new(Flag(sender)));
    let seen = log.buffers_taken();
    let poll = || log.poll_flush(seen, seen, &waker).is_ready();
    assert!(!poll());
    // The task polls again as often as it is woken.
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(300) {
        if woken.recv_timeout(Duration::from_millis(10)).is_ok() {
            assert!(!poll());
        }
    }
    let flushes = log.buffers_taken() - seen;
    assert!(flushes < 20, "{flushes} flushes of nothing");
    log.truncate(epoch);
    until("room", poll);
    log.close().expect("closed");
}

#[test]
fn segments_are_retired_while_the_next_one_waits_for_appenders() {
    let beside = Arc::new(AtomicBool::new(false));
    let is_made = Arc::clone(&beside);
    let make = move |device: &SimStorage, segment: (u64, u64), _: Zeroes, pace: Pace<'_>| {
        let made = make_paced(device, segment, pace, &mut |done| {
            is_made.store(done > 0, Ordering::Relaxed);
            Ok(())
        });
        is_made.store(false, Ordering::Relaxed);
        made
    };
    let device = SimStorage::new(FaultPlan::new(1));
    let storage: Arc<dyn LogStorage> = Arc::new(Makes { device, make });
    let log = start(&storage, LogStart::default());
    let appender = log.appender();
    let mut id = 0;
    let mut write = || {
        id += 1;
        append(&appender, id, 3000);
        let epoch = log.flush_now().expect("a flush");
        thread::sleep(Duration::from_millis(2));
        epoch
    };
    let mut epoch = 0;
    while log.stats().segments < 4 || !beside.load(Ordering::Relaxed) {
        epoch = write();
    }
    // Now all wait for the room that this makes.
    log.truncate(epoch);
    until("one segment is left", || log.is_truncated());
    assert_eq!(log.stats().segments, 1);
    log.close().expect("closed");
}

#[test]
fn changes_wait_for_room_until_the_room_timeout() {
    for (timeout_ms, refused) in [(60_000, false), (60_000, true), (300, true)] {
        let (log, appender, epoch) = full_log(Duration::from_millis(timeout_ms));
        assert!(!appender.check_room().expect("no change is refused yet"));
        let (sender, woken) = mpsc::channel();
        let (seen, waker) = (log.buffers_taken(), Waker::from(Arc::new(Flag(sender.clone()))));
        assert!(log.poll_flush(seen, seen, &waker).is_pending());
        // One flush is not enough.
        log.flush_now().expect("a flush");
        let _ = woken.recv_timeout(Duration::from_millis(50));
        let seen = seen.min(log.buffers_taken() - 1);
        assert!(log.poll_flush(seen, seen, &waker).is_pending());
        let waiting = Arc::clone(&log);
        thread::spawn(move || {
            assert!(waiting.wait_flush().is_ok());
            let _ = sender.send(());
        });
        thread::sleep(Duration::from_millis(100));
        match (refused, timeout_ms) {
            (false, _) => log.truncate(epoch),
            (true, 300) => {}
            _ => {
                until("stuck", || log.is_stuck());
                log.refuse_changes();
            }
        }
        for _ in 0..2 {
            woken.recv_timeout(Duration::from_secs(10)).expect("a thread and a task go on");
        }
        assert!(log.poll_flush(seen, seen, &waker).is_ready());
        match appender.check_room() {
            Ok(room) => assert!(room && !refused),
            Err(error) => assert!(refused && matches!(error, Error::DiskFull { .. }), "{error:?}"),
        }
        log.truncate(epoch);
        until("room", || matches!(appender.check_room(), Ok(true)));
        log.close().expect("closed");
    }
}

#[test]
fn closing_a_full_log_does_not_wait_for_ever() {
    let segment = small().segment_bytes;
    let (_, storage) = device(FaultPlan::new(1).log_limit(segment));
    let log = start(&storage, LogStart::default());
    let appender = log.appender();
    for id in 1..30 {
        append(&appender, id, 10_000);
    }
    until("full", || matches!(appender.check_room(), Err(Error::DiskFull { .. })));
    let error = log.close().expect_err("29 records do not fit");
    assert!(matches!(error, Error::Poisoned(_)), "{error:?}");
    let (flushes, _) = read(&storage, 1).expect("a good log");
    let found = records(&flushes).len();
    assert!(found < 29 && flushes.len() as u64 == log.stats().flushes, "{found} records");
}

#[test]
fn a_full_log_uses_up_the_rest_of_its_segment() {
    let options = LogOptions { segment_bytes: 1 << 20, ..LogOptions::default() };
    let (_, storage) = device(FaultPlan::new(1).log_limit(options.segment_bytes));
    let log = Log::start(storage.clone(), options, store(), Box::new(|| 0)).expect("a log");
    let appender = log.appender();
    let rest = 31 * 4096;
    let mut id = 0;
    while log.bytes_written() + rest < options.segment_bytes {
        id += 1;
        append(&appender, id, 3000);
        log.flush_now().expect("there is room");
    }
    until("full", || log.is_full());
    // Two blocks of 15 and 14 pages. If the records were larger, they could need three.
    for _ in 0..106 {
        id += 1;
        append(&appender, id, 1000);
    }
    log.close().expect("all of it fits");
    let (flushes, _) = read(&storage, 1).expect("a good log");
    assert_eq!(records(&flushes).len() as u64, id);
}

#[test]
fn a_wait_for_room_in_a_buffer_ends_with_an_error_when_the_log_is_full() {
    // The helper takes a while to find that out.
    let late = Fault::Latency(Duration::from_millis(500));
    let plan = FaultPlan::new(1).log_limit(small().segment_bytes).always(Op::LogCreate, late);
    let (_, storage) = device(plan);
    let log = start(&storage, LogStart::default());
    let appender = log.appender();
    let mut section = appender.begin();
    for id in 0..20 {
        section.start(Kind::Change, AUTO, id, Gsn(0));
        section.op(PageId(id), TreeId(1), 1, &[&contents(id, 10_000)]);
        section.finish();
    }
    drop(section);
    log.request(log.epoch(), Urgency::Now);
    until("a flush that waits for a segment", || log.buffers_taken() == 1);
    let mut id = 20;
    while appender.check_room().expect("the log has not found out that it is full") {
        append(&appender, id, 10_000);
        id += 1;
    }
    let (seen, (sender, woken)) = (log.buffers_taken(), mpsc::channel());
    let waker = Waker::from(Arc::new(Flag(sender.clone())));
    assert!(log.poll_flush(seen, seen, &waker).is_pending());
    let waiting = Arc::clone(&log);
    thread::spawn(move || {
        assert!(waiting.wait_flush().is_ok());
        let _ = sender.send(());
    });
    for _ in 0..2 {
        woken.recv_timeout(Duration::from_secs(10)).expect("a thread and a task go on");
    }
    assert!(log.poll_flush(seen, seen, &waker).is_ready());
    assert!(matches!(appender.check_room(), Err(Error::DiskFull { .. })));
    assert!(matches!(log.close(), Err(Error::Poisoned(_))), "not all of it fits");
}

#[test]
fn a_log_that_cannot_begin_says_why() {
    let (_, storage) = device(FaultPlan::new(1).log_limit(1000));
    let error = Log::start(storage, small(), store(), Box::new(|| 0)).err();
    assert!(matches!(error, Some(Error::DiskFull { .. })), "{error:?}");
    let plan = FaultPlan::new(1).always(Op::LogRead, Fault::Error(ErrorKind::Other));
    let (device, storage) = device(plan);
    device.set_raw_segment(1, vec![0; 128 << 10]);
    assert!(matches!(LogReader::open(storage, STORE, 1).err(), Some(Error::Io { .. })));
}

#[test]
fn reads_that_fail_are_errors_and_never_an_end() {
    let (device, storage) = device(FaultPlan::new(1));
    let log = start(&storage, LogStart::default());
    let appender = log.appender();
    for id in 1..60 {
        append(&appender, id, 5000);
        log.flush_now().expect("a flush");
    }
    drop(log);
    let faults = [
        Fault::Error(ErrorKind::Other),
        Fault::Short(Unit::Sector),
        Fault::BitFlip,
        Fault::Latency(Duration::from_micros(1)),
    ];
    for fault in faults {
        for seed in 0..40 {
            let image = device.clone_at_rest();
            image.set_plan(FaultPlan::new(seed).sometimes(Op::LogRead, 0.02, fault));
            let storage: Arc<dyn LogStorage> = Arc::new(image);
            if let Ok((flushes, _)) = read(&storage, 1) {
                assert_eq!(records(&flushes).len(), 59, "{fault:?}, seed {seed}");
            }
        }
    }
}

#[test]
fn writes_that_failed_silently_are_found_when_a_later_flush_is_there() {
    let faults =
        [Fault::Lost, Fault::Misdirected, Fault::Torn(Unit::Sector), Fault::Torn(Unit::Page)];
    for fault in faults {
        let mut found = 0;
        for seed in 0..60 {
            let (device, storage) = device(FaultPlan::new(seed));
            let log = start(&storage, LogStart::default());
            device.set_plan(FaultPlan::new(seed).nth(Op::LogWrite, 2 + seed % 5, fault));
            let appender = log.appender();
            for id in 1..20 {
                append(&appender, id, 3000);
                log.flush_now().expect("the device says that it wrote");
            }
            log.close().expect("closed");
            match read(&storage, 1) {
                Ok((flushes, _)) => {
                    assert_eq!(records(&flushes).len(), 19, "{fault:?}, seed {seed}");
                }
                Err(_) => found += 1,
            }
        }
        assert!(found > 0, "{fault:?} never mattered");
    }
}

#[test]
fn a_failed_creation_is_tried_again() {
    let plan = FaultPlan::new(1).nth(Op::LogCreate, 2, Fault::Error(ErrorKind::StorageFull));
    let (_, storage) = device(plan);
    let log = start(&storage, LogStart::default());
    let appender = log.appender();
    for id in 1..40 {
        append(&appender, id, 10_000);
    }
    log.flush_now().expect("it waits for the second try");
    assert!(log.stats().segments > 2);
}

#[test]
fn a_segment_that_is_there_although_making_it_failed_is_made_again() {
    for n in [2, 3] {
        let plan = FaultPlan::new(1).nth(Op::LogCreate, n, Fault::Unsettled(ErrorKind::Other));
        let (device, storage) = device(plan);
        let log = start(&storage, LogStart::default());
        let appender = log.appender();
        for id in 1..60 {
            append(&appender, id, 10_000);
        }
        let last = log.epoch();
        log.request(last, Urgency::Now);
        until("durable", || log.durable_epoch() >= last);
        until("room", || appender.check_room().is_ok());
        assert!(log.stats().segments > 3);
        // The log must not rely on a segment that a power cut takes.
        let left: Arc<dyn LogStorage> = Arc::new(device.crash(1));
        let (flushes, _) = read(&left, 1).expect("a good log");
        assert_eq!(records(&flushes).len(), 59, "creation {n}");
    }
}

#[test]
fn a_segment_that_is_gone_although_removing_it_failed_does_not_keep_the_others() {
    let faults = [
        Fault::Unsettled(ErrorKind::Other),
        Fault::Error(ErrorKind::Other),
        Fault::Latency(Duration::ZERO),
    ];
    for fault in faults {
        let (device, storage) = device(FaultPlan::new(1).nth(Op::LogRemove, 1, fault));
        let log = start(&storage, LogStart::default());
        let appender = log.appender();
        let turn = |first: u64| {
            for id in first..first + 60 {
                append(&appender, id, 10_000);
            }
            log.flush_now().expect("a flush")
        };
        let first = turn(1);
        assert!(log.stats().segments > 3);
        log.truncate(first + 1);
        until("the first is removed, or was tried", || device.counters().log_removals > 0);
        let second = turn(61);
        log.truncate(second + 1);
        until("one segment is left", || log.stats().segments == 1);
        let left = storage.segments().expect("segments").len();
        assert!(left <= 3, "{fault:?}: {left} segments, with the next one and that in reserve");
        log.close().expect("closed");
    }
}

/// A device that makes segments, but for the first, in a given way.
struct Makes<F> {
    device: SimStorage,
    make: F,
}

type Pace<'a> = &'a mut dyn FnMut(u64) -> Option<u64>;

/// Makes a segment at the given pace, in small steps. `look` is called before each step with the
/// number of finished bytes.
fn make_paced(
    device: &SimStorage,
    (segment, bytes): (u64, u64),
    pace: Pace<'_>,
    look: &mut dyn FnMut(u64) -> io::Result<()>,
) -> io::Result<()> {
    let mut done = 0;
    while done < bytes {
        look(done)?;
        done += pace(done).ok_or(ErrorKind::Interrupted)?.clamp(4096, 8192);
    }
    device.create(segment, bytes)
}

impl<F> LogStorage for Makes<F>
where
    F: Fn(&SimStorage, (u64, u64), Zeroes, Pace<'_>) -> io::Result<()> + Send + Sync + 'static,
{
    fn segments(&self) -> io::Result<Vec<(u64, u64)>> {
        self.device.segments()
    }
    fn create(&self, segment: u64, bytes: u64) -> io::Result<()> {
        self.device.create(segment, bytes)
    }
    fn create_beside(
        &self,
        segment: u64,
        bytes: u64,
        how: Zeroes,
        pace: Pace<'_>,
    ) -> io::Result<()> {
        (self.make)(&self.device, (segment, bytes), how, pace)
    }
    fn remove(&self, segment: u64) -> io::Result<()> {
        LogStorage::remove(&self.device, segment)
    }
    fn read(&self, segment: u64, offset: u64, into: &mut [u8]) -> io::Result<()> {
        LogStorage::read(&self.device, segment, offset, into)
    }
    fn write(&self, segment: u64, writes: &[(u64, &[u8])]) -> io::Result<()> {
        LogStorage::write(&self.device, segment, writes)
    }
    fn sync(&self, segment: u64) -> io::Result<()> {
        LogStorage::sync(&self.device, segment)
    }
}

#[test]
fn no_record_is_durable_that_was_appended_after_the_log_failed() {
    let (sender, receiver) = mpsc::channel();
    let receiver = Mutex::new(receiver);
    let make = move |_: &SimStorage, _: (u64, u64), _: Zeroes, _: Pace<'_>| {
        let told = receiver.lock().expect("no panic yet").recv();
        panic!("making a segment: {told:?}");
    };
    let device = SimStorage::new(FaultPlan::new(1));
    let storage: Arc<dyn LogStorage> = Arc::new(Makes { device, make });
    let log = start(&storage, LogStart::default());
    let appender = log.appender();
    append(&appender, 1, 100);
    log.flush_now().expect("a flush");
    // The flusher has nothing to do for a while when another thread of the log fails.
    append(&appender, 2, 100);
    sender.send(()).expect("it waits");
    until("poisoned", || log.is_poisoned().is_some());
    append(&appender, 3, 100);
    let after = log.epoch();
    thread::sleep(Duration::from_millis(250));
    let result = log.wait_durable(after);
    assert!(matches!(result, Err(Error::Poisoned(_))), "{result:?}");
    assert!(log.is_poisoned().expect("poisoned").contains("panicked"));
}

/// Appenders go while the log is full, so the reserve shrinks below the segments that were made for
/// it: the rest is the next segment.
#[test]
fn a_full_log_with_a_smaller_reserve_takes_the_room_that_comes() {
    for shrinks in [false, true] {
        let (sim, storage) = device(FaultPlan::new(1));
        let log = start(&storage, LogStart::default());
        let appender = log.appender();
        let mut others: Vec<_> = (0..16).map(|_| log.appender()).collect();
        append(&appender, 1, 100);
        log.flush_now().expect("a flush");
        // The device has room for some of the reserve.
        until("some reserve", || storage.segments().expect("segments").len() >= 4);
        let full = Fault::Error(ErrorKind::StorageFull);
        sim.set_plan(FaultPlan::new(1).always(Op::LogCreate, full));
        let mut txn = 1;
        while !log.is_full() {
            txn += 1;
            append(&appender, txn, 3000);
            log.flush_now().expect("a flush");
            thread::sleep(Duration::from_millis(1));
        }
        if shrinks {
            others.clear();
        }
        append(&appender, txn + 1, 100);
        let epoch = log.flush_now().expect("a flush");
        append(&appender, txn + 2, 100);
        log.flush_now().expect("a flush");
        // There is room again, on the device and in the log.
        sim.heal();
        log.truncate(epoch);
        until("room", || matches!(appender.check_room(), Ok(true)));
        assert!(!log.is_full());
        log.close().expect("closed");
    }
}

/// The device answers too late: waits end with an error that says so, and the log has not failed.
#[test]
fn a_wait_for_a_device_that_does_not_answer_ends_with_an_error() {
    let (device, storage) = device(FaultPlan::new(4));
    // Without a room timeout a flush waits 5 s for room, so a wait for a flush takes 10 s at most.
    let log = start(&storage, LogStart::default());
    let appender = log.appender();
    append(&appender, 1, 100);
    log.flush_now().expect("a flush");
    let late = Fault::Latency(Duration::from_secs(14));
    device.set_plan(FaultPlan::new(4).nth(Op::LogSync, 1, late));
    append(&appender, 2, 100);
    let epoch = log.epoch();
    let (sender, woken) = mpsc::channel();
    let waker = Waker::from(Arc::new(Flag(sender)));
    log.request(epoch, Urgency::Now);
    assert!(log.poll_durable(epoch, &waker).is_pending());
    let began = Instant::now();
    thread::scope(|scope| {
        let durable = scope.spawn(|| log.wait_durable(epoch));
        // The flush in flight has taken the buffers already.
        thread::sleep(Duration::from_millis(200));
        let room = scope.spawn(|| log.wait_flush());
        let checkpoint = scope.spawn(|| log.begin_checkpoint());
        let unknown =
            |outcome| matches!(outcome, Err(Error::CommitUnknown(why)) if why.contains("10 s"));
        assert!(unknown(durable.join().expect("no panic")));
        woken.recv_timeout(Duration::from_secs(4)).expect("the task is woken");
        match log.poll_durable(epoch, &waker) {
            Poll::Ready(outcome) => assert!(unknown(outcome)),
            Poll::Pending => panic!("the task waits on"),
        }
        let timed_out = |outcome: Result<(), Error>| match outcome {
            Err(Error::Io { source, .. }) => source.kind() == ErrorKind::TimedOut,
            _ => false,
        };
        assert!(timed_out(room.join().expect("no panic")));
        assert!(timed_out(checkpoint.join().expect("no panic").map(drop)));
    });
    assert!(began.elapsed() < Duration::from_secs(13), "{:?}", began.elapsed());
    // It was only late.
    until("the flush ends", || log.durable_epoch() >= epoch);
    append(&appender, 3, 100);
    log.flush_now().expect("the log goes on");
    assert!(log.is_poisoned().is_none());
    assert!(log.poll_durable(log.durable_epoch(), &waker).is_ready());
}
