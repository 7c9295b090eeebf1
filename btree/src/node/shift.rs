//! Shifts: records of a full leaf move to a neighbour, so that both have room.
//!
//! The *giver* keeps one part of a cut, as in a split; the *taker* gets the records of the other
//! part at its end. Both are laid out again, and the fence between them moves.
//!
//! The records that move have the form in which the log has them: for each one the length of its
//! key u16, the length of its value u16 with the special flag in the highest bit, key, value.

use super::{
    Full, NodeMut, Piece,
    build::NodeOutline,
    cut::{Pending, WithPending},
    layout::*,
    view::{Item, NodeView},
};
use wattle_buffer::{PAGE_SIZE, PageImage, PageMut};

/// The special flag beside the length of a value.
const SPECIAL: usize = 1 << 15;

/// The result of a shift.
pub struct Shift {
    /// Position of the cut in the giver.
    pub position: usize,
    /// The new fence.
    pub separator: Vec<u8>,
    /// The records that move.
    pub records: Vec<u8>,
}

impl<'a> NodeView<'a> {
    /// True if a neighbour with so many free bytes may take records of this leaf, which has no room
    /// for `new`.
    pub fn may_shift(self, new: Pending<'_>, free_of_taker: usize) -> bool {
        let len = WithPending::new(self, new).len(new.position);
        self.free_bytes() + free_of_taker >= len
    }

    /// The shift that moves records of this leaf to its right or left neighbour and makes room for
    /// `new`; the images become the new leaf and the new neighbour. None: there is too little room,
    /// and the images are undefined.
    pub fn choose_shift(
        self,
        taker: NodeView<'_>,
        new: Pending<'_>,
        to_right: bool,
        [giver, new_taker]: [&mut PageImage; 2],
    ) -> Option<Shift> {
        let entries = WithPending::new(self, new);
        let total = entries.total();
        let each = (total + taker.record_bytes() + LEAF_ENTRY * taker.count()) / 2;
        let left = if to_right { each } else { total.checked_sub(each)? };
        let cut = entries.best(left);
        let split = self.split_at(cut.position, &cut.separator)?;
        self.half_into(&split, !to_right, giver, self.page_id());
        let moved = if to_right { cut.position..self.count() } else { 0..cut.position };
        let mut records = Vec::with_capacity(PAGE_SIZE);
        moved.for_each(|position| encode(self.item(position), &mut records));
        take(taker, !to_right, &cut.separator, &records, new_taker).ok()?;
        // The leaf that gets the new record, and its place there.
        let stays = cut.pending_left == to_right;
        let target = if stays { giver } else { new_taker };
        let position = match cut.pending_left {
            true if !stays => taker.count() + new.position,
            true => new.position,
            false => new.position - cut.position,
        };
        let fits = NodeView::from(&*target).has_room(new) || {
            // Another prefix may make room.
            let mut probe = PageImage(target.0);
            let value = [0; MAX_RECORD];
            NodeMut::new(&mut PageMut::of_image(&mut probe))
                .insert_leaf(position, new.key, &value[..new.value_len], false)
                .is_ok()
        };
        fits.then_some(Shift { position: cut.position, separator: cut.separator, records })
    }

    /// True if a new record finds room in this leaf under the prefix that it has.
    fn has_room(self, new: Pending<'_>) -> bool {
        new.key.strip_prefix(self.prefix()).is_some_and(|suffix| {
            self.free_bytes() >= round8(new.value_len + tail_of(suffix).len()) + LEAF_ENTRY
        })
    }

    /// The part right of a cut, as the giver keeps it, or `None` if the cut does not suit this
    /// leaf.
    pub(crate) fn right_part(self, position: usize, separator: &[u8]) -> Option<Box<PageImage>> {
        let split = self.split_at(position, separator)?;
        let mut right = PageImage::zeroed();
        self.half_into(&split, true, &mut right, self.page_id());
        Some(right)
    }
}

impl NodeMut<'_, '_> {
    /// Replaces separator `position`; the children stay.
    pub fn replace_separator(&mut self, position: usize, separator: &[u8]) -> Result<(), Full> {
        let mut image = PageImage(*self.view().bytes());
        let mut page = PageMut::of_image(&mut image);
        let mut node = NodeMut::new(&mut page);
        let right = node.view().swip(position + 1);
        node.remove_child(position);
        node.insert_child(position, separator, right)?;
        self.page().write_image(&image);
        Ok(())
    }
}

fn encode(item: Item<'_>, records: &mut Vec<u8>) {
    let mut key = [0; MAX_KEY];
    let key = item.key(&mut key);
    let value_len = item.value.len() | if item.special { SPECIAL } else { 0 };
    records.extend_from_slice(&(key.len() as u16).to_le_bytes());
    records.extend_from_slice(&(value_len as u16).to_le_bytes());
    records.extend_from_slice(key);
    records.extend_from_slice(item.value);
}

/// Key and value of a record that moves, and whether it is special.
type Moved<'r> = (&'r [u8], &'r [u8], bool);

/// Reads records. The error is a sentence.
pub(crate) fn decode(mut records: &[u8]) -> Result<Vec<Moved<'_>>, String> {
    let mut all = Vec::new();
    while !records.is_empty() {
        let mut take = |len: usize| -> Result<_, String> {
            let taken = records.split_at_checked(len).ok_or("a moved record is cut short")?;
            records = taken.1;
            Ok(taken.0)
        };
        let mut take_u16 =
            || take(2).map(|bytes| usize::from(bytes[0]) | usize::from(bytes[1]) << 8);
        let (key_len, value_len) = (take_u16()?, take_u16()?);
        let (value_len, special) = (value_len & !SPECIAL, value_len & SPECIAL != 0);
        if !fits_inline(key_len, value_len) {
            return Err(format!("a moved record has {key_len} and {value_len} bytes"));
        }
        all.push((take(key_len)?, take(value_len)?, special));
    }
    Ok(all)
}

/// Lays out a leaf with further records at its right or left end, and the new fence there.
///
/// # Errors
/// A sentence: the records do not suit the leaf, or find no room.
pub(crate) fn take(
    leaf: NodeView<'_>,
    at_right: bool,
    fence: &[u8],
    records: &[u8],
    image: &mut PageImage,
) -> Result<(), String> {
    let records = decode(records)?;
    let (low, high) = match at_right {
        true => (leaf.upper().ok_or("the last leaf takes records at its end")?, fence),
        false => (fence, leaf.lower()),
    };
    let ascend = records.is_sorted_by(|(a, ..), (b, ..)| a < b);
    let inside = records.iter().all(|&(key, ..)| low <= key && key < high);
    if low >= high || fence.len() > MAX_KEY || !ascend || !inside {
        return Err("moved records do not suit the leaf that takes them".to_string());
    }
    let moved = records.iter().map(|&(key, value, special)| Item::new(key, value, special));
    let own = Piece::all(leaf).items();
    let (lower, upper) = match at_right {
        true => (leaf.lower(), Some(fence)),
        false => (fence, leaf.upper()),
    };
    let outline = NodeOutline { lower, upper, inner: false, pending: None };
    leaf.begin(image, leaf.page_id());
    let done = match at_right {
        true => outline.lay_out(image, own.chain(moved), std::iter::empty()),
        false => outline.lay_out(image, moved.chain(own), std::iter::empty()),
    };
    done.map_err(|_| "moved records find no room".to_string())
}
