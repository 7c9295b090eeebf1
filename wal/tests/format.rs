//! The numbers of `FORMAT.md` are those of the code, and the bytes lie where it says.

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
    let says = |sentence: String| assert!(PAGE.contains(&sentence), "FORMAT.md lacks: {sentence}");
    says(format!("# Format of the log, version {}", format::FORMAT_VERSION));
    says(format!("format version, {}", format::FORMAT_VERSION));
    says(format!("Version {} is read as well", format::OLDEST_VERSION));
    says(format!(
        "Segments have {} to {} bytes, a multiple\nof {}; the default is {}.",
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
        "0 to {} sectors of payload ({} bytes), then zeroes\nup to a multiple of {}, at most {} bytes",
        format::MAX_SECTORS,
        format::MAX_PAYLOAD,
        format::BLOCK_ALIGN,
        format::MAX_BLOCK
    ));
    says(format!("the eight bytes of {:#X}", format::MASK).replace("0X", "0x"));
    says(format!("worker u32, length u32 ({} bytes)", format::CHUNK_HEADER));
    says(format!("{} bytes, then the operations", format::RECORD_HEADER));
    says(format!("At most {} bytes.", format::MAX_RECORD));
    says(format!("Operation: {} bytes", format::OP_HEADER));
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
    section.op(PageId(11), TreeId(12), 13, &[b"payload"]);
    section.undo(&[b"undo"]);
    let len = section.finish();
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
    assert_eq!(u32_at(block + 4), crc_without(block..block + 512, 4));
    assert_eq!((u32_at(block + 8), u16_at(block + 12), u16_at(block + 14)), (1, 8 + len as u16, 1));
    let words: Vec<u64> = (block + 16..block + 64).step_by(8).map(u64_at).collect();
    assert_eq!(words, [STORE, 40, 20, 9, 3, 0]);
    assert_eq!(u32_at(block + 64), crc32c::crc32c(&bytes[block + 512..block + 1024]));
    assert_eq!(u32_at(block + 68), 0);

    let mask = format::MASK.to_le_bytes();
    let plain = bytes[block + 512..block + 1024].iter().zip(mask.iter().cycle());
    let plain: Vec<u8> = plain.map(|(byte, mask)| byte ^ mask).collect();
    let mut expected = Vec::new();
    expected.extend_from_slice(&appender.worker().to_le_bytes());
    expected.extend_from_slice(&(len as u32).to_le_bytes());
    expected.extend_from_slice(&(len as u16).to_le_bytes());
    expected.extend_from_slice(&4u16.to_le_bytes());
    expected.extend_from_slice(&[1, 5, 1, 0]);
    expected.extend_from_slice(&77u64.to_le_bytes());
    expected.extend_from_slice(&gsn.0.to_le_bytes());
    expected.extend_from_slice(&11u64.to_le_bytes());
    expected.extend_from_slice(&12u32.to_le_bytes());
    expected.extend_from_slice(&(13u32 | 7 << 8).to_le_bytes());
    expected.extend_from_slice(b"payloadundo");
    assert_eq!(plain[..expected.len()], expected);
    assert!(plain[expected.len()..].iter().all(|byte| *byte == 0));
    assert_eq!(gsn, Gsn((9 << 20) + 1));
}
