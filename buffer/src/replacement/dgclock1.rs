//! DGCLOCK, version 1: GCLOCK with counts that depend on the kind of page. See `gclock` and
//! `kinds`.

use super::{
    gclock::{GClock, S, Version},
    kinds::{F, FI, FW, Kinds, R, RI, RW},
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
pub struct DgClock1 {
    clock: GClock,
    kinds: Kinds,
}

impl Replacement for DgClock1 {
    const NAME: &'static str = "dgclock1";
    const SUMMARY: &'static str =
        "a hand lowers counts and takes pages at 0; a use adds, by kind of page";
    const SOURCE: &'static str =
        "Effelsberg, Härder, TODS 9(4), 1984; Gilbert 2020, section 1.2.11.1";
    const PARAMETERS: &'static [Parameter] = &[F, R, FI, RI, FW, RW, S];
    const ORDERED: bool = true;

    fn new(setup: &Setup) -> Result<DgClock1> {
        Ok(DgClock1 { clock: GClock::new(setup, Version::Adds), kinds: Kinds::new(setup) })
    }

    fn on_load(&self, visit: Visit<'_>, _: PageId) {
        self.clock.load(visit, self.kinds.of(visit));
    }

    #[inline]
    fn on_access(&self, visit: Visit<'_>) {
        self.clock.access(visit, self.kinds.of(visit));
    }

    fn on_write(&self, visit: Visit<'_>) {
        self.kinds.written(visit.tracker);
        self.clock.created(visit.tracker, self.kinds.of(visit).f);
        self.clock.access(visit, self.kinds.of(visit));
    }

    fn value(&self, tracker: &Tracker, _: u32) -> f32 {
        self.clock.value(tracker)
    }

    fn order(&self) -> Option<&dyn Order> {
        Some(self)
    }
}

impl Order for DgClock1 {
    fn propose(&self, frames: &dyn Frames, most: usize, victims: &mut Vec<FrameId>) {
        self.clock.propose(frames, most, victims);
    }

    /// The hand has passed it.
    fn refused(&self, _: FrameId, _: &Tracker) {}
}
