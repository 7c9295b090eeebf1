//! WATT, Figures 2 and 8, live: reads against writes, and both by the weight of writes.

use super::measures::{READS, TOTAL_IO, WRITES};
use super::stores::{READS_90, Size, needs, repetitions};
use crate::experiment::design::{Across, Claim, Design, Experiment, Figure, Scale};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "write-weight",
    about: "pages read and written per transaction, by the weight of writes",
    source: "WATT, Figures 2 and 8",
    design,
};

/// Policies that Figure 2 compares with, as points.
const OTHERS: [&str; 5] = ["random", "lru", "cflru", "hyperbolic", "lru-k:k=2"];

fn design(scale: Scale, _cores: usize) -> Design {
    let size = Size::of(scale);
    let (pool, threads) = (size.pool, size.threads);
    let weights: &[&str] = match scale {
        Scale::Smoke => &["0", "4"],
        Scale::Small => &["0", "1", "2", "4", "8", "16", "64"],
        Scale::Paper => &["0", "0.5", "1", "2", "3", "4", "6", "8", "16", "32", "64"],
    };
    let watt = weights
        .iter()
        .map(|weight| ("watt", (*weight).to_owned(), format!("watt:write_weight={weight}")));
    let others = OTHERS.into_iter().filter(|_| scale != Scale::Smoke);
    let others = others.map(|policy| (policy, "none".to_owned(), policy.to_owned()));
    let mut cells = Vec::new();
    for (policy, weight, text) in watt.chain(others) {
        let at = |workload: &str| {
            vec![
                ("workload", workload.to_owned()),
                ("policy", policy.to_owned()),
                ("write_weight", weight.clone()),
            ]
        };
        let flags = format!("--policy {text} --pool {pool}MiB --threads {threads}");
        cells.push(size.ycsb_cell(at("YCSB 90R10W"), READS_90, &flags));
        cells.push(size.tpcc_cell(at("TPC-C"), &flags));
    }
    let by_weight = |up, title: &str| Figure {
        title: format!("{title} per transaction (WATT, Figure 8)"),
        across: Across::Numbers("write_weight", false, "weight of writes"),
        up,
        series: "workload",
        only: vec![("policy", "watt")],
    };
    let against = |workload| Figure {
        title: format!("Reads against writes, {workload} (WATT, Figure 2)"),
        across: Across::Measure("writes", "pages written per transaction"),
        up: "reads",
        series: "policy",
        only: vec![("workload", workload)],
    };
    Design {
        cells,
        repetitions: repetitions(scale, 3),
        needs: needs(scale),
        measures: vec![READS, WRITES, TOTAL_IO],
        figures: vec![
            against("YCSB 90R10W"),
            against("TPC-C"),
            by_weight("reads", "Pages read"),
            by_weight("writes", "Pages written"),
            by_weight("total", "Pages read and written"),
        ],
        claims: claims(),
        baseline: Some(("write_weight", "0".to_owned())),
        notes: Vec::new(),
    }
}

/// Section 4.2: "reduce writes by over 10 % in TPC-C (..) while increasing page misses by less than
/// 15 %". The figure has no number for one weight.
fn claims() -> Vec<Claim> {
    [("writes", 0.9), ("reads", 1.15)]
        .map(|(measure, ratio)| Claim {
            at: vec![("workload", "TPC-C"), ("policy", "watt"), ("write_weight", "64")],
            against: Some(("write_weight", "0")),
            measure,
            ratio,
            source: "WATT, section 4.2 and Figure 2: at most this, with a large weight",
        })
        .to_vec()
}
