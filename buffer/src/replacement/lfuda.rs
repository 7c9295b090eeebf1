//! LFUDA: LFU with dynamic ageing. A page that is loaded starts with the count of the last victim,
//! so that old counts are overtaken.
//!
//! Source: Arlitt, Cherkasova, Dilley, Friedrich, Jin, "Evaluating content management techniques
//! for web proxy caches", ACM SIGMETRICS PER 27(4), 2000; Gilbert, "Bottlenecks Uncovered" (2020),
//! section 1.2.14. Evictors compare samples. Every use stores to the frame header; two at once may
//! count as one.
//!
//! Word 0 of the tracker is the count.

use super::{
    parameters::Setup,
    policy::{Leave, Replacement, Visit},
    tracker::Tracker,
};
use crate::{
    error::Result,
    ids::PageId,
    sync::{AtomicU32, Ordering},
};

const COUNT: usize = 0;

/// See the module documentation.
#[derive(Debug)]
pub struct Lfuda {
    /// Count of the last victim. Evictors write it, and loads read it.
    age: AtomicU32,
}

impl Replacement for Lfuda {
    const NAME: &'static str = "lfuda";
    const SUMMARY: &'static str =
        "fewest uses of a sample; new pages start at the last victim's count";
    const SOURCE: &'static str =
        "Arlitt et al., SIGMETRICS PER 27(4), 2000; Gilbert 2020, section 1.2.14";

    fn new(_: &Setup) -> Result<Lfuda> {
        Ok(Lfuda { age: AtomicU32::new(0) })
    }

    fn on_load(&self, visit: Visit<'_>, _: PageId) {
        visit.tracker.reset();
        visit.tracker.set_word(COUNT, self.age.load(Ordering::Relaxed));
    }

    #[inline]
    fn on_access(&self, visit: Visit<'_>) {
        visit.tracker.set_word(COUNT, visit.tracker.word(COUNT).saturating_add(1));
    }

    fn on_leave(&self, visit: Visit<'_>, _: PageId, how: Leave) {
        if how == Leave::Evicted {
            self.age.store(visit.tracker.word(COUNT), Ordering::Relaxed);
        }
    }

    #[inline]
    fn value(&self, tracker: &Tracker, _: u32) -> f32 {
        tracker.word(COUNT) as f32
    }
}
