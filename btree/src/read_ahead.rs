//! Reads several pages of a tree at once: chooses how many, and finds the next ones in the
//! direction of a scan.

use crate::{
    descend::{Direction, Seek},
    node::NodeRef,
    step::{Step, Stop},
    tree::Tree,
};
use wattle_buffer::{Swip, Target};

/// Most pages that one step requests at once.
const READS_AT_ONCE: usize = 16;
/// A step requests at most this part of the pool, too.
const READ_SHARE: usize = 32;

/// Most pages that a step may request at once.
pub(crate) fn most_reads(tree: &Tree) -> usize {
    READS_AT_ONCE.min(tree.pool.frames() / READ_SHARE).max(1)
}

impl Tree {
    /// Brings the next nodes of `level` in a direction into memory, beginning with the one that
    /// `seek` names, with as many reads at once as one round of look-ups. Does nothing if that node
    /// is in memory. The pages stay protected from eviction only until the step runs again.
    ///
    /// A read may fail for a page that the caller never needs. A caller that goes on without this
    /// step gets the error when it needs the page.
    pub(crate) fn ahead_step(&self, seek: Seek<'_>, level: u8, direction: Direction) -> Step<()> {
        let most = most_reads(self);
        if most < 2 || self.depth()? <= usize::from(level) + 1 {
            return Ok(());
        }
        let path = self.seek(seek, level + 1)?;
        let (mut parent, node) = (path.node, path.node_ref());
        let first = self.checked(&parent, seek.child(node))?;
        if let Target::Hot(_) = self.pool.locate(Swip(node.swip(first))) {
            return Ok(parent.validate()?);
        }
        let count = node.count();
        let (low, high) = match direction {
            Direction::Forward => (first, count.min(first + most - 1)),
            Direction::Backward => ((first + 1).saturating_sub(most), first),
        };
        let mut faults = Vec::new();
        for position in low..=high {
            let node = NodeRef::from(parent.page());
            let swip = Swip(node.swip(position));
            let Target::Evicted(page) = self.pool.locate(swip) else { continue };
            match self.pool.fault(parent, node.swip_offset(position), position, page)? {
                // The previous run of the step has read it. Only the swip in the parent has
                // changed.
                Ok((again, _)) => parent = again,
                Err(fault) => faults.push(fault),
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(Stop::Faults(faults)) }
    }
}
