//! LRU-WSR: LRU that gives a dirty page a second round before it writes it.
//!
//! Source: Jung, Shim, Park, Kang, Cha, "LRU-WSR: integration of LRU and writes sequence reordering
//! for flash memory", IEEE Transactions on Consumer Electronics 54(3), 2008, section III. Every use
//! takes the latch of the list.
//!
//! | byte of the tracker | contents |
//! |---|---|
//! | 0 | 1 while the page is proposed and was not used since |
//! | 1 | 1 if the page had its second round |

use super::{
    parameters::Setup,
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
const COLD: usize = 1;
const RECENCY: usize = 0;

/// See the module documentation.
pub struct LruWsr {
    lists: Mutex<FrameLists<1>>,
}

impl LruWsr {
    fn used(&self, frame: FrameId, tracker: &Tracker) {
        let mut lists = self.lists.lock();
        tracker.set_byte(PROPOSED, 0);
        tracker.set_byte(COLD, 0);
        lists.move_to_front(RECENCY, frame);
    }
}

impl Replacement for LruWsr {
    const NAME: &'static str = "lru-wsr";
    const SUMMARY: &'static str =
        "least recently used, dirty pages in a second round; list and latch";
    const SOURCE: &'static str = "Jung et al., IEEE TCE 54(3), 2008, section III";
    const ORDERED: bool = true;

    fn new(setup: &Setup) -> Result<LruWsr> {
        Ok(LruWsr { lists: Mutex::new(FrameLists::new(setup.frames)) })
    }

    fn on_load(&self, visit: Visit<'_>, _: PageId) {
        visit.tracker.reset();
        self.lists.lock().push_front(RECENCY, visit.frame);
    }

    fn on_access(&self, visit: Visit<'_>) {
        self.used(visit.frame, visit.tracker);
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

impl Order for LruWsr {
    fn propose(&self, frames: &dyn Frames, most: usize, victims: &mut Vec<FrameId>) {
        let mut lists = self.lists.lock();
        lists.sweep(RECENCY, |lists, frame| {
            let tracker = frames.tracker(frame);
            match frames.standing(frame) {
                _ if victims.len() >= most => return false,
                Standing::Dirty if tracker.byte(COLD) == 0 => {
                    tracker.set_byte(COLD, 1);
                    lists.move_to_front(RECENCY, frame);
                }
                Standing::Clean | Standing::Dirty => {
                    tracker.set_byte(PROPOSED, 1);
                    victims.push(frame);
                }
                Standing::Held => lists.move_to_front(RECENCY, frame),
                Standing::Empty | Standing::Writing => {}
            }
            true
        });
    }

    fn refused(&self, frame: FrameId, tracker: &Tracker) {
        self.used(frame, tracker);
    }
}
