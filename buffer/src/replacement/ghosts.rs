//! The ids of pages that were evicted, first in, first out, for policies that remember them.
//!
//! Memory: at most 48 bytes for each id, reserved when the pool is opened.

use crate::ids::PageId;
use std::collections::{HashMap, VecDeque};

/// Bytes for an id at most: its place in the queue, twice because of ids that came back, and in the
/// table.
pub(super) const GHOST_BYTES: usize = 48;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Ghosts {
    /// When each page left, as a number that counts pages.
    left: HashMap<PageId, u64>,
    /// The pages in that order. Entries of pages that came back stay until they are the oldest.
    order: VecDeque<(PageId, u64)>,
    next: u64,
    most: usize,
}

impl Ghosts {
    /// Remembers at most `most` pages.
    pub fn new(most: usize) -> Ghosts {
        let (left, order) = (HashMap::with_capacity(most), VecDeque::with_capacity(2 * most + 1));
        Ghosts { left, order, next: 0, most }
    }

    /// Number of pages that are remembered.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.left.len()
    }

    /// Remembers a page, and forgets the oldest if there are too many.
    pub fn insert(&mut self, page: PageId) {
        if self.most == 0 {
            return;
        }
        let forgotten = self.left.remove(&page);
        debug_assert!(forgotten.is_none(), "page {page} left twice");
        while self.left.len() >= self.most || self.order.len() > 2 * self.most {
            let Some((oldest, number)) = self.order.pop_front() else { break };
            if self.left.get(&oldest) == Some(&number) {
                self.left.remove(&oldest);
            }
        }
        self.left.insert(page, self.next);
        self.order.push_back((page, self.next));
        self.next += 1;
    }

    /// Forgets a page. Returns whether it was remembered.
    pub fn take(&mut self, page: PageId) -> bool {
        self.left.remove(&page).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_pages_that_left_are_remembered() {
        let mut ghosts = Ghosts::new(3);
        (0..5).for_each(|page| ghosts.insert(PageId(page)));
        assert_eq!(
            [0, 1, 2, 3, 4].map(|page| ghosts.take(PageId(page))),
            [false, false, true, true, true]
        );
        assert!(!ghosts.take(PageId(4)) && ghosts.len() == 0);
        // Pages that come and go all the time do not make the queue grow.
        for turn in 0..1000 {
            ghosts.insert(PageId(turn % 2));
            assert!(ghosts.take(PageId(turn % 2)) && ghosts.order.len() <= 7);
        }
        Ghosts::new(0).insert(PageId(1));
    }
}
