//! Bottlenecks Uncovered, experiment 3: processor time by component.

use serde_json::Value;

use super::measures::number;
use super::stores::repetitions;
use crate::experiment::design::{
    Across, Cell, Claim, Design, Experiment, Figure, Measure, Needs, Scale,
};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "breakdown",
    about: "processor time by component, of look-ups, updates and TPC-C, by threads",
    source: "Bottlenecks Uncovered, Table 2.1 and Figures 2.13 to 2.18",
    design,
};

/// Components of each row of the thesis. Others are not part of its storage manager.
const TRANSACTIONS: [&str; 2] = ["transactions", "versions"];
const LOGGING: [&str; 3] = ["log_append", "flush", "commit_wait"];
const LATCHING: [&str; 1] = ["latching"];
const TREE: [&str; 4] = ["descent", "key_search", "records", "structure_changes"];
const BUFFER: [&str; 7] =
    ["page_faults", "tracking", "victims", "write_back", "swizzling", "page_table", "free_list"];

/// Processor time of components in percent.
fn percent(report: &Value, components: &[&str]) -> Option<f64> {
    let rows = report.pointer("/runs/0/profile/rows")?.as_array()?;
    let of = |row: &Value| row["component"].as_str().is_some_and(|one| components.contains(&one));
    rows.iter().filter(|row| of(row)).map(|row| number(row, "/percent")).sum()
}

/// Share of components in those that the thesis has.
fn share(report: &Value, components: &[&str]) -> Option<f64> {
    let all = [&TRANSACTIONS[..], &LOGGING, &LATCHING, &TREE, &BUFFER].concat();
    let all = percent(report, &all)?;
    (all > 0.0).then_some(percent(report, components)? / all * 100.0)
}

const MEASURES: [Measure; 6] = [
    Measure {
        name: "transactions",
        label: "% in transactions, versions, conflict checks (thesis: locking)",
        of: |report| share(report, &TRANSACTIONS),
    },
    Measure { name: "logging", label: "% in the log", of: |report| share(report, &LOGGING) },
    Measure { name: "latching", label: "% in latches", of: |report| share(report, &LATCHING) },
    Measure { name: "btree", label: "% in the B-tree", of: |report| share(report, &TREE) },
    Measure { name: "buffer", label: "% in the buffer pool", of: |report| share(report, &BUFFER) },
    Measure {
        name: "throughput",
        label: "transactions/s",
        of: |report| number(report, "/runs/0/throughput"),
    },
];

fn design(scale: Scale, cores: usize) -> Design {
    let (records, warehouses, pool, warm_up, seconds) = match scale {
        Scale::Smoke => (20_000, 1, 192, 0.1, 0.5),
        Scale::Small => (300_000, 1, 1 << 10, 2.0, 5.0),
        Scale::Paper => (10_000_000, 100, 40 << 10, 60.0, 600.0),
    };
    let counts = match scale {
        Scale::Smoke => vec![1],
        Scale::Small => vec![1, cores.max(2)],
        Scale::Paper => vec![1, 24],
    };
    let mut cells = Vec::new();
    for threads in counts {
        for workload in ["ycsb-read", "ycsb-update", "tpcc"] {
            cells.push(Cell {
                at: vec![("workload", workload.to_owned()), ("threads", threads.to_string())],
                command: format!(
                    "breakdown {workload} --threads {threads} --records {records} \
                     --warehouses {warehouses} --pool {pool}MiB"
                ),
                store: None,
                warm_up,
                seconds,
            });
        }
    }
    let figure = |measure: &Measure| Figure {
        title: format!("Processor time {} (Bottlenecks Uncovered, Table 2.1)", measure.label),
        across: Across::Groups("workload"),
        up: measure.name,
        series: "threads",
        only: Vec::new(),
    };
    Design {
        cells,
        repetitions: repetitions(scale, 3),
        needs: match scale {
            Scale::Paper => Needs { memory: 48 << 30, cores: 12 },
            _ => Needs::default(),
        },
        measures: MEASURES.to_vec(),
        figures: MEASURES.iter().map(figure).collect(),
        claims: claims(),
        baseline: Some(("threads", "1".to_owned())),
        notes: vec![
            "Shares are of the components that the thesis has, without the benchmark and without \
             unattributed time; \"wattle breakdown\" has all rows. The number in parentheses is \
             the thesis's share with one thread."
                .to_owned(),
        ],
    }
}

/// Table 2.1, one thread: seconds of a component over the sum of its column. Latching has the rows
/// "+ latching" of locking and of the buffer pool.
fn claims() -> Vec<Claim> {
    let columns: [(&str, [f64; 5]); 3] = [
        ("ycsb-read", [166.703, 5.236, 12.374 + 27.562, 219.454, 42.984 + 23.053 + 0.668 + 21.517]),
        (
            "ycsb-update",
            [130.689, 166.306, 17.269 + 35.204, 257.482, 41.989 + 23.582 + 0.5 + 7.948],
        ),
        ("tpcc", [26.257, 244.855, 2.08 + 35.584, 187.497, 50.993 + 26.319 + 0.276 + 2.829]),
    ];
    let mut claims = Vec::new();
    for (workload, seconds) in columns {
        let all: f64 = seconds.iter().sum();
        for (measure, seconds) in MEASURES.iter().zip(seconds) {
            claims.push(Claim {
                at: vec![("workload", workload), ("threads", "1")],
                against: None,
                measure: measure.name,
                ratio: (seconds / all * 1000.0).round() / 10.0,
                source: "Bottlenecks Uncovered, Table 2.1",
            });
        }
    }
    claims
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn shares_leave_the_benchmark_out_and_those_of_the_thesis_add_up() {
        let row =
            |component: &str, percent: f64| json!({"component": component, "percent": percent});
        let rows = [row("descent", 20.0), row("victims", 20.0), row("benchmark", 60.0)];
        let report = json!({"runs": [{"throughput": 7.0, "profile": {"rows": rows}}]});
        let values = MEASURES.map(|measure| (measure.of)(&report));
        assert_eq!(values, [0.0, 0.0, 0.0, 50.0, 50.0, 7.0].map(Some));
        assert_eq!((MEASURES[0].of)(&json!({})), None);
        let shares = |workload| -> f64 {
            let claims = claims().into_iter().filter(|claim| claim.at[0].1 == workload);
            claims.map(|claim| claim.ratio).sum()
        };
        for workload in ["ycsb-read", "ycsb-update", "tpcc"] {
            assert!((shares(workload) - 100.0).abs() < 0.3, "{workload}");
        }
    }
}
