//! A gate for X-merges: verification closes it, and writers pass it before they merge pages.

use crate::sync::{AtomicUsize, Ordering};

/// See the module documentation.
///
/// Both sides store their own count and then load the other's, all sequentially consistent: either the
/// writer sees that the gate is closed, or who closed it sees the writer.
#[derive(Default)]
pub(crate) struct MergeGate {
    /// Writers that may be inside an X-merge.
    inside: AtomicUsize,
    /// How many ask them not to begin one.
    closed: AtomicUsize,
}

impl MergeGate {
    pub(crate) fn enter(&self) {
        self.inside.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn leave(&self) {
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }

    /// A writer that entered may begin a merge.
    pub(crate) fn is_open(&self) -> bool {
        self.closed.load(Ordering::SeqCst) == 0
    }

    /// A merge may be under way.
    pub(crate) fn is_used(&self) -> bool {
        self.inside.load(Ordering::SeqCst) > 0
    }

    pub(crate) fn close(&self) {
        self.closed.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn open(&self) {
        self.closed.fetch_sub(1, Ordering::SeqCst);
    }
}
