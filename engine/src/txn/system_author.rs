//! Authors of changes that the engine makes for itself: of records that only it reads, in a
//! transaction or auto-committed, and of removals of ghosts.

use super::{
    Txn, TxnSystem,
    author::{not_taken_back, withdraw},
};
use crate::catalog::OpenTree;
use std::cell::Cell;
use wattle_btree::{Author, Stop};
use wattle_buffer::{Exclusive, FrameHeader, TreeId};

/// A change of a record that only the engine reads. With a transaction it is undone with it;
/// without one it is auto-committed.
pub(crate) struct SystemAuthor<'t> {
    system: &'t TxnSystem,
    tree: TreeId,
    txn: Option<&'t mut Txn>,
    /// The tree, where ghosts are removed.
    open: Option<&'t OpenTree>,
    /// A ghost stays because a transaction owns the tree, or owned it.
    refused: Cell<bool>,
}

impl<'t> SystemAuthor<'t> {
    pub fn new(system: &'t TxnSystem, tree: TreeId, txn: Option<&'t mut Txn>) -> SystemAuthor<'t> {
        SystemAuthor { system, tree, txn, open: None, refused: Cell::new(false) }
    }

    /// An author that removes ghosts.
    pub fn purging(system: &'t TxnSystem, open: &'t OpenTree) -> SystemAuthor<'t> {
        let mut author = SystemAuthor::new(system, open.tree.id(), None);
        author.open = Some(open);
        author
    }

    /// Whether a ghost was kept because of an owner of the tree; the caller must queue it again.
    pub fn was_refused(&self) -> bool {
        self.refused.get()
    }
}

impl Drop for SystemAuthor<'_> {
    fn drop(&mut self) {
        if let Some(txn) = &mut self.txn {
            not_taken_back(self.system, withdraw(&mut txn.undo, &mut txn.pending).map(drop));
        }
    }
}

impl Author for SystemAuthor<'_> {
    fn check(
        &mut self,
        _: &FrameHeader,
        key: &[u8],
        before: Option<(&[u8], bool)>,
        _: bool,
    ) -> Result<(), Stop> {
        if let Some(txn) = &mut self.txn {
            withdraw(&mut txn.undo, &mut txn.pending)?;
            let mark = txn.undo.mark();
            txn.undo.push(self.tree, false, key, before)?;
            txn.pending = Some(mark);
        }
        Ok(())
    }

    fn txn(&self) -> u64 {
        let state = self.txn.as_ref().and_then(|txn| txn.state.as_ref());
        state.map_or(0, |state| state.id())
    }

    fn is_auto(&self) -> bool {
        self.txn.is_none()
    }

    fn done(&mut self, leaf: &Exclusive<'_>, _: &[u8]) {
        if let Some(txn) = &mut self.txn {
            txn.pending = None;
            txn.last_gsn = txn.last_gsn.max(leaf.gsn());
        }
    }

    fn may_purge(&self, key: &[u8]) -> bool {
        let Some(open) = self.open else { return false };
        let may = self.system.may_purge(open, key);
        if !may && !open.closed.is_over(self.system.versions.horizon()) {
            self.refused.set(true);
        }
        may
    }
}
