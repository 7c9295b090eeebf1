//! Undo entries: the state of a record before a change, in the log and in transactions. They name
//! the record by key, because it may be in another leaf when it is restored.
//!
//! Changes are undone in reverse order. Each undone entry writes one log record without undo, even
//! if it changes nothing. So recovery after a crash continues an interrupted rollback. It must not
//! start over, because other transactions may have changed records after they were restored.
//!
//! Encoding: tree u32, kind u8, key length u16, key, then by kind
//! - 0 (absent): nothing;
//! - 1 (value) and 2 (special value): the value;
//! - 3 (patch): offset u16 and the old bytes.
//!
//! In a log record with flag 2 ([`OF_OP`]) only the kind and the bytes after the key are stored;
//! tree and key are those of the record's first op. This is the form of every change of a record
//! whose page is not logged as a whole.

use crate::{
    node::{MAX_KEY, MAX_RECORD},
    record::{Op, key_of},
};
use wattle_buffer::TreeId;
use wattle_wal::record::Record;

/// Flag of a log record whose undo bytes leave out tree and key.
pub(crate) const OF_OP: u8 = 2;

/// The state of a record before a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before<'a> {
    /// There was no record.
    Absent,
    /// Its value.
    Value {
        /// The bytes.
        bytes: &'a [u8],
        /// The bytes are a descriptor or a ghost.
        special: bool,
    },
    /// Some bytes of the value; the others are unchanged.
    Patch {
        /// Offset in the value.
        offset: usize,
        /// The bytes that were there.
        bytes: &'a [u8],
    },
}

/// The state of a record to restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undo<'a> {
    /// Tree of the record.
    pub tree: TreeId,
    /// Key of the record.
    pub key: &'a [u8],
    /// State before the change.
    pub before: Before<'a>,
}

/// Bytes before the key.
const FRONT: usize = 7;

impl<'a> Undo<'a> {
    /// Calls `write` with the parts of the encoding.
    pub fn encode<T>(&self, write: impl FnOnce(&[&[u8]]) -> T) -> T {
        debug_assert!(self.key.len() <= MAX_KEY, "a key of {} bytes", self.key.len());
        let (kind, bytes) = self.before.parts();
        let mut front = [0; FRONT];
        front[..4].copy_from_slice(&self.tree.0.to_le_bytes());
        front[4] = kind;
        front[5..].copy_from_slice(&(self.key.len() as u16).to_le_bytes());
        match self.before {
            Before::Patch { offset, .. } => {
                write(&[&front, self.key, &(offset as u16).to_le_bytes(), bytes])
            }
            _ => write(&[&front, self.key, bytes]),
        }
    }

    /// Reads the output of [`Undo::encode`].
    ///
    /// # Errors
    /// A sentence: the bytes are not an undo entry.
    pub fn decode(bytes: &'a [u8]) -> Result<Undo<'a>, String> {
        let short = || "an undo entry is cut short".to_string();
        let (front, rest) = bytes.split_at_checked(FRONT).ok_or_else(short)?;
        let tree = TreeId(u32::from_le_bytes(front[..4].try_into().expect("4 bytes")));
        let len = usize::from(u16::from_le_bytes([front[5], front[6]]));
        let (key, rest) = rest.split_at_checked(len).ok_or_else(short)?;
        let before = Before::decode(front[4], rest)?;
        Ok(Undo { tree, key, before })
    }

    /// True if this entry is about the record that `op` changes in a page of `tree`, so that
    /// [`Undo::encode_of_op`] may write it.
    #[inline(always)]
    pub(crate) fn is_of(&self, op: &Op<'_>, tree: TreeId) -> bool {
        self.tree == tree && op.key().is_some_and(|key| std::ptr::eq(key, self.key))
    }

    /// As [`Undo::encode`], for a log record with the flag [`OF_OP`].
    #[inline(always)]
    pub(crate) fn encode_of_op<T>(&self, write: impl FnOnce(&[&[u8]]) -> T) -> T {
        let (kind, bytes) = self.before.parts();
        match self.before {
            Before::Patch { offset, .. } => {
                let [low, high] = (offset as u16).to_le_bytes();
                write(&[&[kind, low, high], bytes])
            }
            _ => write(&[&[kind], bytes]),
        }
    }

    /// Reads the undo bytes of a log record that has some.
    ///
    /// # Errors
    /// A sentence: the bytes are not an undo entry.
    pub fn of(record: &Record<'a>) -> Result<Undo<'a>, String> {
        if record.flags & OF_OP == 0 {
            return Undo::decode(record.undo);
        }
        let (&kind, rest) = record.undo.split_first().ok_or("an undo entry is cut short")?;
        let op = record.ops().next().ok_or("an undo entry is of an operation that is not there")?;
        let key = key_of(op.code, op.payload)?.ok_or_else(|| {
            format!("an undo entry is of operation {}, which changes no record", op.code)
        })?;
        Ok(Undo { tree: op.tree, key, before: Before::decode(kind, rest)? })
    }
}

impl<'a> Before<'a> {
    /// Its kind, and the old bytes.
    #[inline(always)]
    fn parts(&self) -> (u8, &'a [u8]) {
        match *self {
            Before::Absent => (0, &[]),
            Before::Value { bytes, special: false } => (1, bytes),
            Before::Value { bytes, special: true } => (2, bytes),
            Before::Patch { offset, bytes } => {
                debug_assert!(offset + bytes.len() <= MAX_RECORD, "a patch outside of a value");
                (3, bytes)
            }
        }
    }

    /// Decodes the part after the key.
    fn decode(kind: u8, rest: &'a [u8]) -> Result<Before<'a>, String> {
        Ok(match kind {
            0 if rest.is_empty() => Before::Absent,
            1 => Before::Value { bytes: rest, special: false },
            2 => Before::Value { bytes: rest, special: true },
            3 => {
                let (offset, bytes) =
                    rest.split_at_checked(2).ok_or("an undo entry is cut short")?;
                let offset = usize::from(u16::from_le_bytes([offset[0], offset[1]]));
                Before::Patch { offset, bytes }
            }
            kind => return Err(format!("an undo entry has the unknown kind {kind}")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Before, OF_OP, Undo};
    use crate::record::{Op, code};
    use wattle_buffer::TreeId;
    use wattle_wal::record::{Base, parse};

    const TREE: TreeId = TreeId(7);

    /// Code and payload, if there is one.
    type Operation<'a> = Option<(u8, &'a [u8])>;

    /// A record of one operation, or none, with these undo bytes.
    fn record(op: Operation<'_>, flags: u8, undo: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 0, 1 | flags << 4, u8::from(op.is_some()), 0, 0, 0, 0];
        if let Some((code, payload)) = op {
            let (code, len, tree) = (u64::from(code), payload.len() as u64, u64::from(TREE.0));
            bytes.extend_from_slice(&(code | len << 8 | tree << 20).to_le_bytes());
            bytes.extend_from_slice(payload);
        }
        bytes.extend_from_slice(undo);
        let len = bytes.len() as u16;
        bytes[0..2].copy_from_slice(&len.to_le_bytes());
        bytes
    }

    #[test]
    fn what_is_read_from_a_record_is_what_was_written_in_either_form() {
        let (key, value) = (&b"key"[..], &b"a value"[..]);
        let ops = [
            Op::Insert { key, value, special: false },
            Op::Replace { key, value, special: true },
            Op::Patch { key, offset: 300, bytes: value },
            Op::Remove { key },
        ];
        let befores = [
            Before::Absent,
            Before::Value { bytes: b"", special: false },
            Before::Value { bytes: b"before", special: true },
            Before::Patch { offset: 300, bytes: b"was" },
        ];
        for op in &ops {
            let (code, front, parts) = op.parts();
            let payload = [front.bytes(), parts[0], parts[1]].concat();
            for before in befores {
                let undo = Undo { tree: TREE, key, before };
                assert!(undo.is_of(op, TREE) && !undo.is_of(op, TreeId(8)));
                let [long, short] = [
                    undo.encode(|parts| parts.concat()),
                    undo.encode_of_op(|parts| parts.concat()),
                ];
                assert!(!short.is_empty(), "a record without undo takes a change back");
                assert_eq!(long.len(), short.len() + 6 + key.len());
                for (flags, undo_bytes) in [(0, &long), (OF_OP, &short)] {
                    let bytes = record(Some((code, &payload)), flags, undo_bytes);
                    let (record, _) = parse(&bytes, Base::default()).expect("a record");
                    assert_eq!(Undo::of(&record), Ok(undo), "{op:?}, {before:?}, flags {flags}");
                }
            }
        }
        // Another key of the same bytes is another one: it costs a few bytes.
        let other = key.to_vec();
        let undo = Undo { tree: TREE, key: &other, before: Before::Absent };
        assert!(!undo.is_of(&ops[0], TREE));
    }

    #[test]
    fn undo_of_an_operation_that_names_no_record_is_an_error() {
        let image = (code::IMAGE, &[0; 4][..]);
        let cut = (code::INSERT, &[9, 0, 0, b'k'][..]);
        let remove = (code::REMOVE, &b"key"[..]);
        let bad: [(Operation<'_>, &[u8]); 6] = [
            (None, &[0]),
            (Some(image), &[0]),
            (Some(cut), &[0]),
            (Some(remove), &[4]),
            (Some(remove), &[0, 0]),
            (Some(remove), &[3, 1]),
        ];
        for (op, undo) in bad {
            let bytes = record(op, OF_OP, undo);
            let (record, _) = parse(&bytes, Base::default()).expect("a record");
            assert!(Undo::of(&record).is_err(), "{op:?}, {undo:?}");
        }
    }
}
