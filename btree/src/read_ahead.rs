//! Reading several pages of a tree at once: how many, and those that come next in a direction.

use crate::{
    descend::{Direction, Seek},
    node::NodeRef,
    step::{Step, Stop},
    tree::Tree,
};
use wattle_buffer::{Swip, Target};

/// Most pages that one round asks for at once.
const READS_AT_ONCE: usize = 16;
/// Nor are they more than this part of the pool.
const READ_SHARE: usize = 32;

/// Most pages that are asked for at once.
pub(crate) fn most_reads(tree: &Tree) -> usize {
    READS_AT_ONCE.min(tree.pool.frames() / READ_SHARE).max(1)
}

impl Tree {
    /// Brings nodes of `level` into memory that come next in a direction, the one that `seek` names among
    /// them, as many at once as one round of look-ups reads. Does nothing while that one is there already.
    /// Only for as long as it takes to run the step again the frames are kept from others.
    ///
    /// A page that cannot be read may be one that is never asked for: whoever goes on without this step hears
    /// of it when it is.
    pub(crate) fn ahead_step(&self, seek: Seek<'_>, level: u8, direction: Direction) -> Step<()> {
        let most = most_reads(self);
        if most < 2 || self.depth()? <= usize::from(level) + 1 {
            return Ok(());
        }
        let path = self.seek(seek, level + 1)?;
        let (mut parent, node) = (path.node, path.node_ref());
        let first = self.checked(&parent, seek.child(node))?;
        if let Target::Hot(_) = Swip(node.swip(first)).target() {
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
            let Target::Evicted(page) = Swip(node.swip(position)).target() else { continue };
            match self.pool.fault(parent, node.swip_offset(position), position, page)? {
                // Read in the run before. The parent changed, but nothing else of it.
                Ok((again, _)) => parent = again,
                Err(fault) => faults.push(fault),
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(Stop::Faults(faults)) }
    }
}
