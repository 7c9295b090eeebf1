//! RANDOM: any page may leave.
//!
//! Source: Gilbert, "Bottlenecks Uncovered" (2020), section 1.2.1; WATT, section 6.1. No
//! parameters.

use crate::rng::Rng;
use crate::simulate::entry::PolicyEntry;
use crate::simulate::policy::{Access, Policy};
use crate::simulate::pool::{Page, Pool};
use crate::simulate::upcoming::Plan;

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "random",
    source: "Gilbert 2020, section 1.2.1",
    cost: "O(1)",
    parameters: &[],
    build: |setup| Box::new(Random { rng: Rng::new(setup.seed, 0), plan: Plan::new() }),
};

struct Random {
    rng: Rng,
    plan: Plan<()>,
}

impl Policy for Random {
    fn hit(&mut self, _: Access, _: &Pool) {}

    fn select(&mut self, pool: &Pool, victims: &mut Vec<Page>) {
        let planned = self.plan.pop(|page, ()| pool.holds(page));
        victims.push(planned.unwrap_or_else(|| pool.draw(&mut self.rng)));
    }

    fn fetch(&mut self, _: Access, _: &Pool) {}

    fn cannot_evict(&mut self, _: Page, _: &Pool) {}

    fn remove(&mut self, _: Page, _: &Pool) {}

    fn upcoming(&mut self, pool: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        self.plan.check(|page, ()| pool.holds(page));
        let mut more = self.plan.pages().all(&mut *take);
        while more && self.plan.has_room(pool) {
            let page = pool.draw(&mut self.rng);
            if !self.plan.has(page) {
                self.plan.push(page, ());
                more = take(page);
            }
        }
    }

    fn bytes_per_page(&self) -> f64 {
        0.0
    }
}
