//! Drop and rename of trees: whatever holds on to the tree lets go of it first.

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
        if let Err(error) = self.catalog.drop_tree(&cx, tree.open) {
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

/// Before a tree is dropped or renamed: neither janitor nor sessions must hold on to it. Gives what
/// the janitor is to clear away in the tree.
fn let_go(core: &Core, cx: &Context, tree: &Arc<OpenTree>) -> TreeGarbage {
    if core.janitor.is_stuck() {
        // Perhaps with a transaction that changed the tree.
        core.janitor_round(cx);
    } else {
        // The last round may still hold on to what it took from the list.
        drop(core.janitor.pause());
    }
    core.txns.handles.release(tree);
    let _between_rounds = core.janitor.pause();
    core.txns.garbage.take_of(tree)
}
