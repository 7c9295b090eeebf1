//! LRD: the page with the least reference density leaves: its uses since it was loaded, per uses of
//! all pages since then.
//!
//! Source: Effelsberg, Härder, "Principles of database buffer management", TODS 9(4), 1984; Gilbert
//! 2020, section 1.2.12. His listing searches all frames and clears index -1; here pages are
//! grouped by uses, and in a group the one that was loaded first has the least density. Version 2
//! reduces all counts by age from time to time.
//!
//! Parameters of version 2 (his variant 10 - 10): `period`, uses of all pages between two agings,
//! per frame; `age`, how counts age: `subtract` or `multiply` by `operand` (rounded down).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::simulate::entry::{Domain, Parameter, PolicyEntry, Setup};
use crate::simulate::policy::{Access, Policy};
use crate::simulate::pool::{Page, PerPage, Pool};
use crate::simulate::upcoming::{Total, by_least};

pub const ENTRY_1: PolicyEntry = PolicyEntry {
    name: "lrd1",
    source: "Effelsberg, Härder, TODS 9(4), 1984; Gilbert 2020, section 1.2.12.1",
    cost: "O(different counts) per miss",
    parameters: &[],
    build: |setup| Box::new(Lrd::new(setup, None)),
};

pub const ENTRY_2: PolicyEntry = PolicyEntry {
    name: "lrd2",
    source: "Effelsberg, Härder, TODS 9(4), 1984; Gilbert 2020, section 1.2.12.2",
    cost: "O(different counts) per miss",
    parameters: &[
        Parameter {
            name: "period",
            default: "10",
            takes: Domain::Number(0.01, 1e9),
            about: "uses between two agings, per frame",
        },
        Parameter {
            name: "age",
            default: "subtract",
            takes: Domain::Word(&["subtract", "multiply"]),
            about: "how counts age",
        },
        Parameter {
            name: "operand",
            default: "10",
            takes: Domain::Number(0.0, 1e9),
            about: "subtracted, or the factor",
        },
    ],
    build: |setup| {
        let period = (setup.number("period") * setup.capacity as f64).max(1.0) as u64;
        let (operand, multiply) = (setup.number("operand"), setup.word("age") == "multiply");
        Box::new(Lrd::new(setup, Some(Aging { period, operand, multiply })))
    },
};

#[derive(Clone, Copy, Debug)]
struct Aging {
    period: u64,
    operand: f64,
    multiply: bool,
}

impl Aging {
    fn apply(self, count: u32) -> u32 {
        let count = f64::from(count);
        let aged = if self.multiply { count * self.operand } else { count - self.operand };
        aged.max(0.0) as u32
    }
}

#[derive(Clone, Copy, Debug)]
struct References {
    first: u64,
    count: u32,
}

struct Lrd {
    /// References of all pages so far.
    now: u64,
    pages: PerPage<References>,
    /// Cached pages by count, each with its first reference; entries of old counts stay until they
    /// reach the top.
    groups: BTreeMap<u32, BinaryHeap<Reverse<(u64, Page)>>>,
    aging: Option<Aging>,
}

impl Lrd {
    fn new(setup: &Setup, aging: Option<Aging>) -> Self {
        let pages = PerPage::new(setup.pages(), References { first: 0, count: 0 });
        Self { now: 0, pages, groups: BTreeMap::new(), aging }
    }

    fn file(&mut self, page: Page) {
        let References { first, count } = self.pages[page];
        self.groups.entry(count).or_default().push(Reverse((first, page)));
    }

    fn tick(&mut self, pool: &Pool) {
        self.now += 1;
        if let Some(aging) = self.aging
            && self.now.is_multiple_of(aging.period)
        {
            self.groups.clear();
            for page in pool.pages() {
                self.pages[page].count = aging.apply(self.pages[page].count);
                self.file(page);
            }
        }
    }
}

impl Policy for Lrd {
    fn hit(&mut self, access: Access, pool: &Pool) {
        self.pages[access.page].count += 1;
        self.file(access.page);
        self.tick(pool);
    }

    fn select(&mut self, pool: &Pool, victims: &mut Vec<Page>) {
        let (now, pages) = (self.now, &self.pages);
        let mut least: Option<(u32, u64, Page)> = None;
        self.groups.retain(|count, group| {
            let current = |first: u64, page: Page| {
                let page_now = pages[page];
                pool.holds(page) && page_now.count == *count && page_now.first == first
            };
            while let Some(Reverse((first, page))) = group.peek().copied() {
                if !current(first, page) {
                    group.pop();
                    continue;
                }
                // count / (now - first), compared without division.
                let below = |other: &(u32, u64, Page)| {
                    u64::from(*count) * (now - other.1) < u64::from(other.0) * (now - first)
                };
                if least.as_ref().is_none_or(below) {
                    least = Some((*count, first, page));
                }
                break;
            }
            !group.is_empty()
        });
        victims.extend(least.map(|(_, _, page)| page));
    }

    fn fetch(&mut self, access: Access, pool: &Pool) {
        self.pages[access.page] = References { first: self.now, count: 1 };
        self.file(access.page);
        self.tick(pool);
    }

    fn cannot_evict(&mut self, page: Page, _: &Pool) {
        self.pages[page].count += 1;
        self.file(page);
    }

    fn remove(&mut self, _: Page, _: &Pool) {}

    fn upcoming(&mut self, pool: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        let density = |page: Page| {
            let References { first, count } = self.pages[page];
            (Total(f64::from(count) / (self.now - first).max(1) as f64), count, first)
        };
        by_least(pool, density, take);
    }

    fn bytes_per_page(&self) -> f64 {
        8.125
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::mixed;
    use super::*;
    use crate::simulate::registry::Spec;
    use crate::simulate::replay::{Device, Replay};

    /// The densities by a search of all pages, like the source.
    #[test]
    fn the_victim_has_the_least_density_of_all() {
        let trace = mixed(5);
        for (text, aging) in [
            ("lrd1", None),
            ("lrd2", Some(Aging { period: 300, operand: 10.0, multiply: false })),
            (
                "lrd2:age=multiply,operand=0.5,period=2",
                Some(Aging { period: 60, operand: 0.5, multiply: true }),
            ),
        ] {
            let mut policy = Spec::parse(text).unwrap().build(&trace, 30, 1, Device::default());
            let mut replay = Replay::new(&trace, 30, &mut *policy);
            let mut model: Vec<(Page, u64, u32)> = Vec::new();
            for (now, access) in trace.accesses().enumerate() {
                let now = now as u64;
                let before: Vec<Page> = replay.pool.pages().collect();
                replay.access(access);
                if let Some(victim) = before.iter().find(|page| !replay.pool.holds(**page)) {
                    let density = |(_, first, count): &(Page, u64, u32)| {
                        f64::from(*count) / (now - first) as f64
                    };
                    let least = model.iter().map(density).fold(f64::INFINITY, f64::min);
                    let at = model.iter().position(|(page, _, _)| page == victim).unwrap();
                    assert!(density(&model[at]) <= least + 1e-12, "{text} at {now}");
                    model.remove(at);
                }
                match model.iter_mut().find(|(page, _, _)| *page == access.page) {
                    Some((_, _, count)) => *count += 1,
                    None => model.push((access.page, now, 1)),
                }
                if let Some(aging) = aging.filter(|aging| (now + 1).is_multiple_of(aging.period)) {
                    model.iter_mut().for_each(|(_, _, count)| *count = aging.apply(*count));
                }
            }
        }
    }
}
