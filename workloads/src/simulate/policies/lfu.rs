//! LFU: the page with the fewest uses since it was loaded leaves; of several, the one that has had
//! this number of uses for the longest time.
//!
//! Source: Gilbert 2020, section 1.2.13, with lists by frequency instead of his linear search (as
//! Shah, Mitra, Matani, "An O(1) algorithm for implementing the LFU cache eviction scheme", 2010).
//! No parameters.

use crate::simulate::entry::PolicyEntry;
use crate::simulate::policy::{Access, Policy};
use crate::simulate::pool::{Page, Pool};

use super::buckets::Buckets;

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "lfu",
    source: "Gilbert 2020, section 1.2.13",
    cost: "O(1)",
    parameters: &[],
    build: |setup| Box::new(Lfu { uses: Buckets::new(setup.pages()) }),
};

struct Lfu {
    uses: Buckets,
}

impl Policy for Lfu {
    fn hit(&mut self, access: Access, _: &Pool) {
        let uses = self.uses.of(access.page);
        self.uses.put(access.page, uses + 1);
    }

    fn select(&mut self, _: &Pool, victims: &mut Vec<Page>) {
        victims.extend(self.uses.pop_lowest().map(|(page, _)| page));
    }

    fn fetch(&mut self, access: Access, _: &Pool) {
        self.uses.put(access.page, 1);
    }

    fn cannot_evict(&mut self, page: Page, _: &Pool) {
        let uses = self.uses.of(page);
        self.uses.put(page, uses + 1);
    }

    fn remove(&mut self, page: Page, _: &Pool) {
        self.uses.remove(page);
    }

    /// Pages that were used once. Those with more uses stay as long as new pages come in.
    fn upcoming(&mut self, _: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        self.uses.ascending().take_while(|page| self.uses.of(*page) == 1).all(take);
    }

    fn bytes_per_page(&self) -> f64 {
        28.0
    }
}
