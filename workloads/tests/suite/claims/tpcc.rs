//! Claims about TPC-C, on a recorded run of one warehouse. No two recordings are alike, because
//! rows are loaded by tasks that wait for the device. The ranges are those of fourteen recordings
//! on a busy machine, widened by half a point or percent.

use std::ops::Range;

use super::{hit_rate_at_end, run};
use crate::recorded;
use wattle_workloads::simulate::generate::{parse, with_parasite};
use wattle_workloads::simulate::replay::{Counts, Device};
use wattle_workloads::simulate::trace::Trace;

fn of(text: &str, pages: usize, trace: &Trace) -> Counts {
    run(text, pages, trace, Device::default())
}

/// Mean misses and writes of eight seeds. Misses of a policy that samples scatter by 0.4 %.
fn mean(text: &str, pages: usize, trace: &Trace) -> [f64; 2] {
    let spec = wattle_workloads::simulate::registry::Spec::parse(text).unwrap();
    let runs = (1..=8).map(|seed| spec.run(trace, pages, seed, Device::default(), |_| true));
    let runs: Vec<Counts> = runs.map(Option::unwrap).collect();
    let sum = |of: &dyn Fn(&Counts) -> u64| runs.iter().map(of).sum::<u64>() as f64 / 8.0;
    [sum(&|counts| counts.misses), sum(&Counts::all_writes)]
}

/// Misses and writes relative to WATT without a write weight must be in these ranges.
type Expected<'a> = (&'a str, Range<f64>, Range<f64>);

fn trade_off(trace: &Trace, share: usize, expected: &[Expected]) {
    let pages = trace.pages() / share;
    let base = mean("watt:write_weight=0", pages, trace);
    for (policy, misses, writes) in expected {
        let found = mean(policy, pages, trace);
        let ratios = [found[0] / base[0], found[1] / base[1]];
        println!("{pages} pages: {policy:<22} misses {:.4}, writes {:.4}", ratios[0], ratios[1]);
        assert!(misses.contains(&ratios[0]), "{policy} at 1/{share}: misses {}", ratios[0]);
        assert!(writes.contains(&ratios[1]), "{policy} at 1/{share}: writes {}", ratios[1]);
    }
}

/// WATT, section 4.2 and Figure 2: a write weight reduces the writes by over 10 % for less than
/// 15 % more misses. Without one WATT writes least of the policies that do not look at writes; ARC
/// misses less here. CFLRU trades worse with a small cache and better with a larger one.
#[test]
fn the_write_weight_trades_misses_for_writes() {
    let trace = recorded::tpcc();
    let heavy = ("watt:write_weight=16", 1.08..1.15, 0.85..0.90);
    trade_off(
        trace,
        10,
        &[
            ("watt:write_weight=8", 1.05..1.066, 0.887..0.904),
            heavy.clone(),
            ("lru", 1.05..1.07, 1.09..1.11),
            ("hyperbolic", 1.005..1.03, 1.02..1.04),
            ("arc", 0.945..0.965, 1.005..1.025),
            ("cflru:window=0.5", 1.08..1.12, 0.92..0.94),
        ],
    );
    trade_off(
        trace,
        5,
        &[
            ("watt:write_weight=8", 1.042..1.06, 0.867..0.886),
            heavy,
            ("lru", 0.95..0.97, 1.045..1.065),
            ("hyperbolic", 0.93..0.96, 0.995..1.015),
            ("arc", 0.905..0.93, 1.02..1.045),
            ("cflru:window=0.5", 0.95..0.975, 0.88..0.905),
        ],
    );
}

/// The same on a longer run, where weight 8 with a cache of a fifth gives what WATT's Figure 2 has:
/// misses +8 to +12 %, writes -12 to -14 %.
#[test]
#[ignore = "records 10,000 transactions: a minute"]
fn the_write_weight_trades_as_in_the_figure_on_a_longer_run() {
    let trace = recorded::record(10_000);
    trade_off(&trace, 5, &[("watt:write_weight=8", 1.08..1.12, 0.86..0.88)]);
    trade_off(&trace, 10, &[("watt:write_weight=8", 1.06..1.085, 0.875..0.895)]);
}

/// FBARC, Figure 9, trace C: its hit rate is one point below that of LRU and ARC with the smallest
/// cache and equal with the largest one. Here it is two points above LRU with 256 pages and a half
/// to two and a half below with more, and three to six below ARC. Its writes are in fewer runs than
/// those of all others but CFDC.
#[test]
fn fbarc_hits_less_than_arc_and_writes_in_fewer_runs() {
    let trace = recorded::tpcc();
    for (pages, lru, arc) in [
        (256, 1.6..2.9, -6.3..-5.1),
        (512, -1.2..0.05, -6.5..-5.2),
        (1024, -3.1..-1.9, -5.0..-3.8),
        (2048, -2.7..-1.4, -3.3..-2.1),
    ] {
        let rate = |counts: &Counts| 100.0 * counts.hit_ratio();
        let runs = |counts: &Counts| counts.write_runs as f64 / counts.all_writes() as f64;
        let fbarc = of("fbarc", pages, trace);
        for (other, points) in [("lru", lru), ("arc", arc)] {
            let counts = of(other, pages, trace);
            let more = rate(&fbarc) - rate(&counts);
            println!("{pages} pages: FBARC {:.2} %, {more:+.2} over {other}", rate(&fbarc));
            assert!(points.contains(&more), "{pages} pages: {more} over {other}");
            assert!(runs(&fbarc) < runs(&counts) - 0.02, "{pages}: {}", runs(&fbarc));
        }
        assert!(runs(&fbarc) < runs(&of("cflru:window=0.4", pages, trace)), "{pages}");
    }
}

/// FBARC, section 5.4 and Figure 15, on its own kind of load: a parasite takes 5 to 13 points from
/// LRU, 5 to 13 from CFLRU and CFDC, 3 to 5 from FOR+, and at most 0.4 from ARC and FBARC. Here ARC
/// loses at most 0.7 and FOR+ 0.8 (of several recorded runs), LRU 12 to 24; but FBARC loses 2 to 5
/// points to one that writes: T3, which holds its dirty pages, is not protected.
#[test]
fn parasites_in_tpc_c_hurt_all_but_arc_and_for_plus() {
    let load = recorded::tpcc();
    for pages in [512, 1024, 2048] {
        // One run of a few hundred accesses gives points that scatter by several; the mean of five
        // at different times does not.
        let lost = |policy: &str| {
            let times = [160_000, 170_000, 180_000, 190_000, 200_000];
            let rate = |parasite| {
                let rates = times.map(|time| {
                    let load = with_parasite(load, time - pages, pages, parasite);
                    hit_rate_at_end(policy, pages, &load)
                });
                rates.iter().sum::<f64>() / times.len() as f64
            };
            let without = rate(None);
            let lost = [Some(false), Some(true)].map(|parasite| without - rate(parasite));
            println!("{pages} pages, {policy}: {:.2} {:.2}", lost[0], lost[1]);
            lost
        };
        assert!(lost("arc").iter().all(|points| *points <= 1.0), "arc {pages}");
        assert!(lost("for+").iter().all(|points| *points <= 1.1), "for+ {pages}");
        let lru = lost("lru");
        assert!(lru[0] == lru[1] && (11.0..25.0).contains(&lru[0]), "lru {pages}: {lru:?}");
        let cflru = lost("cflru:window=0.4");
        assert!(cflru[1] > 11.0 && cflru[0] < 0.65 * cflru[1], "cflru {pages}: {cflru:?}");
        let fbarc = lost("fbarc");
        assert!(fbarc.iter().all(|points| *points < 6.0), "fbarc {pages}: {fbarc:?}");
        assert!(fbarc[1] < 0.4 * lru[1], "fbarc {pages}: {fbarc:?}");
    }
}

/// Gilbert, section 1.3.4 and Figure 1.30: with small pools LRD, LRU and GCLOCK-V1 miss least and
/// LFUDA less than LFU; RANDOM and LOOP miss more than CLOCK, ZCLOCK and GCLOCK at all sizes; FIFO
/// and FILO miss most up to 10 of 14.3 GiB. Misses relative to those of CLOCK, by pool size in
/// percent of the pages.
#[test]
fn the_ranking_of_the_thesis_depends_on_the_pool_size() {
    let trace = recorded::tpcc();
    for percent in [1, 3, 7, 15, 30, 60] {
        let pages = trace.pages() * percent / 100;
        let clock = of("clock", pages, trace).misses as f64;
        let relative = |text: &str| {
            let ratio = of(text, pages, trace).misses as f64 / clock;
            println!("{percent} % of the pages: {text:<8} {ratio:.3}");
            ratio
        };
        for (policy, most) in [("random", 1.36), ("loop", 1.23)] {
            assert!((1.03..most).contains(&relative(policy)), "{policy} at {percent} %");
        }
        assert!((0.95..0.99).contains(&relative("lru")), "lru at {percent} %");
        assert!((0.97..1.002).contains(&relative("gclock2")), "gclock2 at {percent} %");
        assert!((0.93..1.13).contains(&relative("zclock")), "zclock at {percent} %");
        let (lrd, lfu, lfuda) = (relative("lrd1"), relative("lfu"), relative("lfuda"));
        let (expected, lfu_better) = match percent {
            1..=3 => (0.87..0.90, true),
            7..=15 => (0.87..0.94, false),
            _ => (0.96..1.0, false),
        };
        assert!(expected.contains(&lrd), "lrd1 at {percent} %: {lrd}");
        // Here LFU is the better one with small pools.
        assert_eq!(lfu < lfuda, lfu_better, "lfu {lfu}, lfuda {lfuda} at {percent} %");
        let filo = relative("filo");
        let expected = match percent {
            1 => 1.05..1.09,
            3 => 0.98..1.02,
            7 => 1.13..1.21,
            15 => 1.48..1.62,
            30 => 1.94..2.2,
            _ => 1.66..1.9,
        };
        assert!(expected.contains(&filo), "filo at {percent} %: {filo}");
    }
}

/// Gilbert, section 1.3.5: the timestamp-sorting forms of LRU and LRU-K miss least for most pool
/// sizes, and his list of LRU-K, which evicts pages that just came in, stalls with larger pools.
/// Here sorting is exact for LRU; for LRU-K it misses less than the list from 15 % of the pages on,
/// and more with 1 and 3 %. Misses are relative to those of CLOCK.
#[test]
fn sorting_is_lru_and_better_than_the_list_of_lru_k_with_larger_pools() {
    let trace = recorded::tpcc();
    for percent in [1, 3, 7, 15, 30, 60] {
        let pages = trace.pages() * percent / 100;
        let misses = |text: &str| of(text, pages, trace).misses as f64;
        assert_eq!(misses("lru"), misses("lru:form=sorting"), "{percent} %");
        let clock = misses("clock");
        let [list, sorting, third] =
            ["lru-k:retained=0", "lru-k:form=sorting", "lru-k:k=3,form=sorting"]
                .map(|text| misses(text) / clock);
        println!("{percent} %: list {list:.3}, sorting {sorting:.3}, K = 3 {third:.3}");
        let (of_list, of_sorting) = match percent {
            1 => (0.79..0.85, 0.91..0.96),
            3 => (0.73..0.79, 0.87..0.91),
            7 => (0.87..0.92, 0.88..0.92),
            15 => (1.13..1.20, 0.90..0.94),
            30 => (1.39..1.47, 0.94..0.98),
            _ => (1.06..1.11, 0.95..0.98),
        };
        assert!(of_list.contains(&list), "list at {percent} %: {list}");
        assert!(of_sorting.contains(&sorting), "sorting at {percent} %: {sorting}");
        assert!((third - sorting).abs() < 0.03, "K = 3 at {percent} %: {third}");
    }
}

/// ACE, Figure 8: total run time, of which the device is a part. The rest is fitted to one number,
/// LRU on the mixed skewed load: without prefetching ACE takes 19.7 % less. The same rest for each
/// access then predicts the others: CFLRU 22.0, LRU-WSR 23.5, Clock 20.6, and with prefetching (up
/// to 5 points) 29.3 on the write-intensive and 8.1 on the read-intensive load, 14.5 on the uniform
/// one. All but the last agree within 5 points: the paper's device is slower with uniform writes
/// than its asymmetry says.
#[test]
fn ace_takes_a_fifth_off_the_total_time_not_half() {
    let device = Device { asymmetry: 2.8, concurrency: 8, ..Device::default() };
    let load = |name: &str| parse(&format!("{name}:pages=20000,accesses=300000")).unwrap();
    let seconds = |policy: &str, trace: &Trace| {
        let pages = trace.pages() * 6 / 100;
        [policy.to_owned(), format!("ace({policy}):nw=8")]
            .map(|text| run(&text, pages, trace, device).device_seconds(&device))
    };
    let mixed = load("MS");
    let [plain, ace] = seconds("lru", &mixed);
    // (plain - ace) / (plain + rest) = 0.197
    let rest = (plain - ace) / 0.197 - plain;
    println!("device {plain:.1} s, with ACE {ace:.1} s, rest {rest:.1} s");
    assert!((1.6..2.0).contains(&(rest / plain)), "{}", rest / plain);
    for (name, policy, paper, within) in [
        ("MS", "clock", 20.6, 5.0),
        ("MS", "cflru", 22.0, 5.0),
        ("MS", "lru-wsr", 23.5, 5.5),
        ("WIS", "lru", 29.3, 5.0),
        ("RIS", "lru", 8.1, 5.0),
        ("MU", "lru", 14.5, 8.5),
    ] {
        let [plain, ace] = seconds(policy, &load(name));
        let saved = 100.0 * (plain - ace) / (plain + rest);
        println!("{name} {policy}: ACE takes {saved:.1} % off, paper {paper} %");
        assert!((saved - paper).abs() < within, "{name} {policy}: {saved}");
    }
}
