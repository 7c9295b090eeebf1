//! Trees that the catalog has without a name: `u` and the id of the tree is the key of their entry.
//!
//! - A transaction has created the tree and has not committed. Its commit gives the entry a name.
//! - The creation was rolled back, also to a savepoint.
//! - A transaction has dropped the tree and has committed. Its commit took the name away.
//!
//! A transaction holds handles of the trees that it creates and drops until it ends. So a tree
//! without a name, and without handles, can have no name again, and no caller can read it: the next
//! round of the janitor frees its pages. A crash leaves none of them in use, so the next opening
//! frees all. The trees are in a list, because only one [`OpenTree`] of each may exist.

use super::{
    Catalog, OpenFor, OpenTree, TreeTag,
    locked::LockedCatalog,
    record::{TreeRecord, nameless_key, visit_nameless},
};
use crate::txn::TxnSystem;
use std::{collections::BTreeSet, sync::Arc};
use wattle_btree::Context;
use wattle_buffer::{Error, Result, TreeId};

impl LockedCatalog {
    /// Frees the pages of the trees without a name that have no handles.
    ///
    /// # Errors
    /// Failed I/O, after which the rest of the tree goes by [`Catalog::go_on_dropping`].
    pub fn free_nameless(&mut self, system: &TxnSystem, cx: &Context) -> Result<()> {
        let mut at = 0;
        while let Some(tree) = self.nameless.get(at) {
            system.handles.release(tree);
            if Arc::strong_count(tree) > 1 {
                at += 1;
                continue;
            }
            let key = nameless_key(tree.tag.id);
            // First, because this read may fail.
            let Some(entry) = self.entry_at(cx, &key)? else {
                let what = format!("the tree {} without a name is not in it", tree.tag.id);
                return Err(Error::corruption(self.tree.root_page(), what));
            };
            match Arc::try_unwrap(self.nameless.swap_remove(at)) {
                Ok(open) => {
                    self.finish_drop(cx, &key, TreeRecord { dropping: true, ..entry }, open)?;
                }
                Err(tree) => unreachable!("{:?} has one handle, which is ours", tree.name()),
            }
        }
        Ok(())
    }

    /// Ends a drop that has failed or that a crash interrupted, or drops a tree without a name.
    pub fn end_drop(&mut self, system: &TxnSystem, cx: &Context, key: &[u8]) -> Result<()> {
        if let Some(entry) = self.entry_at(cx, key)?
            && key == nameless_key(entry.tree)
            && !entry.dropping
        {
            let entry = TreeRecord { dropping: true, ..entry };
            let open = self.load(system, cx, "", entry, OpenFor::Engine)?;
            return self.finish_drop(cx, key, entry, open);
        }
        self.go_on_dropping(system, cx, key)
    }
}

impl Catalog {
    /// Creates a tree for a transaction, which commits it under `name` or not at all. `owner`: the
    /// id of the transaction, and the number of its session.
    pub fn create_nameless(
        &self,
        system: &TxnSystem,
        cx: &Context,
        name: &str,
        owner: (u64, u64),
    ) -> Result<Arc<OpenTree>> {
        let mut state = self.locked.lock();
        let tree = state.create_at(system, cx, nameless_key)?;
        let open = Arc::new(OpenTree::without_name(TreeTag::new(tree.id(), name), tree));
        open.closed.create(owner.0, owner.1);
        state.nameless.push(open.clone());
        Ok(open)
    }

    /// Frees the trees without a name that have no handles, for the janitor. While the catalog is
    /// in use, that waits for the next round.
    ///
    /// # Errors
    /// Failed I/O.
    pub fn free_nameless(&self, system: &TxnSystem, cx: &Context) -> Result<()> {
        self.locked.try_lock().map_or(Ok(()), |mut state| state.free_nameless(system, cx))
    }

    /// Handles of all open trees without a name.
    pub fn nameless(&self) -> Vec<Arc<OpenTree>> {
        self.locked.lock().nameless.clone()
    }

    /// Of these ids, those of trees without a name or of their large values, each with the id of
    /// its tree.
    pub fn nameless_owners(
        &self,
        cx: &Context,
        ids: &BTreeSet<TreeId>,
    ) -> Result<Vec<(TreeId, TreeId)>> {
        let mut owners = Vec::new();
        visit_nameless(cx, &self.tree, &mut |entry| {
            let ours = [entry.tree, entry.chunks].into_iter().filter(|id| ids.contains(id));
            owners.extend(ours.map(|id| (id, entry.tree)));
            Ok(())
        })?;
        Ok(owners)
    }

    /// Opens a tree without a name, which is not open, to roll changes in it back. Called while
    /// nothing else runs.
    pub fn open_nameless(
        &self,
        system: &TxnSystem,
        cx: &Context,
        tree: TreeId,
    ) -> Result<Option<Arc<OpenTree>>> {
        let mut state = self.locked.lock();
        let Some(entry) = state.entry_at(cx, &nameless_key(tree))? else { return Ok(None) };
        let open = state.load(system, cx, "", entry, OpenFor::Engine)?;
        open.set_name(None);
        Ok(Some(Arc::new(open)))
    }
}
