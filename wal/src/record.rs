//! Records: what one change, the end of a transaction, or a note looks like, in the buffer of an
//! appender and on disk.
//!
//! The log knows pages and trees as numbers only; what a code means and what its payload holds is
//! the business of the trees. Invariant: [`parse`] accepts any bytes and never looks outside of
//! them; every length is checked before it is used.
//!
//! Written by [`crate::Section`]; parsed by recovery.

use wattle_buffer::{Gsn, PageId, TreeId};

/// Bytes in front of the operations: len u16, undo_len u16, kind u8, flags u8, ops u8, zero u8,
/// txn u64, gsn u64.
pub const RECORD_HEADER: usize = 24;
/// Bytes in front of the payload of an operation: page u64, tree u32, and one u32 with the code in
/// its lowest 8 bits and the payload length above.
pub const OP_HEADER: usize = 16;
/// Largest record, so that with the head of its chunk it fills a block.
pub const MAX_RECORD: usize = crate::block::MAX_PAYLOAD - crate::block::CHUNK_HEADER;
/// Most operations of a record.
pub const MAX_OPS: usize = u8::MAX as usize;

/// Flag of a record that is a transaction of its own: it is committed by being in the log.
pub const AUTO: u8 = 1;

/// Offsets of the fields that are known only when a record is finished.
pub(crate) const UNDO_LEN_AT: usize = 2;
pub(crate) const FLAGS_AT: usize = 5;
pub(crate) const OPS_AT: usize = 6;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Changes of pages, and how to undo them.
    Change = 1,
    /// The transaction is committed.
    Commit = 2,
    /// The transaction is rolled back completely.
    End = 3,
    /// Anything that the engine wants to find again, in the undo bytes.
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

/// A record, as [`parse`] found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// What it is.
    pub kind: Kind,
    /// [`AUTO`], and bits that mean nothing to the log.
    pub flags: u8,
    /// The transaction; 0 where it belongs to none.
    pub txn: u64,
    /// Its place in the order of changes of each of its pages.
    pub gsn: Gsn,
    /// How to undo it, or the contents of a note.
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
    /// What to do, defined by the trees.
    pub code: u8,
    /// With what.
    pub payload: &'a [u8],
}

impl<'a> Record<'a> {
    /// The operations in order.
    pub fn ops(&self) -> impl Iterator<Item = Op<'a>> + use<'a> {
        let mut rest = self.ops;
        // `parse` has walked over them once.
        std::iter::from_fn(move || {
            let (op, len) = parse_op(rest)?;
            rest = &rest[len..];
            Some(op)
        })
    }

    /// Number of operations.
    pub fn op_count(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether it is a transaction of its own.
    pub fn is_auto(&self) -> bool {
        self.flags & AUTO != 0
    }
}

/// The record at the start of `bytes`, and its length. The error says what does not fit.
pub fn parse(bytes: &[u8]) -> Result<(Record<'_>, usize), String> {
    if bytes.len() < RECORD_HEADER {
        return Err(format!("{} bytes are less than the head of a record", bytes.len()));
    }
    let len = usize::from(u16_at(bytes, 0));
    if !(RECORD_HEADER..=MAX_RECORD.min(bytes.len())).contains(&len) {
        return Err(format!("a record of {len} bytes where {} are left", bytes.len()));
    }
    let kind = Kind::from_u8(bytes[4]).ok_or_else(|| format!("no record has kind {}", bytes[4]))?;
    if bytes[7] != 0 {
        return Err(format!("the reserved byte of a record is {}", bytes[7]));
    }
    let undo_len = usize::from(u16_at(bytes, UNDO_LEN_AT));
    let undo_at = len.checked_sub(undo_len).filter(|&at| at >= RECORD_HEADER);
    let Some(undo_at) = undo_at else {
        return Err(format!("{undo_len} undo bytes in a record of {len} bytes"));
    };
    let ops = &bytes[RECORD_HEADER..undo_at];
    let (mut rest, count) = (ops, bytes[OPS_AT]);
    for index in 0..count {
        let Some((_, len)) = parse_op(rest) else {
            return Err(format!("operation {index} of {count} does not fit into its record"));
        };
        rest = &rest[len..];
    }
    if !rest.is_empty() {
        return Err(format!("{} bytes after the last operation of a record", rest.len()));
    }
    let record = Record {
        kind,
        flags: bytes[FLAGS_AT],
        txn: u64_at(bytes, 8),
        gsn: Gsn(u64_at(bytes, 16)),
        undo: &bytes[undo_at..len],
        ops,
        count,
    };
    Ok((record, len))
}

fn parse_op(bytes: &[u8]) -> Option<(Op<'_>, usize)> {
    if bytes.len() < OP_HEADER {
        return None;
    }
    let code_and_len = u32_at(bytes, 12);
    let end = OP_HEADER + (code_and_len >> 8) as usize;
    let op = Op {
        page: PageId(u64_at(bytes, 0)),
        tree: TreeId(u32_at(bytes, 8)),
        code: code_and_len as u8,
        payload: bytes.get(OP_HEADER..end)?,
    };
    Some((op, end))
}

/// Length of the record at the start of bytes that an appender wrote.
pub(crate) fn length(bytes: &[u8]) -> usize {
    usize::from(u16_at(bytes, 0))
}

/// Bytes of the head of a record without operations.
pub(crate) fn header(kind: Kind, flags: u8, txn: u64, gsn: Gsn) -> [u8; RECORD_HEADER] {
    let mut header = [0; RECORD_HEADER];
    header[4] = kind as u8;
    header[FLAGS_AT] = flags;
    header[8..16].copy_from_slice(&txn.to_le_bytes());
    header[16..24].copy_from_slice(&gsn.0.to_le_bytes());
    header
}

/// Bytes of the head of an operation.
pub(crate) fn op_header(page: PageId, tree: TreeId, code: u8, payload: usize) -> [u8; OP_HEADER] {
    let mut header = [0; OP_HEADER];
    header[0..8].copy_from_slice(&page.0.to_le_bytes());
    header[8..12].copy_from_slice(&tree.0.to_le_bytes());
    header[12..16].copy_from_slice(&(u32::from(code) | (payload as u32) << 8).to_le_bytes());
    header
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
