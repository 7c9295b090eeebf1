//! FBARC, Figures 16 and 17, live: dirty pages written by value or clustered by place.

use super::measures::{FAULTS, READS, THROUGHPUT, WRITES};
use super::stores::{READS_90, Size, needs, repetitions};
use crate::experiment::design::{Across, Claim, Design, Experiment, Figure, Scale};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "fbarc-clusters",
    about: "throughput and misses with dirty pages written by value or in clusters",
    source: "FBARC, Figures 16 and 17",
    design,
};

fn design(scale: Scale, _cores: usize) -> Design {
    let size = Size::of(scale);
    let (pool, threads) = (size.pool, size.threads);
    let mut cells = Vec::new();
    for policy in if scale == Scale::Smoke { &["watt"][..] } else { &["watt", "lru"] } {
        for batch in if scale == Scale::Smoke { &["16"][..] } else { &["16", "64", "256"] } {
            for order in ["value", "clustered"] {
                let at = |workload: &str| {
                    [("workload", workload), ("policy", policy), ("batch", batch), ("order", order)]
                        .map(|(axis, value)| (axis, value.to_owned()))
                        .to_vec()
                };
                let flags = format!(
                    "--policy {policy} --write-order {order} --write-concurrency {batch} \
                     --pool {pool}MiB --threads {threads}"
                );
                cells.push(size.tpcc_cell(at("TPC-C"), &flags));
                cells.push(size.ycsb_cell(at("YCSB 90R10W"), READS_90, &flags));
            }
        }
    }
    let figure = |title: &str, up, workload| Figure {
        title: format!("{title}, {workload}"),
        across: Across::Groups("batch"),
        up,
        series: "order",
        only: vec![("workload", workload), ("policy", "watt")],
    };
    Design {
        cells,
        repetitions: repetitions(scale, 3),
        needs: needs(scale),
        measures: vec![THROUGHPUT, FAULTS, READS, WRITES],
        figures: vec![
            figure("Throughput by pages written at once (FBARC, Figure 17)", "throughput", "TPC-C"),
            figure("Faults by pages written at once (FBARC, Figure 16)", "faults", "TPC-C"),
        ],
        claims: claims(),
        baseline: Some(("order", "value".to_owned())),
        notes: vec![
            "FBARC varies clusters of 1024 to 4096 pages in one cache of 4096; here a cluster is a \
             batch of writes. Its overall time falls by 5 % from 1024 to 4096 pages."
                .to_owned(),
        ],
    }
}

/// Section 5.5: "the cluster size has a marginal influence on the hitrate", less than 1 %.
fn claims() -> Vec<Claim> {
    ["16", "64", "256"]
        .map(|batch| Claim {
            at: vec![
                ("workload", "TPC-C"),
                ("policy", "watt"),
                ("batch", batch),
                ("order", "clustered"),
            ],
            against: Some(("order", "value")),
            measure: "faults",
            ratio: 1.0,
            source: "FBARC, section 5.5 and Figure 16: within 1 %",
        })
        .to_vec()
}
