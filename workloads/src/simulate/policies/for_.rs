//! FOR: a page is worth the costs that keeping it would save at its next read and its next write,
//! each divided by how hot this operation is; the least valuable page leaves. All pages that were
//! ever used are remembered.
//!
//! Source: Lv, Cui, He, Chen, "Operation-aware buffer management in flash-based systems", SIGMOD
//! 2011, section 3 and Algorithm 1. Costs of reads and writes are those of the device.
//!
//! Parameter `alpha`: weight of the inter-operation distance against the recency in the hotness
//! (equation 5).
//!
//! Every eviction looks at all cached pages, as published; distances and recencies come from a
//! Fenwick tree over the positions of the trace that hold the last occurrence of an operation.

use crate::simulate::entry::{Domain, Parameter, PolicyEntry};
use crate::simulate::policy::{Access, Policy};
use crate::simulate::pool::{Page, PerPage, Pool};
use crate::simulate::upcoming::{Total, by_least};

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "for",
    source: "Lv, Cui, He, Chen, SIGMOD 2011, Algorithm 1",
    cost: "O(cache log trace) per miss, as published",
    parameters: &[Parameter {
        name: "alpha",
        default: "0.5",
        takes: Domain::Number(0.0, 1.0),
        about: "weight of distance against recency",
    }],
    build: |setup| {
        let operations = Operations {
            tree: vec![0; setup.trace.len() + 2],
            of: PerPage::new(setup.pages(), [Operation::default(); 2]),
            now: 0,
            different: 0,
        };
        Box::new(For {
            operations,
            alpha: setup.number("alpha"),
            read: setup.device.read_us,
            write: setup.device.write_us,
            spared: Vec::new(),
            capacity: setup.capacity,
        })
    },
};

/// The last occurrence of an operation.
#[derive(Clone, Copy, Debug, Default)]
struct Operation {
    /// Position in the trace, from 1 on; 0 is none.
    last: u32,
    /// Inter-operation distance; 0 is none.
    distance: u32,
}

/// The operation list.
struct Operations {
    /// Fenwick tree with a 1 at the last position of each operation.
    tree: Vec<u32>,
    /// Read and write of each page.
    of: PerPage<[Operation; 2]>,
    now: u32,
    /// Operations seen so far.
    different: u32,
}

impl Operations {
    fn add(&mut self, position: u32, one: u32) {
        let mut at = position as usize;
        while at < self.tree.len() {
            self.tree[at] = self.tree[at].wrapping_add(one);
            at += at & at.wrapping_neg();
        }
    }

    /// Number of different operations since the last occurrence of one at `position`, itself
    /// included (equation 4).
    fn recency(&self, position: u32) -> u32 {
        let (mut at, mut before) = (position as usize - 1, 0u32);
        while at > 0 {
            before = before.wrapping_add(self.tree[at]);
            at &= at - 1;
        }
        self.different - before
    }

    fn perform(&mut self, access: Access) {
        let old = self.of[access.page][usize::from(access.write)];
        let distance = if old.last == 0 { 0 } else { self.recency(old.last) };
        match old.last {
            0 => self.different += 1,
            last => self.add(last, u32::MAX),
        }
        self.now += 1;
        self.add(self.now, 1);
        self.of[access.page][usize::from(access.write)] = Operation { last: self.now, distance };
    }

    /// The hotness of an operation that occurred (equation 5).
    fn hotness(&self, operation: Operation, alpha: f64) -> f64 {
        let recency = f64::from(self.recency(operation.last));
        let distance = match operation.distance {
            0 => recency,
            distance => f64::from(distance),
        };
        alpha * distance + (1.0 - alpha) * recency
    }
}

struct For {
    operations: Operations,
    alpha: f64,
    read: f64,
    write: f64,
    /// Pages that could not leave for the page that comes in.
    spared: Vec<Page>,
    capacity: usize,
}

impl For {
    /// Equation 6.
    fn weight(&self, page: Page, dirty: bool) -> f64 {
        let worth = |operation: Operation, cost: f64| match operation.last {
            0 => 0.0,
            _ => cost / self.operations.hotness(operation, self.alpha),
        };
        let [read, write] = self.operations.of[page];
        worth(read, self.read) + worth(write, self.read + if dirty { self.write } else { 0.0 })
    }
}

impl Policy for For {
    fn hit(&mut self, access: Access, _: &Pool) {
        self.operations.perform(access);
    }

    fn select(&mut self, pool: &Pool, victims: &mut Vec<Page>) {
        let others = pool.pages().filter(|page| !self.spared.contains(page));
        let weighed = others.map(|page| (self.weight(page, pool.is_dirty(page)), page));
        let least = weighed.min_by(|a, b| a.0.total_cmp(&b.0));
        victims.extend(least.map(|(_, page)| page));
    }

    fn fetch(&mut self, access: Access, _: &Pool) {
        self.spared.clear();
        self.operations.perform(access);
    }

    fn prefetched(&mut self, _: Page, _: &Pool) {
        // It was not used: no operation, and no weight if there never was one.
    }

    fn cannot_evict(&mut self, page: Page, _: &Pool) {
        self.spared.push(page);
    }

    fn remove(&mut self, _: Page, _: &Pool) {}

    fn upcoming(&mut self, pool: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        by_least(pool, |page| Total(self.weight(page, pool.is_dirty(page))), take);
    }

    fn bytes_per_page(&self) -> f64 {
        // A list entry and two numbers for each operation that was ever seen, and the pool.
        (24.0 + 8.0) * f64::from(self.operations.different) / self.capacity as f64
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{mixed, steps};
    use super::*;
    use std::collections::HashSet;

    fn operations(accesses: &[(u32, bool)]) -> Operations {
        let mut operations = Operations {
            tree: vec![0; accesses.len() + 2],
            of: PerPage::new(300, [Operation::default(); 2]),
            now: 0,
            different: 0,
        };
        for (page, write) in accesses {
            operations.perform(Access { page: Page(*page), write: *write });
        }
        operations
    }

    #[test]
    fn distances_and_recencies_count_different_operations_both_ends_included() {
        let (r, w) = (false, true);
        // Distance of the last read of 1: read 1, write 0, read 2 = 3; of the last write of 0:
        // write 0, read 2, read 1, write 3, read 4 = 5.
        let all = operations(&[(1, r), (0, w), (2, r), (1, r), (3, w), (4, r), (4, r), (0, w)]);
        assert_eq!(all.of[Page(1)][0].distance, 3);
        assert_eq!(all.of[Page(0)][1].distance, 5);
        // Since the last read of 1: read 1, write 3, read 4, write 0.
        assert_eq!(all.recency(all.of[Page(1)][0].last), 4);
        assert_eq!(all.recency(all.of[Page(0)][1].last), 1);
        assert_eq!(all.of[Page(2)][0].distance, 0);
        // alpha * 3 + (1 - alpha) * 4, and the recency alone where there is no distance.
        assert_eq!(all.hotness(all.of[Page(1)][0], 0.25), 3.75);
        assert_eq!(all.hotness(all.of[Page(2)][0], 0.25), 5.0);
    }

    #[test]
    fn the_tree_agrees_with_the_definition() {
        let trace: Vec<(u32, bool)> =
            mixed(11).accesses().take(1500).map(|access| (access.page.0, access.write)).collect();
        let all = operations(&trace);
        for (page, write) in trace.iter().step_by(7) {
            let last = trace.iter().rposition(|access| access == &(*page, *write)).unwrap();
            let different: HashSet<_> = trace[last..].iter().collect();
            let operation = all.of[Page(*page)][usize::from(*write)];
            assert_eq!(all.recency(operation.last) as usize, different.len());
            if let Some(before) =
                trace[..last].iter().rposition(|access| access == &(*page, *write))
            {
                let between: HashSet<_> = trace[before..=last].iter().collect();
                assert_eq!(operation.distance as usize, between.len());
            }
        }
    }

    #[test]
    fn a_page_that_is_written_again_and_again_is_worth_more_than_one_that_is_read() {
        let (r, w) = (false, true);
        let accesses = [(1, w), (2, r), (1, w), (2, r), (3, r)];
        assert_eq!(steps("for", 2, &accesses).1, [2]);
        // A dirty page is worth 900 over its recency, the last page that was read 100. After eight
        // reads of other pages these are equal, and the dirty page leaves.
        let accesses: Vec<_> = [(1, w)].into_iter().chain((10..20).map(|id| (id, r))).collect();
        assert_eq!(steps("for", 2, &accesses).1[..8], [10, 11, 12, 13, 14, 15, 16, 1]);
    }
}
