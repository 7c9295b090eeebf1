//! The number of workers of a pool, and their seeds.

use crate::sync::{AtomicU64, AtomicUsize, Ordering};

/// See the module documentation.
#[derive(Default)]
pub(crate) struct WorkerCount {
    live: AtomicUsize,
    /// Number of workers that were ever created.
    made: AtomicU64,
}

impl WorkerCount {
    /// A seed that no other worker of the pool gets; never 0.
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
        let live = self.live.fetch_sub(1, Ordering::Relaxed);
        assert!(live > 0, "more workers ended than began");
    }
}
