//! Stores and workloads that several experiments share.

use crate::experiment::design::{Cell, Needs, Scale, Store};

/// The size of the data and the pool of an experiment on data larger than memory.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Records of YCSB, of 128 bytes.
    pub records: u64,
    /// Warehouses of TPC-C.
    pub warehouses: u64,
    /// Pool for data larger than memory, MiB.
    pub pool: u64,
    /// Seconds of warm-up.
    pub warm_up: f64,
    /// Seconds of the measured part.
    pub seconds: f64,
    /// Worker threads.
    pub threads: usize,
}

impl Size {
    /// The size for `scale`. That of the paper is section 6.2 of WATT: 400 GB of YCSB, 1600
    /// warehouses, a pool of 8 GB, 120 threads, 20 minutes.
    pub fn of(scale: Scale) -> Self {
        match scale {
            Scale::Smoke => Self {
                records: 150_000,
                warehouses: 1,
                pool: 16,
                warm_up: 0.1,
                seconds: 0.3,
                threads: 2,
            },
            Scale::Small => Self {
                records: 3_000_000,
                warehouses: 4,
                pool: 32,
                warm_up: 1.5,
                seconds: 5.0,
                threads: 4,
            },
            Scale::Paper => Self {
                records: 2_800_000_000,
                warehouses: 1600,
                pool: 8 << 10,
                warm_up: 60.0,
                seconds: 1200.0,
                threads: 120,
            },
        }
    }

    /// A store of YCSB with records of LeanStore's sizes.
    pub fn ycsb(&self) -> Store {
        let records = self.records;
        Store {
            name: format!("ycsb-{records}"),
            load: format!(
                "ycsb --workload c --records {records} --key-size 8 --value-size 120 --pool 256MiB"
            ),
            bytes: records * 170,
            copied: false,
            in_memory: false,
        }
    }

    /// A store of TPC-C.
    pub fn tpcc(&self) -> Store {
        let warehouses = self.warehouses;
        Store {
            name: format!("tpcc-{warehouses}"),
            load: format!("tpcc --warehouses {warehouses} --pool 256MiB"),
            bytes: warehouses * (105 << 20),
            copied: true,
            in_memory: false,
        }
    }

    /// A cell of YCSB: `mix` are flags of the mix of operations, `flags` the others.
    pub fn ycsb_cell(&self, at: Vec<(&'static str, String)>, mix: &str, flags: &str) -> Cell {
        let Self { records, warm_up, seconds, .. } = *self;
        let command = format!(
            "ycsb {mix} --records {records} --key-size 8 --value-size 120 --durability none {flags}"
        );
        Cell { at, command, store: Some(self.ycsb()), warm_up, seconds }
    }

    /// A cell of YCSB with the records and the skew of its core workloads, 90 % reads. The data are
    /// as large as those of [`Size::ycsb_cell`].
    pub fn core_cell(&self, at: Vec<(&'static str, String)>, flags: &str) -> Cell {
        let records = self.records / 8;
        let Self { warm_up, seconds, .. } = *self;
        let store = Store {
            name: format!("ycsb-core-{records}"),
            load: format!("ycsb --workload c --records {records} --pool 256MiB"),
            bytes: records * 1360,
            copied: false,
            in_memory: false,
        };
        let command =
            format!("ycsb --read 0.9 --update 0.1 --records {records} --durability none {flags}");
        Cell { at, command, store: Some(store), warm_up, seconds }
    }

    /// A cell of TPC-C.
    pub fn tpcc_cell(&self, at: Vec<(&'static str, String)>, flags: &str) -> Cell {
        let Self { warehouses, warm_up, seconds, .. } = *self;
        let command = format!("tpcc --warehouses {warehouses} --durability none {flags}");
        Cell { at, command, store: Some(self.tpcc()), warm_up, seconds }
    }
}

/// The values of a cell on the axes `workload` and `policy`.
pub fn at(workload: &str, policy: &str) -> Vec<(&'static str, String)> {
    vec![("workload", workload.to_owned()), ("policy", policy.to_owned())]
}

/// Demands of the sizes of the paper: the machine of WATT, section 6.1.
pub fn needs(scale: Scale) -> Needs {
    match scale {
        Scale::Paper => Needs { memory: 10 << 30, cores: 64 },
        _ => Needs::default(),
    }
}

/// Runs of each cell: one shows that it works.
pub fn repetitions(scale: Scale, otherwise: usize) -> usize {
    if scale == Scale::Smoke { 1 } else { otherwise }
}

/// YCSB of WATT, section 6.1: only reads, skew 0.9.
pub const READS_ONLY: &str = "--workload c --theta 0.9";
/// YCSB of WATT, section 6.1: 90 % reads, 10 % writes, skew 0.9.
pub const READS_90: &str = "--read 0.9 --update 0.1 --theta 0.9";

/// The policies of the experiments of WATT, section 6.
pub const WATT_POLICIES: [&str; 4] = ["watt", "hyperbolic", "leanevict", "random"];

/// All policies that a running engine may have, those of [`WATT_POLICIES`] first.
pub const POLICIES: [&str; 26] = [
    "watt",
    "hyperbolic",
    "leanevict",
    "random",
    "watt2",
    "lru",
    "list-lru",
    "midpoint-lru",
    "lru-k:k=2",
    "lru-k:k=3",
    "lru-k:k=4",
    "slru",
    "clock",
    "zclock",
    "gclock1",
    "gclock2",
    "dgclock1",
    "dgclock2",
    "lfu",
    "lfuda",
    "lrd1",
    "lrd2",
    "cflru",
    "lru-wsr",
    "sieve",
    "s3-fifo",
];
