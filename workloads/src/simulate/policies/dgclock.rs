//! DGCLOCK: GCLOCK with counts that depend on the kind of page.
//!
//! Source: Effelsberg, Härder, "Principles of database buffer management", TODS 9(4), 1984; Gilbert
//! 2020, section 1.2.11. Version 1 adds to the count at a use, version 2 sets it.
//!
//! A trace that has the level and the tree of its pages, as those of Wattle do, is weighed as
//! Gilbert does it: the root of a tree, the level below it, further levels, and pages outside of
//! trees. Other traces only tell clean from dirty pages.
//!
//! Parameters, with Gilbert's values for his variants *Fix* and *FixFull*: `f` and `r` of pages two
//! levels or more below the root (without levels: of clean pages); `f1` and `r1` one level below
//! it; `f0` and `r0` of roots; `fx` and `rx` of pages outside of trees; `fw` and `rw` of dirty
//! pages, by default the values of the level below the root; `by`, what is weighed; `s` and
//! `update` as in GCLOCK.

use super::gclock::{GClock, S, Weigh, Weights};
use crate::simulate::entry::{Domain, Parameter, PolicyEntry, Setup};
use crate::simulate::kinds::Kind;

const fn weight(name: &'static str, default: &'static str, about: &'static str) -> Parameter {
    Parameter { name, default, takes: Domain::Whole(0, 1 << 20), about }
}

const PARAMETERS: &[Parameter] = &[
    weight(
        "f",
        "5",
        "count of a page two levels or more below its root, or a clean one, once loaded",
    ),
    weight("r", "1", "added to the count of such a page at a use, or the new count"),
    weight("f1", "10", "the same as f one level below the root"),
    weight("r1", "2", "the same as r one level below the root"),
    weight("f0", "25", "the same as f for a root"),
    weight("r0", "5", "the same as r for a root"),
    weight("fx", "25", "the same as f outside of trees"),
    weight("rx", "5", "the same as r outside of trees"),
    weight("fw", "10", "the same as f for a page that is written"),
    weight("rw", "2", "the same as r for a dirty page"),
    Parameter {
        name: "by",
        default: "auto",
        takes: Domain::Word(&["auto", "level", "dirt"]),
        about: "whether levels are weighed, or dirty pages; auto: levels if the trace has them",
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
    let of_kind = |kind: &Kind| match kind {
        Kind::Root => weights("f0", "r0"),
        Kind::BelowRoot => weights("f1", "r1"),
        Kind::Lower => weights("f", "r"),
        Kind::Other => weights("fx", "rx"),
    };
    let unknown = || vec![of_kind(&Kind::Other); setup.pages()];
    let by_kind = setup.trace.kinds().map(|kinds| kinds.iter().map(of_kind).collect());
    let weigh = match (setup.word("by"), by_kind) {
        ("level", kinds) => Weigh::ByKind(kinds.unwrap_or_else(unknown)),
        ("auto", Some(kinds)) => Weigh::ByKind(kinds),
        _ => Weigh::ByDirt([weights("f", "r"), weights("fw", "rw")]),
    };
    GClock::new(setup, sets, weigh)
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
    use crate::simulate::kinds::{Holds, Place};
    use crate::simulate::trace::{Builder, Trace};

    /// A root, ten inner pages and a thousand leaves below them: each look-up reads one of each.
    fn descents() -> Trace {
        let mut builder = Builder::new("tree");
        let mut rng = crate::rng::Rng::new(3, 3);
        for _ in 0..4_000 {
            let leaf = rng.below(1000);
            let way = [(0, 2), (1 + leaf / 100, 1), (20 + leaf, 0)];
            for (page, level) in way {
                let holds = if level > 0 { Holds::Inner } else { Holds::Leaf };
                let place = Place { holds, level: Some(level), tree: 1 };
                assert!(builder.push_at(page, level == 0 && leaf.is_multiple_of(3), Some(place)));
            }
        }
        builder.finish()
    }

    #[test]
    fn levels_are_weighed_if_the_trace_has_them() {
        let trace = descents();
        for name in ["dgclock1", "dgclock2"] {
            let auto = replayed(name, 40, &trace);
            assert_eq!(auto.misses, replayed(&format!("{name}:by=level"), 40, &trace).misses);
            let dirt = replayed(&format!("{name}:by=dirt"), 40, &trace);
            assert_ne!(auto.misses, dirt.misses, "{name}");
            // With equal weights levels make no difference.
            let equal = "f=5,r=1,f1=5,r1=1,f0=5,r0=1";
            let fixed = format!("gclock{}:f=5,r=1,update=fix", &name[7..]);
            let equal = replayed(&format!("{name}:{equal}"), 40, &trace);
            assert_eq!(equal.misses, replayed(&fixed, 40, &trace).misses, "{name}");
        }
        // Inner pages that weigh nothing leave before leaves that weigh much.
        let light = replayed("dgclock2:f0=0,r0=0,f1=0,r1=0,f=9,r=9", 40, &trace);
        assert!(light.misses > replayed("dgclock2", 40, &trace).misses, "{light:?}");
    }

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
