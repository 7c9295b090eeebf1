//! One open tree, and its tag.

use super::{Closed, LargeStore};
use std::sync::{Arc, OnceLock};
use wattle_btree as btree;
use wattle_buffer::TreeId;

/// Names a tree, open or not. One tree may have several tags; the id decides.
#[derive(Debug)]
pub(crate) struct TreeTag {
    pub id: TreeId,
    pub name: String,
}

impl TreeTag {
    pub fn new(id: TreeId, name: &str) -> Arc<TreeTag> {
        Arc::new(TreeTag { id, name: name.to_string() })
    }
}

/// An open tree.
pub(crate) struct OpenTree {
    pub tag: Arc<TreeTag>,
    pub tree: btree::Tree,
    pub large: OnceLock<LargeStore>,
    pub closed: Closed,
}

impl OpenTree {
    /// A tree that was just opened, without its large values.
    pub(super) fn new(tag: Arc<TreeTag>, tree: btree::Tree) -> OpenTree {
        OpenTree { tag, tree, large: OnceLock::new(), closed: Closed::default() }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.tag.name
    }

    /// The tree itself, or that of its large values.
    pub fn tree_of(&self, id: TreeId) -> Option<&btree::Tree> {
        if self.tree.id() == id {
            return Some(&self.tree);
        }
        self.large.get().map(|large| &large.tree).filter(|tree| tree.id() == id)
    }

    /// Roots that it pins.
    pub(super) fn roots(&self) -> usize {
        1 + usize::from(self.large.get().is_some())
    }
}
