//! The routes of operations from the root to a leaf, for the trace of page accesses.

use crate::{descend::Seek, journal::Context, node::NodeRef, step::Step, tree::Tree};
use std::cell::Cell;
use wattle_buffer::{For, Way};

/// Records the route of each write to its leaf, once for each record. A write that runs again
/// because another writer held the latch does not record it again.
#[derive(Clone, Copy)]
pub(crate) struct WriteTrace<'c> {
    /// Whether the route of the current record is recorded. None: the pool is not traced.
    recorded: Option<&'c Cell<bool>>,
}

impl<'c> WriteTrace<'c> {
    /// For one run of a step; `restarts` is how often the step has restarted.
    #[inline(always)]
    pub fn begin(tree: &Tree, cx: &'c Context, restarts: u32) -> WriteTrace<'c> {
        let trace = WriteTrace { recorded: tree.pool.is_traced().then_some(&cx.route_recorded) };
        if restarts == 0 {
            trace.done();
        }
        trace
    }

    /// The step has found the leaf for `key`.
    #[inline(always)]
    pub fn found(self, tree: &Tree, key: &[u8]) {
        if let Some(recorded) = self.recorded
            && !recorded.replace(true)
        {
            tree.pool.record_way(|way| tree.lead(Seek::At(key), way));
        }
    }

    /// The record is done: the next record, or the next task's record, has another route.
    #[inline(always)]
    pub fn done(self) {
        if let Some(recorded) = self.recorded {
            recorded.set(false);
        }
    }
}

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
