//! WATT, Figure 9: pages read and written per transaction by policy.

use super::measures::{READS, THROUGHPUT, WRITES};
use super::stores::{POLICIES, READS_90, READS_ONLY, Size, WATT_POLICIES, at, needs, repetitions};
use crate::experiment::design::{Across, Claim, Design, Experiment, Figure, Scale};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "watt-effectiveness",
    about: "pages read and written per transaction, by policy, larger than memory",
    source: "WATT, Figure 9",
    design,
};

fn design(scale: Scale, _cores: usize) -> Design {
    let mut size = Size::of(scale);
    if scale == Scale::Small {
        // All policies in 15 minutes.
        size.seconds = 4.6;
    }
    let (pool, threads) = (size.pool, size.threads);
    let flags = |policy: &str| format!("--policy {policy} --pool {pool}MiB --threads {threads}");
    // The figure has four policies; the smoke test has two; otherwise all that there are.
    let policies: &[&str] = match scale {
        Scale::Smoke => &["watt", "random"],
        Scale::Small => &POLICIES,
        Scale::Paper => &WATT_POLICIES,
    };
    let mut cells = Vec::new();
    for policy in policies.iter().filter(|policy| WATT_POLICIES.contains(policy)) {
        cells.push(size.ycsb_cell(at("YCSB 100R", policy), READS_ONLY, &flags(policy)));
    }
    for policy in policies {
        cells.push(size.ycsb_cell(at("YCSB 90R10W", policy), READS_90, &flags(policy)));
    }
    for policy in ["watt", "random"] {
        cells.push(size.core_cell(at("YCSB 90R10W, core", policy), &flags(policy)));
    }
    for policy in policies {
        cells.push(size.tpcc_cell(at("TPC-C", policy), &flags(policy)));
    }
    let figure = |title: &str, up| Figure {
        title: title.to_owned(),
        across: Across::Groups("workload"),
        up,
        series: "policy",
        only: Vec::new(),
    };
    Design {
        cells,
        repetitions: repetitions(scale, 2),
        needs: needs(scale),
        measures: vec![READS, WRITES, THROUGHPUT],
        figures: vec![
            figure("Pages read per transaction (WATT, Figure 9)", "reads"),
            figure("Pages written per transaction (WATT, Figure 9)", "writes"),
        ],
        claims: claims(),
        baseline: Some(("policy", "watt".to_owned())),
        notes: vec![
            "YCSB has records of 128 bytes and skew 0.9, as in the paper; \"core\" has those of \
             YCSB's core workloads, 1 KB and skew 0.99. With few records in a page, pages differ \
             more."
                .to_owned(),
        ],
    }
}

/// Section 6.2, relative to WATT.
fn claims() -> Vec<Claim> {
    let source = "WATT, section 6.2 and Figure 9";
    let claim = |workload, policy, measure, ratio| Claim {
        at: vec![("workload", workload), ("policy", policy)],
        against: Some(("policy", "watt")),
        measure,
        ratio,
        source,
    };
    [
        ("YCSB 100R", "hyperbolic", "reads", 1.05),
        ("YCSB 100R", "random", "reads", 1.11),
        ("YCSB 100R", "leanevict", "reads", 1.12),
        ("YCSB 90R10W", "leanevict", "writes", 1.26),
        ("YCSB 90R10W", "hyperbolic", "writes", 1.11),
        ("YCSB 90R10W", "random", "writes", 1.36),
        ("TPC-C", "leanevict", "reads", 1.07),
        ("TPC-C", "leanevict", "writes", 1.15),
        ("TPC-C", "hyperbolic", "reads", 1.06),
        ("TPC-C", "hyperbolic", "writes", 1.10),
        ("TPC-C", "random", "reads", 1.14),
        ("TPC-C", "random", "writes", 1.33),
    ]
    .map(|(workload, policy, measure, ratio)| claim(workload, policy, measure, ratio))
    .into_iter()
    .chain([
        Claim {
            source: "WATT, section 6.2 and Figure 9, for records of 128 bytes",
            ..claim("YCSB 90R10W, core", "random", "writes", 1.36)
        },
        Claim {
            source: "WATT, section 6.2 and Figure 9, for 100R",
            ..claim("YCSB 90R10W, core", "random", "reads", 1.11)
        },
    ])
    .collect()
}
