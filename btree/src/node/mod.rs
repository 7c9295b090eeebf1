//! The node of a B+-tree: a slotted page of 4 KiB with fences, a common prefix, and dense key heads
//! that a vector compare searches.
//!
//! * [`NodeRef`] reads racily, for optimistic descents (`search`).
//! * [`NodeView`] reads plainly and [`NodeMut`] writes, under an exclusive latch (`view`, `edit`).
//! * [`NodeBuilder`] makes nodes from sorted input (`bulk`).
//! * Splits, merges, the merge of X neighbours into X - 1 and moves of records between neighbours
//!   make images of new nodes (`cut`, `split`, `merge`, `shift`).
//! * Every page must pass [`check()`] when it is loaded; [`check_full`] is for verification.
//!
//! The layout and its limits are in `layout`. This module knows no latches, frames or logs.

mod build;
mod bulk;
mod check;
mod cut;
mod edit;
mod layout;
mod merge;
mod search;
mod shift;
mod split;
#[cfg(test)]
mod tests;
mod view;

pub use bulk::NodeBuilder;
pub use check::{check, check_full};
pub use cut::{Pending, Run};
pub use edit::NodeMut;
pub use layout::{MAX_KEY, MAX_RECORD, fits_inline, shortest_separator};
pub use merge::{merge_into, merged_size, redistribute};
pub(crate) use search::LEAF_LINES;
pub use search::{NodeRef, Search};
pub use shift::Shift;
pub(crate) use shift::take;
pub use split::Split;
pub use view::NodeView;

use view::Item;

/// The node has no room for this, not even after a compaction. It is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Entries that a new node takes over.
#[derive(Clone, Copy)]
pub(crate) enum Piece<'a> {
    /// The entries `from..to` of a node and, of an inner node, the children on both their sides.
    Range { view: NodeView<'a>, from: usize, to: usize },
    /// A separator between the children of the previous and the next piece.
    Key(&'a [u8]),
}

impl<'a> Piece<'a> {
    /// All entries of a node.
    fn all(view: NodeView<'a>) -> Self {
        Piece::Range { view, from: 0, to: view.count() }
    }

    fn items(self) -> impl Iterator<Item = Item<'a>> + Clone {
        let (range, entries) = match self {
            Piece::Range { view, from, to } => (from..to, Ok(view.entries())),
            Piece::Key(key) => (0..1, Err(key)),
        };
        range.map(move |position| match entries {
            Ok(entries) => entries.item(position),
            Err(key) => Item::new(key, &[], false),
        })
    }
}

/// The entries of all pieces.
pub(crate) fn items<'a>(pieces: &[Piece<'a>]) -> impl Iterator<Item = Item<'a>> + Clone {
    pieces.iter().flat_map(|piece| piece.items())
}

/// The swips of all pieces of inner nodes.
pub(crate) fn children<'a>(pieces: &[Piece<'a>]) -> impl Iterator<Item = u64> {
    pieces.iter().flat_map(|piece| {
        match *piece {
            Piece::Range { view, from, to } => Some((from..to + 1).map(move |at| view.swip(at))),
            Piece::Key(_) => None,
        }
        .into_iter()
        .flatten()
    })
}
