//! SLRU: LRU in two segments. New pages enter the probationary one; a later use leads to the
//! protected one, whose oldest pages go back.
//!
//! Source: Karedla, Love, Wherry, "Caching strategies to improve disk system performance", IEEE
//! Computer 27(3), 1994; Gilbert, "Bottlenecks Uncovered" (2020), section 1.2.7. Every use takes
//! the latch of the lists.
//!
//! | byte of the tracker | contents |
//! |---|---|
//! | 0 | 1 while the page is proposed and was not used since |
//! | 1 | 1 from the load to the use that caused it, which does not count |

use super::{
    parameters::{Parameter, Range, Setup},
    policy::{Frames, Leave, Order, Replacement, Visit},
    queues::FrameLists,
    tracker::Tracker,
};
use crate::{
    error::Result,
    ids::{FrameId, PageId},
    sync::Mutex,
};

const PROPOSED: usize = 0;
const NEW: usize = 1;
const PROBATION: usize = 0;
const PROTECTED: usize = 1;

/// See the module documentation.
pub struct Slru {
    lists: Mutex<FrameLists<2>>,
    /// Most frames of the protected segment.
    protected: usize,
}

impl Slru {
    fn protect(&self, frame: FrameId, tracker: &Tracker) {
        let mut lists = self.lists.lock();
        tracker.set_byte(PROPOSED, 0);
        lists.move_to_front(PROTECTED, frame);
        if lists.len(PROTECTED) > self.protected
            && let Some(oldest) = lists.back(PROTECTED)
        {
            lists.move_to_front(PROBATION, oldest);
        }
    }
}

impl Replacement for Slru {
    const NAME: &'static str = "slru";
    const SUMMARY: &'static str =
        "least recently used, pages used twice last; two lists under a latch";
    const SOURCE: &'static str = "Karedla, Love, Wherry, IEEE Computer 27(3), 1994";
    const PARAMETERS: &'static [Parameter] = &[Parameter {
        name: "protected",
        default: 0.8,
        range: Range::Number(0.0, 1.0),
        about: "protected pages as a share of the pool",
    }];
    const ORDERED: bool = true;

    fn new(setup: &Setup) -> Result<Slru> {
        let lists = Mutex::new(FrameLists::new(setup.frames));
        Ok(Slru { lists, protected: setup.share("protected") })
    }

    fn on_load(&self, visit: Visit<'_>, _: PageId) {
        visit.tracker.reset();
        visit.tracker.set_byte(NEW, 1);
        self.lists.lock().push_front(PROBATION, visit.frame);
    }

    fn on_access(&self, visit: Visit<'_>) {
        if visit.tracker.byte(NEW) == 1 {
            visit.tracker.set_byte(NEW, 0);
        } else {
            self.protect(visit.frame, visit.tracker);
        }
    }

    fn on_leave(&self, visit: Visit<'_>, _: PageId, _: Leave) {
        self.lists.lock().remove(visit.frame);
    }

    fn value(&self, tracker: &Tracker, _: u32) -> f32 {
        f32::from(1 - tracker.byte(PROPOSED).min(1))
    }

    fn order(&self) -> Option<&dyn Order> {
        Some(self)
    }
}

impl Order for Slru {
    fn propose(&self, frames: &dyn Frames, most: usize, victims: &mut Vec<FrameId>) {
        let mut lists = self.lists.lock();
        for list in [PROBATION, PROTECTED] {
            // A page that must stay, as an inner node above pages in use, is not used on its own.
            let spare = |lists: &mut FrameLists<2>, frame| lists.move_to_front(list, frame);
            lists.propose(list, frames, most, victims, spare);
        }
        victims.iter().for_each(|frame| frames.tracker(*frame).set_byte(PROPOSED, 1));
    }

    fn refused(&self, frame: FrameId, tracker: &Tracker) {
        self.protect(frame, tracker);
    }
}
