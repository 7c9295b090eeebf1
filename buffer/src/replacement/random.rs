//! Random replacement: WATT's evictor without the comparison of page values (WATT, section 6.1).

use super::{Replacement, Tracker};

/// Every page is worth the same, so the first candidates sampled are evicted.
#[derive(Debug)]
pub struct Random;

impl Replacement for Random {
    fn on_load(&self, _: &Tracker, _: u32) {}
    #[inline(always)]
    fn on_access(&self, _: &Tracker, _: u32) {}
    #[inline(always)]
    fn on_write(&self, _: &Tracker, _: u32) {}
    #[inline(always)]
    fn value(&self, _: &Tracker, _: u32) -> f32 {
        0.0
    }
}
