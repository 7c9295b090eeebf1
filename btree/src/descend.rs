//! Descents: from the root to a node of a given level, optimistically, with coupled versions of
//! parent and child.
//!
//! A descent takes the version of a child *before* it validates the parent. The swip was hot when
//! it was read, and eviction changes the version of the parent before the frame can hold another
//! page. So if the parent validates, the child's version belongs to the right page. In a pool
//! without swizzling every swip is evicted, so each hop comes to `Pool::fault`, which asks the page
//! table first; the same holds (`page_table.rs` in the buffer crate).

use crate::{
    node::{LEAF_LINES, NodeRef},
    step::{Step, Stop},
    tree::Tree,
};
use wattle_buffer::{
    Error, For, FrameId, Optimistic, PageId, Restart, ScopePart, Swip, Target, scope,
};

/// The direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

/// The target of a descent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Seek<'k> {
    /// The node whose range contains the key.
    At(&'k [u8]),
    /// The node with the largest keys below the key.
    Before(&'k [u8]),
    /// The rightmost node.
    Last,
}

impl Seek<'_> {
    /// Position of the child to go to.
    pub(crate) fn child(self, node: NodeRef<'_>) -> Result<usize, Restart> {
        match self {
            Seek::At(key) => node.child_position(key),
            Seek::Before(key) => child_before(node, key),
            Seek::Last => Ok(node.count()),
        }
    }
}

/// The end of a descent: a node, and its parent. Nothing read from the node is validated yet.
#[derive(Clone, Copy)]
pub(crate) struct Path<'p> {
    pub node: Optimistic<'p>,
    /// Parent and position of the child in it; none for the root.
    pub parent: Option<(Optimistic<'p>, usize)>,
}

impl<'p> Path<'p> {
    #[inline(always)]
    pub fn node_ref(&self) -> NodeRef<'p> {
        NodeRef::from(self.node.page())
    }
}

impl Tree {
    /// Descends to the node of `level` that contains `key`.
    #[inline(always)]
    pub(crate) fn descend<'p>(&'p self, key: &[u8], level: u8) -> Step<Path<'p>> {
        self.descend_by(level, For::Read, |node| node.child_position(key))
    }

    /// Descends to the leaf that contains `key`, to change it.
    #[inline(always)]
    pub(crate) fn descend_to_change<'p>(&'p self, key: &[u8]) -> Step<Path<'p>> {
        self.descend_by(0, For::Write, |node| node.child_position(key))
    }

    /// Descends to a node of `level`.
    pub(crate) fn seek<'p>(&'p self, seek: Seek<'_>, level: u8) -> Step<Path<'p>> {
        match seek {
            Seek::At(key) => self.descend(key, level),
            Seek::Before(key) => self.descend_by(level, For::Read, |node| child_before(node, key)),
            Seek::Last => self.descend_by(level, For::Read, |node| Ok(node.count())),
        }
    }

    #[inline(always)]
    fn descend_by<'p>(
        &'p self,
        level: u8,
        purpose: For,
        choose: impl Fn(NodeRef<'p>) -> Result<usize, Restart>,
    ) -> Step<Path<'p>> {
        let _scope = scope(ScopePart::Descent);
        let mut path = Path { node: self.pool.optimistic(self.root)?, parent: None };
        let mut height = path.node_ref().level();
        if height < level {
            // The root has lost a level since the caller looked.
            path.node.validate()?;
            return Err(Stop::Restart);
        }
        while height > level {
            let node = path.node_ref();
            let position = self.checked(&path.node, choose(node))?;
            height -= 1;
            path = self.child_at(path.node, position, height, purpose)?;
            if path.node_ref().level() != height {
                return Err(self.wrong_level(path.node, height));
            }
        }
        Ok(path)
    }

    /// Goes from a node to its child at `position`.
    pub(crate) fn child<'p>(&'p self, parent: Optimistic<'p>, position: usize) -> Step<Path<'p>> {
        self.child_at(parent, position, 1, For::Read)
    }

    /// Goes from a node to its child at `position`, which is at `level`.
    #[inline(always)]
    pub(crate) fn child_at<'p>(
        &'p self,
        parent: Optimistic<'p>,
        position: usize,
        level: u8,
        purpose: For,
    ) -> Step<Path<'p>> {
        let node = NodeRef::from(parent.page());
        match Swip(node.swip(position)).target() {
            Target::Hot(frame) => {
                self.prefetch_node(frame, level, purpose);
                let child = self.pool.optimistic(frame)?;
                parent.validate()?;
                Ok(Path { node: child, parent: Some((parent, position)) })
            }
            Target::Evicted(page) => self.child_on_storage(parent, position, page),
        }
    }

    /// Goes from a node to its child at `position`, which no swip names as hot, or gives the fault.
    #[cold]
    #[inline(never)]
    fn child_on_storage<'p>(
        &'p self,
        parent: Optimistic<'p>,
        position: usize,
        page: PageId,
    ) -> Step<Path<'p>> {
        let offset = NodeRef::from(parent.page()).swip_offset(position);
        match self.pool.fault(parent, offset, position, page)? {
            Ok((parent, child)) => {
                let view = NodeRef::from(child.page());
                let (level, records) = (view.level(), view.count());
                if level == 0 && child.validate().is_ok() {
                    self.leaf_records.note(records);
                }
                Ok(Path { node: child, parent: Some((parent, position)) })
            }
            Err(fault) => {
                if let Some(reader) = self.pool.reader() {
                    self.read_predicted(reader, parent, position, page);
                }
                Err(Stop::Fault(fault))
            }
        }
    }

    /// Prefetches the lines that a search in the node reads. Inner nodes are mostly in a cache, and
    /// their heads are spread far. A leaf has header, hints, heads and slots in its first lines,
    /// whose cache misses should overlap.
    #[inline(always)]
    pub(crate) fn prefetch_node(&self, frame: FrameId, level: u8, purpose: For) {
        if level == 0 {
            self.pool.prefetch_lines(frame, LEAF_LINES, purpose);
        } else {
            self.pool.prefetch(frame);
        }
    }

    #[cold]
    pub(crate) fn wrong_level(&self, node: Optimistic<'_>, expected: u8) -> Stop {
        let found = NodeRef::from(node.page()).level();
        if found == expected || node.validate().is_err() {
            return Stop::Restart;
        }
        Stop::Error(Error::corruption(
            node.header().page_id(),
            format_args!("it is at level {found} of its tree, not at {expected}"),
        ))
    }
}

/// Child with the largest keys below `key`: as `child_position`, but a key that equals a separator
/// goes left of it.
fn child_before(node: NodeRef<'_>, key: &[u8]) -> Result<usize, Restart> {
    let position = node.child_position(key)?;
    if position == 0 {
        return Ok(0);
    }
    let mut separator = Vec::new();
    node.key_to(position - 1, &mut separator)?;
    Ok(if separator == key { position - 1 } else { position })
}
