//! How many workers a pool has, and what makes each of them different.

use crate::sync::{AtomicU64, AtomicUsize, Ordering};

/// See the module documentation.
#[derive(Default)]
pub(crate) struct WorkerCount {
    live: AtomicUsize,
    /// Workers that were ever made.
    made: AtomicU64,
}

impl WorkerCount {
    /// A seed that no other worker of the pool has; never 0.
    pub(crate) fn next_seed(&self) -> u64 {
        self.made.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    pub(crate) fn begin(&self) {
        self.live.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
    }
}
