//! A policy of the engine in the simulator: the same trackers, values and orders
//! (`wattle_buffer::replacement`) over simulated frames, as `live(NAME)` or
//! `live(NAME:key=value,..)`.
//!
//! Pages leave as in the engine: in batches of 1/128 of the cache, at least 4 and at most 512. A
//! policy with an order proposes them. Of one with a value, the lowest of a sample of 8 is the
//! threshold, and those of 64 other pages at or below it leave (WATT, Listing 2). The clock counts
//! evictions. Differences from the engine: every access of an inner page is reported, frames are
//! filled at once, and the evictor needs no time.

use wattle_buffer::replacement::{
    FIRST_EPOCH, Frames, Leave, Policy as EnginePolicy, Standing, Tracker, Visit,
};
use wattle_buffer::{FrameId, PageId};

use super::entry::{Domain, Parameter, PolicyEntry, Setup};
use super::policy::{Access, Policy};
use super::pool::{Frame, Page, PerFrame, Pool};
use crate::rng::Rng;

/// Frames sampled for the threshold.
const SAMPLE: usize = 8;
/// Candidates of a round.
const CANDIDATES: usize = 64;
/// The name of the parameter that holds the policy of the engine.
pub const ENGINE_POLICY: &str = "policy";

/// The entry of all policies of the engine.
pub static ENTRY: PolicyEntry = PolicyEntry {
    name: "live",
    source: "the engine",
    cost: "that of the policy of the engine",
    parameters: &[Parameter {
        name: ENGINE_POLICY,
        default: "watt",
        takes: Domain::Word(&["a policy of the engine"]),
        about: "the policy of the engine with its parameters",
    }],
    build: |setup| Box::new(Live::new(setup)),
};

/// Checks the name and the parameters of a policy of the engine.
pub fn check(text: &str) -> Result<(), String> {
    EnginePolicy::parse(text, 1 << 20).map(|_| ()).map_err(|error| error.to_string())
}

struct Live {
    policy: EnginePolicy,
    trackers: PerFrame<Tracker>,
    /// Frames of pages that were chosen and are in the pool until `select` ends.
    leaving: Vec<Page>,
    /// Victims that were chosen ahead for ACE, and not used since.
    planned: Vec<Page>,
    /// Frames that the order of the policy proposes.
    proposed: Vec<FrameId>,
    epoch: u32,
    /// Evictions in an epoch, and those of the running one.
    step: u64,
    evictions: u64,
    batch: usize,
    rng: Rng,
}

/// The frames of the simulated pool, for an order.
struct View<'a> {
    pool: &'a Pool,
    trackers: &'a PerFrame<Tracker>,
    leaving: &'a [Page],
    epoch: u32,
}

impl Frames for View<'_> {
    fn count(&self) -> usize {
        self.pool.capacity()
    }

    fn epoch(&self) -> u32 {
        self.epoch
    }

    fn tracker(&self, frame: FrameId) -> &Tracker {
        &self.trackers[Frame(frame.0)]
    }

    fn standing(&self, frame: FrameId) -> Standing {
        match self.pool.page(Frame(frame.0)) {
            None => Standing::Empty,
            Some(page) if self.leaving.contains(&page) => Standing::Empty,
            Some(page) if self.pool.is_dirty(page) => Standing::Dirty,
            Some(_) => Standing::Clean,
        }
    }
}

impl Live {
    fn new(setup: &Setup) -> Live {
        let text = setup.word(ENGINE_POLICY);
        let (policy, epochs) = EnginePolicy::parse(text, setup.capacity)
            .expect("the policy was checked when it was read, and fits into every pool");
        Live {
            policy,
            trackers: PerFrame::new(setup.capacity, Tracker::default),
            leaving: Vec::new(),
            planned: Vec::new(),
            proposed: Vec::new(),
            epoch: FIRST_EPOCH,
            step: ((setup.capacity as f64 / epochs) as u64).max(1),
            evictions: 0,
            batch: (setup.capacity / 128).clamp(4, 512).min(setup.capacity),
            rng: Rng::new(setup.seed, 0),
        }
    }

    fn visit(&self, frame: Frame) -> Visit<'_> {
        let tracker = &self.trackers[frame];
        Visit { frame: FrameId(frame.0), tracker, epoch: self.epoch, page: None }
    }

    fn value(&self, pool: &Pool, page: Page) -> f32 {
        self.policy.value(&self.trackers[pool.frame(page)], self.epoch)
    }

    /// The next pages by value; one at least.
    fn leave_by_value(&mut self, pool: &Pool) {
        let mut lowest: Option<(f32, Page)> = None;
        for _ in 0..SAMPLE {
            let page = pool.draw(&mut self.rng);
            let value = self.value(pool, page);
            let lower = lowest.is_none_or(|(least, _)| value < least);
            if lower && !self.leaving.contains(&page) {
                lowest = Some((value, page));
            }
        }
        let Some((threshold, page)) = lowest else { return };
        let before = self.leaving.len();
        for _ in 0..CANDIDATES {
            let page = pool.draw(&mut self.rng);
            if self.value(pool, page) <= threshold && !self.leaving.contains(&page) {
                self.leaving.push(page);
            }
        }
        if self.leaving.len() == before {
            self.leaving.push(page);
        }
    }

    /// The next pages in the order of the policy.
    fn leave_in_order(&mut self, batch: usize, pool: &Pool) {
        let order = self.policy.order().expect("an order");
        let view =
            View { pool, trackers: &self.trackers, leaving: &self.leaving, epoch: self.epoch };
        self.proposed.clear();
        order.propose(&view, batch - self.leaving.len(), &mut self.proposed);
        let pages = self.proposed.iter().filter_map(|frame| pool.page(Frame(frame.0)));
        self.leaving.extend(pages);
    }

    /// Chooses until a batch leaves, with those that are chosen already. A few rounds may find
    /// nothing, as those of a hand that only lowers counts.
    fn choose(&mut self, batch: usize, pool: &Pool) {
        for _ in 0..1 << 16 {
            if self.leaving.len() >= batch {
                break;
            }
            match self.policy.order() {
                Some(_) => self.leave_in_order(batch, pool),
                None => self.leave_by_value(pool),
            }
        }
    }

    fn used(&mut self, access: Access, frame: Frame) {
        if !self.planned.is_empty() {
            self.planned.retain(|page| *page != access.page);
        }
        if access.write {
            self.policy.on_write(self.visit(frame));
        } else {
            self.policy.on_access(self.visit(frame));
        }
    }

    fn left(&mut self, page: Page, pool: &Pool, how: Leave) {
        self.policy.on_leave(self.visit(pool.frame(page)), PageId(u64::from(page.0)), how);
    }
}

impl Policy for Live {
    fn hit(&mut self, access: Access, pool: &Pool) {
        self.used(access, pool.frame(access.page));
    }

    fn select(&mut self, pool: &Pool, victims: &mut Vec<Page>) {
        self.leaving.clear();
        let planned = self.planned.len().min(self.batch);
        self.leaving.extend(self.planned.drain(..planned));
        self.choose(self.batch.min(pool.len()), pool);
        for page in std::mem::take(&mut self.leaving) {
            self.left(page, pool, Leave::Evicted);
            victims.push(page);
        }
        self.evictions += victims.len() as u64;
        if self.evictions >= self.step {
            self.evictions -= self.step;
            self.epoch += 1;
        }
    }

    fn fetch(&mut self, access: Access, pool: &Pool) {
        let frame = pool.frame(access.page);
        self.policy.on_load(self.visit(frame), PageId(u64::from(access.page.0)));
        self.used(access, frame);
    }

    fn cannot_evict(&mut self, page: Page, pool: &Pool) {
        // It was reported to have left.
        self.policy.on_load(self.visit(pool.frame(page)), PageId(u64::from(page.0)));
        self.policy.on_access(self.visit(pool.frame(page)));
    }

    fn remove(&mut self, page: Page, pool: &Pool) {
        self.planned.retain(|planned| *planned != page);
        self.left(page, pool, Leave::Dropped);
    }

    fn upcoming(&mut self, pool: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        const MOST: usize = 256;
        self.leaving.clear();
        self.leaving.append(&mut self.planned);
        let (mut offered, mut more) = (0, true);
        while more {
            more = self.leaving[offered..].iter().all(|page| {
                offered += 1;
                take(*page)
            });
            let before = self.leaving.len();
            if more && before + self.batch <= MOST.min(pool.len() / 2) {
                self.choose(before + self.batch, pool);
            }
            more &= self.leaving.len() > before;
        }
        self.planned.append(&mut self.leaving);
    }

    fn bytes_per_page(&self) -> f64 {
        size_of::<Tracker>() as f64
    }
}
