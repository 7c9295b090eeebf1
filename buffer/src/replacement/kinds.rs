//! The weights of DGCLOCK by kind of page: inner nodes, leaves that were written while they were in
//! memory, and other leaves. Pieces of large values are in leaves of a tree of their own, and count
//! as leaves.
//!
//! Source: Effelsberg, Härder, "Principles of database buffer management", TODS 9(4), 1984;
//! Gilbert, "Bottlenecks Uncovered" (2020), section 1.2.11, whose kinds are those of his engine.
//! The defaults are his values for leaf pages, and twice that for kinds that are worth more.
//!
//! Byte 1 of the tracker is 1 once the page was written.

use super::{
    gclock::{Weights, weight},
    parameters::{Parameter, Setup},
    policy::Visit,
    tracker::Tracker,
};

const WRITTEN: usize = 1;

pub(super) const F: Parameter = weight("f", 5.0, "count of a leaf that was just loaded");
pub(super) const R: Parameter = weight("r", 1.0, "added to the count of a leaf, or its new count");
pub(super) const FI: Parameter = weight("fi", 10.0, "as f for an inner node");
pub(super) const RI: Parameter = weight("ri", 2.0, "as r for an inner node");
pub(super) const FW: Parameter = weight("fw", 10.0, "as f for a leaf whose first use is a write");
pub(super) const RW: Parameter = weight("rw", 2.0, "as r for a leaf that was written");

/// Weights of the kinds.
#[derive(Debug)]
pub(super) struct Kinds {
    leaf: Weights,
    inner: Weights,
    written: Weights,
}

impl Kinds {
    pub fn new(setup: &Setup) -> Kinds {
        Kinds {
            leaf: Weights::of(setup, F.name, R.name),
            inner: Weights::of(setup, FI.name, RI.name),
            written: Weights::of(setup, FW.name, RW.name),
        }
    }

    pub fn written(&self, tracker: &Tracker) {
        if tracker.byte(WRITTEN) == 0 {
            tracker.set_byte(WRITTEN, 1);
        }
    }

    #[inline]
    pub fn of(&self, visit: Visit<'_>) -> Weights {
        if visit.level() > 0 {
            self.inner
        } else if visit.tracker.byte(WRITTEN) != 0 {
            self.written
        } else {
            self.leaf
        }
    }
}
