//! [`NodeBuilder`]: makes a node from entries that arrive in key order, for bulk loads, new trees
//! and new roots.
//!
//! It collects entries with whole keys, because the prefix depends on the last of them. It decides
//! whether one more entry fits before it knows the upper fence. In a leaf the separator to any next
//! key is at most one byte longer than the last key. In an inner node it may have any length: if it
//! does not fit, the node ends one separator earlier.

use super::{Full, build::NodeOutline, layout::*, view::Item};
use wattle_buffer::{PAGE_SIZE, PageId, PageImage, PageKind, TreeId};

/// Collects the entries of one node.
pub struct NodeBuilder {
    page: PageId,
    tree: TreeId,
    level: u8,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
    bytes: Vec<u8>,
    entries: Vec<BuilderEntry>,
    children: Vec<u64>,
    limit: usize,
    /// Length of the prefix that all keys share, and heap bytes of the records with and without it.
    content: usize,
    with_content: usize,
    without: usize,
}

#[derive(Clone, Copy)]
struct BuilderEntry {
    at: usize,
    key_len: usize,
    value_len: usize,
    special: bool,
}

impl BuilderEntry {
    fn heap_len(self, prefix_len: usize) -> usize {
        round8(self.value_len + self.key_len.saturating_sub(prefix_len + HEAD_LEN))
    }
}

impl NodeBuilder {
    /// A leaf without records. An empty `lower` is minus infinity; `upper` of `None` is plus
    /// infinity, or is set later.
    pub fn leaf(page: PageId, tree: TreeId, lower: &[u8], upper: Option<&[u8]>) -> Self {
        NodeBuilder {
            page,
            tree,
            level: 0,
            lower: lower.to_vec(),
            upper: upper.map(<[u8]>::to_vec),
            bytes: Vec::new(),
            entries: Vec::new(),
            children: Vec::new(),
            limit: PAGE_SIZE,
            content: 0,
            with_content: 0,
            without: 0,
        }
    }

    /// An inner node with one child and no separators.
    pub fn inner(
        level: u8,
        page: PageId,
        tree: TreeId,
        lower: &[u8],
        upper: Option<&[u8]>,
        first_child: u64,
    ) -> Self {
        assert!(level > 0);
        let children = vec![first_child];
        NodeBuilder { level, children, ..Self::leaf(page, tree, lower, upper) }
    }

    /// Limits the entries to this share of the page, percent. The first entry always fits.
    pub fn fill(mut self, percent: usize) -> Self {
        self.limit = PAGE_SIZE * percent.min(100) / 100;
        self
    }

    /// Number of entries.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// Key of the last entry.
    pub fn last_key(&self) -> Option<&[u8]> {
        self.entries.last().map(|entry| &self.bytes[entry.at..entry.at + entry.key_len])
    }

    /// Adds a record, whose key must be above the last one. False: the node is full.
    pub fn push(&mut self, key: &[u8], value: &[u8], special: bool) -> bool {
        assert!(self.level == 0 && fits_inline(key.len(), value.len()));
        self.add(key, value, special)
    }

    /// Adds a separator and the child right of it. False: the node is full.
    pub fn push_child(&mut self, separator: &[u8], child: u64) -> bool {
        assert!(self.level > 0 && separator.len() <= MAX_KEY);
        let taken = self.add(separator, &[], false);
        if taken {
            self.children.push(child);
        }
        taken
    }

    fn add(&mut self, key: &[u8], value: &[u8], special: bool) -> bool {
        debug_assert!(self.last_key().is_none_or(|last| last < key));
        let entry = BuilderEntry {
            at: self.bytes.len(),
            key_len: key.len(),
            value_len: value.len(),
            special,
        };
        let first = self.entries.first().map(|first| &self.bytes[first.at..][..first.key_len]);
        let content = first.map_or(0, |first| common_prefix(first, key));
        let content = if self.count() > 1 { content.min(self.content) } else { content };
        let with_content = match content == self.content {
            true => self.with_content,
            false => self.entries.iter().map(|entry| entry.heap_len(content)).sum(),
        } + entry.heap_len(content);
        let without = self.without + entry.heap_len(0);
        let upper = self.upper.as_ref().map_or(MAX_KEY.min(key.len() + 1), |upper| upper.len());
        let used = HEADS
            + entries_len(self.count() + 1, self.level > 0)
            + round8(self.lower.len())
            + round8(upper)
            + without.min(with_content + round8(content));
        let limit = if self.entries.is_empty() { PAGE_SIZE } else { self.limit };
        if used > limit {
            return false;
        }
        (self.content, self.with_content, self.without) = (content, with_content, without);
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.entries.push(entry);
        true
    }

    /// True if the node has room for an upper fence of this length.
    pub fn has_room_for_upper(&self, upper: usize) -> bool {
        let used = HEADS
            + entries_len(self.count(), self.level > 0)
            + round8(self.lower.len())
            + round8(upper)
            + self.without.min(self.with_content + round8(self.content));
        used <= PAGE_SIZE
    }

    /// Removes the last of several separators and the child right of it. The node must end there.
    pub fn pop_child(&mut self) -> (Vec<u8>, u64) {
        assert!(self.level > 0 && self.count() > 1);
        let separator = self.last_key().expect("counted").to_vec();
        self.entries.pop();
        (separator, self.children.pop().expect("one for each separator"))
    }

    /// Sets the upper fence, which must be above the last key. In a leaf filled by [`Self::push`],
    /// it may be at most one byte longer than the last key.
    pub fn set_upper(&mut self, upper: Option<&[u8]>) {
        self.upper = upper.map(<[u8]>::to_vec);
    }

    /// Writes the node.
    pub fn finish(&self, image: &mut PageImage) -> Result<(), Full> {
        let kind = if self.level > 0 { PageKind::Inner } else { PageKind::Leaf };
        image.format(kind, self.level, self.page, self.tree);
        let items = self.entries.iter().map(|entry| {
            let (key, rest) = self.bytes[entry.at..].split_at(entry.key_len);
            Item::new(key, &rest[..entry.value_len], entry.special)
        });
        let outline = NodeOutline {
            lower: &self.lower,
            upper: self.upper.as_deref(),
            inner: self.level > 0,
            pending: None,
        };
        outline.lay_out(image, items, self.children.iter().copied())
    }
}
