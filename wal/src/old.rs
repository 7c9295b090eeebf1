//! Records as the first versions of the log had them, with numbers of fixed lengths: what [`crate::LogReader`]
//! makes those of today of. `FORMAT.md` has the tables, in its history.
//!
//! Invariant: [`shorten`] accepts any bytes and never looks outside of them.
//!
//! Called by the reader alone.

use crate::record::{self, Base, Kind, MAX_FLAGS, u16_at, u32_at, u64_at};
use wattle_buffer::{Gsn, PageId, TreeId};

/// The last version of this form.
pub(crate) const LAST_VERSION: u32 = 2;
/// Bytes in front of the records of a chunk: worker u32, len u32.
pub(crate) const CHUNK_HEADER: usize = 8;
/// Bytes in front of the operations: len u16, undo_len u16, kind u8, flags u8, ops u8, zero u8, txn u64, gsn
/// u64.
const RECORD_HEADER: usize = 24;
/// Bytes in front of the payload of an operation: page u64, tree u32, and one u32 with the code in its lowest
/// 8 bits and the payload length above.
const OP_HEADER: usize = 16;

/// Appends the records in `bytes` to those in `into`, relative to the base of nothing. The error says what
/// does not fit.
pub(crate) fn shorten(mut bytes: &[u8], into: &mut Vec<u8>) -> Result<(), String> {
    while !bytes.is_empty() {
        if bytes.len() < RECORD_HEADER {
            return Err(format!("{} bytes are less than the head of a record", bytes.len()));
        }
        let len = usize::from(u16_at(bytes, 0));
        if !(RECORD_HEADER..=bytes.len()).contains(&len) {
            return Err(format!("a record of {len} bytes where {} are left", bytes.len()));
        }
        shorten_record(&bytes[..len], into)?;
        bytes = &bytes[len..];
    }
    Ok(())
}

fn shorten_record(bytes: &[u8], into: &mut Vec<u8>) -> Result<(), String> {
    let [kind, flags, count, zero] = [bytes[4], bytes[5], bytes[6], bytes[7]];
    let kind = Kind::from_u8(kind).ok_or_else(|| format!("no record has kind {kind}"))?;
    if flags > MAX_FLAGS || zero != 0 {
        return Err(format!("a record has the flags {flags} and the reserved byte {zero}"));
    }
    let undo_len = usize::from(u16_at(bytes, 2));
    let undo_at = bytes.len().checked_sub(undo_len).filter(|&at| at >= RECORD_HEADER);
    let Some(undo_at) = undo_at else {
        return Err(format!("{undo_len} undo bytes in a record of {} bytes", bytes.len()));
    };
    let (mut ops, undo) = (&bytes[RECORD_HEADER..undo_at], &bytes[undo_at..]);
    let (txn, gsn, at) = (u64_at(bytes, 8), Gsn(u64_at(bytes, 16)), into.len());
    record::header(into, kind, flags, txn, gsn, Base::default());
    for index in 0..count {
        let head = ops.get(..OP_HEADER);
        let len = head.map_or(0, |head| u32_at(head, 12) as usize >> 8);
        let (Some(head), Some(payload)) = (head, ops.get(OP_HEADER..OP_HEADER + len)) else {
            return Err(format!("operation {index} of {count} does not fit into its record"));
        };
        let (page, tree) = (PageId(u64_at(head, 0)), TreeId(u32_at(head, 8)));
        record::op_header(into, page, tree, head[12], len);
        into.extend_from_slice(payload);
        ops = &ops[OP_HEADER + len..];
    }
    if !ops.is_empty() {
        return Err(format!("{} bytes after the last operation of a record", ops.len()));
    }
    into.extend_from_slice(undo);
    record::complete(&mut into[at..], usize::from(count));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::shorten;
    use crate::record::{Base, Kind, Record, parse};
    use wattle_buffer::{Gsn, PageId, TreeId};

    /// A record of two operations and undo bytes, and the note behind it.
    fn records() -> Vec<u8> {
        let ops: [(u64, u32, u8, &[u8]); 2] =
            [(u64::MAX, 7, 1, b"payload"), (300, u32::MAX, 255, b"")];
        let mut bytes = vec![0, 0, 4, 0, 1, 3, 2, 0];
        bytes.extend_from_slice(&u64::MAX.to_le_bytes());
        bytes.extend_from_slice(&((1u64 << 63) + 5).to_le_bytes());
        for (page, tree, code, payload) in ops {
            bytes.extend_from_slice(&page.to_le_bytes());
            bytes.extend_from_slice(&tree.to_le_bytes());
            bytes.extend_from_slice(&(u32::from(code) | (payload.len() as u32) << 8).to_le_bytes());
            bytes.extend_from_slice(payload);
        }
        bytes.extend_from_slice(b"undo");
        bytes[0] = bytes.len() as u8;
        bytes.extend_from_slice(&[28, 0, 4, 0, 4, 0, 0, 0]);
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend_from_slice(b"note");
        bytes
    }

    #[test]
    fn records_of_old_versions_say_the_same() {
        // Behind something that is there already.
        let mut short = vec![9, 9];
        shorten(&records(), &mut short).expect("good records");
        let (record, len) = parse(&short[2..], Base::default()).expect("a record");
        let Record { kind, flags, txn, gsn, undo, .. } = record;
        assert_eq!((kind, flags, txn), (Kind::Change, 3, u64::MAX));
        assert_eq!((gsn, undo), (Gsn((1 << 63) + 5), &b"undo"[..]));
        let ops: Vec<_> = record.ops().map(|op| (op.page, op.tree, op.code, op.payload)).collect();
        let expected: [(_, _, _, &[u8]); 2] = [
            (PageId(u64::MAX), TreeId(7), 1, b"payload"),
            (PageId(300), TreeId(u32::MAX), 255, b""),
        ];
        assert_eq!(ops, expected);
        let (note, rest) = parse(&short[2 + len..], Base::default()).expect("a note");
        assert_eq!((note.kind, note.txn, note.gsn), (Kind::Note, 0, Gsn(1)));
        assert_eq!((note.undo, 2 + len + rest), (&b"note"[..], short.len()));
    }

    #[test]
    fn bad_records_of_old_versions_are_errors() {
        let good = records();
        for len in 1..good.len() {
            let cut = shorten(&good[..len], &mut Vec::new());
            assert_eq!(cut.is_ok(), len == usize::from(good[0]), "{len} bytes");
        }
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bytes = good.clone();
                bytes[at] ^= 1 << bit;
                let mut short = Vec::new();
                if shorten(&bytes, &mut short).is_ok() {
                    parse(&short, Base::default()).expect("a record was made");
                }
            }
        }
        for (at, value) in [(0, 23), (2, 250), (4, 0), (4, 5), (5, 16), (6, 1), (6, 3), (7, 1)] {
            let mut bytes = good.clone();
            bytes[at] = value;
            assert!(shorten(&bytes, &mut Vec::new()).is_err(), "byte {at} is {value}");
        }
    }
}
