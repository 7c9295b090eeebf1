//! ARC: two LRU lists, of pages used once and more often, and the ids of as many evicted pages. The
//! evicted pages that come back decide how the cache is divided.
//!
//! Source: Megiddo, Modha, "ARC: a self-tuning, low overhead replacement cache", FAST 2003, Figure
//! 4.
//!
//! Parameter `step`: by how much the target moves. The paper divides the lengths of the ghost lists
//! as real numbers; programs with whole numbers (`integer`) round the quotient down.

use crate::simulate::entry::{Domain, Parameter, PolicyEntry};
use crate::simulate::lists::Lists;
use crate::simulate::policy::{Access, Policy};
use crate::simulate::pool::{Page, Pool};
use crate::simulate::upcoming::Turns;

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "arc",
    source: "Megiddo, Modha, FAST 2003, Figure 4",
    cost: "O(1)",
    parameters: &[Parameter {
        name: "step",
        default: "real",
        takes: Domain::Word(&["real", "integer"]),
        about: "how the step of the target is rounded",
    }],
    build: |setup| {
        Box::new(Arc {
            lists: Lists::new(setup.pages()),
            capacity: setup.capacity,
            target: 0.0,
            whole_steps: setup.word("step") == "integer",
            ghost: None,
            turns: Turns::new(),
        })
    },
};

/// Cached, used once.
const T1: usize = 0;
/// Cached, used more often.
const T2: usize = 1;
/// Evicted from T1.
const B1: usize = 2;
/// Evicted from T2.
const B2: usize = 3;

struct Arc {
    lists: Lists<4>,
    capacity: usize,
    /// The paper's p: wanted length of T1.
    target: f64,
    whole_steps: bool,
    /// The ghost list of the page that comes in.
    ghost: Option<usize>,
    /// How often T1 loses pages, and how often T2.
    turns: Turns,
}

impl Arc {
    fn step(&self, other: usize, own: usize) -> f64 {
        let quotient = self.lists.len(other) as f64 / self.lists.len(own) as f64;
        if self.whole_steps { quotient.floor().max(1.0) } else { quotient.max(1.0) }
    }

    /// The subroutine REPLACE.
    fn replace(&mut self, victims: &mut Vec<Page>) {
        let once = self.lists.len(T1) as f64;
        let from_once =
            once > 0.0 && (once > self.target || (self.ghost == Some(B2) && once == self.target));
        let (from, to) = if from_once || self.lists.is_empty(T2) { (T1, B1) } else { (T2, B2) };
        self.turns.note(from == T1);
        if let Some(page) = self.lists.pop_back(from) {
            victims.push(page);
            self.lists.push_front(to, page);
        }
    }
}

impl Policy for Arc {
    #[inline]
    fn hit(&mut self, access: Access, _: &Pool) {
        self.lists.move_to_front(T2, access.page);
    }

    fn miss(&mut self, access: Access, _: &Pool) -> bool {
        self.ghost = self.lists.of(access.page);
        match self.ghost {
            Some(B1) => {
                self.target = (self.target + self.step(B2, B1)).min(self.capacity as f64);
            }
            Some(B2) => self.target = (self.target - self.step(B1, B2)).max(0.0),
            _ => {}
        }
        true
    }

    fn select(&mut self, _: &Pool, victims: &mut Vec<Page>) {
        if self.ghost.is_some() {
            return self.replace(victims);
        }
        let once = self.lists.len(T1) + self.lists.len(B1);
        let all = once + self.lists.len(T2) + self.lists.len(B2);
        if once >= self.capacity {
            if self.lists.pop_back(B1).is_none() {
                victims.extend(self.lists.pop_back(T1));
                return;
            }
        } else if all >= 2 * self.capacity {
            self.lists.pop_back(B2);
        }
        self.replace(victims);
    }

    fn fetch(&mut self, access: Access, _: &Pool) {
        self.lists.remove(access.page);
        self.lists.push_front(if self.ghost.is_some() { T2 } else { T1 }, access.page);
    }

    fn cannot_evict(&mut self, page: Page, _: &Pool) {
        self.lists.move_to_front(T2, page);
    }

    fn remove(&mut self, page: Page, _: &Pool) {
        self.lists.remove(page);
    }

    fn upcoming(&mut self, _: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        let (once, more) = (self.lists.back_quarter(T1), self.lists.back_quarter(T2));
        self.turns.merge(once, more).all(take);
    }

    fn bytes_per_page(&self) -> f64 {
        48.0
    }
}
