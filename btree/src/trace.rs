//! Finds the pages above the leaf of an operation, for the trace of page accesses.

use crate::{descend::Seek, node::NodeRef, step::Step, tree::Tree};
use wattle_buffer::{For, Way};

/// Attempts to find the route to a leaf.
const LEAD_ATTEMPTS: usize = 8;

impl Tree {
    /// Finds the pages above the leaf that `seek` names. This is a separate descent, so that other
    /// descents need not remember their route. If pages change or leave memory in every attempt,
    /// the route ends where the last attempt did.
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
            way.through(page, self.id, height);
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
