//! WATT, Figure 13: transactions per second by policy, larger than memory.

use super::measures::{READS, THROUGHPUT, WORKER_CPU, WRITES};
use super::stores::{READS_90, READS_ONLY, Size, WATT_POLICIES, at, needs, repetitions};
use crate::experiment::design::{Across, Claim, Design, Experiment, Figure, Scale};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "watt-overall",
    about: "transactions per second, by policy, larger than memory",
    source: "WATT, Figure 13",
    design,
};

fn design(scale: Scale, _cores: usize) -> Design {
    let size = Size::of(scale);
    let (pool, threads) = (size.pool, size.threads);
    // "with four or more page evictors"
    let evictors = if scale == Scale::Paper { "--evictors 4" } else { "" };
    let mut cells = Vec::new();
    for policy in WATT_POLICIES {
        let flags = format!("--policy {policy} --pool {pool}MiB --threads {threads} {evictors}");
        cells.push(size.ycsb_cell(at("YCSB 100R", policy), READS_ONLY, &flags));
        cells.push(size.ycsb_cell(at("YCSB 90R10W", policy), READS_90, &flags));
        cells.push(size.tpcc_cell(at("TPC-C", policy), &flags));
    }
    Design {
        cells,
        repetitions: repetitions(scale, 5),
        needs: needs(scale),
        measures: vec![THROUGHPUT, READS, WRITES, WORKER_CPU],
        figures: vec![Figure {
            title: "Transactions per second (WATT, Figure 13)".to_owned(),
            across: Across::Groups("workload"),
            up: "throughput",
            series: "policy",
            only: Vec::new(),
        }],
        claims: claims(),
        baseline: Some(("policy", "watt".to_owned())),
        notes: Vec::new(),
    }
}

/// Section 6.5, relative to WATT.
fn claims() -> Vec<Claim> {
    [
        ("YCSB 90R10W", "hyperbolic", 1.0 / 1.06, "WATT, section 6.5 and Figure 13"),
        ("TPC-C", "random", 0.78, "WATT, section 6.5 and Figure 13: Random at most this"),
        ("TPC-C", "hyperbolic", 1.0 / 1.07, "WATT, section 6.5 and Figure 13"),
        ("TPC-C", "leanevict", 1.0 / 1.07, "WATT, section 6.5 and Figure 13"),
    ]
    .map(|(workload, policy, ratio, source)| Claim {
        at: vec![("workload", workload), ("policy", policy)],
        against: Some(("policy", "watt")),
        measure: "throughput",
        ratio,
        source,
    })
    .to_vec()
}
