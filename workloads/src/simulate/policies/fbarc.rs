//! FBARC: ARC with a third list of dirty pages in clusters: a dirty page at the end of T1 or T2
//! goes to its cluster in T3, and a cluster leaves as a whole, written in the order of its pages.
//!
//! Source: Dubs, Petrov, Gottstein, Buchmann, "FBARC: I/O asymmetry-aware buffer replacement
//! strategy", section 3, Algorithms 1 to 5. Lines 7, 10, 12 and 15 of Algorithm 1 print MAX and MIN
//! swapped: targets stay in [0, c]. Line 22 means T1 with c pages and B1 empty, as in ARC; a dirty
//! page there goes to T3 and the next one is tried.
//!
//! Parameter `cluster`: page numbers in a cluster (GRID clustering, section 5.5).
//!
//! Reference counts are kept against a common floor, so that the subtraction of Algorithm 5, line
//! 13 is one addition.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use crate::simulate::entry::{Domain, Parameter, PolicyEntry};
use crate::simulate::lists::Lists;
use crate::simulate::policy::{Access, Policy};
use crate::simulate::pool::{Page, Pool};

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "fbarc",
    source: "Dubs, Petrov, Gottstein, Buchmann, FBARC, Algorithms 1 to 5",
    cost: "O(log clusters) amortised",
    parameters: &[Parameter {
        name: "cluster",
        default: "1024",
        takes: Domain::Whole(1, 1 << 40),
        about: "page numbers in a cluster",
    }],
    build: |setup| {
        Box::new(Fbarc {
            lists: Lists::new(setup.pages()),
            numbers: setup.trace.ids().to_vec(),
            clusters: HashMap::new(),
            order: BTreeSet::new(),
            floor: 0,
            clustered: 0,
            capacity: setup.capacity,
            cluster_pages: setup.whole("cluster") as u64,
            once_target: 0,
            dirty_target: 0,
            ghost: None,
        })
    },
};

const T1: usize = 0;
const T2: usize = 1;
const B1: usize = 2;
const B2: usize = 3;
const B3: usize = 4;

#[derive(Debug, Default)]
struct Cluster {
    pages: BTreeSet<(u64, Page)>,
    /// References, counted from the floor.
    references: u64,
}

/// The order of victim clusters: fewest references, then most pages.
type Cost = (u64, Reverse<usize>, u64);

struct Fbarc {
    lists: Lists<5>,
    numbers: Vec<u64>,
    /// T3.
    clusters: HashMap<u64, Cluster>,
    order: BTreeSet<Cost>,
    floor: u64,
    /// Pages in T3.
    clustered: usize,
    capacity: usize,
    cluster_pages: u64,
    /// The paper's ts_1 and ts_3.
    once_target: usize,
    dirty_target: usize,
    /// The history list of the page that comes in.
    ghost: Option<usize>,
}

impl Fbarc {
    fn place(&self, page: Page) -> (u64, (u64, Page)) {
        let number = self.numbers[page.0 as usize];
        (number / self.cluster_pages, (number, page))
    }

    /// Changes a cluster and puts it in its place, or removes it if it is empty.
    fn change(&mut self, id: u64, change: impl FnOnce(&mut Cluster)) {
        let floor = self.floor;
        let new = || Cluster { references: floor, ..Cluster::default() };
        let cluster = self.clusters.entry(id).or_insert_with(new);
        self.order.remove(&(cluster.references, Reverse(cluster.pages.len()), id));
        change(cluster);
        if cluster.pages.is_empty() {
            self.clusters.remove(&id);
        } else {
            self.order.insert((cluster.references, Reverse(cluster.pages.len()), id));
        }
    }

    /// Algorithm 4.
    fn add_to_cluster(&mut self, page: Page) {
        let (id, entry) = self.place(page);
        let known = u64::from(self.clusters.contains_key(&id));
        self.change(id, |cluster| {
            cluster.pages.insert(entry);
            cluster.references += known;
        });
        self.clustered += 1;
    }

    /// Algorithm 5, lines 2 to 8; `false` if the page is in no cluster.
    fn take_from_cluster(&mut self, page: Page) -> bool {
        let (id, entry) = self.place(page);
        if !self.clusters.get(&id).is_some_and(|cluster| cluster.pages.contains(&entry)) {
            return false;
        }
        self.change(id, |cluster| {
            cluster.pages.remove(&entry);
            cluster.references += 1;
        });
        self.clustered -= 1;
        true
    }

    /// Algorithm 5, lines 10 to 20.
    fn evict_cluster(&mut self, victims: &mut Vec<Page>) {
        let Some((references, _, id)) = self.order.pop_first() else { return };
        self.floor = references;
        let cluster = self.clusters.remove(&id).expect("every cluster in the order exists");
        self.clustered -= cluster.pages.len();
        for (_, page) in cluster.pages {
            self.lists.push_front(B3, page);
            victims.push(page);
        }
    }

    /// Algorithm 3 for T1 and T2.
    fn evict_last(
        &mut self,
        from: usize,
        history: Option<usize>,
        pool: &Pool,
        victims: &mut Vec<Page>,
    ) {
        let Some(page) = self.lists.pop_back(from) else { return };
        if pool.is_dirty(page) {
            return self.add_to_cluster(page);
        }
        victims.push(page);
        if let Some(history) = history {
            self.lists.push_front(history, page);
        }
    }

    /// One step of Algorithm 2.
    fn evict(&mut self, pool: &Pool, victims: &mut Vec<Page>) {
        let (once, more) = (self.lists.len(T1), self.lists.len(T2));
        let seen = self.ghost == Some(B2);
        let beyond =
            |len: usize, target: usize| len > 0 && (len > target || (seen && len == target));
        if beyond(once, self.once_target) {
            self.evict_last(T1, Some(B1), pool, victims);
        } else if beyond(self.clustered, self.dirty_target) {
            self.evict_cluster(victims);
        } else if once >= more && once >= self.clustered {
            self.evict_last(T1, Some(B1), pool, victims);
        } else if more >= self.clustered {
            self.evict_last(T2, Some(B2), pool, victims);
        } else {
            self.evict_cluster(victims);
        }
    }

    /// Puts `page` at the front of T2. Pages that come from T1 and T3 must not make L2 longer than
    /// 2c, which the housekeeping of Algorithm 1 alone, at unknown pages, would allow.
    fn move_to_more(&mut self, page: Page) {
        self.lists.move_to_front(T2, page);
        if self.lists.len(T2) + self.lists.len(B2) > 2 * self.capacity {
            self.lists.pop_back(B2);
        }
    }

    fn all(&self) -> usize {
        (T1..=B3).map(|list| self.lists.len(list)).sum::<usize>() + self.clustered
    }

    /// Algorithm 1, lines 25 to 33.
    fn keep_house(&mut self) {
        let once = self.lists.len(T1) + self.lists.len(B1);
        let both = once + self.lists.len(T2) + self.lists.len(B2);
        if once >= self.capacity {
            self.lists.pop_back(B1);
        } else if both >= 2 * self.capacity {
            self.lists.pop_back(B2);
        } else if self.all() >= 3 * self.capacity {
            self.lists.pop_back(B3);
        }
    }
}

impl Policy for Fbarc {
    fn hit(&mut self, access: Access, _: &Pool) {
        self.take_from_cluster(access.page);
        self.move_to_more(access.page);
    }

    fn miss(&mut self, access: Access, pool: &Pool) -> bool {
        self.ghost = self.lists.of(access.page);
        match self.ghost {
            Some(B1) => self.once_target = (self.once_target + 1).min(self.capacity),
            Some(B2) if self.once_target >= self.dirty_target => {
                self.once_target = self.once_target.saturating_sub(1);
            }
            Some(B2) => self.dirty_target = self.dirty_target.saturating_sub(1),
            Some(_) => self.dirty_target = (self.dirty_target + 1).min(self.capacity),
            None if pool.is_full() && self.lists.len(T1) == self.capacity => {}
            None => self.keep_house(),
        }
        true
    }

    fn select(&mut self, pool: &Pool, victims: &mut Vec<Page>) {
        let only_once = self.ghost.is_none() && self.lists.len(T1) == self.capacity;
        while victims.is_empty() {
            match only_once && !self.lists.is_empty(T1) {
                true => self.evict_last(T1, None, pool, victims),
                false => self.evict(pool, victims),
            }
        }
    }

    fn fetch(&mut self, access: Access, _: &Pool) {
        match self.ghost {
            Some(_) => self.move_to_more(access.page),
            None => self.lists.push_front(T1, access.page),
        }
    }

    fn cannot_evict(&mut self, page: Page, _: &Pool) {
        self.lists.remove(page);
        self.lists.push_front(T2, page);
    }

    fn remove(&mut self, page: Page, _: &Pool) {
        self.take_from_cluster(page);
        self.lists.remove(page);
    }

    fn cleaned(&mut self, page: Page, _: &Pool) {
        if self.take_from_cluster(page) {
            self.lists.push_back(T2, page);
        }
    }

    fn upcoming(&mut self, _: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        let clusters = self.order.iter().flat_map(|(_, _, id)| &self.clusters[id].pages);
        // Dirty pages of T1 and T2 go to a cluster before they leave.
        clusters.map(|(_, page)| *page).all(take);
    }

    fn bytes_per_page(&self) -> f64 {
        // ARC's two lists of twice the cache, and one more cache of history.
        72.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{mixed, steps};
    use super::*;

    #[test]
    fn dirty_pages_leave_by_cluster_and_in_order() {
        let (r, w) = (false, true);
        // T1 is full of dirty pages. 50 moves 12, 40 and 11 to T3 before clean 7 can leave; 51 then
        // takes the biggest cluster.
        let accesses = [(12, w), (40, w), (11, w), (7, r), (50, r)];
        assert_eq!(steps("fbarc:cluster=10", 4, &accesses).1, [7]);
        let mut accesses = accesses.to_vec();
        accesses.push((51, r));
        let (_, left) = steps("fbarc:cluster=10", 4, &accesses);
        assert_eq!(left[..2], [7, 50]);
    }

    #[test]
    fn the_lists_keep_the_bounds_of_the_paper() {
        let trace = mixed(21);
        let mut fbarc = plain(&trace, 30);
        let mut pool = Pool::new(trace.pages(), 30);
        for access in trace.accesses() {
            drive(&mut fbarc, &mut pool, access);
            let lists =
                |lists: &[usize]| lists.iter().map(|list| fbarc.lists.len(*list)).sum::<usize>();
            assert!(lists(&[T1, B1]) <= 30);
            assert!(lists(&[T2, B2]) <= 60);
            assert!(fbarc.all() <= 90);
            assert_eq!(lists(&[T1, T2]) + fbarc.clustered, pool.len());
        }
    }

    fn plain(trace: &crate::simulate::trace::Trace, capacity: usize) -> Fbarc {
        Fbarc {
            lists: Lists::new(trace.pages()),
            numbers: trace.ids().to_vec(),
            clusters: HashMap::new(),
            order: BTreeSet::new(),
            floor: 0,
            clustered: 0,
            capacity,
            cluster_pages: 8,
            once_target: 0,
            dirty_target: 0,
            ghost: None,
        }
    }

    /// What `Replay` does, for a policy whose insides are to be seen.
    fn drive(policy: &mut Fbarc, pool: &mut Pool, access: Access) {
        if pool.holds(access.page) {
            policy.hit(access, pool);
            if access.write {
                pool.soil(access.page);
            }
            return;
        }
        policy.miss(access, pool);
        if pool.is_full() {
            let mut victims = Vec::new();
            policy.select(pool, &mut victims);
            for page in victims {
                pool.evict(page);
            }
        }
        pool.insert(access.page, access.write);
        policy.fetch(access, pool);
    }
}
