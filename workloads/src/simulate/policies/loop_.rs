//! LOOP: a counter runs around the frames; the page that it points at leaves.
//!
//! Source: Gilbert, "Bottlenecks Uncovered" (2020), section 1.2.2.1. No parameters.

use crate::simulate::entry::PolicyEntry;
use crate::simulate::policy::{Access, Policy, by_frame};
use crate::simulate::pool::{Frame, Page, Pool};

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "loop",
    source: "Gilbert 2020, section 1.2.2.1",
    cost: "O(1)",
    parameters: &[],
    build: |_| Box::new(Loop { next: 0 }),
};

struct Loop {
    next: usize,
}

impl Policy for Loop {
    fn hit(&mut self, _: Access, _: &Pool) {}

    fn select(&mut self, pool: &Pool, victims: &mut Vec<Page>) {
        while victims.is_empty() && !pool.is_empty() {
            victims.extend(pool.page(Frame(self.next as u32)));
            self.next = (self.next + 1) % pool.capacity();
        }
    }

    fn fetch(&mut self, _: Access, _: &Pool) {}

    fn cannot_evict(&mut self, _: Page, _: &Pool) {}

    fn remove(&mut self, _: Page, _: &Pool) {}

    fn upcoming(&mut self, pool: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        by_frame(pool, self.next, take);
    }

    fn bytes_per_page(&self) -> f64 {
        0.0
    }
}
