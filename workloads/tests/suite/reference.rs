//! Misses and writes of the policies against the reference counts that come with the shared traces.
//!
//! The traces are looked for in `WATTLE_TRACES`, else in `../shared/traces` beside the workspace;
//! without them the tests say so and pass. By default the short traces are replayed;
//! with `WATTLE_ROUNDS` set to anything, or by the ignored test, all of them. `WATTLE_SEED` gives
//! randomised policies other seeds.

use std::collections::BTreeMap;
use std::path::PathBuf;

use wattle_workloads::simulate::registry::Spec;
use wattle_workloads::simulate::replay::{Device, replay};
use wattle_workloads::simulate::trace::Trace;

/// Longest trace of the fast subset, in accesses.
const SHORT: usize = 140_000;

/// Which reference rows (policy, parameters) each policy must reproduce exactly.
const EXACT: &[(&str, &str, &str)] = &[
    ("LRU", "", "lru"),
    ("FIFO", "", "fifo"),
    ("CLOCK", "ref=1 at load", "clock"),
    ("CLOCK", "ref=0 at load", "clock:ref_at_load=0"),
    ("OPT", "", "opt"),
    ("SIEVE", "", "sieve"),
    ("ARC", "real step", "arc"),
    ("ARC", "integer step", "arc:step=integer"),
    ("LRU-2", "history kept; no correlated period", "lru-k:k=2"),
    ("LRU-2", "no history of evicted pages", "lru-k:k=2,retained=0"),
    ("CFLRU", "window 30%", "cflru:window=0.3"),
    ("LRU_WSR", "", "lru-wsr"),
    ("LIRS", "HIR 1%", "lirs:hir=0.01"),
    ("2Q", "Kin 25%; Kout 50%", "2q:kin=0.25,kout=0.5"),
    ("S3-FIFO", "small 10%; ghost 90%; threshold 2", "s3-fifo"),
    ("LFU", "", "lfu"),
];

/// Reference rows of randomised policies, by the beginning of their parameters up to the seeds.
const RANDOMISED: &[(&str, &str, &str)] = &[
    ("Random", "", "random"),
    ("LeanEvict", "cooling 30%; ", "leanevict:cooling=0.3"),
    ("Hyperbolic", "sample 20; ", "hyperbolic:sample=20"),
    ("Hyperbolic", "sample 20; 32-bit overflow; ", "hyperbolic:sample=20,product=32-bit"),
    ("WATT", "write_weight 4; epochs 4; ", "watt"),
    ("WATT", "write_weight 0; epochs 4; ", "watt:write_weight=0"),
    ("WATT", "write_weight 1; epochs 4; ", "watt:write_weight=1"),
    ("WATT", "write_weight 4; epochs 64; ", "watt:epochs=64"),
    ("WATT", "write_weight 4; epochs 4; no dampening; ", "watt:dampening=1"),
    ("WATT", "write_weight 4; epochs 4; ties newest first; ", "watt:ties=newest"),
    ("WATT listing", "write_weight 4; epochs 4; ", "watt:evict=listing"),
    ("WATT listing", "write_weight 4; epochs 64; ", "watt:epochs=64,evict=listing"),
    (
        "WATT listing",
        "write_weight 4; epochs 64; age without +1; ",
        "watt:epochs=64,evict=listing,age=plain",
    ),
];

/// Largest deviation from the reference on average over all points.
const ON_AVERAGE: f64 = 0.01;
/// Largest deviation on one point, of those with enough misses.
const ON_ANY_POINT: f64 = 0.03;
const ENOUGH_MISSES: f64 = 20_000.0;

struct Row {
    trace: String,
    cache_pages: usize,
    policy: String,
    parameters: String,
    misses: f64,
    writes: Option<f64>,
    source: String,
}

pub fn folder() -> Option<PathBuf> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/traces");
    let folder = std::env::var_os("WATTLE_TRACES").map_or(PathBuf::from(beside), PathBuf::from);
    if folder.join("reference_misses.csv").is_file() {
        return Some(folder);
    }
    eprintln!("skipped: no reference_misses.csv in {}; set WATTLE_TRACES", folder.display());
    None
}

fn reference(folder: &std::path::Path) -> BTreeMap<String, Vec<Row>> {
    let text = std::fs::read_to_string(folder.join("reference_misses.csv")).unwrap();
    let mut rows = BTreeMap::<String, Vec<Row>>::new();
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let row = Row {
            trace: fields[0].to_owned(),
            cache_pages: fields[1].parse().unwrap(),
            policy: fields[2].to_owned(),
            parameters: fields[3].to_owned(),
            misses: fields[4].parse().unwrap(),
            writes: fields[5].parse().ok(),
            source: fields[6].to_owned(),
        };
        rows.entry(row.trace.clone()).or_default().push(row);
    }
    rows
}

/// Whether the row is of the policy, by any simulator.
fn describes(row: &Row, (policy, parameters, _): &(&str, &str, &str)) -> bool {
    row.policy == *policy
        && row
            .parameters
            .strip_prefix(parameters)
            .is_some_and(|rest| rest.starts_with("randomised"))
}

/// The row is of the reference's own simulator, whose definitions all others are compared with.
fn matches(row: &Row, known: &(&str, &str, &str)) -> bool {
    row.source == "simulator" && describes(row, known)
}

fn nearly(longest: usize) {
    let Some(folder) = folder() else { return };
    // Sum of deviations, number of points, and largest deviation where there are enough misses, of
    // each policy and source.
    let mut sums = BTreeMap::<(&str, String), (f64, u32, f64)>::new();
    let mut wrong = Vec::new();
    for (name, rows) in reference(&folder) {
        let trace = Trace::read(&folder.join(format!("{name}.csv.zst"))).unwrap();
        if trace.len() > longest {
            continue;
        }
        for row in &rows {
            let Some(known) = RANDOMISED.iter().find(|known| describes(row, known)) else {
                continue;
            };
            let spec = Spec::parse(known.2).unwrap();
            let misses = |seed| {
                let mut policy = spec.build(&trace, row.cache_pages, seed, Device::default());
                replay(&trace, row.cache_pages, &mut *policy, |_| true).unwrap().misses as f64
            };
            // One seed where chance has little to say.
            let seeds = if trace.len() > SHORT { 1 } else { 3 };
            let first = seed();
            let ours = (first..first + seeds).map(misses).sum::<f64>() / seeds as f64;
            let deviation = ours / row.misses - 1.0;
            let counts = row.misses >= ENOUGH_MISSES;
            let large = if counts { deviation.abs() } else { 0.0 };
            let sum = sums.entry((known.2, row.source.clone())).or_default();
            *sum = (sum.0 + deviation, sum.1 + 1, sum.2.max(large));
            if large > ON_ANY_POINT {
                wrong.push(format!(
                    "{} on {} with {} pages: {ours}, {} has {}",
                    known.2, row.trace, row.cache_pages, row.source, row.misses
                ));
            }
        }
    }
    assert!(!sums.is_empty(), "the reference has no row that is checked");
    for ((text, source), (sum, points, largest)) in &sums {
        let average = sum / f64::from(*points);
        println!(
            "{text}, {source}: {:+.3} % on average over {points} points, at most {:.2} %",
            100.0 * average,
            100.0 * largest
        );
        if average.abs() > ON_AVERAGE {
            wrong.push(format!("{text}, {source}: {:+.2} % on average", 100.0 * average));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn exactly(longest: usize) {
    let Some(folder) = folder() else { return };
    let (mut checked, mut wrong) = (0, Vec::new());
    for (name, rows) in reference(&folder) {
        let trace = Trace::read(&folder.join(format!("{name}.csv.zst"))).unwrap();
        if trace.len() > longest {
            continue;
        }
        for row in &rows {
            let same =
                |known: &&(&str, &str, &str)| row.policy == known.0 && row.parameters == known.1;
            let Some((_, _, text)) = EXACT.iter().find(same) else { continue };
            let mut policy =
                Spec::parse(text).unwrap().build(&trace, row.cache_pages, 1, Device::default());
            let counts = replay(&trace, row.cache_pages, &mut *policy, |_| true).unwrap();
            checked += 1;
            let ours = (counts.misses as f64, counts.all_writes() as f64);
            let theirs = (row.misses, row.writes.unwrap_or(ours.1));
            if ours != theirs {
                wrong.push(format!(
                    "{text} on {} with {} pages: {ours:?}, the reference has {theirs:?}",
                    row.trace, row.cache_pages
                ));
            }
        }
    }
    assert!(checked > 0, "the reference has no row that is checked");
    assert!(wrong.is_empty(), "{} of {checked} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Traces of databases and block devices.
const DEVICES: [&str; 7] = [
    "arc_OLTP",
    "arc_P3",
    "arc_P6_5M",
    "w106",
    "scarab_recs",
    "cloudphysics_4k",
    "cloudphysics_req",
];

/// Traces with hardly any reuse, which say nothing.
const LEFT_OUT: [&str; 2] = ["addr_gzip_4K", "addr_mcf_1K"];

/// Relative misses, and relative cost where there are writes.
type Against = (f64, Option<f64>);

/// Prints watt2 relative to WATT: misses of each point, and reads plus four times the writes
/// where there are writes.
fn against_watt(longest: usize) -> Option<BTreeMap<String, Vec<Against>>> {
    let known = RANDOMISED.iter().find(|known| known.2 == "watt").unwrap();
    let spec = Spec::parse("watt2").unwrap();
    let folder = folder()?;
    let mut found = BTreeMap::new();
    for (name, rows) in reference(&folder) {
        let trace = Trace::read(&folder.join(format!("{name}.csv.zst"))).unwrap();
        if trace.len() > longest || LEFT_OUT.contains(&&*name) {
            continue;
        }
        let compare = |row: &Row| {
            let counts =
                spec.run(&trace, row.cache_pages, seed(), Device::default(), |_| true).unwrap();
            let written = row.writes.filter(|writes| *writes > 0.0);
            let cost = written.map(|writes| {
                (counts.reads + 4 * counts.all_writes()) as f64 / (row.misses + 4.0 * writes)
            });
            (counts.misses as f64 / row.misses, cost)
        };
        found.insert(name, rows.iter().filter(|row| matches(row, known)).map(compare).collect());
    }
    Some(found)
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, number) = values.fold((0.0, 0u32), |(sum, number), value| (sum + value, number + 1));
    sum / f64::from(number.max(1))
}

fn watt2_is_better(longest: usize) {
    let Some(found) = against_watt(longest) else { return };
    let points = || found.values().flatten();
    let average = mean(points().map(|point| point.0));
    let worst = points().map(|point| point.0).fold(0.0, f64::max);
    println!("watt2 against WATT: mean {average:.4}, worst point {worst:.4}");
    let most = if longest < usize::MAX { 0.9 } else { 0.915 };
    assert!(average <= most && worst <= 1.05, "mean {average}, worst point {worst}");
    if longest < usize::MAX {
        return;
    }
    for (name, points) in &found {
        let average = mean(points.iter().map(|point| point.0));
        println!("  {name}: {average:.4}");
        assert!(average <= 1.0, "{name}: {average}");
    }
    let devices = mean(DEVICES.iter().flat_map(|name| &found[*name]).map(|point| point.0));
    let cost = mean(points().filter_map(|point| point.1));
    println!("databases and block devices {devices:.4}, reads + 4 x writes {cost:.4}");
    assert!(devices <= 0.96 && cost <= 0.975, "{devices} {cost}");
}

/// The seed to begin with: `WATTLE_SEED`, or 1.
fn seed() -> u64 {
    let text = std::env::var("WATTLE_SEED").unwrap_or_else(|_| "1".to_owned());
    text.parse().unwrap_or_else(|_| panic!("WATTLE_SEED is a number, not {text:?}"))
}

fn asked_for() -> usize {
    if std::env::var_os("WATTLE_ROUNDS").is_some() { usize::MAX } else { SHORT }
}

#[test]
fn deterministic_policies_miss_and_write_exactly_as_the_reference_says() {
    exactly(asked_for());
}

#[test]
#[ignore = "replays all traces for minutes"]
fn deterministic_policies_miss_and_write_exactly_as_the_reference_says_on_all_traces() {
    exactly(usize::MAX);
}

#[test]
fn randomised_policies_miss_about_as_often_as_the_reference_says() {
    nearly(asked_for());
}

#[test]
#[ignore = "replays all traces for many minutes"]
fn randomised_policies_miss_about_as_often_as_the_reference_says_on_all_traces() {
    nearly(usize::MAX);
}

#[test]
fn watt2_misses_less_than_watt() {
    watt2_is_better(asked_for());
}

#[test]
#[ignore = "replays all traces for minutes"]
fn watt2_misses_less_than_watt_on_all_traces() {
    watt2_is_better(usize::MAX);
}
