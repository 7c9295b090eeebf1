//! The content of records, with which every read checks its value.
//!
//! A value consists of fields of one size; an opaque value is one field. A field begins with a
//! 4-byte version, which every write draws. The other bytes are computed from the key, the number
//! of the field and the version. A reader recomputes every byte, so it notices a value of another
//! key, a field in the wrong place, a torn write, or a flipped bit. A compressor cannot shrink the
//! bytes. They cost one addition for every eight, in vector code; the check of a kilobyte takes a
//! few dozen nanoseconds.
//!
//! Fields below 8 bytes have no room for a version: they hold the first bytes of the stream of
//! version 0, and a write of such a field changes nothing.

use std::fmt;

use crate::report::figures::plural;
use crate::rng::{GOLDEN, Rng, mix};

const VERSION_BYTES: usize = 4;
const MIN_VERSIONED_BYTES: usize = 8;

/// The sizes of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordShape {
    fields: usize,
    field_bytes: usize,
}

/// How a value differs from a valid value of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// It has another size.
    Size {
        /// Bytes of the value.
        found: usize,
        /// Bytes of a valid value.
        expected: usize,
    },
    /// A field belongs to another key or place, or is damaged.
    Field {
        /// The field, from 0.
        field: usize,
    },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mismatch::Size { found, expected } => {
                write!(formatter, "it has {} and not {expected}", plural(*found as u64, "byte"))
            }
            Mismatch::Field { field } => {
                write!(formatter, "its field {field} is damaged or belongs elsewhere")
            }
        }
    }
}

impl RecordShape {
    /// Values of `fields` fields of `field_bytes` bytes; neither is 0.
    pub fn new(fields: usize, field_bytes: usize) -> Self {
        assert!(fields > 0 && field_bytes > 0, "a value has at least one byte");
        Self { fields, field_bytes }
    }

    /// Size of a value.
    pub fn value_bytes(self) -> usize {
        self.fields * self.field_bytes
    }

    /// Size of a field.
    pub fn field_bytes(self) -> usize {
        self.field_bytes
    }

    /// Number of fields.
    pub fn fields(self) -> usize {
        self.fields
    }

    /// Writes new content of all fields of the record `key` into `value`, which has the right size.
    pub fn write(self, key: &[u8], rng: &mut Rng, value: &mut [u8]) {
        let base = bind(key);
        for (field, bytes) in value.chunks_exact_mut(self.field_bytes).enumerate() {
            write_field(base, field, rng.next_u64() as u32, bytes);
        }
    }

    /// Writes `version` of field number `field` of the record `key` into `bytes`.
    #[inline]
    pub fn write_field(self, key: &[u8], field: usize, version: u32, bytes: &mut [u8]) {
        write_field(bind(key), field, version, bytes);
    }

    /// Position of field number `field` in a value.
    #[inline]
    pub fn field_range(self, field: usize) -> std::ops::Range<usize> {
        field * self.field_bytes..(field + 1) * self.field_bytes
    }

    /// Whether `value` can be the value of `key`.
    #[inline]
    pub fn check(self, key: &[u8], value: &[u8]) -> Result<(), Mismatch> {
        if value.len() != self.value_bytes() {
            return Err(Mismatch::Size { found: value.len(), expected: self.value_bytes() });
        }
        let base = bind(key);
        for (field, bytes) in value.chunks_exact(self.field_bytes).enumerate() {
            if !is_field(base, field, bytes) {
                return Err(Mismatch::Field { field });
            }
        }
        Ok(())
    }
}

/// A fast hash of `key`.
#[inline]
fn bind(key: &[u8]) -> u64 {
    let (words, rest) = key.as_chunks::<8>();
    let mut hash = GOLDEN ^ key.len() as u64;
    for word in words {
        hash = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(GOLDEN).rotate_left(29);
    }
    if !rest.is_empty() {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(GOLDEN);
    }
    hash
}

/// The first word of the stream of a field; word `i` is this plus `i` times the golden ratio.
#[inline]
fn first_word(base: u64, field: usize, version: u32) -> u64 {
    mix(base ^ (((field as u64 + 1) << 32) | u64::from(version)))
}

#[inline]
fn write_field(base: u64, field: usize, version: u32, bytes: &mut [u8]) {
    let (version, bytes) = if bytes.len() < MIN_VERSIONED_BYTES {
        (0, bytes)
    } else {
        let (head, tail) = bytes.split_at_mut(VERSION_BYTES);
        head.copy_from_slice(&version.to_le_bytes());
        (version, tail)
    };
    let mut word = first_word(base, field, version);
    let (words, rest) = bytes.as_chunks_mut::<8>();
    for bytes in words {
        *bytes = word.to_le_bytes();
        word = word.wrapping_add(GOLDEN);
    }
    rest.copy_from_slice(&word.to_le_bytes()[..rest.len()]);
}

#[inline]
fn is_field(base: u64, field: usize, bytes: &[u8]) -> bool {
    let (version, bytes) = match bytes.split_first_chunk::<VERSION_BYTES>() {
        Some((head, tail)) if bytes.len() >= MIN_VERSIONED_BYTES => {
            (u32::from_le_bytes(*head), tail)
        }
        _ => (0, bytes),
    };
    let mut word = first_word(base, field, version);
    let (words, rest) = bytes.as_chunks::<8>();
    // No early exit: the loop collects differences, so that it has no branch.
    let mut difference = 0;
    for bytes in words {
        difference |= word ^ u64::from_le_bytes(*bytes);
        word = word.wrapping_add(GOLDEN);
    }
    difference == 0 && *rest == word.to_le_bytes()[..rest.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(shape: RecordShape, key: &[u8]) -> Vec<u8> {
        let mut value = vec![0; shape.value_bytes()];
        shape.write(key, &mut Rng::new(1, 1), &mut value);
        value
    }

    #[test]
    fn values_of_all_sizes_pass_their_own_check() {
        for fields in [1, 2, 10] {
            for field_bytes in (1..40).chain([100, 120, 1000]) {
                let shape = RecordShape::new(fields, field_bytes);
                assert_eq!(shape.check(b"user17", &value(shape, b"user17")), Ok(()));
            }
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        for (fields, field_bytes) in [(10, 100), (1, 120), (3, 9), (2, 8), (4, 3)] {
            let shape = RecordShape::new(fields, field_bytes);
            let mut value = value(shape, b"user00000000000000000001");
            for bit in 0..value.len() * 8 {
                value[bit / 8] ^= 1 << (bit % 8);
                let field = bit / 8 / field_bytes;
                assert_eq!(
                    shape.check(b"user00000000000000000001", &value),
                    Err(Mismatch::Field { field })
                );
                value[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    #[test]
    fn values_of_other_keys_and_torn_updates_are_noticed() {
        let shape = RecordShape::new(2, 64);
        let mut torn = value(shape, b"user1");
        assert!(shape.check(b"user2", &torn).is_err());
        assert!(shape.check(b"user1\0", &torn).is_err());
        let mut newer = torn.clone();
        shape.write_field(b"user1", 1, 77, &mut newer[shape.field_range(1)]);
        assert_eq!(shape.check(b"user1", &newer), Ok(()));
        torn[64..96].copy_from_slice(&newer[64..96]);
        assert_eq!(shape.check(b"user1", &torn), Err(Mismatch::Field { field: 1 }));
        torn.truncate(100);
        assert_eq!(shape.check(b"user1", &torn), Err(Mismatch::Size { found: 100, expected: 128 }));
        let mut swapped = newer.clone();
        swapped.rotate_left(64);
        assert_eq!(shape.check(b"user1", &swapped), Err(Mismatch::Field { field: 0 }));
    }
}
