//! How many records the leaves of a tree have, by those that were met lately: for estimates of
//! ranges whose leaves are not in memory.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The mean has this many binary places.
const PLACES: u32 = 8;
/// A leaf counts for an eighth of the mean.
const WEIGHT: u32 = 3;

/// The mean number of records of the leaves that were met lately; 0 before the first one. On a
/// line of its own, because descents read the tree beside it. Updates may be lost.
#[derive(Default)]
pub(crate) struct LeafRecords(Box<AtomicU32>);

impl LeafRecords {
    /// A leaf with so many records was met.
    pub fn note(&self, records: usize) {
        // A page has fewer records than bytes.
        let records = (records.min(1 << 16) as u32) << PLACES;
        let mean = match self.0.load(Relaxed) {
            0 => records,
            mean => mean - (mean >> WEIGHT) + (records >> WEIGHT),
        };
        self.0.store(mean, Relaxed);
    }

    /// The mean, if a leaf was met.
    pub fn mean(&self) -> Option<f64> {
        let mean = self.0.load(Relaxed);
        (mean > 0).then(|| f64::from(mean) / f64::from(1 << PLACES))
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn the_mean_follows_the_leaves() {
        let met = LeafRecords::default();
        assert_eq!(met.mean(), None);
        met.note(40);
        assert_eq!(met.mean(), Some(40.0));
        (0..100).for_each(|_| met.note(20));
        let mean = met.mean().expect("leaves were met");
        assert!((19.0..21.0).contains(&mean), "{mean}");
        met.note(usize::MAX);
        assert!(met.mean().is_some_and(|mean| mean < 10_000.0));
    }
}
