//! LIRS-WSR: LIRS in which a dirty page gets a second chance before it is demoted or evicted.
//!
//! Source: Jung, Yoon, Shim, Park, Kang, Cha, "LIRS-WSR: integration of LIRS and writes sequence
//! reordering for flash memory", ICCSA 2007, as LRU-WSR does it to LRU: a dirty page whose cold
//! flag is not set goes, with the flag set, from the bottom of the stack back to its top, or from
//! the end of the queue back to its beginning. A use clears the flag.
//!
//! Parameter `hir`: share of the cache for HIR pages, at least one page. LIRS itself is in
//! `lirs.rs`, in the form of its paper.

use super::lirs::{Lirs, SecondChance};
use crate::simulate::entry::{Domain, Parameter, PolicyEntry};

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "lirs-wsr",
    source: "Jung et al., ICCSA 2007",
    cost: "O(1) amortised",
    parameters: &[Parameter {
        name: "hir",
        default: "0.01",
        takes: Domain::Number(0.0, 0.5),
        about: "share of the cache for HIR pages",
    }],
    build: |setup| {
        let second = SecondChance::new(setup.pages());
        Box::new(Lirs::new(setup, true, Some(second)))
    },
};

#[cfg(test)]
mod tests {
    use super::super::testing::{mixed, replayed, run, steps};
    use crate::simulate::trace::Trace;

    #[test]
    fn without_writes_it_is_lirs() {
        let reads =
            mixed(2).accesses().map(|access| (u64::from(access.page.0), false)).collect::<Vec<_>>();
        let trace = Trace::of("reads", reads);
        for capacity in [10, 60] {
            let plain = run("lirs:form=paper,hir=0.1", capacity, &trace);
            assert_eq!(run("lirs-wsr:hir=0.1", capacity, &trace), plain);
        }
    }

    #[test]
    fn it_writes_less_than_lirs() {
        let trace = mixed(2);
        let (with, without) =
            (replayed("lirs-wsr", 60, &trace), replayed("lirs:form=paper", 60, &trace));
        assert!(with.all_writes() < without.all_writes());
    }

    #[test]
    fn a_dirty_page_in_the_queue_is_passed_over_once() {
        let (r, w) = (false, true);
        // Four frames: 1 and 2 are LIR, 3 (dirty) and 4 are in the queue. 5 finds 3 first, which
        // has its chance.
        let accesses = [(1, r), (2, r), (3, w), (4, r), (5, r), (6, r)];
        assert_eq!(steps("lirs-wsr:hir=0.5", 4, &accesses).1, [4, 3]);
        assert_eq!(steps("lirs:hir=0.5,form=paper", 4, &accesses).1, [3, 4]);
    }
}
