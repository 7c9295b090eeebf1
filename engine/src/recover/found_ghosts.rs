//! Ghosts that redo finds in the pages of the log.

use crate::limits::limit;
use std::collections::BTreeSet;
use wattle_btree::ghosts;
use wattle_buffer::{PageImage, TreeId, page::header};

/// Ghosts in the pages that redo touched. No snapshot needs them, and the queue that listed them
/// was in memory.
#[derive(Default)]
pub(crate) struct FoundGhosts {
    /// Tree and key; a ghost may be named twice, or be gone by now.
    pub keys: Vec<(TreeId, Vec<u8>)>,
    /// Trees with more of them.
    pub trees: BTreeSet<TreeId>,
}

/// FoundGhosts that are remembered one by one.
const MAX_GHOSTS: usize = limit(1 << 14, 16);

impl FoundGhosts {
    pub(super) fn look(&mut self, image: &PageImage) {
        let tree = TreeId(image.u32_at(header::TREE_ID));
        ghosts(&image.0, &mut |key| match self.keys.len() < MAX_GHOSTS {
            true => self.keys.push((tree, key.to_vec())),
            false => drop(self.trees.insert(tree)),
        });
    }

    /// Adds the ghosts that another worker found.
    pub fn merge(&mut self, other: FoundGhosts) {
        self.keys.extend(other.keys);
        self.trees.extend(other.trees);
    }
}
