//! The state of one transaction: running, committing, committed or aborted. It is one word that all
//! versions of the transaction point to, so committing any number of changes is one store.
//!
//! To commit, the owner calls [`TxnState::start_commit`], draws a time from the clock, gives it to
//! [`TxnState::set_ts`], appends its commit record to the log and calls [`TxnState::committed`].
//! A reader with snapshot `s` that meets a transaction
//!
//! - *active*: does not see it. Had `s` been drawn at or after the transaction's time, the reader's
//!   load of the clock would have read that draw or a later one. The store of *drawing* would have
//!   happened before, so the reader could not load *active* now. So a transaction never becomes
//!   visible to an open snapshot;
//! - *drawing*: cannot tell, and looks again;
//! - *committing* with a time above `s`: does not see it; with a time up to `s`: looks again until
//!   it is committed;
//! - *committed*: sees it if its time is up to `s`.
//!
//! Only the owner of the transaction changes the word; the transitions assert the old state.

use std::sync::atomic::{AtomicU64, Ordering};

// | bits 63..62 | bits 61..0 | state                                     |
// |-------------|------------|-------------------------------------------|
// | 00          | 0          | active                                    |
// | 00          | not 0      | never                                     |
// | 01          | 0          | drawing: committing, the time not yet set |
// | 01          | time       | committing                                |
// | 10          | 0          | never                                     |
// | 10          | time       | committed                                 |
// | 11          | 0          | aborted                                   |
// | 11          | not 0      | never                                     |
const TAG_SHIFT: u32 = 62;
const ACTIVE: u64 = 0;
const COMMITTING: u64 = 1 << TAG_SHIFT;
const COMMITTED: u64 = 2 << TAG_SHIFT;
const ABORTED: u64 = 3 << TAG_SHIFT;
const TAG_MASK: u64 = 3 << TAG_SHIFT;

/// Times and ids are below this.
pub(crate) const MAX_TS: u64 = 1 << TAG_SHIFT;

const _: () = assert!(TAG_MASK | (MAX_TS - 1) == u64::MAX, "tag and time fill the word");
const _: () = assert!(TAG_MASK & (MAX_TS - 1) == 0, "tag and time do not overlap");
const _: () = assert!(COMMITTING & COMMITTED == 0 && COMMITTING | COMMITTED == ABORTED);
const _: () = assert!(ABORTED & !TAG_MASK == 0, "tags are within the tag bits");

/// Session number of a transaction that its session has left: the engine rolls it back.
pub(crate) const ABANDONED: u64 = u64::MAX;

/// The state of a transaction at one look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// Running, or rolling back.
    Active,
    /// About to draw its commit time.
    Drawing,
    /// About to be committed at this time.
    Committing(u64),
    /// Committed at this time; final.
    Committed(u64),
    /// Rolled back; final. Versions that it still has count like those of an active one.
    Aborted,
}

/// The state of a transaction, shared by its handle and all its versions.
#[derive(Debug)]
pub(crate) struct TxnState {
    word: AtomicU64,
    id: u64,
    /// Number of its session, 0 if unknown, or [`ABANDONED`].
    session: AtomicU64,
}

impl TxnState {
    /// An active transaction. Ids are unique, ascending and below [`MAX_TS`].
    #[cfg(test)]
    pub fn new(id: u64) -> TxnState {
        TxnState::of_session(id, 0)
    }

    /// As `new`, in the session with this number; 0 if unknown.
    pub fn of_session(id: u64, session: u64) -> TxnState {
        assert!(id < MAX_TS, "transaction id {id} is above the limit");
        TxnState { word: AtomicU64::new(ACTIVE), id, session: AtomicU64::new(session) }
    }

    /// The number of its session, or [`ABANDONED`].
    pub fn session(&self) -> u64 {
        self.session.load(Ordering::Relaxed)
    }

    /// Its session has left it; the engine rolls it back.
    pub fn abandon(&self) {
        self.session.store(ABANDONED, Ordering::Relaxed);
    }

    /// Its id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The state now. Acquires everything that the owner did before it stored the state.
    #[inline]
    pub fn status(&self) -> Status {
        // Partner of the stores in `change`. The head of the file says why an acquiring load is
        // enough to see the store of `start_commit`.
        let word = self.word.load(Ordering::Acquire);
        match (word & TAG_MASK, word & !TAG_MASK) {
            (ACTIVE, _) => Status::Active,
            (COMMITTING, 0) => Status::Drawing,
            (COMMITTING, ts) => Status::Committing(ts),
            (COMMITTED, ts) => Status::Committed(ts),
            _ => Status::Aborted,
        }
    }

    /// The commit time, once committed.
    #[inline]
    pub fn committed_ts(&self) -> Option<u64> {
        match self.status() {
            Status::Committed(ts) => Some(ts),
            _ => None,
        }
    }

    /// From active to drawing. Called before the commit time is drawn from the clock.
    pub fn start_commit(&self) {
        self.change(COMMITTING, |old| old == Status::Active);
    }

    /// From drawing to committing at `ts`.
    pub fn set_ts(&self, ts: u64) {
        assert!(0 < ts && ts < MAX_TS, "commit time {ts} is out of range");
        self.change(COMMITTING | ts, |old| old == Status::Drawing);
    }

    /// From committing at `ts` to committed at `ts`.
    pub fn committed(&self, ts: u64) {
        self.change(COMMITTED | ts, |old| old == Status::Committing(ts));
    }

    /// From active to aborted. Called after every change was undone.
    pub fn aborted(&self) {
        self.change(ABORTED, |old| old == Status::Active);
    }

    fn change(&self, word: u64, allowed: impl FnOnce(Status) -> bool) {
        let old = self.status();
        assert!(allowed(old), "transaction {}: {old:?} cannot become word {word:#x}", self.id);
        // Only the owner stores. Partner of the load in `status`. Release is enough for
        // `start_commit`, too: the draw that follows is a releasing read-modify-write, and every
        // thread that drew or loaded that time or a later one has acquired from it.
        self.word.store(word, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;

    #[test]
    fn a_commit_passes_through_all_states() {
        let state = TxnState::new(7);
        assert_eq!((state.id(), state.status()), (7, Status::Active));
        state.start_commit();
        assert_eq!(state.status(), Status::Drawing);
        state.set_ts(5);
        assert_eq!((state.status(), state.committed_ts()), (Status::Committing(5), None));
        state.committed(5);
        assert_eq!((state.status(), state.committed_ts()), (Status::Committed(5), Some(5)));
    }

    #[test]
    fn the_last_time_fits() {
        let state = TxnState::new(MAX_TS - 1);
        state.start_commit();
        state.set_ts(MAX_TS - 1);
        assert_eq!(state.status(), Status::Committing(MAX_TS - 1));
        state.committed(MAX_TS - 1);
        assert_eq!(state.committed_ts(), Some(MAX_TS - 1));
    }

    #[test]
    fn an_abort_is_final() {
        let state = TxnState::new(0);
        state.aborted();
        assert_eq!((state.status(), state.committed_ts()), (Status::Aborted, None));
        assert!(catch_unwind(|| state.start_commit()).is_err());
    }

    #[test]
    fn wrong_transitions_are_refused() {
        let state = TxnState::new(1);
        assert!(catch_unwind(|| state.set_ts(3)).is_err());
        assert!(catch_unwind(|| state.committed(3)).is_err());
        state.start_commit();
        assert!(catch_unwind(|| state.start_commit()).is_err());
        assert!(catch_unwind(|| state.aborted()).is_err());
        assert!(catch_unwind(|| state.set_ts(0)).is_err());
        assert!(catch_unwind(|| state.set_ts(MAX_TS)).is_err());
        state.set_ts(3);
        assert!(catch_unwind(|| state.committed(4)).is_err());
        assert!(catch_unwind(|| state.aborted()).is_err());
        state.committed(3);
        assert!(catch_unwind(|| state.start_commit()).is_err());
        assert!(catch_unwind(|| state.aborted()).is_err());
    }
}
