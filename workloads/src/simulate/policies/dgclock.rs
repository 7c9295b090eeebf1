//! DGCLOCK: GCLOCK with counts that depend on the kind of page.
//!
//! Source: Effelsberg, Härder, "Principles of database buffer management", TODS 9(4), 1984; Gilbert
//! 2020, section 1.2.11. Of the kinds that he lists, a trace tells clean from dirty pages. Version
//! 1 adds to the count at a use, version 2 sets it.
//!
//! Parameters: `f`, `r` of clean pages, by default the values of his lowest inner pages; `fw`, `rw`
//! of dirty pages, by default the values of the level above; `s` and `update` as in GCLOCK.

use super::gclock::{GClock, S, Weights};
use crate::simulate::entry::{Domain, Parameter, PolicyEntry, Setup};

const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "f",
        default: "5",
        takes: Domain::Whole(0, 1 << 20),
        about: "count of a clean page that was just loaded",
    },
    Parameter {
        name: "r",
        default: "1",
        takes: Domain::Whole(0, 1 << 20),
        about: "added to the count of a clean page at a use, or the new count",
    },
    Parameter {
        name: "fw",
        default: "10",
        takes: Domain::Whole(0, 1 << 20),
        about: "the same as f for a page that is written",
    },
    Parameter {
        name: "rw",
        default: "2",
        takes: Domain::Whole(0, 1 << 20),
        about: "the same as r for a dirty page",
    },
    S,
    Parameter {
        name: "update",
        default: "fix",
        takes: Domain::Word(&["fix", "unfix"]),
        about: "whether the beginning or the end of a use counts",
    },
];

fn of(setup: &Setup, sets: bool) -> GClock {
    let weights = |f, r| Weights { f: setup.whole(f) as u32, r: setup.whole(r) as u32 };
    GClock::new(setup, sets, weights("f", "r"), weights("fw", "rw"))
}

pub const ENTRY_1: PolicyEntry = PolicyEntry {
    name: "dgclock1",
    source: "Effelsberg, Härder, TODS 9(4), 1984; Gilbert 2020, section 1.2.11.1",
    cost: "O(1) amortised",
    parameters: PARAMETERS,
    build: |setup| Box::new(of(setup, false)),
};

pub const ENTRY_2: PolicyEntry = PolicyEntry {
    name: "dgclock2",
    source: "Effelsberg, Härder, TODS 9(4), 1984; Gilbert 2020, section 1.2.11.2",
    cost: "O(1) amortised",
    parameters: PARAMETERS,
    build: |setup| Box::new(of(setup, true)),
};

#[cfg(test)]
mod tests {
    use super::super::testing::{mixed, replayed, run};

    #[test]
    fn equal_weights_give_gclock() {
        let trace = mixed(3);
        for (dynamic, fixed) in [("dgclock1", "gclock1"), ("dgclock2", "gclock2")] {
            let dynamic = format!("{dynamic}:f=3,r=2,fw=3,rw=2,update=fix");
            let fixed = format!("{fixed}:f=3,r=2,update=fix");
            assert_eq!(run(&dynamic, 20, &trace), run(&fixed, 20, &trace));
        }
    }

    #[test]
    fn heavier_dirty_pages_are_written_less_often() {
        let trace = mixed(4);
        let (light, heavy) = (
            replayed("dgclock1:rw=1,fw=5", 30, &trace),
            replayed("dgclock1:rw=8,fw=40", 30, &trace),
        );
        assert!(heavy.all_writes() < light.all_writes());
    }
}
