//! The numbers of `FORMAT.md` are those of the code, and the bytes are where it says.

mod common;

use common::*;
use std::sync::Arc;
use wattle_buffer::{
    Gsn, PageId, TreeId,
    io::{FaultPlan, LogStorage, SimStorage},
};
use wattle_wal::{Kind, LogOptions, LogStart, format};

const PAGE: &str = include_str!("../FORMAT.md");

#[test]
fn the_page_names_the_constants() {
    // Lines of the page may be broken anywhere.
    let page = PAGE.split_whitespace().collect::<Vec<_>>().join(" ");
    let says = |sentence: String| assert!(page.contains(&sentence), "FORMAT.md lacks: {sentence}");
    says(format!("# Format of the log, version {}", format::FORMAT_VERSION));
    says(format!("format version, {}", format::FORMAT_VERSION));
    says(format!(
        "Segments have {} to {} bytes, a multiple of {}; the default is {}.",
        format::MIN_SEGMENT_BYTES,
        format::MAX_SEGMENT_BYTES,
        format::BLOCK_ALIGN,
        LogOptions::default().segment_bytes
    ));
    says(format!(
        "The first {} bytes. The first sector of {}",
        format::SEGMENT_HEADER,
        format::SECTOR
    ));
    says(format!("magic `{}`", str::from_utf8(&format::SEGMENT_MAGIC).expect("letters")));
    says(format!("magic `{}`", str::from_utf8(&format::BLOCK_MAGIC).expect("letters")));
    says(format!(
        "A block has up to {} sectors, {} bytes. It is a header of {} bytes and then 0 to {} bytes \
         of payload",
        format::MAX_SECTORS,
        format::MAX_BLOCK,
        format::BLOCK_HEADER,
        format::MAX_PAYLOAD
    ));
    says(format!("{} bytes in each", format::SECTOR - format::TRAILER));
    says(format!("times {:#X}, modulo 2^64", format::SALT).replace("0X", "0x"));
    says(format!("The head has {} bytes:", format::CHUNK_HEADER));
    let (short, long) = (format::RECORD_HEADER, format::LONG_RECORD_HEADER);
    says(format!("{short} bytes, or {long} in the long form, then the operations"));
    says(format!("At most {} bytes.", format::MAX_RECORD));
    let (short, long) = (format::OP_HEADER, format::LONG_OP_HEADER);
    says(format!("Operation: {short} bytes, or {long} in the long form"));
    let counter = wattle_wal::GSN_COUNTER_BITS;
    says(format!("epoch in the upper {} bits, counter in the lower {counter}", 64 - counter));
    let kinds = [Kind::Change, Kind::Commit, Kind::End, Kind::Note].map(|kind| kind as u8);
    assert_eq!(kinds, [1, 2, 3, 4]);
    says("kind: 1 change, 2 commit, 3 end of a rollback, 4 note".into());
    assert_eq!(wattle_wal::AUTO, 1);
}

#[test]
fn the_bytes_lie_where_the_page_says() {
    let device = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let storage: Arc<dyn LogStorage> = device.clone();
    let begin = LogStart { segment: 3, sequence: 40, flush: 20, epoch: 9, ..LogStart::default() };
    let log = start(&storage, begin);
    let appender = log.appender();
    let mut section = appender.begin();
    let gsn = section.start(Kind::Change, 5, 77, Gsn(0));
    section.op(PageId(300), TreeId(12), 13, &[b"payload"]);
    section.undo(&[b"undo"]);
    let len = section.finish();
    // No transaction, the one below the first, and a flag that is added later.
    section.start(Kind::Note, 0, 0, Gsn((9 << 20) + 200));
    section.add_flags(2);
    let rest = section.finish();
    section.start(Kind::Commit, 0, 76, Gsn(0));
    let rest = rest + section.finish();
    let far = section.start(Kind::Change, 0, 1 << 40, Gsn(0));
    section.op(PageId(1 << 32), TreeId(9), 14, &[b"payload"]);
    let rest = rest + section.finish();
    drop(section);
    log.close().expect("closed");

    let bytes = device.raw_segment(3).expect("there");
    let u16_at = |at: usize| u16::from_le_bytes(bytes[at..at + 2].try_into().expect("2"));
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4"));
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8"));
    let crc_without = |range: std::ops::Range<usize>, at: usize| {
        let mut sector = bytes[range].to_vec();
        sector[at..at + 4].fill(0);
        crc32c::crc32c(&sector)
    };
    assert_eq!(&bytes[..8], b"WATTLElg");
    assert_eq!((u32_at(8), u32_at(12)), (crc_without(0..512, 8), format::FORMAT_VERSION));
    let head: Vec<u64> = (16..72).step_by(8).map(u64_at).collect();
    assert_eq!(head, [STORE, 3, 131072, 40, 20, 8, 0]);

    let block = 4096;
    assert_eq!(&bytes[block..block + 4], b"WLbk");
    assert_eq!(u32_at(block + 4), crc32c::crc32c(&[]), "it is the only sector of the block");
    assert_eq!(
        (u32_at(block + 8), u16_at(block + 12), u16_at(block + 14)),
        (1, (24 + len + rest) as u16, 1)
    );
    let words: Vec<u64> = (block + 16..block + 64).step_by(8).map(u64_at).collect();
    assert_eq!(words, [STORE, 40, 20, 9, 3, 0]);
    let checksum = |at: usize| crc32c::crc32c(&bytes[at..at + 508]) ^ salt(at);
    assert_eq!((u32_at(block + 504), u32_at(block + 508)), (3, checksum(block)));
    assert!(bytes[block + 512..].iter().all(|byte| *byte == 0));

    let plain = &bytes[block + 64..block + 504];
    let mut expected = Vec::new();
    expected.extend_from_slice(&appender.worker().to_le_bytes());
    expected.extend_from_slice(&((len + rest) as u32).to_le_bytes());
    expected.extend_from_slice(&9u64.to_le_bytes());
    expected.extend_from_slice(&77u64.to_le_bytes());
    // Length, kind with flags, operations; GSN above its epoch, transaction.
    expected.extend_from_slice(&[len as u8, 0, 0x51, 1, 1, 0, 0, 0]);
    // Code, length, tree, page.
    let (code, payload_len, tree, page) = (13, 7, 12, 300);
    let word: u64 = code | payload_len << 8 | tree << 20 | page << 32;
    expected.extend_from_slice(&word.to_le_bytes());
    expected.extend_from_slice(b"payloadundo");
    expected.extend_from_slice(&[8, 0, 0x24, 0, 201, 0, 0, 0x80]);
    expected.extend_from_slice(&[8, 0, 0x02, 0, 202, 0, 0xFC, 0xFF]);
    // The long forms.
    expected.extend_from_slice(&[55, 0, 0x09, 1, 0, 0, 0, 0]);
    expected.extend_from_slice(&[&(1u64 << 40).to_le_bytes()[..], &far.0.to_le_bytes()].concat());
    expected.extend_from_slice(&[14, 0xFF, 0x0F, 0, 0, 0, 0, 0]);
    expected.extend_from_slice(&(1u64 << 32).to_le_bytes());
    expected.extend_from_slice(&[9, 0, 0, 0, 7, 0, 0, 0]);
    expected.extend_from_slice(b"payload");
    assert_eq!(plain[..expected.len()], expected);
    assert!(plain[expected.len()..].iter().all(|byte| *byte == 0));
    assert_eq!(gsn, Gsn((9 << 20) + 1));
}
