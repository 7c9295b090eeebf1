//! Hyperbolic caching: of a random sample the page with the fewest uses per time since it was
//! loaded leaves.
//!
//! Source: Blankstein, Sen, Freedman, "Hyperbolic caching: flexible caching for web applications",
//! USENIX ATC 2017, section 2. The sample of 20 is the one of WATT, section 4.1.
//!
//! Parameters: `sample`; `product`: `exact`, or `32-bit`, where pages are compared by the product
//! of the uses of one and the age of the other, modulo 2^32, as the simulator of the WATT paper
//! does.

use crate::rng::Rng;
use crate::simulate::entry::{Domain, Parameter, PolicyEntry};
use crate::simulate::policy::{Access, Policy};
use crate::simulate::pool::{Page, PerPage, Pool, Sampler};
use crate::simulate::upcoming::Plan;

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "hyperbolic",
    source: "Blankstein, Sen, Freedman, USENIX ATC 2017, section 2",
    cost: "O(sample)",
    parameters: &[
        Parameter {
            name: "sample",
            default: "20",
            takes: Domain::Whole(1, 4096),
            about: "pages of which the lowest value is taken",
        },
        Parameter {
            name: "product",
            default: "exact",
            takes: Domain::Word(&["exact", "32-bit"]),
            about: "whether comparisons overflow",
        },
    ],
    build: |setup| {
        Box::new(Hyperbolic {
            sample: setup.whole("sample"),
            overflow: setup.word("product") == "32-bit",
            now: 0,
            pages: PerPage::new(setup.pages(), Uses { loaded: 0, count: 0 }),
            rng: Rng::new(setup.seed, 0),
            sampler: Sampler::new(setup.capacity),
            drawn: Vec::new(),
            plan: Plan::new(),
        })
    },
};

#[derive(Clone, Copy, Debug, PartialEq)]
struct Uses {
    loaded: u32,
    count: u32,
}

struct Hyperbolic {
    sample: usize,
    overflow: bool,
    /// Accesses so far.
    now: u32,
    pages: PerPage<Uses>,
    rng: Rng,
    sampler: Sampler,
    drawn: Vec<Page>,
    /// Victims drawn ahead, with their uses.
    plan: Plan<Uses>,
}

impl Hyperbolic {
    /// The lowest of a sample of pages that are not planned.
    fn lowest(&mut self, pool: &Pool) -> Option<Page> {
        self.sampler.draw(pool, &mut self.rng, self.sample, &mut self.drawn);
        let uses = |page: Page| {
            let Uses { loaded, count } = self.pages[page];
            (count, self.now - loaded + 1)
        };
        let lower = |a: (u32, u32), b: (u32, u32)| match self.overflow {
            true => a.0.wrapping_mul(b.1) < b.0.wrapping_mul(a.1),
            false => u64::from(a.0) * u64::from(b.1) < u64::from(b.0) * u64::from(a.1),
        };
        let free = self.drawn.iter().copied().filter(|page| !self.plan.has(*page));
        free.reduce(|lowest, page| if lower(uses(page), uses(lowest)) { page } else { lowest })
    }
}

impl Policy for Hyperbolic {
    fn hit(&mut self, access: Access, _: &Pool) {
        self.now += 1;
        self.pages[access.page].count += 1;
    }

    fn select(&mut self, pool: &Pool, victims: &mut Vec<Page>) {
        let pages = &self.pages;
        let planned = self.plan.pop(|page, uses| pool.holds(page) && pages[page] == *uses);
        victims.extend(planned.or_else(|| self.lowest(pool)));
    }

    fn fetch(&mut self, access: Access, _: &Pool) {
        self.now += 1;
        self.pages[access.page] = Uses { loaded: self.now, count: 1 };
    }

    fn cannot_evict(&mut self, page: Page, _: &Pool) {
        self.pages[page].count += 1;
    }

    fn remove(&mut self, _: Page, _: &Pool) {}

    fn upcoming(&mut self, pool: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        let pages = &self.pages;
        self.plan.check(|page, uses| pool.holds(page) && pages[page] == *uses);
        let mut more = self.plan.pages().all(&mut *take);
        while more && self.plan.has_room(pool) {
            if let Some(page) = self.lowest(pool) {
                self.plan.push(page, self.pages[page]);
                more = take(page);
            }
        }
    }

    fn bytes_per_page(&self) -> f64 {
        8.0
    }
}
