//! FIFO: the page that came first leaves first, however often it was used.
//!
//! Source: Gilbert, "Bottlenecks Uncovered" (2020), section 1.2.2 (Quasi-FIFO): a victim that
//! cannot leave waits in a retry queue, which is tried once for every hundredth of the queue. No
//! parameters.

use crate::simulate::entry::PolicyEntry;
use crate::simulate::lists::Lists;
use crate::simulate::policy::{Access, Policy};
use crate::simulate::pool::{Page, Pool};

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "fifo",
    source: "Gilbert 2020, section 1.2.2.2",
    cost: "O(1)",
    parameters: &[],
    build: |setup| Box::new(Fifo { lists: Lists::new(setup.pages()), turns: Turns::default() }),
};

const QUEUE: usize = 0;
const RETRY: usize = 1;

struct Fifo {
    lists: Lists<2>,
    turns: Turns,
}

/// Alternates between the main list and the retry queue (Algorithm 1.1): it tries a hundredth of
/// the main list, then all of the retry queue.
#[derive(Debug, Default)]
pub(super) struct Turns {
    retrying: bool,
    tried: usize,
}

impl Turns {
    /// Whether the next victim comes from the retry queue, given the lengths of both.
    pub(super) fn retry(&mut self, main: usize, retry: usize) -> bool {
        let enough = match self.retrying {
            true => self.tried >= retry,
            false => self.tried as f64 >= 0.01 * main as f64,
        };
        if enough {
            self.retrying = !self.retrying;
            self.tried = 0;
        }
        self.tried += 1;
        (self.retrying && retry > 0) || main == 0
    }
}

impl Policy for Fifo {
    fn hit(&mut self, _: Access, _: &Pool) {}

    fn select(&mut self, _: &Pool, victims: &mut Vec<Page>) {
        let retry = self.turns.retry(self.lists.len(QUEUE), self.lists.len(RETRY));
        victims.extend(self.lists.pop_back(if retry { RETRY } else { QUEUE }));
    }

    fn fetch(&mut self, access: Access, _: &Pool) {
        self.lists.push_front(QUEUE, access.page);
    }

    fn cannot_evict(&mut self, page: Page, _: &Pool) {
        self.lists.push_front(RETRY, page);
    }

    fn remove(&mut self, page: Page, _: &Pool) {
        self.lists.remove(page);
    }

    fn upcoming(&mut self, _: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        self.lists.from_back(QUEUE).all(take);
    }

    fn bytes_per_page(&self) -> f64 {
        8.0
    }
}
