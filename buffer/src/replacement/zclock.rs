//! ZCLOCK: CLOCK whose hand jumps to a random frame at every move: random replacement with a second
//! chance.
//!
//! Source: Gilbert, "Bottlenecks Uncovered" (2020), section 1.2.9. The tracker is that of `clock`.

use super::{
    clock::{Bit, REF_AT_LOAD},
    draw::Draw,
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
pub struct ZClock {
    bit: Bit,
    draw: Draw,
}

impl Replacement for ZClock {
    const NAME: &'static str = "zclock";
    const SUMMARY: &'static str = "random pages without a reference bit";
    const SOURCE: &'static str = "Gilbert 2020, section 1.2.9";
    // The variant that the source evaluates.
    const PARAMETERS: &'static [Parameter] = &[Parameter { default: 0.0, ..REF_AT_LOAD }];
    const ORDERED: bool = true;

    fn new(setup: &Setup) -> Result<ZClock> {
        Ok(ZClock { bit: Bit::new(setup), draw: Draw::new() })
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

impl Order for ZClock {
    fn propose(&self, frames: &dyn Frames, most: usize, victims: &mut Vec<FrameId>) {
        for _ in 0..2 * frames.count() {
            if victims.len() >= most {
                break;
            }
            let frame = self.draw.frame(frames);
            let leaves = frames.standing(frame).may_leave()
                && self.bit.clear(frames.tracker(frame))
                && !victims.contains(&frame);
            if leaves {
                victims.push(frame);
            }
        }
    }

    /// The next frame is drawn at random again.
    fn refused(&self, _: FrameId, _: &Tracker) {}
}
