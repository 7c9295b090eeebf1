//! CLOCK-Pro: LIRS on one clock. Hot pages, cold pages and evicted cold pages in their test period
//! are on one circle with three hands; a cold page that is used again within its test period
//! becomes hot.
//!
//! Source: Jiang, Chen, Zhang, "CLOCK-Pro: an effective improvement of the CLOCK replacement",
//! USENIX ATC 2005, section 4.
//!
//! Parameter `cold`: share of the cache for cold pages at the start; it adapts by one page whenever
//! a test period ends.
//!
//! The circle is a list whose back is where the hand of hot pages is and whose front is the list
//! head.

use crate::simulate::entry::{Domain, Parameter, PolicyEntry};
use crate::simulate::lists::Lists;
use crate::simulate::policy::{Access, Policy};
use crate::simulate::pool::{Page, PerPage, Pool};

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "clock-pro",
    source: "Jiang, Chen, Zhang, USENIX ATC 2005, section 4",
    cost: "O(1) amortised",
    parameters: &[Parameter {
        name: "cold",
        default: "0.01",
        takes: Domain::Number(0.0, 1.0),
        about: "share of cold pages at the start",
    }],
    build: |setup| {
        Box::new(ClockPro {
            circle: Lists::new(setup.pages()),
            status: PerPage::new(setup.pages(), Status::default()),
            cold_hand: None,
            test_hand: None,
            hot: 0,
            cold: 0,
            gone: 0,
            cold_target: setup.share("cold").max(1),
            capacity: setup.capacity,
        })
    },
};

#[derive(Clone, Copy, Debug, Default)]
struct Status {
    hot: bool,
    cached: bool,
    referenced: bool,
    in_test: bool,
}

struct ClockPro {
    circle: Lists<1>,
    status: PerPage<Status>,
    cold_hand: Option<Page>,
    test_hand: Option<Page>,
    hot: usize,
    cold: usize,
    /// Evicted pages in their test period.
    gone: usize,
    /// The paper's m_c.
    cold_target: usize,
    capacity: usize,
}

impl ClockPro {
    /// The page after `page` on the way of the hands.
    fn next(&self, page: Page) -> Option<Page> {
        self.circle.before(page).or(self.circle.back(0)).filter(|next| *next != page)
    }

    /// Removes `page` from the circle; hands that point at it move on.
    fn take_off(&mut self, page: Page) {
        if !self.circle.on(0, page) {
            return;
        }
        let next = self.next(page);
        for hand in [&mut self.cold_hand, &mut self.test_hand] {
            if *hand == Some(page) {
                *hand = next;
            }
        }
        self.circle.remove(page);
    }

    fn put_at_head(&mut self, page: Page) {
        self.take_off(page);
        self.circle.push_front(0, page);
    }

    /// A test period ended without a use.
    fn test_failed(&mut self) {
        self.cold_target = (self.cold_target - 1).max(1);
    }

    /// A test period ended with a use.
    fn test_passed(&mut self) {
        self.cold_target = (self.cold_target + 1).min(self.capacity);
    }

    /// Removes an evicted page whose test period is over.
    fn forget(&mut self, page: Page) {
        self.take_off(page);
        self.status[page] = Status::default();
        self.gone -= 1;
        self.test_failed();
    }

    /// Turns one hot page cold; ends the test periods of all pages that the hand passes.
    fn run_hot_hand(&mut self) {
        while self.hot > 0 {
            let Some(page) = self.circle.back(0) else { return };
            let status = &mut self.status[page];
            if !status.hot && !status.cached {
                self.forget(page);
                continue;
            }
            let turned = status.hot && !status.referenced;
            if status.hot {
                status.referenced = false;
                status.hot = !turned;
            } else if std::mem::take(&mut status.in_test) {
                self.test_failed();
            }
            // A passed page does not change the circle, only its cut.
            self.circle.move_to_front(0, page);
            if turned {
                self.hot -= 1;
                self.cold += 1;
                return;
            }
        }
    }

    /// Forgets one evicted page; ends the test periods of cold pages that the hand passes.
    fn run_test_hand(&mut self) {
        while self.gone > 0 {
            let Some(page) = self.test_hand.or(self.circle.back(0)) else { return };
            self.test_hand = self.next(page);
            let status = &mut self.status[page];
            if !status.hot && !status.cached {
                return self.forget(page);
            }
            if !status.hot && std::mem::take(&mut status.in_test) {
                self.test_failed();
            }
        }
    }

    fn make_hot(&mut self, page: Page) {
        self.status[page] = Status { hot: true, cached: true, ..Status::default() };
        self.hot += 1;
        self.put_at_head(page);
        while self.hot > self.capacity - self.cold_target && self.hot > 0 {
            self.run_hot_hand();
        }
    }
}

impl Policy for ClockPro {
    #[inline]
    fn hit(&mut self, access: Access, _: &Pool) {
        self.status[access.page].referenced = true;
    }

    /// Runs the hand of cold pages.
    fn select(&mut self, _: &Pool, victims: &mut Vec<Page>) {
        loop {
            if self.cold == 0 {
                self.run_hot_hand();
            }
            let Some(page) = self.cold_hand.or(self.circle.back(0)) else { return };
            self.cold_hand = self.next(page);
            let status = &mut self.status[page];
            if status.hot || !status.cached {
                continue;
            }
            if std::mem::take(&mut status.referenced) {
                if status.in_test {
                    self.cold -= 1;
                    self.test_passed();
                    self.make_hot(page);
                } else {
                    status.in_test = true;
                    self.put_at_head(page);
                }
                continue;
            }
            status.cached = false;
            self.cold -= 1;
            if status.in_test {
                self.gone += 1;
                while self.gone > self.capacity {
                    self.run_test_hand();
                }
            } else {
                self.take_off(page);
            }
            victims.push(page);
            return;
        }
    }

    fn fetch(&mut self, access: Access, _: &Pool) {
        let page = access.page;
        if self.circle.on(0, page) {
            self.gone -= 1;
            self.test_passed();
            self.make_hot(page);
        } else if self.hot + self.cold < self.capacity
            && self.hot < self.capacity - self.cold_target
            && self.cold == 0
        {
            // The first pages become hot until there are enough hot pages.
            self.make_hot(page);
        } else {
            self.status[page] = Status { cached: true, in_test: true, ..Status::default() };
            self.cold += 1;
            self.circle.push_front(0, page);
        }
    }

    fn cannot_evict(&mut self, page: Page, _: &Pool) {
        if self.circle.on(0, page) {
            self.gone -= 1;
        }
        self.make_hot(page);
    }

    fn remove(&mut self, page: Page, _: &Pool) {
        self.take_off(page);
        let status = std::mem::take(&mut self.status[page]);
        self.hot -= usize::from(status.hot);
        self.cold -= usize::from(status.cached && !status.hot);
    }

    fn upcoming(&mut self, _: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        let hand = self.cold_hand.or(self.circle.back(0));
        let from_hand = std::iter::successors(hand, |page| self.circle.before(*page));
        let before_hand = self.circle.from_back(0).take_while(|page| Some(*page) != hand);
        let way: Vec<Page> = from_hand.chain(before_hand).collect();
        let leaves = |page: &&Page| {
            let status = self.status[**page];
            status.cached && !status.hot && !status.referenced
        };
        way.iter().filter(leaves).copied().all(take);
    }

    fn bytes_per_page(&self) -> f64 {
        // List entries for the cached and as many evicted pages.
        48.5
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::misses_of;

    #[test]
    fn a_loop_that_does_not_fit_keeps_most_of_the_cache() {
        // LRU and CLOCK miss every access of such a loop.
        let trace: Vec<u64> = (0..2000).map(|access| access % 25).collect();
        let missed = misses_of("clock-pro", 20, &trace).len();
        assert!(missed < 800, "{missed}");
        assert_eq!(misses_of("clock", 20, &trace).len(), 2000);
    }
}
