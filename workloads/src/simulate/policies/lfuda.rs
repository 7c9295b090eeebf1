//! LFUDA: LFU with dynamic aging: a page that is loaded starts with the count of the last victim,
//! so that old counts are overtaken.
//!
//! Source: Arlitt, Cherkasova, Dilley, Friedrich, Jin, "Evaluating content management techniques
//! for web proxy caches", ACM SIGMETRICS PER 27(4), 2000; Gilbert 2020, section 1.2.14.
//!
//! Parameter `hit`: `increment` adds one to the count at a use (Gilbert); `inflate` sets it to the
//! number of uses plus the last victim's count (Arlitt et al.).

use crate::simulate::entry::{Domain, Parameter, PolicyEntry};
use crate::simulate::policy::{Access, Policy};
use crate::simulate::pool::{Page, PerPage, Pool};

use super::buckets::Buckets;

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "lfuda",
    source: "Arlitt et al., SIGMETRICS PER 27(4), 2000; Gilbert 2020, section 1.2.14",
    cost: "O(1) amortised",
    parameters: &[Parameter {
        name: "hit",
        default: "increment",
        takes: Domain::Word(&["increment", "inflate"]),
        about: "how a use changes the count",
    }],
    build: |setup| {
        Box::new(Lfuda {
            counts: Buckets::new(setup.pages()),
            uses: PerPage::new(setup.pages(), 0),
            inflation: 0,
            inflates: setup.word("hit") == "inflate",
        })
    },
};

struct Lfuda {
    counts: Buckets,
    uses: PerPage<u32>,
    /// Count of the last victim.
    inflation: u32,
    inflates: bool,
}

impl Policy for Lfuda {
    fn hit(&mut self, access: Access, _: &Pool) {
        let page = access.page;
        self.uses[page] += 1;
        let count = match self.inflates {
            true => self.uses[page] + self.inflation,
            false => self.counts.of(page) + 1,
        };
        self.counts.put(page, count);
    }

    fn select(&mut self, _: &Pool, victims: &mut Vec<Page>) {
        if let Some((page, count)) = self.counts.pop_lowest() {
            self.inflation = count;
            victims.push(page);
        }
    }

    fn fetch(&mut self, access: Access, _: &Pool) {
        self.uses[access.page] = 1;
        self.counts.put(access.page, self.inflation + 1);
    }

    fn cannot_evict(&mut self, page: Page, _: &Pool) {
        let count = self.counts.of(page);
        self.counts.put(page, count + 1);
    }

    fn remove(&mut self, page: Page, _: &Pool) {
        self.counts.remove(page);
    }

    fn upcoming(&mut self, _: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        self.counts.ascending().all(take);
    }

    fn bytes_per_page(&self) -> f64 {
        28.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::misses_of;

    #[test]
    fn it_forgets_what_was_used_long_ago_and_lfu_does_not() {
        // Five pages are used a lot, then never again; five others take turns afterwards.
        let old = (0..500).map(|access| access % 5);
        let new = (0..500).map(|access| 10 + access % 5);
        let trace: Vec<u64> = old.chain(new).collect();
        let missed = |text| misses_of(text, 6, &trace).len();
        assert_eq!(missed("lfu"), 505);
        for text in ["lfuda", "lfuda:hit=inflate"] {
            assert!(missed(text) < 400, "{text}: {}", missed(text));
        }
    }
}
