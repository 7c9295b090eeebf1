//! S3-FIFO: a small FIFO that most new pages leave soon, a main FIFO with reinsertion, and the ids
//! of pages that left the small one.
//!
//! Source: Yang, Zhang, Qiu, Yue, Rashmi, "FIFO queues are all you need for cache eviction", SOSP
//! 2023, Algorithm 1. A use stores a count up to 3 and takes no latch; loads and evictions take the
//! latch of the queues. A page that was proposed waits on a third list until it leaves or was used
//! again.
//!
//! | byte of the tracker | contents |
//! |---|---|
//! | 0 | uses, 3 at most |
//! | 1 | 1 from the load to the use that caused it, which does not count |
//! | 2 | uses from which on the page stays; plus 128 if it came from the small FIFO |

use super::{
    ghosts::{GHOST_BYTES, Ghosts},
    parameters::{Parameter, Range, Setup},
    policy::{Frames, Leave, Order, Replacement, Standing, Visit},
    queues::FrameLists,
    tracker::Tracker,
};
use crate::{
    error::Result,
    ids::{FrameId, PageId},
    memory::FrameMemory,
    sync::Mutex,
};

const USES: usize = 0;
const NEW: usize = 1;
const STAYS_FROM: usize = 2;
const MOST_USES: u8 = 3;
/// Added to byte 2 for a page that came from the small FIFO, also while it is proposed.
const FROM_SMALL: u8 = 128;

const SMALL: usize = 0;
const MAIN: usize = 1;
const LEAVING: usize = 2;

/// See the module documentation.
pub struct S3Fifo {
    queues: Mutex<Queues>,
    /// Frames of the small FIFO.
    small: usize,
    threshold: u8,
}

struct Queues {
    lists: FrameLists<3>,
    ghosts: Ghosts,
}

/// Puts a page at the front of the main FIFO.
fn enter_main(lists: &mut FrameLists<3>, frame: FrameId, tracker: &Tracker) {
    tracker.set_byte(STAYS_FROM, 1);
    lists.move_to_front(MAIN, frame);
}

impl Replacement for S3Fifo {
    const NAME: &'static str = "s3-fifo";
    const SUMMARY: &'static str =
        "a small and a main FIFO, and the ids of pages that left the small";
    const SOURCE: &'static str = "Yang et al., SOSP 2023, Algorithm 1";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter {
            name: "small",
            default: 0.1,
            range: Range::Number(0.0, 1.0),
            about: "pages of the small FIFO as a share of the pool",
        },
        Parameter {
            name: "ghost",
            default: 0.9,
            range: Range::Number(0.0, 1000.0),
            about: "remembered page ids as a share of the pool",
        },
        Parameter {
            name: "threshold",
            default: 2.0,
            range: Range::Whole(1, 3),
            about: "uses that lead from the small to the main FIFO",
        },
    ];
    const ORDERED: bool = true;

    fn new(setup: &Setup) -> Result<S3Fifo> {
        let ghosts = setup.share("ghost");
        let (bytes, pool) = (ghosts * GHOST_BYTES, setup.frames * FrameMemory::FRAME_BYTES);
        if bytes > pool {
            return Err(setup.does_not_fit(format_args!(
                "{ghosts} remembered page ids take up to {bytes} bytes, more than the pool, which \
                 has {pool}"
            )));
        }
        let queues = Queues { lists: FrameLists::new(setup.frames), ghosts: Ghosts::new(ghosts) };
        let (small, threshold) = (setup.share("small"), setup.number("threshold") as u8);
        Ok(S3Fifo { queues: Mutex::new(queues), small, threshold })
    }

    fn on_load(&self, visit: Visit<'_>, page: PageId) {
        visit.tracker.reset();
        visit.tracker.set_byte(NEW, 1);
        let mut queues = self.queues.lock();
        let main = queues.ghosts.take(page);
        visit.tracker.set_byte(STAYS_FROM, if main { 1 } else { self.threshold | FROM_SMALL });
        queues.lists.push_front(if main { MAIN } else { SMALL }, visit.frame);
    }

    #[inline]
    fn on_access(&self, visit: Visit<'_>) {
        let uses = visit.tracker.byte(USES);
        if visit.tracker.byte(NEW) != 0 {
            visit.tracker.set_byte(NEW, 0);
        } else if uses < MOST_USES {
            visit.tracker.set_byte(USES, uses + 1);
        }
    }

    fn on_leave(&self, visit: Visit<'_>, page: PageId, how: Leave) {
        let mut queues = self.queues.lock();
        queues.lists.remove(visit.frame);
        if how == Leave::Evicted && visit.tracker.byte(STAYS_FROM) & FROM_SMALL != 0 {
            queues.ghosts.insert(page);
        }
    }

    fn value(&self, tracker: &Tracker, _: u32) -> f32 {
        let stays = tracker.byte(USES) >= tracker.byte(STAYS_FROM) & !FROM_SMALL;
        f32::from(u8::from(stays))
    }

    fn order(&self) -> Option<&dyn Order> {
        Some(self)
    }
}

impl S3Fifo {
    /// Proposes the first page of the small FIFO that was not used enough, and moves those before
    /// it to the main one. Returns whether there was one.
    fn propose_small(
        &self,
        lists: &mut FrameLists<3>,
        frames: &dyn Frames,
        victims: &mut Vec<FrameId>,
    ) -> bool {
        let before = victims.len();
        lists.sweep(SMALL, |lists, frame| {
            let tracker = frames.tracker(frame);
            match frames.standing(frame) {
                Standing::Empty | Standing::Writing => return true,
                Standing::Clean | Standing::Dirty if tracker.byte(USES) < self.threshold => {
                    lists.move_to_front(LEAVING, frame);
                    victims.push(frame);
                }
                _ => {
                    tracker.set_byte(USES, 0);
                    enter_main(lists, frame, tracker);
                }
            }
            victims.len() == before
        });
        victims.len() > before
    }

    /// Proposes the first page of the main FIFO that has no uses left. Returns whether there was
    /// one.
    fn propose_main(
        &self,
        lists: &mut FrameLists<3>,
        frames: &dyn Frames,
        victims: &mut Vec<FrameId>,
    ) -> bool {
        let before = victims.len();
        for _ in 0..=MOST_USES {
            lists.sweep(MAIN, |lists, frame| {
                let (tracker, standing) = (frames.tracker(frame), frames.standing(frame));
                let uses = tracker.byte(USES);
                if uses > 0 {
                    tracker.set_byte(USES, uses - 1);
                    lists.move_to_front(MAIN, frame);
                } else if standing.may_leave() {
                    lists.move_to_front(LEAVING, frame);
                    victims.push(frame);
                } else if standing == Standing::Held {
                    lists.move_to_front(MAIN, frame);
                }
                victims.len() == before
            });
            if victims.len() > before {
                return true;
            }
        }
        false
    }
}

impl Order for S3Fifo {
    fn propose(&self, frames: &dyn Frames, most: usize, victims: &mut Vec<FrameId>) {
        let lists = &mut self.queues.lock().lists;
        // Pages that were proposed before and are still here: their write failed, or they were used
        // meanwhile.
        lists.sweep(LEAVING, |lists, frame| {
            let tracker = frames.tracker(frame);
            if self.value(tracker, 0) > 0.0 || frames.standing(frame) == Standing::Held {
                tracker.set_byte(USES, 0);
                enter_main(lists, frame, tracker);
            } else if frames.standing(frame).may_leave() && victims.len() < most {
                victims.push(frame);
            }
            true
        });
        while victims.len() < most {
            let small = lists.len(SMALL) >= self.small.max(1) || lists.len(MAIN) == 0;
            let found = match small {
                true => self.propose_small(lists, frames, victims),
                false => self.propose_main(lists, frames, victims),
            };
            // The other FIFO is the last resort.
            let found = found
                || match small {
                    true => self.propose_main(lists, frames, victims),
                    false => self.propose_small(lists, frames, victims),
                };
            if !found {
                break;
            }
        }
    }

    fn refused(&self, frame: FrameId, tracker: &Tracker) {
        tracker.set_byte(USES, 1);
        enter_main(&mut self.queues.lock().lists, frame, tracker);
    }
}
