//! Logs that were cut, flipped or forged: the reader gives an error or everything that was
//! acknowledged. It never panics, loses records silently, or allocates what a damaged length says.

mod common;

use common::*;
use proptest::prelude::*;
use std::{collections::BTreeMap, sync::Arc};
use wattle_buffer::{
    Error,
    io::{FaultPlan, LogStorage, SimStorage},
};
use wattle_wal::{
    LogReader, LogStart,
    format::{FORMAT_VERSION, OLDEST_VERSION, SECTOR},
    record,
};

const RECORDS: u64 = 16;

/// Bytes of segments by number.
type Segments = BTreeMap<u64, Vec<u8>>;

/// A log of two used segments and two prepared ones, as a crash leaves it: a few flushes, one of
/// them across the segments.
fn small_log() -> Segments {
    let device = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let storage: Arc<dyn LogStorage> = device.clone();
    let log = start(&storage, LogStart::default());
    let appender = log.appender();
    for id in 1..=RECORDS {
        append(&appender, id, if id.is_multiple_of(4) { 30_000 } else { 300 });
        if id % 4 != 2 {
            log.flush_now().expect("a flush");
        }
    }
    until("four are there", || device.segments().expect("segments").len() == 4);
    all_from(1, &device)
}

/// The segments from `first` on.
fn all_from(first: u64, device: &SimStorage) -> Segments {
    let numbers = device.segments().expect("segments").into_iter().map(|(number, _)| number);
    let there = numbers.filter(|number| *number >= first);
    there.map(|number| (number, device.raw_segment(number).expect("there"))).collect()
}

fn device_with(segments: &Segments) -> Arc<SimStorage> {
    let device = SimStorage::new(FaultPlan::new(1));
    for (&number, bytes) in segments {
        device.set_raw_segment(number, bytes.clone());
    }
    Arc::new(device)
}

/// An error, or all records.
fn error_or_everything(device: &Arc<SimStorage>, what: impl Fn() -> String) -> bool {
    let storage: Arc<dyn LogStorage> = device.clone();
    match read(&storage, 1) {
        Err(_) => false,
        Ok((flushes, _)) => {
            assert_eq!(records(&flushes).len() as u64, RECORDS, "{}", what());
            true
        }
    }
}

/// The end of the written part of a segment.
fn used(bytes: &[u8]) -> usize {
    bytes.len() - bytes.iter().rev().take_while(|byte| **byte == 0).count()
}

#[test]
fn a_flipped_bit_anywhere_loses_nothing_silently() {
    let segments = small_log();
    let sweep = |part| {
        let mut harmless = 0;
        let device = device_with(&segments);
        for (&number, bytes) in &segments {
            // Everything that was written, and some of the rest.
            let end = (used(bytes) + 9000).min(bytes.len());
            // All bytes of heads, and every seventh of the rest: all its bits are checked alike.
            let places = (0..end).filter(|at| at % 4096 < 640 || at % 7 == 0);
            for at in places.skip(part).step_by(2) {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << (at / 3 % 8);
                device.set_raw_segment(number, changed);
                let read = error_or_everything(&device, || format!("segment {number}, byte {at}"));
                harmless += usize::from(read);
            }
            device.set_raw_segment(number, bytes.clone());
        }
        harmless
    };
    let harmless = std::thread::scope(|scope| {
        let other = scope.spawn(|| sweep(1));
        sweep(0) + other.join().expect("the other half")
    });
    assert!(harmless > 0, "padding does not matter");
}

#[test]
fn a_cut_anywhere_loses_nothing_silently() {
    let segments = small_log();
    for (&number, bytes) in &segments {
        let heads = (0..bytes.len()).filter(|at| at % 4096 < 3 || *at < 600 || at % 997 == 0);
        for at in heads {
            let device = device_with(&segments);
            device.set_raw_segment(number, bytes[..at].to_vec());
            let read = error_or_everything(&device, || format!("segment {number} cut at {at}"));
            assert!(!read || used(bytes) == 0, "a segment that is too short is always found");
        }
    }
}

#[test]
fn missing_and_exchanged_segments_are_errors() {
    let segments = small_log();
    let used: Vec<u64> = segments.iter().filter(|(_, b)| used(b) > 0).map(|(&n, _)| n).collect();
    assert!(used.len() >= 2);
    let mut without = segments.clone();
    without.remove(&1);
    let storage: Arc<dyn LogStorage> = device_with(&without);
    assert!(read(&storage, 1).is_err());
    let mut exchanged = segments.clone();
    exchanged.insert(1, segments[&2].clone());
    exchanged.insert(2, segments[&1].clone());
    let storage: Arc<dyn LogStorage> = device_with(&exchanged);
    assert!(read(&storage, 1).is_err());
    // The head of the first segment is empty, and the second segment is in use.
    let mut headless = segments.clone();
    headless.get_mut(&1).expect("there")[..4096].fill(0);
    let storage: Arc<dyn LogStorage> = device_with(&headless);
    assert!(read(&storage, 1).is_err());
    // The head of the last segment is empty, and its blocks are there.
    let mut headless = segments.clone();
    headless.get_mut(&used[used.len() - 1]).expect("there")[..4096].fill(0);
    let storage: Arc<dyn LogStorage> = device_with(&headless);
    assert!(read(&storage, 1).is_err());
}

#[test]
fn a_hole_before_a_later_flush_is_damage() {
    let segments = small_log();
    for (&number, bytes) in &segments {
        let end = used(bytes);
        for page in (4096..end).step_by(4096) {
            for (from, to) in [(0, 512), (512, 1024), (0, 4096)] {
                let mut holed = bytes.clone();
                holed[page + from..page + to].fill(0);
                if holed == *bytes {
                    continue;
                }
                let device = device_with(&segments);
                device.set_raw_segment(number, holed);
                let storage: Arc<dyn LogStorage> = device;
                // The very last flush looks like one that was never synced.
                if let Ok((flushes, _)) = read(&storage, 1) {
                    let lost = RECORDS - records(&flushes).len() as u64;
                    assert!(lost <= 1, "segment {number}, hole at {}: {lost} lost", page + from);
                }
            }
        }
    }
}

#[test]
fn one_flush_and_no_later_one_may_follow_a_head_that_did_not_arrive() {
    let segments = small_log();
    let storage: Arc<dyn LogStorage> = device_with(&segments);
    let mut reader = LogReader::open(Arc::clone(&storage), STORE, 1).expect("a good log");
    // Where each flush ends, and so which segments begin with a flush.
    let (mut ends, mut count) = (vec![(1, 0, 0)], 0);
    while let Some(flush) = reader.next_flush().expect("a good log") {
        count += records(&[flush]).len();
        let (segment, at) = reader.position();
        ends.push((segment, at, count));
    }
    let mut outcomes = [0; 2];
    for pair in ends.windows(2) {
        let [(before, _, count), (segment, end, _)] = [pair[0], pair[1]];
        if before == segment {
            continue;
        }
        // The log up to this flush, without the head of its segment.
        let bytes = &segments[&segment];
        for (until, good) in [(end as usize, true), (bytes.len(), used(bytes) <= end as usize)] {
            let mut torn = bytes.clone();
            torn[..4096].fill(0);
            torn[until..].fill(0);
            let device =
                device_with(&segments.range(..segment).map(|(&n, b)| (n, b.clone())).collect());
            device.set_raw_segment(segment, torn.clone());
            device.set_raw_segment(segment + 1, vec![0; bytes.len()]);
            let storage: Arc<dyn LogStorage> = device.clone();
            match read(&storage, 1) {
                Ok((flushes, end)) => {
                    assert!(good, "a later flush after the missing head of {segment}");
                    assert_eq!((records(&flushes).len(), end.segment + 1), (count, segment));
                    // When the log goes on there, later blocks are not read.
                    let log = start(&storage, LogStart::after(end));
                    append(&log.appender(), 100, 10);
                    log.close().expect("closed");
                    let (flushes, _) = read(&storage, 1).expect("a good log");
                    assert_eq!(records(&flushes).len(), count + 1);
                }
                Err(_) => assert!(!good, "the flush in segment {segment} is torn, and no damage"),
            }
            outcomes[usize::from(good)] += 1;
            // Any block in a segment after that one is damage.
            device.set_raw_segment(segment, torn);
            device.set_raw_segment(segment + 1, bytes.clone());
            assert!(read(&storage, 1).is_err(), "a segment after {segment} is not empty");
        }
    }
    assert!(outcomes[0] > 0 && outcomes[1] > 0, "{outcomes:?}");
}

/// A log in segments that were made of full ones after a checkpoint: the segments from `FROM` on,
/// the content of each before it was written, and the number of records in them.
fn log_in_used_segments() -> (Segments, Segments, usize) {
    let device = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let storage: Arc<dyn LogStorage> = device.clone();
    let log = start(&storage, LogStart::default());
    let appender = log.appender();
    let newest = || device.segments().expect("segments").last().expect("one").0;
    let mut before = Segments::new();
    let mut id = 0;
    let mut fill_to = |segment: u64, len: usize| {
        while log.segment_of(log.epoch()) < segment {
            id += 1;
            append(&appender, id, len);
            log.flush_now().expect("a flush");
            // Each is recorded when it is made.
            until("the next one is made", || newest() > log.segment_of(log.epoch()));
            for (number, _) in device.segments().expect("segments") {
                let look = || device.raw_segment(number).expect("there");
                before.entry(number).or_insert_with(look);
            }
        }
    };
    fill_to(9, 50_000);
    log.truncate_before(9);
    until("the old ones are retired", || device.segments().expect("segments")[0].0 == 9);
    fill_to(FROM + 2, 3_000);
    let segments = all_from(FROM, &device);
    before.retain(|number, _| *number >= FROM);
    // Segments that were made after the last record have no block of this log yet.
    for (number, bytes) in &segments {
        before.entry(*number).or_insert_with(|| bytes.clone());
    }
    for (number, bytes) in &before {
        assert!(bytes[..4096].iter().all(|byte| *byte == 0), "the head of {number}");
    }
    let storage: Arc<dyn LogStorage> = device_with(&segments);
    let (flushes, _) = read(&storage, FROM).expect("a good log");
    (segments, before, records(&flushes).len())
}

/// Segments from this one on are made of used ones: those after the first ones, which were made
/// beforehand.
const FROM: u64 = 12;

#[test]
fn earlier_content_of_a_segment_is_not_read_and_hides_no_damage() {
    let (segments, before, count) = log_in_used_segments();
    assert!(segments.len() >= 3 && count > 30, "{} segments, {count} records", segments.len());
    let (mut harmless, mut torn, mut reused) = (0, 0, 0);
    for (&number, bytes) in &segments {
        let old = &before[&number];
        let kept = bytes.chunks(SECTOR).zip(old.chunks(SECTOR)).filter(|(new, old)| new == old);
        reused += usize::from(used(old) > 50_000 && kept.count() > 10);
        let device = device_with(&segments);
        let storage: Arc<dyn LogStorage> = device.clone();
        let lost = |changed: Vec<u8>, what: String| {
            device.set_raw_segment(number, changed);
            let found = read(&storage, FROM).map(|(flushes, _)| records(&flushes).len());
            found.ok().map(|found| {
                assert!(found <= count, "segment {number}, {what}: {found} records of {count}");
                count - found
            })
        };
        let places = |at: &usize| at % SECTOR > 503 || at % 4096 < 70 || at.is_multiple_of(211);
        for at in (0..bytes.len()).filter(places) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at / 3 % 8);
            let lost = lost(flipped, format!("byte {at}"));
            assert!(lost.is_none_or(|lost| lost == 0), "{lost:?} lost with byte {at} of {number}");
            harmless += usize::from(lost.is_some());
        }
        // Sectors that did not arrive: the very last flush looks like one that was never synced.
        for at in (4096..bytes.len()).step_by(SECTOR) {
            for len in [SECTOR, 4096] {
                let mut holed = bytes.clone();
                let end = (at + len).min(bytes.len());
                holed[at..end].copy_from_slice(&old[at..end]);
                if holed != *bytes {
                    let lost = lost(holed, format!("hole of {len} at {at}"));
                    assert!(lost.is_none_or(|lost| lost <= 1), "{lost:?} with {at} of {number}");
                    torn += lost.unwrap_or(0);
                }
            }
        }
    }
    assert!(reused > 1, "{reused} segments are made of used ones");
    assert!(harmless > 0 && torn > 0, "{harmless} harmless flips, {torn} times a torn flush");
}

#[test]
fn zeroed_bits_of_nearly_empty_pages_are_found() {
    // Payloads that are zero but for one bit: if they were stored as they are, a flip would make a
    // sector look as if it had never been written.
    let device = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let storage: Arc<dyn LogStorage> = device.clone();
    let log = start(&storage, LogStart::default());
    let mut payload = vec![0; 4096];
    payload[2048] = 1;
    let appender = log.appender();
    let mut section = appender.begin();
    section.start(wattle_wal::Kind::Change, 0, 1, wattle_buffer::Gsn(0));
    section.op(wattle_buffer::PageId(1), wattle_buffer::TreeId(1), 1, &[&payload]);
    section.finish();
    drop(section);
    log.close().expect("closed");
    let bytes = device.raw_segment(1).expect("there");
    for at in 4096..used(&bytes) {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            device.set_raw_segment(1, changed);
            if let Ok((flushes, _)) = read(&storage, 1) {
                assert_eq!(flushes.len(), 1, "byte {at}, bit {bit}");
            }
        }
    }
}

fn forged_sector(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut forged = bytes.to_vec();
    let crc = crc32c::crc32c(&forged);
    forged[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    forged
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn parsing_takes_any_bytes(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        epoch: u64,
        txn: u64,
    ) {
        if let Ok((found, len)) = record::parse(&bytes, record::Base { epoch, txn }) {
            prop_assert!(len <= bytes.len());
            prop_assert_eq!(found.ops().count(), found.op_count());
        }
    }

    #[test]
    fn parsing_takes_damaged_records(
        payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..5),
        undo in prop::collection::vec(any::<u8>(), 0..40),
        at: prop::sample::Index,
        value: u8,
    ) {
        let storage: Arc<dyn LogStorage> = Arc::new(wattle_buffer::io::MemoryLog::default());
        let log = start(&storage, LogStart::default());
        let appender = log.appender();
        let mut section = appender.begin();
        section.start(wattle_wal::Kind::Change, 3, 9, wattle_buffer::Gsn(5));
        for payload in &payloads {
            section.op(wattle_buffer::PageId(1), wattle_buffer::TreeId(2), 3, &[payload]);
        }
        section.undo(&[&undo]);
        let len = section.finish();
        drop(section);
        log.close().expect("closed");
        let (flushes, _) = read(&storage, 1).expect("a good log");
        let (mut bytes, base) = (flushes[0].chunks[0].bytes.clone(), flushes[0].chunks[0].base);
        prop_assert_eq!(bytes.len(), len);
        let (found, _) = record::parse(&bytes, base).expect("a good record");
        prop_assert_eq!(found.undo, &undo[..]);
        let read: Vec<Vec<u8>> = found.ops().map(|op| op.payload.to_vec()).collect();
        prop_assert_eq!(read, payloads);
        let at = at.index(bytes.len());
        bytes[at] = value;
        if let Ok((found, len)) = record::parse(&bytes, base) {
            prop_assert!(len <= bytes.len());
            prop_assert_eq!(found.ops().count(), found.op_count());
        }
        for end in 0..bytes.len() {
            let _ = record::parse(&bytes[..end], base);
        }
    }

    /// Heads with a right checksum and wrong content, which decay does not produce.
    #[test]
    fn forged_heads_give_errors(
        page in 0usize..6,
        at in 0usize..504,
        value: u8,
        garbage in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        static LOG: std::sync::OnceLock<Segments> = std::sync::OnceLock::new();
        let segments = LOG.get_or_init(small_log);
        let mut bytes = segments[&1].clone();
        let start = page * 4096;
        let sector = &mut bytes[start..start + 512];
        sector[at] = value;
        for (byte, garbage) in sector[(at / 2)..504].iter_mut().zip(&garbage) {
            *byte = *garbage;
        }
        if page == 0 {
            sector[8..12].fill(0);
            let forged = forged_sector(sector, 8);
            sector.copy_from_slice(&forged);
        } else {
            seal_block(sector, start);
        }
        let device = device_with(segments);
        device.set_raw_segment(1, bytes);
        let storage: Arc<dyn LogStorage> = device;
        if let Ok(mut reader) = LogReader::open(storage, STORE, 1) {
            while let Ok(Some(_)) = reader.next_flush() {}
        }
    }
}

#[test]
fn numbers_that_would_run_over_are_errors() {
    let device = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let storage: Arc<dyn LogStorage> = device.clone();
    let log = start(&storage, LogStart::default());
    append(&log.appender(), 1, 100);
    log.close().expect("closed");
    let good = device.raw_segment(1).expect("there");
    // Sequence, flush and epoch, in the head and in the first block.
    for (in_head, in_block) in [(40, 24), (48, 32), (56, 40)] {
        for value in [u64::MAX, u64::MAX - 1, 1 << 63] {
            let mut bytes = good.clone();
            bytes[in_head..in_head + 8].copy_from_slice(&value.to_le_bytes());
            bytes[8..12].fill(0);
            let head = forged_sector(&bytes[..SECTOR], 8);
            bytes[..SECTOR].copy_from_slice(&head);
            bytes[4096 + in_block..4096 + in_block + 8].copy_from_slice(&value.to_le_bytes());
            seal_block(&mut bytes[4096..], 4096);
            device.set_raw_segment(1, bytes);
            assert!(read(&storage, 1).is_err(), "{value} at {in_head}");
        }
    }
}

#[test]
fn a_value_is_not_taken_for_a_block_of_a_later_flush() {
    let written = |payload: &[u8]| {
        let device = Arc::new(SimStorage::new(FaultPlan::new(1)));
        let storage: Arc<dyn LogStorage> = device.clone();
        let log = start(&storage, LogStart::default());
        let appender = log.appender();
        append(&appender, 1, 100);
        log.flush_now().expect("a flush");
        let mut section = appender.begin();
        section.start(wattle_wal::Kind::Change, 0, 1, wattle_buffer::Gsn(0));
        section.op(wattle_buffer::PageId(1), wattle_buffer::TreeId(1), 1, &[payload]);
        section.finish();
        drop(section);
        log.close().expect("closed");
        device
    };
    // The second flush is one block of three pages. Its second page begins like the header of a
    // later flush.
    let mut payload = vec![0x55; 10_000];
    let bytes = written(&payload).raw_segment(1).expect("there");
    let begins = bytes[8192..].iter().position(|byte| *byte == 0x55).expect("the payload");
    let place = &mut payload[8 * 504 - begins..];
    for (at, word) in
        [(0, 0x6B62_4C57 | 0xABCD << 32), (8, 3), (16, STORE), (24, 9), (32, 1000), (48, 1)]
    {
        place[at..at + 8].copy_from_slice(&u64::to_le_bytes(word));
    }
    let device = written(&payload);
    let storage: Arc<dyn LogStorage> = device.clone();
    let mut torn = device.raw_segment(1).expect("there");
    assert_eq!(&torn[12_288..12_292], b"WLbk");
    assert_eq!(read(&storage, 1).expect("a good log").0.len(), 2);
    torn[8192 + SECTOR..8192 + 2 * SECTOR].fill(0);
    device.set_raw_segment(1, torn);
    assert_eq!(read(&storage, 1).expect("a torn flush").0.len(), 1);
}

#[test]
fn damage_to_earlier_content_of_a_prepared_segment_loses_nothing() {
    let mut segments = small_log();
    let prepared: Vec<u64> =
        segments.iter().filter(|(_, b)| used(b) == 0).map(|(&n, _)| n).collect();
    assert!(prepared.len() >= 2, "{prepared:?}");
    let last = segments.get_mut(&prepared[prepared.len() - 1]).expect("there");
    last[50_000..50_100].fill(7);
    let device = device_with(&segments);
    assert!(error_or_everything(&device, || "damage after the end".into()));
    // But a block that was written for it proves that its head is lost.
    let (&from, _) = segments.iter().next().expect("one");
    let mut block = segments[&from][4096..8192].to_vec();
    let number = prepared[prepared.len() - 1];
    block[48..56].copy_from_slice(&number.to_le_bytes());
    block[504..508].copy_from_slice(&(number as u32).to_le_bytes());
    seal_block(&mut block, 4096);
    segments.get_mut(&number).expect("there")[4096..8192].copy_from_slice(&block);
    assert!(!error_or_everything(&device_with(&segments), || "a block of its own".into()));
}

#[test]
fn a_log_of_an_unknown_version_is_refused() {
    let segments = small_log();
    let known = OLDEST_VERSION..=FORMAT_VERSION;
    for version in (0..FORMAT_VERSION + 3).chain([u32::MAX]) {
        let mut bytes = segments[&1].clone();
        bytes[12..16].copy_from_slice(&version.to_le_bytes());
        bytes[8..12].fill(0);
        let sector = forged_sector(&bytes[..512], 8);
        bytes[..512].copy_from_slice(&sector);
        let device = device_with(&segments);
        device.set_raw_segment(1, bytes);
        let storage: Arc<dyn LogStorage> = device;
        match read(&storage, 1) {
            Ok(_) => assert!(known.contains(&version), "version {version} was read"),
            Err(Error::WrongVersion { found, expected, .. }) => {
                assert_eq!((found, expected), (version, FORMAT_VERSION));
                assert!(!known.contains(&version), "version {version} was refused");
            }
            Err(error) => panic!("version {version}: {error}"),
        }
    }
}

#[test]
fn every_byte_of_a_tiny_log_may_flip_or_be_the_last() {
    let device = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let storage: Arc<dyn LogStorage> = device.clone();
    let log = start(&storage, LogStart::default());
    let appender = log.appender();
    for id in 1..=4 {
        append(&appender, id, [30, 500, 4000, 0][id as usize - 1]);
        log.flush_now().expect("a flush");
    }
    drop(log);
    let bytes = device.raw_segment(1).expect("there");
    let check = |changed: Vec<u8>, what: String| {
        device.set_raw_segment(1, changed);
        if let Ok((flushes, _)) = read(&storage, 1) {
            assert_eq!(records(&flushes).len(), 4, "{what}");
        }
    };
    for at in 0..bytes.len().min(used(&bytes) + 5000) {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        check(changed, format!("byte {at} flipped"));
        check(bytes[..at].to_vec(), format!("cut at {at}"));
    }
}
