//! The way to a leaf, for the trace of page accesses.

use crate::{descend::Seek, node::NodeRef, step::Step, tree::Tree};
use wattle_buffer::{For, Way};

/// Attempts to find the way to a leaf for the trace of page accesses.
const LEAD_ATTEMPTS: usize = 8;

impl Tree {
    /// Finds the pages above the leaf that `seek` names, for the trace of page accesses. This is a
    /// descent of its own, so that others need not remember their way. When pages change all the
    /// time, or leave memory, the way ends where the last attempt did.
    #[cold]
    pub(crate) fn lead(&self, seek: Seek<'_>, way: &mut Way) {
        for _ in 0..LEAD_ATTEMPTS {
            way.restart();
            if self.walk(seek, way).is_ok() {
                return;
            }
        }
    }

    fn walk(&self, seek: Seek<'_>, way: &mut Way) -> Step<()> {
        let mut node = self.pool.optimistic(self.root)?;
        let mut height = NodeRef::from(node.page()).level();
        while height > 0 {
            let page = node.header().page_id();
            let position = self.checked(&node, seek.child(NodeRef::from(node.page())))?;
            node.validate()?;
            way.through(page);
            height -= 1;
            if height > 0 {
                node = self.child_at(node, position, height, For::Read)?.node;
                if NodeRef::from(node.page()).level() != height {
                    return Err(self.wrong_level(node, height));
                }
            }
        }
        Ok(())
    }
}
