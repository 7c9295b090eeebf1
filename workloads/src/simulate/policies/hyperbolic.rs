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
use crate::simulate::policy::{Access, Policy, by_frame};
use crate::simulate::pool::{Page, PerPage, Pool, Sampler};

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
        })
    },
};

#[derive(Clone, Copy, Debug)]
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
}

impl Policy for Hyperbolic {
    fn hit(&mut self, access: Access, _: &Pool) {
        self.now += 1;
        self.pages[access.page].count += 1;
    }

    fn select(&mut self, pool: &Pool, victims: &mut Vec<Page>) {
        self.sampler.draw(pool, &mut self.rng, self.sample, &mut self.drawn);
        let uses = |page: Page| {
            let Uses { loaded, count } = self.pages[page];
            (count, self.now - loaded + 1)
        };
        let lower = |a: (u32, u32), b: (u32, u32)| match self.overflow {
            true => a.0.wrapping_mul(b.1) < b.0.wrapping_mul(a.1),
            false => u64::from(a.0) * u64::from(b.1) < u64::from(b.0) * u64::from(a.1),
        };
        let lowest = self
            .drawn
            .iter()
            .copied()
            .reduce(|lowest, page| if lower(uses(page), uses(lowest)) { page } else { lowest });
        victims.extend(lowest);
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
        by_frame(pool, self.rng.below(pool.capacity() as u64) as usize, take);
    }

    fn bytes_per_page(&self) -> f64 {
        8.0
    }
}
