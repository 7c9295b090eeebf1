//! Trees that one transaction owns.

use crate::mvcc::ABANDONED;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The owner of a tree that a committing transaction is about to drop: no transaction may change
/// it.
const DROPPING: u64 = u64::MAX - 1;
/// The owner of a tree that was dropped, or whose creation was rolled back: no transaction may
/// change it again.
const DROPPED: u64 = u64::MAX;

/// The owner of a tree: a transaction that changes more records than versions can be kept for.
///
/// The transaction closes the tree before the first change without a version. From then on other
/// transactions cannot change records of the tree. A reader that would need an earlier version of a
/// record gets an error; pages that did not change since its snapshot stay readable. After the
/// owner has committed this still holds for older snapshots. Changes that other transactions made
/// before the tree was closed have versions, so the owner meets them as conflicts.
///
/// A transaction also owns the trees that it has created, until it commits: no other can have
/// changed them, so they need no versions. And a tree that was dropped is closed for good.
#[derive(Default)]
pub(crate) struct Closed {
    /// The transaction, 0 for none.
    owner: AtomicU64,
    /// The session of the transaction. 0: none, or the tree was closed just now.
    session: AtomicU64,
    /// Readers with a snapshot below this time cannot know what they should see.
    until: AtomicU64,
    /// The tree goes with the end of its owner.
    goes: AtomicBool,
    /// The time of the commit that dropped the tree; 0 if its creation was rolled back.
    dropped: AtomicU64,
}

impl Closed {
    /// Makes `txn` the owner of the tree; false when another transaction owns it.
    pub fn close(&self, txn: u64, session: u64) -> bool {
        let owner = self.owner.compare_exchange(0, txn, Ordering::SeqCst, Ordering::SeqCst);
        if owner.is_ok() {
            self.session.store(session, Ordering::SeqCst);
        }
        owner.is_ok() || owner == Err(txn)
    }

    /// Number and session of the owner, if there is one.
    pub fn holder(&self) -> Option<(u64, u64)> {
        let owner = self.owner.load(Ordering::SeqCst);
        (owner != 0 && owner < DROPPING).then(|| (owner, self.session.load(Ordering::SeqCst)))
    }

    /// The owner was abandoned: the engine rolls it back.
    pub fn abandon(&self, txn: u64) {
        if txn != 0 && self.is_owned_by(txn) {
            self.session.store(ABANDONED, Ordering::SeqCst);
        }
    }

    /// Whether a transaction other than `txn` owns the tree.
    #[inline]
    pub fn is_closed_to(&self, txn: u64) -> bool {
        let owner = self.owner.load(Ordering::Acquire);
        owner != 0 && owner != txn
    }

    /// Whether `txn` owns the tree.
    #[inline]
    pub fn is_owned_by(&self, txn: u64) -> bool {
        self.owner.load(Ordering::Relaxed) == txn
    }

    /// Whether a transaction other than `txn` owns the tree, and may have changed it without
    /// versions.
    pub fn is_owned_by_other(&self, txn: u64) -> bool {
        let owner = self.owner.load(Ordering::Acquire);
        owner != 0 && owner != txn && owner < DROPPING
    }

    /// Whether a reader of this transaction (0: none) and snapshot cannot know what it should see.
    pub fn hides_from(&self, txn: u64, snapshot: u64) -> bool {
        self.is_owned_by_other(txn) || snapshot < self.until.load(Ordering::Acquire)
    }

    /// The commit time of the last owner, if it is above `snapshot`. Records without versions may
    /// have been changed by it.
    pub fn hidden_since(&self, snapshot: u64) -> Option<u64> {
        Some(self.until.load(Ordering::Acquire)).filter(|until| *until > snapshot)
    }

    /// The commit time of the last owner if it is within `snapshot`, otherwise 0.
    pub fn last_within(&self, snapshot: u64) -> u64 {
        Some(self.until.load(Ordering::Acquire)).filter(|until| *until <= snapshot).unwrap_or(0)
    }

    /// The tree has no owner, and all earlier owners are within every snapshot at or above
    /// `horizon`.
    pub fn is_over(&self, horizon: u64) -> bool {
        let owner = self.owner.load(Ordering::Acquire);
        (owner == 0 || owner == DROPPED) && self.until.load(Ordering::Acquire) <= horizon
    }

    /// The transaction has ended: committed at `time`, or rolled back (0).
    pub fn open(&self, txn: u64, time: u64) {
        if self.is_owned_by(txn) {
            self.until.fetch_max(time, Ordering::SeqCst);
            self.session.store(0, Ordering::SeqCst);
            let next = if self.goes.load(Ordering::SeqCst) { DROPPED } else { 0 };
            self.owner.store(next, Ordering::SeqCst);
        }
    }

    /// Makes `txn` the owner of a tree that it has just created. The tree goes when the transaction
    /// ends, unless [`Closed::keep`] is called before.
    pub fn create(&self, txn: u64, session: u64) {
        assert!(self.close(txn, session), "no other transaction knows the tree");
        self.goes.store(true, Ordering::SeqCst);
    }

    /// The tree stays when its owner ends.
    pub fn keep(&self) {
        self.goes.store(false, Ordering::SeqCst);
    }

    /// No other transaction may change the tree from here on, because `txn` is about to drop it and
    /// to commit; false when another transaction owns it. Ends with [`Closed::stay`] or
    /// [`Closed::drop_for_good`].
    pub fn begin_drop(&self, txn: u64) -> bool {
        match self.owner.compare_exchange(0, DROPPING, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => true,
            Err(owner) if owner == txn => {
                self.goes.store(true, Ordering::SeqCst);
                true
            }
            Err(_) => false,
        }
    }

    /// The transaction that wanted to drop the tree does not commit.
    pub fn stay(&self) {
        self.goes.store(false, Ordering::SeqCst);
        let _owned = self.owner.compare_exchange(DROPPING, 0, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// No transaction may change the tree from here on. `time`: of the commit that dropped it, or 0
    /// if its creation was rolled back.
    pub fn drop_for_good(&self, time: u64) {
        self.dropped.store(time, Ordering::SeqCst);
        self.session.store(0, Ordering::SeqCst);
        self.owner.store(DROPPED, Ordering::SeqCst);
    }

    /// Whether the tree was dropped, or its creation was rolled back.
    pub fn is_dropped(&self) -> bool {
        self.owner.load(Ordering::Acquire) == DROPPED
    }

    /// The time of the commit that dropped the tree, if one did.
    pub fn dropped_at(&self) -> Option<u64> {
        Some(self.dropped.load(Ordering::Acquire)).filter(|time| *time != 0 && self.is_dropped())
    }
}
