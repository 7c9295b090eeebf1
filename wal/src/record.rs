//! The encoding of records, in the buffer of an appender and on disk. A record is one change, the
//! end of a transaction, or a note.
//!
//! The log knows pages and trees only as numbers; the trees define codes and payloads. Invariant:
//! [`parse`] accepts any bytes and never reads outside of them; it checks every length before it
//! uses it.
//!
//! The head of a record or op is one word if its numbers are small. Those of a record are relative
//! to the [`Base`] of its chunk. Although heads are this small, they make up a quarter of a log of
//! small changes.
//!
//! Written by [`crate::Section`]; parsed by recovery.

use crate::gsn::GSN_COUNTER_BITS;
use wattle_buffer::{Gsn, PageId, TreeId};

/// Bytes in front of the operations: len u16, kind and flags u8, number of operations u8, and one
/// u32 with the GSN in its lowest 18 bits and the transaction above, relative to the [`Base`] of
/// the chunk.
pub const RECORD_HEADER: usize = 8;
/// The same if a number does not fit: the u32 is 0, then transaction u64 and GSN u64.
pub const LONG_RECORD_HEADER: usize = 24;
/// Bytes in front of the payload of an operation, one word: code in the lowest 8 bits, payload
/// length in the next 12, tree in the next 12, page in the upper 32.
pub const OP_HEADER: usize = 8;
/// The same if a number does not fit: the length is [`LONG`], tree and page are 0, then page u64,
/// tree u32, length u32.
pub const LONG_OP_HEADER: usize = 24;
/// Largest record. With the head of its chunk it fits a block.
pub const MAX_RECORD: usize = 57_320;
/// Most operations of a record.
pub const MAX_OPS: usize = u8::MAX as usize;

/// Flag of an auto-committed record: it is a transaction of its own, which is committed if the
/// record is in the log.
pub const AUTO: u8 = 1;
/// All flags that a record can have.
pub const MAX_FLAGS: u8 = 15;

/// Offset of kind and flags.
const KIND_AT: usize = 2;
/// Offset of the number of operations.
const OPS_AT: usize = 3;
/// Bits of the kind.
const KIND_BITS: u8 = 0x07;
/// Flag of a long head.
const LONG_RECORD: u8 = 0x08;
/// The flags are above kind and long flag.
const FLAGS_SHIFT: u32 = 4;
/// Bits of a GSN in a short head.
const GSN_BITS: u32 = 18;
/// Bits of a transaction in a short head: a difference in two's complement; the least one means no
/// transaction.
const TXN_BITS: u32 = u32::BITS - GSN_BITS;
const NO_TXN: i64 = -1 << (TXN_BITS - 1);
/// Bits of a length and of a tree in the short head of an operation.
const LEN_BITS: u32 = 12;
const TREE_BITS: u32 = 12;
/// The length in a long one.
const LONG: u64 = (1 << LEN_BITS) - 1;

/// The numbers of records are relative to this; the head of each chunk has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Base {
    /// The epoch in which the records were written: no GSN is less.
    pub epoch: u64,
    /// The transaction of one record; 0 if none has one.
    pub txn: u64,
}

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Changes of pages, and their undo bytes.
    Change = 1,
    /// The transaction is committed.
    Commit = 2,
    /// The transaction is rolled back completely.
    End = 3,
    /// Anything that the engine stores for recovery, in the undo bytes.
    Note = 4,
}

impl Kind {
    /// The kind with this number.
    pub fn from_u8(kind: u8) -> Option<Kind> {
        Some(match kind {
            1 => Kind::Change,
            2 => Kind::Commit,
            3 => Kind::End,
            4 => Kind::Note,
            _ => return None,
        })
    }
}

/// A record, as [`parse`] reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its kind.
    pub kind: Kind,
    /// [`AUTO`], and bits for the layers above, up to [`MAX_FLAGS`].
    pub flags: u8,
    /// The transaction; 0 if it belongs to none.
    pub txn: u64,
    /// Its place in the order of changes of each of its pages.
    pub gsn: Gsn,
    /// How to undo it, or the content of a note.
    pub undo: &'a [u8],
    ops: &'a [u8],
    count: u8,
}

/// One change of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op<'a> {
    /// The page.
    pub page: PageId,
    /// The tree that the page belongs to.
    pub tree: TreeId,
    /// The operation; the trees define it.
    pub code: u8,
    /// Its data.
    pub payload: &'a [u8],
}

impl<'a> Record<'a> {
    /// The operations in order.
    pub fn ops(&self) -> impl Iterator<Item = Op<'a>> + use<'a> {
        let mut rest = self.ops;
        // `parse` has checked them.
        std::iter::from_fn(move || take_op(&mut rest))
    }

    /// Number of operations.
    pub fn op_count(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether it is auto-committed.
    pub fn is_auto(&self) -> bool {
        self.flags & AUTO != 0
    }
}

/// The record at the start of `bytes`, and its length. The error is a sentence.
pub fn parse(bytes: &[u8], base: Base) -> Result<(Record<'_>, usize), String> {
    if bytes.len() < RECORD_HEADER {
        return Err(format!("{} bytes are less than the head of a record", bytes.len()));
    }
    let (len, kind) = (length(bytes), bytes[KIND_AT]);
    let long = kind & LONG_RECORD != 0;
    let head = if long { LONG_RECORD_HEADER } else { RECORD_HEADER };
    if !(head..=bytes.len()).contains(&len) {
        return Err(format!("a record of {len} bytes where {} are left", bytes.len()));
    }
    let (flags, kind) = (kind >> FLAGS_SHIFT, kind & KIND_BITS);
    let kind = Kind::from_u8(kind).ok_or_else(|| format!("no record has kind {kind}"))?;
    let short = u32_at(bytes, 4);
    let (txn, gsn) = if long {
        if short != 0 {
            return Err(format!("the reserved bytes of a record are {short:#x}"));
        }
        (u64_at(bytes, 8), u64_at(bytes, 16))
    } else {
        let above = u64::from(short & ((1 << GSN_BITS) - 1));
        if base.epoch >> (u64::BITS - GSN_COUNTER_BITS) != 0 {
            return Err(format!("a chunk has epoch {}", base.epoch));
        }
        let txn = match i64::from(short as i32 >> GSN_BITS) {
            NO_TXN => 0,
            difference => base.txn.wrapping_add_signed(difference),
        };
        (txn, (base.epoch << GSN_COUNTER_BITS) + above)
    };
    let rest = &bytes[head..len];
    let (count, mut undo) = (bytes[OPS_AT], rest);
    for index in 0..count {
        if take_op(&mut undo).is_none() {
            let what = format!("operation {index} of {count}");
            return Err(format!("{what} has reserved bits, or does not fit into its record"));
        }
    }
    let ops = &rest[..rest.len() - undo.len()];
    Ok((Record { kind, flags, txn, gsn: Gsn(gsn), undo, ops, count }, len))
}

/// The operation at the start of `bytes`, and moves `bytes` past it.
fn take_op<'a>(bytes: &mut &'a [u8]) -> Option<Op<'a>> {
    let (head, rest) = bytes.split_first_chunk::<OP_HEADER>()?;
    let head = u64::from_le_bytes(*head);
    let (len, tree) = (head >> 8 & LONG, head >> (8 + LEN_BITS) & ((1 << TREE_BITS) - 1));
    let (page, tree, len, rest) = if len == LONG {
        // The long form has zeroes in place of the short numbers.
        if head >> (8 + LEN_BITS) != 0 {
            return None;
        }
        let (long, rest) = rest.split_at_checked(LONG_OP_HEADER - OP_HEADER)?;
        (u64_at(long, 0), u32_at(long, 8), u32_at(long, 12) as usize, rest)
    } else {
        (head >> 32, tree as u32, len as usize, rest)
    };
    let (payload, rest) = rest.split_at_checked(len)?;
    *bytes = rest;
    Some(Op { page: PageId(page), tree: TreeId(tree), code: head as u8, payload })
}

/// Length of the record at the start of bytes from an appender.
pub(crate) fn length(bytes: &[u8]) -> usize {
    usize::from(u16_at(bytes, 0))
}

/// Appends the head of a record whose length and number of operations are not known yet. `gsn` is
/// not below the epoch of `base`.
#[inline(always)]
pub(crate) fn header(bytes: &mut Vec<u8>, kind: Kind, flags: u8, txn: u64, gsn: Gsn, base: Base) {
    debug_assert!(flags <= MAX_FLAGS, "a record has {FLAGS_SHIFT} flags");
    let kind = kind as u8 | flags << FLAGS_SHIFT;
    let above = gsn.0 - (base.epoch << GSN_COUNTER_BITS);
    let difference = if txn == 0 { NO_TXN } else { txn.wrapping_sub(base.txn) as i64 };
    let fits = txn == 0 || (NO_TXN + 1..-NO_TXN).contains(&difference);
    if above >> GSN_BITS != 0 || !fits {
        return long_header(bytes, kind, txn, gsn);
    }
    let numbers = above as u32 | (difference as u32) << GSN_BITS;
    let head = u64::from(kind) << (8 * KIND_AT) | u64::from(numbers) << 32;
    bytes.extend_from_slice(&head.to_le_bytes());
}

#[cold]
fn long_header(bytes: &mut Vec<u8>, kind: u8, txn: u64, gsn: Gsn) {
    bytes.extend_from_slice(&[0, 0, kind | LONG_RECORD, 0, 0, 0, 0, 0]);
    bytes.extend_from_slice(&txn.to_le_bytes());
    bytes.extend_from_slice(&gsn.0.to_le_bytes());
}

/// Adds flags to a record.
#[inline(always)]
pub(crate) fn add_flags(record: &mut [u8], flags: u8) {
    debug_assert!(flags <= MAX_FLAGS, "a record has {FLAGS_SHIFT} flags");
    record[KIND_AT] |= flags << FLAGS_SHIFT;
}

/// Completes the head of a record, which ends with `record`.
#[inline(always)]
pub(crate) fn complete(record: &mut [u8], ops: usize) {
    let len = record.len() as u16;
    record[0..2].copy_from_slice(&len.to_le_bytes());
    record[OPS_AT] = ops as u8;
}

/// Appends the head of an operation.
#[inline(always)]
pub(crate) fn op_header(bytes: &mut Vec<u8>, page: PageId, tree: TreeId, code: u8, payload: usize) {
    if page.0 >> 32 != 0 || tree.0 >> TREE_BITS != 0 || payload as u64 >= LONG {
        return long_op_header(bytes, page, tree, code, payload);
    }
    let numbers = (payload as u64) << 8 | u64::from(tree.0) << (8 + LEN_BITS) | page.0 << 32;
    bytes.extend_from_slice(&(u64::from(code) | numbers).to_le_bytes());
}

#[cold]
fn long_op_header(bytes: &mut Vec<u8>, page: PageId, tree: TreeId, code: u8, payload: usize) {
    bytes.extend_from_slice(&(u64::from(code) | LONG << 8).to_le_bytes());
    bytes.extend_from_slice(&page.0.to_le_bytes());
    bytes.extend_from_slice(&tree.0.to_le_bytes());
    bytes.extend_from_slice(&(payload as u32).to_le_bytes());
}

/// Little-endian u16 at `at`; panics outside.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("2 bytes"))
}
/// Little-endian u32 at `at`; panics outside.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}
/// Little-endian u64 at `at`; panics outside.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

#[cfg(test)]
mod tests {
    use super::{
        AUTO, Base, Kind, LONG_OP_HEADER, LONG_RECORD_HEADER, OP_HEADER, RECORD_HEADER, complete,
        header, op_header, parse,
    };
    use crate::gsn::GSN_COUNTER_BITS;
    use wattle_buffer::{Gsn, PageId, TreeId};

    /// Writes a record without operations, checks that it is read back, and gives its length.
    fn head(txn: u64, above: u64, base: Base) -> usize {
        let gsn = Gsn((base.epoch << GSN_COUNTER_BITS) + above);
        let mut bytes = Vec::new();
        header(&mut bytes, Kind::Change, AUTO, txn, gsn, base);
        complete(&mut bytes, 0);
        let (record, len) = parse(&bytes, base).expect("a record");
        assert_eq!((record.txn, record.gsn, record.flags, len), (txn, gsn, AUTO, bytes.len()));
        len
    }

    #[test]
    fn records_with_numbers_close_to_the_base_have_short_heads() {
        for (epoch, txn) in [(0, 0), (1, 5), (9, 8191), ((1 << 43) + 7, u64::MAX), (3, 1 << 40)] {
            let base = Base { epoch, txn };
            let close = [0u64, 1, 8191, 1u64.wrapping_neg(), 8191u64.wrapping_neg()];
            for difference in close {
                assert_eq!(head(txn.wrapping_add(difference), 1, base), RECORD_HEADER);
            }
            for difference in [8192u64, 8192u64.wrapping_neg(), 8193u64.wrapping_neg(), 1 << 63] {
                let long = txn.wrapping_add(difference) != 0;
                let expected = if long { LONG_RECORD_HEADER } else { RECORD_HEADER };
                assert_eq!(head(txn.wrapping_add(difference), 1, base), expected);
            }
            assert_eq!(head(0, (1 << 18) - 1, base), RECORD_HEADER);
            assert_eq!(head(0, 1 << 18, base), LONG_RECORD_HEADER);
            assert_eq!(head(txn, 1 << 62, base), LONG_RECORD_HEADER);
        }
    }

    #[test]
    fn operations_of_large_pages_trees_and_payloads_have_long_heads() {
        let payload = vec![7; 5000];
        let (page, tree) = (u64::from(u32::MAX), (1 << 12) - 1);
        for (page, tree, len, head) in [
            (page, tree, 4094, OP_HEADER),
            (0, 0, 0, OP_HEADER),
            (page + 1, tree, 0, LONG_OP_HEADER),
            (page, tree + 1, 10, LONG_OP_HEADER),
            (page, tree, 4095, LONG_OP_HEADER),
            (u64::MAX, u32::MAX, 5000, LONG_OP_HEADER),
        ] {
            let mut bytes = Vec::new();
            header(&mut bytes, Kind::Note, 0, 0, Gsn(1), Base::default());
            for code in [255, 1] {
                op_header(&mut bytes, PageId(page), TreeId(tree), code, len);
                bytes.extend_from_slice(&payload[..len]);
            }
            bytes.push(9);
            complete(&mut bytes, 2);
            let (record, end) = parse(&bytes, Base::default()).expect("a record");
            assert_eq!((end, record.undo), (bytes.len(), &[9][..]));
            assert_eq!(end, RECORD_HEADER + 2 * (head + len) + 1);
            for (op, code) in record.ops().zip([255, 1]) {
                assert_eq!((op.page, op.tree, op.code), (PageId(page), TreeId(tree), code));
                assert_eq!(op.payload, &payload[..len]);
            }
            // After code and payload length there are page and tree, or zeroes.
            let at = RECORD_HEADER + 2;
            for (byte, bit) in [(at, 0x10), (at + 1, 1), (at + 2, 1), (RECORD_HEADER + 7, 0x80)] {
                let mut damaged = bytes.clone();
                damaged[byte] ^= bit;
                let refused = parse(&damaged, Base::default()).is_err();
                assert_eq!(refused, head == LONG_OP_HEADER, "byte {byte}");
            }
        }
    }
}
