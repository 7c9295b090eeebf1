//! The clock of replacement, which advances with evictions (WATT, Listing 2).

use crate::{
    replacement::FIRST_EPOCH,
    sync::{AtomicU32, AtomicU64, Ordering},
};
use crossbeam::utils::CachePadded;

/// See the module documentation.
pub(crate) struct EpochClock {
    epoch: CachePadded<AtomicU32>,
    /// Evictions since the epoch last advanced.
    evictions: CachePadded<AtomicU64>,
    /// Evictions per epoch.
    step: u64,
}

impl EpochClock {
    pub(crate) fn new(step: u64) -> EpochClock {
        EpochClock {
            epoch: CachePadded::new(AtomicU32::new(FIRST_EPOCH)),
            evictions: CachePadded::new(AtomicU64::new(0)),
            step: step.max(1),
        }
    }

    /// The current epoch.
    #[inline(always)]
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Counts evictions, and advances the epoch after each `step` of them.
    pub(crate) fn count_evictions(&self, count: u64) {
        let total = self.evictions.fetch_add(count, Ordering::Relaxed) + count;
        if total < self.step {
            return;
        }
        // Several threads may pass the step at once; the one whose exchange succeeds advances the
        // epoch.
        let left = total - self.step;
        if self
            .evictions
            .compare_exchange(total, left, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
        {
            self.epoch.fetch_add(1, Ordering::Relaxed);
        }
    }
}
