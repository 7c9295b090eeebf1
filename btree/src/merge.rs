//! Merges: an underfull node and a neighbour become one; a root with one child takes over its
//! contents.
//!
//! Latches are taken from parent to child and from left to right, and only if they are free: a
//! merge saves space, but correctness never needs it, so it fails instead of waiting. Only the
//! merge of an empty leaf is retried, and reads the neighbour into memory, so that deleting all
//! records frees all pages.

use crate::{
    hint::Hint,
    journal::Context,
    node::{NodeMut, NodeRef, NodeView, merge_into},
    record::Op,
    split::names_child,
    step::{Step, Stop},
    tree::Tree,
    x_merge::used_by,
};
use wattle_buffer::{
    Exclusive, PAGE_SIZE, PageImage, ScopePart, Swip, Target, page::header, scope,
};

/// A node that uses fewer bytes than this is merged after a removal.
const UNDERFULL: usize = PAGE_SIZE * 4 / 10;
/// Nodes that use more bytes than this together are not merged: one of them would soon be split
/// again.
const MERGED: usize = PAGE_SIZE * 8 / 10;
/// True if the node should be merged with a neighbour.
pub(crate) fn is_underfull(node: NodeView<'_>) -> bool {
    node.used_bytes() < UNDERFULL || (node.is_inner() && node.count() == 0)
}

/// Positions of the neighbours of a child; the right one first.
fn neighbours_of(position: usize, siblings: usize) -> [Option<usize>; 2] {
    [Some(position + 1).filter(|at| *at <= siblings), position.checked_sub(1)]
}

impl Tree {
    /// Merges the node of `level` that contains `key` with a neighbour, if it is underfull and both
    /// fit into one node. Continues with the parent if that is underfull then, and with the node
    /// while it is empty. Gives whether anything was merged.
    pub fn merge_step(&self, cx: &Context, key: &[u8], level: u8) -> Step<bool> {
        let _scope = scope(ScopePart::StructureChanges);
        cx.check_room(true)?;
        let path = self.descend(key, level)?;
        let Some((parent, position)) = path.parent else {
            return self.collapse_root_step(cx);
        };
        // Looked at under the latch: a view needs bytes that do not change.
        let node = path.node.upgrade()?;
        let view = NodeView::from(node.bytes());
        let (underfull, insist, used) = (is_underfull(view), view.count() == 0, view.used_bytes());
        let node = node.downgrade();
        let parent_node = NodeRef::from(parent.page());
        let siblings = parent_node.count();
        if siblings == 0 {
            parent.validate()?;
            return self.merge_only_child(cx, key, level, underfull);
        }
        if !underfull {
            return Ok(false);
        }
        let mut neighbours = neighbours_of(position, siblings);
        if !insist {
            // Most neighbours are too full; look at them without an exclusive latch.
            let theirs = |at: &usize| used_by(&self.pool, Swip(parent_node.swip(*at)));
            let fits = |at: &usize| theirs(at).is_some_and(|theirs| used + theirs <= MERGED);
            neighbours = [neighbours.into_iter().flatten().find(fits), None];
        }
        let Some(first) = neighbours.into_iter().flatten().next() else {
            parent.validate()?;
            return Ok(false);
        };
        if let Target::Evicted(_) = self.pool.locate(Swip(parent_node.swip(first))) {
            // Swizzling changes the version of the parent: take all latches in the next run.
            self.child(parent, first)?;
            return Err(Stop::Restart);
        }
        let mut parent = parent.upgrade()?;
        let node = node.upgrade()?;
        debug_assert!(names_child(&parent, position, &node), "the parent names another node");
        let mut image = PageImage::zeroed();
        for at in neighbours.into_iter().flatten() {
            let parent_view = NodeView::from(parent.bytes());
            let sibling = match self.pool.locate(Swip(parent_view.swip(at))) {
                Target::Hot(frame) => self.pool.try_exclusive(frame),
                // The second neighbour is not worth a read.
                Target::Evicted(_) => continue,
            };
            let Some(sibling) = sibling else {
                if insist {
                    return Err(Stop::Restart);
                }
                continue;
            };
            let left = position.min(at);
            let mut separator = Vec::new();
            parent_view.key_to(left, &mut separator);
            let is_left = left == position;
            let (left_node, right_node) =
                if is_left { (&node, &sibling) } else { (&sibling, &node) };
            let (left_view, right_view) = (left_node.bytes().into(), right_node.bytes().into());
            // A longer fence and a shorter prefix may need more room than there is.
            if merge_into(left_view, right_view, &separator, &mut image).is_err() {
                continue;
            }
            let (left_node, right_node) = if is_left { (node, sibling) } else { (sibling, node) };
            let merged = self.merge_nodes(cx, &mut parent, left, left_node, right_node, &mut image);
            let parent_view = NodeView::from(parent.bytes());
            let (underfull, alone) = (is_underfull(parent_view), parent_view.count() == 0);
            drop(parent);
            if underfull {
                self.merge_parent(cx, key, level + 1, alone)?;
            }
            if merged == 0 {
                self.merge_step(cx, key, level)?;
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// An only child has no neighbour. It gets siblings when its parent merges, which may have
    /// failed when the child lost the others.
    fn merge_only_child(&self, cx: &Context, key: &[u8], level: u8, underfull: bool) -> Step<bool> {
        let merged = self.merge_step(cx, key, level + 1)?;
        if merged && underfull {
            self.merge_step(cx, key, level)?;
        }
        Ok(merged)
    }

    /// Merges the parent, at `level`, of two nodes that have merged.
    fn merge_parent(&self, cx: &Context, key: &[u8], level: u8, has_one_child: bool) -> Step<()> {
        match self.merge_step(cx, key, level) {
            Ok(_) => Ok(()),
            // The merge that the caller asked for is done. A parent that cannot merge now does so
            // after the next merge below it.
            Err(Stop::Restart) if !has_one_child => Ok(()),
            // An only child may never merge again, so its parent must merge now.
            Err(stop) => Err(stop),
        }
    }

    /// Replaces the left node by the merged image, and frees the right one. Gives the number of
    /// keys of the merged node.
    fn merge_nodes<'p>(
        &'p self,
        cx: &Context,
        parent: &mut Exclusive<'p>,
        left: usize,
        mut left_node: Exclusive<'p>,
        mut right_node: Exclusive<'p>,
        image: &mut PageImage,
    ) -> usize {
        NodeMut::new(&mut parent.page_mut()).remove_child(left);
        let hot = parent.header().hot_children() - 1;
        parent.header().set_hot_children(hot);
        left_node.write_image(image);
        let freed = [right_node.header().page_id()];
        cx.log_group(&mut [
            (&mut left_node, Op::Image),
            (parent, Op::RemoveChild { position: left }),
            (&mut right_node, Op::Free { pages: &freed }),
        ]);
        let hints = (left_node.header().version_hint(), right_node.header().version_hint());
        let hint = Hint::joined(hints.0, hints.1, || self.forest.draw());
        left_node.header().set_version_hint(hint);
        self.adopt_children(&left_node);
        right_node.header().set_hot_children(0);
        self.pool.free_page(right_node);
        cx.worker.counters().merges.add(1);
        NodeView::from(left_node.bytes()).count()
    }

    /// A root with one child takes over the contents of the child.
    fn collapse_root_step(&self, cx: &Context) -> Step<bool> {
        let root = self.pool.optimistic(self.root)?;
        let node = NodeRef::from(root.page());
        if node.is_leaf() || node.count() > 0 {
            root.validate()?;
            return Ok(false);
        }
        let Target::Hot(_) = self.pool.locate(Swip(node.swip(0))) else {
            self.child(root, 0)?;
            return Err(Stop::Restart);
        };
        let path = self.child(root, 0)?;
        let mut root = root.upgrade()?;
        let mut child = path.node.upgrade()?;
        let mut image = PageImage::zeroed();
        image.0.copy_from_slice(child.bytes());
        image.set_u64(header::PAGE_ID, self.root_page().0);
        root.write_image(&mut image);
        let freed = [child.header().page_id()];
        cx.log_group(&mut [(&mut root, Op::Image), (&mut child, Op::Free { pages: &freed })]);
        root.header().set_hot_children(0);
        let hint = child.header().version_hint();
        root.header().set_version_hint(Hint::joined(hint, hint, || self.forest.draw()));
        self.adopt_children(&root);
        child.header().set_hot_children(0);
        self.pool.free_page(child);
        cx.worker.counters().merges.add(1);
        Ok(true)
    }
}
