//! What redo finds.

use super::FoundGhosts;
use crate::{epochs::Gaps, mvcc::UndoBuffer};
use std::collections::BTreeSet;
use wattle_buffer::TreeId;
use wattle_wal::LogEnd;

/// A transaction that had neither committed nor been rolled back when the log ended.
pub(crate) struct Loser {
    /// Its id in the log.
    pub txn: u64,
    /// Its undo entries as the log has them, each as the key of an entry; oldest first.
    pub undo: UndoBuffer,
    /// The trees that these belong to.
    pub trees: BTreeSet<TreeId>,
}

/// What redo found.
pub(crate) struct Recovered {
    /// Where the log ends.
    pub end: LogEnd,
    /// Pages in use, as of the end of the log.
    pub in_use: Vec<u64>,
    /// Groups of pages whose stored bitmaps are behind that: the next checkpoint stores them.
    pub changed_groups: BTreeSet<u64>,
    /// Above all tree ids in the log.
    pub next_tree: TreeId,
    /// What is to be rolled back.
    pub losers: Vec<Loser>,
    /// None of that has a record before this epoch.
    pub undo_epoch: u64,
    /// What the janitor is to clear away.
    pub ghosts: FoundGhosts,
    /// Epochs that no page has.
    pub gaps: Gaps,
}
