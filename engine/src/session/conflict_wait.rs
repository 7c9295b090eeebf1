//! How auto-committed operations wait for transactions that are in their way, and try again.

use crate::{
    catalog::OpenTree, mvcc::ABANDONED, session::resolve::Resolve, tree::Tree, txn::TxnSystem,
};
use std::{cell::Cell, time::Instant};
use wattle_buffer::{Error, Result};

/// Number and session of the transaction that keeps others from changing a record, if there is one.
#[cold]
fn holder_of(system: &TxnSystem, tree: &OpenTree, key: &[u8]) -> Option<(u64, u64)> {
    tree.closed.holder().or_else(|| system.versions.holder(tree.tree.id(), key))
}

/// How long an auto-committed operation has waited for others, in all attempts.
pub(crate) struct Waits<'r> {
    tree: &'r OpenTree,
    key: &'r [u8],
    since: Cell<Option<Instant>>,
    /// Number of the transaction that holds the record, and since when that was waited for.
    holder: Cell<Option<(u64, Instant)>>,
    turn: Cell<u32>,
}

impl<'r> Waits<'r> {
    pub fn of(tree: &'r Tree, key: &'r [u8]) -> Waits<'r> {
        let (since, holder, turn) = (Cell::new(None), Cell::new(None), Cell::new(0));
        Waits { tree: &tree.open, key, since, holder, turn }
    }

    /// Begins to wait, unless that has happened.
    #[cold]
    pub fn in_place<'w>(
        waits: &'w mut Option<Waits<'r>>,
        tree: &'r Tree,
        key: &'r [u8],
    ) -> &'w Waits<'r> {
        waits.get_or_insert_with(|| Waits::of(tree, key))
    }

    /// Waits a moment after a conflict, or after a snapshot was cancelled; false: that would be for nothing, or
    /// it was for too long already. An open transaction is waited for as the options say, one of the caller's
    /// own session not at all. Where nobody holds the record, others were faster, and the next attempt may
    /// succeed; so it may when the engine has rolled back what was abandoned.
    #[cold]
    pub async fn wait<R: Resolve>(&self, session: &R) -> bool {
        let core = session.core();
        let now = Instant::now();
        let since = self.since.get().unwrap_or(now);
        self.since.set(Some(since));
        // What is in the way may wait for the caller.
        let too_late = since.elapsed() > core.stall_timeout.max(core.conflict_wait);
        if too_late || core.pool.check_may_wait().is_err() {
            return false;
        }
        let holder = holder_of(&core.txns, self.tree, self.key);
        if let Some((number, of)) = holder.filter(|(_, of)| *of != ABANDONED) {
            if of != 0 && of == session.number() {
                return false;
            }
            let waited = self.holder.get().filter(|(other, _)| *other == number);
            let (_, since) = waited.unwrap_or((number, now));
            if waited.is_none() {
                self.holder.set(Some((number, since)));
                self.turn.set(0);
            }
            if since.elapsed() >= core.conflict_wait {
                return false;
            }
        }
        session.pause(self.turn.replace(self.turn.get() + 1)).await;
        true
    }
}

/// Does an auto operation again while somebody is in its way, or when it took longer than the versions that
/// its snapshot needs were kept.
pub(crate) async fn persist<R: Resolve, T>(
    session: &R,
    waits: &Waits<'_>,
    mut operation: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    loop {
        match operation().await {
            Err(Error::Conflict(_) | Error::SnapshotTooOld(_)) if waits.wait(session).await => {}
            outcome => return outcome,
        }
    }
}
