//! RANDOM: any page may leave.
//!
//! Source: Gilbert, "Bottlenecks Uncovered" (2020), section 1.2.1; WATT, section 6.1. No
//! parameters.

use crate::rng::Rng;
use crate::simulate::entry::PolicyEntry;
use crate::simulate::policy::{Access, Policy, by_frame};
use crate::simulate::pool::{Page, Pool};

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "random",
    source: "Gilbert 2020, section 1.2.1",
    cost: "O(1)",
    parameters: &[],
    build: |setup| Box::new(Random { rng: Rng::new(setup.seed, 0) }),
};

struct Random {
    rng: Rng,
}

impl Policy for Random {
    fn hit(&mut self, _: Access, _: &Pool) {}

    fn select(&mut self, pool: &Pool, victims: &mut Vec<Page>) {
        victims.push(pool.draw(&mut self.rng));
    }

    fn fetch(&mut self, _: Access, _: &Pool) {}

    fn cannot_evict(&mut self, _: Page, _: &Pool) {}

    fn remove(&mut self, _: Page, _: &Pool) {}

    fn upcoming(&mut self, pool: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        by_frame(pool, self.rng.below(pool.capacity() as u64) as usize, take);
    }

    fn bytes_per_page(&self) -> f64 {
        0.0
    }
}
