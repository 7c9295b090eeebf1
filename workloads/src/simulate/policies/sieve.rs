//! SIEVE: a queue in the order of loading; the hand moves from the oldest to the newest page,
//! clears the visited marks it meets and takes the first page without one. Pages that survive keep
//! their place.
//!
//! Source: Zhang, Yang, Yue, Vigfusson, Rashmi, "SIEVE is simpler than LRU", NSDI 2024, Algorithm
//! 1. No parameters.

use crate::simulate::entry::PolicyEntry;
use crate::simulate::lists::Lists;
use crate::simulate::policy::{Access, Policy};
use crate::simulate::pool::{Page, PerPage, Pool};

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "sieve",
    source: "Zhang et al., NSDI 2024, Algorithm 1",
    cost: "O(1) amortised",
    parameters: &[],
    build: |setup| {
        Box::new(Sieve {
            queue: Lists::new(setup.pages()),
            visited: PerPage::new(setup.pages(), false),
            hand: None,
        })
    },
};

struct Sieve {
    /// Newest at the front.
    queue: Lists<1>,
    visited: PerPage<bool>,
    /// The next page to look at; none is the oldest.
    hand: Option<Page>,
}

impl Policy for Sieve {
    #[inline]
    fn hit(&mut self, access: Access, _: &Pool) {
        self.visited[access.page] = true;
    }

    fn select(&mut self, _: &Pool, victims: &mut Vec<Page>) {
        let Some(mut page) = self.hand.or(self.queue.back(0)) else { return };
        while std::mem::take(&mut self.visited[page]) {
            let Some(next) = self.queue.before(page).or(self.queue.back(0)) else { return };
            page = next;
        }
        self.hand = self.queue.before(page);
        self.queue.remove(page);
        victims.push(page);
    }

    fn fetch(&mut self, access: Access, _: &Pool) {
        self.visited[access.page] = false;
        self.queue.push_front(0, access.page);
    }

    fn cannot_evict(&mut self, page: Page, _: &Pool) {
        self.visited[page] = true;
        self.queue.push_front(0, page);
    }

    fn remove(&mut self, page: Page, _: &Pool) {
        if self.hand == Some(page) {
            self.hand = self.queue.before(page);
        }
        self.queue.remove(page);
    }

    fn upcoming(&mut self, _: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        let from_hand = std::iter::successors(self.hand.or(self.queue.back(0)), |page| {
            self.queue.before(*page)
        });
        // The hand meets new pages before it begins again at the oldest one.
        from_hand.filter(|page| !self.visited[*page]).all(take);
    }

    fn bytes_per_page(&self) -> f64 {
        24.125
    }
}
