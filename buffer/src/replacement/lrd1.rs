//! LRD, version 1: of a sample, the pages with the least reference density leave. See `lrd`.

use super::{
    lrd::Lrd,
    parameters::{Parameter, Setup},
    policy::{Replacement, Visit},
    tracker::Tracker,
};
use crate::{error::Result, ids::PageId};

/// See the module documentation.
#[derive(Debug)]
pub struct Lrd1(Lrd);

impl Replacement for Lrd1 {
    const NAME: &'static str = "lrd1";
    const SUMMARY: &'static str = "least reference density of a sample";
    const SOURCE: &'static str =
        "Effelsberg, Härder, TODS 9(4), 1984; Gilbert 2020, section 1.2.12.1";
    const PARAMETERS: &'static [Parameter] = &[Parameter::epochs(64.0)];

    fn new(_: &Setup) -> Result<Lrd1> {
        Ok(Lrd1(Lrd { ageing: None }))
    }
    fn on_load(&self, visit: Visit<'_>, _: PageId) {
        self.0.load(visit);
    }
    #[inline]
    fn on_access(&self, visit: Visit<'_>) {
        self.0.access(visit);
    }
    #[inline]
    fn value(&self, tracker: &Tracker, epoch: u32) -> f32 {
        self.0.density(tracker, epoch)
    }
}
