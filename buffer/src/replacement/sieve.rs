//! SIEVE: a queue in the order of loading. The hand moves from the oldest to the newest page,
//! clears the visited marks that it meets and takes the first pages without one. Pages that survive
//! keep their place.
//!
//! Source: Zhang, Yang, Yue, Vigfusson, Rashmi, "SIEVE is simpler than LRU", NSDI 2024,
//! Algorithm 1. A use stores a mark, once, and takes no latch; loads and evictions take the latch
//! of the queue.
//!
//! | byte of the tracker | contents |
//! |---|---|
//! | 0 | the visited mark |
//! | 1 | 1 from the load to the use that caused it, which does not mark |

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

const VISITED: usize = 0;
const NEW: usize = 1;
const QUEUE: usize = 0;

/// See the module documentation.
pub struct Sieve {
    queue: Mutex<Queue>,
}

struct Queue {
    /// Newest at the front.
    lists: FrameLists<1>,
    /// The next frame to look at; none is the oldest.
    hand: Option<FrameId>,
}

/// Counts the use of a page by setting its mark; the use that loaded the page does not count.
#[inline]
fn visit(tracker: &Tracker) {
    if tracker.byte(NEW) != 0 {
        tracker.set_byte(NEW, 0);
    } else if tracker.byte(VISITED) == 0 {
        tracker.set_byte(VISITED, 1);
    }
}

impl Replacement for Sieve {
    const NAME: &'static str = "sieve";
    const SUMMARY: &'static str = "first in, first out, but a hand spares visited pages";
    const SOURCE: &'static str = "Zhang et al., NSDI 2024, Algorithm 1";
    const ORDERED: bool = true;

    fn new(setup: &Setup) -> Result<Sieve> {
        let queue = Queue { lists: FrameLists::new(setup.frames), hand: None };
        Ok(Sieve { queue: Mutex::new(queue) })
    }

    fn on_load(&self, visit: Visit<'_>, _: PageId) {
        visit.tracker.reset();
        visit.tracker.set_byte(NEW, 1);
        self.queue.lock().lists.push_front(QUEUE, visit.frame);
    }

    #[inline]
    fn on_access(&self, event: Visit<'_>) {
        visit(event.tracker);
    }

    fn on_leave(&self, visit: Visit<'_>, _: PageId, _: Leave) {
        let mut queue = self.queue.lock();
        if queue.hand == Some(visit.frame) {
            queue.hand = queue.lists.before(visit.frame);
        }
        queue.lists.remove(visit.frame);
    }

    fn value(&self, tracker: &Tracker, _: u32) -> f32 {
        f32::from(tracker.byte(VISITED))
    }

    fn order(&self) -> Option<&dyn Order> {
        Some(self)
    }
}

impl Order for Sieve {
    fn propose(&self, frames: &dyn Frames, most: usize, victims: &mut Vec<FrameId>) {
        let mut queue = self.queue.lock();
        // The first round may only clear marks.
        for _ in 0..2 * queue.lists.len(QUEUE) {
            let oldest = queue.lists.back(QUEUE);
            let Some(frame) = queue.hand.or(oldest).filter(|_| victims.len() < most) else { break };
            queue.hand = queue.lists.before(frame);
            let tracker = frames.tracker(frame);
            if tracker.byte(VISITED) != 0 {
                tracker.set_byte(VISITED, 0);
            } else if frames.standing(frame).may_leave() && !victims.contains(&frame) {
                victims.push(frame);
            }
        }
    }

    fn refused(&self, _: FrameId, tracker: &Tracker) {
        tracker.set_byte(VISITED, 1);
    }
}
