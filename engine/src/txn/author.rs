//! Changes of records under the latch of their leaf: by a transaction ([`TxnAuthor`]), by an
//! operation that is a transaction of its own ([`AutoAuthor`]), and by the engine in the name of a
//! transaction where nobody else can look ([`SystemOf`]).
//!
//! The version hint of the page is the fast answer to "is anybody in the way": when everything in
//! the page is committed and within the snapshot, the version index need not be asked.

use super::{Reads, Txn};
use crate::{
    catalog::OpenTree,
    engine::Core,
    mvcc::{
        Change, ConflictWith, HashedRecord, MAX_OF_ONE, OwnedVersion, Savepoint, TxnState,
        UndoBuffer, UndoEntry, WriteCheck,
    },
};
use std::{cell::Cell, ops::Range, sync::Arc};
use wattle_btree::{Author, Hint, Stop, is_ghost};
use wattle_buffer::{Error, Exclusive, FrameHeader, Owner, TreeId};
use wattle_wal::epoch_of;

/// Memory of a version besides key and value, about.
const VERSION_OVERHEAD: usize = 96;

/// Memory of a version with so many bytes of key and value, about.
pub(super) fn version_bytes(len: usize) -> u64 {
    (len + VERSION_OVERHEAD) as u64
}

/// Bits of a hint that is no time.
const NO_TIME: u64 = 0b11 << 62;

/// The record before a change, copied out of the leaf.
#[derive(Default)]
struct Before {
    bytes: Vec<u8>,
    /// Whether it is special; `None`: there was no record.
    special: Option<bool>,
}

impl Before {
    fn set(&mut self, before: Option<(&[u8], bool)>) {
        self.bytes.clear();
        self.special = before.map(|(bytes, special)| {
            self.bytes.extend_from_slice(bytes);
            special
        });
    }

    fn get(&self) -> Option<(&[u8], bool)> {
        self.special.map(|special| (&self.bytes[..], special))
    }
}

impl Core {
    /// No snapshot needs the ghost of a record. One that is there without a version may be of a
    /// transaction that has the tree for itself, or had it.
    fn may_purge(&self, open: &OpenTree, key: &[u8]) -> bool {
        // The transaction before the versions: it had versions before it closed the tree.
        open.closed.is_over(self.versions.horizon())
            && !self.versions.is_needed(open.tree.id(), key)
    }
}

fn conflict(tree: &OpenTree, with: ConflictWith) -> Stop {
    let name = tree.name();
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

/// A change of one record by a transaction.
pub(crate) struct TxnAuthor<'t> {
    core: &'t Core,
    txn: &'t mut Txn,
    tree: &'t Arc<OpenTree>,
    /// Number of the transaction.
    id: u64,
    /// Under which hash versions of the record are.
    hash: u64,
    /// The version of the record was stored for this change, which may not be made yet.
    stored: bool,
    /// Where its chain lies.
    chain: usize,
    /// Memory of that version, about.
    version_bytes: u64,
}

impl<'t> TxnAuthor<'t> {
    pub fn new(
        core: &'t Core,
        txn: &'t mut Txn,
        tree: &'t Arc<OpenTree>,
        key: &[u8],
    ) -> TxnAuthor<'t> {
        let hash = core.versions.record(tree.tree.id(), key).hash;
        core.versions.prefetch(hash);
        let id = txn.start_writing(core, tree);
        TxnAuthor { core, txn, tree, id, hash, stored: false, chain: 0, version_bytes: 0 }
    }

    fn record<'k>(&self, key: &'k [u8]) -> HashedRecord<'k> {
        let record = HashedRecord { hash: self.hash, tree: self.tree.tree.id(), key };
        debug_assert_eq!(record.hash, self.core.versions.record(record.tree, key).hash);
        record
    }

    fn state(&self) -> &Owner<TxnState> {
        self.txn.state.as_ref().expect("it is writing")
    }

    /// A transaction that has changed more than versions can be kept of takes the tree for itself.
    fn close_tree_if_large(&mut self) -> Result<(), Stop> {
        if self.txn.version_bytes <= self.core.large_txn_bytes() {
            return Ok(());
        }
        self.txn.closes = true;
        match self.tree.closed.close(self.id, self.txn.session) {
            true => Ok(()),
            false => Err(conflict(self.tree, ConflictWith::Active)),
        }
    }

    /// What else is in the way of a change that no other writer is, and its undo entry.
    #[inline]
    fn after_check(
        &mut self,
        is_newer: bool,
        key: &[u8],
        before: Option<(&[u8], bool)>,
        change: Option<&Change<'_>>,
    ) -> Result<(), Stop> {
        if is_newer {
            // Whether a commit lies above a snapshot that was given up can no longer be known.
            super::view::check_open(self.core, self.txn)?;
            if let Some(ts) = self.tree.closed.hidden_since(self.txn.snapshot) {
                // Nor can it where changes left no versions.
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

    /// Takes back the undo entry of a change that was not made.
    fn withdraw(&mut self) -> Result<(), Error> {
        let entry = withdraw(&mut self.txn.undo, &mut self.txn.pending)?;
        if std::mem::take(&mut self.stored)
            && let (Some(entry), Some(state)) = (entry, &self.txn.state)
        {
            // Given up by a panic, where nobody said that it is undone.
            self.core.versions.pop(self.tree.tree.id(), entry.key, state);
        }
        Ok(())
    }

    /// The operation is over: an entry of a change that was not made is taken back.
    pub fn finish(mut self) -> Result<(), Error> {
        self.withdraw()
    }
}

impl Drop for TxnAuthor<'_> {
    fn drop(&mut self) {
        // An operation that was given up while it waited.
        not_taken_back(self.core, self.withdraw());
    }
}

/// Takes back the undo entry of a change that was not made, if there is one, and gives it.
fn withdraw<'u>(
    undo: &'u mut UndoBuffer,
    pending: &mut Option<Savepoint>,
) -> Result<Option<UndoEntry<'u>>, Error> {
    let Some(mark) = *pending else { return Ok(None) };
    let entry = undo.pop(mark)?;
    *pending = None;
    Ok(entry)
}

/// After [`withdraw`].
fn not_taken_back(core: &Core, withdrawn: Result<(), Error>) {
    if let Err(error) = withdrawn {
        // A roll-back would put something back that was never changed.
        core.poison(&format!("an undo entry could not be taken back: {error}"));
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
        debug_assert!(!self.stored, "the change before was neither made nor given up");
        self.close_tree_if_large()?;
        let id = self.id;
        if self.tree.closed.is_closed_to(id) {
            return Err(conflict(self.tree, ConflictWith::Active));
        }
        let is_newer = header.version_hint() > self.txn.snapshot;
        // Who has changed a record and is not within every snapshot has left something in the page, a
        // ghost at least.
        let snapshot = match is_newer && before.is_some() {
            true => self.txn.snapshot,
            false => u64::MAX,
        };
        let (versions, record) = (&self.core.versions, self.record(key));
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
        let allowed = self.after_check(is_newer, key, before, change);
        if allowed.is_err() {
            self.undone(key);
        }
        allowed
    }
}

impl Author for TxnAuthor<'_> {
    #[inline]
    fn turn_to(&mut self, key: &[u8]) {
        self.hash = self.core.versions.record(self.tree.tree.id(), key).hash;
        self.core.versions.prefetch(self.hash);
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
        super::view::check_open(self.core, self.txn)
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
            self.core.versions.pop(self.tree.tree.id(), key, self.state());
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
            Hint::Unknown(changed) if self.core.oldest_writer() < changed => None,
            Hint::Txn(_) => None,
            Hint::Committed(_) | Hint::Unknown(_) => {
                self.txn.remember_frame(leaf.frame()).then_some(mark)
            }
        };
        let hint = hint.unwrap_or_else(|| Hint::Unknown(self.core.ids.now()));
        header.set_version_hint(hint.word());
    }

    fn may_purge(&self, key: &[u8]) -> bool {
        self.core.may_purge(self.tree, key)
    }
}

/// What an operation that is a transaction of its own has done.
#[derive(Clone, Copy, Default)]
pub(crate) struct Done {
    /// Time of the commit, once drawn; 0 for nothing.
    pub time: u64,
    /// Epoch of its record in the log.
    pub epoch: u64,
    /// The version that it stored.
    pub stored: OwnedVersion,
}

/// A change by an operation that is a transaction of its own: it commits under the latch.
pub(crate) struct AutoAuthor<'t> {
    core: &'t Core,
    tree: &'t Arc<OpenTree>,
    /// Under which hash versions of the record are.
    hash: u64,
    /// What the session relies on: its own newest commit.
    own: u64,
    before: Before,
    pub outcome: Done,
    /// The operation changes nothing because of a commit that a crash could take back.
    pub relies_on_log: bool,
    /// The value before is large: replacing it takes more than one leaf, and a transaction.
    pub met_large: bool,
}

impl<'t> AutoAuthor<'t> {
    pub fn new(
        core: &'t Core,
        tree: &'t Arc<OpenTree>,
        key: &[u8],
        own: u64,
        buffer: Vec<u8>,
    ) -> AutoAuthor<'t> {
        let hash = core.versions.record(tree.tree.id(), key).hash;
        core.versions.prefetch(hash);
        AutoAuthor {
            core,
            tree,
            hash,
            own,
            before: Before { bytes: buffer, special: None },
            outcome: Done::default(),
            relies_on_log: false,
            met_large: false,
        }
    }

    /// Whether a commit that a crash could take back has left the record as it is.
    #[cold]
    fn is_unsettled(&self, header: &FrameHeader, key: &[u8]) -> bool {
        let bound = self.core.durable().max(self.own);
        if header.version_hint() <= bound {
            return false;
        }
        if self.core.reads == Reads::Newest {
            // Of the record itself nobody may know any more.
            return true;
        }
        let record = HashedRecord { hash: self.hash, tree: self.tree.tree.id(), key };
        let check = self.core.versions.check(record, None, bound);
        matches!(check, WriteCheck::Conflict(_)) || self.tree.closed.hidden_since(bound).is_some()
    }

    /// Gives the buffer back.
    pub fn into_buffer(self) -> Vec<u8> {
        self.before.bytes
    }
}

impl Author for AutoAuthor<'_> {
    #[inline]
    fn check(
        &mut self,
        header: &FrameHeader,
        key: &[u8],
        before: Option<(&[u8], bool)>,
        change: bool,
    ) -> Result<(), Stop> {
        self.core.clock.prefetch();
        if self.tree.closed.is_closed_to(0) {
            return Err(conflict(self.tree, ConflictWith::Active));
        }
        if header.version_hint() & NO_TIME != 0 {
            let record = HashedRecord { hash: self.hash, tree: self.tree.tree.id(), key };
            let check = self.core.versions.check(record, None, u64::MAX);
            if let WriteCheck::Conflict(with) = check {
                return Err(conflict(self.tree, with));
            }
        }
        if !change {
            self.relies_on_log = self.is_unsettled(header, key);
        }
        if before.is_some_and(|before| before.1 && !is_ghost(before)) {
            self.met_large = true;
            return Err(Stop::Error(Error::Limit("the value before is large".to_string())));
        }
        self.before.set(before);
        Ok(())
    }

    fn txn(&self) -> u64 {
        0
    }

    fn is_auto(&self) -> bool {
        true
    }

    #[inline]
    fn drawn(&mut self) -> Option<u64> {
        // Whoever opens a snapshot at this time or later finds the leaf latched until it is done.
        self.outcome.time = self.core.clock.draw();
        Some(self.outcome.time)
    }

    #[inline]
    fn done(&mut self, leaf: &Exclusive<'_>, key: &[u8]) {
        let (time, before) = (self.outcome.time, self.before.get());
        let record = HashedRecord { hash: self.hash, tree: self.tree.tree.id(), key };
        self.outcome.stored = self.core.versions.store_done(record, time, before);
        let header = leaf.header();
        let hint = match Hint::of(header.version_hint()) {
            // A transaction that changed the page may have drawn a later time than this commit, and
            // ended, since this one drew its time.
            Hint::Committed(other) => Hint::Committed(other.max(time)),
            Hint::Unknown(changed) if self.core.oldest_writer() >= changed => {
                Hint::Committed(self.core.clock.now())
            }
            _ => Hint::Unknown(self.core.ids.now()),
        };
        header.set_version_hint(hint.word());
        self.outcome.epoch = epoch_of(leaf.gsn());
    }

    fn may_purge(&self, key: &[u8]) -> bool {
        self.core.may_purge(self.tree, key)
    }
}

/// A change by the engine that belongs to a transaction and is undone with it, of a record that only
/// the engine reads; or, without a transaction, one that stands for itself.
pub(crate) struct SystemOf<'t> {
    core: &'t Core,
    tree: TreeId,
    txn: Option<&'t mut Txn>,
    /// The tree, where ghosts are removed.
    open: Option<&'t OpenTree>,
    /// A ghost stays because of a transaction that has the tree for itself, or had it.
    refused: Cell<bool>,
}

impl<'t> SystemOf<'t> {
    pub fn new(core: &'t Core, tree: TreeId, txn: Option<&'t mut Txn>) -> SystemOf<'t> {
        SystemOf { core, tree, txn, open: None, refused: Cell::new(false) }
    }

    /// To remove ghosts.
    pub fn purging(core: &'t Core, open: &'t OpenTree) -> SystemOf<'t> {
        let mut author = SystemOf::new(core, open.tree.id(), None);
        author.open = Some(open);
        author
    }

    /// Whether a ghost was refused that nobody else will name again: the tree is closed, or was.
    pub fn was_refused(&self) -> bool {
        self.refused.get()
    }
}

impl Drop for SystemOf<'_> {
    fn drop(&mut self) {
        if let Some(txn) = &mut self.txn {
            not_taken_back(self.core, withdraw(&mut txn.undo, &mut txn.pending).map(drop));
        }
    }
}

impl Author for SystemOf<'_> {
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
        let may = self.core.may_purge(open, key);
        if !may && !open.closed.is_over(self.core.versions.horizon()) {
            self.refused.set(true);
        }
        may
    }
}
