//! Helpers of the tests of the log: small logs, numbered records, and reading them back.
#![allow(dead_code)]

use std::{
    cell::RefCell,
    collections::HashMap,
    rc::Rc,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use wattle_buffer::{Gsn, PageId, Result, TreeId, io::LogStorage};
use wattle_wal::{
    AUTO, Appender, Flush, Kind, Log, LogEnd, LogOptions, LogReader, LogStart, format,
};

/// Number of the store in all tests.
pub const STORE: u64 = 0xABCD;

/// The checksum of the first sector of a block, at that byte of a segment, is XORed with this.
pub fn salt(offset: usize) -> u32 {
    ((STORE ^ offset as u64 ^ 1).wrapping_mul(format::SALT) >> 32) as u32
}

/// Gives the first sector of a block, at that byte of a segment, a right checksum.
pub fn seal_block(sector: &mut [u8], offset: usize) {
    let crc = crc32c::crc32c(&sector[..508]) ^ salt(offset);
    sector[508..512].copy_from_slice(&crc.to_le_bytes());
}

/// Factor for the rounds of the tests with seeds (`WATTLE_ROUNDS`).
pub fn rounds() -> u64 {
    std::env::var("WATTLE_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// A numbered record that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub id: u64,
    pub worker: u32,
    pub gsn: Gsn,
    pub page: PageId,
    pub bytes: Vec<u8>,
}

/// The smallest segments.
pub fn small() -> LogOptions {
    LogOptions { segment_bytes: 128 << 10, ..LogOptions::default() }
}

/// A new log of the test's store.
pub fn store() -> LogStart {
    LogStart { store_id: STORE, ..LogStart::default() }
}

/// A small log.
pub fn start(storage: &Arc<dyn LogStorage>, start: LogStart) -> Arc<Log> {
    let start = LogStart { store_id: STORE, ..start };
    Log::start(Arc::clone(storage), small(), start, Box::new(|| 0)).expect("a log")
}

thread_local! {
    /// Contents that were made already: a log is read thousands of times.
    static CONTENTS: RefCell<Contents> = RefCell::default();
}

/// Contents of records by number and length.
type Contents = HashMap<(u64, usize), Rc<[u8]>>;

/// Content of the record `id`. No other record has it.
pub fn contents(id: u64, len: usize) -> Rc<[u8]> {
    let made = CONTENTS.with_borrow(|known| known.get(&(id, len)).cloned());
    made.unwrap_or_else(|| {
        let made: Rc<[u8]> = make_contents(id, len).into();
        CONTENTS.with_borrow_mut(|known| known.insert((id, len), Rc::clone(&made)));
        made
    })
}

fn make_contents(id: u64, len: usize) -> Vec<u8> {
    let mut state = id.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(len);
    for _ in 0..len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // A third of the bytes is zero, as in real pages.
        bytes.push(if state.is_multiple_of(3) { 0 } else { (state >> 24) as u8 });
    }
    bytes
}

/// Appends the record `id`, a change of one page with `len` bytes.
pub fn append(appender: &Appender, id: u64, len: usize) -> Gsn {
    append_to(appender, id, len, PageId(id), Gsn(0))
}

/// The same for a page that was last changed with `gsn`.
pub fn append_to(appender: &Appender, id: u64, len: usize, page: PageId, gsn: Gsn) -> Gsn {
    let mut section = appender.begin();
    let gsn = section.start(Kind::Change, AUTO, id, gsn);
    section.op(page, TreeId(1), 1, &[&contents(id, len)]);
    section.finish();
    gsn
}

/// Waits for an action of another thread.
pub fn until(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(20), "never: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// All flushes of a log, and where it ends.
pub fn read(storage: &Arc<dyn LogStorage>, from: u64) -> Result<(Vec<Flush>, LogEnd)> {
    let mut reader = LogReader::open(Arc::clone(storage), STORE, from)?;
    let mut flushes = Vec::new();
    while let Some(flush) = reader.next_flush()? {
        flushes.push(flush);
    }
    Ok((flushes, reader.end()?))
}

/// The numbered records of flushes; their contents are checked.
pub fn records(flushes: &[Flush]) -> Vec<Found> {
    let mut found = Vec::new();
    for chunk in flushes.iter().flat_map(|flush| &flush.chunks) {
        for record in chunk.records() {
            let record = record.expect("whole records");
            let op = record.ops().next().expect("an operation");
            assert_eq!(
                op.payload,
                &*contents(record.txn, op.payload.len()),
                "record {}",
                record.txn
            );
            found.push(Found {
                id: record.txn,
                worker: chunk.worker,
                gsn: record.gsn,
                page: op.page,
                bytes: op.payload.to_vec(),
            });
        }
    }
    found
}
