//! LRU: the page that was not used for the longest time leaves.
//!
//! Source: Gilbert, "Bottlenecks Uncovered" (2020), section 1.2.4. No parameters.

use crate::simulate::entry::PolicyEntry;
use crate::simulate::lists::Lists;
use crate::simulate::policy::{Access, Policy};
use crate::simulate::pool::{Page, Pool};

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "lru",
    source: "Gilbert 2020, section 1.2.4",
    cost: "O(1)",
    parameters: &[],
    build: |setup| Box::new(Lru { recency: Lists::new(setup.pages()) }),
};

struct Lru {
    recency: Lists<1>,
}

impl Policy for Lru {
    #[inline]
    fn hit(&mut self, access: Access, _: &Pool) {
        self.recency.move_to_front(0, access.page);
    }

    fn select(&mut self, _: &Pool, victims: &mut Vec<Page>) {
        victims.extend(self.recency.pop_back(0));
    }

    fn fetch(&mut self, access: Access, _: &Pool) {
        self.recency.push_front(0, access.page);
    }

    fn prefetched(&mut self, page: Page, _: &Pool) {
        self.recency.push_back(0, page);
    }

    fn cannot_evict(&mut self, page: Page, _: &Pool) {
        self.recency.push_front(0, page);
    }

    fn remove(&mut self, page: Page, _: &Pool) {
        self.recency.remove(page);
    }

    fn upcoming(&mut self, _: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        self.recency.from_back(0).all(take);
    }

    fn bytes_per_page(&self) -> f64 {
        24.0
    }
}
