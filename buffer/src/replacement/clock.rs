//! CLOCK: a hand goes around the frames, clears the reference bits that are set and takes the first
//! pages without one.
//!
//! Source: Corbató 1968 after Gilbert, "Bottlenecks Uncovered" (2020), section 1.2.8. A use sets
//! the bit if it is not set, and takes no latch.
//!
//! | byte of the tracker | contents |
//! |---|---|
//! | 0 | the reference bit |
//! | 1 | 1 from the load to the use that caused it, which does not count |

use super::{
    hand::Hand,
    parameters::{Parameter, Range, Setup},
    policy::{Frames, Order, Replacement, Visit},
    tracker::Tracker,
};
use crate::{
    error::Result,
    ids::{FrameId, PageId},
};

const REFERENCED: usize = 0;
const NEW: usize = 1;

/// The reference bit of a page that was just loaded, a parameter of `clock` and `zclock`.
pub(super) const REF_AT_LOAD: Parameter = Parameter {
    name: "ref_at_load",
    default: 1.0,
    range: Range::Whole(0, 1),
    about: "reference bit of a page that was just loaded",
};

/// The reference bit of a page.
#[derive(Debug)]
pub(super) struct Bit {
    at_load: u8,
}

impl Bit {
    pub fn new(setup: &Setup) -> Bit {
        Bit { at_load: setup.number(REF_AT_LOAD.name) as u8 }
    }

    pub fn load(&self, tracker: &Tracker) {
        tracker.reset();
        tracker.set_byte(REFERENCED, self.at_load);
        tracker.set_byte(NEW, 1);
    }

    #[inline]
    pub fn access(&self, tracker: &Tracker) {
        if tracker.byte(NEW) != 0 {
            tracker.set_byte(NEW, 0);
        } else if tracker.byte(REFERENCED) == 0 {
            tracker.set_byte(REFERENCED, 1);
        }
    }

    pub fn is_set(&self, tracker: &Tracker) -> bool {
        tracker.byte(REFERENCED) != 0
    }

    /// Clears the bit; returns whether it was clear.
    pub fn clear(&self, tracker: &Tracker) -> bool {
        let clear = !self.is_set(tracker);
        if !clear {
            tracker.set_byte(REFERENCED, 0);
        }
        clear
    }
}

/// See the module documentation.
#[derive(Debug)]
pub struct Clock {
    bit: Bit,
    hand: Hand,
}

impl Replacement for Clock {
    const NAME: &'static str = "clock";
    const SUMMARY: &'static str = "a hand takes the first pages without a reference bit";
    const SOURCE: &'static str = "Gilbert 2020, section 1.2.8";
    const PARAMETERS: &'static [Parameter] = &[REF_AT_LOAD];
    const ORDERED: bool = true;

    fn new(setup: &Setup) -> Result<Clock> {
        Ok(Clock { bit: Bit::new(setup), hand: Hand::default() })
    }

    fn on_load(&self, visit: Visit<'_>, _: PageId) {
        self.bit.load(visit.tracker);
    }

    #[inline]
    fn on_access(&self, visit: Visit<'_>) {
        self.bit.access(visit.tracker);
    }

    fn value(&self, tracker: &Tracker, _: u32) -> f32 {
        f32::from(u8::from(self.bit.is_set(tracker)))
    }

    fn order(&self) -> Option<&dyn Order> {
        Some(self)
    }
}

impl Order for Clock {
    fn propose(&self, frames: &dyn Frames, most: usize, victims: &mut Vec<FrameId>) {
        // The first round may only clear bits.
        let limit = 2 * frames.count();
        let leaves = |frame| self.bit.clear(frames.tracker(frame));
        self.hand.sweep(frames, limit, most, victims, leaves);
    }

    /// The hand has passed it.
    fn refused(&self, _: FrameId, _: &Tracker) {}
}
