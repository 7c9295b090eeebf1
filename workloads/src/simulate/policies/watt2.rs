//! watt2: WATT with a learned worth of keeping a page, and a memory of evicted pages.
//!
//! Source: this project; `watt2/README.md` has the model, the formulas and the experiments.
//! The tables that learn, the memory of evicted pages and the histories of pages are those of the
//! engine (`wattle_buffer::replacement`).
//!
//! The properties of WATT for many cores remain: a fixed tracker in the frame, no write on a
//! repeated use within a tick, eviction by a small sample, no list.
//!
//! Parameters: `sample` and `pool`, pages that an eviction compares: the next ones of an even
//! spread over the frames, and the next lowest of the previous eviction; `ticks`, per replacement
//! of the whole cache; `ghosts`, remembered pages per frame (4 bytes each); `optimism` about ages
//! without observations; `mix`, weight of WATT's value in the product; `write_weight`.

use std::collections::VecDeque;

use wattle_buffer::PageId;
use wattle_buffer::replacement::watt2_parts::{
    Cell, FIRST_TICK, Ghost, Ghosts, History, Index, Recency, WriteShare, fade, ghost_class,
    relearn_misses, use_classes, write_classes,
};

use crate::rng::Rng;
use crate::simulate::entry::{Domain, Parameter, PolicyEntry};
use crate::simulate::policy::{Access, Policy};
use crate::simulate::pool::{Frame, Page, PerFrame, Pool, Sampler};

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "watt2",
    source: "this project, workloads/src/simulate/policies/watt2/README.md",
    cost: "O(sample + pool) amortised",
    parameters: &[
        Parameter {
            name: "sample",
            default: "8",
            takes: Domain::Whole(1, 256),
            about: "pages that an eviction looks at",
        },
        Parameter {
            name: "pool",
            default: "8",
            takes: Domain::Whole(0, 256),
            about: "pages kept for the next eviction",
        },
        Parameter {
            name: "ticks",
            default: "6",
            takes: Domain::Number(0.1, 1024.0),
            about: "ticks per replacement of the cache",
        },
        Parameter {
            name: "ghosts",
            default: "4",
            takes: Domain::Number(0.0, 64.0),
            about: "remembered pages per frame, 4 bytes each",
        },
        Parameter {
            name: "optimism",
            default: "4",
            takes: Domain::Number(0.01, 1000.0),
            about: "how much better than expected unknown ages are",
        },
        Parameter {
            name: "mix",
            default: "0.15",
            takes: Domain::Number(0.0, 1.0),
            about: "weight of WATT's value in the product",
        },
        Parameter {
            name: "write_weight",
            default: "4",
            takes: Domain::Number(0.0, 1e6),
            about: "weight of writes",
        },
    ],
    build: |setup| {
        let (capacity, mix) = (setup.capacity, setup.number("mix") as f32);
        let mut rng = Rng::new(setup.seed, 0);
        Box::new(Watt2 {
            trackers: PerFrame::new(capacity, History::default),
            uses: Index::new(use_classes(), setup.number("optimism") as f32, 1.0 - mix),
            writes: Index::new(write_classes(), 1.0, 1.0),
            recency: Recency::new(mix),
            share: WriteShare::default(),
            ghosts: Ghosts::for_pool((setup.number("ghosts") * capacity as f64) as usize),
            tick_misses: ((capacity as f64 / setup.number("ticks")) as usize).max(1),
            relearn_misses: relearn_misses(capacity),
            fade: fade(capacity),
            misses: 0,
            until_relearn: 0,
            now: FIRST_TICK,
            sample: setup.whole("sample"),
            pool: setup.whole("pool"),
            write_weight: setup.number("write_weight") as f32,
            ghosts_per_page: setup.number("ghosts"),
            spread: rng.next_u64(),
            rng,
            sampler: Sampler::new(capacity),
            drawn: Vec::new(),
            kept: Vec::new(),
            valued_before: Vec::new(),
            planned: VecDeque::new(),
            stale: false,
            newest: None,
            returning: None,
        })
    },
};

struct Watt2 {
    trackers: PerFrame<History>,
    uses: Index,
    writes: Index,
    recency: Recency,
    share: WriteShare,
    ghosts: Ghosts,
    tick_misses: usize,
    relearn_misses: usize,
    fade: f32,
    misses: usize,
    until_relearn: usize,
    now: u32,
    sample: usize,
    pool: usize,
    write_weight: f32,
    ghosts_per_page: f64,
    rng: Rng,
    /// The position of the last page that an eviction looked at.
    spread: u64,
    sampler: Sampler,
    drawn: Vec<Frame>,
    /// The lowest pages of earlier evictions, lowest last.
    kept: Vec<Candidate>,
    /// Candidates to value again; empty between events.
    valued_before: Vec<Candidate>,
    /// Victims that were drawn ahead for ACE.
    planned: VecDeque<Candidate>,
    /// Whether values have changed since they were computed, by time or by learning.
    stale: bool,
    newest: Option<Page>,
    /// The ghost of the page that comes in.
    returning: Option<Ghost>,
}

impl Watt2 {
    fn track(&mut self, access: Access, pool: &Pool) {
        let tracker = &mut self.trackers[pool.frame(access.page)];
        let last = tracker.uses[0];
        if last != self.now {
            self.uses.used(Cell::of(tracker.class(), self.now - last));
            if tracker.writes[0] != 0 {
                self.share.used(tracker.write_class(), 1.0);
            }
            tracker.push(self.now);
        } else if tracker.fresh {
            tracker.fresh = false;
            if tracker.notes_uses_within() {
                self.uses.used(Cell::of(tracker.class(), 0));
                tracker.used_again();
            }
        }
        if access.write {
            self.track_write(access.page, pool);
        }
    }

    fn track_write(&mut self, page: Page, pool: &Pool) {
        let tracker = &mut self.trackers[pool.frame(page)];
        let last = tracker.writes[0];
        if last != self.now {
            if last != 0 {
                self.writes.used(Cell::of(tracker.write_class(), self.now - last));
                self.share.written(tracker.write_class(), 1.0);
            }
            tracker.push_write(self.now);
        }
    }

    /// The cells of the uses and of the writes of the page in `frame` in the tables.
    #[inline]
    fn cells(&self, frame: Frame) -> Cells {
        let tracker = &self.trackers[frame];
        let written = tracker.writes[0] != 0;
        Cells {
            uses: Cell::of(tracker.class(), self.now - tracker.uses[0]),
            writes: written.then(|| Cell::of(tracker.write_class(), self.now - tracker.writes[0])),
        }
    }

    /// Counts the page in `frame` as `pages` pages in the exposures. Only pages that note uses
    /// within a tick count for these.
    #[inline]
    fn expose(&mut self, frame: Frame, cells: Cells, pages: f32) {
        let tracker = &self.trackers[frame];
        if tracker.uses[0] != self.now || tracker.came && tracker.notes_uses_within() {
            self.uses.seen(cells.uses, pages);
        }
        if let Some(writes) = cells.writes {
            self.writes.seen(writes, pages);
        }
    }

    /// The uses per tick that keeping the page in `frame` promises, mixed with WATT's value, and
    /// for a dirty page the writes that it saves: no more than the uses by the share that writes.
    #[inline(always)]
    fn value(&mut self, frame: Frame, cells: Cells, pool: &Pool) -> f32 {
        let recency = self.recency.of(self.trackers[frame].uses, self.now);
        let mut value = self.uses.of(cells.uses) * recency;
        if let Some(writes) = cells.writes
            && pool.page(frame).is_some_and(|page| pool.is_dirty(page))
        {
            let uses = value * self.share.of(self.trackers[frame].write_class());
            value += self.write_weight * self.writes.of(writes).min(uses);
        }
        value
    }

    /// Puts the page in `frame`, which is no candidate, among them by its value if it is low
    /// enough: there are to be `pool` left when the lowest has gone.
    #[inline(always)]
    fn consider(&mut self, frame: Frame, cells: Cells, pool: &Pool) {
        let value = self.value(frame, cells, pool);
        if self.kept.len() <= self.pool || value < self.kept[0].value {
            self.keep(frame, value);
        }
    }

    #[inline(never)]
    fn keep(&mut self, frame: Frame, value: f32) {
        let tracker = &mut self.trackers[frame];
        tracker.kept = true;
        let candidate = Candidate { value, frame, stamps: (tracker.uses[0], tracker.writes[0]) };
        if self.kept.len() <= self.pool {
            let higher = self.kept.iter().take_while(|other| other.value > value).count();
            self.kept.insert(higher, candidate);
            return;
        }
        // The highest leaves, and those that are higher than the new one move into its place.
        self.trackers[self.kept[0].frame].kept = false;
        let mut at = 0;
        while at + 1 < self.kept.len() && self.kept[at + 1].value > value {
            self.kept[at] = self.kept[at + 1];
            at += 1;
        }
        self.kept[at] = candidate;
    }

    /// Values an earlier candidate again, unless it has left.
    #[inline(never)]
    fn consider_again(&mut self, frame: Frame, pool: &Pool) {
        if std::mem::take(&mut self.trackers[frame].kept) {
            self.consider(frame, self.cells(frame), pool);
        }
    }

    /// Removes the lowest candidate. A candidate that was used since it was valued is valued again.
    fn lowest(&mut self, pool: &Pool) -> Option<Candidate> {
        while let Some(candidate) = self.kept.pop() {
            let Candidate { frame, stamps, .. } = candidate;
            let tracker = &self.trackers[frame];
            if (tracker.uses[0], tracker.writes[0]) == stamps {
                return Some(candidate);
            }
            self.consider_again(frame, pool);
        }
        None
    }

    /// The lowest page of a sample and of the candidates.
    fn draw_lowest(&mut self, pool: &Pool) -> Option<Candidate> {
        if std::mem::take(&mut self.stale) {
            std::mem::swap(&mut self.kept, &mut self.valued_before);
            let mut before = std::mem::take(&mut self.valued_before);
            before.drain(..).for_each(|candidate| self.consider_again(candidate.frame, pool));
            self.valued_before = before;
        }
        let mut drawn = std::mem::take(&mut self.drawn);
        self.sampler.spread_frames(pool, &mut self.spread, self.sample, &mut drawn);
        let pages = pool.len() as f32 / drawn.len() as f32;
        for frame in drawn.iter().copied() {
            let cells = self.cells(frame);
            self.expose(frame, cells, pages);
            if !self.trackers[frame].kept {
                self.consider(frame, cells, pool);
            }
        }
        self.drawn = drawn;
        self.expose_ghosts();
        self.consider_newest(pool);
        self.lowest(pool)
    }

    fn consider_newest(&mut self, pool: &Pool) {
        if let Some(newest) = self.newest.filter(|newest| pool.holds(*newest)) {
            let frame = pool.frame(newest);
            if !self.trackers[frame].kept {
                self.consider(frame, self.cells(frame), pool);
            }
        }
    }

    /// Whether a planned victim was not used since it was drawn. If it was, it may be a candidate
    /// again.
    fn stays_planned(&mut self, candidate: &Candidate) -> bool {
        let tracker = &mut self.trackers[candidate.frame];
        let stays = (tracker.uses[0], tracker.writes[0]) == candidate.stamps;
        tracker.kept &= stays;
        stays
    }

    /// The next planned victim, unless a page that came in since is lower.
    fn pop_planned(&mut self, pool: &Pool) -> Option<Candidate> {
        while let Some(candidate) = self.planned.pop_front() {
            if !self.stays_planned(&candidate) || pool.page(candidate.frame).is_none() {
                continue;
            }
            let value = self.value(candidate.frame, self.cells(candidate.frame), pool);
            let newest = self.newest.filter(|newest| pool.holds(*newest));
            let newest = newest.map(|newest| pool.frame(newest));
            let Some(frame) = newest.filter(|frame| !self.trackers[*frame].kept) else {
                return Some(candidate);
            };
            if self.value(frame, self.cells(frame), pool) >= value {
                return Some(candidate);
            }
            self.planned.push_front(candidate);
            return Some(Candidate { frame, ..candidate });
        }
        None
    }

    fn expose_ghosts(&mut self) {
        const DRAWS: usize = 2;
        let pages = self.ghosts.capacity() as f32 / DRAWS as f32;
        for _ in 0..DRAWS {
            if let Some(ghost) = {
                let places = self.ghosts.capacity().max(1) as u64;
                let slot = self.rng.below(places) as usize;
                self.ghosts.at(slot, self.now)
            } {
                self.uses.seen(Cell::of(ghost_class(&ghost), self.now - ghost.last), pages);
            }
        }
    }

    fn count_miss(&mut self) {
        self.misses += 1;
        if self.misses >= self.tick_misses {
            self.misses = 0;
            self.now += 1;
            self.stale = true;
        }
        self.until_relearn += 1;
        if self.until_relearn >= self.relearn_misses {
            self.until_relearn = 0;
            self.stale = true;
            self.uses.relearn(self.tick_misses as f32, self.fade);
            self.writes.relearn(self.tick_misses as f32, self.fade);
            self.share.relearn(self.fade);
        }
    }
}

/// The cells of a page in the tables.
#[derive(Clone, Copy, Debug)]
struct Cells {
    uses: Cell,
    /// None if it was never written.
    writes: Option<Cell>,
}

/// A page that may leave soon.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    value: f32,
    frame: Frame,
    /// Its last use and write when it was valued.
    stamps: (u32, u32),
}

/// The id by which the memory of evicted pages knows a page.
fn id(page: Page) -> PageId {
    PageId(u64::from(page.0))
}

impl Policy for Watt2 {
    #[inline]
    fn hit(&mut self, access: Access, pool: &Pool) {
        if !self.planned.is_empty() {
            let frame = pool.frame(access.page);
            let before = self.planned.len();
            self.planned.retain(|candidate| candidate.frame != frame);
            self.trackers[frame].kept &= self.planned.len() == before;
        }
        self.track(access, pool);
    }

    fn miss(&mut self, access: Access, pool: &Pool) -> bool {
        self.returning = self.ghosts.take(id(access.page), self.now);
        if !pool.is_full() && !pool.is_empty() {
            // The cache fills: four pages stand for all.
            for _ in 0..4 {
                let frame = pool.draw_frame(&mut self.rng);
                self.expose(frame, self.cells(frame), pool.len() as f32 / 4.0);
            }
        }
        true
    }

    fn select(&mut self, pool: &Pool, victims: &mut Vec<Page>) {
        let planned = self.pop_planned(pool);
        let Some(candidate) = planned.or_else(|| self.draw_lowest(pool)) else { return };
        let frame = candidate.frame;
        let Some(victim) = pool.page(frame) else { return };
        self.ghosts.insert(id(victim), self.trackers[frame].ghost(), self.now);
        victims.push(victim);
    }

    fn fetch(&mut self, access: Access, pool: &Pool) {
        let frame = pool.frame(access.page);
        let restored = self.returning.take().map(|ghost| History::of_ghost(&ghost));
        self.trackers[frame] = restored.unwrap_or_else(|| History::new(self.now, 0, 1.0));
        if restored.is_some() {
            self.track(access, pool);
        } else if access.write {
            self.track_write(access.page, pool);
        }
        let tracker = &mut self.trackers[frame];
        (tracker.came, tracker.fresh) = (true, true);
        self.newest = Some(access.page);
        self.count_miss();
    }

    fn cannot_evict(&mut self, page: Page, pool: &Pool) {
        self.ghosts.take(id(page), self.now);
        self.trackers[pool.frame(page)].kept = false;
        self.newest = self.newest.filter(|newest| *newest != page);
    }

    fn remove(&mut self, page: Page, pool: &Pool) {
        let frame = pool.frame(page);
        self.kept.retain(|other| other.frame != frame);
        self.planned.retain(|other| other.frame != frame);
    }

    fn upcoming(&mut self, pool: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        /// Pages that came in may leave before the plan, which must not grow with each of them.
        const MOST: usize = 32;
        let mut planned = std::mem::take(&mut self.planned);
        planned.retain(|candidate| self.stays_planned(candidate));
        let pages = planned.iter().filter_map(|candidate| pool.page(candidate.frame));
        let mut more = pages.into_iter().all(&mut *take);
        while more && planned.len() < MOST.min(pool.len() / 2) {
            let Some(candidate) = self.draw_lowest(pool) else { break };
            let Some(page) = pool.page(candidate.frame) else { break };
            // It stays marked as a candidate, so that it is not drawn again.
            planned.push_back(candidate);
            more = take(page);
        }
        self.planned = planned;
    }

    fn bytes_per_page(&self) -> f64 {
        30.0 + 4.0 * self.ghosts_per_page
    }
}
