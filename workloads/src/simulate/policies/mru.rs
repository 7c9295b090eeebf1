//! Quasi-MRU: the most recently used page leaves first. A use counts when it ends.
//!
//! Source: Gilbert, "Bottlenecks Uncovered" (2020), section 1.2.5.1. No parameters.

use crate::simulate::entry::PolicyEntry;
use crate::simulate::lists::Lists;
use crate::simulate::policy::{Access, Policy};
use crate::simulate::pool::{Page, Pool};

use super::fifo::Turns;

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "mru",
    source: "Gilbert 2020, section 1.2.5.1",
    cost: "O(1)",
    parameters: &[],
    build: |setup| Box::new(Mru { lists: Lists::new(setup.pages()), turns: Turns::default() }),
};

const STACK: usize = 0;
const RETRY: usize = 1;

struct Mru {
    lists: Lists<2>,
    turns: Turns,
}

impl Policy for Mru {
    fn hit(&mut self, _: Access, _: &Pool) {}

    fn select(&mut self, _: &Pool, victims: &mut Vec<Page>) {
        let retry = self.turns.retry(self.lists.len(STACK), self.lists.len(RETRY));
        victims.extend(match retry {
            true => self.lists.pop_back(RETRY),
            false => self.lists.pop_front(STACK),
        });
    }

    fn fetch(&mut self, access: Access, _: &Pool) {
        self.lists.push_front(STACK, access.page);
    }

    fn unfix(&mut self, page: Page, pool: &Pool) {
        if pool.holds(page) {
            self.lists.move_to_front(STACK, page);
        }
    }

    fn cannot_evict(&mut self, page: Page, _: &Pool) {
        self.lists.push_front(RETRY, page);
    }

    fn remove(&mut self, page: Page, _: &Pool) {
        self.lists.remove(page);
    }

    /// The page that comes in leaves first, so only pages that wait for a retry are known.
    fn upcoming(&mut self, _: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        self.lists.from_back(RETRY).all(take);
    }

    fn bytes_per_page(&self) -> f64 {
        24.0
    }
}
