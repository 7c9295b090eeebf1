//! Analysis of the log: unfinished transactions, pages in use, and tree ids.
//!
//! Invariant: records come in the order of their numbers, flush by flush.

use super::{FoundGhosts, Loser, Recovered};
use crate::epochs::Gaps;
use crate::mvcc::{Savepoint, UndoBuffer};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use wattle_btree::{Undo, record::page_changes};
use wattle_buffer::{BITMAP_GROUP, Error, PageId, Result, TreeId, io::Directory, is_reserved_page};
use wattle_wal::{
    Kind, LogEnd, epoch_of,
    record::{Op, Record},
};

/// The log may name pages up to 4 TiB past the end of the data file. Room for a page is reserved
/// before its id is used, so ids far beyond are damage.
const MOST_NEW_PAGES: u64 = 1 << 30;

/// The findings so far.
pub(super) struct Analysis {
    /// Where undo entries go that are too many for memory.
    directory: Option<Arc<Directory>>,
    /// Transactions that have not ended, by id.
    open: BTreeMap<u64, OpenTxn>,
    /// One bit for each page.
    in_use: Vec<u64>,
    /// Groups of pages whose bits may have changed since the checkpoint.
    groups: BTreeSet<u64>,
    /// Pages from here on cannot be in the log.
    page_limit: u64,
    next_tree: u32,
    /// An undo entry with tree and key.
    entry: Vec<u8>,
}

/// A transaction that has not ended so far.
struct OpenTxn {
    undo: UndoBuffer,
    /// That of its first record.
    first_epoch: u64,
    /// The trees of its changes.
    trees: BTreeSet<TreeId>,
}

impl Analysis {
    /// `in_use`: the pages in use at the checkpoint. `capacity`: pages of the data file.
    pub fn new(in_use: Vec<u64>, capacity: u64, directory: Option<Arc<Directory>>) -> Analysis {
        let page_limit = capacity.saturating_add(MOST_NEW_PAGES).min(PageId::MAX.0);
        Analysis {
            directory,
            open: BTreeMap::new(),
            in_use,
            groups: BTreeSet::new(),
            page_limit,
            next_tree: 0,
            entry: Vec::new(),
        }
    }

    /// Follows transactions and trees. `damaged` makes an error of a sentence about the record.
    pub fn record(
        &mut self,
        record: &Record<'_>,
        damaged: impl FnOnce(String) -> Error,
    ) -> Result<()> {
        for op in record.ops() {
            // The last id means no tree.
            self.next_tree = self.next_tree.max(op.tree.0.checked_add(1).unwrap_or(0));
        }
        match record.kind {
            Kind::Change if record.txn != 0 && !record.is_auto() => {
                let directory = &self.directory;
                let open = self.open.entry(record.txn);
                let OpenTxn { undo, trees, .. } = open.or_insert_with(|| OpenTxn {
                    undo: UndoBuffer::new(directory.clone()),
                    first_epoch: epoch_of(record.gsn),
                    trees: BTreeSet::new(),
                });
                if record.undo.is_empty() {
                    // The newest change was taken back. Undo must not repeat that: since then the
                    // record is open to other transactions, whose changes would be lost.
                    undo.pop(Savepoint::START)?;
                } else {
                    let entry = &mut self.entry;
                    entry.clear();
                    let found = Undo::of(record).map_err(damaged)?;
                    found.encode(|parts| {
                        parts.iter().for_each(|part| entry.extend_from_slice(part))
                    });
                    if let Err(error) = undo.push(TreeId(0), false, entry, None) {
                        // A store must open on a full device. It is not more than the log has.
                        tracing::warn!(%error, "undo entries stay in memory");
                        undo.stay_in_memory();
                        undo.push(TreeId(0), false, entry, None)?;
                    }
                    trees.insert(found.tree);
                }
            }
            Kind::Commit | Kind::End => {
                self.open.remove(&record.txn);
            }
            Kind::Change | Kind::Note => {}
        }
        Ok(())
    }

    /// Follows pages that get into trees and out of them. The error is a sentence.
    pub fn op(&mut self, op: &Op<'_>) -> Result<(), String> {
        let Analysis { in_use, groups, page_limit, .. } = self;
        let mut bad = None;
        let check = |page: PageId| page.0 < *page_limit && !is_reserved_page(page);
        if wattle_btree::record::needs_page(op.code).0 && !check(op.page) {
            bad = Some(op.page);
        }
        page_changes(op.page, op.code, op.payload, &mut |page, used| {
            if bad.is_some() || !check(page) {
                bad = bad.or(Some(page));
                return;
            }
            let at = page.0 as usize / 64;
            if at >= in_use.len() {
                in_use.resize(at + 1, 0);
            }
            groups.insert(page.0 / BITMAP_GROUP);
            let bit = 1 << (page.0 % 64);
            in_use[at] = if used { in_use[at] | bit } else { in_use[at] & !bit };
        })?;
        bad.map_or(Ok(()), |page| Err(format!("no tree can have page {page}")))
    }

    /// The findings, for a log that ends with `end`.
    pub fn finish(self, end: LogEnd) -> Recovered {
        let undo_epoch = self.open.values().map(|open| open.first_epoch).min();
        let loser = |(txn, OpenTxn { undo, trees, .. })| Loser { txn, undo, trees };
        let losers = self.open.into_iter().map(loser);
        Recovered {
            records: 0,
            bytes: 0,
            end,
            in_use: self.in_use,
            changed_groups: self.groups,
            next_tree: TreeId(self.next_tree),
            losers: losers.collect(),
            undo_epoch: undo_epoch.unwrap_or(end.epoch + 1),
            ghosts: FoundGhosts::default(),
            gaps: Gaps::default(),
            unsynced: None,
        }
    }
}
