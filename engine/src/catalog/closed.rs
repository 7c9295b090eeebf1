//! Trees that one transaction has for itself.

use crate::mvcc::ABANDONED;
use std::sync::atomic::{AtomicU64, Ordering};

/// A tree that one transaction has for itself, because it changes more than versions can be kept of.
///
/// The transaction closes the tree before the first change without a version. From then on others
/// cannot change records of it, and those who would need to know what a record was before get an
/// error; pages that did not change since their snapshot are read as ever. After its commit this
/// still holds for older snapshots. Changes that others began before the tree was closed have
/// versions, so the transaction meets them as conflicts.
#[derive(Default)]
pub(crate) struct Closed {
    /// The transaction, 0 for none.
    owner: AtomicU64,
    /// The session of the transaction; 0 for none, and for a moment after it closed the tree.
    session: AtomicU64,
    /// Snapshots below this time cannot be told what they would see.
    until: AtomicU64,
}

impl Closed {
    /// Closes the tree for others; false when it is closed by another.
    pub fn close(&self, txn: u64, session: u64) -> bool {
        let owner = self.owner.compare_exchange(0, txn, Ordering::SeqCst, Ordering::SeqCst);
        if owner.is_ok() {
            self.session.store(session, Ordering::SeqCst);
        }
        owner.is_ok() || owner == Err(txn)
    }

    /// Number and session of the transaction that has the tree for itself, if one has.
    pub fn holder(&self) -> Option<(u64, u64)> {
        let owner = self.owner.load(Ordering::SeqCst);
        (owner != 0).then(|| (owner, self.session.load(Ordering::SeqCst)))
    }

    /// The engine rolls the transaction back.
    pub fn abandon(&self, txn: u64) {
        if txn != 0 && self.is_owned_by(txn) {
            self.session.store(ABANDONED, Ordering::SeqCst);
        }
    }

    /// Whether another transaction than `txn` has the tree for itself.
    #[inline]
    pub fn is_closed_to(&self, txn: u64) -> bool {
        let owner = self.owner.load(Ordering::Acquire);
        owner != 0 && owner != txn
    }

    /// Whether `txn` has the tree for itself.
    #[inline]
    pub fn is_owned_by(&self, txn: u64) -> bool {
        self.owner.load(Ordering::Relaxed) == txn
    }

    /// Whether a reader of this transaction (0: none) and snapshot cannot be told what it would see.
    pub fn hides_from(&self, txn: u64, snapshot: u64) -> bool {
        self.is_closed_to(txn) || snapshot < self.until.load(Ordering::Acquire)
    }

    /// The time of the last such transaction, if it is above `snapshot`: of records that have no
    /// versions, it is not known whether that changed them.
    pub fn hidden_since(&self, snapshot: u64) -> Option<u64> {
        Some(self.until.load(Ordering::Acquire)).filter(|until| *until > snapshot)
    }

    /// The time of the last such transaction, if it is within `snapshot`.
    pub fn last_within(&self, snapshot: u64) -> u64 {
        Some(self.until.load(Ordering::Acquire)).filter(|until| *until <= snapshot).unwrap_or(0)
    }

    /// Nobody has the tree for itself, and whoever had is within every snapshot at or above
    /// `horizon`.
    pub fn is_over(&self, horizon: u64) -> bool {
        !self.is_closed_to(0) && self.until.load(Ordering::Acquire) <= horizon
    }

    /// The transaction has ended: committed at `time`, or rolled back (0).
    pub fn open(&self, txn: u64, time: u64) {
        if self.is_owned_by(txn) {
            self.until.fetch_max(time, Ordering::SeqCst);
            self.session.store(0, Ordering::SeqCst);
            self.owner.store(0, Ordering::SeqCst);
        }
    }
}
