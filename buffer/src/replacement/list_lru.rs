//! LRU with a global list: the page that was not used for the longest time leaves.
//!
//! Source: Gilbert, "Bottlenecks Uncovered" (2020), section 1.2.4.1, "Hash-Map-Doubly-Linked-List",
//! the baseline of its experiments. Every use moves its page to the front of one list, under one
//! latch. That latch is part of the definition, and is why this policy does not scale; `lru` is the
//! same rule without it.
//!
//! Byte 0 of the tracker is 1 while the page is proposed and was not used since.

use super::{
    parameters::Setup,
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
const RECENCY: usize = 0;

/// See the module documentation.
pub struct ListLru {
    lists: Mutex<FrameLists<1>>,
}

impl Replacement for ListLru {
    const NAME: &'static str = "list-lru";
    const SUMMARY: &'static str = "least recently used of all, by a global list under a latch";
    const SOURCE: &'static str = "Gilbert 2020, section 1.2.4.1";
    const ORDERED: bool = true;

    fn new(setup: &Setup) -> Result<ListLru> {
        Ok(ListLru { lists: Mutex::new(FrameLists::new(setup.frames)) })
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

impl Order for ListLru {
    fn propose(&self, frames: &dyn Frames, most: usize, victims: &mut Vec<FrameId>) {
        let mut lists = self.lists.lock();
        let spare = |lists: &mut FrameLists<1>, frame| lists.move_to_front(RECENCY, frame);
        lists.propose(RECENCY, frames, most, victims, spare);
        victims.iter().for_each(|frame| frames.tracker(*frame).set_byte(PROPOSED, 1));
    }

    fn refused(&self, frame: FrameId, tracker: &Tracker) {
        let mut lists = self.lists.lock();
        tracker.set_byte(PROPOSED, 0);
        lists.move_to_front(RECENCY, frame);
    }
}
