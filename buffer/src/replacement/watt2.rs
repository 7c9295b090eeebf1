//! watt2: WATT with a learned worth of keeping a page, and a memory of evicted pages.
//!
//! Source: this project; `workloads/src/simulate/policies/watt2/README.md` has the model and the
//! formulas. `index` learns, `share` learns which uses write, `ghost` remembers evicted pages, and
//! `history` is the state of a page. The simulator uses the same files; what differs here is for
//! many threads:
//!
//! - A use within a tick stores nothing. The first one in a tick counts an event by one atomic
//!   addition and takes no latch.
//! - Evictors propose several pages at once: for each that is to leave they look at `sample` frames
//!   that are spread evenly over the pool, and take the lowest. They keep no candidates.
//! - The tables are under a latch that is taken by a load, by the eviction of a page, and by an
//!   evictor that asks for victims. Relearning, once for a tenth of the pool, is under it too.
//!
//! | part of the tracker | contents |
//! |---|---|
//! | words 0 to 2 | ticks of the last uses, newest first |
//! | words 3 and 4 | ticks of the last writes |
//! | word 5 | recent uses, an `f32` |
//! | bytes 0 and 1 | classes of uses and of writes |
//! | byte 2 | flags, see the constants |

mod ghost;
mod history;
mod index;
mod look_ahead;
mod share;

#[doc(hidden)]
pub mod parts {
    //! The parts that the simulator shares.
    pub use super::{ghost::*, history::*, index::*, share::*};
}

use super::{
    draw::Draw,
    parameters::{Parameter, Range, Setup},
    policy::{Frames, Leave, Order, Replacement, Standing, Visit},
    tracker::{FIRST_EPOCH, Tracker},
};
use crate::{
    error::Result,
    ids::{FrameId, PageId},
    memory::FrameMemory,
    random::mix,
    sync::{AtomicU32, Mutex, Ordering},
};
use ghost::Ghosts;
use history::{
    FIRST_TICK, History, Recency, fade, ghost_class, relearn_misses, use_classes, write_classes,
};
use index::{Cell, Index};
use share::WriteShare;

const _: () = assert!(FIRST_TICK == FIRST_EPOCH);

/// Bytes of a remembered page.
const GHOST_BYTES: usize = 4;
/// Entries of the memory that stand for all of it, for each page that leaves.
const GHOST_DRAWS: usize = 2;

const FLAGS: usize = 2;
/// The page came in within the newest tick.
const CAME: u8 = 1;
/// It was not used since.
const FRESH: u8 = 2;
/// The use that loaded it is still to come, and does not count.
const NEW: u8 = 4;
/// It was proposed, and was not used since.
const PROPOSED: u8 = 8;

/// See the module documentation.
pub struct Watt2 {
    /// Uses of pages at the cells of the table since the last relearning.
    uses: Vec<AtomicU32>,
    writes: Vec<AtomicU32>,
    /// Uses and writes by the class of the writes of the page.
    shares: [Vec<AtomicU32>; 2],
    recency: Recency,
    write_weight: f32,
    sample: usize,
    draw: Draw,
    learner: Mutex<Learner>,
}

/// The tables.
struct Learner {
    uses: Index,
    writes: Index,
    share: WriteShare,
    ghosts: Ghosts,
    /// Misses in a tick.
    tick: f32,
    relearn_misses: usize,
    until_relearn: usize,
    fade: f32,
    /// Pages of the current call, with their values.
    valued: Vec<(f32, FrameId)>,
    random: u64,
}

fn count(events: &[AtomicU32], position: usize) {
    events[position].fetch_add(1, Ordering::Relaxed);
}

/// Hands the counts since the last call to `to`, and sets them to 0.
fn take_counts(events: &[AtomicU32], mut to: impl FnMut(usize, f32)) {
    for (position, events) in events.iter().enumerate() {
        if events.load(Ordering::Relaxed) != 0 {
            to(position, events.swap(0, Ordering::Relaxed) as f32);
        }
    }
}

fn load(tracker: &Tracker) -> History {
    History {
        uses: [0, 1, 2].map(|word| tracker.word(word)),
        writes: [3, 4].map(|word| tracker.word(word)),
        frequency: f32::from_bits(tracker.word(5)),
        class: tracker.byte(0),
        write_class: tracker.byte(1),
        ..History::default()
    }
}

fn store(tracker: &Tracker, history: &History) {
    (0..3).for_each(|word| tracker.set_word(word, history.uses[word]));
    (0..2).for_each(|word| tracker.set_word(3 + word, history.writes[word]));
    tracker.set_word(5, history.frequency.to_bits());
    tracker.set_byte(0, history.class);
    tracker.set_byte(1, history.write_class);
}

impl Watt2 {
    #[cold]
    fn use_anew(&self, tracker: &Tracker, now: u32) {
        let (flags, last) = (tracker.byte(FLAGS), tracker.word(0));
        if flags & NEW != 0 {
            return tracker.set_byte(FLAGS, flags & !(NEW | PROPOSED));
        }
        if last >= now {
            if flags & FRESH != 0 {
                let mut history = load(tracker);
                if history.notes_uses_within() {
                    count(&self.uses, Cell::of(history.class(), 0).position());
                    history.used_again();
                    tracker.set_byte(0, history.class);
                }
            }
            return tracker.set_byte(FLAGS, flags & !(FRESH | PROPOSED));
        }
        let mut history = load(tracker);
        count(&self.uses, Cell::of(history.class(), now - last).position());
        if history.writes[0] != 0 {
            count(&self.shares[0], history.write_class());
        }
        history.push(now);
        store(tracker, &history);
        tracker.set_byte(FLAGS, 0);
    }

    #[cold]
    fn write_anew(&self, tracker: &Tracker, now: u32) {
        let mut history = load(tracker);
        let last = history.writes[0];
        if last < now {
            if last != 0 {
                count(&self.writes, Cell::of(history.write_class(), now - last).position());
                count(&self.shares[1], history.write_class());
            }
            history.push_write(now);
            store(tracker, &history);
        }
    }

    /// The value of a page, whose cells it also counts as `pages` pages.
    fn value_of(
        &self,
        learner: &mut Learner,
        tracker: &Tracker,
        now: u32,
        pages: f32,
        dirty: bool,
    ) -> f32 {
        let history = load(tracker);
        let age = now.saturating_sub(history.uses[0]);
        let cell = Cell::of(history.class(), age);
        // Only pages that note uses within a tick count for these.
        if age > 0 || tracker.byte(FLAGS) & CAME != 0 && history.notes_uses_within() {
            learner.uses.seen(cell, pages);
        }
        let mut value = learner.uses.of(cell) * self.recency.of(history.uses, now);
        if history.writes[0] != 0 {
            let cell = Cell::of(history.write_class(), now.saturating_sub(history.writes[0]));
            learner.writes.seen(cell, pages);
            if dirty {
                let uses = value * learner.share.of(history.write_class());
                value += self.write_weight * learner.writes.of(cell).min(uses);
            }
        }
        value
    }

    /// Counts `misses`; learns if there were enough.
    fn learn(&self, learner: &mut Learner, misses: usize) {
        learner.until_relearn += misses;
        if learner.until_relearn < learner.relearn_misses {
            return;
        }
        learner.until_relearn = 0;
        for (events, index) in
            [(&self.uses, &mut learner.uses), (&self.writes, &mut learner.writes)]
        {
            take_counts(events, |position, times| index.used_times(position, times));
            index.relearn(learner.tick, learner.fade);
        }
        let share = &mut learner.share;
        take_counts(&self.shares[0], |class, times| share.used(class, times));
        take_counts(&self.shares[1], |class, times| share.written(class, times));
        share.relearn(learner.fade);
    }
}

impl Replacement for Watt2 {
    const NAME: &'static str = "watt2";
    const SUMMARY: &'static str = "WATT with a learned worth of pages and a memory of evicted ones";
    const SOURCE: &'static str = "this project, workloads/src/simulate/policies/watt2/README.md";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter::epochs(6.0),
        Parameter {
            name: "sample",
            default: 8.0,
            range: Range::Whole(1, 256),
            about: "pages compared for each that leaves",
        },
        Parameter {
            name: "ghosts",
            default: 4.0,
            range: Range::Number(0.0, 2000.0),
            about: "remembered pages per frame, 4 bytes each",
        },
        Parameter {
            name: "optimism",
            default: 4.0,
            range: Range::Number(0.01, 1000.0),
            about: "how much better than expected unknown ages are",
        },
        Parameter {
            name: "mix",
            default: 0.15,
            range: Range::Number(0.0, 1.0),
            about: "weight of WATT's value in the product",
        },
        Parameter {
            name: "write_weight",
            default: 4.0,
            range: Range::Number(0.0, 1e6),
            about: "weight of writes",
        },
    ];
    const ORDERED: bool = true;

    fn new(setup: &Setup) -> Result<Watt2> {
        let (frames, ghosts) = (setup.frames, setup.share("ghosts"));
        let (bytes, pool) = (ghosts * GHOST_BYTES, frames * FrameMemory::FRAME_BYTES);
        if bytes > pool {
            return Err(setup.does_not_fit(format_args!(
                "{ghosts} remembered pages take {bytes} bytes, more than the pool, which has {pool}"
            )));
        }
        let weight = setup.number("mix") as f32;
        let zeros = |cells: usize| (0..cells).map(|_| AtomicU32::new(0)).collect();
        let uses = Index::new(use_classes(), setup.number("optimism") as f32, 1.0 - weight);
        let writes = Index::new(write_classes(), 1.0, 1.0);
        let relearn_misses = relearn_misses(frames);
        Ok(Watt2 {
            uses: zeros(uses.cells()),
            writes: zeros(writes.cells()),
            shares: [zeros(WriteShare::classes()), zeros(WriteShare::classes())],
            recency: Recency::new(weight),
            write_weight: setup.number("write_weight") as f32,
            sample: setup.number("sample") as usize,
            draw: Draw::new(),
            learner: Mutex::new(Learner {
                uses,
                writes,
                share: WriteShare::default(),
                ghosts: Ghosts::for_pool(ghosts),
                tick: (frames as f64 / setup.number("epochs")).max(1.0) as f32,
                relearn_misses,
                until_relearn: 0,
                fade: fade(frames),
                valued: Vec::new(),
                random: 1,
            }),
        })
    }

    fn on_load(&self, visit: Visit<'_>, page: PageId) {
        let (tracker, now) = (visit.tracker, visit.epoch);
        tracker.reset();
        let ghost = self.learner.lock().ghosts.take(page, now).filter(|ghost| ghost.last < now);
        let history = match ghost {
            Some(ghost) => {
                let mut history = History::of_ghost(&ghost);
                count(&self.uses, Cell::of(history.class(), now - ghost.last).position());
                history.push(now);
                history
            }
            None => History::new(now, 0, 1.0),
        };
        store(tracker, &history);
        tracker.set_byte(FLAGS, CAME | FRESH | NEW);
    }

    #[inline]
    fn on_access(&self, visit: Visit<'_>) {
        let tracker = visit.tracker;
        if tracker.word(0) != visit.epoch || tracker.byte(FLAGS) & !CAME != 0 {
            self.use_anew(tracker, visit.epoch);
        }
    }

    #[inline]
    fn on_write(&self, visit: Visit<'_>) {
        self.on_access(visit);
        if visit.tracker.word(3) != visit.epoch {
            self.write_anew(visit.tracker, visit.epoch);
        }
    }

    fn on_leave(&self, visit: Visit<'_>, page: PageId, how: Leave) {
        if how == Leave::Evicted {
            let ghost = load(visit.tracker).ghost();
            self.learner.lock().ghosts.insert(page, ghost, visit.epoch);
        }
    }

    fn value(&self, tracker: &Tracker, _: u32) -> f32 {
        f32::from(u8::from(tracker.byte(FLAGS) & PROPOSED == 0))
    }

    fn order(&self) -> Option<&dyn Order> {
        Some(self)
    }
}

impl Order for Watt2 {
    fn propose(&self, frames: &dyn Frames, most: usize, victims: &mut Vec<FrameId>) {
        let now = frames.epoch();
        let mut learner = self.learner.lock();
        let learner = &mut *learner;
        let pages = frames.count() as f32 / self.sample as f32;
        let mut valued = std::mem::take(&mut learner.valued);
        valued.clear();
        for _ in 0..most * self.sample {
            let frame = self.draw.spread_frame(frames);
            let standing = frames.standing(frame);
            if standing.may_leave() {
                let dirty = standing == Standing::Dirty;
                let tracker = frames.tracker(frame);
                valued.push((self.value_of(learner, tracker, now, pages, dirty), frame));
            }
        }
        let remembered = learner.ghosts.capacity() as f32 / GHOST_DRAWS as f32;
        for _ in 0..GHOST_DRAWS * most {
            learner.random = learner.random.wrapping_add(1);
            let slot = mix(learner.random) % learner.ghosts.capacity().max(1) as u64;
            if let Some(ghost) = learner.ghosts.at(slot as usize, now) {
                let age = now.saturating_sub(ghost.last);
                learner.uses.seen(Cell::of(ghost_class(&ghost), age), remembered);
            }
        }
        valued.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        valued.dedup_by_key(|(_, frame)| *frame);
        victims.extend(valued.iter().take(most).map(|(_, frame)| *frame));
        for frame in victims.iter() {
            let tracker = frames.tracker(*frame);
            tracker.set_byte(FLAGS, tracker.byte(FLAGS) | PROPOSED);
        }
        learner.valued = valued;
        self.learn(learner, victims.len());
    }

    fn refused(&self, _: FrameId, tracker: &Tracker) {
        tracker.set_byte(FLAGS, tracker.byte(FLAGS) & !PROPOSED);
    }
}
