//! CFLRU: LRU that prefers clean pages within a window at its old end.
//!
//! Source: Park, Jung, Kang, Kim, Lee, "CFLRU: a replacement algorithm for flash memory", CASES
//! 2006, section 3. The window is 30 % as in WATT, section 4.1.
//!
//! Parameter `window`: the window as a share of the cache. A window of 0 is LRU.
//!
//! The clean pages of the window are on a separate list, so no eviction searches the window.

use crate::simulate::entry::{Domain, Parameter, PolicyEntry};
use crate::simulate::lists::Lists;
use crate::simulate::policy::{Access, Policy};
use crate::simulate::pool::{Page, PerPage, Pool};

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "cflru",
    source: "Park et al., CASES 2006, section 3",
    cost: "O(1)",
    parameters: &[Parameter {
        name: "window",
        default: "0.3",
        takes: Domain::Number(0.0, 1.0),
        about: "clean-first window as a share of the cache",
    }],
    build: |setup| {
        Box::new(Cflru {
            recency: Lists::new(setup.pages()),
            clean: Lists::new(setup.pages()),
            dirty: PerPage::new(setup.pages(), false),
            window: setup.share("window"),
        })
    },
};

const WORKING: usize = 0;
const WINDOW: usize = 1;

struct Cflru {
    /// The recency order in two parts, the older one being the window.
    recency: Lists<2>,
    /// The clean pages of the window.
    clean: Lists<1>,
    dirty: PerPage<bool>,
    window: usize,
}

impl Cflru {
    /// Makes the window as long as it should be.
    fn refill(&mut self) {
        while self.recency.len(WINDOW) < self.window {
            let Some(page) = self.recency.pop_back(WORKING) else { break };
            self.recency.push_front(WINDOW, page);
            if !self.dirty[page] {
                self.clean.push_front(0, page);
            }
        }
    }

    fn take_out(&mut self, page: Page) {
        self.recency.remove(page);
        self.clean.remove(page);
    }
}

impl Policy for Cflru {
    fn hit(&mut self, access: Access, _: &Pool) {
        self.take_out(access.page);
        self.dirty[access.page] |= access.write;
        self.recency.push_front(WORKING, access.page);
    }

    fn select(&mut self, _: &Pool, victims: &mut Vec<Page>) {
        // Only a full cache evicts, so the window need not be right before.
        self.refill();
        let oldest = self.recency.back(WINDOW).or(self.recency.back(WORKING));
        if let Some(page) = self.clean.back(0).or(oldest) {
            self.take_out(page);
            victims.push(page);
        }
    }

    fn fetch(&mut self, access: Access, _: &Pool) {
        self.dirty[access.page] = access.write;
        self.recency.push_front(WORKING, access.page);
    }

    fn prefetched(&mut self, page: Page, _: &Pool) {
        self.dirty[page] = false;
        if self.window == 0 {
            self.recency.push_back(WORKING, page);
        } else {
            self.recency.push_back(WINDOW, page);
            self.clean.push_back(0, page);
        }
    }

    fn cannot_evict(&mut self, page: Page, _: &Pool) {
        self.recency.push_front(WORKING, page);
    }

    fn remove(&mut self, page: Page, _: &Pool) {
        self.take_out(page);
    }

    fn cleaned(&mut self, page: Page, _: &Pool) {
        self.dirty[page] = false;
        if self.recency.on(WINDOW, page) {
            // Among the clean pages it goes before the next younger one.
            let younger =
                std::iter::successors(self.recency.before(page), |page| self.recency.before(*page));
            match younger.into_iter().find(|page| self.clean.on(0, *page)) {
                Some(younger) => match self.clean.after(younger) {
                    Some(older) => self.clean.insert_before(older, page),
                    None => self.clean.push_back(0, page),
                },
                None => self.clean.push_front(0, page),
            }
        }
    }

    fn upcoming(&mut self, _: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        self.refill();
        let dirty = self.recency.from_back(WINDOW).filter(|page| self.dirty[*page]);
        let rest = self.recency.from_back(WORKING);
        self.clean.from_back(0).chain(dirty).chain(rest).all(take);
    }

    fn bytes_per_page(&self) -> f64 {
        24.0
    }
}
