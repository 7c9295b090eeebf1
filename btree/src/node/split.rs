//! Splits of one node in two.
//!
//! A node with two records, or with one separator, can always be split so that both halves fit,
//! although the new fence may be as long as a key. Proof: take the longest left half that fits. If
//! it cannot take one more record, then the rest of the right half after that record is smaller
//! than the fence that made it fail, so it fits beside the largest record. The record that did not
//! fit may still find no room in its half, if there are three large ones; then the tree splits
//! again. A leaf with one record splits into that record and an empty leaf for the new one.

use super::{
    Full, NodeMut, Piece,
    build::{NodeOutline, Plan},
    children,
    cut::{Pending, Run, WithPending},
    items,
    layout::*,
    view::NodeView,
};
use wattle_buffer::{PageId, PageImage, PageKind, page::header};

/// A way to split a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Leaf: first record of the right half. Inner node: the separator that moves up.
    pub position: usize,
    /// Fence between the halves, and separator for the parent.
    pub separator: Vec<u8>,
    /// The layouts of the halves; planning them proves that they fit.
    plans: [Plan; 2],
    /// See [`Split::is_sequential`].
    sequential: bool,
}

impl Split {
    /// The split leaves the other records together, because the new one continues a sequence.
    pub fn is_sequential(&self) -> bool {
        self.sequential
    }
}

impl<'a> NodeView<'a> {
    /// True if both halves get something: a record and room for another, or a separator.
    pub fn can_split(self) -> bool {
        self.count() >= 1
    }

    /// Split near `position`, for a leaf of at least two records.
    pub fn split_near(self, position: usize) -> Split {
        self.nearest_fitting(position)
    }

    /// Split that balances bytes, for a leaf of at least two records or an inner node of at least
    /// one separator.
    pub fn choose_balanced_split(self) -> Split {
        let count = self.count();
        assert!(count + usize::from(self.is_inner()) >= 2);
        let middle = self.middle();
        // A shorter separator near the middle is worth more than exact balance: it is stored in two
        // fences and in the parent.
        let (low, high) = self.positions();
        let around = middle.saturating_sub(count / 16).max(low)..=(middle + count / 16).min(high);
        let shortest = around
            .min_by_key(|position| (self.separator_len(*position), position.abs_diff(middle)))
            .unwrap_or(middle);
        self.nearest_fitting(shortest)
    }

    /// Split for a new entry that found no room. A split for a sequence of inserts leaves the other
    /// entries together, so that ascending and descending inserts leave full nodes. Other splits
    /// halve the bytes, with the new record.
    pub fn choose_split(self, new: Pending<'_>, run: Option<Run>) -> Split {
        let (count, (first, last)) = (self.count(), self.positions());
        if self.is_inner() {
            return match new.position {
                _ if count <= 2 => self.choose_balanced_split(),
                0 => self.nearest_fitting(first),
                at if at == count => self.nearest_fitting(last),
                _ => self.choose_balanced_split(),
            };
        }
        assert!(count > 0, "an empty leaf takes any record");
        let entries = WithPending::new(self, new);
        if let Some(at) = self.sequential_cut(new, run) {
            let cut = entries.cut(at);
            // In a leaf that is full to the last byte a longer fence finds no room.
            let split = self.fitting(cut.position, cut.separator);
            let nearest = || self.nearest_fitting(cut.position.clamp(first, last));
            return Split { sequential: true, ..split.unwrap_or_else(nearest) };
        }
        let cut = entries.best(entries.total() / 2);
        let position = cut.position.clamp(first, last);
        self.fitting(cut.position, cut.separator).unwrap_or_else(|| self.nearest_fitting(position))
    }

    /// True if a split for this record leaves the others together: it continues a run, or is the
    /// first or last one of the tree.
    pub fn is_sequential(self, new: Pending<'_>, run: Option<Run>) -> bool {
        self.sequential_cut(new, run).is_some()
    }

    /// The cut that lets a sequence of inserts fill leaves. In the middle of its leaf a run
    /// continues at the end of its part.
    fn sequential_cut(self, new: Pending<'_>, run: Option<Run>) -> Option<usize> {
        match (new.position, run) {
            (at, _) if at == self.count() => {
                (run.is_some() || self.upper().is_none()).then_some(at)
            }
            (0, _) => (run.is_some() || self.lower().is_empty()).then_some(1),
            (at, Some(Run::Ascending)) => Some(at + 1),
            (at, Some(Run::Descending)) => Some(at),
            (_, None) => None,
        }
    }

    /// First and last position to split at that leave no empty leaf.
    fn positions(self) -> (usize, usize) {
        if self.is_inner() { (0, self.count() - 1) } else { (1, self.count().max(2) - 1) }
    }

    /// Position with about as many bytes on both sides.
    fn middle(self) -> usize {
        let entry = entry_len(self.is_inner());
        let total = self.record_bytes() + entry * self.count();
        let mut left = 0;
        let (low, high) = self.positions();
        for position in 0..self.count() {
            let len = self.slot(position).heap_len() + entry;
            if 2 * left + len >= total {
                return position.clamp(low, high);
            }
            left += len;
        }
        high
    }

    /// The position nearest to `start` at which both halves fit.
    fn nearest_fitting(self, start: usize) -> Split {
        let (low, high) = self.positions();
        (0..=high)
            .flat_map(|distance| [start.checked_sub(distance), start.checked_add(distance)])
            .flatten()
            .filter(|position| (low..=high).contains(position))
            .find_map(|position| self.fitting(position, self.separator_at(position)))
            .expect("a node can be split, see the head of the file")
    }

    pub(crate) fn separator_at(self, position: usize) -> Vec<u8> {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        self.key_to(position, &mut right);
        if !self.is_inner() {
            self.key_to(position - 1, &mut left);
            right.truncate(common_prefix(&left, &right) + 1);
        }
        right
    }

    /// Length of the separator at a position, without the prefix.
    pub(crate) fn separator_len(self, position: usize) -> usize {
        let suffix_len = self.slot(position).suffix_len();
        if self.is_inner() {
            return suffix_len;
        }
        let different = self.head(position - 1) ^ self.head(position);
        if different != 0 {
            return suffix_len.min(different.leading_zeros() as usize / 8 + 1);
        }
        let common = common_prefix(self.tail(position - 1), self.tail(position));
        suffix_len.min(HEAD_LEN + common + 1)
    }

    /// The entries of both halves.
    fn halves(self, position: usize) -> (Piece<'a>, Piece<'a>) {
        let (view, after) = (self, position + usize::from(self.is_inner()));
        let left = Piece::Range { view, from: 0, to: position };
        (left, Piece::Range { view, from: after, to: self.count() })
    }

    fn outlines<'k>(self, separator: &'k [u8]) -> (NodeOutline<'k>, NodeOutline<'k>)
    where
        'a: 'k,
    {
        let inner = self.is_inner();
        let left =
            NodeOutline { lower: self.lower(), upper: Some(separator), inner, pending: None };
        (left, NodeOutline { lower: separator, upper: self.upper(), ..left })
    }

    /// The split at `position`, if both halves fit.
    fn fitting(self, position: usize, separator: Vec<u8>) -> Option<Split> {
        let (left, right) = self.halves(position);
        let (left_outline, right_outline) = self.outlines(&separator);
        let plans =
            [left_outline.plan(left.items()).ok()?, right_outline.plan(right.items()).ok()?];
        Some(Split { position, separator, plans, sequential: false })
    }

    /// A split from the log, if it suits this node.
    pub(crate) fn split_at(self, position: usize, separator: &[u8]) -> Option<Split> {
        let suits = position + usize::from(self.is_inner()) <= self.count()
            && separator.len() <= MAX_KEY
            && self.lower() < separator
            && self.upper().is_none_or(|upper| separator < upper);
        suits.then(|| self.fitting(position, separator.to_vec())).flatten()
    }

    /// Builds both halves of a node that has not changed since the split was chosen. Level and tree
    /// stay; GSN and checksum are 0.
    pub fn split_into(
        self,
        split: &Split,
        left: &mut PageImage,
        right: &mut PageImage,
        left_page: PageId,
        right_page: PageId,
    ) {
        self.half_into(split, false, left, left_page);
        self.half_into(split, true, right, right_page);
    }

    /// As [`NodeView::split_into`], for the right half or the left one.
    pub(crate) fn half_into(self, split: &Split, right: bool, image: &mut PageImage, page: PageId) {
        let (pieces, outlines) = (self.halves(split.position), self.outlines(&split.separator));
        let (piece, outline, plan) = match right {
            false => (pieces.0, outlines.0, &split.plans[0]),
            true => (pieces.1, outlines.1, &split.plans[1]),
        };
        self.begin(image, page);
        outline.lay_out_as(plan, image, piece.items(), children(&[piece]));
    }

    /// Builds a node of the same kind, level and tree with another page id, fences and entries.
    pub(crate) fn build(
        self,
        image: &mut PageImage,
        page: PageId,
        outline: NodeOutline<'_>,
        pieces: &[Piece<'_>],
    ) -> Result<(), Full> {
        self.begin(image, page);
        outline.lay_out(image, items(pieces), children(pieces))
    }

    /// Writes the header of a node of the same kind, level and tree.
    pub(crate) fn begin(self, image: &mut PageImage, page: PageId) {
        let kind = if self.is_inner() { PageKind::Inner } else { PageKind::Leaf };
        image.0[..header::END].fill(0);
        image.format(kind, self.level(), page, self.tree_id());
    }
}

impl NodeMut<'_, '_> {
    /// See [`NodeView::choose_split`].
    pub fn choose_split(&self, new: Pending<'_>, run: Option<Run>) -> Split {
        self.view().choose_split(new, run)
    }
    /// See [`NodeView::choose_balanced_split`].
    pub fn choose_balanced_split(&self) -> Split {
        self.view().choose_balanced_split()
    }
    /// See [`NodeView::split_into`].
    pub fn split_into(
        &self,
        split: &Split,
        left: &mut PageImage,
        right: &mut PageImage,
        left_page: PageId,
        right_page: PageId,
    ) {
        self.view().split_into(split, left, right, left_page, right_page);
    }
}
