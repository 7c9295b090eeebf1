//! LFU: of a sample, the pages with the fewest uses since they were loaded leave.
//!
//! Source: Gilbert, "Bottlenecks Uncovered" (2020), section 1.2.13. Evictors compare samples
//! instead of searching all frames. Every use stores to the frame header; two at once may count as
//! one.
//!
//! Word 0 of the tracker is the number of uses.

use super::{
    parameters::{Parameter, Setup},
    policy::{Replacement, Visit},
    tracker::Tracker,
};
use crate::{error::Result, ids::PageId};

const USES: usize = 0;

/// See the module documentation.
#[derive(Debug)]
pub struct Lfu;

impl Replacement for Lfu {
    const NAME: &'static str = "lfu";
    const SUMMARY: &'static str = "fewest uses of a sample";
    const SOURCE: &'static str = "Gilbert 2020, section 1.2.13";
    const PARAMETERS: &'static [Parameter] = &[];

    fn new(_: &Setup) -> Result<Lfu> {
        Ok(Lfu)
    }

    fn on_load(&self, visit: Visit<'_>, _: PageId) {
        visit.tracker.reset();
    }

    #[inline]
    fn on_access(&self, visit: Visit<'_>) {
        visit.tracker.set_word(USES, visit.tracker.word(USES).saturating_add(1));
    }

    #[inline]
    fn value(&self, tracker: &Tracker, _: u32) -> f32 {
        tracker.word(USES) as f32
    }
}
