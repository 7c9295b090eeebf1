//! Removal of a large value, from its end.
//!
//! The leaves in which only chunks of the value can lie leave the tree without being read: the
//! separators of their parent say which these are. The first of them stays, without records, and
//! takes over the ranges of the others; then a merge joins it with a neighbour. Each leaf that
//! leaves is a log record of its own, without bytes of the value. Chunks that share a leaf with
//! another value are removed one by one.
//!
//! No snapshot needs the chunks. A reader whose snapshot was cancelled may still look for them,
//! or a read for it may be under way; a page that is being read stays for a later step.

use crate::{
    journal::Context,
    large_value::{CHUNK_KEY, chunk_id, chunk_key},
    merge::is_underfull,
    node::{NodeBuilder, NodeMut, NodeRef, NodeView},
    record::Op,
    step::{Step, Stop},
    tree::Tree,
};
use wattle_buffer::{Exclusive, Optimistic, PageId, PageImage, Restart, Swip, Target};

/// Leaves that a step frees, at most.
const LEAVES: usize = 32;

/// The progress of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Chunks from this number on are gone.
    pub left: u64,
    /// [`Tree::merge_step`] should follow with the key of the chunk `left`.
    pub underfull: bool,
}

/// A leaf that is freed.
enum Leaf<'p> {
    Hot(Exclusive<'p>),
    Evicted(PageId),
}

/// A fence as the least chunk key that is not below it.
fn padded(fence: &[u8]) -> [u8; CHUNK_KEY] {
    let mut key = [0; CHUNK_KEY];
    let len = fence.len().min(CHUNK_KEY);
    key[..len].copy_from_slice(&fence[..len]);
    key
}

/// The first chunk of the value `id` that may lie at or above a fence.
fn first_chunk(id: u64, lower: &[u8]) -> u64 {
    let lower = padded(lower);
    match chunk_id(&lower) {
        Some(of) if of == id => {
            u64::from(u32::from_be_bytes(lower[8..].try_into().expect("4 bytes")))
        }
        _ => 0,
    }
}

impl Tree {
    /// Removes chunks of the value `id` below the number `end`, at least one, from the last one
    /// on: those of one leaf, or of several leaves. No snapshot needs them, and nothing is written
    /// under the id.
    ///
    /// # Panics
    /// If `end` is 0.
    pub fn remove_chunks_step(&self, cx: &Context, id: u64, end: u64) -> Step<Removed> {
        assert!(end > 0, "no chunk is below the first");
        cx.check_room(false)?;
        if self.depth()? > 1
            && let Some(removed) = self.free_leaves_of(cx, id, end)?
        {
            return Ok(removed);
        }
        self.remove_from_leaf(cx, id, end)
    }

    /// Removes the chunks that lie in the leaf of the last one.
    fn remove_from_leaf(&self, cx: &Context, id: u64, end: u64) -> Step<Removed> {
        let last = chunk_key(id, end - 1);
        let mut leaf = self.descend(&last, 0)?.node.upgrade()?;
        let mut key = Vec::with_capacity(CHUNK_KEY);
        let mut left = first_chunk(id, NodeView::from(leaf.bytes()).lower());
        let mut changed = false;
        for position in (0..NodeView::from(leaf.bytes()).count()).rev() {
            key.clear();
            NodeView::from(leaf.bytes()).key_to(position, &mut key);
            if key[..] > last[..] {
                continue;
            }
            if chunk_id(&key) != Some(id) {
                break;
            }
            if changed && cx.check_room(false).is_err() {
                // The next step reports it.
                left = first_chunk(id, &key) + 1;
                break;
            }
            NodeMut::new(&mut leaf.page_mut()).remove_leaf(position);
            cx.log_group(&mut [(&mut leaf, Op::Remove { key: &key })]);
            changed = true;
        }
        let underfull = leaf.frame() != self.root && is_underfull(leaf.bytes().into());
        if !changed {
            leaf.unchanged();
        }
        Ok(Removed { left, underfull: underfull && changed })
    }

    /// Frees leaves in which only chunks of the value can lie, if the last one lies in such a leaf.
    fn free_leaves_of(&self, cx: &Context, id: u64, end: u64) -> Step<Option<Removed>> {
        let path = self.descend(&chunk_key(id, end - 1), 1)?;
        let (parent, node) = (path.node, path.node_ref());
        let last = self.checked(&parent, node.child_position(&chunk_key(id, end - 1)))?;
        let first = self.checked(&parent, first_leaf(node, id, last))?;
        let Some(mut first) = first else {
            parent.validate()?;
            return Ok(None);
        };
        self.bring(parent, first, last)?;
        let mut parent = parent.upgrade()?;
        let mut leaves = Vec::with_capacity(last - first + 1);
        for position in (first..=last).rev() {
            let Some(leaf) = self.latch_leaf(&parent, position) else {
                first = position + 1;
                break;
            };
            leaves.push(leaf);
        }
        // The survivor needs a frame.
        while let Some(Leaf::Evicted(_)) = leaves.last() {
            leaves.pop();
            first += 1;
        }
        let Some(Leaf::Hot(mut survivor)) = leaves.pop() else {
            parent.unchanged();
            return Err(Stop::Restart);
        };
        let left = first_chunk(id, NodeView::from(survivor.bytes()).lower());
        if leaves.is_empty() {
            self.empty_up_to(&mut survivor, &parent, first);
            cx.log_group(&mut [(&mut survivor, Op::Image)]);
            parent.unchanged();
        }
        let all = leaves.len();
        while let Some(leaf) = leaves.pop() {
            if leaves.len() + 1 < all && cx.check_room(true).is_err() {
                // The rest is left to the next step, which begins at the end again.
                return Ok(Some(Removed { left: end, underfull: false }));
            }
            self.empty_up_to(&mut survivor, &parent, first + 1);
            NodeMut::new(&mut parent.page_mut()).remove_child(first);
            let remove = Op::RemoveChild { position: first };
            match leaf {
                Leaf::Hot(mut leaf) => {
                    let hot = parent.header().hot_children() - 1;
                    parent.header().set_hot_children(hot);
                    let freed = [leaf.header().page_id()];
                    cx.log_group(&mut [
                        (&mut survivor, Op::Image),
                        (&mut parent, remove),
                        (&mut leaf, Op::Free { pages: &freed }),
                    ]);
                    self.pool.free_page(leaf);
                }
                Leaf::Evicted(page) => {
                    let group = &mut [(&mut survivor, Op::Image), (&mut parent, remove)];
                    cx.log_group_freeing(group, &[page]);
                    self.pool.free_evicted_page(page);
                }
            }
            cx.worker.counters().merges.add(1);
        }
        Ok(Some(Removed { left, underfull: true }))
    }

    /// Brings the first of these children into memory, and those of which a read is under way.
    fn bring(&self, parent: Optimistic<'_>, first: usize, last: usize) -> Step<()> {
        for position in first..=last {
            let swip = Swip(NodeRef::from(parent.page()).swip(position));
            if let Target::Evicted(page) = self.pool.locate(swip)
                && (position == first || self.pool.is_in_flight(page))
            {
                self.child(parent, position)?;
                // The parent has changed.
                return Err(Stop::Restart);
            }
        }
        Ok(())
    }

    /// A child of a latched node, if no thread is at it.
    fn latch_leaf<'p>(&'p self, parent: &Exclusive<'p>, position: usize) -> Option<Leaf<'p>> {
        match self.pool.locate(Swip(NodeView::from(parent.bytes()).swip(position))) {
            Target::Hot(frame) => self.pool.try_exclusive(frame).map(Leaf::Hot),
            // While the parent is latched no read begins.
            Target::Evicted(page) => (!self.pool.is_in_flight(page)).then_some(Leaf::Evicted(page)),
        }
    }

    /// Makes a latched leaf one without records, up to where the child `last` of its parent ends.
    fn empty_up_to(&self, leaf: &mut Exclusive<'_>, parent: &Exclusive<'_>, last: usize) {
        let (view, parent) = (NodeView::from(leaf.bytes()), NodeView::from(parent.bytes()));
        let mut upper = Vec::new();
        let upper = match last < parent.count() {
            true => {
                parent.key_to(last, &mut upper);
                Some(&upper[..])
            }
            false => parent.upper(),
        };
        let mut image = PageImage::zeroed();
        let empty = NodeBuilder::leaf(view.page_id(), self.id, view.lower(), upper);
        empty.finish(&mut image).expect("two fences fit");
        leaf.write_image(&mut image);
    }
}

/// The first child in a row, up to `last`, in which only chunks of the value `id` can lie. `None`:
/// others can lie in `last`.
fn first_leaf(node: NodeRef<'_>, id: u64, last: usize) -> Result<Option<usize>, Restart> {
    let (mut fence, count) = (Vec::new(), node.count());
    let is_finite = match last < count {
        true => node.key_to(last, &mut fence).map(|()| true)?,
        false => node.upper_fence_to(&mut fence)?,
    };
    let Some(next) = id.checked_add(1).filter(|_| is_finite) else { return Ok(None) };
    if padded(&fence) > chunk_key(next, 0) {
        return Ok(None);
    }
    let mut first = None;
    for position in (0..=last).rev().take(LEAVES) {
        fence.clear();
        match position.checked_sub(1) {
            Some(before) => node.key_to(before, &mut fence)?,
            None => node.lower_fence_to(&mut fence)?,
        }
        if padded(&fence) < chunk_key(id, 0) {
            break;
        }
        first = Some(position);
    }
    Ok(first)
}
