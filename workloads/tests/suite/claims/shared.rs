//! WATT, Figure 1, on the shared traces, if they are there (see `reference`).

use std::collections::BTreeMap;

use crate::reference::folder;
use wattle_workloads::simulate::experiment::CacheSize;
use wattle_workloads::simulate::registry::Spec;
use wattle_workloads::simulate::replay::Device;
use wattle_workloads::simulate::trace::Trace;

/// Mean misses relative to WATT of each policy, over the traces with these names with caches of 5
/// and 20 % of the pages, and the number of these points.
fn means(
    is_chosen: impl Fn(&str) -> bool,
    policies: &[&str],
) -> Option<(BTreeMap<String, f64>, usize)> {
    let folder = folder()?;
    let mut sums = BTreeMap::<String, f64>::new();
    let mut points = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let Some(name) = name.strip_suffix(".csv.zst").filter(|name| is_chosen(name)) else {
            continue;
        };
        let trace = Trace::read(&folder.join(format!("{name}.csv.zst"))).unwrap();
        for percent in [5.0, 20.0] {
            let pages = CacheSize::Percent(percent).of(&trace).unwrap();
            let misses = |text: &str| {
                let spec = Spec::parse(text).unwrap();
                let counts = spec.run(&trace, pages, 1, Device::default(), |_| true).unwrap();
                counts.misses as f64
            };
            let watt = misses("watt");
            points += 1;
            for policy in policies {
                *sums.entry((*policy).to_owned()).or_default() += misses(policy) / watt;
            }
        }
    }
    sums.values_mut().for_each(|sum| *sum /= points as f64);
    for (policy, mean) in &sums {
        println!("{policy:<22} {mean:.3} of WATT's misses over {points} points");
    }
    Some((sums, points))
}

/// WATT, section 4.2: "WATT has the best effectiveness on average" of the ten. On short traces
/// without writes, mostly of the LIRS authors, ARC misses less than WATT, and LRU-2 that keeps the
/// history of all pages as much; CLOCK-Pro, W-TinyLFU and LIRS, which the paper does not have, miss
/// a tenth less.
#[test]
fn watt_is_not_best_on_average_on_short_traces() {
    let expected = [
        ("random", 1.114),
        ("clock", 1.111),
        ("leanevict", 1.082),
        ("lru", 1.080),
        ("lru-wsr", 1.080),
        ("cflru:window=0.3", 1.080),
        ("hyperbolic:sample=20", 1.064),
        ("lru-k", 0.999),
        ("arc", 0.987),
        ("s3-fifo", 0.982),
        ("car", 0.982),
        ("w-tinylfu", 0.897),
        ("lirs", 0.895),
        ("clock-pro", 0.891),
    ];
    // The longest has 52,001 accesses.
    let long = ["lirs_loop", "lirs_sprite", "lirs_2_pools"];
    let short = |name: &str| name.starts_with("lirs_") && !long.contains(&name);
    let Some((found, points)) = means(short, &expected.map(|(policy, _)| policy)) else { return };
    assert_eq!(points, 18, "the shared traces have changed");
    for (policy, mean) in expected {
        assert!(
            (found[policy] - mean).abs() < 0.01,
            "{policy}: {} instead of {mean}",
            found[policy]
        );
    }
}

/// The same on all shared traces, of up to 5 million accesses: of its ten only ARC misses less than
/// WATT.
#[test]
#[ignore = "replays 30 million accesses 30 times: many minutes"]
fn watt_is_not_best_on_average_on_all_traces() {
    let expected = [
        ("random", 1.108),
        ("clock", 1.067),
        ("leanevict", 1.057),
        ("lru", 1.046),
        ("hyperbolic:sample=20", 1.045),
        ("lru-wsr", 1.044),
        ("cflru:window=0.3", 1.044),
        ("lru-k", 1.023),
        ("arc", 0.987),
        ("car", 0.984),
        ("s3-fifo", 0.976),
        ("w-tinylfu", 0.967),
        ("lirs", 0.954),
        ("clock-pro", 0.944),
    ];
    let Some((found, points)) = means(|_| true, &expected.map(|(policy, _)| policy)) else {
        return;
    };
    assert_eq!(points, 50, "the shared traces have changed");
    for (policy, mean) in expected {
        assert!(
            (found[policy] - mean).abs() < 0.01,
            "{policy}: {} instead of {mean}",
            found[policy]
        );
    }
}
