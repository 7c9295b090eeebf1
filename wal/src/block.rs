//! The layout of the log on the device: blocks and heads of segments. `FORMAT.md` has the tables.
//!
//! A block is a header and its payload, laid out over sectors. Each sector ends with a *trailer*:
//! the segment that it was written for, and a checksum. So a reader can decide from one sector
//! whether it was written at its place, never arrived, or was damaged. A sector that never arrived
//! is zero, or has the content that the file had as an earlier segment of the same log, because a
//! segment is made of an old one without overwriting its blocks.
//!
//! The flusher writes blocks and [`crate::LogReader`] reads them, with the functions of this file.

use crate::record::{u16_at, u32_at, u64_at};
use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};
use std::iter;
use wattle_buffer::PAGE_SIZE;

/// A device writes so many bytes as a whole or not at all.
pub const SECTOR: usize = 512;
/// Bytes at the end of each sector of a block: segment u32, checksum u32.
pub const TRAILER: usize = 8;
/// Places and lengths of blocks are multiples of this.
pub const BLOCK_ALIGN: usize = PAGE_SIZE;
/// Most sectors of a block.
pub const MAX_SECTORS: usize = 120;
/// Bytes of the header of a block; the payload follows.
pub const BLOCK_HEADER: usize = 64;
/// Bytes of payload of a block.
pub const MAX_PAYLOAD: usize = payload_room(MAX_SECTORS);
/// Largest block on the device.
pub const MAX_BLOCK: usize = MAX_SECTORS * SECTOR;
/// Bytes in front of the records of a chunk: worker u32, len u32, epoch u64, transaction u64.
pub const CHUNK_HEADER: usize = 24;
/// Bytes of the head of a segment; blocks follow.
pub const SEGMENT_HEADER: usize = BLOCK_ALIGN;
/// Version of the formats in this file and in `record`, and of the codes of the layers above.
pub const FORMAT_VERSION: u32 = 2;
/// The oldest version that is read.
pub const OLDEST_VERSION: u32 = 1;
/// First bytes of a segment.
pub const SEGMENT_MAGIC: [u8; 8] = *b"WATTLElg";
/// First bytes of a block.
pub const BLOCK_MAGIC: [u8; 4] = *b"WLbk";
/// Multiplier that makes a salt of the place of a sector, see [`SectorOrigin::salt`].
pub const SALT: u64 = 0x9E37_79B9_7F4A_7C15;

/// Bytes of a sector in front of its trailer.
const BODY: usize = SECTOR - TRAILER;
/// A segment number of 32 bits is an earlier one if it is at most so far back.
const AGES_AGO: u32 = u32::MAX / 2;
/// Flag of the last block of a flush.
const LAST: u16 = 1;

const _: () = assert!(MAX_BLOCK.is_multiple_of(BLOCK_ALIGN));
const _: () = assert!(MAX_PAYLOAD <= u16::MAX as usize);
const _: () = assert!(crate::record::MAX_RECORD + CHUNK_HEADER <= MAX_PAYLOAD);

/// Header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    pub store_id: u64,
    /// Ascending by 1 from block to block.
    pub sequence: u64,
    /// Ascending by 1 from flush to flush.
    pub flush: u64,
    /// All records of the flush have this epoch or a smaller one.
    pub epoch: u64,
    /// Its place, so that a block at a wrong place, or inside of a value, is not taken for one.
    pub segment: u64,
    pub offset: u64,
    pub payload_len: usize,
    /// Whether the flush ends with it.
    pub last: bool,
}

/// Bytes of payload that so many sectors have room for, at least one.
pub(crate) const fn payload_room(sectors: usize) -> usize {
    sectors * BODY - BLOCK_HEADER
}

/// Sectors of a block with that much payload.
fn sectors(payload_len: usize) -> usize {
    (BLOCK_HEADER + payload_len).div_ceil(BODY)
}

/// Bytes on the device of a block with that much payload.
pub(crate) fn block_bytes(payload_len: usize) -> usize {
    (sectors(payload_len) * SECTOR).next_multiple_of(BLOCK_ALIGN)
}

/// Puts payload into a block, from byte `at` of the payload on.
pub(crate) fn put(block: &mut [u8], at: usize, bytes: &[u8]) {
    let at = BLOCK_HEADER + at;
    let (first, skip) = (at / BODY, at % BODY);
    let (front, rest) = bytes.split_at(bytes.len().min(BODY - skip));
    let mut sectors = block[first * SECTOR..].chunks_mut(SECTOR);
    if let Some(sector) = sectors.next() {
        sector[skip..skip + front.len()].copy_from_slice(front);
    }
    for (sector, piece) in sectors.zip(rest.chunks(BODY)) {
        sector[..piece.len()].copy_from_slice(piece);
    }
}

/// The state of a sector of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SectorState {
    /// It was written there for this segment.
    Written,
    /// It was not written for this segment: zeroes, or the content of an earlier segment.
    Unwritten,
    /// Neither.
    Damaged,
}

/// The place of a sector in its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SectorPlace {
    /// The one with the header.
    First,
    /// Another one.
    Other,
}

/// The segment that sectors belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SectorOrigin {
    pub store_id: u64,
    pub segment: u64,
}

impl SectorOrigin {
    /// The checksum of the sector at that byte of the segment is XORed with this: so a sector at
    /// another place, or of another store, has a wrong checksum, and payload is not taken for a
    /// header.
    fn salt(self, offset: u64, which: SectorPlace) -> u32 {
        let first = u64::from(which == SectorPlace::First);
        ((self.store_id ^ offset ^ first).wrapping_mul(SALT) >> 32) as u32
    }

    /// Completes a sector whose other bytes are in place.
    fn seal(self, sector: &mut [u8], offset: u64, which: SectorPlace) {
        sector[BODY..BODY + 4].copy_from_slice(&(self.segment as u32).to_le_bytes());
        let crc = crc32_iscsi(&sector[..SECTOR - 4]) ^ self.salt(offset, which);
        sector[SECTOR - 4..].copy_from_slice(&crc.to_le_bytes());
    }

    /// If the checksum of the sector at that byte is right: its place in its block, and how many
    /// segments before this one it was written for. A sector of an earlier segment is where that
    /// segment had its blocks.
    fn found(self, sector: &[u8], offset: u64) -> Option<(SectorPlace, u32)> {
        let salt = crc32_iscsi(&sector[..SECTOR - 4]) ^ u32_at(sector, SECTOR - 4);
        let which = [SectorPlace::First, SectorPlace::Other];
        let which = which.into_iter().find(|which| salt == self.salt(offset, *which))?;
        Some((which, (self.segment as u32).wrapping_sub(u32_at(sector, BODY))))
    }

    /// The state of the sector at that byte of the segment, where `expected` is its place in its
    /// block.
    pub(crate) fn look(self, sector: &[u8], offset: u64, expected: SectorPlace) -> SectorState {
        match self.found(sector, offset) {
            Some((which, 0)) if which == expected => SectorState::Written,
            // A later segment never had this file before.
            Some((_, 1..=AGES_AGO)) => SectorState::Unwritten,
            None if is_zero(sector) => SectorState::Unwritten,
            _ => SectorState::Damaged,
        }
    }

    /// Whether the sector at that byte was written for this segment, at any place of its block.
    pub(crate) fn is_written(self, sector: &[u8], offset: u64) -> bool {
        matches!(self.found(sector, offset), Some((_, 0)))
    }
}

/// Zeroes the sectors of a segment, `bytes` from `offset` on, that have the content of an earlier
/// segment. A copy of a log then has only what belongs to the log. Offset and length are multiples
/// of [`SECTOR`].
pub fn blank(store_id: u64, segment: u64, offset: u64, bytes: &mut [u8]) {
    let origin = SectorOrigin { store_id, segment };
    for (sector, at) in bytes.chunks_exact_mut(SECTOR).zip((offset..).step_by(SECTOR)) {
        // The head of the segment has no trailer.
        if at >= SEGMENT_HEADER as u64
            && !is_zero(sector)
            && origin.look(sector, at, SectorPlace::Other) == SectorState::Unwritten
        {
            sector.fill(0);
        }
    }
}

impl BlockHeader {
    fn origin(&self) -> SectorOrigin {
        SectorOrigin { store_id: self.store_id, segment: self.segment }
    }

    /// Completes a block: `block` has [`block_bytes`] of it, with the payload in place ([`put`]).
    pub(crate) fn seal(&self, block: &mut [u8]) {
        assert_eq!(block.len(), block_bytes(self.payload_len), "a block has its exact length");
        let (used, origin) = (sectors(self.payload_len), self.origin());
        let (written, rest) = block.split_at_mut(used * SECTOR);
        // If the last sector is full, this range is empty.
        let end = (BLOCK_HEADER + self.payload_len - 1) % BODY + 1;
        written[(used - 1) * SECTOR + end..used * SECTOR - TRAILER].fill(0);
        rest.fill(0);
        let (first, others) = written.split_at_mut(SECTOR);
        for (sector, at) in others.chunks_mut(SECTOR).zip((self.offset..).step_by(SECTOR).skip(1)) {
            origin.seal(sector, at, SectorPlace::Other);
        }
        first[0..4].copy_from_slice(&BLOCK_MAGIC);
        first[4..8].copy_from_slice(&checksum_of_all(others).to_le_bytes());
        let page = (self.offset / BLOCK_ALIGN as u64) as u32;
        first[8..12].copy_from_slice(&page.to_le_bytes());
        first[12..14].copy_from_slice(&(self.payload_len as u16).to_le_bytes());
        first[14..16].copy_from_slice(&(if self.last { LAST } else { 0 }).to_le_bytes());
        let words = [self.store_id, self.sequence, self.flush, self.epoch, self.segment, 0];
        for (word, at) in words.into_iter().zip((16..).step_by(8)) {
            first[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        origin.seal(first, self.offset, SectorPlace::First);
    }

    /// The header in a sector that was written. The error is a sentence.
    pub(crate) fn parse(sector: &[u8]) -> Result<BlockHeader, String> {
        if sector[0..4] != BLOCK_MAGIC {
            return Err("no block begins here, and it is not empty".into());
        }
        let payload_len = usize::from(u16_at(sector, 12));
        if payload_len > MAX_PAYLOAD {
            return Err(format!("{payload_len} bytes of payload in a block"));
        }
        Ok(BlockHeader {
            store_id: u64_at(sector, 16),
            sequence: u64_at(sector, 24),
            flush: u64_at(sector, 32),
            epoch: u64_at(sector, 40),
            segment: u64_at(sector, 48),
            offset: u64::from(u32_at(sector, 8)) * BLOCK_ALIGN as u64,
            payload_len,
            last: u16_at(sector, 14) & LAST != 0,
        })
    }

    /// The payload of `block`, whose first sector the header is from.
    pub(crate) fn payload(&self, block: &[u8]) -> BlockPayload {
        let (used, origin) = (sectors(self.payload_len), self.origin());
        let written = block[..used * SECTOR].chunks(SECTOR);
        let mut torn = false;
        for (index, sector) in written.clone().enumerate().skip(1) {
            match origin.look(sector, self.offset + (index * SECTOR) as u64, SectorPlace::Other) {
                SectorState::Written => {}
                SectorState::Unwritten => torn = true,
                SectorState::Damaged => return BlockPayload::Damaged(index),
            }
        }
        if torn {
            return BlockPayload::Torn;
        }
        if checksum_of_all(&block[SECTOR..used * SECTOR]) != u32_at(block, 4) {
            return BlockPayload::Damaged(0);
        }
        let mut payload = Vec::with_capacity(used * BODY);
        for (sector, start) in written.zip([BLOCK_HEADER].into_iter().chain(iter::repeat(0))) {
            payload.extend_from_slice(&sector[start..BODY]);
        }
        payload.truncate(self.payload_len);
        BlockPayload::Whole(payload)
    }
}

/// The checksum of the checksums of the sectors of one block: they belong together.
fn checksum_of_all(sectors: &[u8]) -> u32 {
    let mut all = [0; 4 * MAX_SECTORS];
    let count = sectors.len() / SECTOR;
    for (crc, sector) in all.chunks_mut(4).zip(sectors.chunks(SECTOR)) {
        crc.copy_from_slice(&sector[SECTOR - 4..]);
    }
    crc32_iscsi(&all[..4 * count])
}

/// The payload of a block that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BlockPayload {
    /// All of it arrived.
    Whole(Vec<u8>),
    /// Some sectors were never written.
    Torn,
    /// This sector of the block is neither as it was written nor as it was before that.
    Damaged(usize),
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

    /// The header in a sector, of any version. The error is a sentence.
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

/// Whether all bytes are zero.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|word| *word == [0; 16]) && rest.iter().all(|byte| *byte == 0)
}

/// Stores the checksum of a sector at `at`; those four bytes count as zero.
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

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGIN: SectorOrigin = SectorOrigin { store_id: 77, segment: (1 << 32) + 5 };
    const OFFSET: u64 = 12 << 12;

    /// A block with that payload, put into it in pieces.
    fn block(payload: &[u8], piece: usize) -> Vec<u8> {
        // The bytes before.
        let mut block = vec![0xAA; block_bytes(payload.len())];
        for (part, at) in payload.chunks(piece).zip((0..).step_by(piece)) {
            put(&mut block, at, part);
        }
        let header = BlockHeader {
            store_id: ORIGIN.store_id,
            sequence: 3,
            flush: 2,
            epoch: 1,
            segment: ORIGIN.segment,
            offset: OFFSET,
            payload_len: payload.len(),
            last: true,
        };
        header.seal(&mut block);
        assert_eq!(ORIGIN.look(&block[..SECTOR], OFFSET, SectorPlace::First), SectorState::Written);
        assert_eq!(BlockHeader::parse(&block), Ok(header));
        block
    }

    fn payload(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    fn open(block: &[u8]) -> BlockPayload {
        BlockHeader::parse(block).expect("a header").payload(block)
    }

    #[test]
    fn payload_comes_back_whatever_its_length_and_the_pieces() {
        let around = |len: usize| len.saturating_sub(2)..(len + 3).min(MAX_PAYLOAD + 1);
        let lengths = (0..=16).map(payload_room_or_0).chain([MAX_PAYLOAD]).flat_map(around);
        for len in lengths {
            let payload = payload(len);
            for piece in [1 + len / 3, 504, 24] {
                let block = block(&payload, piece);
                assert!(block.len().is_multiple_of(BLOCK_ALIGN) && block.len() <= MAX_BLOCK);
                assert!(open(&block) == BlockPayload::Whole(payload.clone()), "{len} bytes");
                let rest = &block[sectors(len) * SECTOR..];
                assert!(rest.len() < BLOCK_ALIGN && is_zero(rest));
            }
        }
    }

    fn payload_room_or_0(sectors: usize) -> usize {
        if sectors == 0 { 0 } else { payload_room(sectors) }
    }

    #[test]
    fn each_sector_tells_whether_it_was_written_for_this_segment() {
        let payload = payload(3000);
        let good = block(&payload, 3000);
        let used = sectors(payload.len());
        for (index, at) in (0..used).zip((OFFSET..).step_by(SECTOR)) {
            let range = index * SECTOR..(index + 1) * SECTOR;
            let sector = &good[range.clone()];
            let (which, other) = match index {
                0 => (SectorPlace::First, SectorPlace::Other),
                _ => (SectorPlace::Other, SectorPlace::First),
            };
            assert_eq!(ORIGIN.look(sector, at, which), SectorState::Written);
            assert_eq!(ORIGIN.look(sector, at, other), SectorState::Damaged);
            assert_eq!(ORIGIN.look(&[0; SECTOR], at, which), SectorState::Unwritten);
            assert!(ORIGIN.is_written(sector, at) && !ORIGIN.is_written(&[0; SECTOR], at));
            // A copy of the log keeps it, and zeroes the sectors of an earlier segment.
            let mut copy = sector.to_vec();
            blank(ORIGIN.store_id, ORIGIN.segment, at, &mut copy);
            assert!(copy == sector);
            blank(ORIGIN.store_id, ORIGIN.segment + 9, at, &mut copy);
            assert!(is_zero(&copy));
            // For the segments before and after, for another store, and at another place.
            let state_for = |origin: SectorOrigin, at| {
                let [found, again] = [which, other].map(|which| origin.look(sector, at, which));
                assert_eq!(found, again);
                found
            };
            for (ago, found) in [(1, SectorState::Unwritten), (u64::MAX, SectorState::Damaged)] {
                let segment = ORIGIN.segment.wrapping_add(ago);
                assert_eq!(state_for(SectorOrigin { segment, ..ORIGIN }, at), found);
            }
            assert_eq!(
                state_for(SectorOrigin { store_id: 78, ..ORIGIN }, at),
                SectorState::Damaged
            );
            assert_eq!(state_for(ORIGIN, at + SECTOR as u64), SectorState::Damaged);
            for bit in 0..SECTOR * 8 {
                let mut flipped = sector.to_vec();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(ORIGIN.look(&flipped, at, which), SectorState::Damaged, "bit {bit}");
            }
            if index > 0 {
                let mut torn = good.clone();
                torn[range.clone()].fill(0);
                assert_eq!(open(&torn), BlockPayload::Torn);
                torn[range].fill(1);
                assert_eq!(open(&torn), BlockPayload::Damaged(index));
            }
        }
        // Sectors of two blocks that were written to the same place do not make one.
        let mut other = payload.clone();
        other[2000] ^= 1;
        let mut mixed = block(&other, 3000);
        mixed[..4 * SECTOR].copy_from_slice(&good[..4 * SECTOR]);
        assert_eq!(open(&mixed), BlockPayload::Damaged(0));
    }
}
