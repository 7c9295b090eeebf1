//! ACE, Figures 8 to 12: policies with and without asymmetry- and concurrency-aware write-back.

use super::measures::{READS, THROUGHPUT, WRITES};
use super::stores::{Size, repetitions};
use crate::experiment::design::{Across, Cell, Claim, Design, Experiment, Figure, Needs, Scale};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "ace",
    about: "throughput with and without ACE: MS, WIS, RIS, MU, TPC-C by type, n_w",
    source: "ACE, Figures 8 to 12",
    design,
};

/// The policies of the paper. Clock stands for PostgreSQL's Clock Sweep.
const POLICIES: [&str; 4] = ["clock", "lru", "cflru", "lru-wsr"];
/// The paper's PCIe SSD (Table I), emulated.
const DEVICE: &str = "sim:read_us=100,asymmetry=2.8,kr=80,kw=8";
/// The synthetic workloads of Table II.
const MIXES: [&str; 4] = ["MS", "WIS", "RIS", "MU"];
/// TPC-C and its transactions (Figure 11).
const TYPES: [&str; 6] =
    ["standard", "new-order", "payment", "order-status", "delivery", "stock-level"];

fn design(scale: Scale, _cores: usize) -> Design {
    let mut size = Size::of(scale);
    match scale {
        Scale::Smoke => {}
        Scale::Small => (size.records, size.seconds, size.warm_up) = (1_000_000, 2.5, 0.8),
        // Section V: 16 GB of data, 1 GB of pool (6 %), 10 minutes; TPC-C of 500 warehouses.
        Scale::Paper => {
            (size.records, size.warehouses) = (100_000_000, 500);
            (size.pool, size.threads, size.seconds) = (1 << 10, 16, 600.0);
        }
    }
    let mut cells = Vec::new();
    let run = Run { size, scale };
    run.mixes(&mut cells);
    run.types(&mut cells);
    run.concurrency(&mut cells);
    run.device(&mut cells);
    let figure = |title: String, across, series, only| Figure {
        title,
        across,
        up: "throughput",
        series,
        only,
    };
    let groups = Across::Groups("policy");
    let mut figures: Vec<Figure> = MIXES
        .map(|mix| {
            let title = format!("Throughput of {mix} (ACE, Figure 8)");
            figure(title, groups, "ace", vec![("part", "mix"), ("workload", mix)])
        })
        .to_vec();
    figures.push(Figure {
        up: "writes",
        ..figure(
            "Pages written per transaction (ACE, Figure 9)".to_owned(),
            Across::Groups("workload"),
            "ace",
            vec![("part", "mix"), ("policy", "lru-wsr")],
        )
    });
    let by_concurrency = Across::Numbers("n_w", true, "pages written at once");
    for (up, what) in [("throughput", "Throughput"), ("writes", "Pages written per transaction")] {
        figures.push(Figure {
            title: format!("{what} on the emulated device"),
            across: Across::Groups("workload"),
            up,
            series: "ace",
            only: vec![("part", "device"), ("policy", "lru"), ("n_w", "8")],
        });
    }
    let title = "Throughput by n_w, MS (ACE, Figure 10g)".to_owned();
    figures.push(figure(title, by_concurrency, "policy", vec![("part", "n_w")]));
    let title = "Throughput of TPC-C by type (ACE, Figure 11)".to_owned();
    figures.push(figure(title, Across::Groups("workload"), "ace", vec![("part", "TPC-C")]));
    Design {
        cells,
        repetitions: repetitions(scale, 2),
        needs: match scale {
            Scale::Paper => Needs { memory: 4 << 30, cores: 8 },
            _ => Needs::default(),
        },
        measures: vec![THROUGHPUT, READS, WRITES],
        figures,
        claims: claims(),
        baseline: Some(("ace", "off".to_owned())),
        notes: vec![
            "The cells of part \"device\" run on an emulated device of the paper's: asymmetry 2.8, \
             k_w 8; the others on the device of --out. n_w \"default\" is that of a device which \
             was not probed."
                .to_owned(),
        ],
    }
}

struct Run {
    size: Size,
    scale: Scale,
}

impl Run {
    fn policies(&self) -> &'static [&'static str] {
        if self.scale == Scale::Smoke {
            &["watt"]
        } else {
            &["watt", "clock", "lru", "cflru", "lru-wsr"]
        }
    }

    fn flags(&self, policy: &str, ace: &str) -> String {
        let Size { pool, threads, .. } = self.size;
        format!("--policy {policy} --ace {ace} --pool {pool}MiB --threads {threads}")
    }

    fn at(
        part: &str,
        workload: &str,
        policy: &str,
        ace: &str,
        n_w: &str,
    ) -> Vec<(&'static str, String)> {
        [("part", part), ("workload", workload), ("policy", policy), ("ace", ace), ("n_w", n_w)]
            .map(|(axis, value)| (axis, value.to_owned()))
            .to_vec()
    }

    /// Figures 8 and 9.
    fn mixes(&self, cells: &mut Vec<Cell>) {
        let modes: &[&str] = if self.scale == Scale::Smoke {
            &["off", "writer"]
        } else {
            &["off", "writer", "full"]
        };
        for mix in MIXES.into_iter().take(if self.scale == Scale::Smoke { 1 } else { 4 }) {
            for policy in self.policies() {
                for ace in modes {
                    let at = Self::at("mix", mix, policy, ace, "default");
                    let workload = format!("--workload {}", mix.to_lowercase());
                    cells.push(self.size.ycsb_cell(at, &workload, &self.flags(policy, ace)));
                }
            }
        }
    }

    /// Figure 11.
    fn types(&self, cells: &mut Vec<Cell>) {
        for kind in TYPES.into_iter().take(if self.scale == Scale::Smoke { 1 } else { 6 }) {
            for ace in ["off", "writer"] {
                let at = Self::at("TPC-C", kind, "lru", ace, "default");
                let flags = format!("--mix {kind} {}", self.flags("lru", ace));
                cells.push(self.size.tpcc_cell(at, &flags));
            }
        }
    }

    /// The three mixes of the skewed workloads on an emulated device. It stores nothing, so each
    /// run loads its data. With as many writes in flight as by default, and with k_w of the device,
    /// as after a probe: then `off` and `writer` differ in ACE alone.
    fn device(&self, cells: &mut Vec<Cell>) {
        let (mixes, subjects): (_, &[(&str, &str)]) = match self.scale {
            Scale::Smoke => (1, &[("watt", "8")]),
            Scale::Small | Scale::Paper => (3, &[("watt", "default"), ("watt", "8"), ("lru", "8")]),
        };
        for mix in MIXES.into_iter().take(mixes) {
            for (policy, n_w) in subjects {
                for ace in ["off", "writer"] {
                    cells.push(self.device_cell(mix, policy, ace, n_w));
                }
            }
        }
    }

    fn device_cell(&self, mix: &str, policy: &str, ace: &str, n_w: &str) -> Cell {
        let (records, pool) = match self.scale {
            Scale::Smoke => (100_000, 8),
            Scale::Small | Scale::Paper => (400_000, 8),
        };
        let Size { threads, warm_up, seconds, .. } = self.size;
        let workload = mix.to_lowercase();
        let writes = match n_w {
            "default" => String::new(),
            n_w => format!(" --write-concurrency {n_w}"),
        };
        Cell {
            at: Self::at("device", mix, policy, ace, n_w),
            command: format!(
                "ycsb --workload {workload} --records {records} --key-size 8 --value-size 120 \
                 --durability none --io {DEVICE} --policy {policy} --ace {ace}{writes} \
                 --pool {pool}MiB --threads {threads}"
            ),
            store: None,
            warm_up,
            seconds,
        }
    }

    /// Figure 10g.
    fn concurrency(&self, cells: &mut Vec<Cell>) {
        let policies: &[&str] = if self.scale == Scale::Smoke { &[] } else { &["lru", "watt"] };
        for policy in policies {
            for n_w in ["1", "2", "4", "8", "16", "32", "64"] {
                let at = Self::at("n_w", "MS", policy, "writer", n_w);
                let flags = format!("{} --write-concurrency {n_w}", self.flags(policy, "writer"));
                cells.push(self.size.ycsb_cell(at, "--workload ms", &flags));
            }
        }
    }
}

/// Section V-A: the runtime that ACE saves with prefetching (`full`) and without (`writer`), as
/// throughput; Figure 11.
fn claims() -> Vec<Claim> {
    let saved = |mix, ace, policy, saved: f64| Claim {
        at: vec![("part", "mix"), ("workload", mix), ("policy", policy), ("ace", ace)],
        against: Some(("ace", "off")),
        measure: "throughput",
        ratio: 1.0 / (1.0 - saved),
        source: "ACE, section V-A and Figures 8 and 11",
    };
    let of = |mix, ace, all: [f64; 4]| {
        POLICIES.into_iter().zip(all).map(move |(policy, one)| saved(mix, ace, policy, one))
    };
    let mut claims: Vec<Claim> = of("MS", "full", [0.226, 0.218, 0.225, 0.261])
        .chain(of("MS", "writer", [0.206, 0.197, 0.220, 0.235]))
        .chain(of("WIS", "full", [0.288, 0.293, 0.301, 0.321]))
        .collect();
    for (kind, ratio) in
        [("standard", 1.27), ("delivery", 1.51), ("order-status", 1.0), ("stock-level", 1.0)]
    {
        claims.push(Claim {
            at: vec![("part", "TPC-C"), ("workload", kind), ("policy", "lru"), ("ace", "writer")],
            against: Some(("ace", "off")),
            measure: "throughput",
            ratio,
            source: "ACE, section V-A and Figures 8 and 11",
        });
    }
    claims
}
