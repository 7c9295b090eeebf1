//! watt2: WATT with a learned worth of keeping a page, and a memory of evicted pages.
//!
//! Source: this project; model, formulas and what was tried are in `watt2/README.md`. What is
//! learned is in `watt2/index.rs`, what is remembered of evicted pages in `watt2/ghost.rs`.
//!
//! What makes WATT fit for many cores stays: a fixed tracker in the frame, nothing written on a
//! repeated use within a tick but one flag, eviction by a small random sample, no list.
//!
//! Parameters: `sample` and `pool`, pages that an eviction looks at: random ones, and the next
//! lowest of the eviction before; `ticks`, per replacement of the whole cache; `ghosts`, remembered
//! pages per frame (4 bytes each); `optimism` about ages at which nothing was seen yet; `mix`,
//! weight of WATT's value in the product; `write_weight`.

mod ghost;
mod index;
mod tracker;

use crate::rng::Rng;
use crate::simulate::policy::{Access, Policy, by_frame};
use crate::simulate::pool::{Page, PerFrame, Pool, Sampler};
use crate::simulate::registry::{Entry, Kind, Parameter};
use ghost::{Ghost, Ghosts};
use index::Index;
use tracker::{FIRST_TICK, Recency, Tracker, class, distance, use_classes, write_classes};

pub const ENTRY: Entry = Entry {
    name: "watt2",
    source: "this project, workloads/src/simulate/policies/watt2/README.md",
    cost: "O(sample + pool) amortised",
    parameters: &[
        Parameter {
            name: "sample",
            default: "8",
            kind: Kind::Whole(1, 256),
            about: "random pages that an eviction looks at",
        },
        Parameter {
            name: "pool",
            default: "8",
            kind: Kind::Whole(0, 256),
            about: "pages kept for the next eviction",
        },
        Parameter {
            name: "ticks",
            default: "6",
            kind: Kind::Number(0.1, 1024.0),
            about: "ticks per replacement of the cache",
        },
        Parameter {
            name: "ghosts",
            default: "4",
            kind: Kind::Number(0.0, 64.0),
            about: "remembered pages per frame, 4 bytes each",
        },
        Parameter {
            name: "optimism",
            default: "4",
            kind: Kind::Number(0.01, 1000.0),
            about: "how much better than expected unknown ages are",
        },
        Parameter {
            name: "mix",
            default: "0.2",
            kind: Kind::Number(0.0, 1.0),
            about: "weight of WATT's value in the product",
        },
        Parameter {
            name: "write_weight",
            default: "4",
            kind: Kind::Number(0.0, 1e6),
            about: "weight of writes",
        },
    ],
    build: |setup| {
        let (capacity, mix) = (setup.capacity, setup.number("mix") as f32);
        Box::new(Watt2 {
            trackers: PerFrame::new(capacity, Tracker::default),
            uses: Index::new(use_classes(), setup.number("optimism") as f32, 1.0 - mix),
            writes: Index::new(write_classes(), 1.0, 1.0),
            recency: Recency::new(mix),
            ghosts: Ghosts::new((setup.number("ghosts") * capacity as f64) as usize),
            tick_misses: ((capacity as f64 / setup.number("ticks")) as usize).max(1),
            relearn_misses: (capacity / 4).max(300),
            fade: 0.5f32.powf((capacity / 4).max(300) as f32 / (8 * capacity).max(2000) as f32),
            misses: 0,
            until_relearn: 0,
            now: FIRST_TICK,
            sample: setup.whole("sample"),
            pool: setup.whole("pool"),
            write_weight: setup.number("write_weight") as f32,
            ghosts_per_page: setup.number("ghosts"),
            rng: Rng::new(setup.seed, 0),
            sampler: Sampler::new(capacity),
            drawn: Vec::new(),
            kept: Vec::new(),
            valued_before: Vec::new(),
            stale: false,
            newest: None,
            returning: None,
        })
    },
};

struct Watt2 {
    trackers: PerFrame<Tracker>,
    uses: Index,
    writes: Index,
    recency: Recency,
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
    sampler: Sampler,
    drawn: Vec<Page>,
    /// The lowest pages that evictions have come across, lowest first.
    kept: Vec<Candidate>,
    /// Those that are to be valued again; empty between events.
    valued_before: Vec<Candidate>,
    /// Whether values changed since they were computed, because time moved on or something was
    /// learned.
    stale: bool,
    newest: Option<Page>,
    /// What was remembered of the page that comes in.
    returning: Option<Ghost>,
}

impl Watt2 {
    fn track(&mut self, access: Access, pool: &Pool) {
        let tracker = &mut self.trackers[pool.frame(access.page)];
        let last = tracker.uses[0];
        if last != self.now {
            self.uses.used(tracker.class(), self.now - last);
            tracker.push(self.now);
        } else if !tracker.again {
            tracker.again = true;
            self.uses.used(tracker.class(), 0);
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
                self.writes.used(tracker.write_class(), self.now - last);
            }
            tracker.writes = [self.now, last];
        }
    }

    /// Uses per tick that keeping `page` promises, mixed with WATT's value, and for a dirty page
    /// the writes that it saves.
    fn value(&mut self, page: Page, pool: &Pool) -> f32 {
        let tracker = &self.trackers[pool.frame(page)];
        let promised = self.uses.of(tracker.class(), self.now - tracker.uses[0]);
        let mut value = promised * self.recency.of(tracker.uses, self.now);
        if tracker.writes[0] != 0 && pool.is_dirty(page) {
            let age = self.now - tracker.writes[0];
            value += self.write_weight * self.writes.of(tracker.write_class(), age);
        }
        value
    }

    /// Puts a page among the candidates, by its value, if it is low enough: there are to be `pool`
    /// left when the lowest has gone.
    fn consider(&mut self, page: Page, pool: &Pool) {
        let value = self.value(page, pool);
        let tracker = &mut self.trackers[pool.frame(page)];
        let full = self.kept.len() > self.pool;
        if full && self.kept.last().is_some_and(|highest| value >= highest.value) {
            tracker.kept = false;
            return;
        }
        tracker.kept = true;
        let candidate = Candidate { value, page, stamps: (tracker.uses[0], tracker.writes[0]) };
        if full
            && let Some(highest) = self.kept.pop()
            && pool.holds(highest.page)
        {
            self.trackers[pool.frame(highest.page)].kept = false;
        }
        let at = self.kept.iter().rposition(|other| other.value <= value).map_or(0, |at| at + 1);
        self.kept.insert(at, candidate);
    }

    /// The same for one that was a candidate before, unless it has left meanwhile.
    fn consider_again(&mut self, page: Page, pool: &Pool) {
        if pool.holds(page) && self.trackers[pool.frame(page)].kept {
            self.consider(page, pool);
        }
    }

    /// Takes the lowest candidate out. One that was used since it was valued is valued again.
    fn lowest(&mut self, pool: &Pool) -> Option<Page> {
        while !self.kept.is_empty() {
            let Candidate { page, stamps, .. } = self.kept.remove(0);
            if !pool.holds(page) {
                continue;
            }
            let tracker = &self.trackers[pool.frame(page)];
            if (tracker.uses[0], tracker.writes[0]) == stamps {
                return Some(page);
            }
            self.consider_again(page, pool);
        }
        None
    }

    /// Lets `page` stand for `pages` in the exposures.
    fn expose(&mut self, page: Page, pages: f32, pool: &Pool) {
        let tracker = &self.trackers[pool.frame(page)];
        self.uses.seen(tracker.class(), self.now - tracker.uses[0], pages);
        if tracker.writes[0] != 0 {
            self.writes.seen(tracker.write_class(), self.now - tracker.writes[0], pages);
        }
    }

    fn expose_ghosts(&mut self) {
        const DRAWS: usize = 2;
        let pages = self.ghosts.capacity() as f32 / DRAWS as f32;
        for _ in 0..DRAWS {
            if let Some(ghost) = self.ghosts.draw(&mut self.rng, self.now) {
                self.uses.seen(ghost_class(&ghost), self.now - ghost.last, pages);
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
            self.uses.recompute(self.tick_misses as f32, self.fade);
            self.writes.recompute(self.tick_misses as f32, self.fade);
        }
    }
}

/// A page that may leave soon.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    value: f32,
    page: Page,
    /// Its last use and write when it was valued.
    stamps: (u32, u32),
}

fn ghost_class(ghost: &Ghost) -> usize {
    ghost.octave.map_or(0, |octave| class(octave, 1 << ghost.frequency))
}

impl Policy for Watt2 {
    #[inline]
    fn hit(&mut self, access: Access, pool: &Pool) {
        self.track(access, pool);
    }

    fn miss(&mut self, access: Access, pool: &Pool) -> bool {
        self.returning = self.ghosts.take(access.page, self.now);
        if !pool.is_full() && !pool.is_empty() {
            // The cache fills: four pages stand for all.
            for _ in 0..4 {
                let page = pool.draw(&mut self.rng);
                self.expose(page, pool.len() as f32 / 4.0, pool);
            }
        }
        true
    }

    fn select(&mut self, pool: &Pool, victims: &mut Vec<Page>) {
        let mut drawn = std::mem::take(&mut self.drawn);
        self.sampler.draw(pool, &mut self.rng, self.sample, &mut drawn);
        for page in &drawn {
            self.expose(*page, pool.len() as f32 / drawn.len() as f32, pool);
        }
        self.expose_ghosts();
        if std::mem::take(&mut self.stale) {
            std::mem::swap(&mut self.kept, &mut self.valued_before);
            while let Some(candidate) = self.valued_before.pop() {
                self.consider_again(candidate.page, pool);
            }
        }
        for page in drawn.iter().copied().chain(self.newest) {
            if pool.holds(page) && !self.trackers[pool.frame(page)].kept {
                self.consider(page, pool);
            }
        }
        self.drawn = drawn;
        let Some(victim) = self.lowest(pool) else { return };
        let tracker = self.trackers[pool.frame(victim)];
        let frequency = (tracker.frequency.max(1.0) as u32).ilog2();
        let ghost = Ghost { last: tracker.uses[0], octave: tracker.octave(), frequency };
        self.ghosts.insert(victim, ghost, self.now);
        victims.push(victim);
    }

    fn fetch(&mut self, access: Access, pool: &Pool) {
        let frame = pool.frame(access.page);
        let fresh = Tracker { uses: [self.now, 0, 0], frequency: 1.0, ..Tracker::default() };
        let restored = self.returning.take().map(|ghost| {
            let before =
                ghost.octave.map_or(0, |octave| ghost.last - distance(octave as usize) as u32);
            let frequency = (1u32 << ghost.frequency) as f32;
            Tracker { uses: [ghost.last, before, 0], frequency, ..Tracker::default() }
        });
        self.trackers[frame] = restored.unwrap_or(fresh);
        if restored.is_some() {
            self.track(access, pool);
        } else if access.write {
            self.track_write(access.page, pool);
        }
        self.newest = Some(access.page);
        self.count_miss();
    }

    fn cannot_evict(&mut self, page: Page, pool: &Pool) {
        self.ghosts.take(page, self.now);
        self.trackers[pool.frame(page)].kept = false;
        self.newest = self.newest.filter(|newest| *newest != page);
    }

    fn remove(&mut self, page: Page, _: &Pool) {
        self.kept.retain(|other| other.page != page);
    }

    fn upcoming(&mut self, pool: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        by_frame(pool, self.rng.below(pool.capacity() as u64) as usize, take);
    }

    fn bytes_per_page(&self) -> f64 {
        30.0 + 4.0 * self.ghosts_per_page
    }
}
