//! Bottlenecks Uncovered, experiment 4: pointer swizzling on and off, by the size of the pool.

use super::measures::{FAULTS, THROUGHPUT, WORKER_CPU};
use super::stores::{Size, repetitions};
use crate::experiment::design::{Across, Claim, Design, Experiment, Figure, Needs, Scale};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "swizzling",
    about: "throughput with and without pointer swizzling, by the size of the pool",
    source: "Bottlenecks Uncovered, Figure 2.21",
    design,
};

fn design(scale: Scale, _cores: usize) -> Design {
    let mut size = Size::of(scale);
    let pools: &[u64] = match scale {
        Scale::Smoke => &[16, 128],
        Scale::Small => &[32, 64, 128, 256, 640],
        Scale::Paper => {
            (size.warehouses, size.threads, size.seconds) = (100, 24, 600.0);
            &[100, 500, 1 << 10, 2 << 10, 5 << 10, 10 << 10, 20 << 10, 30 << 10]
        }
    };
    let threads = size.threads;
    let mut cells = Vec::new();
    for pool in pools {
        for switch in ["on", "off"] {
            let at = |workload: &str| {
                vec![
                    ("workload", workload.to_owned()),
                    ("pool", pool.to_string()),
                    ("swizzling", switch.to_owned()),
                ]
            };
            let flags = format!("--swizzling {switch} --pool {pool}MiB --threads {threads}");
            cells.push(size.tpcc_cell(at("TPC-C"), &(flags.clone() + " --policy random")));
            if scale != Scale::Paper {
                cells.push(size.ycsb_cell(at("YCSB C"), "--workload c", &flags));
            }
        }
    }
    let figure = |workload| Figure {
        title: format!("Throughput by pool, {workload} (Bottlenecks Uncovered, Figure 2.21)"),
        across: Across::Numbers("pool", true, "pool, MiB"),
        up: "throughput",
        series: "swizzling",
        only: vec![("workload", workload)],
    };
    Design {
        cells,
        repetitions: repetitions(scale, 4),
        needs: match scale {
            Scale::Paper => Needs { memory: 32 << 30, cores: 12 },
            _ => Needs { memory: 700 << 20, cores: 1 },
        },
        measures: vec![THROUGHPUT, WORKER_CPU, FAULTS],
        figures: vec![figure("TPC-C"), figure("YCSB C")],
        claims: claims(pools),
        baseline: Some(("swizzling", "off".to_owned())),
        notes: vec![
            "The thesis has RANDOM replacement; so has TPC-C here. It found the throughput with \
             swizzling \"not higher but actually lower for all buffer pool sizes\"; the ratio 1 \
             beside ours is its bound."
                .to_owned(),
        ],
    }
}

fn claims(pools: &[u64]) -> Vec<Claim> {
    let names = ["16", "32", "64", "100", "128", "256", "500", "640"];
    let known = |pool: &&str| pools.iter().any(|one| one.to_string() == **pool);
    let claim = |pool| Claim {
        at: vec![("workload", "TPC-C"), ("pool", pool), ("swizzling", "on")],
        against: Some(("swizzling", "off")),
        measure: "throughput",
        ratio: 1.0,
        source: "Bottlenecks Uncovered, section 2.4.1.2 and Figure 2.21: less than this",
    };
    names.into_iter().filter(known).map(claim).collect()
}
