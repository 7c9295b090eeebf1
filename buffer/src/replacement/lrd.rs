//! LRD, least reference density: uses of a page per time since it was loaded. `lrd1` and `lrd2`
//! have the two versions.
//!
//! Source: Effelsberg, Härder, "Principles of database buffer management", TODS 9(4), 1984;
//! Gilbert, "Bottlenecks Uncovered" (2020), section 1.2.12. The sources measure time in uses of all
//! pages. Here it is counted in epochs, that is in evictions: a counter of all uses would be a
//! shared store at each of them. So version 1 ranks pages as hyperbolic caching does. Every use
//! stores to the frame header; two at once may count as one.
//!
//! | part of the tracker | contents |
//! |---|---|
//! | word 0 | uses, aged up to the period of word 2 |
//! | word 1 | epoch in which the page was loaded |
//! | word 2 | number of the period |

use super::{policy::Visit, tracker::Tracker};

const USES: usize = 0;
const LOADED: usize = 1;
const PERIOD: usize = 2;

/// How counts age from period to period.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ageing {
    /// Epochs of a period.
    pub epochs: u32,
    /// Subtracted from each count.
    pub subtract: u32,
}

/// The shared part of both versions.
#[derive(Debug)]
pub(super) struct Lrd {
    pub ageing: Option<Ageing>,
}

impl Lrd {
    pub fn load(&self, visit: Visit<'_>) {
        visit.tracker.reset();
        visit.tracker.set_word(LOADED, visit.epoch);
        visit.tracker.set_word(PERIOD, self.period(visit.epoch));
    }

    #[inline]
    pub fn access(&self, visit: Visit<'_>) {
        let uses = self.uses(visit.tracker, visit.epoch);
        if self.ageing.is_some() {
            visit.tracker.set_word(PERIOD, self.period(visit.epoch));
        }
        visit.tracker.set_word(USES, uses.saturating_add(1));
    }

    #[inline]
    pub fn density(&self, tracker: &Tracker, epoch: u32) -> f32 {
        let age = epoch.wrapping_sub(tracker.word(LOADED)).saturating_add(1);
        self.uses(tracker, epoch) as f32 / age as f32
    }

    fn period(&self, epoch: u32) -> u32 {
        self.ageing.map_or(0, |ageing| epoch / ageing.epochs)
    }

    /// Uses that are left after all periods so far.
    fn uses(&self, tracker: &Tracker, epoch: u32) -> u32 {
        let uses = tracker.word(USES);
        self.ageing.map_or(uses, |ageing| {
            let periods = self.period(epoch).wrapping_sub(tracker.word(PERIOD));
            uses.saturating_sub(periods.saturating_mul(ageing.subtract))
        })
    }
}
