//! Random replacement: WATT's evictor without the comparison of page values (WATT, section 6.1).

use super::watt::{Replacement, Tracker};

/// All pages have the same value, so the first sampled candidates are evicted.
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
