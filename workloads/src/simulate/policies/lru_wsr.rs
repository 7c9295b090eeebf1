//! LRU-WSR: LRU that gives a dirty page a second round before it writes it.
//!
//! Source: Jung, Shim, Park, Kang, Cha, "LRU-WSR: integration of LRU and writes sequence reordering
//! for flash memory", IEEE Transactions on Consumer Electronics 54(3), 2008, section III. No
//! parameters.

use crate::simulate::entry::PolicyEntry;
use crate::simulate::lists::Lists;
use crate::simulate::policy::{Access, Policy};
use crate::simulate::pool::{Page, PerPage, Pool};

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "lru-wsr",
    source: "Jung et al., IEEE TCE 54(3), 2008, section III",
    cost: "O(1) amortised",
    parameters: &[],
    build: |setup| {
        Box::new(LruWsr {
            recency: Lists::new(setup.pages()),
            cold: PerPage::new(setup.pages(), false),
        })
    },
};

struct LruWsr {
    recency: Lists<1>,
    /// Dirty pages that had their second round.
    cold: PerPage<bool>,
}

impl Policy for LruWsr {
    fn hit(&mut self, access: Access, _: &Pool) {
        self.cold[access.page] = false;
        self.recency.move_to_front(0, access.page);
    }

    fn select(&mut self, pool: &Pool, victims: &mut Vec<Page>) {
        while let Some(page) = self.recency.pop_back(0) {
            if !pool.is_dirty(page) || self.cold[page] {
                victims.push(page);
                break;
            }
            self.cold[page] = true;
            self.recency.push_front(0, page);
        }
    }

    fn fetch(&mut self, access: Access, _: &Pool) {
        self.cold[access.page] = false;
        self.recency.push_front(0, access.page);
    }

    fn prefetched(&mut self, page: Page, _: &Pool) {
        self.cold[page] = false;
        self.recency.push_back(0, page);
    }

    fn cannot_evict(&mut self, page: Page, _: &Pool) {
        self.recency.push_front(0, page);
    }

    fn remove(&mut self, page: Page, _: &Pool) {
        self.recency.remove(page);
    }

    fn upcoming(&mut self, pool: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        let goes = |page: &Page| !pool.is_dirty(*page) || self.cold[*page];
        let first = self.recency.from_back(0).filter(goes);
        first.chain(self.recency.from_back(0).filter(|page| !goes(page))).all(take);
    }

    fn bytes_per_page(&self) -> f64 {
        24.125
    }
}
