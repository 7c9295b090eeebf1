//! The gate: the two words that an operation checks before it changes anything.
//!
//! | bits of the status | new changes |
//! |---|---|
//! | none | go on, if their buffer is below the soft limit |
//! | `UNBEGUN` | request the first segment, and wait for it |
//! | `FULL` | wait for room |
//! | `FULL` and `REFUSED` | fail with the reason why the log has no room |
//! | `CLOSED` | fail |
//! | `POISONED` | fail with the reason of the failure, whatever the other bits are |
//!
//! `POISONED` and `CLOSED` stay once they are set. `UNBEGUN` is set from the start, if at all,
//! until the first segment is made. `FULL` and `REFUSED` follow the state of
//! [`crate::room::Room`], which alone sets them, under the lock of the segments. All accesses are
//! relaxed: a change that does not see a new bit yet goes into a buffer and waits there like any
//! other.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

const POISONED: u32 = 1;
const FULL: u32 = 2;
const CLOSED: u32 = 4;
const REFUSED: u32 = 8;
const UNBEGUN: u32 = 16;

/// See the module documentation.
pub(crate) struct Gate {
    status: AtomicU32,
    /// Bytes in a buffer at which its appender waits for a flush.
    soft_limit: AtomicUsize,
}

impl Gate {
    pub(crate) fn new(soft_limit: usize) -> Gate {
        Gate { status: AtomicU32::new(0), soft_limit: AtomicUsize::new(soft_limit) }
    }

    /// The log has no segment yet.
    pub(crate) fn wait_for_first(&self) {
        self.status.fetch_or(UNBEGUN, Ordering::Relaxed);
    }

    /// The first segment is made. Gives whether changes had to wait for it.
    pub(crate) fn begin(&self) -> bool {
        self.status.fetch_and(!UNBEGUN, Ordering::Relaxed) & UNBEGUN != 0
    }

    /// Whether the log has no segment yet.
    pub(crate) fn is_unbegun(&self) -> bool {
        self.has(UNBEGUN)
    }

    /// Whether no bit of the status is set.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.status.load(Ordering::Relaxed) == 0
    }

    #[inline]
    pub(crate) fn soft_limit(&self) -> usize {
        self.soft_limit.load(Ordering::Relaxed)
    }

    pub(crate) fn set_soft_limit(&self, bytes: usize) {
        self.soft_limit.store(bytes, Ordering::Relaxed);
    }

    /// The log failed. The caller holds the lock of the flush requests, which orders this with
    /// cuts.
    pub(crate) fn poison(&self) {
        self.status.fetch_or(POISONED, Ordering::Relaxed);
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.has(POISONED)
    }

    pub(crate) fn close(&self) {
        self.status.fetch_or(CLOSED, Ordering::Relaxed);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.has(CLOSED)
    }

    /// Changes wait.
    pub(crate) fn become_full(&self) {
        self.replace_room(0, FULL);
    }

    /// Changes are refused.
    pub(crate) fn refuse(&self) {
        self.replace_room(FULL, FULL | REFUSED);
    }

    /// There is room again.
    pub(crate) fn reopen(&self) {
        let before = self.status.fetch_and(!(FULL | REFUSED), Ordering::Relaxed);
        assert!(before & FULL != 0, "a log that was not full has room again");
    }

    fn replace_room(&self, from: u32, to: u32) {
        let before = self.status.fetch_or(to, Ordering::Relaxed) & (FULL | REFUSED);
        assert!(before == from, "the room of the log went from {before:#x} to {to:#x}");
    }

    /// Whether the log has no room for the next segment.
    pub(crate) fn is_full(&self) -> bool {
        self.has(FULL)
    }

    /// Whether changes wait, for room or for the first segment.
    pub(crate) fn makes_wait(&self) -> bool {
        self.has(FULL | UNBEGUN)
    }

    /// Whether changes are refused because of that.
    pub(crate) fn refuses(&self) -> bool {
        self.has(REFUSED)
    }

    /// Whether a change that waits for room should try again: a flush has `taken` the buffers and
    /// the log is begun and not full, or changes are refused.
    pub(crate) fn ends_wait(&self, taken: bool) -> bool {
        match self.status.load(Ordering::Relaxed) & (FULL | REFUSED | UNBEGUN) {
            0 => taken,
            waits => waits & REFUSED != 0,
        }
    }

    fn has(&self, bit: u32) -> bool {
        self.status.load(Ordering::Relaxed) & bit != 0
    }
}
