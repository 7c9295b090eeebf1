//! The eviction of one page.
//!
//! Latch order: descents latch from parent to child and may wait. Eviction needs child and parent
//! at once and comes from the child, so it only tries and never waits.

use crate::{
    frame::FrameState, ids::FrameId, pool::Pool, replacement::Replacement, swip::Swip, with_policy,
};

/// Evicts the page of `frame` if it is clean, has no hot children and is worth at most `threshold`.
/// Gives whether it did; the frame is then free and belongs to the caller. Never waits.
pub(crate) fn evict(pool: &Pool, frame: FrameId, threshold: f32) -> bool {
    // 1. Latch the page; whoever is inside is using it.
    let Some(mut child) = pool.try_exclusive(frame) else { return false };
    let header = child.header();
    // 2. Everything seen before the latch may have changed.
    let evictable = header.state() == FrameState::Hot
        && !header.is_dirty()
        && !header.is_writing()
        && !header.is_pinned()
        && header.hot_children() == 0;
    let value = with_policy!(&pool.policy, p => p.value(&header.tracker, pool.epoch()));
    if !evictable || value > threshold {
        return false;
    }
    // 3. Latch the parent, where the hint says or where a descent finds it.
    let (hinted, position) = header.parent_hint();
    let swip = Swip::hot(frame);
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
        // 4. Unswizzle. From here descents find the page evicted; those that already read the hot swip
        //    fail to validate the parent.
        Some((mut parent, (offset, _))) => {
            parent.set_swip(offset, Swip::evicted(header.page_id()));
            parent.header().child_cooled();
            Some(parent)
        }
        // The root of a closed tree: the owner stands in for a parent.
        None if pool.owner().release_root(header.tree_id(), frame) => None,
        None => return false,
    };
    // 5. Free the frame. The changed version turns away whoever still looks at it.
    header.change_state(FrameState::Hot, FrameState::Free);
    child.mark_changed();
    true
}
