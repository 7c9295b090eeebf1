//! Large values: a value that does not fit into a leaf is stored in chunks in a second tree, and
//! the leaf holds a descriptor.
//!
//! The chunk tree is an ordinary tree with the key (id, chunk number), both big-endian. So
//! eviction, splits, merges, reuse of pages and verification need no code of their own, and a value
//! may be larger than the pool. An id belongs to one version of one value and is never used again:
//! a reader that misses a chunk knows that the value was replaced meanwhile, and looks the key up
//! again.

use wattle_buffer::{Error, PageId, Result};

/// Bytes of a chunk: two chunks and their keys fill a leaf.
pub const CHUNK: usize = 1904;

/// Longest value, bytes: 4 GiB - 1.
pub const MAX_VALUE: u64 = u32::MAX as u64;

/// Bytes of a chunk key.
pub const CHUNK_KEY: usize = 12;

/// First byte of the descriptor of a large value.
const KIND: u8 = 1;
/// Bytes of a descriptor: kind, id, length.
const DESCRIPTOR: usize = 17;

/// Descriptor of a large value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargeValue {
    /// Id of this version of the value.
    pub id: u64,
    /// Length, bytes.
    pub len: u64,
}

impl LargeValue {
    /// The descriptor as the value of a record.
    pub fn encode(self) -> [u8; DESCRIPTOR] {
        debug_assert!(self.len <= MAX_VALUE, "a value of {} bytes", self.len);
        let mut bytes = [KIND; DESCRIPTOR];
        bytes[1..9].copy_from_slice(&self.id.to_le_bytes());
        bytes[9..].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    /// Reads a descriptor of a record of `page`.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the bytes are no descriptor.
    pub fn decode(bytes: &[u8], page: PageId) -> Result<LargeValue> {
        let whole: Option<&[u8; DESCRIPTOR]> = bytes.try_into().ok();
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        match whole {
            Some(bytes) if bytes[0] == KIND => {
                let large = LargeValue { id: number(&bytes[1..9]), len: number(&bytes[9..]) };
                if large.len <= MAX_VALUE {
                    return Ok(large);
                }
                Err(Error::corruption(page, format_args!("a value of {} bytes", large.len)))
            }
            _ => Err(Error::corruption(page, "a record has an unknown kind of value")),
        }
    }

    /// Number of chunks.
    pub fn chunks(self) -> u64 {
        self.len.div_ceil(CHUNK as u64)
    }

    /// Key of a chunk.
    pub fn chunk_key(self, chunk: u64) -> [u8; CHUNK_KEY] {
        chunk_key(self.id, chunk)
    }

    /// Length of a chunk of the value.
    pub fn chunk_len(self, chunk: u64) -> usize {
        debug_assert!(chunk < self.chunks(), "chunk {chunk} of {}", self.chunks());
        (self.len - chunk * CHUNK as u64).min(CHUNK as u64) as usize
    }
}

/// Key of chunk `chunk` of the value `id`.
pub fn chunk_key(id: u64, chunk: u64) -> [u8; CHUNK_KEY] {
    debug_assert!(chunk <= u64::from(u32::MAX), "chunk {chunk} has no key");
    let mut key = [0; CHUNK_KEY];
    key[..8].copy_from_slice(&id.to_be_bytes());
    key[8..].copy_from_slice(&(chunk as u32).to_be_bytes());
    key
}

/// Id in a chunk key.
pub fn chunk_id(key: &[u8]) -> Option<u64> {
    key.get(..8)
        .filter(|_| key.len() == CHUNK_KEY)
        .map(|id| u64::from_be_bytes(id.try_into().expect("8 bytes")))
}

const _: () = assert!(crate::node::fits_inline(CHUNK_KEY, CHUNK));
const _: () = assert!(crate::node::fits_inline(crate::node::MAX_KEY, DESCRIPTOR));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_survive_a_round_trip_and_other_bytes_are_corruption() {
        let large = LargeValue { id: 7 << 40, len: MAX_VALUE };
        assert_eq!(LargeValue::decode(&large.encode(), PageId(1)).unwrap(), large);
        let mut bytes = large.encode();
        bytes[16] = 1;
        for bad in [&bytes[..], &bytes[..16], &[], &[9; DESCRIPTOR]] {
            assert!(matches!(
                LargeValue::decode(bad, PageId(1)),
                Err(Error::Corruption { page: PageId(1), .. })
            ));
        }
    }

    #[test]
    fn chunks_cover_the_value_in_key_order() {
        let large = LargeValue { id: 3, len: 2 * CHUNK as u64 + 1 };
        assert_eq!(large.chunks(), 3);
        let total: usize = (0..3).map(|chunk| large.chunk_len(chunk)).sum();
        assert_eq!(total as u64, large.len);
        assert!(large.chunk_key(1) < large.chunk_key(2));
        assert!(large.chunk_key(u64::from(u32::MAX)) < chunk_key(4, 0));
        assert_eq!(chunk_id(&large.chunk_key(2)), Some(3));
    }
}
