//! Midpoint LRU: LRU whose list has a young and an old part. Pages come into the middle, at the
//! front of the old part, and a use some time later leads to the front of the young part. A scan
//! passes through the old part only.
//!
//! Source: the buffer pool of InnoDB (MySQL Reference Manual, "Making the Buffer Pool Scan
//! Resistant"). Its `innodb_old_blocks_time` is in milliseconds; time is counted in evictions here.
//! `buffer/docs/your-own-policy.md` explains this file step by step.
//!
//! | place in the tracker | contents |
//! |---|---|
//! | word 0 | epoch of the load |
//! | word 1 | epoch of the last move to the front |
//! | byte 0 | 1 while the page is proposed and was not used since |

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

const LOADED: usize = 0;
const MOVED: usize = 1;
const PROPOSED: usize = 0;

const YOUNG: usize = 0;
const OLD: usize = 1;

/// See the module documentation.
pub struct MidpointLru {
    lists: Mutex<FrameLists<2>>,
    /// Most frames of the young part.
    young: usize,
    /// Epochs after the load in which uses do not count.
    wait: u32,
}

impl MidpointLru {
    /// Moves the page to the front of the young part, and the last page of a young part that is too
    /// long to the middle.
    fn renew(&self, frame: FrameId, tracker: &Tracker) {
        tracker.set_byte(PROPOSED, 0);
        let mut lists = self.lists.lock();
        lists.move_to_front(YOUNG, frame);
        if lists.len(YOUNG) > self.young
            && let Some(oldest) = lists.back(YOUNG)
        {
            lists.move_to_front(OLD, oldest);
        }
    }
}

impl Replacement for MidpointLru {
    const NAME: &'static str = "midpoint-lru";
    const SUMMARY: &'static str = "LRU with pages that come into the middle; a list under a latch";
    const SOURCE: &'static str = "InnoDB, MySQL Reference Manual";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter {
            name: "old",
            default: 0.375,
            range: Range::Number(0.0, 1.0),
            about: "the old part as a share of the pool",
        },
        Parameter {
            name: "wait",
            default: 1.0,
            range: Range::Whole(0, 1 << 20),
            about: "epochs after the load in which uses do not count",
        },
        Parameter::epochs(64.0),
    ];
    const ORDERED: bool = true;

    fn new(setup: &Setup) -> Result<MidpointLru> {
        let lists = Mutex::new(FrameLists::new(setup.frames));
        let young = setup.frames - setup.share("old").min(setup.frames);
        Ok(MidpointLru { lists, young, wait: setup.number("wait") as u32 })
    }

    fn on_load(&self, visit: Visit<'_>, _: PageId) {
        visit.tracker.reset();
        visit.tracker.set_word(LOADED, visit.epoch);
        self.lists.lock().push_front(OLD, visit.frame);
    }

    fn on_access(&self, visit: Visit<'_>) {
        let tracker = visit.tracker;
        if visit.epoch.wrapping_sub(tracker.word(LOADED)) < self.wait {
            return;
        }
        // Once in an epoch is enough: most uses take no latch.
        if tracker.word(MOVED) == visit.epoch && tracker.byte(PROPOSED) == 0 {
            return;
        }
        tracker.set_word(MOVED, visit.epoch);
        self.renew(visit.frame, tracker);
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

impl Order for MidpointLru {
    fn propose(&self, frames: &dyn Frames, most: usize, victims: &mut Vec<FrameId>) {
        let mut lists = self.lists.lock();
        for list in [OLD, YOUNG] {
            // A page that must stay, as an inner node above pages in use, is not used on its own.
            let spare = |lists: &mut FrameLists<2>, frame| lists.move_to_front(list, frame);
            lists.propose(list, frames, most, victims, spare);
        }
        victims.iter().for_each(|frame| frames.tracker(*frame).set_byte(PROPOSED, 1));
    }

    fn refused(&self, frame: FrameId, tracker: &Tracker) {
        self.renew(frame, tracker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replacement::{FIRST_EPOCH, Policy, Standing};

    /// Frames whose pages may all leave.
    struct Free(Vec<Tracker>);

    impl Frames for Free {
        fn count(&self) -> usize {
            self.0.len()
        }
        fn epoch(&self) -> u32 {
            FIRST_EPOCH
        }
        fn tracker(&self, frame: FrameId) -> &Tracker {
            &self.0[frame.0 as usize]
        }
        fn standing(&self, _: FrameId) -> Standing {
            Standing::Clean
        }
    }

    /// The order in which the pages of frames 0 to 7 leave: all are loaded in the first epoch, and
    /// each is used in the epoch after the first with its number in `uses`.
    fn order(parameters: &str, uses: &[(u32, u32)]) -> Vec<u32> {
        let (policy, _) = Policy::parse(&format!("midpoint-lru:{parameters}"), 8).unwrap();
        let frames = Free((0..8).map(|_| Tracker::default()).collect());
        let visit = |frame: u32, epoch| {
            let tracker = &frames.0[frame as usize];
            Visit { frame: FrameId(frame), tracker, epoch: FIRST_EPOCH + epoch, page: None }
        };
        for frame in 0..8 {
            policy.on_load(visit(frame, 0), PageId(u64::from(frame)));
            policy.on_access(visit(frame, 0));
        }
        uses.iter().for_each(|(frame, epoch)| policy.on_access(visit(*frame, *epoch)));
        let mut victims = Vec::new();
        policy.order().unwrap().propose(&frames, 8, &mut victims);
        assert!(victims.iter().all(|frame| policy.value(frames.tracker(*frame), 0) == 0.0));
        victims.iter().map(|frame| frame.0).collect()
    }

    #[test]
    fn a_page_becomes_young_by_a_use_after_the_wait() {
        // Pages that are used in their first epoch leave as they came.
        assert_eq!(order("", &[]), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(order("wait=3", &[(0, 2), (1, 3)]), [0, 2, 3, 4, 5, 6, 7, 1]);
        // Without a wait the use that loads a page counts: LRU.
        assert_eq!(order("wait=0,old=0", &[(0, 1)]), [1, 2, 3, 4, 5, 6, 7, 0]);
    }

    #[test]
    fn the_last_young_page_goes_to_the_middle() {
        // Five of eight frames are young; the sixth page that becomes young moves page 0 to the
        // front of the old part, after 6 and 7.
        let uses = [0, 1, 2, 3, 4, 5].map(|frame| (frame, 1));
        assert_eq!(order("", &uses), [6, 7, 0, 1, 2, 3, 4, 5]);
    }

    /// The code in the document is that of this file.
    #[test]
    fn the_document_shows_this_file() {
        let lines = |text: &str| -> Vec<String> {
            let lines = text.lines().map(|line| line.trim().to_owned());
            lines.filter(|line| !line.is_empty()).collect()
        };
        let code = lines(include_str!("midpoint_lru.rs"));
        let document = include_str!("../../docs/your-own-policy.md");
        let parts: Vec<&str> = document.split("```rust\n").skip(1).collect();
        assert!(parts.len() >= 6, "{} parts", parts.len());
        for part in parts {
            let shown = lines(part.split("```").next().unwrap());
            let found = code.windows(shown.len()).any(|window| window == shown);
            assert!(!shown.is_empty() && found, "not in midpoint_lru.rs:\n{}", shown.join("\n"));
        }
    }
}
