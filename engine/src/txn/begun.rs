//! A transaction that a session has begun and not ended yet.

use super::{BoxedTxn, Ticket, Txn, TxnOptions, rollback, validate};
use crate::{
    core::Core,
    session::{resolve::Resolve, step::run},
    tree::Tree,
};
use std::time::Instant;
use wattle_buffer::{Inside, Result};

/// A transaction that a session has begun. If it is dropped before its end, the engine rolls it
/// back.
pub(crate) struct Begun<'s, R: Resolve> {
    session: &'s R,
    txn: Option<BoxedTxn>,
}

impl<'s, R: Resolve> Begun<'s, R> {
    pub fn new(session: &'s R, options: TxnOptions) -> Result<Begun<'s, R>> {
        let options = session.core().check_begin(options)?;
        let mut txn = session.take_idle();
        txn.session = session.number();
        txn.begin(session.system(), options, session.own());
        Ok(Begun { session, txn: Some(txn) })
    }

    pub fn session(&self) -> &'s R {
        self.session
    }

    pub fn txn(&mut self) -> &mut Txn {
        self.txn.as_mut().expect("not ended")
    }

    pub fn get(&self) -> &Txn {
        self.txn.as_ref().expect("not ended")
    }

    /// Commits.
    ///
    /// # Errors
    /// The transaction was rolled back then: a conflict at validation, or it could only be aborted.
    pub async fn commit(mut self) -> Result<Ticket> {
        let prepared = self.prepare().await;
        let (session, core) = (self.session, self.session.core());
        let outcome = match prepared {
            Ok(()) if self.get().tree_changes.is_some() => self.commit_trees(),
            Ok(()) => loop {
                let txn = self.txn.as_mut().expect("not ended");
                if txn.reads.is_none() || txn.state.is_none() {
                    break Ok(txn.commit(session.system(), session.cx(), session.log()));
                }
                let stopped = {
                    let _one_at_a_time = core.txns.validation.lock();
                    match validate(&core.txns, txn) {
                        Ok(()) => {
                            break Ok(txn.commit(session.system(), session.cx(), session.log()));
                        }
                        Err(stop) => stop,
                    }
                };
                let mut stopped = Some(stopped);
                let resolved = run(session, |_| stopped.take().map_or(Ok(()), Err)).await;
                if let Err(error) = resolved {
                    break Err(error);
                }
            },
            Err(error) => Err(error),
        };
        match outcome {
            Ok((ticket, time)) => {
                self.finish(time);
                if time != 0 && core.txns.liveness.throttle() != 0 {
                    // Here the transaction holds nothing that other threads wait for.
                    core.wait_throttled(session).await;
                }
                Ok(ticket)
            }
            Err(error) => {
                self.abort().await?;
                Err(error)
            }
        }
    }

    /// The commit of a transaction that has changed trees, which blocks the thread.
    #[cold]
    fn commit_trees(&mut self) -> Result<(Ticket, u64)> {
        let (session, core) = (self.session, self.session.core());
        core.check_caller(&[Inside::Durable])?;
        let txn = self.txn.as_mut().expect("not ended");
        let committed =
            core.catalog.commit_trees(session.system(), session.cx(), session.log(), txn)?;
        // It frees what the transaction dropped.
        core.janitor.thread.wake();
        Ok(committed)
    }

    /// The part of a commit that may fail or wait.
    async fn prepare(&mut self) -> Result<()> {
        let (session, txn) = (self.session, self.txn.as_mut().expect("not ended"));
        txn.check()?;
        if txn.state.is_none() {
            return Ok(());
        }
        // A validation waits for other transactions, and a child of `fork` has no log.
        session.core().pool.check_may_wait()?;
        run(session, |_| session.cx().journal.check_room(false)).await
    }

    /// Rolls back.
    ///
    /// # Errors
    /// Failed I/O; the janitor goes on with the rollback then, and also when this future is dropped
    /// half way.
    pub async fn abort(mut self) -> Result<()> {
        let session = self.session;
        session.core().pool.process().check()?;
        let txn = self.txn.as_mut().expect("not ended");
        if txn.state.is_some() {
            rollback(session, txn, None).await?;
        } else {
            txn.end();
        }
        self.finish(0);
        Ok(())
    }

    /// Whether a scan may continue with a newer snapshot: not while a large transaction owns the
    /// tree, nor after snapshots were cancelled repeatedly for the stall timeout.
    #[cold]
    pub fn may_renew(&self, tree: &Tree, since: &mut Option<Instant>) -> bool {
        let since = *since.get_or_insert_with(Instant::now);
        tree.open.closed.holder().is_none() && since.elapsed() <= self.session.core().stall_timeout
    }

    /// Takes the transaction over.
    pub fn into_txn(mut self) -> BoxedTxn {
        self.txn.take().expect("not ended")
    }

    /// Goes on with a transaction.
    pub fn resume(session: &'s R, txn: BoxedTxn) -> Begun<'s, R> {
        Begun { session, txn: Some(txn) }
    }

    /// The transaction has ended; `time` is that of its commit, 0 without.
    fn finish(&mut self, time: u64) {
        if let Some(txn) = self.txn.take() {
            if time != 0 {
                self.session.committed(time, &txn.stored);
            }
            self.session.give_idle(txn);
        }
    }
}

impl<R: Resolve> Drop for Begun<'_, R> {
    fn drop(&mut self) {
        let Some(mut txn) = self.txn.take() else { return };
        let core = self.session.core();
        if core.pool.process().is_other() {
            // It belongs to the parent process. Its locks may have been held at the fork.
            return std::mem::forget(txn);
        }
        if txn.state.is_some() {
            return core.janitor.abandon(txn);
        }
        txn.end();
        self.session.give_idle(txn);
    }
}

/// Ends a transaction without a session; the janitor rolls its changes back.
pub(crate) fn give_to_engine(core: &Core, mut txn: BoxedTxn) {
    if txn.state.is_some() {
        return core.janitor.abandon(txn);
    }
    txn.end();
    core.txns.snapshots.retire(txn.slot);
}
