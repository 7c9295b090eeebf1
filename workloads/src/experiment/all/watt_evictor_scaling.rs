//! WATT, Figure 12: evictions per second by the number of evictors. Workers fill the pool in a work
//! phase; then evictors alone free a share of it.

use super::measures::number;
use super::stores::{READS_ONLY, Size, WATT_POLICIES, at, repetitions};
use crate::experiment::design::{Across, Cell, Design, Experiment, Figure, Measure, Needs, Scale};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "watt-evictor-scaling",
    about: "evictions per second of 1 to N evictors, after a work phase",
    source: "WATT, Figure 12",
    design,
};

const EVICTIONS: Measure = Measure {
    name: "evictions",
    label: "evictions/s",
    of: |report| number(report, "/evictions_per_second"),
};

const WRITES: Measure = Measure {
    name: "writes_per_second",
    label: "pages written/s",
    of: |report| number(report, "/writes_per_second"),
};

fn design(scale: Scale, cores: usize) -> Design {
    let mut size = Size::of(scale);
    // Section 6.4: the pool grows to 190 GB, and evictors free 10 GB of it.
    let (most, pool, share) = match scale {
        Scale::Smoke => (2, 128, 20),
        Scale::Small => (cores.max(2), 640, 40),
        Scale::Paper => (32, 200 << 10, 5),
    };
    match scale {
        Scale::Smoke => {}
        Scale::Small => (size.records, size.warehouses) = (2_000_000, 3),
        Scale::Paper => size.warehouses = 3200,
    }
    let counts = (0..).map(|power| 1 << power).take_while(|evictors| *evictors <= most);
    let mut cells = Vec::new();
    for evictors in counts {
        for policy in WATT_POLICIES {
            let flags = format!("--policy {policy} --pool {pool}MiB --threads {}", size.threads);
            let phase = |mut cell: Cell| {
                cell.command =
                    format!("evict-phase --threads {evictors} --share {share} {}", cell.command);
                cell.at.push(("evictors", evictors.to_string()));
                cell
            };
            cells.push(phase(size.ycsb_cell(at("YCSB 100R", policy), READS_ONLY, &flags)));
            cells.push(phase(size.tpcc_cell(at("TPC-C", policy), &flags)));
        }
    }
    let figure = |workload| Figure {
        title: format!("Evictions per second, {workload} (WATT, Figure 12)"),
        across: Across::Numbers("evictors", false, "evictors"),
        up: "evictions",
        series: "policy",
        only: vec![("workload", workload)],
    };
    Design {
        cells,
        repetitions: repetitions(scale, 3),
        needs: match scale {
            Scale::Paper => Needs { memory: 210 << 30, cores: 64 },
            _ => Needs { memory: pool << 20, cores: 1 },
        },
        measures: vec![EVICTIONS, WRITES],
        figures: vec![figure("YCSB 100R"), figure("TPC-C")],
        claims: Vec::new(),
        baseline: Some(("evictors", "1".to_owned())),
        notes: vec![
            "The paper gives no numbers here: read-only, all strategies scale but LeanEvict, which \
             stays below 1 million evictions per second; with dirty pages writes limit all alike."
                .to_owned(),
        ],
    }
}
