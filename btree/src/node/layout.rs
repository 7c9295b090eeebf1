//! The layout of a node, and the limits that follow from it.
//!
//! ```text
//! 0    common header of every page, see `wattle_buffer::page::header`
//! 28   count u16        records of a leaf, separators of an inner node
//! 30   capacity u16     entries that the arrays have room for
//! 32   heap top u16     lowest byte of the heap, a multiple of 8
//! 34   garbage u16      bytes of the heap that nothing refers to
//! 36   prefix u16 u16   offset and length of the bytes that all keys start with
//! 40   lower u16 u16    lower fence, inclusive; length 0 is minus infinity
//! 44   upper u16 u16    upper fence, exclusive; offset 0 is plus infinity
//! 48   zero
//! 64   hints 16 x u32   heads sampled at equal distances
//! 128  heads capacity x u32, slots capacity x u32,
//!      in an inner node then swips (capacity + 1) x u64
//!      free bytes
//!      heap, down from the end of the page: fences, prefix, records
//! ```
//!
//! A key is stored as the common prefix (once), the head (the next four bytes, zero padded, as an
//! integer that orders like the bytes) and the tail (the rest, in the heap). Heads are dense: one
//! vector compare looks at sixteen of them, and a search touches a slot only when heads tie. Every
//! piece of the heap starts at a multiple of 8 and is a multiple of 8 long. A record of a leaf is
//! the value followed by the tail, so that values are aligned.
//!
//! The constants are the disk format.

use wattle_buffer::PAGE_SIZE;

/// Bit of `header::FLAGS`: the prefix is longer than the fences imply, so a search has to compare
/// it.
pub(crate) const CHECK_PREFIX: u8 = 1;

pub(crate) const COUNT: usize = 28;
pub(crate) const CAPACITY: usize = 30;
pub(crate) const HEAP_TOP: usize = 32;
pub(crate) const GARBAGE: usize = 34;
pub(crate) const PREFIX_OFF: usize = 36;
pub(crate) const PREFIX_LEN: usize = 38;
pub(crate) const LOWER_OFF: usize = 40;
pub(crate) const LOWER_LEN: usize = 42;
pub(crate) const UPPER_OFF: usize = 44;
pub(crate) const UPPER_LEN: usize = 46;
pub(crate) const RESERVED: usize = 48;
pub(crate) const HINTS: usize = 64;
pub(crate) const HEADS: usize = 128;

/// Number of hints.
pub(crate) const HINT_COUNT: usize = 16;
/// Bytes of the key that the head holds.
pub(crate) const HEAD_LEN: usize = 4;
/// Bytes that an entry of a leaf takes in the arrays.
pub(crate) const LEAF_ENTRY: usize = 8;
/// Bytes that an entry of an inner node takes in the arrays.
pub(crate) const INNER_ENTRY: usize = 16;
/// Counts and capacities are masked with this on the racy side, which bounds every loop.
pub(crate) const COUNT_MASK: usize = 511;
/// Entries that the arrays of an empty node start with.
pub(crate) const INITIAL_CAPACITY: usize = 16;

/// Longest key and longest fence, in bytes.
pub const MAX_KEY: usize = 1024;
/// Heap bytes of the largest record: the room that two fences of [`MAX_KEY`] bytes leave.
pub(crate) const MAX_HEAP_RECORD: usize = PAGE_SIZE - HEADS - LEAF_ENTRY - 2 * MAX_KEY;
/// Most bytes of key and value together that fit into a leaf. A key of less than 4 bytes counts as
/// 4.
pub const MAX_RECORD: usize = MAX_HEAP_RECORD + HEAD_LEN;

/// Bit of a swip: set if it names a page id, clear if it names a frame. The buffer crate owns the
/// encoding; nodes only check it when a page is loaded.
pub(crate) const SWIP_EVICTED: u64 = 1 << 63;

const _: () = {
    assert!(COUNT == wattle_buffer::page::header::END);
    assert!(RESERVED == UPPER_LEN + 2 && RESERVED <= HINTS);
    assert!(HINTS + 4 * HINT_COUNT == HEADS);
    assert!((PAGE_SIZE - HEADS) / LEAF_ENTRY <= COUNT_MASK);
    assert!(MAX_HEAP_RECORD.is_multiple_of(8) && MAX_HEAP_RECORD == 1912);
    assert!(MAX_HEAP_RECORD <= Slot::MAX_LEN && MAX_KEY <= Slot::MAX_LEN);
    // Two records with 12-byte keys, 1904-byte values and fences of 16 bytes share a leaf.
    assert!(fits_inline(12, 1904));
    assert!(HEADS + 2 * (LEAF_ENTRY + round8(1904 + 12 - HEAD_LEN) + 16) <= PAGE_SIZE);
    // An inner node with the longest fences takes the longest separator.
    assert!(HEADS + 3 * round8(MAX_KEY) + INNER_ENTRY + 8 <= PAGE_SIZE);
};

/// True if a leaf without other records can hold a record with this key and value, whatever its
/// fences.
pub const fn fits_inline(key_len: usize, value_len: usize) -> bool {
    let head = if key_len > HEAD_LEN { key_len } else { HEAD_LEN };
    key_len <= MAX_KEY && value_len <= MAX_RECORD && head + value_len <= MAX_RECORD
}

/// The next multiple of 8.
#[inline(always)]
pub(crate) const fn round8(len: usize) -> usize {
    (len + 7) & !7
}

/// Offset of the slots of a node with this capacity.
#[inline(always)]
pub(crate) const fn slots_at(capacity: usize) -> usize {
    HEADS + 4 * capacity
}

/// Offset of the swips of an inner node with this capacity.
#[inline(always)]
pub(crate) const fn swips_at(capacity: usize) -> usize {
    HEADS + 8 * capacity
}

/// First byte after the arrays.
#[inline(always)]
pub(crate) const fn arrays_end(capacity: usize, inner: bool) -> usize {
    HEADS + entries_len(capacity, inner)
}

/// Bytes of the arrays for this many entries.
#[inline(always)]
pub(crate) const fn entries_len(entries: usize, inner: bool) -> usize {
    if inner { INNER_ENTRY * entries + 8 } else { LEAF_ENTRY * entries }
}

/// Bytes that one more entry takes in the arrays.
#[inline(always)]
pub(crate) const fn entry_len(inner: bool) -> usize {
    if inner { INNER_ENTRY } else { LEAF_ENTRY }
}

/// Capacity for at least `count` entries, such that arrays and heap fill up together: divides
/// `free` bytes among entries of the present average size.
pub(crate) fn balanced_capacity(count: usize, records: usize, free: usize, inner: bool) -> usize {
    let entry = entry_len(inner);
    if count == 0 {
        return INITIAL_CAPACITY.min(free / entry);
    }
    count + free / (entry + records.div_ceil(count))
}

/// First four bytes of a suffix, zero padded, as an integer that orders like the bytes.
#[inline(always)]
pub(crate) fn head_of(suffix: &[u8]) -> u32 {
    if let Some(head) = suffix.first_chunk::<HEAD_LEN>() {
        return u32::from_be_bytes(*head);
    }
    let mut head = [0; HEAD_LEN];
    for (to, from) in head.iter_mut().zip(suffix) {
        *to = *from;
    }
    u32::from_be_bytes(head)
}

/// The part of a suffix after the head.
#[inline(always)]
pub(crate) fn tail_of(suffix: &[u8]) -> &[u8] {
    suffix.get(HEAD_LEN..).unwrap_or(&[])
}

/// Length of the common prefix.
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let words = a.chunks_exact(8).zip(b.chunks_exact(8)).take_while(|(a, b)| a == b).count();
    let same = |(a, b): &(&u8, &u8)| a == b;
    8 * words + a[8 * words..].iter().zip(&b[8 * words..]).take_while(same).count()
}

/// Shortest key `s` with `left < s <= right`, as a part of `right`. `left` must be below `right`.
pub fn shortest_separator<'k>(left: &[u8], right: &'k [u8]) -> &'k [u8] {
    let len = common_prefix(left, right) + 1;
    &right[..len.min(right.len())]
}

/// The layout of one entry: its record in the heap, and the lengths of key and value.
///
/// | bits   | meaning |
/// |--------|---------|
/// | 0..9   | offset of the record in the page / 8; 0: no heap bytes |
/// | 9..20  | length of the suffix (head and tail) |
/// | 20..31 | length of the value; 0 in inner nodes |
/// | 31     | special: the value is a descriptor or a ghost, which the tree interprets |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot(pub u32);

impl Slot {
    const SUFFIX_SHIFT: u32 = 9;
    const VALUE_SHIFT: u32 = 20;
    const SPECIAL: u32 = 1 << 31;
    const OFFSET_MASK: u32 = (1 << Self::SUFFIX_SHIFT) - 1;
    /// Longest suffix or value that a slot can name.
    pub const MAX_LEN: usize = (1 << 11) - 1;

    /// Packs a slot. The limits above keep the parts in range.
    #[inline(always)]
    pub fn new(offset: usize, suffix_len: usize, value_len: usize, special: bool) -> Slot {
        debug_assert!(offset.is_multiple_of(8) && offset < PAGE_SIZE);
        debug_assert!(suffix_len <= Self::MAX_LEN && value_len <= Self::MAX_LEN);
        Slot(
            (offset / 8) as u32
                | (suffix_len as u32) << Self::SUFFIX_SHIFT
                | (value_len as u32) << Self::VALUE_SHIFT
                | u32::from(special) << 31,
        )
    }
    /// Offset of the record; 0 if it has no heap bytes.
    #[inline(always)]
    pub fn offset(self) -> usize {
        ((self.0 & Self::OFFSET_MASK) * 8) as usize
    }
    /// Length of head and tail.
    #[inline(always)]
    pub fn suffix_len(self) -> usize {
        (self.0 >> Self::SUFFIX_SHIFT) as usize & Self::MAX_LEN
    }
    /// Length of the tail.
    #[inline(always)]
    pub fn tail_len(self) -> usize {
        self.suffix_len().saturating_sub(HEAD_LEN)
    }
    /// Length of the value.
    #[inline(always)]
    pub fn value_len(self) -> usize {
        (self.0 >> Self::VALUE_SHIFT) as usize & Self::MAX_LEN
    }
    /// True if the value is a descriptor or a ghost.
    #[inline(always)]
    pub fn special(self) -> bool {
        self.0 & Self::SPECIAL != 0
    }
    /// Bytes of the record in the heap.
    #[inline(always)]
    pub fn heap_len(self) -> usize {
        round8(self.value_len() + self.tail_len())
    }
}

const _: () = {
    assert!((Slot::OFFSET_MASK as usize + 1) * 8 == PAGE_SIZE);
    assert!(Slot::VALUE_SHIFT - Slot::SUFFIX_SHIFT == 11 && 31 - Slot::VALUE_SHIFT == 11);
    assert!(Slot::SPECIAL == 1 << 31);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_page_has_the_numbers_of_the_code() {
        let page = include_str!("../../../buffer/FORMAT.md");
        for (offset, bytes, field) in [
            (COUNT, 2, "count"),
            (CAPACITY, 2, "capacity"),
            (HEAP_TOP, 2, "heap top"),
            (GARBAGE, 2, "garbage"),
            (PREFIX_OFF, 4, "prefix"),
            (LOWER_OFF, 4, "lower fence"),
            (UPPER_OFF, 4, "upper fence"),
            (RESERVED, 16, "zero"),
            (HINTS, 4 * HINT_COUNT, "hints"),
        ] {
            let row = format!("| {offset} | {bytes} | {field}");
            assert!(page.contains(&row), "FORMAT.md lacks: {row}");
        }
        assert!(page.contains(&format!("| {HEADS} | | heads")));
        assert!(page.contains(&format!("at most {} bytes each", crate::CHUNK)));
    }
}
