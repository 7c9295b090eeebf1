//! WATT, Figure 11: the cost of tracking for one worker thread, in memory.

use super::measures::{INSTRUCTIONS, THROUGHPUT, WORKER_CPU};
use super::stores::{READS_90, Size, WATT_POLICIES, at, needs, repetitions};
use crate::experiment::design::{Across, Claim, Design, Experiment, Figure, Scale};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "watt-overhead",
    about: "cost per transaction of one worker in memory, by policy",
    source: "WATT, Figure 11",
    design,
};

fn design(scale: Scale, _cores: usize) -> Design {
    let mut size = Size::of(scale);
    match scale {
        Scale::Smoke => {}
        Scale::Small => (size.records, size.warehouses) = (1_000_000, 2),
        // Section 6.3: 25 GB of YCSB and 50 warehouses in 60 GB, five minutes.
        Scale::Paper => {
            (size.records, size.warehouses, size.seconds) = (175_000_000, 50, 300.0);
        }
    }
    let pool = match scale {
        Scale::Paper => 60 << 10,
        _ => 640,
    };
    let mut cells = Vec::new();
    for policy in WATT_POLICIES {
        let flags = format!("--policy {policy} --pool {pool}MiB --threads 1");
        cells.push(size.ycsb_cell(at("YCSB 90R10W", policy), READS_90, &flags));
        cells.push(size.tpcc_cell(at("TPC-C", policy), &flags));
    }
    let figure = |title: &str, up| Figure {
        title: title.to_owned(),
        across: Across::Groups("workload"),
        up,
        series: "policy",
        only: Vec::new(),
    };
    let mut needs = needs(scale);
    needs.memory = needs.memory.max(pool << 20);
    Design {
        cells,
        repetitions: repetitions(scale, 5),
        needs,
        measures: vec![INSTRUCTIONS, WORKER_CPU, THROUGHPUT],
        figures: vec![
            figure("Instructions per transaction (WATT, Figure 11)", "instructions"),
            figure("Processor time per transaction", "worker_cpu_us"),
        ],
        claims: claims(),
        baseline: Some(("policy", "random".to_owned())),
        notes: vec![
            "Instructions are those of the worker in user mode, by performance counters of the \
             processor. Where the system does not count them (\"-\"), the processor time per \
             transaction stands for them: that of all threads but evictors and writers."
                .to_owned(),
        ],
    }
}

/// Section 6.3: "just small differences between those four algorithms, all just at noise level".
fn claims() -> Vec<Claim> {
    let cells = ["YCSB 90R10W", "TPC-C"]
        .into_iter()
        .flat_map(|workload| ["watt", "hyperbolic", "leanevict"].map(|policy| (workload, policy)));
    let cells = cells.flat_map(|(workload, policy)| {
        ["instructions", "worker_cpu_us"].map(|measure| (workload, policy, measure))
    });
    cells
        .map(|(workload, policy, measure)| Claim {
            at: vec![("workload", workload), ("policy", policy)],
            against: Some(("policy", "random")),
            measure,
            ratio: 1.0,
            source: "WATT, section 6.3 and Figure 11: differences at noise level",
        })
        .collect()
}
