//! Undo: what the log and a transaction remember of a record before a change, by key, because the
//! record may be in another leaf by the time it is put back.
//!
//! Putting back is done in the reverse order of the changes, and each entry that is put back is one
//! record of the log without undo, even if it changes nothing. So after a crash recovery goes on where
//! it stopped. It must not begin again: others may have changed records that were put back.
//!
//! Encoded: tree u32, kind u8, key length u16, key, then for kind 0 (was absent) nothing, 1 (value)
//! and 2 (special value) the value, 3 (patch) offset u16 and the bytes that were there.

use crate::{
    author::Author,
    journal::Context,
    node::{NodeMut, NodeView},
    record::Op,
    tree::{Step, Stop, Tree},
};
use wattle_buffer::TreeId;

/// A record before a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before<'a> {
    /// It was not there.
    Absent,
    /// Its value.
    Value {
        /// The bytes.
        bytes: &'a [u8],
        /// They are a descriptor.
        special: bool,
    },
    /// Some bytes of its value; the others are the same.
    Patch {
        /// Where in the value.
        offset: usize,
        /// What was there.
        bytes: &'a [u8],
    },
}

/// An entry to put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undo<'a> {
    /// Tree of the record.
    pub tree: TreeId,
    /// Key of the record.
    pub key: &'a [u8],
    /// What it was.
    pub before: Before<'a>,
}

/// Bytes in front of the key.
const FRONT: usize = 7;

impl<'a> Undo<'a> {
    /// Calls `write` with the parts of the encoding.
    pub fn encode<T>(&self, write: impl FnOnce(&[&[u8]]) -> T) -> T {
        let (kind, bytes) = match self.before {
            Before::Absent => (0, &[][..]),
            Before::Value { bytes, special: false } => (1, bytes),
            Before::Value { bytes, special: true } => (2, bytes),
            Before::Patch { bytes, .. } => (3, bytes),
        };
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

    /// Reads what [`Undo::encode`] wrote.
    ///
    /// # Errors
    /// A sentence.
    pub fn decode(bytes: &'a [u8]) -> Result<Undo<'a>, String> {
        let short = || "an undo entry is cut short".to_string();
        let (front, rest) = bytes.split_at_checked(FRONT).ok_or_else(short)?;
        let tree = TreeId(u32::from_le_bytes(front[..4].try_into().expect("4 bytes")));
        let len = usize::from(u16::from_le_bytes([front[5], front[6]]));
        let (key, rest) = rest.split_at_checked(len).ok_or_else(short)?;
        let before = match front[4] {
            0 if rest.is_empty() => Before::Absent,
            1 => Before::Value { bytes: rest, special: false },
            2 => Before::Value { bytes: rest, special: true },
            3 => {
                let (offset, bytes) = rest.split_at_checked(2).ok_or_else(short)?;
                let offset = usize::from(u16::from_le_bytes([offset[0], offset[1]]));
                Before::Patch { offset, bytes }
            }
            kind => return Err(format!("an undo entry has the unknown kind {kind}")),
        };
        Ok(Undo { tree, key, before })
    }
}

impl Tree {
    /// Puts a record back to what it was before a change. Gives whether its leaf should be merged
    /// now ([`Tree::merge_step`]).
    pub fn restore_step<A: Author>(
        &self,
        cx: &Context,
        key: &[u8],
        before: Before<'_>,
        author: &mut A,
    ) -> Step<bool> {
        cx.check_room(true)?;
        let path = self.descend(key, 0)?;
        let search = self.checked(&path.node, path.node_ref().search(key))?;
        let mut leaf = path.node.upgrade()?;
        let op = match (search.found, before) {
            (false, Before::Absent | Before::Patch { .. }) => {
                cx.log_nothing(&leaf, author);
                author.done(&leaf, key);
                return Ok(false);
            }
            (true, Before::Absent) => {
                NodeMut::new(&mut leaf.page_mut()).remove_leaf(search.position);
                Op::Remove { key }
            }
            (true, Before::Patch { offset, bytes }) => {
                let view = NodeView::from(leaf.bytes());
                if view.value(search.position).0.len() < offset + bytes.len() {
                    // An older entry has the whole value.
                    cx.log_nothing(&leaf, author);
                    author.done(&leaf, key);
                    return Ok(false);
                }
                NodeMut::new(&mut leaf.page_mut()).write_value(search.position, offset, bytes);
                Op::Patch { key, offset, bytes }
            }
            (found, Before::Value { bytes, special }) => {
                let mut page = leaf.page_mut();
                let mut node = NodeMut::new(&mut page);
                let done = match found {
                    true => node.replace_value(search.position, bytes, special),
                    false => node.insert_leaf(search.position, key, bytes, special),
                };
                if done.is_err() {
                    leaf.unchanged();
                    drop(leaf);
                    self.split_step(cx, key, 0)?;
                    return Err(Stop::Restart);
                }
                match found {
                    true => Op::Replace { key, value: bytes, special },
                    false => Op::Insert { key, value: bytes, special },
                }
            }
        };
        cx.log_change(&mut leaf, op, None, author);
        author.done(&leaf, key);
        let is_root = leaf.frame() == self.root;
        let removed = matches!(op, Op::Remove { .. });
        Ok(removed && !is_root && crate::merge::is_underfull(leaf.bytes().into()))
    }
}
