//! WATT, Figure 10: evictions per second of one evictor, clean and dirty.

use super::measures::{CANDIDATES, EVICTIONS, EVICTIONS_PER_CPU, WRITES_PER_SECOND};
use super::stores::{READS_90, READS_ONLY, Size, WATT_POLICIES, at, needs, repetitions};
use crate::experiment::design::{Across, Claim, Design, Experiment, Figure, Scale};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "watt-evictor",
    about: "evictions of one evictor, clean and dirty pages",
    source: "WATT, Figure 10",
    design,
};

fn design(scale: Scale, _cores: usize) -> Design {
    let size = Size::of(scale);
    let (pool, threads) = (size.pool, size.threads);
    let mut cells = Vec::new();
    for policy in WATT_POLICIES {
        let flags = format!("--policy {policy} --pool {pool}MiB --threads {threads} --evictors 1");
        cells.push(size.ycsb_cell(at("YCSB 100R, clean", policy), READS_ONLY, &flags));
        cells.push(size.ycsb_cell(at("YCSB 90R10W", policy), READS_90, &flags));
        cells.push(size.ycsb_cell(at("YCSB 100W, dirty", policy), "--update 1", &flags));
        cells.push(size.tpcc_cell(at("TPC-C", policy), &flags));
    }
    let figure = |title: &str, up| Figure {
        title: format!("{title} (WATT, Figure 10)"),
        across: Across::Groups("workload"),
        up,
        series: "policy",
        only: Vec::new(),
    };
    Design {
        cells,
        repetitions: repetitions(scale, 3),
        needs: needs(scale),
        measures: vec![EVICTIONS_PER_CPU, EVICTIONS, CANDIDATES, WRITES_PER_SECOND],
        figures: vec![
            figure("Evictions of one evictor by its processor time", "evictions_per_cpu"),
            figure("Evictions per second", "evictions"),
        ],
        claims: claims(),
        baseline: Some(("policy", "random".to_owned())),
        notes: vec![
            "The paper has one evictor that is always busy. Where it sleeps at times, or shares \
             its core, evictions by processor time compare."
                .to_owned(),
        ],
    }
}

/// Section 6.3, relative to Random.
fn claims() -> Vec<Claim> {
    [
        ("YCSB 100R, clean", "leanevict", 0.31),
        ("YCSB 100R, clean", "watt", 0.68),
        ("YCSB 100R, clean", "hyperbolic", 0.79),
        ("YCSB 90R10W", "leanevict", 0.34),
        ("YCSB 90R10W", "watt", 0.75),
        ("YCSB 90R10W", "hyperbolic", 0.83),
        ("TPC-C", "leanevict", 0.37),
        ("TPC-C", "watt", 0.76),
        ("TPC-C", "hyperbolic", 0.85),
    ]
    .map(|(workload, policy, ratio)| Claim {
        at: vec![("workload", workload), ("policy", policy)],
        against: Some(("policy", "random")),
        measure: "evictions_per_cpu",
        ratio,
        source: "WATT, section 6.3 and Figure 10",
    })
    .to_vec()
}
