//! CFLRU, clean-first LRU: within a window at the old end of the list, clean pages leave before
//! dirty ones.
//!
//! Source: Park, Jung, Kang, Kim, Lee, "CFLRU: a replacement algorithm for flash memory", CASES
//! 2006, section 3. The window is 30 % of the pool as in WATT, section 4.1. Every use takes the
//! latch of the list, and an eviction may search the whole window under it when most of it is
//! dirty: both follow from the definition.
//!
//! Byte 0 of the tracker is 1 while the page is proposed and was not used since.

use super::{
    parameters::{Parameter, Range, Setup},
    policy::{Frames, Leave, Order, Replacement, Standing, Visit},
    queues::FrameLists,
    tracker::Tracker,
};
use crate::{
    error::Result,
    ids::{FrameId, PageId},
    sync::Mutex,
};

const PROPOSED: usize = 0;
const RECENCY: usize = 0;

/// See the module documentation.
pub struct Cflru {
    lists: Mutex<FrameLists<1>>,
    /// Frames of the window.
    window: usize,
}

impl Replacement for Cflru {
    const NAME: &'static str = "cflru";
    const SUMMARY: &'static str =
        "least recently used, clean pages of a window first; list and latch";
    const SOURCE: &'static str = "Park et al., CASES 2006, section 3";
    const PARAMETERS: &'static [Parameter] = &[Parameter {
        name: "window",
        default: 0.3,
        range: Range::Number(0.0, 1.0),
        about: "clean-first window as a share of the pool; 0 is LRU",
    }];
    const ORDERED: bool = true;

    fn new(setup: &Setup) -> Result<Cflru> {
        let lists = Mutex::new(FrameLists::new(setup.frames));
        Ok(Cflru { lists, window: setup.share("window") })
    }

    fn on_load(&self, visit: Visit<'_>, _: PageId) {
        visit.tracker.reset();
        self.lists.lock().push_front(RECENCY, visit.frame);
    }

    fn on_access(&self, visit: Visit<'_>) {
        let mut lists = self.lists.lock();
        visit.tracker.set_byte(PROPOSED, 0);
        lists.move_to_front(RECENCY, visit.frame);
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

impl Order for Cflru {
    fn propose(&self, frames: &dyn Frames, most: usize, victims: &mut Vec<FrameId>) {
        let mut lists = self.lists.lock();
        let mut left = self.window;
        lists.sweep(RECENCY, |_, frame| {
            if left == 0 || victims.len() >= most {
                return false;
            }
            left -= 1;
            if frames.standing(frame) == Standing::Clean {
                victims.push(frame);
            }
            true
        });
        if victims.is_empty() {
            let spare = |lists: &mut FrameLists<1>, frame| lists.move_to_front(RECENCY, frame);
            lists.propose(RECENCY, frames, most, victims, spare);
        }
        victims.iter().for_each(|frame| frames.tracker(*frame).set_byte(PROPOSED, 1));
    }

    fn refused(&self, frame: FrameId, tracker: &Tracker) {
        let mut lists = self.lists.lock();
        tracker.set_byte(PROPOSED, 0);
        lists.move_to_front(RECENCY, frame);
    }
}
