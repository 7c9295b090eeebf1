//! W-TinyLFU: new pages pass through a small LRU window; at its end a page enters the main cache, a
//! segmented LRU, only if a sketch of recent frequencies counts it higher than the page it would
//! replace.
//!
//! Source: Einziger, Friedman, Manes, "TinyLFU: a highly efficient cache admission policy", ACM
//! Transactions on Storage 13(4), 2017, sections 3 and 4. Here the loser of the comparison is
//! evicted; a page that is read is always cached.
//!
//! Parameters: `window`, share of the cache, at least one page; `protected`, share of the main
//! cache that its protected segment may have; `sample`, accesses after which all counts are halved,
//! per page of the cache. The sketch is a count-min sketch of four rows of 4-bit counts with
//! conservative increments.

use crate::rng::mix;
use crate::simulate::entry::{Domain, Parameter, PolicyEntry};
use crate::simulate::lists::Lists;
use crate::simulate::policy::{Access, Policy};
use crate::simulate::pool::{Page, Pool};

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "w-tinylfu",
    source: "Einziger, Friedman, Manes, TOS 13(4), 2017",
    cost: "O(1) amortised",
    parameters: &[
        Parameter {
            name: "window",
            default: "0.01",
            takes: Domain::Number(0.0, 1.0),
            about: "pages of the window as a share of the cache",
        },
        Parameter {
            name: "protected",
            default: "0.8",
            takes: Domain::Number(0.0, 1.0),
            about: "protected pages as a share of the main cache",
        },
        Parameter {
            name: "sample",
            default: "10",
            takes: Domain::Number(1.0, 1000.0),
            about: "accesses per page of the cache until counts are halved",
        },
    ],
    build: |setup| {
        let window = setup.share("window").max(1);
        let main = setup.capacity.saturating_sub(window);
        let sample = (setup.number("sample") * setup.capacity as f64) as usize;
        Box::new(WTinyLfu {
            lists: Lists::new(setup.pages()),
            sketch: Sketch::new(setup.capacity, sample),
            window,
            protected: (main as f64 * setup.number("protected")) as usize,
        })
    },
};

const WINDOW: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;

const ROWS: usize = 4;
const MOST: u8 = 15;

/// Estimates of the recent uses of each page.
struct Sketch {
    counts: Vec<u8>,
    row: usize,
    sample: usize,
    added: usize,
}

impl Sketch {
    fn new(capacity: usize, sample: usize) -> Self {
        let row = (capacity * 4).next_power_of_two().max(64);
        Self { counts: vec![0; ROWS * row], row, sample, added: 0 }
    }

    fn places(&self, page: Page) -> [usize; ROWS] {
        let hash = mix(u64::from(page.0).wrapping_add(crate::rng::GOLDEN));
        let (first, step) = (hash as u32 as usize, (hash >> 32) as usize | 1);
        std::array::from_fn(|row| {
            row * self.row + (first.wrapping_add(row.wrapping_mul(step)) & (self.row - 1))
        })
    }

    fn estimate(&self, page: Page) -> u8 {
        self.places(page).iter().map(|place| self.counts[*place]).min().unwrap_or(0)
    }

    fn add(&mut self, page: Page) {
        let places = self.places(page);
        let least = places.iter().map(|place| self.counts[*place]).min().unwrap_or(0);
        if least < MOST {
            for place in places {
                self.counts[place] += u8::from(self.counts[place] == least);
            }
        }
        self.added += 1;
        if self.added >= self.sample {
            self.added /= 2;
            self.counts.iter_mut().for_each(|count| *count /= 2);
        }
    }
}

struct WTinyLfu {
    lists: Lists<3>,
    sketch: Sketch,
    window: usize,
    protected: usize,
}

impl Policy for WTinyLfu {
    fn hit(&mut self, access: Access, _: &Pool) {
        self.sketch.add(access.page);
        if self.lists.on(WINDOW, access.page) {
            self.lists.move_to_front(WINDOW, access.page);
            return;
        }
        self.lists.move_to_front(PROTECTED, access.page);
        if self.lists.len(PROTECTED) > self.protected
            && let Some(page) = self.lists.pop_back(PROTECTED)
        {
            self.lists.push_front(PROBATION, page);
        }
    }

    fn select(&mut self, _: &Pool, victims: &mut Vec<Page>) {
        let main = self.lists.back(PROBATION).or(self.lists.back(PROTECTED));
        // The cache is full, so a page that leaves the window replaces one of the main cache.
        let candidate = self.lists.back(WINDOW).filter(|_| self.lists.len(WINDOW) >= self.window);
        let victim = match (candidate, main) {
            (Some(candidate), Some(main)) => {
                if self.sketch.estimate(candidate) > self.sketch.estimate(main) {
                    self.lists.move_to_front(PROBATION, candidate);
                    main
                } else {
                    candidate
                }
            }
            (Some(page), None) | (None, Some(page)) => page,
            (None, None) => return,
        };
        self.lists.remove(victim);
        victims.push(victim);
    }

    fn fetch(&mut self, access: Access, _: &Pool) {
        self.sketch.add(access.page);
        // While the cache fills, pages leave the window for the main cache.
        while self.lists.len(WINDOW) >= self.window {
            let Some(page) = self.lists.pop_back(WINDOW) else { break };
            self.lists.push_front(PROBATION, page);
        }
        self.lists.push_front(WINDOW, access.page);
    }

    fn cannot_evict(&mut self, page: Page, _: &Pool) {
        self.lists.push_front(PROTECTED, page);
    }

    fn remove(&mut self, page: Page, _: &Pool) {
        self.lists.remove(page);
    }

    fn upcoming(&mut self, _: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        // The comparisons of the next misses, as they would come out now.
        let window = self.lists.from_back(WINDOW);
        let main = self.lists.from_back(PROBATION).chain(self.lists.from_back(PROTECTED));
        let mut main = main.peekable();
        for candidate in window {
            let wins =
                |other: &Page| self.sketch.estimate(candidate) > self.sketch.estimate(*other);
            if !take(main.next_if(wins).unwrap_or(candidate)) {
                return;
            }
        }
    }

    fn bytes_per_page(&self) -> f64 {
        // A list entry and four rows of four counts of half a byte.
        24.0 + 8.0
    }
}
