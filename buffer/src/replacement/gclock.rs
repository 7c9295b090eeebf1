//! GCLOCK: CLOCK with a count for each page instead of a bit. The hand subtracts `s` from each
//! count that it passes, and takes the first pages whose count is 0. Shared by `gclock1`,
//! `gclock2`, `dgclock1` and `dgclock2`.
//!
//! Source: Effelsberg, Härder, "Principles of database buffer management", TODS 9(4), 1984;
//! Gilbert, "Bottlenecks Uncovered" (2020), sections 1.2.10 and 1.2.11. Version 1 adds `r` to the
//! count at a use, version 2 sets the count to `r`. Every use may store to the frame header; two at
//! once may count as one. With a large `f` the hand goes around that often before a page leaves;
//! rounds that take no page are made in one.
//!
//! | part of the tracker | contents |
//! |---|---|
//! | word 0 | the count |
//! | byte 0 | 1 from the load to the use that caused it, if that does not count |

use super::{
    hand::Hand,
    parameters::{Parameter, Range, Setup},
    policy::{Frames, Visit},
    tracker::Tracker,
};
use crate::ids::FrameId;

const COUNT: usize = 0;
const NEW: usize = 0;

/// A weight with its name and default.
pub(super) const fn weight(name: &'static str, default: f64, about: &'static str) -> Parameter {
    Parameter { name, default, range: Range::Whole(0, 1 << 20), about }
}

pub(super) const F: Parameter = weight("f", 25.0, "count of a page that was just loaded");
pub(super) const R: Parameter = weight("r", 5.0, "added to the count at a use, or the new count");
pub(super) const S: Parameter = Parameter {
    name: "s",
    default: 1.0,
    range: Range::Whole(1, 1 << 20),
    about: "subtracted by the hand",
};

/// Counts for a kind of pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weights {
    pub f: u32,
    pub r: u32,
}

impl Weights {
    pub fn of(setup: &Setup, f: &str, r: &str) -> Weights {
        Weights { f: setup.number(f) as u32, r: setup.number(r) as u32 }
    }
}

/// Whether a use adds to the count or sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    Adds,
    Sets,
}

/// Counts and hand.
#[derive(Debug)]
pub(super) struct GClock {
    version: Version,
    s: u32,
    /// The use that loads a page counts as well.
    load_counts: bool,
    hand: Hand,
}

impl GClock {
    pub fn new(setup: &Setup, version: Version) -> GClock {
        let s = setup.number(S.name) as u32;
        GClock { version, s, load_counts: false, hand: Hand::default() }
    }

    /// Lets the use that loads a page count, as if counts changed at the end of a use.
    pub fn counting_loads(self) -> GClock {
        GClock { load_counts: true, ..self }
    }

    pub fn load(&self, visit: Visit<'_>, weights: Weights) {
        visit.tracker.reset();
        visit.tracker.set_word(COUNT, weights.f);
        visit.tracker.set_byte(NEW, u8::from(!self.load_counts));
    }

    #[inline]
    pub fn access(&self, visit: Visit<'_>, weights: Weights) {
        let tracker = visit.tracker;
        if tracker.byte(NEW) != 0 {
            tracker.set_byte(NEW, 0);
            return;
        }
        let old = tracker.word(COUNT);
        let new = match self.version {
            Version::Adds => old.saturating_add(weights.r),
            Version::Sets => weights.r,
        };
        if new != old {
            tracker.set_word(COUNT, new);
        }
    }

    /// The first use of a page is a write: it counts as if the page were loaded with `f`.
    pub fn created(&self, tracker: &Tracker, f: u32) {
        if tracker.byte(NEW) != 0 {
            tracker.set_word(COUNT, f);
        }
    }

    /// The count; 0 for a page that may leave.
    pub fn value(&self, tracker: &Tracker) -> f32 {
        tracker.word(COUNT) as f32
    }

    pub fn propose(&self, frames: &dyn Frames, most: usize, victims: &mut Vec<FrameId>) {
        let mut subtract = self.s;
        // After a round of the hand that took no page, the next one makes up for all rounds in
        // which the least count would not come to 0. The one after that takes the page.
        for _ in 0..4 {
            let mut least = u32::MAX;
            let leaves = |frame| {
                let tracker = frames.tracker(frame);
                let count = tracker.word(COUNT);
                if count > 0 {
                    tracker.set_word(COUNT, count.saturating_sub(subtract));
                    least = least.min(count.saturating_sub(subtract));
                }
                count == 0
            };
            self.hand.sweep(frames, frames.count(), most, victims, leaves);
            if !victims.is_empty() || least == u32::MAX {
                break;
            }
            subtract = least.div_ceil(self.s).max(1).saturating_mul(self.s);
        }
    }
}
