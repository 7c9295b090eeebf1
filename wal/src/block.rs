//! Blocks and heads of segments: how the log lies on the device. `FORMAT.md` has the tables.
//!
//! A block is one sector of header, with a checksum for every sector of payload behind it, so that
//! a reader can tell a sector that never arrived (all zero) from one that was damaged. Payload is
//! stored XORed with [`MASK`]: no payload that occurs is all zero on the device, nor nearly so, and
//! hence no flipped bit makes a written sector look like one that was never written.
//!
//! Written by the flusher, read by [`crate::LogReader`]; both use the functions of this file.

use crate::record::{u16_at, u32_at, u64_at};
use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};
use wattle_buffer::PAGE_SIZE;

/// What a device writes as a whole or not at all.
pub const SECTOR: usize = 512;
/// Places and lengths of blocks are multiples of this.
pub const BLOCK_ALIGN: usize = PAGE_SIZE;
/// Sectors of payload of a block.
pub const MAX_SECTORS: usize = 112;
/// Bytes of payload of a block.
pub const MAX_PAYLOAD: usize = MAX_SECTORS * SECTOR;
/// Largest block on the device.
pub const MAX_BLOCK: usize = (SECTOR + MAX_PAYLOAD).next_multiple_of(BLOCK_ALIGN);
/// Bytes in front of the records of a chunk: worker u32, len u32, epoch u64, transaction u64.
pub const CHUNK_HEADER: usize = 24;
/// Bytes of the head of a segment; blocks begin behind it.
pub const SEGMENT_HEADER: usize = BLOCK_ALIGN;
/// Version of everything in this file and in `record`.
pub const FORMAT_VERSION: u32 = 3;
/// The oldest version that is read as well. Up to `old::LAST_VERSION` they differ in what the layers above
/// write only.
pub const OLDEST_VERSION: u32 = 1;
/// First bytes of a segment.
pub const SEGMENT_MAGIC: [u8; 8] = *b"WATTLElg";
/// First bytes of a block.
pub const BLOCK_MAGIC: [u8; 4] = *b"WLbk";
/// What payload is XORed with, eight bytes at a time, little-endian.
pub const MASK: u64 = 0x9D8B_A6F3_5C71_E24B;

/// Offset of the table of checksums in the header of a block.
pub(crate) const TABLE_AT: usize = 64;
/// Flag of the last block of a flush.
const LAST: u16 = 1;

const _: () = assert!(TABLE_AT + 4 * MAX_SECTORS <= SECTOR);
const _: () = assert!(MAX_BLOCK == 61_440 && crate::record::MAX_RECORD <= u16::MAX as usize);

/// Header of a block, without the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    pub store_id: u64,
    /// Ascending by 1 from block to block.
    pub sequence: u64,
    /// Ascending by 1 from flush to flush.
    pub flush: u64,
    /// All records of the flush have this epoch or a smaller one.
    pub epoch: u64,
    /// Where it lies, so that a block at a wrong place, or in a value, is not taken for one.
    pub segment: u64,
    pub offset: u64,
    pub payload_len: usize,
    /// Whether the flush ends with it.
    pub last: bool,
}

/// Bytes on the device of a block with that much payload.
pub(crate) fn block_bytes(payload_len: usize) -> usize {
    (SECTOR + payload_len).next_multiple_of(BLOCK_ALIGN)
}

impl BlockHeader {
    /// Completes a block: `block` has [`block_bytes`] of it, with the payload in place.
    pub(crate) fn seal(&self, block: &mut [u8]) {
        assert_eq!(block.len(), block_bytes(self.payload_len), "a block has its exact length");
        let (header, rest) = block.split_at_mut(SECTOR);
        let masked = self.payload_len.next_multiple_of(SECTOR);
        rest[self.payload_len..].fill(0);
        header.fill(0);
        for (sector, at) in rest[..masked].chunks_mut(SECTOR).zip((TABLE_AT..).step_by(4)) {
            mask(sector);
            header[at..at + 4].copy_from_slice(&crc32_iscsi(sector).to_le_bytes());
        }
        header[0..4].copy_from_slice(&BLOCK_MAGIC);
        let page = (self.offset / BLOCK_ALIGN as u64) as u32;
        header[8..12].copy_from_slice(&page.to_le_bytes());
        header[12..14].copy_from_slice(&(self.payload_len as u16).to_le_bytes());
        header[14..16].copy_from_slice(&(if self.last { LAST } else { 0 }).to_le_bytes());
        let words = [self.store_id, self.sequence, self.flush, self.epoch, self.segment];
        for (word, at) in words.into_iter().zip((16..).step_by(8)) {
            header[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        seal_crc(header, 4);
    }

    /// The header in a sector; the error says which check failed.
    pub(crate) fn parse(sector: &[u8]) -> Result<BlockHeader, String> {
        if sector[0..4] != BLOCK_MAGIC {
            return Err("no block begins here, and it is not empty".into());
        }
        check_crc(&sector[..SECTOR], 4)?;
        let header = BlockHeader {
            store_id: u64_at(sector, 16),
            sequence: u64_at(sector, 24),
            flush: u64_at(sector, 32),
            epoch: u64_at(sector, 40),
            segment: u64_at(sector, 48),
            offset: u64::from(u32_at(sector, 8)) * BLOCK_ALIGN as u64,
            payload_len: usize::from(u16_at(sector, 12)),
            last: u16_at(sector, 14) & LAST != 0,
        };
        if header.payload_len > MAX_PAYLOAD {
            return Err(format!("{} bytes of payload in a block", header.payload_len));
        }
        Ok(header)
    }
}

/// What became of the payload of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    /// All of it arrived; it is unmasked now.
    Whole,
    /// Sectors were never written.
    Torn,
    /// This sector is neither what was written nor empty.
    Damaged(usize),
}

/// Checks the payload sectors of `block` against its header and unmasks them.
pub(crate) fn open_payload(block: &mut [u8], payload_len: usize) -> Payload {
    let (header, rest) = block.split_at_mut(SECTOR);
    let sectors = &mut rest[..payload_len.next_multiple_of(SECTOR)];
    let mut found = Payload::Whole;
    for (index, sector) in sectors.chunks_mut(SECTOR).enumerate() {
        if crc32_iscsi(sector) == u32_at(header, TABLE_AT + 4 * index) {
            mask(sector);
        } else if is_zero(sector) {
            found = Payload::Torn;
        } else {
            return Payload::Damaged(index);
        }
    }
    found
}

/// Head of a segment: how the log goes on in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// Version of the format of everything in the segment.
    pub version: u32,
    pub store_id: u64,
    pub segment: u64,
    pub bytes: u64,
    /// Sequence of its first block.
    pub sequence: u64,
    /// Flush that its first block belongs to.
    pub flush: u64,
    /// All records in earlier segments have this epoch or a smaller one.
    pub epoch_before: u64,
    /// Whether that flush began in the segment before.
    pub continues: bool,
}

impl SegmentHeader {
    /// Bytes of the first sector.
    pub(crate) fn seal(&self, sector: &mut [u8]) {
        sector.fill(0);
        sector[0..8].copy_from_slice(&SEGMENT_MAGIC);
        sector[12..16].copy_from_slice(&self.version.to_le_bytes());
        let words = [
            self.store_id,
            self.segment,
            self.bytes,
            self.sequence,
            self.flush,
            self.epoch_before,
            u64::from(self.continues),
        ];
        for (word, at) in words.into_iter().zip((16..).step_by(8)) {
            sector[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        seal_crc(&mut sector[..SECTOR], 8);
    }

    /// The header in a sector, of any version; the error says which check failed.
    pub(crate) fn parse(sector: &[u8]) -> Result<SegmentHeader, String> {
        if sector[0..8] != SEGMENT_MAGIC {
            return Err("the segment does not begin like one".into());
        }
        check_crc(&sector[..SECTOR], 8)?;
        Ok(SegmentHeader {
            version: u32_at(sector, 12),
            store_id: u64_at(sector, 16),
            segment: u64_at(sector, 24),
            bytes: u64_at(sector, 32),
            sequence: u64_at(sector, 40),
            flush: u64_at(sector, 48),
            epoch_before: u64_at(sector, 56),
            continues: u64_at(sector, 64) != 0,
        })
    }
}

/// Whether nothing was ever written here.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|word| *word == [0; 16]) && rest.iter().all(|byte| *byte == 0)
}

fn mask(sector: &mut [u8]) {
    for word in sector.as_chunks_mut::<8>().0 {
        *word = (u64::from_le_bytes(*word) ^ MASK).to_le_bytes();
    }
}

/// Stores the checksum of a sector at `at`, where it counts as zero.
fn seal_crc(sector: &mut [u8], at: usize) {
    sector[at..at + 4].fill(0);
    let crc = crc32_iscsi(sector);
    sector[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

fn check_crc(sector: &[u8], at: usize) -> Result<(), String> {
    let stored = u32_at(sector, at);
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for part in [&sector[..at], &[0; 4], &sector[at + 4..]] {
        digest.update(part);
    }
    let crc = digest.finalize() as u32;
    if crc == stored {
        return Ok(());
    }
    Err(format!("the checksum of the header is {stored:#010x}, its bytes give {crc:#010x}"))
}
