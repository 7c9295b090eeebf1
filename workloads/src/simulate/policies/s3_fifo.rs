//! S3-FIFO: a small FIFO that most new pages leave soon, a main FIFO with reinsertion, and the ids
//! of pages that left the small one.
//!
//! Source: Yang, Zhang, Qiu, Yue, Rashmi, "FIFO queues are all you need for cache eviction", SOSP
//! 2023, Algorithm 1.
//!
//! Parameters: `small`, `ghost`, shares of the cache; `threshold`, uses in the small FIFO that lead
//! to the main one; `fill`, which FIFO takes the pages beyond the small one's share until the first
//! eviction (`small` in the paper, `main` in the authors' later program); `tiny`, the treatment of
//! new pages by a small FIFO of one page: with `pass` they bypass the cache (the program of the
//! authors, which therefore caches nothing below 20 pages), with `use` they enter it.

use crate::simulate::entry::{Domain, Parameter, PolicyEntry};
use crate::simulate::lists::Lists;
use crate::simulate::policy::{Access, Policy};
use crate::simulate::pool::{Page, PerPage, Pool};
use crate::simulate::upcoming::Turns;

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "s3-fifo",
    source: "Yang et al., SOSP 2023, Algorithm 1",
    cost: "O(1) amortised",
    parameters: &[
        Parameter {
            name: "small",
            default: "0.1",
            takes: Domain::Number(0.0, 1.0),
            about: "pages of the small FIFO as a share of the cache",
        },
        Parameter {
            name: "ghost",
            default: "0.9",
            takes: Domain::Number(0.0, 16.0),
            about: "remembered page ids as a share of the cache",
        },
        Parameter {
            name: "threshold",
            default: "2",
            takes: Domain::Whole(1, 3),
            about: "uses that lead from the small to the main FIFO",
        },
        Parameter {
            name: "fill",
            default: "small",
            takes: Domain::Word(&["small", "main"]),
            about: "the FIFO that fills first",
        },
        Parameter {
            name: "tiny",
            default: "pass",
            takes: Domain::Word(&["pass", "use"]),
            about: "treatment of new pages by a small FIFO of one page",
        },
    ],
    build: |setup| {
        let small = setup.share("small");
        Box::new(S3Fifo {
            lists: Lists::new(setup.pages()),
            uses: PerPage::new(setup.pages(), 0),
            passes: small <= 1 && setup.word("tiny") == "pass",
            small,
            main: setup.capacity - small,
            ghosts: setup.share("ghost"),
            ids_per_page: setup.number("ghost"),
            threshold: setup.whole("threshold") as u8,
            remembered: false,
            filling: setup.word("fill") == "main",
            turns: Turns::new(),
        })
    },
};

const SMALL: usize = 0;
const MAIN: usize = 1;
const GHOST: usize = 2;

/// Uses are counted up to this.
const MOST_USES: u8 = 3;

struct S3Fifo {
    lists: Lists<3>,
    uses: PerPage<u8>,
    passes: bool,
    small: usize,
    main: usize,
    ghosts: usize,
    ids_per_page: f64,
    threshold: u8,
    /// Whether the page that comes in was a ghost.
    remembered: bool,
    /// Whether surplus pages go to the main FIFO, because nothing was evicted yet.
    filling: bool,
    /// How often the small FIFO loses pages, and how often the main one.
    turns: Turns,
}

impl S3Fifo {
    /// The first page of the small FIFO that was not used enough.
    fn evict_small(&mut self) -> Option<Page> {
        while let Some(page) = self.lists.pop_back(SMALL) {
            let uses = std::mem::take(&mut self.uses[page]);
            if uses < self.threshold {
                if self.ghosts > 0 {
                    if self.lists.len(GHOST) >= self.ghosts {
                        self.lists.pop_back(GHOST);
                    }
                    self.lists.push_front(GHOST, page);
                }
                return Some(page);
            }
            self.lists.push_front(MAIN, page);
        }
        None
    }

    /// The first page of the main FIFO that has no uses left.
    fn evict_main(&mut self) -> Option<Page> {
        while let Some(page) = self.lists.pop_back(MAIN) {
            if self.uses[page] == 0 {
                return Some(page);
            }
            self.uses[page] -= 1;
            self.lists.push_front(MAIN, page);
        }
        None
    }
}

impl Policy for S3Fifo {
    #[inline]
    fn hit(&mut self, access: Access, _: &Pool) {
        let uses = &mut self.uses[access.page];
        *uses = (*uses + 1).min(MOST_USES);
    }

    fn miss(&mut self, access: Access, _: &Pool) -> bool {
        self.remembered = self.lists.remove(access.page).is_some();
        self.remembered || !self.passes
    }

    fn select(&mut self, _: &Pool, victims: &mut Vec<Page>) {
        self.filling = false;
        while victims.is_empty() {
            let main = self.lists.len(MAIN) > self.main || self.lists.is_empty(SMALL);
            victims.extend(if main { self.evict_main() } else { self.evict_small() });
            self.turns.note(!main);
        }
    }

    fn fetch(&mut self, access: Access, _: &Pool) {
        let surplus = self.filling && self.lists.len(SMALL) >= self.small;
        let list = if self.remembered || surplus { MAIN } else { SMALL };
        self.uses[access.page] = 0;
        self.lists.push_front(list, access.page);
    }

    fn cannot_evict(&mut self, page: Page, _: &Pool) {
        self.uses[page] = 1;
        self.lists.remove(page);
        self.lists.push_front(MAIN, page);
    }

    fn remove(&mut self, page: Page, _: &Pool) {
        self.lists.remove(page);
    }

    fn upcoming(&mut self, _: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        let (small, main) = (self.lists.from_back(SMALL), self.lists.from_back(MAIN));
        let cold = small.filter(|page| self.uses[*page] < self.threshold);
        let unused = main.filter(|page| self.uses[*page] == 0);
        let cold = cold.take(self.lists.len(SMALL).div_ceil(4));
        self.turns.merge(cold, unused).all(take);
    }

    fn bytes_per_page(&self) -> f64 {
        // Ring buffers of page ids, two bits for each cached page, and the ghosts with a hash slot.
        8.25 + 8.0 * self.ids_per_page
    }
}
