//! X-merge: X neighbouring leaves become X - 1 when one of them is about to be written.

use crate::{
    hint::Hint,
    journal::Context,
    node::{NodeMut, NodeRef, NodeView, redistribute},
    record::Op,
};
use wattle_buffer::{
    FrameId, FrameState, PAGE_SIZE, PageImage, PageMut, Pool, ScopePart, Swip, Target, scope,
};

/// Most leaves of an X-merge (LeanStore's default).
const X: usize = 5;
/// X-merge leaves the X - 1 nodes at most this full, so that the next insert does not split again.
const X_FILL: usize = PAGE_SIZE * 95 / 100;

/// X-merge ("Contention and Space Management in B-Trees", section 4). The leaf in `frame` is about
/// to be written: looks for up to [`X`] adjacent hot leaves, this one included, that fit into one
/// leaf less, and merges them. `now` gives the newest transaction. Gives whether a page was saved.
/// Never waits.
pub(crate) fn x_merge(cx: &Context, frame: FrameId, draw: &dyn Fn() -> u64) -> bool {
    let _scope = scope(ScopePart::StructureChanges);
    try_x_merge(cx, frame, draw).is_some()
}

fn try_x_merge(cx: &Context, frame: FrameId, draw: &dyn Fn() -> u64) -> Option<()> {
    let pool: &Pool = cx.worker.pool();
    cx.check_room(false).ok()?;
    // Look at a full leaf without an exclusive latch. A wrong guess costs a look or a chance to
    // merge.
    let leaf = NodeRef::from(pool.try_shared(frame)?.page());
    if !leaf.is_leaf() || leaf.free_bytes() < PAGE_SIZE / X {
        return None;
    }
    let header = pool.header(frame);
    let (hinted, position) = header.parent_hint();
    if header.is_pinned() || hinted == frame {
        return None;
    }
    let mut parent = pool.try_exclusive(hinted)?;
    let same_tree =
        parent.header().state() == FrameState::Hot && parent.header().tree_id() == header.tree_id();
    if !same_tree {
        return None;
    }
    let parent_view = NodeView::from(parent.bytes());
    if !parent_view.is_inner() {
        return None;
    }
    let parent_ref = NodeRef::from(parent.page());
    let position = parent_ref.find_swip(pool.swip_to(frame).0, position)?;
    let (first, count) = window(pool, parent_view, position)?;
    let mut nodes = Vec::with_capacity(count);
    for position in first..first + count {
        let Target::Hot(frame) = pool.locate(Swip(parent_view.swip(position))) else { return None };
        nodes.push(pool.try_exclusive(frame)?);
    }
    let views: Vec<_> = nodes.iter().map(|node| NodeView::from(node.bytes())).collect();
    let mut images = vec![PageImage([0; PAGE_SIZE]); count - 1];
    let separators = redistribute(&views, &mut images)?;
    // Edit a copy of the parent first: its new separators may not fit.
    let mut parent_image = PageImage::zeroed();
    parent_image.0.copy_from_slice(parent.bytes());
    let swips: Vec<_> = (first..first + count - 1).map(|at| parent_view.swip(at)).collect();
    {
        let mut page = PageMut::of_image(&mut parent_image);
        let mut node = NodeMut::new(&mut page);
        for _ in 0..count - 1 {
            node.remove_child(first);
        }
        for (i, separator) in separators.iter().enumerate() {
            node.insert_child(first + i, separator, swips[i + 1]).ok()?;
        }
    }
    parent.write_image(&mut parent_image);
    let hot = parent.header().hot_children() - 1;
    parent.header().set_hot_children(hot);
    for (node, image) in nodes.iter_mut().zip(&mut images) {
        node.write_image(image);
    }
    let hints = nodes.iter().map(|node| node.header().version_hint());
    let hint = hints.reduce(|a, b| Hint::joined(a, b, draw)).expect("two leaves");
    nodes.iter().for_each(|node| node.header().set_version_hint(hint));
    let mut last = nodes.pop().expect("a window has at least two leaves");
    let freed = [last.header().page_id()];
    let mut group: Vec<_> = nodes.iter_mut().map(|node| (node, Op::Image)).collect();
    group.push((&mut parent, Op::Image));
    group.push((&mut last, Op::Free { pages: &freed }));
    cx.log_group(&mut group);
    drop(group);
    pool.free_page(last);
    Some(())
}

/// Bytes that a child uses, if it is in memory and no thread is changing it.
pub(crate) fn used_by(pool: &Pool, child: Swip) -> Option<usize> {
    let Target::Hot(frame) = pool.locate(child) else { return None };
    let child = pool.try_shared(frame)?;
    Some(NodeRef::from(child.page()).used_bytes())
}

/// Free bytes of a leaf, if it is in memory and no thread is changing it.
pub(crate) fn free_of(pool: &Pool, child: Swip) -> Option<usize> {
    used_by(pool, child).map(|used| PAGE_SIZE - used)
}

/// Position and number of the leaves to merge: the smallest window around `position` whose records
/// fit into one leaf less.
fn window(pool: &Pool, parent: NodeView<'_>, position: usize) -> Option<(usize, usize)> {
    let low = position.saturating_sub(X - 1);
    let high = (position + X - 1).min(parent.count());
    let mut sizes = [None; 2 * X];
    for at in low..=high {
        sizes[at - low] = used_by(pool, Swip(parent.swip(at)));
    }
    for count in 2..=X {
        for first in low..=position {
            if first + count <= position || first + count - 1 > high {
                continue;
            }
            let sizes = &sizes[first - low..first - low + count];
            let total = sizes.iter().try_fold(0, |sum, size| size.map(|size| sum + size));
            if total.is_some_and(|total| total <= (count - 1) * X_FILL) {
                return Some((first, count));
            }
        }
    }
    None
}
