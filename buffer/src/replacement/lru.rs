//! LRU by time stamps: of a sample, the pages that were not used for the longest time leave.
//!
//! Source: Gilbert, "Bottlenecks Uncovered" (2020), section 1.2.4.2, the variant without a list:
//! a hit stores a time stamp. Two things differ. Evictors compare stamps of samples instead of
//! sorting all frames, as they do for every policy with a value. The clock is the epoch, so a hit
//! within an epoch stores nothing, and pages that were last used in one epoch are equal.
//!
//! Word 0 of the tracker is the epoch of the last use.

use super::{
    parameters::{Parameter, Setup},
    policy::{Replacement, Visit},
    tracker::Tracker,
};
use crate::{error::Result, ids::PageId};

const LAST: usize = 0;

/// See the module documentation.
#[derive(Debug)]
pub struct Lru;

impl Replacement for Lru {
    const NAME: &'static str = "lru";
    const SUMMARY: &'static str = "least recently used of a sample, by time stamps";
    const SOURCE: &'static str = "Gilbert 2020, section 1.2.4.2";
    const PARAMETERS: &'static [Parameter] = &[Parameter::epochs(256.0)];

    fn new(_: &Setup) -> Result<Lru> {
        Ok(Lru)
    }

    fn on_load(&self, visit: Visit<'_>, _: PageId) {
        visit.tracker.reset();
        self.on_access(visit);
    }

    #[inline]
    fn on_access(&self, visit: Visit<'_>) {
        if visit.tracker.word(LAST) != visit.epoch {
            visit.tracker.set_word(LAST, visit.epoch);
        }
    }

    #[inline]
    fn value(&self, tracker: &Tracker, epoch: u32) -> f32 {
        -(epoch.wrapping_sub(tracker.word(LAST)) as f32)
    }
}
