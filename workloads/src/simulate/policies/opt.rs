//! OPT: the page whose next use is farthest in the future leaves. No policy has fewer misses.
//!
//! Source: Bélády, "A study of replacement algorithms for a virtual-storage computer", IBM Systems
//! Journal 5(2), 1966 (MIN). It minimises misses and not writes. No parameters.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::simulate::entry::PolicyEntry;
use crate::simulate::policy::{Access, Policy};
use crate::simulate::pool::{Page, PerPage, Pool};
use crate::simulate::trace::NEVER;
use crate::simulate::upcoming::{Limit, by_least};

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "opt",
    source: "Bélády 1966 (MIN); knows the future",
    cost: "O(log cache)",
    parameters: &[],
    build: |setup| {
        Box::new(Opt {
            next_use: setup.trace.next_use().to_vec(),
            now: 0,
            due: {
                let mut due = PerPage::new(setup.pages(), NEVER);
                for (at, access) in setup.trace.accesses().enumerate() {
                    due[access.page] = due[access.page].min(at as u32);
                }
                due
            },
            farthest: BinaryHeap::with_capacity(setup.capacity * 2),
            limit: Limit::new(),
        })
    },
};

struct Opt {
    /// By position in the trace.
    next_use: Vec<u32>,
    now: usize,
    /// Next use of each page, whether it is cached or not.
    due: PerPage<u32>,
    /// Cached pages by next use. Entries of past uses stay until they are many.
    farthest: BinaryHeap<(u32, Page)>,
    /// Of the distances of victims from the largest number.
    limit: Limit,
}

impl Opt {
    fn advance(&mut self, page: Page, pool: &Pool) {
        self.due[page] = self.next_use[self.now];
        self.now += 1;
        self.note(page, pool);
    }

    fn note(&mut self, page: Page, pool: &Pool) {
        if self.farthest.len() >= 4 * pool.capacity() + 64 {
            self.farthest = pool.pages().map(|page| (self.due[page], page)).collect();
        }
        self.farthest.push((self.due[page], page));
    }
}

impl Policy for Opt {
    fn hit(&mut self, access: Access, pool: &Pool) {
        self.advance(access.page, pool);
    }

    fn select(&mut self, pool: &Pool, victims: &mut Vec<Page>) {
        while let Some((due, page)) = self.farthest.pop() {
            if pool.holds(page) && self.due[page] == due {
                self.limit.note(u32::MAX - due.saturating_sub(self.now as u32));
                victims.push(page);
                break;
            }
        }
    }

    fn fetch(&mut self, access: Access, pool: &Pool) {
        self.advance(access.page, pool);
    }

    fn prefetched(&mut self, page: Page, pool: &Pool) {
        // It was not used, so its next use stays the same.
        self.note(page, pool);
    }

    fn cannot_evict(&mut self, page: Page, _: &Pool) {
        // It goes back with a use that comes before all others, so that another one is tried.
        self.due[page] = 0;
        self.farthest.push((0, page));
    }

    fn remove(&mut self, _: Page, _: &Pool) {}

    /// Pages whose next use is as far as that of a recent victim. Pages that come in with a farther
    /// one leave before all others.
    fn upcoming(&mut self, pool: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        let nearest = u32::MAX - self.limit.highest();
        let due = |page: Page| self.due[page].saturating_sub(self.now as u32);
        by_least(pool, |page| Reverse(due(page)), &mut |page| due(page) >= nearest && take(page));
    }

    fn bytes_per_page(&self) -> f64 {
        12.0
    }
}
