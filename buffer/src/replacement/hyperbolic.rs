//! Hyperbolic caching: of a sample, the pages with the fewest uses per time since they were loaded
//! leave.
//!
//! Source: Blankstein, Sen, Freedman, "Hyperbolic caching: flexible caching for web applications",
//! USENIX ATC 2017, section 2. Time is counted in epochs, that is in evictions: a counter of all
//! uses would be a shared store at each of them. Every use stores to the frame header; two at once
//! may count as one.
//!
//! Word 0 of the tracker is the number of uses, word 1 the epoch in which the page was loaded.

use super::{
    parameters::{Parameter, Setup},
    policy::{Replacement, Visit},
    tracker::Tracker,
};
use crate::{error::Result, ids::PageId};

const USES: usize = 0;
const LOADED: usize = 1;

/// See the module documentation.
#[derive(Debug)]
pub struct Hyperbolic;

impl Replacement for Hyperbolic {
    const NAME: &'static str = "hyperbolic";
    const SUMMARY: &'static str = "fewest uses per time since loading, of a sample";
    const SOURCE: &'static str = "Blankstein, Sen, Freedman, USENIX ATC 2017, section 2";
    const PARAMETERS: &'static [Parameter] = &[Parameter::epochs(64.0)];

    fn new(_: &Setup) -> Result<Hyperbolic> {
        Ok(Hyperbolic)
    }

    fn on_load(&self, visit: Visit<'_>, _: PageId) {
        visit.tracker.reset();
        visit.tracker.set_word(LOADED, visit.epoch);
    }

    #[inline]
    fn on_access(&self, visit: Visit<'_>) {
        visit.tracker.set_word(USES, visit.tracker.word(USES).saturating_add(1));
    }

    #[inline]
    fn value(&self, tracker: &Tracker, epoch: u32) -> f32 {
        let age = epoch.wrapping_sub(tracker.word(LOADED)).saturating_add(1);
        tracker.word(USES) as f32 / age as f32
    }
}
