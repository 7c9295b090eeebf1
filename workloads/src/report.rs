//! The result of a run: as JSON, as text, as rows of samples and as a page with plots.
//!
//! The keys of the JSON object are part of the interface of the program: none is renamed or
//! removed. All counters cover only the measured part.

pub mod bars;
pub mod chart;
pub mod csv;
pub mod document;
pub mod figures;
pub mod fitted;
pub mod html;
pub mod plot;
pub mod stacked_bars;
pub mod style;
pub mod svg;
pub mod text;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::driver::counters::{BufferCounters, LogCounters};
use crate::driver::measure::{Measurement, Sample};
use crate::histogram::LatencyTotal;
use crate::machine::Machine;

/// The result of a run; serialised, the object of `--format json`.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The subcommand that ran.
    pub subcommand: &'static str,
    /// The command line.
    pub command: String,
    /// The values of all flags: sizes in bytes, times in seconds.
    pub settings: Map<String, Value>,
    /// Rules of the run: results with other rules do not compare.
    pub rules: Rules,
    /// The program.
    pub program: Program,
    /// The machine.
    pub machine: Machine,
    /// The device, if `wattle probe` kept its figures in the store.
    pub device: Option<DeviceReport>,
    /// The load phase.
    pub load: LoadReport,
    /// The measured part.
    pub run: RunReport,
    /// The buffer pool.
    pub buffer: BufferCounters,
    /// The write-ahead log.
    pub log: LogCounters,
    /// The process.
    pub process: ProcessReport,
    /// The checks.
    pub check: CheckReport,
    /// The run with `sync` that followed for comparison; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync: Option<SyncReport>,
    /// Why the run failed; absent if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Samples and latencies, for the plots.
    #[serde(skip)]
    pub details: Details,
}

/// The program that ran, and when.
#[derive(Clone, Debug, Serialize)]
pub struct Program {
    /// Its version.
    pub version: &'static str,
    /// The commit that it was built from; only release builds know it.
    pub commit: &'static str,
    /// When the report was made, UTC.
    pub date: String,
}

impl Program {
    /// This program, now.
    pub fn this() -> Self {
        let now = std::time::SystemTime::now();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            commit: env!("WATTLE_COMMIT"),
            date: humantime::format_rfc3339_seconds(now).to_string(),
        }
    }
}

/// The figures of `wattle probe` for a device.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceReport {
    /// Reads in flight for 95 % of the highest rate of reads.
    pub k_r: usize,
    /// Writes in flight for 95 % of the highest rate of writes.
    pub k_w: usize,
    /// Reads for the price of a write.
    pub asymmetry: f64,
    /// When it was probed, UTC.
    pub probed: String,
    /// Pages that it can read per second; absent if the probe was of an earlier version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reads_per_second: Option<u64>,
    /// The same for writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writes_per_second: Option<u64>,
}

/// Rules of a run. Only results with the same rules compare.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Rules {
    /// The storage engine.
    pub engine: &'static str,
    /// Isolation of transactions.
    pub isolation: &'static str,
    /// When commits return.
    pub durability: &'static str,
    /// Commits that auto-committed reads and read-only transactions see.
    pub reads: &'static str,
    /// Hints to the store; `none` unless TPC-C was asked to give some.
    pub hints: &'static str,
    /// Whether Deliveries of TPC-C queue outside of the store.
    pub delivery_queue: &'static str,
    /// Whether each worker thread was bound to a core.
    pub pin: bool,
}

/// The load phase of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LoadReport {
    /// Its length; 0 if the data were loaded before.
    pub seconds: f64,
    /// Records at the start of the run.
    pub records: u64,
    /// Bytes of their keys and values.
    pub data_bytes: u64,
    /// Bytes of the store on disk after loading.
    pub file_bytes: u64,
    /// Whether the data were loaded before.
    pub reused: bool,
    /// The file system of the store.
    pub file_system: String,
}

/// The measured part of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RunReport {
    /// Its length.
    pub seconds: f64,
    /// Operations finished.
    pub operations: u64,
    /// Operations per second.
    pub throughput: f64,
    /// Tries of transactions that met a conflict, were rolled back and retried.
    pub aborts: u64,
    /// Whether the user ended it early.
    pub interrupted: bool,
    /// Page accesses that `--record-trace` wrote, those of the warm-up included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_accesses: Option<u64>,
    /// Results that only TPC-C has.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub transactions: Option<TransactionReport>,
    /// Latency of each kind of operation.
    pub latency_us: Map<String, Value>,
}

/// Results of TPC-C besides operations and latencies.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TransactionReport {
    /// New-Order transactions committed per minute.
    pub tpmc: f64,
    /// Transactions that rolled back on purpose; they do not count as operations.
    pub rollbacks: u64,
    /// Tries that met a conflict, of each kind of transaction.
    pub aborts_by_kind: Map<String, Value>,
    /// Districts in which a Delivery found no order, warm-up included.
    pub deliveries_skipped: u64,
}

/// A short run after the measured part, in which every operation waited until its commit was
/// durable.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct SyncReport {
    /// Its length.
    pub seconds: f64,
    /// Operations per second.
    pub throughput: f64,
    /// Median time of a sync of the log, in microseconds.
    pub sync_us: f64,
}

/// The process.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct ProcessReport {
    /// Largest resident size since its start.
    pub peak_rss_bytes: u64,
    /// Processor time in user mode, in the measured part.
    pub user_seconds: f64,
    /// Processor time in the kernel, in the measured part.
    pub system_seconds: f64,
    /// Instructions of the workers in user mode, in the measured part; absent if the system does
    /// not count them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<u64>,
}

/// The checks of a run.
#[derive(Clone, Debug, Serialize)]
pub struct CheckReport {
    /// Whether all of them passed.
    pub passed: bool,
    /// Each check.
    pub conditions: Vec<Condition>,
}

/// One check.
#[derive(Clone, Debug, Serialize)]
pub struct Condition {
    /// The condition.
    pub name: String,
    /// Whether it holds.
    pub passed: bool,
    /// The number of cases, or the first one in which it does not hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// End of the name of a check without a result.
const NOT_CHECKED: &str = ", everything was checked";

impl CheckReport {
    /// Whether the data are known to be wrong.
    pub fn found_something(&self) -> bool {
        self.conditions.iter().any(|one| !one.passed && !one.name.ends_with(NOT_CHECKED))
    }
}

impl Condition {
    /// A failed condition in place of a check that could not be done.
    pub fn not_checked(when: &str, why: &str) -> Self {
        let name = format!("{when}{NOT_CHECKED}");
        Self { name, passed: false, detail: Some(why.to_owned()) }
    }

    /// As text: whether it holds, the condition, and the detail.
    pub fn text(&self) -> String {
        let verdict = if self.passed { "passed" } else { "FAILED" };
        let detail = self.detail.as_ref().map(|detail| format!(" ({detail})"));
        format!("{verdict}: {}{}", self.name, detail.unwrap_or_default())
    }
}

/// The data of the plots.
#[derive(Debug, Default)]
pub struct Details {
    /// One for each second of the measured part.
    pub samples: Vec<Sample>,
    /// Latencies of each kind of operation.
    pub latencies: Vec<(&'static str, LatencyTotal)>,
}

impl RunReport {
    /// The figures of `measurement`.
    pub fn of(measurement: &Measurement) -> Self {
        let operations = measurement.operations();
        let latency = |(kind, total): &(&'static str, LatencyTotal)| {
            let summary = serde_json::to_value(total.summary());
            ((*kind).to_owned(), summary.expect("a summary consists of plain numbers"))
        };
        Self {
            seconds: measurement.seconds,
            operations,
            throughput: per(operations as f64, measurement.seconds),
            aborts: measurement.conflicts(),
            interrupted: measurement.interrupted,
            trace_accesses: measurement.trace_accesses,
            transactions: None,
            latency_us: measurement.latencies.iter().map(latency).collect(),
        }
    }
}

impl Report {
    /// The object of `--format json`.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report consists of plain values")
    }

    /// Whether the run and its checks succeeded.
    pub fn succeeded(&self) -> bool {
        self.error.is_none() && self.check.passed
    }
}

/// `amount` per `unit`; 0 if there is no unit.
pub fn per(amount: f64, unit: f64) -> f64 {
    if unit > 0.0 { amount / unit } else { 0.0 }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::driver::counters::Counters;
    use crate::histogram::Latencies;
    use serde_json::json;

    /// A small report with every part filled in.
    pub(crate) fn example() -> Report {
        let mut latencies = Latencies::default();
        (1..=1000).for_each(|step| latencies.record(step * 100));
        let mut total = LatencyTotal::default();
        total.add(&latencies);
        let samples = (1..=3)
            .map(|second| Sample {
                measured: true,
                at_seconds: f64::from(second),
                seconds: 1.0,
                operations: 1000,
                counters: Counters {
                    buffer: BufferCounters { faults: 10, pages_written: 5, ..Default::default() },
                    ..Default::default()
                },
                latency: total.summary(),
            })
            .collect();
        let measurement = Measurement {
            seconds: 3.0,
            latencies: vec![("read", total.clone())],
            ends: Vec::new(),
            trace_accesses: None,
            instructions: None,
            counters: Counters {
                buffer: BufferCounters { frames: 64, faults: 30, ..Default::default() },
                ..Default::default()
            },
            cpu: Default::default(),
            samples: Vec::new(),
            interrupted: false,
            failure: None,
        };
        let settings = json!({"workload": "c", "records": 1000, "pool": 262144, "threads": 1});
        Report {
            subcommand: "ycsb",
            command: "wattle ycsb --records 1000 <&>".to_owned(),
            settings: settings.as_object().cloned().unwrap(),
            rules: Rules {
                engine: "wattle",
                isolation: "snapshot",
                durability: "sync",
                reads: "newest",
                hints: "none",
                delivery_queue: "off",
                pin: false,
            },
            program: Program {
                version: "0.1.0",
                commit: "abc",
                date: "2026-11-28T00:00:00Z".to_owned(),
            },
            machine: Machine { cores: 2, ..Machine::default() },
            device: Some(DeviceReport {
                k_r: 32,
                k_w: 16,
                asymmetry: 1.3,
                probed: "2026-11-01T00:00:00Z".to_owned(),
                reads_per_second: Some(24_100),
                writes_per_second: Some(18_500),
            }),
            load: LoadReport { records: 1000, data_bytes: 1 << 20, ..LoadReport::default() },
            run: RunReport::of(&measurement),
            buffer: measurement.counters.buffer,
            log: LogCounters {
                flushes: 150,
                syncs: 150,
                commits: 900,
                sync_us: 10_000.0,
                ..LogCounters::default()
            },
            process: ProcessReport::default(),
            check: CheckReport {
                passed: true,
                conditions: vec![Condition {
                    name: "reads are right".to_owned(),
                    passed: true,
                    detail: None,
                }],
            },
            sync: None,
            error: None,
            details: Details { samples, latencies: vec![("read", total)] },
        }
    }

    fn keys(value: &Value) -> Vec<&str> {
        value.as_object().unwrap().keys().map(String::as_str).collect()
    }

    #[test]
    fn the_json_keys_are_stable() {
        let json: Value = serde_json::from_str(&example().json()).unwrap();
        let top = [
            "subcommand",
            "command",
            "settings",
            "rules",
            "program",
            "machine",
            "device",
            "load",
            "run",
            "buffer",
            "log",
            "process",
            "check",
        ];
        assert_eq!(keys(&json), top);
        let rules =
            ["engine", "isolation", "durability", "reads", "hints", "delivery_queue", "pin"];
        assert_eq!(keys(&json["rules"]), rules);
        assert_eq!(keys(&json["machine"]), ["cpu", "cores", "memory_bytes", "kernel"]);
        let load = ["seconds", "records", "data_bytes", "file_bytes", "reused", "file_system"];
        assert_eq!(keys(&json["load"]), load);
        let run = ["seconds", "operations", "throughput", "aborts", "interrupted", "latency_us"];
        assert_eq!(keys(&json["run"]), run);
        let latency = ["count", "mean", "min", "p50", "p95", "p99", "p999", "max"];
        assert_eq!(keys(&json["run"]["latency_us"]["read"]), latency);
        let buffer = [
            "frames",
            "free_frames",
            "hits",
            "faults",
            "pages_read",
            "pages_written",
            "evictions",
            "evictions_dirty",
            "evictor_cpu_seconds",
            "epochs",
            "restarts",
            "frame_waits",
            "evictor",
        ];
        assert_eq!(keys(&json["buffer"]), buffer);
        let evictor = [
            "epoch",
            "threshold",
            "thresholds",
            "candidates",
            "queued",
            "refused",
            "swizzles",
            "unswizzles",
            "queued_writes",
        ];
        assert_eq!(keys(&json["buffer"]["evictor"]), evictor);
        let refused = [
            "no_page",
            "pinned",
            "hot_children",
            "being_written",
            "hotter",
            "latched",
            "parent_latched",
            "changed",
            "queue_full",
        ];
        assert_eq!(keys(&json["buffer"]["evictor"]["refused"]), refused);
        assert_eq!(keys(&json["program"]), ["version", "commit", "date"]);
        let device = ["k_r", "k_w", "asymmetry", "probed", "reads_per_second", "writes_per_second"];
        assert_eq!(keys(&json["device"]), device);
        let log =
            ["bytes", "syncs", "commits", "record_bytes", "sync_us", "checkpoints", "flushes"];
        assert_eq!(keys(&json["log"]), log);
        assert_eq!(keys(&json["process"]), ["peak_rss_bytes", "user_seconds", "system_seconds"]);
        assert_eq!(keys(&json["check"]), ["passed", "conditions"]);
        assert_eq!(json["run"]["operations"], 1000);
    }

    #[test]
    fn a_failed_run_says_why() {
        let report = Report { error: Some("the device is full".to_owned()), ..example() };
        let json: Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(json["error"], "the device is full");
        assert!(!report.succeeded() && example().succeeded());
    }
}
