//! Removals: records that no snapshot needs leave the leaf at once, without a ghost, and ghosts are
//! purged when no snapshot needs them.

use crate::{
    author::Author,
    descend::Seek,
    ghost::is_ghost,
    journal::Context,
    large_value::LargeValue,
    merge::is_underfull,
    node::{NodeMut, NodeRef, NodeView},
    record::Op,
    step::Step,
    tree::Tree,
    undo::{Before, Undo},
    write::Written,
};
use wattle_buffer::{Exclusive, ScopePart, scope};

impl Tree {
    /// Removes one record at once. Also gives whether its leaf is underfull now, so that
    /// [`Tree::merge_step`] should follow.
    pub fn remove_step<A: Author>(
        &self,
        cx: &Context,
        key: &[u8],
        author: &mut A,
    ) -> Step<(Written, bool)> {
        let _scope = scope(ScopePart::Records);
        cx.check_room(false)?;
        let path = self.descend(key, 0)?;
        if self.pool.is_traced() {
            self.pool.record_way(|way| self.lead(Seek::At(key), way));
        }
        let search = self.checked(&path.node, path.node_ref().search(key))?;
        if !search.found {
            path.node.validate()?;
            self.track_absent(path.node);
            author.missed()?;
            return Ok((Written::default(), false));
        }
        let mut leaf = path.node.upgrade()?;
        let before = NodeView::from(leaf.bytes()).value(search.position);
        let mut orphan = None;
        if before.1 && !is_ghost(before) {
            orphan = Some(LargeValue::decode(before.0, leaf.header().page_id())?);
        }
        author.check(leaf.header(), key, Some(before), true)?;
        let existed = !is_ghost(before);
        let underfull = self.remove_at(cx, &mut leaf, search.position, key, author);
        author.done(&leaf, key);
        Ok((Written { existed, orphan }, underfull))
    }

    /// Removes the record at `position`; gives whether the leaf is underfull now.
    fn remove_at<A: Author>(
        &self,
        cx: &Context,
        leaf: &mut Exclusive<'_>,
        position: usize,
        key: &[u8],
        author: &mut A,
    ) -> bool {
        let mut old = cx.scratch.borrow_mut();
        old.clear();
        let (bytes, special) = NodeView::from(leaf.bytes()).value(position);
        if !author.is_auto() {
            old.extend_from_slice(bytes);
        }
        NodeMut::new(&mut leaf.page_mut()).remove_leaf(position);
        let before = Before::Value { bytes: &old, special };
        let undo = Undo { tree: self.id, key, before };
        cx.log_change(leaf, Op::Remove { key }, Some(undo), author);
        leaf.frame() != self.root && is_underfull(leaf.bytes().into())
    }

    /// Removes all ghosts of a leaf that no snapshot needs; gives whether there were any.
    pub(crate) fn purge_leaf<A: Author>(
        &self,
        cx: &Context,
        leaf: &mut Exclusive<'_>,
        author: &mut A,
    ) -> bool {
        let view = NodeView::from(leaf.bytes());
        let mut key = Vec::new();
        let mut gone = Vec::new();
        for position in 0..view.count() {
            if is_ghost(view.value(position)) {
                key.clear();
                view.key_to(position, &mut key);
                if author.may_purge(&key) {
                    gone.push((position, key.clone()));
                }
            }
        }
        for (position, key) in gone.iter().rev() {
            NodeMut::new(&mut leaf.page_mut()).remove_leaf(*position);
            cx.log_group(&mut [(leaf, Op::Remove { key })]);
        }
        !gone.is_empty()
    }

    /// Removes the ghosts of those `keys` that lie in the leaf of the first key and that no
    /// snapshot needs. The keys ascend. Gives how many keys are done, at least one, and whether the
    /// leaf is underfull, so that [`Tree::merge_step`] should follow.
    pub fn purge_step<A: Author>(
        &self,
        cx: &Context,
        keys: &[&[u8]],
        author: &mut A,
    ) -> Step<(usize, bool)> {
        debug_assert!(keys.is_sorted(), "keys to purge ascend");
        cx.check_room(false)?;
        let path = self.descend(keys[0], 0)?;
        let mut search = self.checked(&path.node, path.node_ref().search(keys[0]))?;
        if !search.found {
            path.node.validate()?;
            return Ok((1, false));
        }
        let mut leaf = path.node.upgrade()?;
        let (mut done, mut underfull, mut changed) = (0, false, false);
        loop {
            let key = keys[done];
            let is_ghost =
                search.found && is_ghost(NodeView::from(leaf.bytes()).value(search.position));
            if is_ghost && author.may_purge(key) {
                underfull = self.remove_at(cx, &mut leaf, search.position, key, author);
                changed = true;
            }
            done += 1;
            let Some(next) = keys.get(done) else { break };
            let node = NodeRef::from(leaf.page());
            // If the leaf is damaged, the next step reports it.
            let Ok(true) = node.covers(next) else { break };
            let Ok(found) = node.search(next) else { break };
            search = found;
        }
        if !changed {
            leaf.unchanged();
        }
        Ok((done, underfull))
    }
}
