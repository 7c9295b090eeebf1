//! What readers see: [`TxnView`] as of the snapshot of a transaction, with its own changes;
//! [`AutoView`] the newest commit that is durable, or the newest one ([`Reads`]), for a read that stands for itself.

use super::{Reads, Txn};
use crate::{
    catalog::OpenTree,
    engine::Core,
    mvcc::{self, TxnState},
};
use wattle_btree::{Hint, Seen, Stop, View};
use wattle_buffer::{Error, FrameHeader, Result, TreeId};

/// See the module documentation.
pub(crate) struct TxnView<'t> {
    core: &'t Core,
    txn: &'t Txn,
    open: &'t OpenTree,
    tree: TreeId,
    /// Pages with nothing newer need no second look, nor does their commit have to be waited for.
    bound: u64,
}

impl<'t> TxnView<'t> {
    pub fn new(core: &'t Core, txn: &'t Txn, tree: &'t OpenTree) -> TxnView<'t> {
        // Its own commit will be durable behind whatever it reads, once it has changed something.
        let bound = match &txn.state {
            Some(_) => txn.snapshot,
            None => txn.snapshot.min(core.durable()),
        };
        TxnView { core, txn, open: tree, tree: tree.tree.id(), bound }
    }

    /// Whether everything in a page is visible that is not known to be durable. The newest change of the
    /// page then counts as read, whichever record it was: to ask for that of the record itself takes longer
    /// than the read, and the page is the only one that knows no older time.
    fn sees_undurable(&self, header: &FrameHeader, hint: u64) -> bool {
        let (txn, snapshot) = (self.txn, self.txn.snapshot);
        let newest = match hint <= snapshot {
            true => hint,
            false if resolve(self.core, header, hint, snapshot) => snapshot,
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
        let seen = self.core.versions.read(self.tree, key, me, txn.snapshot, (value, start));
        check_open(self.core, txn)?;
        // After the look: the tree is closed before the first change without a version.
        let me = me.map_or(0, TxnState::id);
        if self.open.closed.hides_from(me, txn.snapshot) {
            return Err(Stop::Error(hidden(self.open)));
        }
        let (seen, time) = translate(seen)?;
        let time = match self.core.reads {
            Reads::Durable => time.max(self.open.closed.last_within(txn.snapshot)),
            // The version that knew it may be gone.
            Reads::Newest => txn.snapshot,
        };
        txn.seen.set(txn.seen.get().max(time));
        Ok(seen)
    }

    fn missed(&mut self) -> Result<(), Stop> {
        if self.core.reads == Reads::Newest {
            // The ghost that knew since when may be gone.
            self.txn.seen.set(self.txn.snapshot);
        }
        check_open(self.core, self.txn)
    }
}

/// Fails when the versions of the snapshot were given up: ghosts of records that it should see may be gone
/// as well. They are only removed after it was cancelled, so a look behind a read of their leaf is enough.
pub(super) fn check_open(core: &Core, txn: &Txn) -> Result<(), Stop> {
    if txn.slot.is_cancelled() {
        return Err(Stop::Error(too_old(core)));
    }
    Ok(())
}

/// The error of a snapshot whose versions were given up.
pub(crate) fn too_old(core: &Core) -> Error {
    let limit = core.version_bytes;
    Error::SnapshotTooOld(format!(
        "versions of records took more than the limit of {limit} bytes, and those of the oldest \
         snapshot were given up"
    ))
}

/// The error of a reader that would need a version which was never kept.
fn hidden(tree: &OpenTree) -> Error {
    Error::SnapshotTooOld(format!(
        "a transaction that is too large for versions of records changes the tree {:?}, or did so \
         after the snapshot was taken",
        tree.name()
    ))
}

/// See the module documentation.
pub(crate) struct AutoView<'t> {
    core: &'t Core,
    open: &'t OpenTree,
    tree: TreeId,
    /// The newest commit of the session, which it sees in any case.
    own: u64,
    bound: u64,
}

impl<'t> AutoView<'t> {
    pub fn new(core: &'t Core, tree: &'t OpenTree, own: u64) -> AutoView<'t> {
        AutoView { core, open: tree, tree: tree.tree.id(), own, bound: core.visible().max(own) }
    }
}

impl View for AutoView<'_> {
    #[inline(always)]
    fn sees_all(&self, header: &FrameHeader) -> bool {
        let hint = header.version_hint();
        hint <= self.bound || resolve(self.core, header, hint, self.bound)
    }

    fn look(&mut self, key: &[u8], value: &mut Vec<u8>, start: usize) -> Result<Seen, Stop> {
        let time = || self.core.visible().max(self.own);
        let seen = self.core.versions.read_at(self.tree, key, time, (value, start));
        if self.open.closed.is_closed_to(0) {
            return Err(Stop::Error(hidden(self.open)));
        }
        if self.open.closed.hides_from(0, time()) {
            // It has committed, and will be durable in a moment, unless the log fails.
            return Err(Stop::Log);
        }
        translate(seen).map(|(seen, _)| seen)
    }
}

/// A page of which it was not known who changed it: perhaps it is known now that all of them have
/// ended. Gives whether everything in it is visible at `bound`.
#[cold]
fn resolve(core: &Core, header: &FrameHeader, hint: u64, bound: u64) -> bool {
    let Hint::Unknown(changed) = Hint::of(hint) else { return false };
    if core.oldest_writer() < changed {
        return false;
    }
    // Whoever has ended did so at this time at the latest.
    let now = Hint::Committed(core.clock.now()).word();
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
