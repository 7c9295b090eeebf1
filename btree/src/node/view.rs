//! [`NodeView`]: plain reads of a node that does not change, in a frame under an exclusive latch or
//! in a private image.
//!
//! The node must have passed [`super::check`], or have been made by this module: offsets are used
//! without a check, and slices borrow from the page. Edits, splits, merges and rebuilds use it.

use super::layout::*;
use wattle_buffer::{PAGE_SIZE, PageId, PageImage, PageKind, PageMut, TreeId, page::header};

/// Plain view of a node that was checked and does not change.
#[derive(Clone, Copy)]
pub struct NodeView<'a> {
    bytes: &'a [u8; PAGE_SIZE],
}

/// An entry that is copied from one node to another. Its key is prefix, head and tail in sequence.
#[derive(Clone, Copy)]
pub(crate) struct Item<'a> {
    prefix: &'a [u8],
    head: [u8; HEAD_LEN],
    head_len: usize,
    tail: &'a [u8],
    /// The value, empty in inner nodes.
    pub value: &'a [u8],
    /// Whether the value is special.
    pub special: bool,
}

impl<'a> Item<'a> {
    /// An entry with a key in one piece.
    pub fn new(key: &'a [u8], value: &'a [u8], special: bool) -> Self {
        Item { prefix: key, head: [0; HEAD_LEN], head_len: 0, tail: &[], value, special }
    }
    /// The entry with another value.
    pub fn with_value(self, value: &'a [u8], special: bool) -> Self {
        Item { value, special, ..self }
    }
    /// Length of the whole key.
    pub fn key_len(&self) -> usize {
        self.prefix.len() + self.head_len + self.tail.len()
    }
    /// Head and tail of the key after a prefix of `prefix_len` bytes, if the key is cut there.
    pub fn cut_at(&self, prefix_len: usize) -> Option<(u32, &'a [u8])> {
        let is_cut = self.prefix.len() == prefix_len;
        is_cut.then(|| (u32::from_be_bytes(self.head), self.tail))
    }
    /// Copies the key to the start of `into` and returns it.
    pub fn key<'b>(&self, into: &'b mut [u8; MAX_KEY]) -> &'b [u8] {
        let (prefix, rest) = into.split_at_mut(self.prefix.len());
        prefix.copy_from_slice(self.prefix);
        let (head, rest) = rest.split_at_mut(self.head_len);
        head.copy_from_slice(&self.head[..self.head_len]);
        rest[..self.tail.len()].copy_from_slice(self.tail);
        &into[..self.key_len()]
    }
}

/// The entries of a node, for loops over many of them.
#[derive(Clone, Copy)]
pub(crate) struct Entries<'a> {
    view: NodeView<'a>,
    prefix: &'a [u8],
    slots: usize,
}

impl<'a> Entries<'a> {
    /// See [`NodeView::item`].
    #[inline]
    pub fn item(self, position: usize) -> Item<'a> {
        let slot = Slot(self.view.u32(self.slots + 4 * position));
        let (offset, value_len, tail_len) = (slot.offset(), slot.value_len(), slot.tail_len());
        let record = &self.view.bytes[offset..offset + value_len + tail_len];
        let (value, tail) = record.split_at(value_len);
        Item {
            prefix: self.prefix,
            head: self.view.head(position).to_be_bytes(),
            head_len: slot.suffix_len().min(HEAD_LEN),
            tail,
            value,
            special: slot.special(),
        }
    }
}

impl<'a> From<&'a PageImage> for NodeView<'a> {
    fn from(image: &'a PageImage) -> Self {
        NodeView { bytes: &image.0 }
    }
}

impl<'a> From<&'a PageMut<'_>> for NodeView<'a> {
    fn from(page: &'a PageMut<'_>) -> Self {
        NodeView { bytes: page.bytes() }
    }
}

impl<'a> From<&'a [u8; PAGE_SIZE]> for NodeView<'a> {
    fn from(bytes: &'a [u8; PAGE_SIZE]) -> Self {
        NodeView { bytes }
    }
}

impl<'a> NodeView<'a> {
    fn u16(self, at: usize) -> usize {
        usize::from(u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]))
    }
    fn u32(self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes[at..at + 4].try_into().expect("4 bytes"))
    }
    fn u64(self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().expect("8 bytes"))
    }

    /// All bytes.
    pub(crate) fn bytes(self) -> &'a [u8; PAGE_SIZE] {
        self.bytes
    }
    /// Id of the page.
    pub fn page_id(self) -> PageId {
        PageId(self.u64(header::PAGE_ID))
    }
    /// Tree of the node.
    pub fn tree_id(self) -> TreeId {
        TreeId(self.u32(header::TREE_ID))
    }
    /// Height above the leaves.
    pub fn level(self) -> u8 {
        self.bytes[header::LEVEL]
    }
    /// Whether the node holds separators.
    pub fn is_inner(self) -> bool {
        self.bytes[header::KIND] == PageKind::Inner as u8
    }
    pub(crate) fn flags(self) -> u8 {
        self.bytes[header::FLAGS]
    }
    /// Number of records or separators.
    pub fn count(self) -> usize {
        self.u16(COUNT)
    }
    pub(crate) fn capacity(self) -> usize {
        self.u16(CAPACITY)
    }
    pub(crate) fn heap_top(self) -> usize {
        self.u16(HEAP_TOP)
    }
    pub(crate) fn garbage(self) -> usize {
        self.u16(GARBAGE)
    }
    /// Offset and length of one of prefix, lower and upper fence.
    pub(crate) fn range(self, at: usize) -> (usize, usize) {
        (self.u16(at), self.u16(at + 2))
    }
    fn slice(self, at: usize) -> &'a [u8] {
        let (offset, len) = self.range(at);
        &self.bytes[offset..offset + len]
    }
    pub(crate) fn prefix(self) -> &'a [u8] {
        self.slice(PREFIX_OFF)
    }
    /// Lower fence, inclusive. Empty is minus infinity.
    pub fn lower(self) -> &'a [u8] {
        self.slice(LOWER_OFF)
    }
    /// Upper fence, exclusive. `None` is plus infinity.
    pub fn upper(self) -> Option<&'a [u8]> {
        (self.u16(UPPER_OFF) != 0).then(|| self.slice(UPPER_OFF))
    }
    /// Whether the prefix has bytes of its own in the heap, outside the fences.
    pub(crate) fn owns_prefix(self) -> bool {
        let offset = self.u16(PREFIX_OFF);
        offset != 0 && offset != self.u16(LOWER_OFF) && offset != self.u16(UPPER_OFF)
    }
    /// True if a rebuild may find a better prefix: the fences imply less than the keys share.
    pub(crate) fn may_improve(self) -> bool {
        self.flags() & CHECK_PREFIX != 0 || self.lower().is_empty() || self.upper().is_none()
    }

    pub(crate) fn head(self, position: usize) -> u32 {
        self.u32(HEADS + 4 * position)
    }
    pub(crate) fn hint(self, index: usize) -> u32 {
        self.u32(HINTS + 4 * index)
    }
    pub(crate) fn slot(self, position: usize) -> Slot {
        Slot(self.u32(slots_at(self.capacity()) + 4 * position))
    }
    /// Raw swip of a child.
    pub fn swip(self, position: usize) -> u64 {
        assert!(position <= self.count());
        self.u64(swips_at(self.capacity()) + 8 * position)
    }
    pub(crate) fn tail(self, position: usize) -> &'a [u8] {
        let slot = self.slot(position);
        let at = slot.offset() + slot.value_len();
        &self.bytes[at..at + slot.tail_len()]
    }
    /// Value of a record and whether it is special.
    pub fn value(self, position: usize) -> (&'a [u8], bool) {
        assert!(position < self.count());
        let slot = self.slot(position);
        (&self.bytes[slot.offset()..slot.offset() + slot.value_len()], slot.special())
    }
    /// All entries.
    pub(crate) fn entries(self) -> Entries<'a> {
        Entries { view: self, prefix: self.prefix(), slots: slots_at(self.capacity()) }
    }
    /// The whole entry.
    pub(crate) fn item(self, position: usize) -> Item<'a> {
        assert!(position < self.count());
        self.entries().item(position)
    }
    /// Appends the whole key of an entry.
    pub fn key_to(self, position: usize, into: &mut Vec<u8>) {
        let item = self.item(position);
        into.extend_from_slice(item.prefix);
        into.extend_from_slice(&item.head[..item.head_len]);
        into.extend_from_slice(item.tail);
    }

    /// Bytes between arrays and heap.
    pub(crate) fn contiguous(self) -> usize {
        self.heap_top() - arrays_end(self.capacity(), self.is_inner())
    }
    /// Bytes that inserts can use, after a compaction.
    pub fn free_bytes(self) -> usize {
        self.heap_top() + self.garbage() - HEADS - entries_len(self.count(), self.is_inner())
    }
    /// Bytes in use, header included.
    pub fn used_bytes(self) -> usize {
        PAGE_SIZE - self.free_bytes()
    }
    /// End of the arrays and start of the heap; the bytes between them are unused.
    pub(crate) fn extent(self) -> (usize, usize) {
        (arrays_end(self.capacity(), self.is_inner()), self.heap_top())
    }
    /// Heap bytes of fences and own prefix.
    pub(crate) fn fixed_bytes(self) -> usize {
        let own = if self.owns_prefix() { round8(self.prefix().len()) } else { 0 };
        round8(self.lower().len()) + self.upper().map_or(0, |u| round8(u.len())) + own
    }
    /// Heap bytes of all records.
    pub(crate) fn record_bytes(self) -> usize {
        PAGE_SIZE - self.heap_top() - self.garbage() - self.fixed_bytes()
    }
}
