//! Splits: a full node, or a leaf that writers contend for, becomes two nodes.
//!
//! One step splits one node. It latches parent and node by upgrade, so it never waits while it
//! holds a latch. If the parent has no room for the separator, a step of its own splits the parent
//! first; the operation that needed room runs again and does the rest. A split is one log record,
//! so a crash leaves all of it or nothing. The frames and page ids of new nodes are reserved before
//! any latch is taken.

use crate::{
    hint::Hint,
    journal::Context,
    node::{NodeBuilder, NodeMut, NodeRef, NodeView, Pending, Run, Split},
    record::Op,
    step::{Step, Stop},
    tree::Tree,
};
use wattle_buffer::{Exclusive, Fault, PageImage, ScopePart, Swip, Target, scope};

/// Most new pages of a split: both halves of a root.
pub(crate) const RESERVE: usize = 2;

/// A leaf is in a run if at least this part of its records was inserted in sequence.
const RUN_SHARE: usize = 4;

/// In a leaf of fewer records inserts follow each other by chance.
const FEW: usize = 16;

/// True if some inserts came in sequence in a leaf of many records, so that a run may be beginning
/// there; it is told by the next ones.
pub(crate) fn may_begin_run(leaf: &Exclusive<'_>, position: usize) -> bool {
    NodeView::from(leaf.bytes()).count() >= FEW && leaf.header().insert_run(position) >= 4
}

/// The run of inserts, each directly beside the previous one, that an insert at `position` of a
/// full leaf continues, if it will probably go on. At an end of the leaf two inserts are enough:
/// others seldom follow each other there. They could be all inserts since the leaf was split, if
/// few records fit.
pub(crate) fn run_at(leaf: &Exclusive<'_>, position: usize) -> Option<Run> {
    let (header, count) = (leaf.header(), NodeView::from(leaf.bytes()).count());
    let enough = match position == 0 || position == count {
        true => 2,
        false => (count / RUN_SHARE).clamp(4, 60).min((count - 1).max(2)),
    };
    if header.insert_run(position) < enough.min(count) {
        return None;
    }
    let descends = position < count && header.is_before_last_insert(position);
    Some(if descends { Run::Descending } else { Run::Ascending })
}

/// True if the swip at `position` of a latched parent names a latched node.
pub(crate) fn names_child(parent: &Exclusive<'_>, position: usize, node: &Exclusive<'_>) -> bool {
    NodeView::from(parent.bytes()).swip(position) == node.pool().swip_to(node.frame()).0
}

impl Tree {
    /// Splits the leaf that contains `key`, to make room for a record with a value of `value_len`
    /// bytes.
    pub(crate) fn split_step(&self, cx: &Context, key: &[u8], value_len: usize) -> Step<()> {
        self.split_with(cx, key, 0, &|leaf| {
            let (node, view) = (NodeRef::from(leaf.page()), NodeView::from(leaf.bytes()));
            if !view.can_split() {
                return None;
            }
            Some(match node.search(key) {
                Ok(search) if !search.found => {
                    let new = Pending { position: search.position, key, value_len };
                    view.choose_split(new, run_at(leaf, search.position))
                }
                // The record exists and grows: balance the halves. Alone in its leaf, which another
                // thread has split since this one found it full, it has room.
                _ if view.count() < 2 => return None,
                _ => view.choose_balanced_split(),
            })
        })
    }

    /// Splits the inner node of `level` that contains `key`, to make room for a separator.
    pub(crate) fn split_inner_step(&self, cx: &Context, key: &[u8], level: u8) -> Step<()> {
        self.split_with(cx, key, level, &|inner| {
            let (node, view) = (NodeRef::from(inner.page()), NodeView::from(inner.bytes()));
            if !view.can_split() {
                return None;
            }
            Some(match node.child_position(key) {
                Ok(position) => view.choose_split(Pending { position, key, value_len: 0 }, None),
                Err(_) => view.choose_balanced_split(),
            })
        })
    }

    /// Splits the leaf that contains `key` before the record at `position`, to separate the writers
    /// on both sides ("Contention and Space Management in B-Trees", section 3).
    pub(crate) fn contention_split_step(
        &self,
        cx: &Context,
        key: &[u8],
        position: usize,
    ) -> Step<()> {
        self.split_with(cx, key, 0, &|guard| {
            let view = NodeView::from(guard.bytes());
            // Another thread may have split the leaf since.
            (view.count() >= 2).then(|| view.split_near(position.clamp(1, view.count() - 1)))
        })
    }

    /// Splits the node of `level` that contains `key` where `choose` says; not at all if it says
    /// nothing.
    pub(crate) fn split_with(
        &self,
        cx: &Context,
        key: &[u8],
        level: u8,
        choose: &dyn Fn(&Exclusive<'_>) -> Option<Split>,
    ) -> Step<()> {
        let _scope = scope(ScopePart::StructureChanges);
        cx.check_room(true)?;
        // No latch is held. Only where frames are lacking the whole operation stops and runs again.
        if !cx.worker.try_reserve(RESERVE) {
            return Err(Stop::Fault(Fault::Pages(RESERVE)));
        }
        let path = self.descend(key, level)?;
        let Some((parent, position)) = path.parent else {
            let root = path.node.upgrade()?;
            self.split_root(cx, root, choose);
            return Ok(());
        };
        let mut parent = parent.upgrade()?;
        let mut node = path.node.upgrade()?;
        let view = NodeView::from(node.bytes());
        debug_assert_eq!(view.level(), level, "the descent ended at another level");
        debug_assert!(names_child(&parent, position, &node), "the parent names another node");
        let Some(split) = choose(&node) else { return Ok(()) };
        // A run goes on in the left half, where its records keep their places.
        let goes_on = split.is_sequential() || view.count() >= FEW;
        if !NodeView::from(parent.bytes()).room_for(&split.separator) {
            drop((parent, node));
            return self.split_inner_step(cx, key, level + 1);
        }
        let (mut right, right_page) = self.pool.new_page(&cx.worker, self.id);
        let [left_image, right_image] = &mut *cx.halves();
        view.split_into(&split, left_image, right_image, view.page_id(), right_page);
        if level == 0 {
            self.leaf_records.note(view.count() / 2);
        }
        node.write_image(left_image);
        right.write_image(right_image);
        self.adopt_children(&node);
        self.adopt_children(&right);
        let inserted = NodeMut::new(&mut parent.page_mut()).insert_child(
            position,
            &split.separator,
            self.pool.swip_to(right.frame()).0,
        );
        inserted.expect("the parent has room, it was asked under the same latch");
        let Split { position: at, separator, .. } = &split;
        let child = Op::InsertChild { position, separator, child: right_page };
        cx.log_group(&mut [
            (&mut right, Op::NewImage),
            (&mut node, Op::Truncate { position: *at, separator }),
            (&mut parent, child),
        ]);
        right.header().set_version_hint(self.inherited(node.header().version_hint()));
        right.header().set_parent_hint(parent.frame(), position + 1);
        node.header().set_parent_hint(parent.frame(), position);
        if !goes_on {
            node.header().end_insert_run();
        }
        let hot = parent.header().hot_children() + 1;
        parent.header().set_hot_children(hot);
        cx.worker.counters().splits.add(1);
        Ok(())
    }

    /// Splits the root, which keeps its page and frame: its contents move to two new children.
    fn split_root<'p>(
        &'p self,
        cx: &Context,
        mut root: Exclusive<'p>,
        choose: &dyn Fn(&Exclusive<'_>) -> Option<Split>,
    ) {
        let view = NodeView::from(root.bytes());
        let Some(split) = choose(&root) else { return };
        let (mut left, left_page) = self.pool.new_page(&cx.worker, self.id);
        let (mut right, right_page) = self.pool.new_page(&cx.worker, self.id);
        let [left_image, right_image] = &mut *cx.halves();
        view.split_into(&split, left_image, right_image, left_page, right_page);
        let mut builder = NodeBuilder::inner(
            view.level() + 1,
            self.root_page(),
            self.id,
            &[],
            None,
            self.pool.swip_to(left.frame()).0,
        );
        let taken = builder.push_child(&split.separator, self.pool.swip_to(right.frame()).0);
        assert!(taken, "a root takes one separator of any length");
        let mut image = PageImage::zeroed();
        builder.finish(&mut image).expect("a root takes one separator of any length");
        left.write_image(left_image);
        right.write_image(right_image);
        root.write_image(&mut image);
        cx.log_group(&mut [
            (&mut left, Op::NewImage),
            (&mut right, Op::NewImage),
            (&mut root, Op::Image),
        ]);
        let hint = self.inherited(root.header().version_hint());
        left.header().set_version_hint(hint);
        right.header().set_version_hint(hint);
        for node in [&left, &right, &root] {
            self.adopt_children(node);
        }
        cx.worker.counters().splits.add(1);
    }

    /// Version hint of a page that takes over records of a page with the hint `hint`.
    fn inherited(&self, hint: u64) -> u64 {
        Hint::joined(hint, hint, || self.forest.draw())
    }

    /// Counts the hot children of an inner node whose children have changed, and sets their parent
    /// hints.
    pub(crate) fn adopt_children(&self, node: &Exclusive<'_>) {
        let view = NodeView::from(node.bytes());
        if !view.is_inner() {
            return;
        }
        let mut hot = 0;
        for position in 0..=view.count() {
            if let Target::Hot(child) = self.pool.locate(Swip(view.swip(position))) {
                self.pool.header(child).set_parent_hint(node.frame(), position);
                hot += 1;
            }
        }
        node.header().set_hot_children(hot);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use crate::{Mode, System, Value, run, support::new_tree};
    use wattle_buffer::MIN_POOL_BYTES;

    /// Two threads find a leaf full for records that grow, and both let it go before they split it.
    /// The first split may leave the record of the second one alone.
    #[test]
    fn a_split_for_a_record_that_is_alone_by_then_changes_nothing() {
        let (cx, tree) = new_tree(MIN_POOL_BYTES);
        for key in [b"a", b"b", b"c"] {
            let value = [0; 1200];
            let mut system = System;
            run(&cx, |restarts| {
                let value = Value::Inline(&value);
                tree.write_step(&cx, key, value, Mode::Put, &mut system, restarts)
            })
            .expect("put");
        }
        let splits = || cx.worker.pool().counters().splits;
        run(&cx, |_| tree.split_step(&cx, b"a", 1900)).expect("split");
        run(&cx, |_| tree.split_step(&cx, b"c", 1900)).expect("split");
        let before = splits();
        for key in [b"a", b"b", b"c"] {
            run(&cx, |_| tree.split_step(&cx, key, 1900)).expect("split");
            run(&cx, |_| tree.contention_split_step(&cx, key, 1)).expect("split");
        }
        assert_eq!(splits(), before, "a leaf of one record was split");
    }
}
