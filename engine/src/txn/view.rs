//! Views of a tree. [`TxnView`] sees the snapshot of a transaction, plus its own changes.
//! [`AutoView`], for auto-committed reads, sees the newest commit or the newest durable one
//! ([`Reads`]).

use super::{Reads, Txn, TxnSystem};
use crate::{
    catalog::OpenTree,
    mvcc::{self, TxnState},
};
use wattle_btree::{Hint, Seen, Stop, View};
use wattle_buffer::{Error, FrameHeader, Result, TreeId};

/// See the module documentation.
pub(crate) struct TxnView<'t> {
    system: &'t TxnSystem,
    txn: &'t Txn,
    open: &'t OpenTree,
    tree: TreeId,
    /// A page without newer changes is visible as a whole, and its changes are durable.
    bound: u64,
}

impl<'t> TxnView<'t> {
    pub fn new(system: &'t TxnSystem, txn: &'t Txn, tree: &'t OpenTree) -> TxnView<'t> {
        // Once it has changed something, its own commit becomes durable after everything that it
        // reads.
        let bound = match &txn.state {
            Some(_) => txn.snapshot,
            None => txn.snapshot.min(system.durable()),
        };
        TxnView { system, txn, open: tree, tree: tree.tree.id(), bound }
    }

    /// Whether everything is visible in a page that is not known to be durable. The newest change
    /// of the page then counts as read, whichever record it changed: looking up the change of the
    /// record itself takes longer than the read.
    fn sees_undurable(&self, header: &FrameHeader, hint: u64) -> bool {
        let (txn, snapshot) = (self.txn, self.txn.snapshot);
        let newest = match hint <= snapshot {
            true => hint,
            false if resolve(self.system, header, hint, snapshot) => snapshot,
            false => return false,
        };
        txn.seen.set(txn.seen.get().max(newest));
        true
    }
}

impl View for TxnView<'_> {
    #[inline(always)]
    fn sees_all(&self, header: &FrameHeader) -> bool {
        let hint = header.version_hint();
        hint <= self.bound || self.sees_undurable(header, hint)
    }

    fn look(&mut self, key: &[u8], value: &mut Vec<u8>, start: usize) -> Result<Seen, Stop> {
        let (txn, me) = (self.txn, self.txn.state.as_deref());
        let seen = self.system.versions.read(self.tree, key, me, txn.snapshot, (value, start));
        check_open(self.system, txn)?;
        // After the lookup: an owner closes the tree before its first change without a version.
        let me = me.map_or(0, TxnState::id);
        if self.open.closed.hides_from(me, txn.snapshot) {
            txn.hidden.set(true);
            return Err(Stop::Error(hidden(self.open)));
        }
        let (seen, time) = translate(seen)?;
        let time = match self.system.reads {
            Reads::Durable => time.max(self.open.closed.last_within(txn.snapshot)),
            // The version with the commit time may be gone.
            Reads::Newest => txn.snapshot,
        };
        txn.seen.set(txn.seen.get().max(time));
        Ok(seen)
    }

    fn missed(&mut self) -> Result<(), Stop> {
        if self.system.reads == Reads::Newest {
            // The ghost with the commit time may be gone.
            self.txn.seen.set(self.txn.snapshot);
        }
        check_open(self.system, self.txn)
    }
}

impl Txn {
    /// How this transaction sees a tree.
    pub fn view<'t>(&'t self, system: &'t TxnSystem, tree: &'t OpenTree) -> TxnView<'t> {
        TxnView::new(system, self, tree)
    }
}

/// Fails when the snapshot was cancelled: versions and ghosts that it should see may be gone. They
/// are removed only after the cancellation, so a check after the read of their leaf is enough.
pub(super) fn check_open(system: &TxnSystem, txn: &Txn) -> Result<(), Stop> {
    if txn.slot.is_cancelled() {
        return Err(Stop::Error(system.too_old()));
    }
    Ok(())
}

/// The error of a reader that would need a version which was never stored.
fn hidden(tree: &OpenTree) -> Error {
    Error::SnapshotTooOld(format!(
        "a transaction that is too large for versions of records changes the tree {:?}, or did so \
         after the snapshot was taken",
        tree.name()
    ))
}

/// See the module documentation.
pub(crate) struct AutoView<'t> {
    system: &'t TxnSystem,
    open: &'t OpenTree,
    tree: TreeId,
    /// The newest commit of the session, which is always visible.
    own: u64,
    bound: u64,
}

impl<'t> AutoView<'t> {
    pub fn new(system: &'t TxnSystem, tree: &'t OpenTree, own: u64) -> AutoView<'t> {
        AutoView { system, open: tree, tree: tree.tree.id(), own, bound: system.visible().max(own) }
    }
}

impl View for AutoView<'_> {
    #[inline(always)]
    fn sees_all(&self, header: &FrameHeader) -> bool {
        let hint = header.version_hint();
        hint <= self.bound || resolve(self.system, header, hint, self.bound)
    }

    fn look(&mut self, key: &[u8], value: &mut Vec<u8>, start: usize) -> Result<Seen, Stop> {
        let time = || self.system.visible().max(self.own);
        let seen = self.system.versions.read_at(self.tree, key, time, (value, start));
        if self.open.closed.is_owned_by_other(0) {
            return Err(Stop::Error(hidden(self.open)));
        }
        if self.open.closed.hides_from(0, time()) {
            // The owner has committed, and will be durable soon, unless the log fails.
            return Err(Stop::Log);
        }
        translate(seen).map(|(seen, _)| seen)
    }
}

/// Settles the hint of a page with unknown writers, if all of them have ended by now. Gives whether
/// everything in the page is visible at `bound`.
#[cold]
fn resolve(system: &TxnSystem, header: &FrameHeader, hint: u64, bound: u64) -> bool {
    let Hint::Unknown(changed) = Hint::of(hint) else { return false };
    if system.oldest_writer() < changed {
        return false;
    }
    // All writers that have ended committed at this time or earlier.
    let now = Hint::Committed(system.clock.now()).word();
    header.resolve_version_hint(hint, now) && now <= bound
}

fn translate(seen: mvcc::Visible) -> Result<(Seen, u64), Stop> {
    Ok(match seen {
        mvcc::Visible::Page { ts } => (Seen::Page, ts),
        mvcc::Visible::Value { special, ts } => (Seen::Value { special }, ts),
        mvcc::Visible::Absent { ts } => (Seen::Absent, ts),
        mvcc::Visible::Wait => return Err(Stop::Restart),
    })
}
