//! Restoring a record to its state before a change, for rollbacks and recovery.

use crate::{
    author::Author,
    journal::Context,
    merge::is_underfull,
    node::{NodeMut, NodeView},
    record::Op,
    step::{Step, Stop},
    tree::Tree,
    undo::Before,
};

impl Tree {
    /// Restores a record to its state before a change. Gives whether its leaf is underfull now, so
    /// that [`Tree::merge_step`] should follow.
    pub fn restore_step<A: Author>(
        &self,
        cx: &Context,
        key: &[u8],
        before: Before<'_>,
        author: &mut A,
    ) -> Step<bool> {
        cx.check_room(true)?;
        let path = self.descend(key, 0)?;
        let search = self.checked(&path.node, path.node_ref().search(key))?;
        let mut leaf = path.node.upgrade()?;
        let op = match (search.found, before) {
            (false, Before::Absent | Before::Patch { .. }) => {
                cx.log_nothing(&leaf, author);
                author.done(&leaf, key);
                return Ok(false);
            }
            (true, Before::Absent) => {
                NodeMut::new(&mut leaf.page_mut()).remove_leaf(search.position);
                Op::Remove { key }
            }
            (true, Before::Patch { offset, bytes }) => {
                let view = NodeView::from(leaf.bytes());
                if view.value(search.position).0.len() < offset + bytes.len() {
                    // An older undo entry has the whole value.
                    cx.log_nothing(&leaf, author);
                    author.done(&leaf, key);
                    return Ok(false);
                }
                NodeMut::new(&mut leaf.page_mut()).write_value(search.position, offset, bytes);
                Op::Patch { key, offset, bytes }
            }
            (found, Before::Value { bytes, special }) => {
                let mut page = leaf.page_mut();
                let mut node = NodeMut::new(&mut page);
                let done = match found {
                    true => node.replace_value(search.position, bytes, special),
                    false => node.insert_leaf(search.position, key, bytes, special),
                };
                if done.is_err() {
                    leaf.unchanged();
                    drop(leaf);
                    self.split_step(cx, key, bytes.len())?;
                    return Err(Stop::Restart);
                }
                match found {
                    true => Op::Replace { key, value: bytes, special },
                    false => Op::Insert { key, value: bytes, special },
                }
            }
        };
        cx.log_change(&mut leaf, op, None, author);
        author.done(&leaf, key);
        let is_root = leaf.frame() == self.root;
        let removed = matches!(op, Op::Remove { .. });
        Ok(removed && !is_root && is_underfull(leaf.bytes().into()))
    }
}
