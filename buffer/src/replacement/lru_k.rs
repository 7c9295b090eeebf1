//! LRU-K by time stamps: of a sample, the pages whose K-th last use is the longest ago leave. Pages
//! with fewer than K uses leave before all others, by their last use.
//!
//! Source: O'Neil, O'Neil, Weikum, "The LRU-K page replacement algorithm for database disk
//! buffering", SIGMOD 1993, section 2; Gilbert, "Bottlenecks Uncovered" (2020), section 1.2.6.2,
//! the variant without a list. Uses within an epoch count as one, which is the paper's correlated
//! reference period. Nothing is kept of evicted pages: the retained information period is 0.
//!
//! | part of the tracker | contents |
//! |---|---|
//! | words 0 to K - 1 | epochs of the last uses, in a cycle; 0 for none |
//! | byte 0 | position of the newest |

use super::{
    parameters::{Parameter, Range, Setup},
    policy::{Replacement, Visit},
    tracker::Tracker,
};
use crate::{error::Result, ids::PageId};

const HEAD: usize = 0;

/// Added to the age of a page with fewer than K uses. No other age is as large.
const FEW: f32 = (1u32 << 30) as f32;
/// The factor of its age: beside FEW, numbers of 32 bits are multiples of this.
const STEP: f32 = 128.0;

/// See the module documentation.
#[derive(Debug)]
pub struct LruK {
    k: usize,
}

impl Replacement for LruK {
    const NAME: &'static str = "lru-k";
    const SUMMARY: &'static str = "oldest K-th last use of a sample, by time stamps";
    const SOURCE: &'static str =
        "O'Neil, O'Neil, Weikum, SIGMOD 1993; Gilbert 2020, section 1.2.6.2";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter::epochs(64.0),
        Parameter {
            name: "k",
            default: 2.0,
            range: Range::Whole(1, 8),
            about: "the use that counts, from the last one back",
        },
    ];

    fn new(setup: &Setup) -> Result<LruK> {
        Ok(LruK { k: setup.number("k") as usize })
    }

    fn on_load(&self, visit: Visit<'_>, _: PageId) {
        visit.tracker.reset();
        self.on_access(visit);
    }

    #[inline]
    fn on_access(&self, visit: Visit<'_>) {
        let head = usize::from(visit.tracker.byte(HEAD)) % self.k;
        if visit.tracker.word(head) != visit.epoch {
            let next = (head + 1) % self.k;
            visit.tracker.set_word(next, visit.epoch);
            visit.tracker.set_byte(HEAD, next as u8);
        }
    }

    #[inline]
    fn value(&self, tracker: &Tracker, epoch: u32) -> f32 {
        let head = usize::from(tracker.byte(HEAD)) % self.k;
        let kth = tracker.word((head + 1) % self.k);
        if kth != 0 {
            return -(epoch.wrapping_sub(kth) as f32);
        }
        -FEW - STEP * epoch.wrapping_sub(tracker.word(head)) as f32
    }
}
