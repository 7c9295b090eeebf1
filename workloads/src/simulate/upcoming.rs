//! The pages that leave next: orders for policies that have none ready in a list.
//!
//! ACE's Writer asks each policy for its next victims. A page that it cleans saves time only if it
//! leaves before the next write to it, so an order must be the one in which pages really leave:
//! sorted by the value of the policy ([`by_least`]), from two lists at the rate at which both lose
//! pages ([`Turns`]), or drawn ahead and then kept to ([`Plan`]). All of it is idle without ACE, so
//! counts without ACE do not depend on it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet, VecDeque};

use super::pool::{Page, Pool};

/// Offers all cached pages from the least value on. A heap, because few are taken.
pub fn by_least<V: Ord>(
    pool: &Pool,
    value: impl Fn(Page) -> V,
    take: &mut dyn FnMut(Page) -> bool,
) {
    let valued: Vec<_> = pool.pages().map(|page| Reverse((value(page), page))).collect();
    let mut heap = BinaryHeap::from(valued);
    while let Some(Reverse((_, page))) = heap.pop() {
        if !take(page) {
            break;
        }
    }
}

/// A number that is ordered as `f64::total_cmp` does.
#[derive(Clone, Copy, Debug)]
pub struct Total(pub f64);

impl PartialEq for Total {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Total {}

impl PartialOrd for Total {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Total {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// The highest value of the last victims, for policies that may evict a page that just came in
/// before all others: pages beyond it stay for long, although they are next in the order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limit {
    last: [u32; 8],
    next: usize,
}

impl Limit {
    /// No victims: a limit that excludes all.
    pub fn new() -> Self {
        Self::default()
    }

    /// A victim had `value`.
    #[inline]
    pub fn note(&mut self, value: u32) {
        self.last[self.next] = value;
        self.next = (self.next + 1) % self.last.len();
    }

    /// The highest value of the last victims.
    pub fn highest(&self) -> u32 {
        self.last.into_iter().max().unwrap_or(0)
    }
}

/// The share of recent victims that came from the first of two lists.
#[derive(Clone, Copy, Debug)]
pub struct Turns {
    share: f64,
}

impl Default for Turns {
    fn default() -> Self {
        Self { share: 0.5 }
    }
}

impl Turns {
    /// Victims that the share looks back on, about.
    const MEMORY: f64 = 64.0;

    /// Both lists lose as many pages.
    pub fn new() -> Self {
        Self::default()
    }

    /// A victim came from the first list, or from the second.
    #[inline]
    pub fn note(&mut self, first: bool) {
        self.share += (f64::from(u8::from(first)) - self.share) / Self::MEMORY;
    }

    /// Pages of both lists, at the rates at which they lost pages, until one of them has no more.
    pub fn merge(
        self,
        mut first: impl Iterator<Item = Page>,
        mut second: impl Iterator<Item = Page>,
    ) -> impl Iterator<Item = Page> {
        let mut credit = 0.5;
        std::iter::from_fn(move || {
            credit += self.share;
            if credit >= 1.0 {
                credit -= 1.0;
                first.next()
            } else {
                second.next()
            }
        })
    }
}

/// Victims that were drawn ahead, each with what tells whether it was used since.
#[derive(Debug, Default)]
pub struct Plan<T> {
    victims: VecDeque<(Page, T)>,
    planned: HashSet<Page>,
}

impl<T> Plan<T> {
    /// Most planned victims: with few dirty pages, a search for more would draw the whole cache.
    const MOST: usize = 256;

    /// No victims.
    pub fn new() -> Self {
        Self { victims: VecDeque::new(), planned: HashSet::new() }
    }

    /// Whether `page` is planned.
    pub fn has(&self, page: Page) -> bool {
        self.planned.contains(&page)
    }

    /// The next planned victim for which `stays` holds; others are dropped from the plan.
    #[inline]
    pub fn pop(&mut self, mut stays: impl FnMut(Page, &T) -> bool) -> Option<Page> {
        while let Some((page, mark)) = self.victims.pop_front() {
            self.planned.remove(&page);
            if stays(page, &mark) {
                return Some(page);
            }
        }
        None
    }

    /// Drops victims for which `stays` does not hold.
    pub fn check(&mut self, mut stays: impl FnMut(Page, &T) -> bool) {
        let planned = &mut self.planned;
        self.victims.retain(|(page, mark)| {
            let stays = stays(*page, mark);
            if !stays {
                planned.remove(page);
            }
            stays
        });
    }

    /// Drops `page` from the plan, because it was used.
    #[inline]
    pub fn forget(&mut self, page: Page) {
        if self.planned.remove(&page) {
            self.victims.retain(|(other, _)| *other != page);
        }
    }

    /// The planned pages in order.
    pub fn pages(&self) -> impl Iterator<Item = Page> {
        self.victims.iter().map(|(page, _)| *page)
    }

    /// Whether there is room for another victim in a pool.
    pub fn has_room(&self, pool: &Pool) -> bool {
        self.victims.len() < Self::MOST.min(pool.len() / 2)
    }

    /// Plans `page` last.
    pub fn push(&mut self, page: Page, mark: T) {
        if self.planned.insert(page) {
            self.victims.push_back((page, mark));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_merged_at_the_rate_of_their_victims() {
        let pages = |first: u32| (first..first + 100).map(Page);
        let mut turns = Turns::new();
        (0..1000).for_each(|victim| turns.note(victim % 4 == 0));
        let merged: Vec<Page> = turns.merge(pages(0), pages(1000)).take(40).collect();
        let first = merged.iter().filter(|page| page.0 < 1000).count();
        assert!((9..=11).contains(&first), "{first}");
        let all = turns.merge(pages(0), pages(1000)).count();
        assert!((125..145).contains(&all), "{all}");
    }

    #[test]
    fn a_plan_keeps_its_order_and_drops_pages_that_were_used() {
        let mut plan = Plan::new();
        (0..5).for_each(|page| plan.push(Page(page), page));
        plan.push(Page(3), 99);
        plan.check(|page, _| page != Page(0));
        assert!(!plan.has(Page(0)) && plan.has(Page(1)));
        assert_eq!(plan.pop(|_, mark| *mark != 1), Some(Page(2)));
        assert_eq!(plan.pages().collect::<Vec<_>>(), [Page(3), Page(4)]);
    }
}
