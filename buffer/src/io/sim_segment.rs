//! A segment of the log on the simulated device: a medium and a volatile cache of its own.

use super::{
    faults::Random,
    medium::{Cut, Medium},
};
use crate::page::PAGE_SIZE;
use std::collections::BTreeMap;

/// One segment of the log.
#[derive(Clone)]
pub(super) struct Segment {
    pub(super) medium: Medium,
    pub(super) bytes: u64,
}

impl Segment {
    /// Zeroes that a power cut cannot take.
    pub(super) fn zeroed(bytes: u64) -> Segment {
        let pages = bytes.div_ceil(PAGE_SIZE as u64);
        let medium = Medium { capacity: pages, synced_capacity: pages, ..Medium::default() };
        Segment { medium, bytes }
    }
}

/// What a power cut may leave of the segments.
pub(super) fn after_power_cut(
    log: &BTreeMap<u64, Segment>,
    seed: u64,
    cut: Cut,
    last: u64,
) -> BTreeMap<u64, Segment> {
    let left = log.iter().map(|(&number, segment)| {
        let seed = Random::new(seed).mix(!number).next();
        let medium = segment.medium.after_power_cut(seed, cut, last);
        (number, Segment { medium, bytes: segment.bytes })
    });
    left.collect()
}
