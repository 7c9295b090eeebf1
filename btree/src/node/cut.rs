//! Where a full leaf is cut in two for a record that is not in it yet: by a split, or because one
//! part moves to a neighbour.
//!
//! A cut that ignored the new record would leave leaves of few records badly balanced: three
//! records halve into one and two, and the fourth joins the two. So the new record counts, at its
//! place among the others. If the cut is directly before or after it, the separator is chosen
//! between its key and the neighbour's, so that the new record goes to the side that it counted
//! for.

use super::{layout::*, view::NodeView};

/// A new record, or in an inner node a new separator, that found no room.
#[derive(Clone, Copy, Debug)]
pub struct Pending<'k> {
    /// Its position among the entries.
    pub position: usize,
    /// Its key.
    pub key: &'k [u8],
    /// Length of its value; 0 in an inner node.
    pub value_len: usize,
}

/// Inserts that were each directly beside the previous one, and that the new one continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// Each was after the previous one.
    Ascending,
    /// Each was before the previous one.
    Descending,
}

/// A cut of a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// First record of the right part.
    pub position: usize,
    /// Fence between the parts.
    pub separator: Vec<u8>,
    /// The new record belongs to the left part.
    pub pending_left: bool,
}

/// Entries of a leaf with a new record: `count + 1` of them. A cut at `at` leaves `at` entries in
/// the left part.
#[derive(Clone, Copy)]
pub(crate) struct WithPending<'a> {
    view: NodeView<'a>,
    pending: Pending<'a>,
}

impl<'a> WithPending<'a> {
    pub fn new(view: NodeView<'a>, pending: Pending<'a>) -> Self {
        debug_assert!(!view.is_inner() && pending.position <= view.count());
        WithPending { view, pending }
    }

    /// Number of entries.
    pub fn count(self) -> usize {
        self.view.count() + 1
    }

    /// Bytes of an entry, in heap and arrays.
    pub fn len(self, entry: usize) -> usize {
        let Pending { position, key, value_len } = self.pending;
        let heap = match entry {
            _ if entry == position => {
                let tail = key.len().saturating_sub(self.view.prefix().len() + HEAD_LEN);
                round8(value_len + tail)
            }
            _ => self.view.slot(entry - usize::from(entry > position)).heap_len(),
        };
        heap + LEAF_ENTRY
    }

    /// Bytes of all entries.
    pub fn total(self) -> usize {
        let others = self.view.record_bytes() + LEAF_ENTRY * self.view.count();
        others + self.len(self.pending.position)
    }

    /// The cut, from 1 to `count - 1`, whose left part has the number of bytes nearest to `target`;
    /// of two that are as near, the right one: ascending inserts are more frequent than descending
    /// ones.
    fn nearest(self, target: usize) -> usize {
        let (mut left, mut best) = (0, (usize::MAX, 1));
        for at in 1..self.count() {
            left += self.len(at - 1);
            let distance = left.abs_diff(target);
            if distance > best.0 {
                break;
            }
            best = (distance, at);
        }
        best.1
    }

    /// The cut whose left part has about `target` bytes. A shorter separator near the best cut is
    /// worth more than exact balance: it is stored in two fences and in the parent.
    pub fn best(self, target: usize) -> Cut {
        let (nearest, last) = (self.nearest(target), self.count() - 1);
        let around = last / 16;
        let around = nearest.saturating_sub(around).max(1)..=(nearest + around).min(last);
        let best = around.min_by_key(|at| (self.separator_len(*at), at.abs_diff(nearest)));
        self.cut(best.unwrap_or(nearest))
    }

    /// Length of the separator of a cut.
    fn separator_len(self, at: usize) -> usize {
        let Pending { position, .. } = self.pending;
        match at == position || at == position + 1 {
            true => self.cut(at).separator.len(),
            false => {
                let position = at - usize::from(at > position);
                self.view.prefix().len() + self.view.separator_len(position)
            }
        }
    }

    /// The cut at `at`, from 1 to `count - 1`.
    pub fn cut(self, at: usize) -> Cut {
        let Pending { position: new, key, .. } = self.pending;
        let (mut neighbour, pending_left) = (Vec::new(), at > new);
        let position = at - usize::from(pending_left);
        let separator = match at {
            _ if at == new => {
                self.view.key_to(new - 1, &mut neighbour);
                shortest_separator(&neighbour, key).to_vec()
            }
            _ if at == new + 1 => {
                self.view.key_to(new, &mut neighbour);
                shortest_separator(key, &neighbour).to_vec()
            }
            _ => self.view.separator_at(position),
        };
        Cut { position, separator, pending_left }
    }
}
