//! Lays out a node from sorted entries. This is the one place where a prefix is chosen and where
//! arrays and heap of a whole node are written, for splits, merges, prefix changes and bulk loads.
//!
//! All keys between two fences start with the common prefix of the fences, which costs no space and
//! no check. But a node at an edge of the tree has an infinite fence, and dense keys under an empty
//! prefix would all have the same head. So the prefix that the keys themselves share is a
//! candidate, too; searches then have to compare it ([`CHECK_PREFIX`]). It lies inside a fence that
//! starts with it, or has its own bytes in the heap.
//!
//! This file allocates no memory. A node that does not fit leaves the image undefined.

use super::{
    Full,
    layout::*,
    view::{Item, NodeView},
};
use wattle_buffer::{PAGE_SIZE, PageImage, PageMut, page::header};

/// A node without its entries: fences and kind.
#[derive(Clone, Copy)]
pub(crate) struct NodeOutline<'a> {
    pub lower: &'a [u8],
    pub upper: Option<&'a [u8]>,
    pub inner: bool,
    /// Key and length of the value of an entry that will be inserted next: the prefix must suit it,
    /// and there must be room for it.
    pub pending: Option<(&'a [u8], usize)>,
}

/// Fewer keys than this are too few to choose a prefix for.
pub(crate) const FEW: usize = 4;
/// See [`NodeOutline::plan`].
const SOME: usize = 32;
/// Bytes that a checked prefix must save in a node whose fences are both finite. Such a node has a
/// good prefix already, and an insert that lacks the checked one rebuilds the node.
const CHECK_PENALTY: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PrefixPlace {
    Lower,
    Upper,
    Own,
}

/// A layout that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    count: usize,
    prefix_len: usize,
    place: PrefixPlace,
    checked: bool,
    /// Heap bytes of the records, with the pending one.
    records: usize,
    /// Heap bytes of fences and own prefix.
    fixed: usize,
}

impl NodeOutline<'_> {
    fn shared(&self, key: &[u8]) -> (usize, PrefixPlace) {
        let lower = common_prefix(self.lower, key);
        let upper = self.upper.map_or(0, |upper| common_prefix(upper, key));
        if upper > lower { (upper, PrefixPlace::Upper) } else { (lower, PrefixPlace::Lower) }
    }

    /// Chooses the prefix for these entries, and checks that they fit.
    pub fn plan<'i>(&self, items: impl Iterator<Item = Item<'i>> + Clone) -> Result<Plan, Full> {
        // Zeroing an array for all entries that a node can have takes longer than a plan of few.
        match items.size_hint().1 {
            Some(0..=SOME) => self.plan_with([[0; 2]; SOME], items),
            _ => self.plan_with([[0; 2]; COUNT_MASK + 1], items),
        }
    }

    /// As [`NodeOutline::plan`], with an array for lengths of key and value of each entry: weighing
    /// a prefix then reads no entries.
    #[inline(always)]
    fn plan_with<'i, const N: usize>(
        &self,
        mut lengths: [[u16; 2]; N],
        items: impl Iterator<Item = Item<'i>> + Clone,
    ) -> Result<Plan, Full> {
        let (mut count, mut shortest, mut last) = (0, MAX_KEY, None);
        items.clone().for_each(|item| {
            if let Some(lengths) = lengths.get_mut(count) {
                *lengths = [item.key_len() as u16, item.value.len() as u16];
            }
            count += 1;
            shortest = shortest.min(item.key_len());
            last = Some(item);
        });
        let Some(lengths) = lengths.get(..count) else { return Err(Full) };
        let mut implied = self.upper.map_or(0, |upper| common_prefix(self.lower, upper));
        if let Some((pending, _)) = self.pending {
            // A key between the fences has the implied prefix; a damaged node must not panic.
            implied = implied.min(common_prefix(self.lower, pending));
            shortest = shortest.min(pending.len());
        }
        let implied = implied.min(shortest);
        let mut candidates = [(implied, PrefixPlace::Lower); 3];
        let mut number = 1;
        if let (Some(first), Some(last)) = (items.clone().next(), last) {
            let (mut first_key, mut last_key) = ([0; MAX_KEY], [0; MAX_KEY]);
            let first = first.key(&mut first_key);
            // No key may be shorter than the prefix, even in a node with wrong order.
            let mut content = common_prefix(&first[..shortest], last.key(&mut last_key));
            if let Some((pending, _)) = self.pending {
                content = common_prefix(&first[..content], pending);
            }
            let (shared, place) = self.shared(&first[..content]);
            if shared > implied {
                candidates[number] = (shared, place);
                number += 1;
            }
            if content > shared.max(implied) {
                candidates[number] = (content, PrefixPlace::Own);
                number += 1;
            }
        }

        let fences = round8(self.lower.len()) + self.upper.map_or(0, |u| round8(u.len()));
        let room = PAGE_SIZE - HEADS - fences;
        let entries = entries_len(count + usize::from(self.pending.is_some()), self.inner);
        let edge = self.lower.is_empty() || self.upper.is_none();
        let mut best: Option<(usize, Plan)> = None;
        for (index, (prefix_len, place)) in candidates.into_iter().take(number).enumerate() {
            let (mut records, mut tails) = (0, 0);
            let head = (prefix_len + HEAD_LEN) as u32;
            for [key_len, value_len] in lengths {
                let tail = u32::from(*key_len).saturating_sub(head);
                tails += tail;
                records += (u32::from(*value_len) + tail + 7) & !7;
            }
            let (mut records, mut tails) = (records as usize, tails as usize);
            if let Some((key, value_len)) = self.pending {
                let tail = key.len().saturating_sub(head as usize);
                tails += tail;
                records += round8(value_len + tail);
            }
            let own = if place == PrefixPlace::Own { prefix_len } else { 0 };
            if entries + records + round8(own) > room {
                continue;
            }
            // Tails count unrounded: with each byte less, the heads tell more keys apart.
            let checked = prefix_len > implied;
            let score = match count < FEW {
                true => index,
                false => tails + own + if checked && !edge { CHECK_PENALTY } else { 0 },
            };
            if best.is_none_or(|(least, _)| score < least) {
                let fixed = fences + round8(own);
                best = Some((score, Plan { count, prefix_len, place, checked, records, fixed }));
            }
        }
        best.map(|(_, plan)| plan).ok_or(Full)
    }

    /// Plans, and writes the flags and everything after the common header. `children` are the swips
    /// of an inner node, one more than entries.
    pub fn lay_out<'i>(
        &self,
        image: &mut PageImage,
        items: impl Iterator<Item = Item<'i>> + Clone,
        children: impl Iterator<Item = u64>,
    ) -> Result<(), Full> {
        let plan = self.plan(items.clone())?;
        self.lay_out_as(&plan, image, items, children);
        Ok(())
    }

    /// As [`NodeOutline::lay_out`], with the plan for these entries.
    pub fn lay_out_as<'i>(
        &self,
        plan: &Plan,
        image: &mut PageImage,
        items: impl Iterator<Item = Item<'i>> + Clone,
        children: impl Iterator<Item = u64>,
    ) {
        debug_assert_eq!(self.plan(items.clone()), Ok(*plan), "the plan is of other entries");
        let count = plan.count + usize::from(self.pending.is_some());
        let entries = entries_len(count, self.inner);
        let free = PAGE_SIZE - HEADS - plan.fixed - plan.records - entries;
        let capacity = balanced_capacity(count, plan.records, free, self.inner);

        image.0[header::END..].fill(0);
        image.0[header::FLAGS] = if plan.checked { CHECK_PREFIX } else { 0 };
        let mut page = PageMut::of_image(image);
        let mut heap = Heap { top: PAGE_SIZE };
        let lower_off = heap.push(&mut page, &[self.lower]);
        let upper_off = self.upper.map_or(0, |upper| heap.push(&mut page, &[upper]));
        let mut key = [0; MAX_KEY];
        let prefix_off = match plan.place {
            _ if plan.prefix_len == 0 => 0,
            PrefixPlace::Lower => lower_off,
            PrefixPlace::Upper => upper_off,
            PrefixPlace::Own => {
                let first = items.clone().next().map_or(&[][..], |item| item.key(&mut key));
                heap.push(&mut page, &[&first[..plan.prefix_len]])
            }
        };
        let slots = slots_at(capacity);
        let mut position = 0;
        items.for_each(|item| {
            let suffix_len = item.key_len() - plan.prefix_len;
            // Most nodes keep their prefix.
            let (head, tail) = item.cut_at(plan.prefix_len).unwrap_or_else(|| {
                let suffix = &item.key(&mut key)[plan.prefix_len..];
                (head_of(suffix), tail_of(suffix))
            });
            let offset = heap.push(&mut page, &[item.value, tail]);
            let slot = Slot::new(offset, suffix_len, item.value.len(), item.special);
            page.set_u32(HEADS + 4 * position, head);
            page.set_u32(slots + 4 * position, slot.0);
            position += 1;
        });
        if self.inner {
            for (position, child) in children.enumerate() {
                page.set_u64(swips_at(capacity) + 8 * position, child);
            }
        }
        page.set_u16(COUNT, plan.count as u16);
        page.set_u16(CAPACITY, capacity as u16);
        page.set_u16(HEAP_TOP, heap.top as u16);
        page.set_u16(PREFIX_OFF, prefix_off as u16);
        page.set_u16(PREFIX_LEN, plan.prefix_len as u16);
        page.set_u16(LOWER_OFF, lower_off as u16);
        page.set_u16(LOWER_LEN, self.lower.len() as u16);
        page.set_u16(UPPER_OFF, upper_off as u16);
        page.set_u16(UPPER_LEN, self.upper.map_or(0, |upper| upper.len()) as u16);
        write_hints(&mut page, 0);
    }
}

/// Updates the hints for the heads from `from` on.
pub(crate) fn write_hints(page: &mut PageMut<'_>, from: usize) {
    let distance = NodeView::from(&*page).count() / (HINT_COUNT + 1);
    // Searches among few heads do not use hints.
    let first = from.checked_div(distance).map_or(HINT_COUNT, |hint| hint.saturating_sub(1));
    for index in first..HINT_COUNT {
        let head = NodeView::from(&*page).head((index + 1) * distance);
        page.set_u32(HINTS + 4 * index, head);
    }
}

/// The heap of a page that is being written.
pub(crate) struct Heap {
    /// Lowest byte in use.
    pub top: usize,
}

impl Heap {
    /// Stores `parts` in sequence as one piece of the heap; gives its offset, or 0 if they are
    /// empty.
    pub fn push(&mut self, page: &mut PageMut<'_>, parts: &[&[u8]]) -> usize {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if len == 0 {
            return 0;
        }
        self.top -= round8(len);
        let mut at = self.top;
        for part in parts {
            page.write(at, part);
            at += part.len();
        }
        self.top
    }
}
