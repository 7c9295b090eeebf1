//! Redistribution: a full leaf gives records to a neighbour that has room, and is not split (B*-
//! tree, Knuth, "The Art of Computer Programming" 6.2.4).
//!
//! A leaf that is split is half full, and leaves of random inserts are 0.7 full on average. If they
//! first fill up their neighbours, they are 0.85 to 0.9 full. Only a neighbour under the same
//! parent and in memory is asked, so nothing is read.
//!
//! # Argument
//!
//! The step holds the exclusive latches of the parent, the leaf and the neighbour while it changes
//! all three, as an X-merge does (`x_merge`). So:
//!
//! - **No latch is waited for.** Parent and leaf are latched by upgrade, the neighbour by try. If
//!   the neighbour is not free, the leaf is split instead.
//! - **Fences partition the keys.** The new fence lies between the records of both leaves. It is
//!   the upper fence of the left one, the lower fence of the right one, and the separator of the
//!   parent, all three changed under the latches.
//! - **No reader misses a record or sees it twice.** All three versions change. A descent takes the
//!   version of the leaf before it validates the parent, so it comes to the leaf that has the key
//!   now, or restarts. A scan continues with a descent to the key after its last one; it goes to
//!   the next leaf without a descent only if leaf and parent have not changed.
//! - **No change is lost.** A writer that found its record before has to upgrade the latch of the
//!   leaf, which fails. Versions of records, ghosts, locks and undo go by key, not by page. The
//!   taker's version hint covers the records of both leaves.
//! - **A crash leaves all of it or nothing**: it is one log record. Pages are written only when it
//!   is durable, and redo brings each page to the same state alone.
//! - **It ends.** The shift is taken only if the new record finds room afterwards, which is tried
//!   on a copy. So each redistribution is followed by an insert, by this thread or another one.

use crate::{
    hint::Hint,
    journal::Context,
    node::{NodeMut, NodeRef, NodeView, Pending},
    record::Op,
    split::{may_begin_run, names_child, run_at},
    step::Step,
    tree::Tree,
    x_merge::free_of,
};
use wattle_buffer::{Exclusive, PAGE_SIZE, ScopePart, Swip, Target, scope};

/// Records of fewer bytes move no others. Many of them lie in a leaf, so that the space that splits
/// leave is small, and moving them costs more than it gives: of records of 128 bytes at random, an
/// insert into a resident leaf took 1.6 times the instructions, and a fifth more log.
const LEAST: usize = PAGE_SIZE / 8;

impl Tree {
    /// Makes room in the leaf that contains `key`, which is absent, for a value of `value_len`
    /// bytes, by giving records to a neighbour. False: the leaf must be split.
    pub(crate) fn redistribute_step(
        &self,
        cx: &Context,
        key: &[u8],
        value_len: usize,
    ) -> Step<bool> {
        let _scope = scope(ScopePart::StructureChanges);
        cx.check_room(true)?;
        let path = self.descend(key, 0)?;
        let Some((parent, position)) = path.parent else { return Ok(false) };
        // Looked at under the latch: a view needs bytes that do not change.
        let leaf = path.node.upgrade()?;
        let Some(new) = self.may_redistribute(&leaf, key, value_len) else { return Ok(false) };
        let view = NodeView::from(leaf.bytes());
        let parent_node = NodeRef::from(parent.page());
        let siblings = parent_node.count();
        let neighbours = [Some(position + 1).filter(|at| *at <= siblings), position.checked_sub(1)];
        let free = |at| Some((free_of(&self.pool, Swip(parent_node.swip(at)))?, at));
        let most = neighbours.into_iter().flatten().filter_map(free).max();
        let Some((_, at)) = most.filter(|(free, _)| view.may_shift(new, *free)) else {
            return Ok(false);
        };
        let leaf = leaf.downgrade();
        let mut parent = parent.upgrade()?;
        let leaf = leaf.upgrade()?;
        debug_assert!(names_child(&parent, position, &leaf), "the parent names another node");
        let neighbour = match self.pool.locate(Swip(NodeView::from(parent.bytes()).swip(at))) {
            Target::Hot(frame) => self.pool.try_exclusive(frame),
            Target::Evicted(_) => None,
        };
        let Some(neighbour) = neighbour else { return Ok(false) };
        Ok(self.redistribute(cx, (&mut parent, position.min(at)), leaf, neighbour, new))
    }

    /// The new record, if the latched leaf, which is full, may give records to a neighbour for it.
    pub(crate) fn may_redistribute<'k>(
        &self,
        leaf: &Exclusive<'_>,
        key: &'k [u8],
        value_len: usize,
    ) -> Option<Pending<'k>> {
        if !self.forest.redistributes() || key.len() + value_len < LEAST {
            return None;
        }
        let found = NodeRef::from(leaf.page()).search(key).ok().filter(|search| !search.found)?;
        let new = Pending { position: found.position, key, value_len };
        let view = NodeView::from(leaf.bytes());
        let goes_on = view.count() == 0
            || may_begin_run(leaf, new.position)
            || view.is_sequential(new, run_at(leaf, new.position));
        (!goes_on).then_some(new)
    }

    /// Moves records from `giver` to `taker`; the parent's separator at `between` is between them.
    /// False: it does not fit, and nothing changed.
    fn redistribute<'p>(
        &'p self,
        cx: &Context,
        (parent, between): (&mut Exclusive<'p>, usize),
        mut giver: Exclusive<'p>,
        mut taker: Exclusive<'p>,
        new: Pending<'_>,
    ) -> bool {
        let (view, taker_view) = (NodeView::from(giver.bytes()), NodeView::from(taker.bytes()));
        let to_right = view.upper().is_some_and(|upper| upper == taker_view.lower());
        let [new_giver, new_taker] = &mut *cx.halves();
        let shift = view.choose_shift(taker_view, new, to_right, [new_giver, new_taker]);
        let Some(shift) = shift else { return false };
        let (position, separator) = (shift.position, &shift.separator[..]);
        let replaced = NodeMut::new(&mut parent.page_mut()).replace_separator(between, separator);
        if replaced.is_err() {
            parent.unchanged();
            return false;
        }
        giver.write_image(new_giver);
        taker.write_image(new_taker);
        let kept = match to_right {
            true => Op::Truncate { position, separator },
            false => Op::KeepRight { position, separator },
        };
        let taken = Op::Take { at_right: !to_right, fence: separator, records: &shift.records };
        cx.log_group(&mut [
            (&mut giver, kept),
            (&mut taker, taken),
            (parent, Op::Separator { position: between, separator }),
        ]);
        let hints = (giver.header().version_hint(), taker.header().version_hint());
        taker.header().set_version_hint(Hint::joined(hints.0, hints.1, || self.forest.draw()));
        giver.header().end_insert_run();
        taker.header().end_insert_run();
        cx.worker.counters().redistributions.add(1);
        true
    }
}
