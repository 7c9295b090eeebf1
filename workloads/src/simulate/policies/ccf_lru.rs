//! CCF-LRU: cold clean pages leave first, then hot clean ones, and dirty ones only at their second
//! turn.
//!
//! Source: Li, Jin, Su, Cui, Yue, "CCF-LRU: a new buffer replacement algorithm for flash memory",
//! IEEE Transactions on Consumer Electronics 55(3), 2009; FOR (Lv et al., SIGMOD 2011), section
//! 2.2.
//!
//! Parameter `cold`: pages that the cold clean list keeps, as a share of the cache; 0 as published,
//! so a clean page rarely becomes hot (FOR, section 2.2).

use crate::simulate::entry::{Domain, Parameter, PolicyEntry};
use crate::simulate::lists::Lists;
use crate::simulate::policy::{Access, Policy};
use crate::simulate::pool::{Page, PerPage, Pool};

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "ccf-lru",
    source: "Li et al., IEEE TCE 55(3), 2009",
    cost: "O(1) amortised",
    parameters: &[Parameter {
        name: "cold",
        default: "0",
        takes: Domain::Number(0.0, 0.9),
        about: "share of the cache that cold clean pages keep",
    }],
    build: |setup| {
        Box::new(CcfLru {
            lists: Lists::new(setup.pages()),
            cold: PerPage::new(setup.pages(), false),
            least_cold: setup.share("cold"),
        })
    },
};

/// Cold clean pages.
const COLD: usize = 0;
/// Dirty and hot clean pages.
const MIXED: usize = 1;

struct CcfLru {
    lists: Lists<2>,
    /// Cold flag of pages on the mixed list.
    cold: PerPage<bool>,
    least_cold: usize,
}

impl Policy for CcfLru {
    fn hit(&mut self, access: Access, _: &Pool) {
        self.cold[access.page] = false;
        self.lists.move_to_front(MIXED, access.page);
    }

    fn select(&mut self, pool: &Pool, victims: &mut Vec<Page>) {
        while self.lists.len(COLD) <= self.least_cold {
            let Some(page) = self.lists.pop_back(MIXED) else { break };
            if self.cold[page] {
                victims.push(page);
                return;
            }
            // Its second turn: a dirty page stays on the mixed list, a clean one becomes cold.
            self.cold[page] = true;
            self.lists.push_front(if pool.is_dirty(page) { MIXED } else { COLD }, page);
        }
        victims.extend(self.lists.pop_back(COLD));
    }

    fn fetch(&mut self, access: Access, _: &Pool) {
        self.cold[access.page] = !access.write;
        self.lists.push_front(if access.write { MIXED } else { COLD }, access.page);
    }

    fn cannot_evict(&mut self, page: Page, _: &Pool) {
        self.cold[page] = false;
        self.lists.push_front(MIXED, page);
    }

    fn remove(&mut self, page: Page, _: &Pool) {
        self.lists.remove(page);
    }

    fn upcoming(&mut self, _: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        let cold = self.lists.from_back(MIXED).filter(|page| self.cold[*page]);
        let warm = self.lists.from_back(MIXED).filter(|page| !self.cold[*page]);
        self.lists.from_back(COLD).chain(cold).chain(warm).all(take);
    }

    fn bytes_per_page(&self) -> f64 {
        24.125
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::steps;

    #[test]
    fn cold_clean_pages_leave_before_hot_clean_and_those_before_dirty_ones() {
        // 1 is dirty, 2 becomes hot by its second use, 3 is cold and clean.
        let (r, w) = (false, true);
        let accesses = [(1, w), (2, r), (2, r), (3, r), (4, r), (5, r), (6, w), (7, w), (8, w)];
        let (_, left) = steps("ccf-lru", 3, &accesses);
        // 3, 4 and 5 are cold one after the other. 7 finds no cold page: dirty 1 gets its second
        // turn, hot 2 becomes cold and leaves. 8 finds dirty pages only: 6 and 7 get their turns
        // and 1 had it.
        assert_eq!(left, [3, 4, 5, 2, 1]);
    }
}
