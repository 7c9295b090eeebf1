//! Compaction: gives pages lower ids, so that the end of the data file can be cut off.
//!
//! A page in memory is known by its frame. So a step moves a page by changing its id under the
//! latches of the page and its parent. One log record has both: the page as a new one, and the old
//! id as free. No bytes are copied, and all references to records stay valid:
//! - the swip in the parent names the frame. On storage, and in a pool without swizzling, it names
//!   the id; both pages are dirty now, and the swip is changed with the id;
//! - no read of the old id is in flight, because the page is in memory, and no write, which is
//!   checked. So the old id is unused when it is freed;
//! - hints of sessions and frames name frames; versions, undo entries and ghosts name keys;
//! - there is one log record, so recovery finds the page under exactly one of the two ids, and a
//!   parent that names this id.
//!
//! Readers restart, as after any other change.

use crate::{
    journal::Context,
    node::{NodeMut, NodeRef, NodeView},
    read_ahead::most_reads,
    record::Op,
    step::{Step, Stop},
    tree::Tree,
};
use wattle_buffer::{Exclusive, PageId, Swip, Target};

/// Most pages that one log record renumbers.
const AT_ONCE: usize = 3;

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renumbered {
    /// This many pages got new ids. There may be more below the same node.
    Pages(usize),
    /// There are pages to move, but other threads hold their latches, or they are being written.
    /// The next node begins at this key, if there is one.
    Busy(Option<Vec<u8>>),
    /// None below this node. The next one begins at this key.
    Next(Vec<u8>),
    /// None below the last node of the level.
    End,
}

fn upper_of(node: &Exclusive<'_>) -> Option<Vec<u8>> {
    NodeView::from(node.bytes()).upper().map(<[u8]>::to_vec)
}

impl Tree {
    /// Gives children of a node, with ids at or above `from`, new ids from the end of `ids`. The
    /// node is the one of `level`, at least 1, that contains `key`. Frees the old ids.
    ///
    /// # Errors
    /// See [`Stop`].
    pub fn renumber_step(
        &self,
        cx: &Context,
        (level, key): (u8, &[u8]),
        from: PageId,
        ids: &mut Vec<PageId>,
    ) -> Step<Renumbered> {
        cx.check_room(false)?;
        let root = self.pool.optimistic(self.root)?;
        let height = NodeRef::from(root.page()).level();
        root.validate()?;
        if height < level {
            return Ok(Renumbered::End);
        }
        let path = self.descend(key, level)?;
        let (mut parent, node) = (path.node, path.node_ref());
        let swips: Vec<u64> = (0..=node.count()).map(|position| node.swip(position)).collect();
        parent.validate()?;
        // The swips are consistent. A child may still leave memory: that is checked again below.
        let page_of = |swip: u64| match Swip(swip).target() {
            Target::Hot(frame) => self.pool.header(frame).page_id(),
            Target::Evicted(page) => page,
        };
        let high = swips.iter().enumerate().filter(|(_, swip)| page_of(**swip) >= from);
        let most = AT_ONCE.min(ids.len()).min(most_reads(self));
        let high: Vec<usize> = high.map(|(position, _)| position).take(most).collect();
        if high.is_empty() {
            return Ok(upper_of(&parent.upgrade()?).map_or(Renumbered::End, Renumbered::Next));
        }
        // Read all of them into memory at once.
        let mut faults = Vec::new();
        for &position in &high {
            let node = NodeRef::from(parent.page());
            let swip = Swip(node.swip(position));
            let Target::Evicted(page) = self.pool.locate(swip) else { continue };
            match self.pool.fault(parent, node.swip_offset(position), position, page)? {
                Ok((again, _)) => parent = again,
                Err(fault) => faults.push(fault),
            }
        }
        if faults.len() > 1 {
            return Err(Stop::Faults(faults));
        }
        if let Some(fault) = faults.pop() {
            return Err(Stop::Fault(fault));
        }
        let mut parent = parent.upgrade()?;
        let mut children = Vec::new();
        for &position in &high {
            let swip = Swip(NodeView::from(parent.bytes()).swip(position));
            let Target::Hot(frame) = self.pool.locate(swip) else { continue };
            let Some(child) = self.pool.try_exclusive(frame) else { continue };
            if child.header().page_id() >= from && !self.pool.is_being_written(&child) {
                children.push((position, child));
            }
        }
        match children.is_empty() {
            true => Ok(Renumbered::Busy(upper_of(&parent))),
            false => Ok(Renumbered::Pages(self.renumber(cx, &mut parent, children, ids))),
        }
    }

    fn renumber<'p>(
        &'p self,
        cx: &Context,
        parent: &mut Exclusive<'p>,
        mut children: Vec<(usize, Exclusive<'p>)>,
        ids: &mut Vec<PageId>,
    ) -> usize {
        let mut old = Vec::new();
        for (position, child) in &mut children {
            let (from, to) =
                (child.header().page_id(), ids.pop().expect("no more children than ids"));
            assert_ne!(to, from, "a page would keep its id, which is freed");
            old.push(from);
            self.pool.renumber(child, to);
            if !self.pool.is_swizzling() {
                let swip = self.pool.swip_to(child.frame());
                NodeMut::new(&mut parent.page_mut()).set_swip(*position, swip.0);
            }
        }
        let mut group: Vec<_> =
            children.iter_mut().map(|(_, child)| (child, Op::NewImage)).collect();
        group.insert(0, (parent, Op::Image));
        cx.log_group_freeing(&mut group, &old);
        drop(group);
        old.iter().for_each(|page| self.pool.free_page_id(*page));
        children.len()
    }
}
