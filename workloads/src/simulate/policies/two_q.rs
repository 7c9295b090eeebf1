//! 2Q: new pages pass through a FIFO; those that are used again after they left it go to an LRU
//! list.
//!
//! Source: Johnson, Shasha, "2Q: a low overhead high performance buffer management replacement
//! algorithm", VLDB 1994, Figure 2 (full version).
//!
//! Parameters: `kin`, size of the FIFO A1in as a share of the cache; `kout`, number of page ids
//! remembered in A1out as a share of the cache.

use crate::simulate::entry::{Domain, Parameter, PolicyEntry};
use crate::simulate::lists::Lists;
use crate::simulate::policy::{Access, Policy};
use crate::simulate::pool::{Page, Pool};
use crate::simulate::upcoming::Turns;

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "2q",
    source: "Johnson, Shasha, VLDB 1994, Figure 2",
    cost: "O(1)",
    parameters: &[
        Parameter {
            name: "kin",
            default: "0.25",
            takes: Domain::Number(0.0, 1.0),
            about: "pages of A1in as a share of the cache",
        },
        Parameter {
            name: "kout",
            default: "0.5",
            takes: Domain::Number(0.0, 16.0),
            about: "page ids in A1out as a share of the cache",
        },
    ],
    build: |setup| {
        Box::new(TwoQ {
            lists: Lists::new(setup.pages()),
            kin: setup.share("kin"),
            kout: setup.share("kout"),
            ids_per_page: setup.number("kout"),
            seen: false,
            turns: Turns::new(),
        })
    },
};

const A1_IN: usize = 0;
const A1_OUT: usize = 1;
const AM: usize = 2;

struct TwoQ {
    lists: Lists<3>,
    kin: usize,
    kout: usize,
    ids_per_page: f64,
    /// Whether the page that comes in was in A1out.
    seen: bool,
    /// How often A1in loses pages, and how often Am.
    turns: Turns,
}

impl Policy for TwoQ {
    fn hit(&mut self, access: Access, _: &Pool) {
        if self.lists.on(AM, access.page) {
            self.lists.move_to_front(AM, access.page);
        }
    }

    fn miss(&mut self, access: Access, _: &Pool) -> bool {
        self.seen = self.lists.remove(access.page) == Some(A1_OUT);
        true
    }

    fn select(&mut self, _: &Pool, victims: &mut Vec<Page>) {
        let from_fifo = self.lists.len(A1_IN) > self.kin || self.lists.is_empty(AM);
        self.turns.note(from_fifo);
        if from_fifo {
            let Some(page) = self.lists.pop_back(A1_IN) else { return };
            victims.push(page);
            if self.kout > 0 {
                if self.lists.len(A1_OUT) >= self.kout {
                    self.lists.pop_back(A1_OUT);
                }
                self.lists.push_front(A1_OUT, page);
            }
        } else {
            victims.extend(self.lists.pop_back(AM));
        }
    }

    fn fetch(&mut self, access: Access, _: &Pool) {
        self.lists.push_front(if self.seen { AM } else { A1_IN }, access.page);
    }

    fn cannot_evict(&mut self, page: Page, _: &Pool) {
        self.lists.move_to_front(AM, page);
    }

    fn remove(&mut self, page: Page, _: &Pool) {
        self.lists.remove(page);
    }

    fn upcoming(&mut self, _: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        let (once, more) = (self.lists.back_quarter(A1_IN), self.lists.back_quarter(AM));
        self.turns.merge(once, more).all(take);
    }

    fn bytes_per_page(&self) -> f64 {
        24.0 * (1.0 + self.ids_per_page)
    }
}
