//! The parts of a change of one record that inserts, updates and changes in place have in common.
//! Each step of `write.rs` and `modify.rs` does in order:
//! 1. *find*: [`Tree::leaf_of`], then a search in the leaf, optimistically, without a latch;
//! 2. *latch*: `Optimistic::upgrade` succeeds only if nothing changed since the search;
//! 3. *check*: the [`Author`] decides under the latch whether it may change the record;
//! 4. *change and log*: [`Tree::overwrite`], [`Tree::replace`], or an insert;
//! 5. *done*: the author makes the version before the change reachable, and the run goes to the
//!    next record ([`next_of`]) if it lies in the same leaf ([`Tree::next_in_leaf`]).
//!
//! If the leaf has no room, [`Tree::make_room`] purges ghosts, gives records to a neighbour or
//! splits the leaf, and the step runs again.

use crate::{
    author::Author,
    journal::{Context, Journal},
    node::{NodeMut, NodeRef, NodeView, Search},
    record::Op,
    step::{Step, Stop},
    tree::Tree,
    undo::{Before, Undo},
};
use wattle_buffer::{Exclusive, For, Optimistic};

/// Patches shorter than this share of the value are logged instead of the value, percent.
const PATCH_PERCENT: usize = 80;

impl Tree {
    /// The leaf for `key`. A session that writes to the same leaf again needs no descent.
    #[inline(always)]
    pub(crate) fn leaf_of<'p>(&'p self, cx: &Context, key: &[u8]) -> Step<Optimistic<'p>> {
        if let Some(node) = cx.last_leaf(&self.pool, self.id)
            && self.checked(&node, NodeRef::from(node.page()).covers(key))?
        {
            return Ok(node);
        }
        Ok(self.descend_to_change(key)?.node)
    }

    /// Tracks a read of the leaf when the record to be changed is absent, because such a write has
    /// only read.
    pub(crate) fn track_absent(&self, node: Optimistic<'_>) {
        node.track();
        if self.pool.is_traced() {
            // The route is recorded already.
            node.record(|_| ());
        }
    }

    /// The position of the next record of a run, after `last`, or the position for it, if that is
    /// in the latched leaf. `None` also on any failure: a step for this record alone reports it.
    #[inline]
    pub(crate) fn next_in_leaf(
        &self,
        cx: &Context,
        leaf: &Exclusive<'_>,
        last: (&[u8], Search),
        key: &[u8],
    ) -> Option<Search> {
        cx.check_room(false).ok()?;
        let node = NodeRef::from(leaf.page());
        if last.0 < key {
            return node.search_after(last.1.position, key, For::Write).ok()?;
        }
        match node.covers(key) {
            Ok(true) => node.search_for(key, For::Write).ok(),
            _ => None,
        }
    }

    /// Replaces the value of a record, which may change its length. False: there is no room, and
    /// nothing changed.
    pub(crate) fn replace<A: Author>(
        &self,
        cx: &Context,
        leaf: &mut Exclusive<'_>,
        position: usize,
        key: &[u8],
        value: (&[u8], bool),
        author: &mut A,
    ) -> bool {
        let mut old = cx.scratch.borrow_mut();
        old.clear();
        let (bytes, special) = NodeView::from(leaf.bytes()).value(position);
        if !author.is_auto() {
            old.extend_from_slice(bytes);
        }
        let mut page = leaf.page_mut();
        if NodeMut::new(&mut page).replace_value(position, value.0, value.1).is_err() {
            return false;
        }
        let undo = Undo { tree: self.id, key, before: Before::Value { bytes: &old, special } };
        let op = Op::Replace { key, value: value.0, special: value.1 };
        cx.log_change(leaf, op, Some(undo), author);
        true
    }

    /// Overwrites an inline value by one of the same length that differs only in the bytes
    /// `from..to`. Logs only those bytes if that is shorter.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "one flat call on the path of every write")]
    pub(crate) fn overwrite<A: Author>(
        &self,
        cx: &Context,
        leaf: &mut Exclusive<'_>,
        position: usize,
        key: &[u8],
        value: &[u8],
        (from, to): (usize, usize),
        author: &mut A,
    ) {
        debug_assert!(from <= to && to <= value.len(), "the range {from}..{to} leaves the value");
        if matches!(cx.journal, Journal::Off) {
            NodeMut::new(&mut leaf.page_mut()).write_value(position, from, &value[from..to]);
            return cx.log_change(leaf, Op::Replace { key, value, special: false }, None, author);
        }
        let mut old = cx.scratch.borrow_mut();
        old.clear();
        let (bytes, special) = NodeView::from(leaf.bytes()).value(position);
        debug_assert!(!special && bytes.len() == value.len(), "the value changes its length");
        let (from, to) = match (to - from) * 100 < value.len() * PATCH_PERCENT {
            true => (from, to),
            false => (0, value.len()),
        };
        let is_patch = to - from < value.len();
        if !author.is_auto() {
            old.extend_from_slice(&bytes[from..to]);
        }
        NodeMut::new(&mut leaf.page_mut()).write_value(position, from, &value[from..to]);
        let (op, before) = if is_patch {
            let bytes = &value[from..to];
            (Op::Patch { key, offset: from, bytes }, Before::Patch { offset: from, bytes: &old })
        } else {
            let before = Before::Value { bytes: &old, special: false };
            (Op::Replace { key, value, special: false }, before)
        };
        cx.log_change(leaf, op, Some(Undo { tree: self.id, key, before }), author);
    }

    /// Makes room for a value of `value_len` bytes in a full leaf: purges the ghosts that no
    /// snapshot needs, or gives records to a neighbour, or splits the leaf. The step that found it
    /// full runs again.
    #[cold]
    pub(crate) fn make_room<A: Author, T>(
        &self,
        cx: &Context,
        mut leaf: Exclusive<'_>,
        key: &[u8],
        value_len: usize,
        author: &mut A,
    ) -> Step<T> {
        leaf.unchanged();
        author.undone(key);
        if !self.purge_leaf(cx, &mut leaf, author) {
            // Asked under the latch that is held anyway: a run of inserts needs no other descent.
            let may_redistribute = self.may_redistribute(&leaf, key, value_len).is_some();
            drop(leaf);
            if !may_redistribute || !self.redistribute_step(cx, key, value_len)? {
                self.split_step(cx, key, value_len)?;
            }
        }
        Err(Stop::Restart)
    }
}

/// Counts the current record of a run as done, and moves on to the next one, if there is one.
#[inline(always)]
pub(crate) fn next_of<T: Copy>(run: &[T], done: &mut usize, turn_to: impl FnOnce(T)) -> Option<T> {
    debug_assert!(*done < run.len(), "the run ended before this record");
    *done += 1;
    let next = run.get(*done).copied();
    next.inspect(|next| turn_to(*next))
}
