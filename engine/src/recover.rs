//! Recovery: redo of what the pages lack, by the log, and rolling back what had not ended.

use crate::{
    mvcc::UndoBuffer,
    options::Options,
    store::{StoreFile, Superblock},
};
use std::sync::Arc;
use wattle_buffer::{Result, TreeId, io::LogStorage};
use wattle_wal::LogEnd;

/// A transaction that had neither committed nor been rolled back when the log ended.
pub(crate) struct Loser {
    /// Its id in the log.
    pub txn: u64,
    /// Its undo entries as the log has them, each as the key of an entry; oldest first.
    pub undo: UndoBuffer,
}

/// What redo found.
pub(crate) struct Recovered {
    /// Where the log ends.
    pub end: LogEnd,
    /// Pages in use, as of the end of the log.
    pub in_use: Vec<u64>,
    /// Above all tree ids in the log.
    pub next_tree: TreeId,
    /// What is to be rolled back.
    pub losers: Vec<Loser>,
}

/// Brings all pages to the state of the end of the log, and makes them durable.
pub(crate) fn redo(
    _file: &StoreFile,
    _log: &Arc<dyn LogStorage>,
    _block: &Superblock,
    _in_use: Vec<u64>,
    _options: &Options,
) -> Result<Recovered> {
    unimplemented!("the redo pass comes with its own commit")
}
