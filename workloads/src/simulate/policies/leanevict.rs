//! LeanEvict: random pages go to a cooling queue; those that are used there become hot again, the
//! others leave at its end. Uses of hot pages cost nothing.
//!
//! Source: Leis, Haubenschild, Kemper, Neumann, "LeanStore: in-memory data management beyond main
//! memory", ICDE 2018, section III-B; Gilbert 2020, section 1.2.15, Algorithm 1.16, whose loop
//! would spin if no page can be cooled. The cooling share of 30 % is the one of WATT, section 4.1.
//!
//! Parameters: `cooling`, share of the cache that cools; `refill`, whether the queue is filled up
//! at every eviction (`always`) or when it is half empty (`half`, as in Algorithm 1.16).

use crate::rng::Rng;
use crate::simulate::entry::{Domain, Parameter, PolicyEntry};
use crate::simulate::lists::Lists;
use crate::simulate::policy::{Access, Policy};
use crate::simulate::pool::{Page, Pool};

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "leanevict",
    source: "Leis et al., ICDE 2018, section III-B",
    cost: "O(1) amortised",
    parameters: &[
        Parameter {
            name: "cooling",
            default: "0.3",
            takes: Domain::Number(0.0, 1.0),
            about: "cooling pages as a share of the cache",
        },
        Parameter {
            name: "refill",
            default: "always",
            takes: Domain::Word(&["always", "half"]),
            about: "when the cooling queue is filled up",
        },
    ],
    build: |setup| {
        Box::new(LeanEvict {
            cooling: Lists::new(setup.pages()),
            most: setup.share("cooling").max(1),
            late: setup.word("refill") == "half",
            rng: Rng::new(setup.seed, 0),
        })
    },
};

struct LeanEvict {
    cooling: Lists<1>,
    most: usize,
    late: bool,
    rng: Rng,
}

impl LeanEvict {
    fn refill(&mut self, pool: &Pool) {
        if self.late && self.cooling.len(0) >= self.most.div_ceil(2) {
            return;
        }
        let most = self.most.min(pool.len());
        while self.cooling.len(0) < most {
            let page = pool.draw(&mut self.rng);
            if !self.cooling.on(0, page) {
                self.cooling.push_front(0, page);
            }
        }
    }
}

impl Policy for LeanEvict {
    #[inline]
    fn hit(&mut self, access: Access, _: &Pool) {
        self.cooling.remove(access.page);
    }

    fn select(&mut self, pool: &Pool, victims: &mut Vec<Page>) {
        self.refill(pool);
        victims.extend(self.cooling.pop_back(0));
    }

    fn fetch(&mut self, _: Access, _: &Pool) {}

    fn cannot_evict(&mut self, page: Page, _: &Pool) {
        self.cooling.push_front(0, page);
    }

    fn remove(&mut self, page: Page, _: &Pool) {
        self.cooling.remove(page);
    }

    fn upcoming(&mut self, pool: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        self.refill(pool);
        let hot = pool.pages().filter(|page| !self.cooling.on(0, *page));
        self.cooling.from_back(0).chain(hot).all(take);
    }

    fn bytes_per_page(&self) -> f64 {
        // The value of WATT's table; only cooling pages need it.
        8.0
    }
}
