//! ZCLOCK: CLOCK whose hand jumps to a random frame at every move: random replacement with a second
//! chance.
//!
//! Source: Gilbert, "Bottlenecks Uncovered" (2020), section 1.2.9. Parameter `ref_at_load`: the bit
//! of a page that was just loaded (0 in the variant that he evaluates).

use crate::rng::Rng;
use crate::simulate::entry::{Domain, Parameter, PolicyEntry};
use crate::simulate::policy::{Access, Policy};
use crate::simulate::pool::{Page, PerPage, Pool};
use crate::simulate::upcoming::Plan;

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "zclock",
    source: "Gilbert 2020, section 1.2.9",
    cost: "O(1) amortised",
    parameters: &[Parameter {
        name: "ref_at_load",
        default: "0",
        takes: Domain::Word(&["0", "1"]),
        about: "reference bit of a page that was just loaded",
    }],
    build: |setup| {
        Box::new(ZClock {
            referenced: PerPage::new(setup.pages(), false),
            ref_at_load: setup.word("ref_at_load") == "1",
            rng: Rng::new(setup.seed, 0),
            plan: Plan::new(),
        })
    },
};

struct ZClock {
    referenced: PerPage<bool>,
    ref_at_load: bool,
    rng: Rng,
    /// The next places of the hand.
    plan: Plan<()>,
}

impl ZClock {
    fn jump(&mut self, pool: &Pool) -> Page {
        let planned = self.plan.pop(|page, ()| pool.holds(page));
        planned.unwrap_or_else(|| pool.draw(&mut self.rng))
    }
}

impl Policy for ZClock {
    #[inline]
    fn hit(&mut self, access: Access, _: &Pool) {
        self.referenced[access.page] = true;
    }

    fn select(&mut self, pool: &Pool, victims: &mut Vec<Page>) {
        let mut page = self.jump(pool);
        while std::mem::take(&mut self.referenced[page]) {
            page = self.jump(pool);
        }
        victims.push(page);
    }

    fn fetch(&mut self, access: Access, _: &Pool) {
        self.referenced[access.page] = self.ref_at_load;
    }

    fn cannot_evict(&mut self, _: Page, _: &Pool) {}

    fn remove(&mut self, _: Page, _: &Pool) {}

    fn upcoming(&mut self, pool: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        self.plan.check(|page, ()| pool.holds(page));
        let referenced = &self.referenced;
        let mut more = self.plan.pages().all(|page| referenced[page] || take(page));
        while more && self.plan.has_room(pool) {
            let page = pool.draw(&mut self.rng);
            if !self.plan.has(page) {
                self.plan.push(page, ());
                more = referenced[page] || take(page);
            }
        }
    }

    fn bytes_per_page(&self) -> f64 {
        0.125
    }
}
