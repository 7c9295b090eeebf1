//! Random replacement: WATT's evictor without the comparison of page values (WATT, section 6.1).

use super::{
    parameters::{Parameter, Setup},
    policy::{Replacement, Visit},
    tracker::Tracker,
};
use crate::{error::Result, ids::PageId};

/// All pages have the same value, so the first sampled candidates are evicted.
#[derive(Debug)]
pub struct Random;

impl Replacement for Random {
    const NAME: &'static str = "random";
    const SUMMARY: &'static str = "any page of a sample leaves";
    const SOURCE: &'static str = "WATT, section 6.1";
    const PARAMETERS: &'static [Parameter] = &[Parameter::epochs(16.0)];
    const TRACKS_HITS: bool = false;

    fn new(_: &Setup) -> Result<Random> {
        Ok(Random)
    }
    fn on_load(&self, _: Visit<'_>, _: PageId) {}
    #[inline(always)]
    fn on_access(&self, _: Visit<'_>) {}
    #[inline(always)]
    fn value(&self, _: &Tracker, _: u32) -> f32 {
        0.0
    }
}
