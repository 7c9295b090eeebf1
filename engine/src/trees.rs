//! Drop and rename of trees. Sessions, the janitor and the warm start release their handles of the
//! tree first.

use crate::{
    catalog::{OpenTree, rename_tree},
    core::Core,
    garbage::TreeGarbage,
    tree::Tree,
};
use std::sync::Arc;
use wattle_btree::Context;
use wattle_buffer::Result;

impl Core {
    /// Drops a tree, to which `tree` is the only handle.
    pub fn drop_tree(&self, tree: Tree) -> Result<()> {
        let cx = self.context();
        let (tag, garbage) = (tree.open.tag.clone(), let_go(self, &cx, &tree.open));
        if let Err(error) = self.catalog.drop_tree(&self.txns, &cx, tree.open) {
            self.txns.garbage.give_back(&tag, garbage);
            return Err(error);
        }
        self.sync_catalog()
    }

    /// Gives a tree another name. `tree` is the only handle; gives the new one.
    pub fn rename_tree(&self, tree: Tree, name: &str) -> Result<Tree> {
        let cx = self.context();
        let (tag, garbage) = (tree.open.tag.clone(), let_go(self, &cx, &tree.open));
        let renamed = rename_tree(self, &cx, tree.open, name);
        let tag = renamed.as_ref().map_or(&tag, |open| &open.tag);
        self.txns.garbage.give_back(tag, garbage);
        renamed.map(|open| Tree { open })
    }
}

/// Makes janitor and sessions release their handles of a tree. Gives the garbage of the tree.
fn let_go(core: &Core, cx: &Context, tree: &Arc<OpenTree>) -> TreeGarbage {
    let large = tree.large.get().map(|large| large.tree.id());
    core.warm.leave_out([tree.tree.id()].into_iter().chain(large));
    if core.janitor.is_stuck() {
        // A transaction that changed the tree may wait for its rollback.
        core.janitor_round(cx);
    } else {
        // The round under way may hold a handle.
        drop(core.janitor.pause());
    }
    core.txns.handles.release(tree);
    let _between_rounds = core.janitor.pause();
    core.txns.garbage.take_of(tree)
}
