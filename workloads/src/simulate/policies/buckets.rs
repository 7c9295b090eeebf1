//! Pages by a small whole number, such as how often they were used: a list for each number.
//!
//! The policies that use this give out numbers one after the other, so the search for the lowest
//! one is short.

use crate::simulate::pool::{Page, PerPage};

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    before: u32,
    after: u32,
    number: u32,
    listed: bool,
}

/// Pages in lists by number, each in the order of arrival.
#[derive(Debug)]
pub struct Buckets {
    nodes: PerPage<Node>,
    /// First and last page of each number.
    ends: Vec<(u32, u32)>,
    /// No number below this has a page.
    lowest: usize,
    pages: usize,
}

impl Buckets {
    /// No pages of `pages` in any list.
    pub fn new(pages: usize) -> Self {
        let node = Node { before: NONE, after: NONE, number: 0, listed: false };
        Self { nodes: PerPage::new(pages, node), ends: Vec::new(), lowest: 0, pages: 0 }
    }

    /// The last number of `page`, which it keeps after its removal.
    pub fn of(&self, page: Page) -> u32 {
        self.nodes[page].number
    }

    /// Moves `page` after all others with `number`.
    pub fn put(&mut self, page: Page, number: u32) {
        self.remove(page);
        let at = number as usize;
        if at >= self.ends.len() {
            self.ends.resize(at + 1, (NONE, NONE));
        }
        let last = std::mem::replace(&mut self.ends[at].1, page.0);
        match last {
            NONE => self.ends[at].0 = page.0,
            _ => self.nodes[Page(last)].after = page.0,
        }
        self.nodes[page] = Node { before: last, after: NONE, number, listed: true };
        self.lowest = if self.pages == 0 { at } else { self.lowest.min(at) };
        self.pages += 1;
    }

    /// Removes `page`, if it has a number.
    pub fn remove(&mut self, page: Page) {
        let Node { before, after, number, listed } = self.nodes[page];
        if !listed {
            return;
        }
        let ends = &mut self.ends[number as usize];
        match before {
            NONE => ends.0 = after,
            _ => self.nodes[Page(before)].after = after,
        }
        match after {
            NONE => ends.1 = before,
            _ => self.nodes[Page(after)].before = before,
        }
        self.nodes[page].listed = false;
        self.pages -= 1;
    }

    /// Removes the oldest page of the lowest number in use.
    pub fn pop_lowest(&mut self) -> Option<(Page, u32)> {
        if self.pages == 0 {
            return None;
        }
        while self.ends[self.lowest].0 == NONE {
            self.lowest += 1;
        }
        let page = Page(self.ends[self.lowest].0);
        self.remove(page);
        Some((page, self.lowest as u32))
    }

    /// All pages from the lowest number on.
    pub fn ascending(&self) -> impl Iterator<Item = Page> {
        let link = |link: u32| (link != NONE).then_some(Page(link));
        self.ends[self.lowest.min(self.ends.len())..].iter().flat_map(move |ends| {
            std::iter::successors(link(ends.0), move |page| link(self.nodes[*page].after))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_leave_by_number_and_then_by_arrival() {
        let mut buckets = Buckets::new(5);
        for (page, number) in [(0, 3), (1, 2), (2, 2), (3, 7), (4, 2), (1, 3)] {
            buckets.put(Page(page), number);
        }
        buckets.remove(Page(4));
        let order: Vec<u32> = buckets.ascending().map(|page| page.0).collect();
        assert_eq!(order, [2, 0, 1, 3]);
        assert_eq!(buckets.pop_lowest(), Some((Page(2), 2)));
        assert_eq!(buckets.pop_lowest(), Some((Page(0), 3)));
        buckets.put(Page(4), 1);
        assert_eq!(buckets.pop_lowest(), Some((Page(4), 1)));
        assert_eq!((buckets.of(Page(3)), buckets.of(Page(1))), (7, 3));
    }
}
