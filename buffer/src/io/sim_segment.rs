//! A segment of the log on the simulated device: a medium and a volatile cache of its own.

use super::medium::{Cut, Medium};
use crate::{page::PAGE_SIZE, random::SeededRandom};
use std::collections::BTreeMap;

/// One segment of the log.
#[derive(Clone)]
pub(super) struct SimSegment {
    pub(super) medium: Medium,
    pub(super) bytes: u64,
}

impl SimSegment {
    /// A segment of zeroes that a power cut cannot take.
    pub(super) fn zeroed(bytes: u64) -> SimSegment {
        let pages = bytes.div_ceil(PAGE_SIZE as u64);
        let medium = Medium { capacity: pages, synced_capacity: pages, ..Medium::default() };
        SimSegment { medium, bytes }
    }
}

/// A state that a power cut may leave of the segments.
pub(super) fn after_power_cut(
    log: &BTreeMap<u64, SimSegment>,
    seed: u64,
    cut: Cut,
    last: u64,
) -> BTreeMap<u64, SimSegment> {
    let left = log.iter().map(|(&number, segment)| {
        let seed = SeededRandom::new(seed).mix(!number).next_u64();
        let medium = segment.medium.after_power_cut(seed, cut, last);
        (number, SimSegment { medium, bytes: segment.bytes })
    });
    left.collect()
}
