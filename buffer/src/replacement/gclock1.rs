//! GCLOCK, version 1: see `gclock`.

use super::{
    gclock::{F, GClock, R, S, Version, Weights},
    parameters::{Parameter, Setup},
    policy::{Frames, Order, Replacement, Visit},
    tracker::Tracker,
};
use crate::{
    error::Result,
    ids::{FrameId, PageId},
};

/// See the module documentation.
#[derive(Debug)]
pub struct GClock1 {
    clock: GClock,
    weights: Weights,
}

impl Replacement for GClock1 {
    const NAME: &'static str = "gclock1";
    const SUMMARY: &'static str = "a hand lowers counts and takes pages at 0; a use adds";
    const SOURCE: &'static str =
        "Effelsberg, Härder, TODS 9(4), 1984; Gilbert 2020, section 1.2.10.1";
    const PARAMETERS: &'static [Parameter] = &[F, R, S];
    const ORDERED: bool = true;

    fn new(setup: &Setup) -> Result<GClock1> {
        let weights = Weights::of(setup, F.name, R.name);
        Ok(GClock1 { clock: GClock::new(setup, Version::Adds), weights })
    }

    fn on_load(&self, visit: Visit<'_>, _: PageId) {
        self.clock.load(visit, self.weights);
    }

    #[inline]
    fn on_access(&self, visit: Visit<'_>) {
        self.clock.access(visit, self.weights);
    }

    fn value(&self, tracker: &Tracker, _: u32) -> f32 {
        self.clock.value(tracker)
    }

    fn order(&self) -> Option<&dyn Order> {
        Some(self)
    }
}

impl Order for GClock1 {
    fn propose(&self, frames: &dyn Frames, most: usize, victims: &mut Vec<FrameId>) {
        self.clock.propose(frames, most, victims);
    }

    /// The hand has passed it.
    fn refused(&self, _: FrameId, _: &Tracker) {}
}
