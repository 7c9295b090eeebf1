//! Tree ids with a fixed meaning.

use wattle_buffer::TreeId;

/// Tree id of the catalog.
pub const CATALOG: TreeId = TreeId(1);
/// First id of a named tree.
pub const FIRST_TREE: TreeId = TreeId(2);
/// Tree id of pages that belong to no tree.
pub const NO_TREE: TreeId = TreeId(u32::MAX);
