//! The eviction of one page.
//!
//! Latch order: a descent latches from parent to child and may wait. Eviction starts at the child
//! and needs both latches, so it only tries to take them and never waits.

use crate::{
    counters::{Counters, Refusal},
    frame::{FrameHeader, FrameState},
    ids::FrameId,
    pool::Pool,
    replacement::Leave,
    swip::Swip,
};

/// The reason why a hot page cannot be evicted at any value; `None` if it can. Racy unless the page
/// is latched.
#[inline(always)]
pub(crate) fn obstacle(header: &FrameHeader) -> Option<Refusal> {
    if header.hot_children() != 0 {
        Some(Refusal::HotChildren)
    } else if header.is_writing() {
        Some(Refusal::Writing)
    } else if header.is_pinned() {
        Some(Refusal::Pinned)
    } else {
        None
    }
}

/// Evicts the page of `frame` if it is clean, has no hot children and has a value of at most
/// `threshold`. Returns whether it did; the frame is then free and belongs to the caller. Never
/// waits. Counts the outcome in `counters`, which are those of the calling thread.
pub(crate) fn evict(pool: &Pool, counters: &Counters, frame: FrameId, threshold: f32) -> bool {
    match try_evict(pool, counters, frame, threshold) {
        Ok(()) => true,
        Err(why) => {
            counters.refuse(why);
            false
        }
    }
}

fn try_evict(
    pool: &Pool,
    counters: &Counters,
    frame: FrameId,
    threshold: f32,
) -> Result<(), Refusal> {
    // 1. Latch the page. If another thread holds its latch, the page is in use: leave it.
    let mut child = pool.try_exclusive(frame).ok_or(Refusal::Latched)?;
    let header = child.header();
    // 2. Check again under the latch: the state may have changed since it was sampled.
    if header.state() != FrameState::Hot || header.is_dirty() {
        return Err(Refusal::Changed);
    }
    if let Some(why) = obstacle(header) {
        return Err(why);
    }
    if pool.policy.value(&header.tracker, pool.epoch()) > threshold {
        return Err(Refusal::Hotter);
    }
    // 3. Latch the parent, which the hint names or a descent finds.
    let (hinted, position) = header.parent_hint();
    let swip = pool.swip_to(frame);
    let find = |parent: FrameId| {
        let guard = pool.try_exclusive(parent)?;
        let ours = guard.header().state() == FrameState::Hot
            && guard.header().tree_id() == header.tree_id();
        let place =
            ours.then(|| pool.owner().find_swip(guard.page(), swip.0, position)).flatten()?;
        Some((guard, place))
    };
    let found = find(hinted).or_else(|| {
        let parent = pool.owner().find_parent(pool, frame)?;
        header.set_parent_hint(parent, position);
        if parent == frame { None } else { find(parent) }
    });
    let _parent = match found {
        // 4. Unswizzle. A later descent finds an evicted swip. One that has already read the hot
        //    swip fails to validate the parent.
        Some((mut parent, (offset, _))) => {
            parent.set_swip(offset, Swip::evicted(header.page_id()));
            parent.header().child_cooled();
            counters.unswizzles.add(1);
            Some(parent)
        }
        // The root of a closed tree has no parent; the owner releases it.
        None if pool.owner().release_root(header.tree_id(), frame) => None,
        None => return Err(Refusal::ParentLatched),
    };
    pool.policy.on_leave(pool.visit(frame, header), header.page_id(), Leave::Evicted);
    pool.leave_page(header.page_id(), frame);
    // 5. Free the frame. Optimistic readers of it fail, because its version changes.
    header.change_state(FrameState::Hot, FrameState::Free);
    child.mark_changed();
    Ok(())
}
