//! LRU: the page that was not used for the longest time leaves.
//!
//! Source: Gilbert, "Bottlenecks Uncovered" (2020), section 1.2.4. Parameter `form`: a linked list
//! (his section 1.2.4.1), or times of use that are sorted now and then (1.2.4.2). Both evict the
//! same pages; in an engine the second one needs no latch at a hit.

use super::sorted::Sorted;
use crate::simulate::entry::{Domain, Parameter, PolicyEntry};
use crate::simulate::lists::Lists;
use crate::simulate::policy::{Access, Policy};
use crate::simulate::pool::{Page, PerPage, Pool};
use crate::simulate::upcoming::by_least;

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "lru",
    source: "Gilbert 2020, section 1.2.4",
    cost: "O(1); form=sorting O(log cache) per miss amortised",
    parameters: &[Parameter {
        name: "form",
        default: "list",
        takes: Domain::Word(&["list", "sorting"]),
        about: "a list, or times of use that are sorted now and then",
    }],
    build: |setup| match setup.word("form") {
        "sorting" => Box::new(SortingLru {
            last: PerPage::new(setup.pages(), 0),
            now: 0,
            sorted: Sorted::new(),
        }),
        _ => Box::new(Lru { recency: Lists::new(setup.pages()) }),
    },
};

struct SortingLru {
    /// The last use of each page.
    last: PerPage<u64>,
    now: u64,
    sorted: Sorted<u64>,
}

impl SortingLru {
    fn used(&mut self, page: Page) {
        self.now += 1;
        self.last[page] = self.now;
    }
}

impl Policy for SortingLru {
    #[inline]
    fn hit(&mut self, access: Access, _: &Pool) {
        self.used(access.page);
    }

    fn select(&mut self, pool: &Pool, victims: &mut Vec<Page>) {
        victims.push(self.sorted.next(pool, |page| self.last[page]));
    }

    fn fetch(&mut self, access: Access, _: &Pool) {
        self.used(access.page);
    }

    fn cannot_evict(&mut self, page: Page, _: &Pool) {
        self.used(page);
    }

    fn remove(&mut self, _: Page, _: &Pool) {}

    fn upcoming(&mut self, pool: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        by_least(pool, |page| self.last[page], take);
    }

    fn bytes_per_page(&self) -> f64 {
        // A time, and a time with a frame in each of two arrays.
        8.0 + 2.0 * 16.0
    }
}

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

#[cfg(test)]
mod tests {
    use super::super::testing::{mixed, replayed};

    /// Gilbert finds different miss rates, because his threads do not share one order of uses.
    #[test]
    fn sorting_and_list_evict_the_same_pages() {
        for (seed, capacity) in [(1, 1), (2, 2), (3, 7), (4, 40)] {
            let trace = mixed(seed);
            let (list, sorting) =
                (replayed("lru", capacity, &trace), replayed("lru:form=sorting", capacity, &trace));
            assert_eq!(
                (list.misses, list.writes, list.writes_at_end),
                (sorting.misses, sorting.writes, sorting.writes_at_end)
            );
        }
    }
}
