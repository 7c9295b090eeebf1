//! CASA: a clean and a dirty LRU list; reads of clean and writes of dirty pages move the line
//! between them, weighed by the costs of reads and writes.
//!
//! Source: Ou, Härder, "Clean first or dirty first? A cost-aware self-adaptive buffer replacement
//! policy", IDEAS 2010, Algorithm 1.
//!
//! The costs are those of the device, normalised to add up to 1. Parameter `clean`: wanted share of
//! clean pages at the start.

use crate::simulate::entry::{Domain, Parameter, PolicyEntry};
use crate::simulate::lists::Lists;
use crate::simulate::policy::{Access, Policy};
use crate::simulate::pool::{Page, Pool};

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "casa",
    source: "Ou, Härder, IDEAS 2010, Algorithm 1",
    cost: "O(1)",
    parameters: &[Parameter {
        name: "clean",
        default: "0.5",
        takes: Domain::Number(0.0, 1.0),
        about: "share of clean pages at the start",
    }],
    build: |setup| {
        let both = setup.device.read_us + setup.device.write_us;
        Box::new(Casa {
            lists: Lists::new(setup.pages()),
            clean_target: setup.capacity as f64 * setup.number("clean"),
            capacity: setup.capacity as f64,
            read_cost: setup.device.read_us / both,
            write_cost: setup.device.write_us / both,
        })
    },
};

const CLEAN: usize = 0;
const DIRTY: usize = 1;

struct Casa {
    lists: Lists<2>,
    /// The paper's tau.
    clean_target: f64,
    capacity: f64,
    read_cost: f64,
    write_cost: f64,
}

impl Policy for Casa {
    fn hit(&mut self, access: Access, _: &Pool) {
        let page = access.page;
        let (clean, dirty) = (self.lists.len(CLEAN) as f64, self.lists.len(DIRTY) as f64);
        match (self.lists.on(CLEAN, page), access.write) {
            (true, false) => {
                let step = self.read_cost * dirty / clean;
                self.clean_target = (self.clean_target + step).min(self.capacity);
                self.lists.move_to_front(CLEAN, page);
            }
            (false, true) => {
                let step = self.write_cost * clean / dirty;
                self.clean_target = (self.clean_target - step).max(0.0);
                self.lists.move_to_front(DIRTY, page);
            }
            _ => self.lists.move_to_front(DIRTY, page),
        }
    }

    fn select(&mut self, _: &Pool, victims: &mut Vec<Page>) {
        let clean = self.lists.len(CLEAN) as f64 > self.clean_target;
        let from = if clean || self.lists.is_empty(DIRTY) { CLEAN } else { DIRTY };
        victims.extend(self.lists.pop_back(from));
    }

    fn fetch(&mut self, access: Access, _: &Pool) {
        self.lists.push_front(if access.write { DIRTY } else { CLEAN }, access.page);
    }

    fn cannot_evict(&mut self, page: Page, pool: &Pool) {
        self.lists.push_front(if pool.is_dirty(page) { DIRTY } else { CLEAN }, page);
    }

    fn remove(&mut self, page: Page, _: &Pool) {
        self.lists.remove(page);
    }

    fn cleaned(&mut self, page: Page, _: &Pool) {
        // It remains the next victim.
        self.lists.move_to_back(CLEAN, page);
    }

    fn upcoming(&mut self, _: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        let surplus = self.lists.len(CLEAN).saturating_sub(self.clean_target as usize);
        let first = self.lists.from_back(CLEAN).take(surplus);
        let last = self.lists.from_back(CLEAN).skip(surplus);
        first.chain(self.lists.from_back(DIRTY)).chain(last).all(take);
    }

    fn bytes_per_page(&self) -> f64 {
        24.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::steps;

    #[test]
    fn the_line_moves_with_the_uses_and_decides_who_leaves() {
        let (r, w) = (false, true);
        // Four frames, two of them wanted clean. Clean: 1, 2; dirty: 3, 4. Not more clean pages
        // than wanted, so dirty 3 leaves for 5, and then clean pages are too many: 1 leaves.
        assert_eq!(steps("casa", 4, &[(1, r), (2, r), (3, w), (4, w), (5, r), (6, r)]).1, [3, 1]);
        // Writes of dirty pages cost 8 of 9: three of them take 8/9 each off the two wanted clean
        // pages, so that clean 1 leaves for 5.
        let accesses = [(1, r), (2, r), (3, w), (4, w), (3, w), (4, w), (3, w), (5, r)];
        assert_eq!(steps("casa", 4, &accesses).1, [1]);
        // A read of a clean page adds 1/9: still dirty 3 leaves.
        assert_eq!(steps("casa", 4, &[(1, r), (2, r), (3, w), (4, w), (1, r), (5, r)]).1, [3]);
    }
}
