//! The author of changes that a rollback makes: it restores records.

use super::TxnSystem;
use crate::mvcc::TxnState;
use wattle_btree::Author;
use wattle_buffer::{Exclusive, Gsn, Share, TreeId};

/// See the module documentation.
pub(crate) struct UndoAuthor<'t> {
    pub system: &'t TxnSystem,
    pub tree: TreeId,
    /// Id of the transaction.
    pub txn: u64,
    /// The version of the record goes with the change.
    pub version_of: Option<Share<TxnState>>,
    pub last_gsn: Gsn,
}

impl Author for UndoAuthor<'_> {
    fn txn(&self) -> u64 {
        self.txn
    }

    fn is_auto(&self) -> bool {
        false
    }

    fn done(&mut self, leaf: &Exclusive<'_>, key: &[u8]) {
        self.last_gsn = self.last_gsn.max(leaf.gsn());
        if let Some(state) = self.version_of.take() {
            self.system.versions.pop(self.tree, key, &state);
        }
    }
}
