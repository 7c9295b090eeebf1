//! FOR+: FOR in constant time. Operations are on one LRU list in two parts; a read that comes back
//! while it is in the upper part, and a write that comes back while it is in either, mark their
//! page as hot. Cold pages leave by LRU.
//!
//! Source: Lv, Cui, He, Chen, "Operation-aware buffer management in flash-based systems", SIGMOD
//! 2011, section 4.2, Algorithms 2 to 4. The lengths of the two parts are kept in the proportion of
//! the costs of reads and writes. While the cache fills, the share of cold pages is of the pages
//! that are there.
//!
//! Parameter `cold`: share of the cache that is kept cold (the paper's R_cold).

use crate::simulate::entry::{Domain, Parameter, PolicyEntry};
use crate::simulate::lists::Lists;
use crate::simulate::policy::{Access, Policy};
use crate::simulate::pool::{Page, PerPage, Pool};

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "for+",
    source: "Lv, Cui, He, Chen, SIGMOD 2011, Algorithms 2 to 4",
    cost: "O(1) amortised",
    parameters: &[Parameter {
        name: "cold",
        default: "0.1",
        takes: Domain::Number(0.0, 1.0),
        about: "share of the cache that is kept cold",
    }],
    build: |setup| {
        Box::new(ForPlus {
            operations: Lists::new(2 * setup.pages()),
            cold: Lists::new(setup.pages()),
            marks: PerPage::new(setup.pages(), Marks::default()),
            cold_share: setup.number("cold"),
            read: setup.device.read_us,
            write: setup.device.write_us,
        })
    },
};

const UPPER: usize = 0;
const LOWER: usize = 1;

#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    cached: bool,
    dirty: bool,
    /// The paper's RH.
    reads_hot: bool,
    /// The paper's WDH.
    writes_hot: bool,
}

impl Marks {
    fn is_cold(self) -> bool {
        !(self.reads_hot || self.dirty && self.writes_hot)
    }
}

struct ForPlus {
    /// Reads and writes of all pages: number 2 * page for its read, and 1 more for its write.
    operations: Lists<2>,
    /// The cold page index.
    cold: Lists<1>,
    marks: PerPage<Marks>,
    cold_share: f64,
    read: f64,
    write: f64,
}

impl ForPlus {
    /// Algorithm 2 from line 8 on.
    fn perform(&mut self, access: Access, pool: &Pool) {
        let Access { page, write } = access;
        let operation = Page(2 * page.0 + u32::from(write));
        let part = self.operations.of(operation);
        let marks = &mut self.marks[page];
        if write {
            marks.dirty = true;
            marks.writes_hot |= part.is_some();
        } else {
            marks.reads_hot |= part == Some(UPPER);
        }
        let is_cold = marks.is_cold();
        self.operations.remove(operation);
        self.operations.push_front(UPPER, operation);
        if self.cold.on(0, page) {
            self.cold.remove(page);
            if is_cold {
                self.cold.push_front(0, page);
            }
        }
        // A hot page need not be in the index; a page that has become cold is added below.
        if (self.cold.len(0) as f64) < self.cold_share * pool.len() as f64 {
            self.compensate(pool);
        }
    }

    /// Algorithm 4: shrinks the two parts until a hot page is cold.
    fn compensate(&mut self, pool: &Pool) {
        while self.cold.len(0) < pool.len() {
            let (upper, lower) = (self.operations.len(UPPER), self.operations.len(LOWER));
            let from_upper = upper as f64 / self.read > lower as f64 / self.write;
            let Some(operation) = self.operations.pop_back(if from_upper { UPPER } else { LOWER })
            else {
                return;
            };
            let (page, write) = (Page(operation.0 / 2), operation.0 % 2 == 1);
            let marks = &mut self.marks[page];
            if from_upper {
                self.operations.push_front(LOWER, operation);
                marks.reads_hot &= write;
            } else {
                marks.writes_hot &= !write;
            }
            if marks.cached && marks.is_cold() && !self.cold.on(0, page) {
                self.cold.push_front(0, page);
                return;
            }
        }
    }
}

impl Policy for ForPlus {
    fn hit(&mut self, access: Access, pool: &Pool) {
        self.perform(access, pool);
    }

    fn select(&mut self, pool: &Pool, victims: &mut Vec<Page>) {
        if self.cold.is_empty(0) {
            self.compensate(pool);
        }
        if let Some(page) = self.cold.pop_back(0).or_else(|| pool.pages().next()) {
            self.marks[page] = Marks::default();
            victims.push(page);
        }
    }

    fn fetch(&mut self, access: Access, pool: &Pool) {
        // The page is cold unless its operation makes it hot.
        self.marks[access.page] = Marks { cached: true, ..Marks::default() };
        self.cold.push_front(0, access.page);
        self.perform(access, pool);
    }

    fn cannot_evict(&mut self, page: Page, pool: &Pool) {
        let dirty = pool.is_dirty(page);
        self.marks[page] = Marks { cached: true, dirty, ..Marks::default() };
        self.cold.push_front(0, page);
    }

    fn remove(&mut self, page: Page, _: &Pool) {
        self.cold.remove(page);
        self.marks[page] = Marks::default();
    }

    fn cleaned(&mut self, page: Page, _: &Pool) {
        self.marks[page].dirty = false;
        if self.marks[page].is_cold() && !self.cold.on(0, page) {
            self.cold.push_front(0, page);
        }
    }

    fn upcoming(&mut self, pool: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        let hot = pool.pages().filter(|page| !self.cold.on(0, *page));
        self.cold.from_back(0).chain(hot).all(take);
    }

    fn bytes_per_page(&self) -> f64 {
        // Two operations and the cold page index.
        2.0 * 24.0 + 24.0 + 0.25
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::steps;

    #[test]
    fn operations_that_come_back_keep_their_page() {
        let (r, w) = (false, true);
        // As in Figure 4: a write that comes back marks 3 as hot, a read that comes back marks 2;
        // they outlive pages that were used once and later.
        let marked = [(8, r), (3, w), (2, r), (3, w), (2, r)];
        let scan = [9, 5, 6, 7, 10, 11].map(|id| (id, r));
        let accesses: Vec<_> = marked.into_iter().chain(scan).collect();
        assert_eq!(steps("for+", 5, &accesses).1, [8, 9, 5, 6]);
        assert_eq!(steps("lru", 5, &accesses).1, [8, 3, 2, 9]);
    }

    #[test]
    fn there_is_always_a_cold_page_to_take() {
        let (r, w) = (false, true);
        // All pages are hot; for the cold share the oldest operations lose their marks.
        let round = [(1, r), (2, w), (3, r)];
        let mut accesses: Vec<_> = std::iter::repeat_n(round, 3).flatten().collect();
        accesses.push((4, r));
        assert_eq!(steps("for+:cold=0.3", 3, &accesses).1.len(), 1);
    }
}
