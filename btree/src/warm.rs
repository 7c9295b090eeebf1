//! Steps of a warm start: which children of a node were in memory before, and the reads that bring
//! them back.
//!
//! A list of pages says what to read; the tree says where each page is today. So a list that is
//! old, damaged or of another store can only have pages read in vain: a page comes into memory by
//! the descent that an operation would make, or not at all. Both steps are hints. They leave out
//! what they would have to wait or to try again for.

use crate::{
    descend::Seek,
    node::NodeRef,
    step::{Step, Stop},
    tree::Tree,
};
use wattle_buffer::{Fault, PageId, Swip, Target};

/// A node of a tree: its page, and the lowest key of its range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePlace {
    /// Its page when it was looked up.
    pub page: PageId,
    /// The lowest key.
    pub key: Vec<u8>,
}

impl Tree {
    /// Adds the children of the node of `level`, at least 1, that contains `key`, in the order of
    /// keys: those whose page is `wanted`. If they are leaves, only those that are not in memory.
    ///
    /// # Errors
    /// [`Stop::Error`] for a corrupt node. Nothing is added then, nor after another stop.
    pub fn children_step(
        &self,
        key: &[u8],
        level: u8,
        wanted: &dyn Fn(PageId) -> bool,
        found: &mut Vec<NodePlace>,
    ) -> Step<()> {
        let start = found.len();
        let added = self.children(key, level, wanted, found);
        if added.is_err() {
            found.truncate(start);
        }
        added
    }

    fn children(
        &self,
        key: &[u8],
        level: u8,
        wanted: &dyn Fn(PageId) -> bool,
        found: &mut Vec<NodePlace>,
    ) -> Step<()> {
        let parent = self.seek(Seek::At(key), level)?.node;
        let node = NodeRef::from(parent.page());
        for position in 0..=node.count() {
            let page = match self.pool.locate(Swip(node.swip(position))) {
                Target::Evicted(page) => page,
                Target::Hot(_) if level == 1 => continue,
                // The frame may be any number until the parent validates.
                Target::Hot(frame) => self.pool.optimistic(frame)?.header().page_id(),
            };
            if !wanted(page) {
                continue;
            }
            let mut key = Vec::new();
            let copied = match position {
                0 => node.lower_fence_to(&mut key),
                _ => node.key_to(position - 1, &mut key),
            };
            self.checked(&parent, copied)?;
            found.push(NodePlace { page, key });
        }
        Ok(parent.validate()?)
    }

    /// Brings these nodes of `level`, which is not that of the root, into the tree if they are in
    /// memory, and gives the reads of the others. Leaves out a node that is elsewhere by now, that
    /// another operation reads, or that cannot be reached at once.
    ///
    /// # Errors
    /// [`Stop::Error`] for a corrupt node.
    pub fn places_step(&self, level: u8, places: &[NodePlace]) -> Step<Vec<Fault>> {
        let mut reads = Vec::new();
        for place in places {
            match self.place(level, place) {
                Ok(Some(read)) => reads.push(read),
                Err(Stop::Error(error)) => return Err(Stop::Error(error)),
                Ok(None) | Err(_) => {}
            }
        }
        Ok(reads)
    }

    fn place(&self, level: u8, place: &NodePlace) -> Step<Option<Fault>> {
        let seek = Seek::At(&place.key);
        let parent = self.seek(seek, level + 1)?.node;
        let node = NodeRef::from(parent.page());
        let position = self.checked(&parent, seek.child(node))?;
        match self.pool.locate(Swip(node.swip(position))) {
            Target::Evicted(page) if page == place.page => {
                match self.pool.fault(parent, node.swip_offset(position), position, page)? {
                    Err(read @ Fault::Read(_)) => Ok(Some(read)),
                    _ => Ok(None),
                }
            }
            _ => Ok(None),
        }
    }
}
