//! Blocks as the log had them up to version 3: a header sector, with a table of the checksums of the sectors of
//! payload behind it, in segments that were zero before. `FORMAT.md` has the tables, in its history.
//!
//! Called by the reader alone.

use crate::{
    block::{BLOCK_ALIGN, BLOCK_MAGIC, BlockHeader, Payload, SECTOR, check_crc, is_zero},
    record::u32_at,
};
use crc_fast::crc32_iscsi;

/// The last version of this form.
pub(crate) const LAST_VERSION: u32 = 3;
/// What payload is XORed with, eight bytes at a time, little-endian.
const MASK: u64 = 0x9D8B_A6F3_5C71_E24B;
/// Sectors of payload of a block.
const MAX_SECTORS: usize = 112;
/// Offset of the table of checksums in the header.
const TABLE_AT: usize = 64;

/// The header in a sector; the error says which check failed.
pub(crate) fn parse(sector: &[u8]) -> Result<BlockHeader, String> {
    if sector[0..4] != BLOCK_MAGIC {
        return Err("no block begins here, and it is not empty".into());
    }
    check_crc(&sector[..SECTOR], 4)?;
    let header = BlockHeader::fields(sector);
    if header.payload_len > MAX_SECTORS * SECTOR {
        return Err(format!("{} bytes of payload in a block", header.payload_len));
    }
    Ok(header)
}

/// Bytes on the device of a block with that much payload.
pub(crate) fn block_bytes(payload_len: usize) -> usize {
    (SECTOR + payload_len).next_multiple_of(BLOCK_ALIGN)
}

/// The payload of `block`.
pub(crate) fn payload(block: &[u8], payload_len: usize) -> Payload {
    let (header, rest) = block.split_at(SECTOR);
    let mut payload = rest[..payload_len.next_multiple_of(SECTOR)].to_vec();
    let mut torn = false;
    for (index, sector) in payload.chunks_mut(SECTOR).enumerate() {
        if crc32_iscsi(sector) == u32_at(header, TABLE_AT + 4 * index) {
            mask(sector);
        } else if is_zero(sector) {
            torn = true;
        } else {
            return Payload::Damaged(index + 1);
        }
    }
    payload.truncate(payload_len);
    if torn { Payload::Torn } else { Payload::Whole(payload) }
}

fn mask(sector: &mut [u8]) {
    for word in sector.as_chunks_mut::<8>().0 {
        *word = (u64::from_le_bytes(*word) ^ MASK).to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block of one sector of payload and a part of another.
    fn block() -> (Vec<u8>, Vec<u8>) {
        let payload: Vec<u8> = (0..700).map(|at| at as u8).collect();
        let mut block = vec![0; 4096];
        block[SECTOR..SECTOR + 700].copy_from_slice(&payload);
        for index in 0..2 {
            let sector = &mut block[(index + 1) * SECTOR..][..SECTOR];
            mask(sector);
            let crc = crc32_iscsi(sector);
            block[TABLE_AT + 4 * index..][..4].copy_from_slice(&crc.to_le_bytes());
        }
        block[..4].copy_from_slice(&BLOCK_MAGIC);
        block[8..12].copy_from_slice(&3u32.to_le_bytes());
        block[12..14].copy_from_slice(&700u16.to_le_bytes());
        let crc = crc32_iscsi(&block[..SECTOR]);
        block[4..8].copy_from_slice(&crc.to_le_bytes());
        (block, payload)
    }

    #[test]
    fn blocks_of_old_versions_are_whole_torn_or_damaged() {
        let (good, payload_of_it) = block();
        let header = parse(&good[..SECTOR]).expect("a header");
        assert_eq!((header.offset, header.payload_len, header.last), (3 * 4096, 700, false));
        assert_eq!(block_bytes(700), good.len());
        assert_eq!(payload(&good, 700), Payload::Whole(payload_of_it));
        for index in 1..3 {
            let mut torn = good.clone();
            torn[index * SECTOR..][..SECTOR].fill(0);
            assert_eq!(payload(&torn, 700), Payload::Torn);
            torn[index * SECTOR] = 1;
            assert_eq!(payload(&torn, 700), Payload::Damaged(index));
        }
        for at in 0..SECTOR {
            let mut flipped = good[..SECTOR].to_vec();
            flipped[at] ^= 4;
            assert!(parse(&flipped).is_err(), "byte {at}");
        }
    }
}
