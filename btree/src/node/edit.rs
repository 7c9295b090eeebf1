//! [`NodeMut`]: changes of one node under an exclusive latch.
//!
//! An operation that returns [`Full`] changed no byte. No operation allocates; temporary space is
//! an image of the page on the stack. Space is taken in this order: the gap between arrays and
//! heap; larger arrays in the same gap; a compaction, which collects garbage and divides the gap
//! again; a rebuild with another prefix.

use super::{
    Full, Piece,
    build::{FEW, Heap, NodeOutline, write_hints},
    children,
    layout::*,
    search::NodeRef,
    view::{Item, NodeView},
};
use wattle_buffer::{PAGE_SIZE, PageImage, PageMut, page::header};

/// Exclusive view of a node that was checked.
pub struct NodeMut<'a, 'p> {
    page: &'a mut PageMut<'p>,
}

/// A new entry.
#[derive(Clone, Copy)]
struct NewEntry<'k> {
    position: usize,
    key: &'k [u8],
    value: &'k [u8],
    special: bool,
    /// In an inner node: the child right of the separator.
    right: Option<u64>,
}

impl<'a> NodeView<'a> {
    fn outline<'k>(self, pending: Option<(&'k [u8], usize)>) -> NodeOutline<'k>
    where
        'a: 'k,
    {
        NodeOutline { lower: self.lower(), upper: self.upper(), inner: self.is_inner(), pending }
    }

    /// True if [`NodeMut::insert_child`] has room for this separator.
    pub fn room_for(self, separator: &[u8]) -> bool {
        let suffix = separator.strip_prefix(self.prefix());
        let needed = suffix.map(|suffix| INNER_ENTRY + round8(tail_of(suffix).len()));
        if needed.is_some_and(|needed| self.free_bytes() >= needed) {
            return true;
        }
        self.may_improve()
            && self.outline(Some((separator, 0))).plan(Piece::all(self).items()).is_ok()
    }
}

impl<'a, 'p> NodeMut<'a, 'p> {
    /// Views the node in `page`, which must have passed [`super::check`] or have been built here.
    pub fn new(page: &'a mut PageMut<'p>) -> Self {
        NodeMut { page }
    }

    /// The page.
    pub fn page(&mut self) -> &mut PageMut<'p> {
        self.page
    }
    /// Plain reads.
    pub fn view(&self) -> NodeView<'_> {
        NodeView::from(&*self.page)
    }
    /// The view for searches.
    pub fn as_ref(&self) -> NodeRef<'_> {
        NodeRef::from(self.page.as_ref())
    }

    /// Inserts a record at `position`, as found by a search for `key`, which is absent and lies
    /// between the fences. The record must fit ([`fits_inline`]).
    pub fn insert_leaf(
        &mut self,
        position: usize,
        key: &[u8],
        value: &[u8],
        special: bool,
    ) -> Result<(), Full> {
        assert!(fits_inline(key.len(), value.len()) && !self.view().is_inner());
        self.insert(NewEntry { position, key, value, special, right: None }, true)
    }

    /// Inserts a separator at `position` and the child right of it at `position + 1`.
    pub fn insert_child(
        &mut self,
        position: usize,
        separator: &[u8],
        right: u64,
    ) -> Result<(), Full> {
        assert!(separator.len() <= MAX_KEY && self.view().is_inner());
        let entry =
            NewEntry { position, key: separator, value: &[], special: false, right: Some(right) };
        self.insert(entry, true)
    }

    fn insert(&mut self, entry: NewEntry<'_>, may_rebuild: bool) -> Result<(), Full> {
        let view = self.view();
        let (count, inner) = (view.count(), view.is_inner());
        assert!(entry.position <= count);
        let Some(suffix) = entry.key.strip_prefix(view.prefix()) else {
            assert!(may_rebuild, "a rebuild respects the pending key");
            return self.rebuild_and_insert(entry);
        };
        let may_rebuild = may_rebuild && view.may_improve();
        let len = round8(entry.value.len() + tail_of(suffix).len());
        if view.free_bytes() < len + entry_len(inner) {
            return if may_rebuild { self.rebuild_and_insert(entry) } else { Err(Full) };
        }
        let (full_arrays, gap) = (count == view.capacity(), view.contiguous());
        // The arrays grow seldom: then look for a better prefix. An inner node at an edge of the
        // tree may never fill its arrays, and all descents go through it.
        let doubled = inner && count >= FEW && count.is_power_of_two();
        if (full_arrays || doubled) && may_rebuild && self.rebuild_and_insert(entry).is_ok() {
            return Ok(());
        }
        if full_arrays {
            match gap >= len + entry_len(inner) {
                true => self.grow(len),
                false => self.compact(None, true, len),
            }
        } else if gap < len {
            self.compact(None, true, len);
        }
        self.place(entry, suffix);
        Ok(())
    }

    /// Inserts an entry for which there is room.
    fn place(&mut self, entry: NewEntry<'_>, suffix: &[u8]) {
        let view = self.view();
        let (count, capacity) = (view.count(), view.capacity());
        let (position, after) = (entry.position, count - entry.position);
        let mut heap = Heap { top: view.heap_top() };
        let offset = heap.push(self.page, &[entry.value, tail_of(suffix)]);
        let slot = Slot::new(offset, suffix.len(), entry.value.len(), entry.special);
        let (head_at, slot_at) = (HEADS + 4 * position, slots_at(capacity) + 4 * position);
        self.page.move_within(head_at, head_at + 4, 4 * after);
        self.page.set_u32(head_at, head_of(suffix));
        self.page.move_within(slot_at, slot_at + 4, 4 * after);
        self.page.set_u32(slot_at, slot.0);
        if let Some(right) = entry.right {
            let swip_at = swips_at(capacity) + 8 * (position + 1);
            self.page.move_within(swip_at, swip_at + 8, 8 * after);
            self.page.set_u64(swip_at, right);
        }
        self.page.set_u16(HEAP_TOP, heap.top as u16);
        self.set_count(count + 1, position);
    }

    /// Sets the count, and updates the hints after a change at `position`.
    fn set_count(&mut self, count: usize, position: usize) {
        let old = self.view().count();
        self.page.set_u16(COUNT, count as u16);
        let same_distance = old / (HINT_COUNT + 1) == count / (HINT_COUNT + 1);
        write_hints(self.page, if same_distance { position } else { 0 });
    }

    /// Removes a record.
    pub fn remove_leaf(&mut self, position: usize) {
        assert!(!self.view().is_inner());
        self.remove(position);
    }

    /// Removes separator `position` and the child right of it.
    pub fn remove_child(&mut self, position: usize) {
        let view = self.view();
        assert!(view.is_inner() && position < view.count());
        let at = swips_at(view.capacity()) + 8 * (position + 1);
        let after = view.count() - position - 1;
        self.page.move_within(at + 8, at, 8 * after);
        self.remove(position);
    }

    fn remove(&mut self, position: usize) {
        let view = self.view();
        let (count, capacity) = (view.count(), view.capacity());
        assert!(position < count);
        let slot = view.slot(position);
        let after = count - position - 1;
        let (head_at, slot_at) = (HEADS + 4 * position, slots_at(capacity) + 4 * position);
        self.release(slot);
        self.page.move_within(head_at + 4, head_at, 4 * after);
        self.page.move_within(slot_at + 4, slot_at, 4 * after);
        self.set_count(count - 1, position);
    }

    /// Turns the heap bytes of a record into garbage.
    fn release(&mut self, slot: Slot) {
        let view = self.view();
        let (top, garbage) = (view.heap_top(), view.garbage());
        match slot.offset() == top {
            true => self.page.set_u16(HEAP_TOP, (top + slot.heap_len()) as u16),
            false => self.page.set_u16(GARBAGE, (garbage + slot.heap_len()) as u16),
        }
    }

    /// Replaces the value of a record. The record must fit ([`fits_inline`]).
    pub fn replace_value(
        &mut self,
        position: usize,
        value: &[u8],
        special: bool,
    ) -> Result<(), Full> {
        let view = self.view();
        assert!(position < view.count() && !view.is_inner());
        let old = view.slot(position);
        assert!(fits_inline(view.prefix().len() + old.suffix_len(), value.len()));
        let mut buffer = [0; MAX_KEY];
        let tail = &mut buffer[..old.tail_len()];
        tail.copy_from_slice(view.tail(position));
        let len = round8(value.len() + tail.len());
        let slot_of = |offset| Slot::new(offset, old.suffix_len(), value.len(), special);
        let slot_at = |node: &Self| slots_at(node.view().capacity()) + 4 * position;

        if len <= old.heap_len() {
            let garbage = view.garbage() + old.heap_len() - len;
            let offset = if len == 0 { 0 } else { old.offset() };
            self.page.write(offset, &value[..value.len().min(len)]);
            self.page.write(offset + value.len(), tail);
            self.page.set_u16(GARBAGE, garbage as u16);
            self.page.set_u32(slot_at(self), slot_of(offset).0);
            return Ok(());
        }
        if view.free_bytes() + old.heap_len() < len {
            return match view.may_improve() {
                true => self.rebuild_with_value(position, value, special),
                false => Err(Full),
            };
        }
        if view.contiguous() < len {
            self.compact(Some(position), false, len);
        } else {
            self.release(old);
        }
        let mut heap = Heap { top: self.view().heap_top() };
        let offset = heap.push(self.page, &[value, tail]);
        self.page.set_u16(HEAP_TOP, heap.top as u16);
        self.page.set_u32(slot_at(self), slot_of(offset).0);
        Ok(())
    }

    /// Overwrites part of a value in place.
    pub fn write_value(&mut self, position: usize, offset_in_value: usize, bytes: &[u8]) {
        let view = self.view();
        assert!(position < view.count());
        let slot = view.slot(position);
        assert!(offset_in_value + bytes.len() <= slot.value_len());
        if !bytes.is_empty() {
            self.page.write(slot.offset() + offset_in_value, bytes);
        }
    }

    /// Sets the raw swip of a child.
    pub fn set_swip(&mut self, position: usize, raw: u64) {
        assert!(position <= self.view().count());
        let at = swips_at(self.view().capacity()) + 8 * position;
        self.page.set_u64(at, raw);
    }

    /// True if [`Self::insert_child`] has room for any separator of this length between the fences.
    /// May be false for a node at an edge of the tree that has room, see [`Self::room_for`].
    pub fn room_for_separator(&self, key_len: usize) -> bool {
        let view = self.view();
        let with_prefix = |prefix_len: usize, used: usize| {
            let tail = key_len.saturating_sub(prefix_len + HEAD_LEN);
            used + INNER_ENTRY + round8(tail) <= PAGE_SIZE
        };
        // A separator that lacks a checked prefix shortens it, at worst to the implied one.
        let implied = view.upper().map_or(0, |upper| common_prefix(view.lower(), upper));
        let lost = view.prefix().len().saturating_sub(implied);
        let tail = |suffix: usize| round8((suffix + lost).saturating_sub(HEAD_LEN));
        let tails: usize = (0..view.count()).map(|at| tail(view.slot(at).suffix_len())).sum();
        let own = if view.owns_prefix() { round8(view.prefix().len()) } else { 0 };
        let used = view.used_bytes() - view.record_bytes() - own + tails;
        with_prefix(view.prefix().len(), view.used_bytes()) && with_prefix(implied, used)
    }

    /// See [`NodeView::room_for`].
    pub fn room_for(&self, separator: &[u8]) -> bool {
        self.view().room_for(separator)
    }

    /// Moves the arrays apart into the gap, for a larger capacity. The gap must have room for one
    /// entry and `reserve` heap bytes.
    fn grow(&mut self, reserve: usize) {
        let view = self.view();
        let (count, old, inner) = (view.count(), view.capacity(), view.is_inner());
        let free = view.contiguous() - reserve - entry_len(inner);
        let new = balanced_capacity(count + 1, view.record_bytes() + reserve, free, inner);
        if inner {
            self.page.move_within(swips_at(old), swips_at(new), 8 * (count + 1));
        }
        self.page.move_within(slots_at(old), slots_at(new), 4 * count);
        self.page.set_u16(CAPACITY, new as u16);
    }

    /// Rewrites the heap without garbage and without the record `drop`. The new arrays leave room
    /// for `reserve` heap bytes, and for one more entry if `add`.
    fn compact(&mut self, drop: Option<usize>, add: bool, reserve: usize) {
        let view = self.view();
        let (count, inner) = (view.count(), view.is_inner());
        let dropped = drop.map_or(0, |position| view.slot(position).heap_len());
        let entries = if add { entry_len(inner) } else { 0 };
        let free = view.free_bytes() + dropped - reserve - entries;
        let records = view.record_bytes() - dropped + reserve;
        let capacity = balanced_capacity(count + usize::from(add), records, free, inner);

        let mut image = PageImage([0; PAGE_SIZE]);
        image.0[..HINTS].copy_from_slice(&view.bytes()[..HINTS]);
        let mut page = PageMut::of_image(&mut image);
        let mut heap = Heap { top: PAGE_SIZE };
        let lower_off = heap.push(&mut page, &[view.lower()]);
        let upper_off = view.upper().map_or(0, |upper| heap.push(&mut page, &[upper]));
        let (prefix_at, prefix_len) = view.range(PREFIX_OFF);
        let prefix_off = match prefix_at {
            _ if prefix_len == 0 => 0,
            _ if view.owns_prefix() => heap.push(&mut page, &[view.prefix()]),
            at if at == view.range(LOWER_OFF).0 => lower_off,
            _ => upper_off,
        };
        for position in 0..count {
            let slot = view.slot(position);
            let record = &view.bytes()[slot.offset()..][..slot.value_len() + slot.tail_len()];
            let offset = match drop == Some(position) {
                true => 0,
                false => heap.push(&mut page, &[record]),
            };
            let slot = Slot::new(offset, slot.suffix_len(), slot.value_len(), slot.special());
            page.set_u32(slots_at(capacity) + 4 * position, slot.0);
        }
        page.write(HINTS, &view.bytes()[HINTS..HEADS + 4 * count]);
        if inner {
            let swips = &view.bytes()[swips_at(view.capacity())..][..8 * (count + 1)];
            page.write(swips_at(capacity), swips);
        }
        for (at, value) in [
            (CAPACITY, capacity),
            (HEAP_TOP, heap.top),
            (GARBAGE, 0),
            (PREFIX_OFF, prefix_off),
            (LOWER_OFF, lower_off),
            (UPPER_OFF, upper_off),
        ] {
            page.set_u16(at, value as u16);
        }
        self.page.write_image(&image);
    }

    /// Lays the node out with a prefix that suits the new key, and inserts.
    #[cold]
    fn rebuild_and_insert(&mut self, entry: NewEntry<'_>) -> Result<(), Full> {
        let (view, pending) = (self.view(), Some((entry.key, entry.value.len())));
        let pieces = [Piece::all(view)];
        let items = pieces[0].items();
        // Before a page is cleared: in a full leaf at an edge of the tree mostly nothing fits.
        let plan = view.outline(pending).plan(items.clone())?;
        let mut image = PageImage([0; PAGE_SIZE]);
        image.0[..header::END].copy_from_slice(&view.bytes()[..header::END]);
        view.outline(pending).lay_out_as(&plan, &mut image, items, children(&pieces));
        NodeMut::new(&mut PageMut::of_image(&mut image)).insert(entry, false)?;
        self.page.write_image(&image);
        Ok(())
    }

    /// Lays the node out with another value in one record.
    #[cold]
    fn rebuild_with_value(
        &mut self,
        position: usize,
        value: &[u8],
        special: bool,
    ) -> Result<(), Full> {
        let mut image = PageImage([0; PAGE_SIZE]);
        let view = self.view();
        let items = (0..view.count()).map(|at| match at == position {
            true => view.item(at).with_value(value, special),
            false => view.item(at),
        });
        self.lay_out(&mut image, None, items)?;
        self.page.write_image(&image);
        Ok(())
    }

    fn lay_out<'i>(
        &self,
        image: &mut PageImage,
        pending: Option<(&[u8], usize)>,
        items: impl Iterator<Item = Item<'i>> + Clone,
    ) -> Result<(), Full> {
        let view = self.view();
        image.0[..header::END].copy_from_slice(&view.bytes()[..header::END]);
        view.outline(pending).lay_out(image, items, children(&[Piece::all(view)]))
    }
}
