//! How an auto-committed operation waits for a transaction that holds its record, and tries again.

use crate::{
    catalog::OpenTree, mvcc::ABANDONED, session::resolve::Resolve, tree::Tree, txn::TxnSystem,
};
use std::{cell::Cell, time::Instant};
use wattle_buffer::{Error, Result};

/// Id and session of the transaction that holds a record, if there is one.
#[cold]
fn holder_of(system: &TxnSystem, tree: &OpenTree, key: &[u8]) -> Option<(u64, u64)> {
    tree.closed.holder().or_else(|| system.versions.holder(tree.tree.id(), key))
}

/// The waits of one auto-committed operation, over all its attempts.
pub(crate) struct Waits<'r> {
    tree: &'r OpenTree,
    key: Cell<&'r [u8]>,
    since: Cell<Option<Instant>>,
    /// Id of the holder, and the time since when the operation has waited for it.
    holder: Cell<Option<(u64, Instant)>>,
    turn: Cell<u32>,
}

impl<'r> Waits<'r> {
    pub fn of(tree: &'r Tree, key: &'r [u8]) -> Waits<'r> {
        let (since, holder, turn) = (Cell::new(None), Cell::new(None), Cell::new(0));
        Waits { tree: &tree.open, key: Cell::new(key), since, holder, turn }
    }

    /// For an operation on several records: waits for the first one that a transaction holds.
    #[cold]
    pub fn turn_to_held(&self, system: &TxnSystem, mut keys: impl Iterator<Item = &'r [u8]>) {
        if let Some(key) = keys.find(|key| holder_of(system, self.tree, key).is_some()) {
            self.key.set(key);
        }
    }

    /// Puts the key of the first record that a transaction holds into `held`, if there is one.
    #[cold]
    pub fn find_held<'k>(
        system: &TxnSystem,
        tree: &Tree,
        mut keys: impl Iterator<Item = &'k [u8]>,
        held: &mut Vec<u8>,
    ) {
        if let Some(key) = keys.find(|key| holder_of(system, &tree.open, key).is_some()) {
            held.clear();
            held.extend_from_slice(key);
        }
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

    /// Waits briefly after a conflict, or after a snapshot was cancelled. False: waiting cannot
    /// help, or has taken too long. An open transaction is waited for as long as the options say; a
    /// transaction of the caller's own session not at all. Without a holder another thread was
    /// faster, and the next attempt may succeed; so it may after the engine has rolled back an
    /// abandoned transaction.
    #[cold]
    pub async fn wait<R: Resolve>(&self, session: &R) -> bool {
        let core = session.core();
        let now = Instant::now();
        let since = self.since.get().unwrap_or(now);
        self.since.set(Some(since));
        // The holder may itself wait for the caller.
        let too_late = since.elapsed() > core.stall_timeout.max(core.conflict_wait);
        if too_late || core.pool.check_may_wait().is_err() {
            return false;
        }
        let holder = holder_of(&core.txns, self.tree, self.key.get());
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

/// As [`persist`], for an operation that finds out itself which record it changes. An error comes
/// with the key of the record that it met, and the wait is for a transaction that holds that.
pub(crate) async fn persist_at<R: Resolve, T>(
    session: &R,
    tree: &Tree,
    mut operation: impl AsyncFnMut() -> Result<T, (Vec<u8>, Error)>,
) -> Result<T> {
    let mut stopped = match operation().await {
        Ok(value) => return Ok(value),
        Err(stopped) => stopped,
    };
    let (core, since) = (session.core(), Instant::now());
    loop {
        let (key, mut error) = stopped;
        let waits = Waits::of(tree, &key);
        stopped = loop {
            let too_late = since.elapsed() > core.stall_timeout.max(core.conflict_wait);
            if !error.is_retryable() || too_late || !waits.wait(session).await {
                return Err(error);
            }
            match operation().await {
                Ok(value) => return Ok(value),
                Err((other, next)) if other == key => error = next,
                // Others were faster: it goes on at another record.
                Err(stopped) => break stopped,
            }
        };
    }
}

/// Repeats an auto-committed operation after conflicts, and after its snapshot was cancelled.
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
