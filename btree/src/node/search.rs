//! [`NodeRef`]: the racy view of a node, for optimistic readers.
//!
//! Arbitrary bytes give some answer or [`Restart`]: counts are masked, so every loop ends, and
//! [`PageRef`] keeps every access inside the page. An answer is valid only after the latch version
//! validated, or while the caller holds a latch. While the caller holds a latch, a node that passed
//! [`super::check`] never gives `Restart`.
//!
//! A search is two vector compares: the hints give a block of heads, the block gives the entry.
//! Slots and tails are read only when heads tie. Every level of every descent calls it.

use super::layout::*;
use std::cmp::Ordering;
use wattle_buffer::{
    For, PAGE_SIZE, PageId, PageImage, PageKind, PageRef, Restart, TreeId,
    page::{LINE, header},
};

/// The position of a key in a leaf, or its position if it were inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Search {
    /// Position of the first record whose key is not below the key.
    pub position: usize,
    /// Whether that record has the key.
    pub found: bool,
}

/// Above this share of the entries of a node, a fraction, or above so many, copying the page is
/// faster than copying them.
const WHOLE_SHARE: (usize, usize) = (3, 4);
const WHOLE_ENTRIES: usize = 16;

/// Cache lines of a leaf with header, hints, heads and slots of some thirty records.
pub(crate) const LEAF_LINES: usize = 6;

/// Cache lines of a page.
const LINES: usize = PAGE_SIZE / LINE;

/// Most bytes of a record that are prefetched.
const PREFETCHED_RECORD: usize = 640;

/// Racy view of a node.
#[derive(Clone, Copy)]
pub struct NodeRef<'p> {
    page: PageRef<'p>,
}

/// A key relative to the prefix of a node.
enum Relative {
    Below,
    Above,
    Inside { prefix_len: usize, head: u32 },
}

/// Number of set bits below the lowest clear one, of 16.
#[inline(always)]
fn ones(mask: u32) -> usize {
    (!mask | 1 << 16).trailing_zeros() as usize
}

impl<'p> From<PageRef<'p>> for NodeRef<'p> {
    #[inline(always)]
    fn from(page: PageRef<'p>) -> Self {
        NodeRef { page }
    }
}

impl<'p> NodeRef<'p> {
    /// The page.
    #[inline(always)]
    pub fn page(self) -> PageRef<'p> {
        self.page
    }
    /// Height above the leaves.
    #[inline(always)]
    pub fn level(self) -> u8 {
        self.page.u8_at(header::LEVEL)
    }
    /// Whether the node holds records.
    #[inline(always)]
    pub fn is_leaf(self) -> bool {
        self.page.u8_at(header::KIND) == PageKind::Leaf as u8
    }
    /// Number of records or separators, at most 511.
    #[inline(always)]
    pub fn count(self) -> usize {
        usize::from(self.page.u16_at(COUNT)) & COUNT_MASK
    }
    /// Id of the page.
    #[inline(always)]
    pub fn page_id(self) -> PageId {
        PageId(self.page.u64_at(header::PAGE_ID))
    }
    /// Tree of the node.
    #[inline(always)]
    pub fn tree_id(self) -> TreeId {
        TreeId(self.page.u32_at(header::TREE_ID))
    }
    #[inline(always)]
    fn capacity(self) -> usize {
        usize::from(self.page.u16_at(CAPACITY)) & COUNT_MASK
    }
    #[inline(always)]
    fn head(self, position: usize) -> u32 {
        self.page.u32_at(HEADS + 4 * position)
    }
    #[inline(always)]
    fn slot(self, position: usize) -> Slot {
        Slot(self.page.u32_at(slots_at(self.capacity()) + 4 * position))
    }
    #[inline(always)]
    fn short(self, at: usize) -> usize {
        usize::from(self.page.u16_at(at))
    }

    /// Prefetches the lines that a search starts with: header and hints.
    #[inline(always)]
    pub fn prefetch(self) {
        self.page.prefetch(0);
        self.page.prefetch(HINTS);
        self.page.prefetch(HEADS);
    }

    /// Prefetches the lines that an op on a leaf starts with: header, hints, heads and slots of
    /// some thirty records.
    #[inline(always)]
    pub fn prefetch_lines(self) {
        (0..LEAF_LINES).for_each(|line| self.page.prefetch(64 * line));
    }

    /// Prefetches the lines after those, for a read of most records of a leaf.
    #[inline(always)]
    pub fn prefetch_rest(self) {
        (LEAF_LINES..LINES).for_each(|line| self.page.prefetch(LINE * line));
    }

    /// Prefetches the fences.
    #[inline(always)]
    pub fn prefetch_fences(self) {
        self.page.prefetch(self.short(LOWER_OFF));
        self.page.prefetch(self.short(UPPER_OFF));
    }

    /// Prefetches the record that `key` probably has, or most of it.
    #[inline(always)]
    pub fn prefetch_record(self, key: &[u8]) {
        let Ok(Relative::Inside { head, .. }) = self.relative(key) else { return };
        let slot = self.slot(self.lower_bound(self.count(), head));
        let (at, end) = (slot.offset(), slot.offset() + slot.heap_len());
        (at..end.min(at + PREFETCHED_RECORD)).step_by(64).for_each(|line| self.page.prefetch(line));
        self.page.prefetch(end);
    }

    /// Prefetches value and tail of a record, all at once.
    #[inline(always)]
    fn prefetch_slot(self, slot: Slot, purpose: For) {
        let (at, end) = (slot.offset(), slot.offset() + slot.value_len());
        self.page.prefetch_for(at, purpose);
        self.page.prefetch_for(at + 64, purpose);
        self.page.prefetch(end);
    }

    /// True if `key` lies between the fences.
    #[inline(always)]
    pub fn covers(self, key: &[u8]) -> Result<bool, Restart> {
        let lower = self.compare_fence(LOWER_OFF, LOWER_LEN, key)?;
        Ok(lower != Ordering::Greater && self.is_below_upper(key)?)
    }

    #[inline(always)]
    fn is_below_upper(self, key: &[u8]) -> Result<bool, Restart> {
        Ok(self.is_upper_infinite()
            || self.compare_fence(UPPER_OFF, UPPER_LEN, key)? == Ordering::Greater)
    }

    #[inline(always)]
    fn compare_fence(self, at: usize, len: usize, key: &[u8]) -> Result<Ordering, Restart> {
        let len = self.short(len);
        let order = self.page.compare(self.short(at), &key[..len.min(key.len())])?;
        Ok(order.then(len.cmp(&key.len())))
    }

    /// Position of the first record whose key is not below `key`, and whether it has that key.
    #[inline(always)]
    pub fn search(self, key: &[u8]) -> Result<Search, Restart> {
        self.search_for(key, For::Read)
    }

    /// As [`NodeRef::search`]; `purpose` is the use of the record's value.
    #[inline(always)]
    pub fn search_for(self, key: &[u8], purpose: For) -> Result<Search, Restart> {
        let count = self.count();
        let absent = |position| Ok(Search { position, found: false });
        let (prefix_len, head) = match self.relative(key)? {
            Relative::Inside { prefix_len, head } => (prefix_len, head),
            Relative::Below => return absent(0),
            Relative::Above => return absent(count),
        };
        self.search_at(self.lower_bound(count, head), count, (prefix_len, head), key, purpose)
    }

    /// The rest of a search. `position` is the first record whose head is not below that of the
    /// key, or a record with the same head that is not above the key.
    #[inline(always)]
    fn search_at(
        self,
        position: usize,
        count: usize,
        (prefix_len, head): (usize, u32),
        key: &[u8],
        purpose: For,
    ) -> Result<Search, Restart> {
        let absent = |position| Ok(Search { position, found: false });
        if position >= count || self.head(position) != head {
            return absent(position);
        }
        let suffix = key.get(prefix_len..).ok_or(Restart)?;
        // The tail is compared first and the value is read later; their misses should overlap.
        self.prefetch_slot(self.slot(position), purpose);
        match self.compare_suffix(position, suffix)? {
            Ordering::Equal => Ok(Search { position, found: true }),
            Ordering::Greater => absent(position),
            Ordering::Less => self.search_run(position + 1, count, head, suffix),
        }
    }

    /// As [`NodeRef::search_for`], for a key above that of the record at `position`; fast if it
    /// belongs directly after it. `None` if the key lies above the fences.
    #[inline]
    pub fn search_after(
        self,
        position: usize,
        key: &[u8],
        purpose: For,
    ) -> Result<Option<Search>, Restart> {
        if !self.is_below_upper(key)? {
            return Ok(None);
        }
        let Relative::Inside { prefix_len, head } = self.relative(key)? else {
            return self.search_for(key, purpose).map(Some);
        };
        let count = self.count();
        let next = (position + 1).min(count);
        let start = match next == count || self.head(next) >= head {
            true => next,
            false => self.lower_bound(count, head),
        };
        self.search_at(start, count, (prefix_len, head), key, purpose).map(Some)
    }

    /// Position of the child that covers `key`: the number of separators that are at most `key`.
    #[inline(always)]
    pub fn child_position(self, key: &[u8]) -> Result<usize, Restart> {
        let count = self.count();
        let (prefix_len, head) = match self.relative(key)? {
            Relative::Inside { prefix_len, head } => (prefix_len, head),
            Relative::Below => return Ok(0),
            Relative::Above => return Ok(count),
        };
        // The swips lie far from the heads: their miss should overlap that of the heads.
        let start = self.hinted(count, head);
        let swips = swips_at(self.capacity()) + 8 * start;
        self.page.prefetch(swips);
        self.page.prefetch(swips + 64);
        let position = self.lower_bound_from(start, count, head);
        if position < count && self.head(position) == head {
            let suffix = key.get(prefix_len..).ok_or(Restart)?;
            return self.child_in_run(position, count, head, suffix);
        }
        Ok(position)
    }

    /// Compares a key with the prefix, and loads its head.
    #[inline(always)]
    fn relative(self, key: &[u8]) -> Result<Relative, Restart> {
        let prefix_len = self.short(PREFIX_LEN);
        if self.page.u8_at(header::FLAGS) & CHECK_PREFIX != 0 {
            let part = &key[..prefix_len.min(key.len())];
            match self.page.compare(self.short(PREFIX_OFF), part)? {
                Ordering::Less => return Ok(Relative::Above),
                Ordering::Greater => return Ok(Relative::Below),
                Ordering::Equal if key.len() < prefix_len => return Ok(Relative::Below),
                Ordering::Equal => {}
            }
        }
        if prefix_len > key.len() {
            return Err(Restart);
        }
        // Load the last four bytes of the key that start at or before the suffix. The bytes before
        // the suffix are shifted out, so that short suffixes need no branch.
        let head = match key.len().checked_sub(HEAD_LEN) {
            Some(last) => {
                let at = prefix_len.min(last);
                let word = u32::from_be_bytes(*key[at..].first_chunk().ok_or(Restart)?);
                (u64::from(word) << (8 * (prefix_len - at))) as u32
            }
            None => head_of(&key[prefix_len..]),
        };
        Ok(Relative::Inside { prefix_len, head })
    }

    /// Number of entries whose head is below `head`.
    #[inline(always)]
    fn lower_bound(self, count: usize, head: u32) -> usize {
        self.lower_bound_from(self.hinted(count, head), count, head)
    }

    /// The lowest possible bound, by the hints. Hint i is the head at (i + 1) * distance: with n
    /// hints below, the bound lies in (n * distance, (n + 1) * distance], and up to the end after
    /// the last hint.
    #[inline(always)]
    fn hinted(self, count: usize, head: u32) -> usize {
        ones(self.page.below_16(HINTS, head)) * (count / (HINT_COUNT + 1))
    }

    #[inline(always)]
    fn lower_bound_from(self, start: usize, count: usize, head: u32) -> usize {
        let mut at = start;
        loop {
            let below = ones(self.page.below_16(HEADS + 4 * at, head));
            at += below;
            if below < 16 || at >= count {
                return at.min(count);
            }
        }
    }

    /// Compares the suffix of an entry, whose head ties, with `suffix`.
    #[inline(always)]
    fn compare_suffix(self, position: usize, suffix: &[u8]) -> Result<Ordering, Restart> {
        let slot = self.slot(position);
        let len = slot.suffix_len();
        let common = len.min(suffix.len());
        if common > HEAD_LEN {
            let tail_at = slot.offset() + slot.value_len();
            let order = self.page.compare(tail_at, &suffix[HEAD_LEN..common])?;
            if order != Ordering::Equal {
                return Ok(order);
            }
        }
        // With equal heads, a suffix of at most four bytes is the other one without zero bytes at
        // its end, or a prefix of it. In both cases the shorter one is below.
        Ok(len.cmp(&suffix.len()))
    }

    /// The rest of `search` when more than one head may tie.
    #[inline(never)]
    fn search_run(
        self,
        from: usize,
        count: usize,
        head: u32,
        suffix: &[u8],
    ) -> Result<Search, Restart> {
        let position = self.run_bound(from, count, head, suffix, Ordering::Less)?;
        let found = position < count
            && self.head(position) == head
            && self.compare_suffix(position, suffix)? == Ordering::Equal;
        Ok(Search { position, found })
    }

    /// The rest of `child_position` when heads tie.
    #[inline(never)]
    fn child_in_run(
        self,
        from: usize,
        count: usize,
        head: u32,
        suffix: &[u8],
    ) -> Result<usize, Restart> {
        if self.compare_suffix(from, suffix)? == Ordering::Greater {
            return Ok(from);
        }
        self.run_bound(from + 1, count, head, suffix, Ordering::Equal)
    }

    /// First position from `from` whose entry is above the suffix, or not below it if `up_to` is
    /// `Less`. All entries before `from` have heads of at most `head`.
    #[inline(always)]
    fn run_bound(
        self,
        from: usize,
        count: usize,
        head: u32,
        suffix: &[u8],
        up_to: Ordering,
    ) -> Result<usize, Restart> {
        let (mut low, mut high) = (from, count);
        if low < high && self.head(low) != head {
            return Ok(low);
        }
        while low < high {
            let middle = (low + high) / 2;
            if self.head(middle) == head && self.compare_suffix(middle, suffix)? <= up_to {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Byte offset of the swip of child `position`, a multiple of 8 inside the page.
    #[inline(always)]
    pub fn swip_offset(self, position: usize) -> usize {
        (swips_at(self.capacity()) + 8 * position) & (PAGE_SIZE - 8)
    }

    /// Raw swip of child `position`.
    #[inline(always)]
    pub fn swip(self, position: usize) -> u64 {
        self.page.u64_at(swips_at(self.capacity()) + 8 * position)
    }

    /// Position of the child with this raw swip. Tries `hint` first.
    pub fn find_swip(self, raw: u64, hint: usize) -> Option<usize> {
        let count = self.count();
        if hint <= count && self.swip(hint) == raw {
            return Some(hint);
        }
        (0..=count).find(|position| self.swip(*position) == raw)
    }

    /// Appends the whole key of an entry to `into`.
    pub fn key_to(self, position: usize, into: &mut Vec<u8>) -> Result<(), Restart> {
        self.page.append_to(self.short(PREFIX_OFF), self.short(PREFIX_LEN), into)?;
        let slot = self.slot(position);
        let head = self.head(position).to_be_bytes();
        into.extend_from_slice(&head[..slot.suffix_len().min(HEAD_LEN)]);
        self.page.append_to(slot.offset() + slot.value_len(), slot.tail_len(), into)
    }

    /// Appends the prefix of all keys to `into`.
    pub fn prefix_to(self, into: &mut Vec<u8>) -> Result<(), Restart> {
        self.page.append_to(self.short(PREFIX_OFF), self.short(PREFIX_LEN), into)
    }

    /// Appends the key of an entry after its prefix to `into`.
    #[inline(always)]
    pub fn suffix_to(self, position: usize, into: &mut Vec<u8>) -> Result<(), Restart> {
        let slot = self.slot(position);
        let (start, suffix) = (into.len(), slot.suffix_len());
        // Always four bytes: a copy of fixed length is one store.
        into.extend_from_slice(&self.head(position).to_be_bytes());
        if suffix > HEAD_LEN {
            let tail = suffix - HEAD_LEN;
            return self.page.append_to(slot.offset() + slot.value_len(), tail, into);
        }
        into.truncate(start + suffix);
        Ok(())
    }

    /// Offset and length of a value, inside the page, and whether it is special.
    #[inline(always)]
    pub fn value_range(self, position: usize) -> Result<(usize, usize, bool), Restart> {
        let slot = self.slot(position);
        let (at, len) = (slot.offset(), slot.value_len());
        if at + len > PAGE_SIZE {
            return Err(Restart);
        }
        Ok((at, len, slot.special()))
    }

    /// Appends a value to `into`.
    #[inline(always)]
    pub fn value_to(self, position: usize, into: &mut Vec<u8>) -> Result<(), Restart> {
        let slot = self.slot(position);
        self.page.append_to(slot.offset(), slot.value_len(), into)
    }

    /// Copies the entries `from..to` of a leaf to their offsets in `image`, with header and prefix,
    /// which reading them needs. If they are most of the entries, copies all bytes in use, and
    /// prefetches those of `beside`, the leaf that is copied next.
    pub fn copy_entries(
        self,
        from: usize,
        to: usize,
        image: &mut PageImage,
        beside: Option<PageRef<'_>>,
    ) -> Result<(), Restart> {
        let entries = to.saturating_sub(from);
        let share = entries * WHOLE_SHARE.1 > self.count() * WHOLE_SHARE.0;
        if share || entries > WHOLE_ENTRIES {
            // Leaves of one tree are about equally full. Without a next leaf, prefetching the lines
            // that are copied does nothing.
            let beside = beside.unwrap_or(self.page);
            let end = arrays_end(self.capacity(), false).div_ceil(LINE).min(LINES);
            let top = (self.short(HEAP_TOP) / LINE).clamp(end, LINES);
            self.page.copy_lines(0..end, image, beside);
            self.page.copy_lines(top..LINES, image, beside);
            return Ok(());
        }
        let mut copy = |at: usize, len: usize| {
            let range = at..at.saturating_add(len);
            self.page.copy_to(at, image.0.get_mut(range).ok_or(Restart)?)
        };
        copy(0, HEADS)?;
        copy(self.short(PREFIX_OFF), self.short(PREFIX_LEN))?;
        copy(HEADS + 4 * from, 4 * entries)?;
        copy(slots_at(self.capacity()) + 4 * from, 4 * entries)?;
        for slot in (from..to).map(|position| self.slot(position)) {
            copy(slot.offset(), slot.heap_len())?;
        }
        Ok(())
    }

    /// Appends the lower fence (inclusive; empty is minus infinity) to `into`.
    pub fn lower_fence_to(self, into: &mut Vec<u8>) -> Result<(), Restart> {
        self.page.append_to(self.short(LOWER_OFF), self.short(LOWER_LEN), into)
    }

    /// Appends the upper fence (exclusive) to `into`; gives whether it is finite.
    pub fn upper_fence_to(self, into: &mut Vec<u8>) -> Result<bool, Restart> {
        if self.is_upper_infinite() {
            return Ok(false);
        }
        self.page.append_to(self.short(UPPER_OFF), self.short(UPPER_LEN), into)?;
        Ok(true)
    }

    /// True if the node has no upper fence.
    #[inline(always)]
    pub fn is_upper_infinite(self) -> bool {
        self.short(UPPER_OFF) == 0
    }

    /// Bytes that inserts can use, after a compaction: contiguous ones, garbage and unused entries
    /// of the arrays.
    pub fn free_bytes(self) -> usize {
        let entries = entries_len(self.count(), !self.is_leaf());
        (self.short(HEAP_TOP) + self.short(GARBAGE)).saturating_sub(HEADS + entries)
    }

    /// Bytes in use, header included: the page size without [`Self::free_bytes`].
    pub fn used_bytes(self) -> usize {
        PAGE_SIZE.saturating_sub(self.free_bytes())
    }
}
