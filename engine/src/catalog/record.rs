//! Records of the catalog: their keys and values.

use wattle_btree::{self as btree, Context, Cursor, Direction, LargeValue, Newest, Taken};
use wattle_btree::{prefix_range, run};
use wattle_buffer::{Error, PageId, Result, TreeId};

/// Longest name of a tree, bytes.
pub const MAX_TREE_NAME: usize = 255;

/// First byte of the key of a tree.
pub(super) const TREE: u8 = b't';
/// First byte of the key of a tree that has no name.
const NAMELESS: u8 = b'u';
/// First byte of the key of a large value to be cleared away.
pub(super) const GARBAGE: u8 = b'g';
/// A flag in the length of a listed large value: the value may belong to the record with the empty
/// key. Without the flag an empty key means that it belongs to no record.
pub(super) const EMPTY_KEY: u64 = 1 << 63;
/// The state of a tree that is being dropped.
const DROPPING: u8 = 1;

/// Record of a tree: its id and root, and those of the tree of its large values (id 0: none yet).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TreeRecord {
    pub tree: TreeId,
    pub root: PageId,
    pub chunks: TreeId,
    pub chunks_root: PageId,
    pub dropping: bool,
}

impl TreeRecord {
    pub fn encode(self) -> [u8; 25] {
        let mut bytes = [0; 25];
        bytes[..4].copy_from_slice(&self.tree.0.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.chunks.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.root.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.chunks_root.0.to_le_bytes());
        bytes[24] = if self.dropping { DROPPING } else { 0 };
        bytes
    }

    pub fn decode(bytes: &[u8], catalog: PageId) -> Result<TreeRecord> {
        let bytes: &[u8; 25] = bytes
            .try_into()
            .map_err(|_| Error::corruption(catalog, "an entry of the catalog has a wrong size"))?;
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4"));
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8"));
        Ok(TreeRecord {
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

/// The key of a tree that has no name.
pub(super) fn nameless_key(tree: TreeId) -> Vec<u8> {
    let mut key = vec![NAMELESS];
    key.extend_from_slice(&tree.0.to_be_bytes());
    key
}

/// The key is that of a tree, with or without a name.
pub(super) fn is_key_of_tree(key: &[u8]) -> bool {
    matches!(key.first(), Some(&(TREE | NAMELESS)))
}

pub(super) fn garbage_key(chunks: TreeId, large: LargeValue) -> [u8; 13] {
    let mut key = [GARBAGE; 13];
    key[1..5].copy_from_slice(&chunks.0.to_be_bytes());
    key[5..].copy_from_slice(&large.id.to_be_bytes());
    key
}

/// The name may be that of a tree.
pub(crate) fn check_name(name: &str) -> Result<()> {
    if (1..=MAX_TREE_NAME).contains(&name.len()) {
        return Ok(());
    }
    Err(Error::InvalidTreeName { len: name.len(), max: MAX_TREE_NAME })
}

/// Called for records of the catalog with key and value.
type Visit<'v> = &'v mut dyn FnMut(&[u8], &[u8]) -> Result<()>;

/// Calls `visit` with all records of the catalog whose keys begin with `prefix`.
pub(super) fn visit(
    cx: &Context,
    catalog: &btree::Tree,
    prefix: &[u8],
    visit: Visit<'_>,
) -> Result<()> {
    let (low, high) = prefix_range(prefix);
    let mut cursor = Cursor::new(low, high, Direction::Forward);
    while cursor.is_loaded() || !cursor.is_at_end() {
        if !cursor.is_loaded() {
            run(cx, |_| cursor.load_step(catalog, &mut Newest))?;
        } else if cursor.take()? == Some(Taken::Inline) {
            visit(cursor.key(), cursor.value())?;
        }
    }
    Ok(())
}

/// Calls `found` with the names and entries of all trees, by name, until it fails.
pub(super) fn visit_trees(
    cx: &Context,
    catalog: &btree::Tree,
    found: &mut dyn FnMut(&str, TreeRecord) -> Result<()>,
) -> Result<()> {
    let root = catalog.root_page();
    visit(cx, catalog, &[TREE], &mut |key, value| {
        let name = std::str::from_utf8(&key[1..])
            .map_err(|_| Error::corruption(root, "the name of a tree is not UTF-8"))?;
        found(name, TreeRecord::decode(value, root)?)
    })
}

/// Calls `found` with the entries of all trees that have no name, until it fails.
pub(super) fn visit_nameless(
    cx: &Context,
    catalog: &btree::Tree,
    found: &mut dyn FnMut(TreeRecord) -> Result<()>,
) -> Result<()> {
    let root = catalog.root_page();
    visit(cx, catalog, &[NAMELESS], &mut |_, value| found(TreeRecord::decode(value, root)?))
}
