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

    pub(crate) fn begin(&self) {
        self.live.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one more, unless there are `limit`; gives whether it did.
    pub(crate) fn begin_below(&self, limit: usize) -> bool {
        let more = |live: usize| (live < limit).then_some(live + 1);
        self.live.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    pub(crate) fn end(&self) {
        let live = self.live.fetch_sub(1, Ordering::Relaxed);
        assert!(live > 0, "more workers ended than began");
    }
}
