//! The findings of redo.

use super::FoundGhosts;
use crate::{epochs::Gaps, mvcc::UndoBuffer, store::StoreFile};
use std::collections::BTreeSet;
use wattle_buffer::{Result, TreeId, io::LogStorage};
use wattle_wal::{LogEnd, sync_segments};

/// A transaction that had neither committed nor been rolled back when the log ended.
pub(crate) struct Loser {
    /// Its id in the log.
    pub txn: u64,
    /// Its undo entries, encoded as in the log, each stored as the key of an entry; oldest first.
    pub undo: UndoBuffer,
    /// The trees of these entries.
    pub trees: BTreeSet<TreeId>,
}

/// The findings of redo.
pub(crate) struct Recovered {
    /// Where the log ends.
    pub end: LogEnd,
    /// Records that may have changed pages after the checkpoint, or that undo may need.
    pub records: u64,
    /// Bytes of the log that were read.
    pub bytes: u64,
    /// Pages in use at the end of the log.
    pub in_use: Vec<u64>,
    /// Groups of pages whose stored bitmaps are older than that: the next checkpoint stores them.
    pub changed_groups: BTreeSet<u64>,
    /// Above all tree ids in the log.
    pub next_tree: TreeId,
    /// Unfinished transactions, to be rolled back.
    pub losers: Vec<Loser>,
    /// The losers have no record before this epoch.
    pub undo_epoch: u64,
    /// Ghosts for the janitor.
    pub ghosts: FoundGhosts,
    /// Epochs that no page has.
    pub gaps: Gaps,
    /// There were no records, and the data file and these segments of the log are still to be
    /// synced: they may be copies that never were. None: everything is durable.
    pub unsynced: Option<Vec<u64>>,
}

impl Recovered {
    /// Makes durable what redo has found, if that was left for later.
    pub fn make_durable(&mut self, file: &StoreFile, log: &dyn LogStorage) -> Result<()> {
        match self.unsynced.take() {
            Some(segments) => make_durable(file, log, &segments),
            None => Ok(()),
        }
    }
}

/// Makes the data file and these segments of the log durable.
pub(crate) fn make_durable(file: &StoreFile, log: &dyn LogStorage, segments: &[u64]) -> Result<()> {
    sync_segments(log, segments)?;
    file.sync()
}
