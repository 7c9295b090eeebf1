//! Bottlenecks Uncovered, experiment 1: throughput and misses by the size of the pool, by policy.

use super::measures::{FAULTS, READS, THROUGHPUT, WRITES};
use super::stores::{Size, repetitions};
use crate::experiment::design::{Across, Claim, Design, Experiment, Figure, Needs, Scale};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "pool-size",
    about: "throughput and misses of TPC-C by the size of the pool and policy",
    source: "Bottlenecks Uncovered, Figures 1.29 and 1.30",
    design,
};

/// Policies of the thesis, with WATT; those of the paper's conclusions first.
const POLICIES: [&str; 13] = [
    "watt",
    "random",
    "lru",
    "lru-k:k=2",
    "list-lru",
    "leanevict",
    "clock",
    "gclock1",
    "dgclock1",
    "lfu",
    "lrd2",
    "slru",
    "zclock",
];

fn design(scale: Scale, _cores: usize) -> Design {
    let mut size = Size::of(scale);
    // The thesis: 100 warehouses, 14.3 GiB at first, in 100 MB to 30 GB, 24 threads, 10 minutes.
    let (policies, pools): (&[&str], &[u64]) = match scale {
        Scale::Smoke => (&["watt", "random"], &[16, 64]),
        Scale::Small => (&POLICIES[..8], &[16, 32, 64, 128, 256, 640]),
        Scale::Paper => {
            (size.warehouses, size.threads, size.seconds) = (100, 24, 600.0);
            (&POLICIES, &[100, 500, 1 << 10, 2 << 10, 5 << 10, 10 << 10, 20 << 10, 30 << 10])
        }
    };
    if scale == Scale::Small {
        (size.seconds, size.warm_up) = (4.0, 1.0);
    }
    let mut cells = Vec::new();
    for pool in pools {
        for policy in policies {
            let at = vec![("pool", pool.to_string()), ("policy", (*policy).to_owned())];
            let threads = size.threads;
            let flags = format!("--policy {policy} --pool {pool}MiB --threads {threads}");
            cells.push(size.tpcc_cell(at, &flags));
        }
    }
    let figure = |title: &str, up| Figure {
        title: title.to_owned(),
        across: Across::Numbers("pool", true, "pool, MiB"),
        up,
        series: "policy",
        only: Vec::new(),
    };
    Design {
        cells,
        repetitions: repetitions(scale, 2),
        needs: match scale {
            Scale::Paper => Needs { memory: 32 << 30, cores: 12 },
            _ => Needs { memory: 700 << 20, cores: 1 },
        },
        measures: vec![THROUGHPUT, FAULTS, READS, WRITES],
        figures: vec![
            figure("Throughput by pool (Bottlenecks Uncovered, Figure 1.29)", "throughput"),
            figure("Misses by pool (Bottlenecks Uncovered, Figure 1.30)", "faults"),
        ],
        claims: claims(),
        baseline: Some(("policy", "random".to_owned())),
        notes: vec![
            "The thesis gives its figures without a table; by its text list-lru and slru are 94 % \
             slower than the fastest in large pools."
                .to_owned(),
        ],
    }
}

/// Section 1.3.4: in large pools List-LRU and SLRU "perform ~94 % worse than the fastest competing
/// page replacement algorithms", of which RANDOM is one.
fn claims() -> Vec<Claim> {
    [("640", "list-lru"), ("20480", "list-lru"), ("20480", "slru")]
        .map(|(pool, policy)| Claim {
            at: vec![("pool", pool), ("policy", policy)],
            against: Some(("policy", "random")),
            measure: "throughput",
            ratio: 0.06,
            source: "Bottlenecks Uncovered, section 1.3.4: with 24 threads",
        })
        .to_vec()
}
