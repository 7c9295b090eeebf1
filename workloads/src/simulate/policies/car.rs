//! CAR: ARC with two clocks in place of its two LRU lists, so that a hit only sets a bit.
//!
//! Source: Bansal, Modha, "CAR: clock with adaptive replacement", FAST 2004, Figure 2. No
//! parameters.

use crate::simulate::entry::PolicyEntry;
use crate::simulate::lists::Lists;
use crate::simulate::policy::{Access, Policy};
use crate::simulate::pool::{Page, PerPage, Pool};
use crate::simulate::upcoming::Turns;

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "car",
    source: "Bansal, Modha, FAST 2004, Figure 2",
    cost: "O(1) amortised",
    parameters: &[],
    build: |setup| {
        Box::new(Car {
            lists: Lists::new(setup.pages()),
            referenced: PerPage::new(setup.pages(), false),
            capacity: setup.capacity,
            target: 0.0,
            ghost: None,
            turns: Turns::new(),
        })
    },
};

/// Clock of pages used once recently; the hand is at the back.
const T1: usize = 0;
/// Clock of pages used more often.
const T2: usize = 1;
/// Evicted from T1.
const B1: usize = 2;
/// Evicted from T2.
const B2: usize = 3;

struct Car {
    lists: Lists<4>,
    referenced: PerPage<bool>,
    capacity: usize,
    /// The paper's p: wanted length of T1.
    target: f64,
    /// The ghost list of the page that comes in.
    ghost: Option<usize>,
    /// How often T1 loses pages, and how often T2.
    turns: Turns,
}

impl Policy for Car {
    #[inline]
    fn hit(&mut self, access: Access, _: &Pool) {
        self.referenced[access.page] = true;
    }

    fn miss(&mut self, access: Access, _: &Pool) -> bool {
        self.ghost = self.lists.of(access.page);
        true
    }

    /// The subroutine replace(), and lines 6 to 10 of car().
    fn select(&mut self, _: &Pool, victims: &mut Vec<Page>) {
        loop {
            let once = self.lists.len(T1) as f64 >= self.target.max(1.0);
            let (clock, ghosts) = if once || self.lists.is_empty(T2) { (T1, B1) } else { (T2, B2) };
            let Some(page) = self.lists.pop_back(clock) else { return };
            if std::mem::take(&mut self.referenced[page]) {
                self.lists.push_front(T2, page);
            } else {
                self.turns.note(clock == T1);
                self.lists.push_front(ghosts, page);
                victims.push(page);
                break;
            }
        }
        if self.ghost.is_none() {
            if self.lists.len(T1) + self.lists.len(B1) == self.capacity {
                self.lists.pop_back(B1);
            } else if (T1..=B2).map(|list| self.lists.len(list)).sum::<usize>() == 2 * self.capacity
            {
                self.lists.pop_back(B2);
            }
        }
    }

    fn fetch(&mut self, access: Access, _: &Pool) {
        let (once, more) = (self.lists.len(B1) as f64, self.lists.len(B2) as f64);
        match self.ghost {
            Some(B1) => {
                self.target = (self.target + (more / once).max(1.0)).min(self.capacity as f64)
            }
            Some(B2) => self.target = (self.target - (once / more).max(1.0)).max(0.0),
            _ => {}
        }
        self.lists.remove(access.page);
        self.referenced[access.page] = false;
        self.lists.push_front(if self.ghost.is_some() { T2 } else { T1 }, access.page);
    }

    fn cannot_evict(&mut self, page: Page, _: &Pool) {
        self.lists.remove(page);
        self.lists.push_front(T2, page);
    }

    fn remove(&mut self, page: Page, _: &Pool) {
        self.lists.remove(page);
    }

    fn upcoming(&mut self, _: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        let (once, more) = (self.lists.back_quarter(T1), self.lists.back_quarter(T2));
        let all = self.turns.merge(once, more);
        let mut cold = all.filter(|page| !self.referenced[*page]);
        cold.all(take);
    }

    fn bytes_per_page(&self) -> f64 {
        // A page id and a bit for cached pages, and a list entry for each remembered page.
        8.125 + 24.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{misses_of, mixed, replayed};

    #[test]
    fn a_ghost_comes_back_to_the_second_clock_and_survives_a_scan() {
        // The hand spares 1, so 2 leaves for 3; 2 comes back to T2, and the scan of 4 to 6 passes
        // through T1.
        let trace = [1, 2, 1, 3, 2, 4, 5, 6, 2];
        assert_eq!(misses_of("car", 2, &trace), [1, 2, 3, 2, 4, 5, 6]);
    }

    #[test]
    fn it_misses_about_as_often_as_arc() {
        let trace = mixed(9);
        for capacity in [20, 50, 90] {
            let (car, arc) = (replayed("car", capacity, &trace), replayed("arc", capacity, &trace));
            let ratio = car.misses as f64 / arc.misses as f64;
            assert!((0.9..1.1).contains(&ratio), "{ratio}");
        }
    }
}
