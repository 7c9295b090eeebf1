//! GCLOCK: CLOCK with a count for each page instead of a bit. The hand subtracts `s` from each
//! count that it passes, and evicts the first page whose count is 0.
//!
//! Source: Effelsberg, Härder, "Principles of database buffer management", TODS 9(4), 1984; Gilbert
//! 2020, section 1.2.10. Version 1 adds `r` to the count at a use, version 2 sets the count to `r`.
//! `dgclock.rs` has the dynamic versions, which share this code.
//!
//! Parameters (Gilbert's, section 1.2.10.1): `f`, count of a page that was just loaded; `r`; `s`;
//! `update`, whether the beginning or the end of a use counts (for version 2 he prefers the end,
//! which also counts the load).

use crate::simulate::entry::{Domain, Parameter, PolicyEntry, Setup};
use crate::simulate::lists::Lists;
use crate::simulate::policy::{Access, Policy};
use crate::simulate::pool::{Page, PerPage, Pool};

const F: Parameter = Parameter {
    name: "f",
    default: "25",
    takes: Domain::Whole(0, 1 << 20),
    about: "count of a page that was just loaded",
};
const R: Parameter = Parameter {
    name: "r",
    default: "5",
    takes: Domain::Whole(0, 1 << 20),
    about: "added to the count at a use, or the new count",
};
pub(super) const S: Parameter = Parameter {
    name: "s",
    default: "1",
    takes: Domain::Whole(1, 1 << 20),
    about: "subtracted by the hand",
};
const BEGINNING: Parameter = Parameter {
    name: "update",
    default: "fix",
    takes: Domain::Word(&["fix", "unfix"]),
    about: "whether the beginning or the end of a use counts",
};
const END: Parameter = Parameter { default: "unfix", ..BEGINNING };

pub const ENTRY_1: PolicyEntry = PolicyEntry {
    name: "gclock1",
    source: "Effelsberg, Härder, TODS 9(4), 1984; Gilbert 2020, section 1.2.10.1",
    cost: "O(1) amortised",
    parameters: &[F, R, S, BEGINNING],
    build: |setup| Box::new(GClock::of(setup, false)),
};

pub const ENTRY_2: PolicyEntry = PolicyEntry {
    name: "gclock2",
    source: "Effelsberg, Härder, TODS 9(4), 1984; Gilbert 2020, section 1.2.10.2",
    cost: "O(1) amortised",
    parameters: &[F, R, S, END],
    build: |setup| Box::new(GClock::of(setup, true)),
};

/// Counts for a kind of pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Weights {
    pub f: u32,
    pub r: u32,
}

/// The weights of each page.
pub(super) enum Weigh {
    /// Those of clean pages and those of dirty pages.
    ByDirt([Weights; 2]),
    /// By the kind of the page.
    ByKind(Vec<Weights>),
}

impl Weigh {
    fn of(&self, page: Page, dirty: bool) -> Weights {
        match self {
            Weigh::ByDirt(weights) => weights[usize::from(dirty)],
            Weigh::ByKind(weights) => weights[page.0 as usize],
        }
    }
}

/// GCLOCK with weights that may differ between pages.
pub(super) struct GClock {
    /// The hand is at the back.
    circle: Lists<1>,
    counts: PerPage<u32>,
    weigh: Weigh,
    s: u32,
    sets: bool,
    at_unfix: bool,
}

impl GClock {
    fn of(setup: &Setup, sets: bool) -> Self {
        let weights = Weights { f: setup.whole("f") as u32, r: setup.whole("r") as u32 };
        Self::new(setup, sets, Weigh::ByDirt([weights; 2]))
    }

    pub(super) fn new(setup: &Setup, sets: bool, weigh: Weigh) -> Self {
        Self {
            circle: Lists::new(setup.pages()),
            counts: PerPage::new(setup.pages(), 0),
            weigh,
            s: setup.whole("s") as u32,
            sets,
            at_unfix: setup.word("update") == "unfix",
        }
    }

    fn used(&mut self, page: Page, dirty: bool) {
        let r = self.weigh.of(page, dirty).r;
        let count = &mut self.counts[page];
        *count = if self.sets { r } else { count.saturating_add(r) };
    }
}

impl Policy for GClock {
    fn hit(&mut self, access: Access, pool: &Pool) {
        if !self.at_unfix {
            self.used(access.page, access.write || pool.is_dirty(access.page));
        }
    }

    fn select(&mut self, _: &Pool, victims: &mut Vec<Page>) {
        while let Some(page) = self.circle.pop_back(0) {
            let count = &mut self.counts[page];
            if *count == 0 {
                victims.push(page);
                break;
            }
            *count = count.saturating_sub(self.s);
            self.circle.push_front(0, page);
        }
    }

    fn fetch(&mut self, access: Access, _: &Pool) {
        self.counts[access.page] = self.weigh.of(access.page, access.write).f;
        self.circle.push_front(0, access.page);
    }

    fn unfix(&mut self, page: Page, pool: &Pool) {
        if self.at_unfix && pool.holds(page) {
            self.used(page, pool.is_dirty(page));
        }
    }

    fn cannot_evict(&mut self, page: Page, pool: &Pool) {
        self.used(page, pool.is_dirty(page));
        self.circle.push_front(0, page);
    }

    fn remove(&mut self, page: Page, _: &Pool) {
        self.circle.remove(page);
    }

    fn upcoming(&mut self, _: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        let mut pages: Vec<Page> = self.circle.from_back(0).collect();
        pages.sort_by_key(|page| self.counts[*page].div_ceil(self.s));
        pages.into_iter().all(take);
    }

    fn bytes_per_page(&self) -> f64 {
        4.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{misses_of, mixed, run};

    #[test]
    fn version_2_with_a_count_of_one_is_clock() {
        for capacity in [1, 7, 40] {
            let trace = mixed(7);
            let same =
                |a: &str, b: &str| assert_eq!(run(a, capacity, &trace), run(b, capacity, &trace));
            same("gclock2:f=1,r=1,update=fix", "clock");
            same("gclock2:f=0,r=1,update=fix", "clock:ref_at_load=0");
            same("gclock2:f=0,r=1,update=unfix", "clock");
        }
    }

    #[test]
    fn version_1_adds_up_uses_and_version_2_does_not() {
        // Page 1 is used three times, page 2 once: the hand takes one off each until 2 has none
        // left. If uses do not add up, the hand comes to 1 first.
        let trace = [1, 1, 1, 2, 3, 1];
        assert_eq!(misses_of("gclock1:f=1,r=1", 2, &trace), [1, 2, 3]);
        assert_eq!(misses_of("gclock2:f=1,r=1,update=fix", 2, &trace), [1, 2, 3, 1]);
    }
}
