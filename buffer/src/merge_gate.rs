//! The gate for X-merges: writers pass it before they merge pages, and verification closes it.

use crate::sync::{AtomicUsize, Ordering};

/// See the module documentation.
///
/// Each side stores its own count and then loads the other one, all sequentially consistent. So
/// either the writer sees that the gate is closed, or the closing thread sees the writer.
#[derive(Default)]
pub(crate) struct MergeGate {
    /// Writers that may be inside an X-merge.
    inside: AtomicUsize,
    /// Number of threads that keep the gate closed.
    closed: AtomicUsize,
}

impl MergeGate {
    pub(crate) fn enter(&self) {
        self.inside.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn leave(&self) {
        let inside = self.inside.fetch_sub(1, Ordering::SeqCst);
        assert!(inside > 0, "a writer left the gate without having entered");
    }

    /// Whether a writer that has entered may begin a merge.
    pub(crate) fn is_open(&self) -> bool {
        self.closed.load(Ordering::SeqCst) == 0
    }

    /// Whether a merge may be under way.
    pub(crate) fn is_used(&self) -> bool {
        self.inside.load(Ordering::SeqCst) > 0
    }

    pub(crate) fn close(&self) {
        self.closed.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn open(&self) {
        let closed = self.closed.fetch_sub(1, Ordering::SeqCst);
        assert!(closed > 0, "the gate was opened more often than closed");
    }
}
