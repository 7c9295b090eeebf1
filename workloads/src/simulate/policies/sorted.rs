//! Victims from an array that is sorted now and then (Gilbert 2020, Algorithm 1.5): a page is the
//! next victim if its key is still the one by which it was sorted. The array is sorted again when
//! three quarters of it were passed.

use crate::simulate::pool::{Page, Pool};

/// The sorted array.
#[derive(Debug)]
pub(super) struct Sorted<K> {
    entries: Vec<(K, Page)>,
    at: usize,
}

impl<K: Ord + Copy> Sorted<K> {
    pub(super) fn new() -> Self {
        Self { entries: Vec::new(), at: 0 }
    }

    /// The next victim by `key`, which differs between pages and changes with each use; the pool
    /// must not be empty.
    pub(super) fn next(&mut self, pool: &Pool, key: impl Fn(Page) -> K) -> Page {
        loop {
            if self.at * 4 >= self.entries.len() * 3 {
                self.at = 0;
                self.entries.clear();
                self.entries.extend(pool.pages().map(|page| (key(page), page)));
                self.entries.sort_unstable();
            }
            let (then, page) = self.entries[self.at];
            self.at += 1;
            if pool.holds(page) && key(page) == then {
                return page;
            }
        }
    }
}
