//! Records of the catalog: their keys and values.

use super::Attach;
use wattle_btree::{self as btree, Attachment, Author, LargeValue, Stop};
use wattle_buffer::{Error, Exclusive, FrameHeader, Gsn, PageId, Pool, Result, TreeId};

/// Longest name of a tree, bytes.
pub const MAX_TREE_NAME: usize = 255;

/// First byte of the key of a tree.
pub(super) const TREE: u8 = b't';
/// First byte of the key of a large value to be cleared away.
pub(super) const GARBAGE: u8 = b'g';
/// In the length of a large value on the list, where the key of the record that may refer to it is empty: without
/// it there is no such record. Others are told by their keys.
pub(super) const EMPTY_KEY: u64 = 1 << 63;
/// The state of a tree that is being dropped.
const DROPPING: u8 = 1;

/// Record of a tree: its id and root, and those of the tree of its large values (id 0: none yet).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub tree: TreeId,
    pub root: PageId,
    pub chunks: TreeId,
    pub chunks_root: PageId,
    pub dropping: bool,
}

impl Entry {
    pub fn encode(self) -> [u8; 25] {
        let mut bytes = [0; 25];
        bytes[..4].copy_from_slice(&self.tree.0.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.chunks.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.root.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.chunks_root.0.to_le_bytes());
        bytes[24] = if self.dropping { DROPPING } else { 0 };
        bytes
    }

    pub fn decode(bytes: &[u8], catalog: PageId) -> Result<Entry> {
        let bytes: &[u8; 25] = bytes
            .try_into()
            .map_err(|_| Error::corruption(catalog, "an entry of the catalog has a wrong size"))?;
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4"));
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8"));
        Ok(Entry {
            tree: TreeId(u32_at(0)),
            chunks: TreeId(u32_at(4)),
            root: PageId(u64_at(8)),
            chunks_root: PageId(u64_at(16)),
            dropping: bytes[24] == DROPPING,
        })
    }
}

pub(super) fn tree_key(name: &str) -> Vec<u8> {
    [&[TREE], name.as_bytes()].concat()
}

pub(super) fn garbage_key(chunks: TreeId, large: LargeValue) -> [u8; 13] {
    let mut key = [GARBAGE; 13];
    key[1..5].copy_from_slice(&chunks.0.to_be_bytes());
    key[5..].copy_from_slice(&large.id.to_be_bytes());
    key
}

/// The name may be that of a tree.
pub(super) fn check_name(name: &str) -> Result<()> {
    if (1..=MAX_TREE_NAME).contains(&name.len()) {
        return Ok(());
    }
    Err(Error::InvalidTreeName { len: name.len(), max: MAX_TREE_NAME })
}

/// A change of the catalog that happens together with something else.
pub(super) struct Together<'a> {
    pub attach: Attach<'a>,
    pub above: Gsn,
}

impl Author for Together<'_> {
    fn txn(&self) -> u64 {
        0
    }

    fn is_auto(&self) -> bool {
        true
    }

    fn done(&mut self, _: &Exclusive<'_>, _: &[u8]) {}

    fn attached_gsn(&self, pool: &Pool) -> Gsn {
        self.above.max(pool.allocator().freed_gsn())
    }

    fn attach(&mut self, record: &mut dyn Attachment) {
        (self.attach)(record);
    }
}

/// A change of an entry together with that of the page of a root, which is latched in between.
pub(super) struct NewRoot<'t> {
    pub tree: &'t btree::Tree,
    pub from: PageId,
    pub to: PageId,
    pub root: Option<Exclusive<'t>>,
}

impl Author for NewRoot<'_> {
    fn check(
        &mut self,
        _: &FrameHeader,
        _: &[u8],
        _: Option<(&[u8], bool)>,
        change: bool,
    ) -> Result<(), Stop> {
        // Not waited for: the leaf of the catalog is latched.
        self.root =
            if change { Some(self.tree.try_latch_root().ok_or(Stop::Restart)?) } else { None };
        Ok(())
    }

    fn txn(&self) -> u64 {
        0
    }

    fn is_auto(&self) -> bool {
        true
    }

    fn undone(&mut self, _: &[u8]) {
        self.root = None;
    }

    fn attached_gsn(&self, pool: &Pool) -> Gsn {
        let root = self.root.as_ref().map_or(Gsn(0), |root| root.gsn());
        root.max(pool.allocator().freed_gsn())
    }

    fn attach(&mut self, record: &mut dyn Attachment) {
        let root = self.root.as_mut().expect("latched by the check");
        let pool = self.tree.pool();
        pool.renumber(root, self.to);
        record.new_page(root);
        record.free(pool, &[self.from]);
    }
}
