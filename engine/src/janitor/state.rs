//! The abandoned transactions, the lock of the janitor's round, and its thread.

use crate::{background::BackgroundThread, txn::BoxedTxn};
use parking_lot::{Mutex, MutexGuard};

/// See the module documentation.
pub(crate) struct Janitor {
    abandoned: Mutex<Abandoned>,
    /// Held during a round.
    round: Mutex<()>,
    pub thread: BackgroundThread,
}

/// Transactions with changes that their sessions will not end.
#[derive(Default)]
struct Abandoned {
    new: Vec<BoxedTxn>,
    /// Those that could not be rolled back so far.
    again: Vec<BoxedTxn>,
}

impl Janitor {
    pub fn new() -> Janitor {
        Janitor {
            abandoned: Mutex::default(),
            round: Mutex::new(()),
            thread: BackgroundThread::new("janitor"),
        }
    }

    /// Takes over a transaction with changes that its session will not end.
    pub fn abandon(&self, txn: BoxedTxn) {
        txn.state.iter().for_each(|state| state.abandon());
        let id = txn.state.as_ref().map_or(0, |state| state.id());
        txn.trees.iter().for_each(|tree| tree.closed.abandon(id));
        self.abandoned.lock().new.push(txn);
        self.thread.wake();
    }

    /// A transaction could not be rolled back. The next round tries again.
    pub fn put_back(&self, txn: BoxedTxn) {
        self.abandoned.lock().again.push(txn);
    }

    /// Takes all abandoned transactions.
    pub fn take_abandoned(&self) -> Vec<BoxedTxn> {
        let Abandoned { mut new, mut again } = std::mem::take(&mut *self.abandoned.lock());
        new.append(&mut again);
        new
    }

    /// Transactions were abandoned since the last round began.
    pub fn has_new(&self) -> bool {
        !self.abandoned.lock().new.is_empty()
    }

    /// Transactions are left that could not be rolled back.
    pub fn is_stuck(&self) -> bool {
        let abandoned = self.abandoned.lock();
        !abandoned.new.is_empty() || !abandoned.again.is_empty()
    }

    /// Drops all abandoned transactions: only recovery can take their changes back.
    pub fn forget(&self) {
        *self.abandoned.lock() = Abandoned::default();
    }

    /// While the guard lives, nothing is cleared away. Waits for a round that is under way.
    pub fn pause(&self) -> MutexGuard<'_, ()> {
        self.round.lock()
    }
}
