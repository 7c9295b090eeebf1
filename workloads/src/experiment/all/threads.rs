//! Throughput by the number of threads, in memory and larger than memory (thesis, Figure 2.12).
//!
//! The stores are on a file system in memory, so that cores and not a device limit a run.

use super::measures::{FAULTS, THROUGHPUT, WORKER_CPU};
use super::stores::Size;
use crate::experiment::design::{Across, Cell, Claim, Design, Experiment, Figure, Needs, Scale};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "threads",
    about: "throughput of YCSB C, A and TPC-C by threads, in memory and larger than memory",
    source: "Bottlenecks Uncovered, Figure 2.12",
    design,
};

fn design(scale: Scale, cores: usize) -> Design {
    let mut size = Size::of(scale);
    if scale == Scale::Paper {
        // The thesis: 100 warehouses in memory on two processors with 6 cores of 2 threads.
        (size.records, size.warehouses) = (50_000_000, 100);
    }
    let most = match scale {
        Scale::Smoke => 2,
        Scale::Small => cores.max(2),
        Scale::Paper => 24,
    };
    let mut counts: Vec<usize> = (0..).map(|power| 1 << power).take_while(|n| *n < most).collect();
    counts.push(most);
    if scale == Scale::Paper {
        counts.insert(counts.len() - 2, 12);
    }
    let in_memory = (size.ycsb().bytes.max(size.tpcc().bytes) >> 20) * 2 + 64;
    let mut cells = Vec::new();
    for (data, pool) in [("in memory", in_memory), ("larger than memory", size.pool)] {
        for threads in &counts {
            let at = |workload: &str| {
                let threads = threads.to_string();
                vec![
                    ("data", data.to_owned()),
                    ("workload", workload.to_owned()),
                    ("threads", threads),
                ]
            };
            let flags = format!("--pool {pool}MiB --threads {threads}");
            cells.push(size.ycsb_cell(at("YCSB C"), "--workload c", &flags));
            cells.push(size.ycsb_cell(at("YCSB A"), "--workload a", &flags));
            cells.push(size.tpcc_cell(at("TPC-C"), &flags));
        }
    }
    let figure = |data| Figure {
        title: format!("Throughput by threads, {data} (Bottlenecks Uncovered, Figure 2.12)"),
        across: Across::Numbers("threads", false, "worker threads"),
        up: "throughput",
        series: "workload",
        only: vec![("data", data)],
    };
    Design {
        cells: cells.into_iter().map(on_memory).collect(),
        repetitions: match scale {
            Scale::Smoke => 1,
            Scale::Small | Scale::Paper => 3,
        },
        needs: match scale {
            Scale::Paper => Needs { memory: in_memory << 20, cores: 12 },
            _ => Needs { memory: (in_memory << 20) * 2, cores: 1 },
        },
        measures: vec![THROUGHPUT, FAULTS, WORKER_CPU],
        figures: vec![figure("in memory"), figure("larger than memory")],
        claims: claims(),
        baseline: Some(("threads", "1".to_owned())),
        notes: vec![
            "The paper's ratios are those of 12 threads on 12 cores over one thread.".to_owned(),
        ],
    }
}

fn on_memory(mut cell: Cell) -> Cell {
    if let Some(store) = &mut cell.store {
        store.in_memory = true;
        store.name += "-memory";
    }
    cell
}

/// Section 2.3.3: read-only YCSB "can more than double its throughput if 12 instead of 1 working
/// threads are used, TPC-C can more than quadruple its throughput".
fn claims() -> Vec<Claim> {
    [("YCSB C", 2.0), ("TPC-C", 4.0)]
        .map(|(workload, ratio)| Claim {
            at: vec![("data", "in memory"), ("workload", workload), ("threads", "12")],
            against: Some(("threads", "1")),
            measure: "throughput",
            ratio,
            source: "Bottlenecks Uncovered, section 2.3.3 and Figure 2.12: more than this",
        })
        .to_vec()
}
