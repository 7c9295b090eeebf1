//! Appending, waiting, reading back: the log from the outside, on a device that does not fail.

mod common;

use common::*;
use std::{
    sync::{Arc, mpsc},
    task::{Context, Poll, Wake, Waker},
    thread,
    time::{Duration, Instant},
};
use wattle_buffer::{
    Error, Gsn, LogBarrier, PageId, TreeId,
    io::{IoKind, LogStorage, MemoryLog, open_log},
};
use wattle_wal::{
    AUTO, Classes, Kind, Log, LogOptions, LogReader, LogStart, Urgency, class_of, epoch_of, record,
};

#[test]
fn appended_records_are_read_back() {
    let storage: Arc<dyn LogStorage> = Arc::new(MemoryLog::default());
    let log = start(&storage, LogStart::default());
    let appender = log.appender();
    let mut section = appender.begin();
    let gsn = section.start(Kind::Change, AUTO, 7, Gsn(0));
    section.op(PageId(3), TreeId(2), 9, &[b"ab", b"", b"cd"]);
    section.op(PageId(4), TreeId(2), 10, &[]);
    section.undo(&[b"undo", b" me"]);
    let bytes = section.finish();
    let second = section.start(Kind::Note, 0, 0, Gsn(0));
    section.undo(&[b"note"]);
    section.finish();
    drop(section);
    assert!(second > gsn);
    let epoch = log.flush_now().expect("a flush");
    assert_eq!(epoch, epoch_of(gsn));
    assert_eq!(log.stats().commits, 1);
    assert_eq!(log.stats().segments, 1);
    log.close().expect("closed");

    let (flushes, end) = read(&storage, 1).expect("a good log");
    assert_eq!(flushes.len(), 1);
    assert_eq!((end.epoch, end.segment, end.flush, end.sequence), (epoch, 1, 1, 1));
    let chunk = &flushes[0].chunks[0];
    assert_eq!(chunk.worker, appender.worker());
    assert_eq!((chunk.base.epoch, chunk.base.txn), (epoch, 7));
    let (found, len) = record::parse(&chunk.bytes, chunk.base).expect("a record");
    assert_eq!(len, bytes);
    assert_eq!((found.kind, found.flags, found.txn, found.gsn), (Kind::Change, AUTO, 7, gsn));
    assert_eq!(found.undo, b"undo me");
    let ops: Vec<_> = found.ops().map(|op| (op.page.0, op.code, op.payload.to_vec())).collect();
    assert_eq!(ops, [(3, 9, b"abcd".to_vec()), (4, 10, Vec::new())]);
    let (note, rest) = record::parse(&chunk.bytes[len..], chunk.base).expect("a note");
    assert_eq!((note.kind, note.undo, len + rest), (Kind::Note, &b"note"[..], chunk.bytes.len()));
}

/// Pieces of a segment are read ahead; blocks lie across their ends.
#[test]
fn segments_of_several_pieces_are_read_back() {
    let storage: Arc<dyn LogStorage> = Arc::new(MemoryLog::default());
    let options = LogOptions { segment_bytes: 4 << 20, ..LogOptions::default() };
    let log = Log::start(storage.clone(), options, store(), Box::new(|| 0)).expect("a log");
    let appender = log.appender();
    for id in 1..=600 {
        let len = [17, 40_000, 3000, 57_000, 12_345][id as usize % 5];
        append(&appender, id, len);
        if id % 7 == 0 {
            log.flush_now().expect("a flush");
        }
    }
    log.close().expect("closed");
    assert!(log.stats().bytes_written > 12 << 20);
    let (flushes, _) = read(&storage, 1).expect("a good log");
    let found: Vec<u64> = records(&flushes).iter().map(|record| record.id).collect();
    assert!(found.into_iter().eq(1..=600));
}

#[test]
fn a_log_goes_on_after_each_reopening() {
    let kinds = [IoKind::Memory, IoKind::Threads, IoKind::Uring];
    for kind in kinds.into_iter().filter(|kind| kind.check().is_ok()) {
        let dir = tempfile::tempdir().expect("a directory");
        let storage = open_log(kind, &dir.path().join("log")).expect("a log");
        let mut from = LogStart::default();
        for round in 0..4u64 {
            let log = start(&storage, from);
            let appender = log.appender();
            for index in 0..100 {
                append(&appender, round * 100 + index, 3000);
                if index % 10 == 0 {
                    log.flush_now().expect("a flush");
                }
            }
            drop(appender);
            log.close().expect("closed");
            let (flushes, end) = read(&storage, 1).expect("a good log");
            let numbers: Vec<u64> = records(&flushes).into_iter().map(|found| found.id).collect();
            assert_eq!(numbers, (0..(round + 1) * 100).collect::<Vec<_>>(), "{kind:?}");
            assert!(end.segment > from.segment, "300 KB do not fit one segment");
            from = LogStart::after(end);
        }
    }
}

#[test]
fn buffers_are_flushed_without_being_asked_and_when_dropped() {
    let storage: Arc<dyn LogStorage> = Arc::new(MemoryLog::default());
    let log = start(&storage, LogStart::default());
    let appender = log.appender();
    append(&appender, 1, 10);
    drop(appender);
    let began = Instant::now();
    while log.durable_epoch() < 1 {
        assert!(began.elapsed() < Duration::from_secs(10), "nothing was flushed");
        thread::sleep(Duration::from_millis(5));
    }
    let appender = log.appender();
    append(&appender, 2, 10);
    drop(log);
    assert!(matches!(appender.check_room(), Err(Error::Closed)));
    let (flushes, _) = read(&storage, 1).expect("a good log");
    assert_eq!(records(&flushes).len(), 2);
}

#[test]
fn a_full_buffer_says_so_and_a_flush_makes_room() {
    let storage: Arc<dyn LogStorage> = Arc::new(MemoryLog::default());
    let log = start(&storage, LogStart::default());
    let appender = log.appender();
    for id in 0..200 {
        append(&appender, id, 50_000);
        while !appender.check_room().expect("a good log") {
            log.wait_flush().expect("a flush");
        }
    }
    log.close().expect("closed");
    assert_eq!(records(&read(&storage, 1).expect("a good log").0).len(), 200);
}

struct Flag(mpsc::Sender<()>);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        let _ = self.0.send(());
    }
}

#[test]
fn tasks_are_woken_by_the_event_that_they_wait_for() {
    let storage: Arc<dyn LogStorage> = Arc::new(MemoryLog::default());
    let log = start(&storage, LogStart::default());
    let appender = log.appender();
    let (sender, woken) = mpsc::channel();
    let waker = Waker::from(Arc::new(Flag(sender)));
    append(&appender, 1, 10);
    let epoch = log.epoch();
    assert!(log.poll_durable(epoch, &waker).is_pending());
    log.request(epoch, Urgency::Soon);
    woken.recv_timeout(Duration::from_secs(10)).expect("woken");
    assert!(matches!(log.poll_durable(epoch, &waker), Poll::Ready(Ok(()))));
    let mut room = std::pin::pin!(log.next_flush(&mut None));
    let mut context = Context::from_waker(&waker);
    if Future::poll(room.as_mut(), &mut context).is_pending() {
        woken.recv_timeout(Duration::from_secs(10)).expect("woken");
        assert!(Future::poll(room.as_mut(), &mut context).is_ready());
    }
    assert!(matches!(log.poll_room(&appender, &waker), Poll::Ready(Ok(()))));
}

#[test]
fn checkpoints_tell_which_pages_need_images() {
    let storage: Arc<dyn LogStorage> = Arc::new(MemoryLog::default());
    let log = start(&storage, LogStart::default());
    let appender = log.appender();
    let old = append(&appender, 1, 10);
    assert!(!appender.begin().needs_image(PageId(1), old));
    let epoch = log.begin_checkpoint().expect("a checkpoint");
    assert!(log.durable_epoch() + 1 >= epoch);
    assert!(appender.begin().needs_image(PageId(1), old));
    let new = append(&appender, 2, 10);
    assert!(epoch_of(new) >= epoch && !appender.begin().needs_image(PageId(1), new));
    let again = log.begin_checkpoint().expect("another one");
    assert!(again > epoch && appender.begin().needs_image(PageId(1), new));
    // A checkpoint of some classes asks only for images of their pages.
    let newer = append(&appender, 3, 10);
    let classes = Classes::range(2, 7);
    let part = log.begin_checkpoint_of(classes).expect("a part of one");
    assert!(part > again);
    for page in (0..100).map(PageId) {
        let section = appender.begin();
        assert_eq!(section.needs_image(page, newer), classes.has(class_of(page)), "{page}");
        assert!(section.needs_image(page, new));
    }
    log.close().expect("closed");
    let (_, end) = read(&storage, 1).expect("a good log");
    assert!(end.epoch + 1 >= again, "the epoch of a checkpoint lasts");
}

#[test]
fn old_segments_are_removed_and_the_rest_is_read() {
    let storage: Arc<dyn LogStorage> = Arc::new(MemoryLog::default());
    let log = start(&storage, LogStart::default());
    let appender = log.appender();
    let mut epochs = Vec::new();
    for id in 0..100 {
        append(&appender, id, 20_000);
        epochs.push((log.flush_now().expect("a flush"), id));
    }
    let (keep, kept_id) = epochs[60];
    let first = log.segment_of(keep);
    assert!(first > 1 && first < log.segment_of(epochs[99].0));
    log.truncate(keep);
    let began = Instant::now();
    while storage.segments().expect("segments")[0].0 < first {
        assert!(began.elapsed() < Duration::from_secs(10), "nothing was removed");
        thread::sleep(Duration::from_millis(1));
    }
    drop(appender);
    log.close().expect("closed");
    let (flushes, end) = read(&storage, first).expect("a good log");
    let numbers: Vec<u64> = records(&flushes).into_iter().map(|found| found.id).collect();
    assert!(numbers[0] <= kept_id);
    assert_eq!(numbers, (numbers[0]..100).collect::<Vec<_>>());
    assert!(LogReader::open(Arc::clone(&storage), STORE, first - 1).is_err(), "it is gone");
    // The epochs of the segments survive a reopening.
    let log = start(&storage, LogStart::after(end));
    assert_eq!(log.segment_of(keep), first);
    log.truncate(epochs[99].0);
    drop(log);
}

#[test]
fn a_new_segment_takes_no_sync_of_its_own() {
    let storage: Arc<dyn LogStorage> = Arc::new(MemoryLog::default());
    let log = start(&storage, LogStart::default());
    let appender = log.appender();
    for id in 0..60 {
        append(&appender, id, 12_000);
        log.flush_now().expect("a flush");
    }
    let stats = log.stats();
    assert!(stats.segments >= 5, "{} segments", stats.segments);
    assert_eq!(stats.syncs, stats.flushes, "in {} segments", stats.segments);
    drop(appender);
    log.close().expect("closed");
    let (flushes, _) = read(&storage, 1).expect("a good log");
    assert_eq!(records(&flushes).len(), 60);
}

#[test]
fn the_next_segment_is_begun_when_a_part_of_the_current_one_is_in_use() {
    let storage: Arc<dyn LogStorage> = Arc::new(MemoryLog::default());
    let options = LogOptions { segment_bytes: 1 << 20, ..LogOptions::default() };
    let log = Log::start(Arc::clone(&storage), options, store(), Box::new(|| 0)).expect("a log");
    let appender = log.appender();
    let count = || storage.segments().expect("segments").len();
    append(&appender, 1, 100);
    log.flush_now().expect("a flush");
    thread::sleep(Duration::from_millis(100));
    assert_eq!(count(), 2, "beside the first one only that in reserve");
    let began = Instant::now();
    for id in 2.. {
        append(&appender, id, 20_000);
        log.flush_now().expect("a flush");
        if count() == 3 {
            break;
        }
        assert_eq!(log.stats().segments, 1, "the next one was made when it was needed");
        assert!(began.elapsed() < Duration::from_secs(10), "no next segment");
        thread::sleep(Duration::from_millis(10));
    }
    drop(appender);
    log.close().expect("closed");
    assert_eq!(count(), 1, "a log that is closed keeps the segments in use");
}

#[test]
fn group_requests_wait_for_others_but_not_for_long() {
    let storage: Arc<dyn LogStorage> = Arc::new(MemoryLog::default());
    let options = LogOptions { group_delay: Duration::from_millis(30), ..small() };
    let log = Log::start(Arc::clone(&storage), options, store(), Box::new(|| 5)).expect("a log");
    let appender = log.appender();
    append(&appender, 1, 10);
    let began = Instant::now();
    log.request(log.epoch(), Urgency::Soon);
    log.wait_durable(1).expect("durable");
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(25), "flushed after {took:?}");
    assert_eq!(log.durable_mark(), 5);
    // From now on the delay depends on the sync times of this device, which are almost zero.
    append(&appender, 2, 10);
    log.request(log.epoch(), Urgency::Soon);
    log.wait_durable(2).expect("durable");
    assert_eq!(log.stats().flushes, 2);
}

#[test]
fn the_barrier_waits_and_refuses_pages_that_are_ahead_of_the_log() {
    let storage: Arc<dyn LogStorage> = Arc::new(MemoryLog::default());
    let log = start(&storage, LogStart::default());
    let appender = log.appender();
    let gsn = append(&appender, 1, 10);
    log.ensure_durable(gsn).expect("durable");
    assert!(log.durable_epoch() >= epoch_of(gsn));
    assert!(matches!(log.ensure_durable(Gsn(u64::MAX)), Err(Error::WrongLog { .. })));
}

#[test]
fn counters_that_run_over_skip_an_epoch() {
    let storage: Arc<dyn LogStorage> = Arc::new(MemoryLog::default());
    let log = start(&storage, LogStart::default());
    let appender = log.appender();
    let far = Gsn((log.epoch() << 20) + (1 << 20) - 2);
    appender.observe(far);
    let mut section = appender.begin();
    let mut last = Gsn(0);
    for _ in 0..4 {
        last = section.start(Kind::Note, 0, 0, Gsn(0));
        section.finish();
    }
    drop(section);
    assert!(epoch_of(last) > 1);
    log.ensure_durable(last).expect("durable");
    let next = log.begin_checkpoint().expect("a checkpoint");
    assert!(next > epoch_of(last) && appender.begin().needs_image(PageId(1), last));
}

#[test]
fn a_section_that_sees_the_next_checkpoint_early_logs_images() {
    let storage: Arc<dyn LogStorage> = Arc::new(MemoryLog::default());
    let start = LogStart { epoch: 5, image_epoch: 6, ..store() };
    let log = Log::start(storage, small(), start, Box::new(|| 0)).expect("a log");
    let appender = log.appender();
    let section = appender.begin();
    assert_eq!(section.epoch(), 5);
    assert!(
        section.needs_image(PageId(1), Gsn(3 << 20)),
        "the checkpoint before may have begun at epoch 4"
    );
}

#[test]
fn a_foreign_log_and_wrong_starts_are_refused() {
    let storage: Arc<dyn LogStorage> = Arc::new(MemoryLog::default());
    let log = start(&storage, LogStart::default());
    append(&log.appender(), 1, 10);
    log.close().expect("closed");
    let foreign = LogReader::open(Arc::clone(&storage), STORE + 1, 1).err();
    assert!(matches!(foreign, Some(Error::WrongLog { .. })), "{foreign:?}");
    assert!(LogReader::open(Arc::clone(&storage), STORE, 7).is_err());
    // A log that starts over in a used segment would overwrite it.
    let over = Log::start(Arc::clone(&storage), small(), store(), Box::new(|| 0)).err();
    assert!(matches!(over, Some(Error::WrongLog { .. })), "{over:?}");
    let odd = LogOptions { segment_bytes: 130_000, ..LogOptions::default() };
    let odd = Log::start(storage, odd, store(), Box::new(|| 0)).err();
    assert!(matches!(odd, Some(Error::InvalidOption(_))));
}

/// The layers above refuse such a page when they read it. If one gets to the log all the same, the
/// log must stay readable.
#[test]
fn a_change_of_a_page_of_a_later_epoch_makes_the_log_go_on_after_that_epoch() {
    let storage: Arc<dyn LogStorage> = Arc::new(MemoryLog::default());
    let log = start(&storage, LogStart::default());
    let appender = log.appender();
    for ahead in [1, 600, 1 << 30] {
        let page = Gsn((log.epoch() + ahead) << wattle_wal::GSN_COUNTER_BITS);
        let gsn = append_to(&appender, ahead, 100, PageId(9), page);
        assert!(gsn > page);
        log.flush_now().expect("a flush");
        log.ensure_durable(gsn).expect("the log has got there");
        assert!(log.epoch() > epoch_of(gsn));
    }
    log.close().expect("closed");
    let (flushes, end) = read(&storage, 1).expect("a good log");
    let found = records(&flushes);
    assert_eq!(found.len(), 3);
    assert!(end.epoch > 1 << 30, "the end is after all of them");
}
