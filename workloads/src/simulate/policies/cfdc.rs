//! CFDC: an LRU working region, followed by a priority region in which clean pages leave first,
//! then dirty ones in clusters of neighbouring pages, the most sequential and oldest cluster first.
//!
//! Source: Ou, Härder, Jin, "CFDC: a flash-aware replacement policy for database buffer
//! management", DaMoN 2009, section 3. The priority of a cluster of n pages is the sum of distances
//! between pages in the order of their arrival (1 for a single page) over n^2 times its age, in
//! pages that became candidates for writing; a cluster from which a page was taken has priority 0
//! until it is empty.
//!
//! Parameters: `window`, the priority region as a share of the cache; `cluster`, page numbers in a
//! cluster.

use std::collections::{BTreeSet, HashMap};

use crate::simulate::entry::{Domain, Parameter, PolicyEntry};
use crate::simulate::lists::Lists;
use crate::simulate::policy::{Access, Policy};
use crate::simulate::pool::{Page, PerPage, Pool};

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "cfdc",
    source: "Ou, Härder, Jin, DaMoN 2009, section 3",
    cost: "O(log clusters + cluster)",
    parameters: &[
        Parameter {
            name: "window",
            default: "0.5",
            takes: Domain::Number(0.0, 1.0),
            about: "priority region as a share of the cache",
        },
        Parameter {
            name: "cluster",
            default: "16",
            takes: Domain::Whole(1, 1 << 30),
            about: "page numbers in a cluster",
        },
    ],
    build: |setup| {
        Box::new(Cfdc {
            lists: Lists::new(setup.pages()),
            numbers: setup.trace.ids().to_vec(),
            dirty: PerPage::new(setup.pages(), false),
            clusters: HashMap::new(),
            order: BTreeSet::new(),
            region: setup.share("window"),
            cluster_pages: setup.whole("cluster") as u64,
            now: 0,
        })
    },
};

const WORKING: usize = 0;
/// Clean pages of the priority region.
const CLEAN: usize = 1;

#[derive(Debug, Default)]
struct Cluster {
    /// In the order of arrival.
    pages: Vec<Page>,
    created: u64,
    /// Bits of the priority, which is never negative, so they sort like it.
    priority: u64,
    opened: bool,
}

struct Cfdc {
    lists: Lists<2>,
    numbers: Vec<u64>,
    dirty: PerPage<bool>,
    clusters: HashMap<u64, Cluster>,
    /// Priorities and clusters.
    order: BTreeSet<(u64, u64)>,
    region: usize,
    cluster_pages: u64,
    /// Dirty pages that came into the priority region so far.
    now: u64,
}

/// The priority of a cluster with pages of these numbers.
fn priority(numbers: &[u64], age: u64) -> f64 {
    let distance: u64 = numbers.windows(2).map(|pair| pair[0].abs_diff(pair[1])).sum();
    let distance = if numbers.len() == 1 { 1 } else { distance };
    distance as f64 / ((numbers.len() * numbers.len()) as f64 * age as f64)
}

impl Cfdc {
    fn number(&self, page: Page) -> u64 {
        self.numbers[page.0 as usize]
    }

    fn cluster_of(&self, page: Page) -> u64 {
        self.number(page) / self.cluster_pages
    }

    /// Puts a cluster in its place after a change, or removes it if it is empty.
    fn file(&mut self, id: u64) {
        let Some(cluster) = self.clusters.get_mut(&id) else { return };
        self.order.remove(&(cluster.priority, id));
        if cluster.pages.is_empty() {
            self.clusters.remove(&id);
            return;
        }
        let numbers: Vec<u64> =
            cluster.pages.iter().map(|page| self.numbers[page.0 as usize]).collect();
        let value =
            if cluster.opened { 0.0 } else { priority(&numbers, self.now - cluster.created) };
        cluster.priority = value.to_bits();
        self.order.insert((cluster.priority, id));
    }

    /// Moves the oldest pages of the working region on until it is as small as it should be.
    fn refill(&mut self, pool: &Pool) {
        let most = pool.capacity() - self.region;
        while self.lists.len(WORKING) > most {
            let Some(page) = self.lists.pop_back(WORKING) else { return };
            if !self.dirty[page] {
                self.lists.push_front(CLEAN, page);
                continue;
            }
            let (id, created) = (self.cluster_of(page), self.now);
            self.now += 1;
            let cluster =
                self.clusters.entry(id).or_insert(Cluster { created, ..Cluster::default() });
            cluster.pages.push(page);
            self.file(id);
        }
    }

    fn take_out(&mut self, page: Page) {
        if self.lists.remove(page).is_none() {
            let id = self.cluster_of(page);
            if let Some(cluster) = self.clusters.get_mut(&id) {
                cluster.pages.retain(|other| *other != page);
                self.file(id);
            }
        }
    }
}

impl Policy for Cfdc {
    fn hit(&mut self, access: Access, pool: &Pool) {
        self.take_out(access.page);
        self.dirty[access.page] |= access.write;
        self.lists.push_front(WORKING, access.page);
        self.refill(pool);
    }

    fn select(&mut self, _: &Pool, victims: &mut Vec<Page>) {
        if let Some(page) = self.lists.pop_back(CLEAN) {
            victims.push(page);
        } else if let Some((_, id)) = self.order.first().copied() {
            let cluster = self.clusters.get_mut(&id).expect("every cluster in the order exists");
            cluster.opened = true;
            victims.push(cluster.pages.remove(0));
            self.file(id);
        } else {
            victims.extend(self.lists.pop_back(WORKING));
        }
    }

    fn fetch(&mut self, access: Access, pool: &Pool) {
        self.dirty[access.page] = access.write;
        self.lists.push_front(WORKING, access.page);
        self.refill(pool);
    }

    fn cannot_evict(&mut self, page: Page, _: &Pool) {
        self.lists.push_front(WORKING, page);
    }

    fn remove(&mut self, page: Page, _: &Pool) {
        self.take_out(page);
    }

    fn cleaned(&mut self, page: Page, _: &Pool) {
        self.dirty[page] = false;
        if self.lists.of(page).is_none() {
            self.take_out(page);
            self.lists.push_back(CLEAN, page);
        }
    }

    fn upcoming(&mut self, _: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        let clusters =
            self.order.iter().flat_map(|(_, id)| self.clusters[id].pages.iter().copied());
        let clean = self.lists.from_back(CLEAN);
        clean.chain(clusters).chain(self.lists.from_back(WORKING)).all(take);
    }

    fn bytes_per_page(&self) -> f64 {
        24.0 + 8.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::steps;
    use super::*;

    #[test]
    fn priorities_follow_the_formula() {
        assert_eq!(priority(&[5], 1), 1.0);
        assert_eq!(priority(&[5], 4), 0.25);
        // |8 - 5| + |6 - 8| = 5 over 3^2 * 2.
        assert_eq!(priority(&[5, 8, 6], 2), 5.0 / 18.0);
    }

    #[test]
    fn clean_pages_leave_first_and_then_dirty_ones_cluster_by_cluster() {
        let (r, w) = (false, true);
        // Eight frames, four of them working. Clusters of ten numbers.
        let old = [(10, w), (35, w), (11, w), (50, r)];
        let young = [(1, r), (2, r), (3, r), (4, r)];
        let next = [(60, r), (61, r), (62, r), (63, r)];
        let all: Vec<_> = old.into_iter().chain(young).chain(next).collect();
        let (_, left) = steps("cfdc:cluster=10", 8, &all);
        // 50 is the clean page of the priority region. When 60 has come, 1 follows it there, then 2
        // and 3.
        assert_eq!(left, [50, 1, 2, 3]);
        // With writes only, the cluster of 10 and 11 (1 / (4 * 3)) leaves before that of 35 (1 / (1
        // * 2)).
        let all: Vec<_> = all.into_iter().map(|(id, _)| (id, w)).collect();
        let (_, left) = steps("cfdc:cluster=10", 8, &all);
        assert_eq!(left[..2], [10, 11]);
    }
}
