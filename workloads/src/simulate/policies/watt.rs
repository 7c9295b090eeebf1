//! WATT: a page is worth its largest access subfrequency, plus the write weight times its largest
//! write subfrequency; the least valuable page of a small random sample leaves.
//!
//! Source: Vöhringer, Leis, "Write-aware timestamp tracking", PVLDB 16(11), 2023. Tracker and value
//! are the engine's own (`wattle_buffer::replacement`), except with parameters that only studies
//! use (Figures 4 to 7, other aggregations and logs), which are in `watt_study`. Nothing is
//! remembered of evicted pages.
//!
//! Parameters (the paper's defaults): `sample` (Figure 3), `epochs` per replacement of the whole
//! cache, inf for one at every replacement (Figure 5), `write_weight` (Figure 8). `evict`: `single`
//! takes the lowest page of the sample, `listing` all of 64 other samples at or below it, or only
//! that page if there are none (Listing 2). `age`: `counted` adds the running epoch to ages, as
//! simulations do, `plain` does not, like the engine. `ties`: which of equally valuable pages
//! leaves, a `random` one or the `newest`, which is about the choice of the simulator of the paper.
//! And the parameters of `watt_study`.

use wattle_buffer::replacement::{FIRST_EPOCH, Replacement, Tracker, Visit, Watt as Engine};
use wattle_buffer::{FrameId, PageId};

use crate::rng::Rng;
use crate::simulate::entry::{Domain, Parameter, PolicyEntry, Setup};
use crate::simulate::policy::{Access, Policy};
use crate::simulate::pool::{Frame, Page, PerFrame, Pool, Sampler};
use crate::simulate::upcoming::Plan;

use super::watt_study::{self, Study, Tracking};

/// Candidates of a batch eviction (Listing 2, line 7).
const CANDIDATES: usize = 64;

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "watt",
    source: "Vöhringer, Leis, PVLDB 16(11), 2023",
    cost: "O(sample)",
    parameters: &[
        Parameter {
            name: "sample",
            default: "8",
            takes: Domain::Whole(1, 4096),
            about: "pages of which the lowest value is taken",
        },
        Parameter {
            name: "epochs",
            default: "4",
            takes: Domain::Number(1e-6, f64::INFINITY),
            about: "epochs per replacement of the cache; inf for one per page",
        },
        Parameter {
            name: "write_weight",
            default: "4",
            takes: Domain::Number(0.0, 1e6),
            about: "weight of write frequency",
        },
        Parameter {
            name: "evict",
            default: "single",
            takes: Domain::Word(&["single", "listing"]),
            about: "the lowest of the sample, or all of 64 others at or below it",
        },
        Parameter {
            name: "age",
            default: "counted",
            takes: Domain::Word(&["counted", "plain"]),
            about: "whether the running epoch counts",
        },
        Parameter {
            name: "ties",
            default: "random",
            takes: Domain::Word(&["random", "newest"]),
            about: "which of equally valuable pages leaves: any, or the one loaded last",
        },
        watt_study::ACCESS_LOG,
        watt_study::WRITE_LOG,
        watt_study::DAMPENING,
        watt_study::AGGREGATE,
        watt_study::LOGGING,
    ],
    build: |setup| match Study::new(setup) {
        Some(study) => Box::new(Watt::new(setup, study)),
        None => {
            let watt = Engine { write_weight: setup.number("write_weight") as f32 };
            let trackers = PerFrame::new(setup.capacity, Tracker::default);
            Box::new(Watt::new(setup, OfEngine { watt, trackers }))
        }
    },
};

/// The engine's own tracking.
struct OfEngine {
    watt: Engine,
    trackers: PerFrame<Tracker>,
}

impl OfEngine {
    #[inline]
    fn visit(&self, frame: Frame, epoch: u32) -> Visit<'_> {
        let tracker = &self.trackers[frame];
        Visit { frame: FrameId(frame.0), tracker, epoch, page: None }
    }
}

impl Tracking for OfEngine {
    fn load(&mut self, frame: Frame, epoch: u32) {
        // WATT remembers nothing of pages, so any id will do.
        self.watt.on_load(self.visit(frame, epoch), PageId(0));
    }

    #[inline]
    fn track(&mut self, frame: Frame, epoch: u32, write: bool) {
        if write {
            self.watt.on_write(self.visit(frame, epoch));
        } else {
            self.watt.on_access(self.visit(frame, epoch));
        }
    }

    #[inline]
    fn value(&mut self, frame: Frame, now: u32) -> f32 {
        self.watt.value(&self.trackers[frame], now)
    }

    fn bytes(&self) -> f64 {
        50.0
    }
}

struct Watt<T> {
    tracking: T,
    sample: usize,
    listing: bool,
    /// Misses in an epoch.
    epoch_misses: usize,
    misses: usize,
    /// Whether a page was evicted yet.
    evicting: bool,
    epoch: u32,
    /// The number to add to ages: 1 if the running epoch counts.
    running: u32,
    rng: Rng,
    sampler: Sampler,
    pages: Vec<Page>,
    /// The time at which the page of each frame was loaded, in misses, if that decides between
    /// equal pages.
    loaded: Option<PerFrame<u64>>,
    loads: u64,
    /// Victims drawn ahead, with their values.
    plan: Plan<f32>,
}

impl<T: Tracking> Watt<T> {
    fn new(setup: &Setup, tracking: T) -> Self {
        Self {
            tracking,
            sample: setup.whole("sample"),
            listing: setup.word("evict") == "listing",
            epoch_misses: ((setup.capacity as f64 / setup.number("epochs")) as usize).max(1),
            misses: 0,
            evicting: false,
            epoch: FIRST_EPOCH,
            running: u32::from(setup.word("age") == "counted"),
            rng: Rng::new(setup.seed, 0),
            sampler: Sampler::new(setup.capacity),
            pages: Vec::new(),
            loaded: (setup.word("ties") == "newest").then(|| PerFrame::new(setup.capacity, || 0)),
            loads: 0,
            plan: Plan::new(),
        }
    }

    /// Whether `page` leaves before `other`, which is as valuable and was drawn before it.
    #[inline]
    fn first_of_equals(&self, pool: &Pool, page: Page, other: Page) -> bool {
        let loaded = self.loaded.as_ref();
        loaded.is_some_and(|loaded| loaded[pool.frame(page)] > loaded[pool.frame(other)])
    }

    fn value(&mut self, pool: &Pool, page: Page) -> f32 {
        self.tracking.value(pool.frame(page), self.epoch + self.running)
    }

    /// The least valuable page of a sample, without planned ones, with its value. The order of the
    /// sample is random, so the first of several is any of them.
    fn lowest(&mut self, pool: &Pool) -> Option<(f32, Page)> {
        let mut pages = std::mem::take(&mut self.pages);
        self.sampler.draw(pool, &mut self.rng, self.sample, &mut pages);
        let mut lowest: Option<(f32, Page)> = None;
        for page in &pages {
            if self.plan.has(*page) {
                continue;
            }
            let value = self.value(pool, *page);
            let lower = lowest.is_none_or(|(least, other)| {
                value < least || value == least && self.first_of_equals(pool, *page, other)
            });
            if lower {
                lowest = Some((value, *page));
            }
        }
        self.pages = pages;
        lowest
    }
}

impl<T: Tracking> Watt<T> {
    /// The next planned victim that was not used since: a use raises the value, time lowers it.
    fn planned(&mut self, pool: &Pool) -> Option<Page> {
        let mut plan = std::mem::take(&mut self.plan);
        let page = plan.pop(|page, value| pool.holds(page) && self.value(pool, page) <= *value);
        self.plan = plan;
        page
    }
}

impl<T: Tracking> Policy for Watt<T> {
    #[inline]
    fn hit(&mut self, access: Access, pool: &Pool) {
        self.plan.forget(access.page);
        self.tracking.track(pool.frame(access.page), self.epoch, access.write);
    }

    fn select(&mut self, pool: &Pool, victims: &mut Vec<Page>) {
        self.evicting = true;
        if let Some(page) = self.planned(pool) {
            victims.push(page);
            return;
        }
        let Some((threshold, page)) = self.lowest(pool) else { return };
        if !self.listing {
            victims.push(page);
            return;
        }
        let mut pages = std::mem::take(&mut self.pages);
        self.sampler.draw(pool, &mut self.rng, CANDIDATES, &mut pages);
        for page in &pages {
            if self.value(pool, *page) <= threshold {
                victims.push(*page);
            }
        }
        self.pages = pages;
        if victims.is_empty() {
            victims.push(page);
        }
    }

    fn fetch(&mut self, access: Access, pool: &Pool) {
        let frame = pool.frame(access.page);
        self.tracking.load(frame, self.epoch);
        self.loads += 1;
        if let Some(loaded) = &mut self.loaded {
            loaded[frame] = self.loads;
        }
        self.tracking.track(frame, self.epoch, access.write);
        // Batches are followed by misses without evictions; only the first fill does not count.
        self.misses += usize::from(!self.listing || self.evicting);
        if self.misses >= self.epoch_misses {
            self.misses = 0;
            self.epoch += 1;
        }
    }

    fn cannot_evict(&mut self, _: Page, _: &Pool) {}

    fn remove(&mut self, _: Page, _: &Pool) {}

    /// The victims of the next evictions, drawn ahead.
    fn upcoming(&mut self, pool: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        let mut plan = std::mem::take(&mut self.plan);
        plan.check(|page, value| pool.holds(page) && self.value(pool, page) <= *value);
        self.plan = plan;
        let mut more = self.plan.pages().all(&mut *take);
        while more && self.plan.has_room(pool) {
            if let Some((value, page)) = self.lowest(pool) {
                self.plan.push(page, value);
                more = take(page);
            }
        }
    }

    fn bytes_per_page(&self) -> f64 {
        self.tracking.bytes()
    }
}
