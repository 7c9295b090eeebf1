//! Doubly linked lists of pages. A page is on at most one list at a time.
//!
//! Most policies consist of a few such lists, of cached and of remembered pages. All links are in
//! one array by page, so every operation takes constant time and allocates nothing.

use super::pool::{Page, PerPage};

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    /// Towards the front.
    before: u32,
    /// Towards the back.
    after: u32,
    list: u8,
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    front: u32,
    back: u32,
    len: usize,
}

/// `N` lists over the pages of a trace. By convention the most recent page is at the front.
#[derive(Debug)]
pub struct Lists<const N: usize> {
    nodes: PerPage<Node>,
    ends: [Ends; N],
}

/// The number that stands for no list.
const OFF: u8 = u8::MAX;

fn page(link: u32) -> Option<Page> {
    (link != NONE).then_some(Page(link))
}

impl<const N: usize> Lists<N> {
    /// Empty lists for `pages` pages.
    pub fn new(pages: usize) -> Self {
        assert!(N < OFF as usize);
        Self {
            nodes: PerPage::new(pages, Node { before: NONE, after: NONE, list: OFF }),
            ends: [Ends { front: NONE, back: NONE, len: 0 }; N],
        }
    }

    /// The list that `page` is on.
    #[inline(always)]
    pub fn of(&self, page: Page) -> Option<usize> {
        let list = self.nodes[page].list;
        (list != OFF).then_some(usize::from(list))
    }

    /// Whether `page` is on `list`.
    #[inline(always)]
    pub fn on(&self, list: usize, page: Page) -> bool {
        usize::from(self.nodes[page].list) == list
    }

    /// Number of pages on `list`.
    pub fn len(&self, list: usize) -> usize {
        self.ends[list].len
    }

    /// Whether `list` has no pages.
    pub fn is_empty(&self, list: usize) -> bool {
        self.ends[list].len == 0
    }

    /// First page of `list`.
    pub fn front(&self, list: usize) -> Option<Page> {
        page(self.ends[list].front)
    }

    /// Last page of `list`.
    pub fn back(&self, list: usize) -> Option<Page> {
        page(self.ends[list].back)
    }

    /// The next page towards the front of the list that `of` is on.
    pub fn before(&self, of: Page) -> Option<Page> {
        page(self.nodes[of].before)
    }

    /// The next page towards the back of the list that `of` is on.
    pub fn after(&self, of: Page) -> Option<Page> {
        page(self.nodes[of].after)
    }

    /// Pages of `list` from the back on.
    pub fn from_back(&self, list: usize) -> impl Iterator<Item = Page> {
        std::iter::successors(self.back(list), |page| self.before(*page))
    }

    /// The quarter of `list` at its back, from the back on: pages that are likely to leave before
    /// anything else changes, for `upcoming`.
    pub fn back_quarter(&self, list: usize) -> impl Iterator<Item = Page> {
        self.from_back(list).take(self.len(list).div_ceil(4))
    }

    /// Puts `page`, which is on no list, at the front of `list`.
    #[inline]
    pub fn push_front(&mut self, list: usize, page: Page) {
        debug_assert!(self.of(page).is_none(), "a page is on one list at most");
        let ends = &mut self.ends[list];
        let old = std::mem::replace(&mut ends.front, page.0);
        ends.len += 1;
        match old {
            NONE => ends.back = page.0,
            _ => self.nodes[Page(old)].before = page.0,
        }
        self.nodes[page] = Node { before: NONE, after: old, list: list as u8 };
    }

    /// Puts `page`, which is on no list, at the back of `list`.
    #[inline]
    pub fn push_back(&mut self, list: usize, page: Page) {
        debug_assert!(self.of(page).is_none(), "a page is on one list at most");
        let ends = &mut self.ends[list];
        let old = std::mem::replace(&mut ends.back, page.0);
        ends.len += 1;
        match old {
            NONE => ends.front = page.0,
            _ => self.nodes[Page(old)].after = page.0,
        }
        self.nodes[page] = Node { before: old, after: NONE, list: list as u8 };
    }

    /// Puts `page`, which is on no list, before `other` on its list.
    pub fn insert_before(&mut self, other: Page, page: Page) {
        debug_assert!(self.of(page).is_none(), "a page is on one list at most");
        let Node { before, list, .. } = self.nodes[other];
        debug_assert!(list != OFF, "the other page is on a list");
        if before == NONE {
            return self.push_front(usize::from(list), page);
        }
        self.nodes[page] = Node { before, after: other.0, list };
        self.nodes[other].before = page.0;
        self.nodes[Page(before)].after = page.0;
        self.ends[usize::from(list)].len += 1;
    }

    /// Removes `page` from its list, and returns that list, if it is on one.
    #[inline]
    pub fn remove(&mut self, page: Page) -> Option<usize> {
        let Node { before, after, list } = self.nodes[page];
        if list == OFF {
            return None;
        }
        let list = usize::from(list);
        match before {
            NONE => self.ends[list].front = after,
            _ => self.nodes[Page(before)].after = after,
        }
        match after {
            NONE => self.ends[list].back = before,
            _ => self.nodes[Page(after)].before = before,
        }
        self.ends[list].len -= 1;
        self.nodes[page].list = OFF;
        Some(list)
    }

    /// Removes the last page of `list`.
    pub fn pop_back(&mut self, list: usize) -> Option<Page> {
        let page = self.back(list)?;
        self.remove(page);
        Some(page)
    }

    /// Removes the first page of `list`.
    pub fn pop_front(&mut self, list: usize) -> Option<Page> {
        let page = self.front(list)?;
        self.remove(page);
        Some(page)
    }

    /// Moves `page` from any list to the front of `list`.
    #[inline]
    pub fn move_to_front(&mut self, list: usize, page: Page) {
        if self.ends[list].front != page.0 {
            self.remove(page);
            self.push_front(list, page);
        }
    }

    /// Moves `page` from any list to the back of `list`.
    pub fn move_to_back(&mut self, list: usize, page: Page) {
        self.remove(page);
        self.push_back(list, page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn lists_do_what_queues_do() {
        let (mut lists, mut model) = (Lists::<2>::new(40), [VecDeque::new(), VecDeque::new()]);
        let mut rng = crate::rng::Rng::new(5, 5);
        for _ in 0..20_000 {
            let page = Page(rng.below(40) as u32);
            let to = rng.below(2) as usize;
            let from = model.iter().position(|queue| queue.contains(&page));
            assert_eq!(lists.of(page), from);
            let mut take = |lists: &mut Lists<2>| {
                assert_eq!(lists.remove(page), from);
                model.iter_mut().for_each(|queue| queue.retain(|other| *other != page));
            };
            match rng.below(5) {
                0 => take(&mut lists),
                1 => {
                    take(&mut lists);
                    lists.push_back(to, page);
                    model[to].push_back(page);
                }
                2 => {
                    take(&mut lists);
                    if let Some(other) = model[to].get(model[to].len() / 2).copied() {
                        lists.insert_before(other, page);
                        model[to].insert(model[to].len() / 2, page);
                    }
                }
                3 => assert_eq!(lists.pop_back(to), model[to].pop_back()),
                _ => {
                    take(&mut lists);
                    lists.move_to_front(to, page);
                    model[to].push_front(page);
                }
            }
            for (list, queue) in model.iter().enumerate() {
                assert_eq!(lists.len(list), queue.len());
                assert!(lists.from_back(list).eq(queue.iter().rev().copied()));
                assert_eq!(lists.front(list), queue.front().copied());
            }
        }
    }
}
