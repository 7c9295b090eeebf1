//! LeanEvict: random pages go to a cooling queue. Those that are used there become hot again, the
//! others leave at its end. A use of a hot page stores nothing.
//!
//! Source: Leis, Haubenschild, Kemper, Neumann, "LeanStore: in-memory data management beyond main
//! memory", ICDE 2018, section III-B, with 10 % of the pool cooling; Gilbert, "Bottlenecks
//! Uncovered" (2020), section 1.2.15.
//!
//! One thing differs. The source marks a cooling page in the swip that leads to it, so a use of a
//! hot page tests nothing that it would not test anyway. Here the mark is in the tracker of the
//! frame, and a use tests it: one load and one branch. A use of a cooling page takes the latch of
//! the queue, as in the source, and takes the page out.
//!
//! Byte 0 of the tracker is 1 while the page cools.

use super::{
    draw::Draw,
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

const COOLING: usize = 0;
const QUEUE: usize = 0;

/// See the module documentation.
pub struct LeanEvict {
    queue: Mutex<FrameLists<1>>,
    /// Frames that cool, at least 1.
    cooling: usize,
    draw: Draw,
}

impl LeanEvict {
    #[cold]
    fn heat(&self, frame: FrameId, tracker: &Tracker) {
        let mut queue = self.queue.lock();
        tracker.set_byte(COOLING, 0);
        queue.remove(frame);
    }
}

impl Replacement for LeanEvict {
    const NAME: &'static str = "leanevict";
    const SUMMARY: &'static str = "random pages cool in a queue; those not used there leave";
    const SOURCE: &'static str = "Leis et al., ICDE 2018, section III-B";
    const PARAMETERS: &'static [Parameter] = &[Parameter {
        name: "cooling",
        default: 0.1,
        range: Range::Number(0.0, 1.0),
        about: "cooling pages as a share of the pool",
    }];
    const ORDERED: bool = true;

    fn new(setup: &Setup) -> Result<LeanEvict> {
        let (queue, cooling) = (FrameLists::new(setup.frames), setup.share("cooling").max(1));
        Ok(LeanEvict { queue: Mutex::new(queue), cooling, draw: Draw::new() })
    }

    fn on_load(&self, visit: Visit<'_>, _: PageId) {
        visit.tracker.reset();
    }

    #[inline]
    fn on_access(&self, visit: Visit<'_>) {
        if visit.tracker.byte(COOLING) != 0 {
            self.heat(visit.frame, visit.tracker);
        }
    }

    fn on_leave(&self, visit: Visit<'_>, _: PageId, _: Leave) {
        if visit.tracker.byte(COOLING) != 0 {
            self.heat(visit.frame, visit.tracker);
        }
    }

    fn value(&self, tracker: &Tracker, _: u32) -> f32 {
        f32::from(1 - tracker.byte(COOLING).min(1))
    }

    fn order(&self) -> Option<&dyn Order> {
        Some(self)
    }
}

impl Order for LeanEvict {
    fn propose(&self, frames: &dyn Frames, most: usize, victims: &mut Vec<FrameId>) {
        let mut queue = self.queue.lock();
        // Several pages leave at once, so the queue is that much longer before.
        let wanted = (self.cooling + most).min(frames.count());
        for _ in 0..4 * frames.count() {
            if queue.len(QUEUE) >= wanted {
                break;
            }
            let frame = self.draw.frame(frames);
            if queue.list_of(frame).is_none() && frames.standing(frame).may_leave() {
                frames.tracker(frame).set_byte(COOLING, 1);
                queue.push_front(QUEUE, frame);
            }
        }
        queue.sweep(QUEUE, |queue, frame| {
            let tracker = frames.tracker(frame);
            match frames.standing(frame) {
                _ if victims.len() >= most => return false,
                Standing::Writing => {}
                Standing::Clean | Standing::Dirty if tracker.byte(COOLING) != 0 => {
                    victims.push(frame);
                }
                // An inner node whose child came back while it cooled is hot. A page that left
                // while another evictor drew its frame has left its frame here.
                _ => {
                    tracker.set_byte(COOLING, 0);
                    queue.remove(frame);
                }
            }
            true
        });
    }

    fn refused(&self, frame: FrameId, tracker: &Tracker) {
        self.heat(frame, tracker);
    }
}
