//! Properties of every policy on every trace: the cache never exceeds its capacity, a hit evicts
//! nothing, no policy beats OPT, victims that stay and pages that vanish do no harm, and the same
//! seed gives the same counts.

use proptest::prelude::*;

use wattle_workloads::simulate::policies::ALL;
use wattle_workloads::simulate::registry::Spec;
use wattle_workloads::simulate::replay::{Counts, Device, Replay, replay as replay_all};
use wattle_workloads::simulate::trace::Trace;

/// Every policy with its defaults, those of the engine too, and forms that take other paths.
/// LIRS is in the form of its paper; the other one is known to hold a page too many (see its
/// file).
fn specs() -> Vec<Spec> {
    let forms = [
        "lirs:form=paper,hir=0.2",
        "lru-k:k=3,correlated=5,retained=50",
        "s3-fifo:tiny=use,fill=main",
        "watt:evict=listing",
        "watt:logging=flags,accesses=3,aggregate=median",
        "leanevict:refill=half",
        "gclock2:f=2,r=1",
        "lrd2:period=1,operand=1",
        "cflru:window=1",
        "cfdc:cluster=4,window=0.9",
        "fbarc:cluster=4",
        "arc:step=integer",
    ];
    let names = ALL.iter().map(|entry| entry.name).filter(|name| *name != "lirs");
    let live = wattle::policies().iter().map(|info| format!("live({})", info.name));
    let names = names.chain(forms).map(str::to_owned).chain(live);
    names.map(|text| Spec::parse(&text).unwrap()).collect()
}

fn count(text: &str, capacity: usize, trace: &Trace) -> Counts {
    let mut policy = Spec::parse(text).unwrap().build(trace, capacity, 1, Device::default());
    replay_all(trace, capacity, &mut *policy, |_| true).unwrap()
}

/// Runs of accesses: a skewed page, a scan or a loop.
fn traces() -> impl Strategy<Value = Trace> {
    let piece = prop_oneof![
        prop::collection::vec((0u64..12, any::<bool>()), 1..40),
        (0u64..60, 1u64..30, any::<bool>())
            .prop_map(|(first, length, write)| (first..first + length)
                .map(|id| (id, write))
                .collect()),
        (0u64..40, 1u64..10, 1usize..5).prop_map(|(first, length, times)| {
            let round = (first..first + length).map(|id| (id, id % 3 == 0));
            std::iter::repeat_n(round, times).flatten().collect()
        }),
    ];
    prop::collection::vec(piece, 1..16)
        .prop_map(|pieces: Vec<Vec<(u64, bool)>>| Trace::of("t", pieces.into_iter().flatten()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_policy_keeps_the_rules(trace in traces(), capacity in 1usize..24) {
        let best = count("opt", capacity, &trace).misses;
        for spec in specs() {
            let name = &spec.text;
            let mut policy = spec.build(&trace, capacity, 7, Device::default());
            let mut replay = Replay::new(&trace, capacity, &mut *policy);
            for access in trace.accesses() {
                let (hit, cached) = (replay.pool.holds(access.page), replay.pool.len());
                replay.access(access);
                prop_assert!(replay.pool.len() <= capacity, "{name} holds too many");
                prop_assert!(!hit || replay.pool.len() == cached, "{name} evicts on a hit");
            }
            let counts = replay.finish();
            prop_assert!(counts.misses >= best, "{name} beats OPT");
            prop_assert!(counts.misses >= trace.pages() as u64, "{name} misses too little");
            prop_assert!(counts.all_writes() <= trace.writes() as u64, "{name} writes too much");
            prop_assert_eq!(counts.accesses, trace.len() as u64);
            prop_assert!(counts.bytes_per_page >= 0.0);
            let mut policy = spec.build(&trace, capacity, 7, Device::default());
            let again = replay_all(&trace, capacity, &mut *policy, |_| true);
            prop_assert_eq!(again.unwrap().misses, counts.misses, "{} does not repeat", name);
        }
    }

    #[test]
    fn victims_that_stay_and_pages_that_vanish_do_no_harm(
        trace in traces(),
        capacity in 2usize..24,
        every in 2usize..9,
    ) {
        for spec in specs().into_iter().chain([Spec::parse("lirs:form=paper").unwrap()]) {
            let mut policy = spec.build(&trace, capacity, 7, Device::default());
            let mut replay = Replay::new(&trace, capacity, &mut *policy);
            for (now, access) in trace.accesses().enumerate() {
                replay.refuse(usize::from(now % every == 0));
                replay.access(access);
                prop_assert!(replay.pool.len() <= capacity, "{}", spec.text);
                if now % (3 * every) == 1 && replay.pool.holds(access.page) {
                    replay.drop_page(access.page);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn ace_around_every_policy_keeps_the_rules(trace in traces(), capacity in 1usize..24) {
        let forms = ["nw=4", "nw=2,ne=8", "nw=8,ne=4,prefetch=sequential", "ne=3,prefetch=history"];
        let all = specs();
        for (spec, form) in all.iter().flat_map(|spec| forms.map(|form| (spec, form))) {
            let name = format!("ace({}):{form}", spec.text);
            let counts = count(&name, capacity, &trace);
            let (pages, written) = (trace.pages() as u64, trace.writes() as u64);
            prop_assert!(counts.reads >= pages && counts.reads >= counts.misses, "{}", name);
            prop_assert!(counts.all_writes() <= written, "{name} writes too much");
            prop_assert!(counts.write_requests <= counts.all_writes(), "{}", name);
            let again = count(&name, capacity, &trace).misses;
            prop_assert_eq!(again, counts.misses, "{} does not repeat", name);
        }
    }
}

#[test]
fn a_cache_for_all_pages_misses_each_of_them_once() {
    let trace = Trace::of("t", (0..900u64).map(|access| ((access * 7) % 90, access % 5 == 0)));
    for spec in specs() {
        let counts = count(&spec.text, 90, &trace);
        assert_eq!((counts.misses, counts.writes), (90, 0), "{}", spec.text);
    }
}
