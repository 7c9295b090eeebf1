//! Changes of records by a transaction, under the latch of their leaf.
//!
//! The version hint of the page decides most checks: when every change of the page is committed and
//! within the snapshot, no conflict is possible and the version index is not read.

use super::{Txn, TxnSystem};
use crate::{
    catalog::OpenTree,
    mvcc::{
        Change, ConflictWith, HashedRecord, MAX_OF_ONE, OwnedVersion, Savepoint, TxnState,
        UndoBuffer, UndoEntry, WriteCheck,
    },
};
use std::{ops::Range, sync::Arc};
use wattle_btree::{Author, Hint, Stop};
use wattle_buffer::{Error, Exclusive, FrameHeader, Owner};

/// Approximate memory of a version besides key and value.
const VERSION_OVERHEAD: usize = 96;

/// Approximate memory of a version with `len` bytes of key and value.
pub(super) fn version_bytes(len: usize) -> u64 {
    (len + VERSION_OVERHEAD) as u64
}

pub(super) fn conflict(tree: &OpenTree, with: ConflictWith) -> Stop {
    let name = tree.name();
    if tree.closed.is_dropped() {
        return Stop::Error(Error::NoSuchTree(name.to_string()));
    }
    Stop::Error(Error::Conflict(match with {
        ConflictWith::Committing => return Stop::Restart,
        ConflictWith::Active => {
            format!("its change of the record in tree {name:?} is not committed yet")
        }
        ConflictWith::Committed { .. } => {
            format!("it changed the record in tree {name:?} after this one began")
        }
    }))
}

/// Fails if a change of the record by the transaction would be a conflict now. This is no promise
/// for later, because the leaf is not latched.
pub(crate) fn check_record(
    system: &TxnSystem,
    txn: &Txn,
    tree: &OpenTree,
    key: &[u8],
) -> Result<(), Stop> {
    if tree.closed.is_closed_to(txn.state.as_ref().map_or(0, |state| state.id())) {
        return Err(conflict(tree, ConflictWith::Active));
    }
    let record = system.versions.record(tree.tree.id(), key);
    match system.versions.check(record, txn.state.as_deref(), txn.snapshot) {
        WriteCheck::Conflict(with) => Err(conflict(tree, with)),
        _ => Ok(()),
    }
}

/// A change of one record by a transaction.
pub(crate) struct TxnAuthor<'t> {
    system: &'t TxnSystem,
    txn: &'t mut Txn,
    tree: &'t Arc<OpenTree>,
    /// Number of the transaction.
    id: u64,
    /// Hash of tree and key.
    hash: u64,
    /// The version was stored for the current change, which may not be made yet.
    stored: bool,
    /// Where its chain lies.
    chain: usize,
    /// Approximate memory of that version.
    version_bytes: u64,
}

impl<'t> TxnAuthor<'t> {
    pub fn new(
        system: &'t TxnSystem,
        txn: &'t mut Txn,
        tree: &'t Arc<OpenTree>,
        key: &[u8],
    ) -> TxnAuthor<'t> {
        let hash = system.versions.record(tree.tree.id(), key).hash;
        system.versions.prefetch(hash);
        let id = txn.start_writing(system, tree);
        TxnAuthor { system, txn, tree, id, hash, stored: false, chain: 0, version_bytes: 0 }
    }

    fn record<'k>(&self, key: &'k [u8]) -> HashedRecord<'k> {
        let record = HashedRecord { hash: self.hash, tree: self.tree.tree.id(), key };
        debug_assert_eq!(record.hash, self.system.versions.record(record.tree, key).hash);
        record
    }

    fn state(&self) -> &Owner<TxnState> {
        self.txn.state.as_ref().expect("it is writing")
    }

    /// A transaction whose versions take too much memory becomes the owner of the tree, and stores
    /// no more versions.
    fn close_tree_if_large(&mut self) -> Result<(), Stop> {
        if self.txn.version_bytes <= self.system.large_txn_bytes() {
            return Ok(());
        }
        self.txn.closes = true;
        match self.tree.closed.close(self.id, self.txn.session) {
            true => Ok(()),
            false => Err(conflict(self.tree, ConflictWith::Active)),
        }
    }

    /// The rest of the check, once no other writer is in the way; adds the undo entry.
    #[inline]
    fn after_check(
        &mut self,
        is_newer: bool,
        key: &[u8],
        before: Option<(&[u8], bool)>,
        change: Option<&Change<'_>>,
    ) -> Result<(), Stop> {
        if is_newer {
            // A cancelled snapshot no longer knows which commits lie above it.
            super::view::check_open(self.system, self.txn)?;
            if let Some(ts) = self.tree.closed.hidden_since(self.txn.snapshot) {
                // Changes of an owner left no versions to check.
                return Err(conflict(self.tree, ConflictWith::Committed { ts }));
            }
        }
        if let Some(change) = change {
            let mark = self.txn.undo.mark();
            // A version that the change has stored holds the record before it.
            let kept = if self.stored { None } else { before };
            self.txn.undo.push(self.tree.tree.id(), self.stored, key, kept)?;
            self.txn.pending = Some(mark);
            let bytes = match *change {
                Change::Insert => 0,
                Change::Whole { before, .. } => before.len(),
                Change::Patch { from, to, .. } => to - from,
            };
            self.version_bytes = version_bytes(key.len() + bytes);
        }
        Ok(())
    }

    /// Removes the undo entry, and the version, of a change that was not made.
    fn withdraw(&mut self) -> Result<(), Error> {
        let entry = withdraw(&mut self.txn.undo, &mut self.txn.pending)?;
        if std::mem::take(&mut self.stored)
            && let (Some(entry), Some(state)) = (entry, &self.txn.state)
        {
            // A panic ended the operation before it called `undone`.
            self.system.versions.pop(self.tree.tree.id(), entry.key, state);
        }
        Ok(())
    }

    /// Ends the operation: removes the undo entry of a change that was not made.
    pub fn finish(mut self) -> Result<(), Error> {
        self.withdraw()
    }
}

impl Drop for TxnAuthor<'_> {
    fn drop(&mut self) {
        // The operation may have been dropped while it waited.
        not_taken_back(self.system, self.withdraw());
    }
}

/// Removes the undo entry of a change that was not made, if there is one, and gives it.
pub(super) fn withdraw<'u>(
    undo: &'u mut UndoBuffer,
    pending: &mut Option<Savepoint>,
) -> Result<Option<UndoEntry<'u>>, Error> {
    let Some(mark) = *pending else { return Ok(None) };
    let entry = undo.pop(mark)?;
    *pending = None;
    Ok(entry)
}

/// Poisons the engine if [`withdraw`] failed.
pub(super) fn not_taken_back(system: &TxnSystem, withdrawn: Result<(), Error>) {
    if let Err(error) = withdrawn {
        // A rollback would restore a record that was never changed.
        system.liveness.poison(&format!("an undo entry could not be taken back: {error}"));
    }
}

impl TxnAuthor<'_> {
    /// [`Author::check`]; of a change in place with the range of bytes that it changes.
    #[inline]
    fn check_change(
        &mut self,
        header: &FrameHeader,
        key: &[u8],
        before: Option<(&[u8], bool)>,
        change: Option<&Change<'_>>,
    ) -> Result<(), Stop> {
        self.withdraw()?;
        debug_assert!(!self.stored, "the previous change was neither made nor undone");
        self.close_tree_if_large()?;
        let id = self.id;
        let is_newer = header.version_hint() > self.txn.snapshot;
        // A change that is not visible to all snapshots always leaves a record or a ghost in the
        // page, so an absent key needs no check.
        let snapshot = match is_newer && before.is_some() {
            true => self.txn.snapshot,
            false => u64::MAX,
        };
        let (versions, record) = (&self.system.versions, self.record(key));
        let check = if let Some(change) = change
            && !self.tree.closed.is_owned_by(id)
        {
            let kept = self.txn.stored.len() < MAX_OF_ONE;
            let outcome = versions.store(record, self.state(), snapshot, change, kept);
            self.txn.version_bytes += outcome.grown;
            self.stored = outcome.check == WriteCheck::Free;
            self.chain = outcome.chain;
            outcome.check
        } else if snapshot != u64::MAX {
            versions.check(record, Some(self.state()), snapshot)
        } else {
            WriteCheck::Free
        };
        if let WriteCheck::Conflict(with) = check {
            return Err(conflict(self.tree, with));
        }
        // After the version is stored: a transaction that drops the tree closes it, and then looks
        // for versions.
        let allowed = match self.tree.closed.is_closed_to(id) {
            true => Err(conflict(self.tree, ConflictWith::Active)),
            false => self.after_check(is_newer, key, before, change),
        };
        if allowed.is_err() {
            self.undone(key);
        }
        allowed
    }
}

impl Author for TxnAuthor<'_> {
    #[inline]
    fn turn_to(&mut self, key: &[u8]) {
        self.hash = self.system.versions.record(self.tree.tree.id(), key).hash;
        self.system.versions.prefetch(self.hash);
    }

    fn check(
        &mut self,
        header: &FrameHeader,
        key: &[u8],
        before: Option<(&[u8], bool)>,
        change: bool,
    ) -> Result<(), Stop> {
        self.check_change(header, key, before, change.then(|| Change::of(before)).as_ref())
    }

    fn missed(&mut self) -> Result<(), Stop> {
        super::view::check_open(self.system, self.txn)
    }

    fn keeps_patches(&self) -> bool {
        true
    }

    fn check_patch(
        &mut self,
        header: &FrameHeader,
        key: &[u8],
        before: &[u8],
        range: Range<usize>,
    ) -> Result<(), Stop> {
        let change = Change::Patch { before, from: range.start, to: range.end };
        self.check_change(header, key, Some((before, false)), Some(&change))
    }

    fn txn(&self) -> u64 {
        self.id
    }

    fn is_auto(&self) -> bool {
        false
    }

    fn undone(&mut self, key: &[u8]) {
        if std::mem::take(&mut self.stored) {
            self.system.versions.pop(self.tree.tree.id(), key, self.state());
        }
    }

    fn done(&mut self, leaf: &Exclusive<'_>, _: &[u8]) {
        self.txn.pending = None;
        self.txn.last_gsn = self.txn.last_gsn.max(leaf.gsn());
        if std::mem::take(&mut self.stored) {
            self.txn.version_bytes += self.version_bytes;
            if self.txn.stored.len() < MAX_OF_ONE {
                self.txn.stored.push(OwnedVersion { hash: self.hash, chain: self.chain });
            }
        }
        let header = leaf.header();
        let mark = Hint::Txn(self.id);
        let hint = match Hint::of(header.version_hint()) {
            hint if hint == mark => return,
            Hint::Unknown(changed) if self.system.oldest_writer() < changed => None,
            Hint::Txn(_) => None,
            Hint::Committed(_) | Hint::Unknown(_) => {
                self.txn.remember_frame(leaf.frame()).then_some(mark)
            }
        };
        let hint = hint.unwrap_or_else(|| Hint::Unknown(self.system.ids.now()));
        header.set_version_hint(hint.word());
    }

    fn may_purge(&self, key: &[u8]) -> bool {
        self.system.may_purge(self.tree, key)
    }
}
