//! LRU-K: the page whose K-th last use is the longest ago leaves; pages with fewer uses leave
//! before all others, by their last use.
//!
//! Source: O'Neil, O'Neil, Weikum, "The LRU-K page replacement algorithm for database disk
//! buffering", SIGMOD 1993, section 2 and Figure 2.1; Gilbert 2020, section 1.2.6.
//!
//! Parameters: `k`; `retained`, for how many accesses the history of an evicted page is kept (the
//! paper's retained information period; 0 forgets at once, inf never); `correlated`, accesses
//! within which uses count as one and protect the page (the paper's correlated reference period).
//!
//! `form=sorting` is Gilbert's implementation with times that are sorted now and then (section
//! 1.2.6.2): the history of a page ends with its eviction, a page with fewer uses is ordered by the
//! time of its load, and pages that come in or are used after the last sorting stay until the next.
//! His list (1.2.6.1) is `retained=0`.
//!
//! Keys of cached pages only grow, so the heap is repaired when a page comes to its top.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::sorted::Sorted;
use crate::simulate::entry::{Domain, Parameter, PolicyEntry, Setup};
use crate::simulate::policy::{Access, Policy};
use crate::simulate::pool::{Page, PerPage, Pool};
use crate::simulate::upcoming::{Limit, by_least};

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "lru-k",
    source: "O'Neil, O'Neil, Weikum, SIGMOD 1993",
    cost: "O(log cache) amortised",
    parameters: &[
        Parameter {
            name: "k",
            default: "2",
            takes: Domain::Whole(1, 8),
            about: "which of the last uses counts",
        },
        Parameter {
            name: "retained",
            default: "inf",
            takes: Domain::Number(0.0, f64::INFINITY),
            about: "accesses for which evicted pages are remembered",
        },
        Parameter {
            name: "correlated",
            default: "0",
            takes: Domain::Whole(0, u32::MAX as u64),
            about: "accesses within which uses of a page are one",
        },
        Parameter {
            name: "form",
            default: "heap",
            takes: Domain::Word(&["heap", "sorting"]),
            about: "a heap, or times of use that are sorted now and then, for which retained and \
                    correlated are 0",
        },
    ],
    build: |setup| {
        if setup.word("form") == "sorting" {
            return Box::new(SortingLruK::new(setup));
        }
        Box::new(LruK {
            k: setup.whole("k"),
            retained: setup.number("retained"),
            correlated: setup.whole("correlated") as u32,
            now: 0,
            history: vec![0; setup.pages() * setup.whole("k")],
            last: PerPage::new(setup.pages(), 0),
            order: BinaryHeap::with_capacity(setup.capacity),
            waiting: Vec::new(),
            limit: Limit::new(),
            capacity: setup.capacity,
            known: 0,
        })
    },
};

struct SortingLruK {
    k: usize,
    /// The last K uses of each page, in a ring; those before its load are times of the far past.
    uses: Vec<i64>,
    /// The place of the oldest one.
    oldest: PerPage<u8>,
    now: i64,
    /// The next time of the far past: loads are in order.
    past: i64,
    sorted: Sorted<i64>,
}

impl SortingLruK {
    fn new(setup: &Setup) -> Self {
        let k = setup.whole("k");
        Self {
            k,
            uses: vec![0; setup.pages() * k],
            oldest: PerPage::new(setup.pages(), 0),
            now: 0,
            past: i64::MIN,
            sorted: Sorted::new(),
        }
    }

    fn used(&mut self, page: Page) {
        self.now += 1;
        let oldest = usize::from(self.oldest[page]);
        self.uses[page.0 as usize * self.k + oldest] = self.now;
        self.oldest[page] = ((oldest + 1) % self.k) as u8;
    }

    fn key(&self, page: Page) -> i64 {
        self.uses[page.0 as usize * self.k + usize::from(self.oldest[page])]
    }
}

impl Policy for SortingLruK {
    fn hit(&mut self, access: Access, _: &Pool) {
        self.used(access.page);
    }

    fn select(&mut self, pool: &Pool, victims: &mut Vec<Page>) {
        let (uses, oldest, k) = (&self.uses, &self.oldest, self.k);
        let key = |page: Page| uses[page.0 as usize * k + usize::from(oldest[page])];
        victims.push(self.sorted.next(pool, key));
    }

    fn fetch(&mut self, access: Access, _: &Pool) {
        let first = access.page.0 as usize * self.k;
        self.oldest[access.page] = 0;
        for place in 0..self.k {
            self.uses[first + place] = self.past;
            self.past += 1;
        }
        self.used(access.page);
    }

    fn cannot_evict(&mut self, page: Page, _: &Pool) {
        self.used(page);
    }

    fn remove(&mut self, _: Page, _: &Pool) {}

    fn upcoming(&mut self, pool: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        by_least(pool, |page| self.key(page), take);
    }

    fn bytes_per_page(&self) -> f64 {
        // K times, the place of the oldest, and a time with a frame in each of two arrays.
        8.0 * self.k as f64 + 1.0 + 2.0 * 16.0
    }
}

/// K-th last use, last use, page.
type Key = Reverse<(u32, u32, Page)>;

struct LruK {
    k: usize,
    retained: f64,
    correlated: u32,
    now: u32,
    /// The last K uncorrelated uses of each page, newest first; 0 is none.
    history: Vec<u32>,
    /// The last use of any kind.
    last: PerPage<u32>,
    /// The cached pages, perhaps with old keys.
    order: BinaryHeap<Key>,
    /// Pages that are protected by a correlated use.
    waiting: Vec<Key>,
    limit: Limit,
    capacity: usize,
    /// Pages that were ever used.
    known: usize,
}

impl LruK {
    fn uses(&mut self, page: Page) -> &mut [u32] {
        let first = page.0 as usize * self.k;
        &mut self.history[first..first + self.k]
    }

    fn key(&self, page: Page) -> Key {
        let kth = self.history[page.0 as usize * self.k + self.k - 1];
        Reverse((kth, self.last[page], page))
    }

    fn push_use(&mut self, page: Page, shift: u32) {
        let now = self.now;
        let uses = self.uses(page);
        for older in (1..uses.len()).rev() {
            uses[older] = if uses[older - 1] == 0 { 0 } else { uses[older - 1] + shift };
        }
        uses[0] = now;
    }
}

impl Policy for LruK {
    fn hit(&mut self, access: Access, _: &Pool) {
        self.now += 1;
        let page = access.page;
        let last = std::mem::replace(&mut self.last[page], self.now);
        if self.correlated == 0 {
            self.push_use(page, 0);
        } else if self.now - last > self.correlated {
            // The time of the burst does not count as distance.
            let burst = last - self.uses(page)[0];
            self.push_use(page, burst);
        }
    }

    fn select(&mut self, _: &Pool, victims: &mut Vec<Page>) {
        while let Some(Reverse((kth, last, page))) = self.order.pop() {
            let key = self.key(page);
            if key != Reverse((kth, last, page)) {
                self.order.push(key);
            } else if self.correlated > 0 && self.now + 1 - last <= self.correlated {
                self.waiting.push(key);
            } else {
                self.limit.note(kth);
                victims.push(page);
                break;
            }
        }
        self.order.extend(self.waiting.drain(..));
        if victims.is_empty() {
            // All pages are protected: the best of them must go.
            victims.extend(self.order.pop().map(|Reverse((_, _, page))| page));
        }
    }

    fn fetch(&mut self, access: Access, _: &Pool) {
        self.now += 1;
        let page = access.page;
        let last = std::mem::replace(&mut self.last[page], self.now);
        self.known += usize::from(last == 0);
        if f64::from(self.now - last) > self.retained {
            self.uses(page).fill(0);
        }
        self.push_use(page, 0);
        self.order.push(self.key(page));
    }

    fn cannot_evict(&mut self, page: Page, _: &Pool) {
        self.last[page] = self.now;
        self.push_use(page, 0);
        self.order.push(self.key(page));
    }

    fn remove(&mut self, page: Page, _: &Pool) {
        self.order.retain(|Reverse((_, _, other))| *other != page);
        self.uses(page).fill(0);
    }

    /// Pages up to the highest K-th last use of recent victims. Pages that come in from an old
    /// history leave before all others.
    fn upcoming(&mut self, pool: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        let (now, limit) = (self.now, self.limit.highest());
        let key = |page| {
            let Reverse((kth, last, _)) = self.key(page);
            (self.correlated > 0 && now + 1 - last <= self.correlated, kth, last)
        };
        by_least(pool, key, &mut |page| key(page).1 <= limit && take(page));
    }

    fn bytes_per_page(&self) -> f64 {
        // The history of each remembered page (its number, uses and last use), and the heap.
        let remembered = (self.capacity as f64 + self.retained).min(self.known as f64);
        let history = 8.0 + 4.0 * (self.k + 1) as f64;
        16.0 + history * remembered.max(1.0) / self.capacity as f64
    }
}
