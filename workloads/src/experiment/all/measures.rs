//! Measures that several experiments share, from the JSON report of a workload.

use serde_json::Value;

use crate::experiment::design::Measure;

/// A number of a report.
pub fn number(report: &Value, pointer: &str) -> Option<f64> {
    report.pointer(pointer)?.as_f64()
}

/// One number of a report over another; `None` if there is nothing to divide by.
fn over(report: &Value, above: f64, below: &str) -> Option<f64> {
    number(report, below).filter(|below| *below > 0.0).map(|below| above / below)
}

fn per_operation(report: &Value, pointer: &str) -> Option<f64> {
    over(report, number(report, pointer)?, "/run/operations")
}

/// Operations per second.
pub const THROUGHPUT: Measure = Measure {
    name: "throughput",
    label: "transactions/s",
    of: |report| number(report, "/run/throughput"),
};

/// Pages read per operation.
pub const READS: Measure = Measure {
    name: "reads",
    label: "pages read per transaction",
    of: |report| per_operation(report, "/buffer/pages_read"),
};

/// Pages written per operation.
pub const WRITES: Measure = Measure {
    name: "writes",
    label: "pages written per transaction",
    of: |report| per_operation(report, "/buffer/pages_written"),
};

/// Page faults per operation.
pub const FAULTS: Measure = Measure {
    name: "faults",
    label: "page faults per transaction",
    of: |report| per_operation(report, "/buffer/faults"),
};

/// Pages read and written per operation.
pub const TOTAL_IO: Measure = Measure {
    name: "total",
    label: "pages read and written per transaction",
    of: |report| {
        Some(
            per_operation(report, "/buffer/pages_read")?
                + per_operation(report, "/buffer/pages_written")?,
        )
    },
};

/// Pages evicted per second.
pub const EVICTIONS: Measure = Measure {
    name: "evictions",
    label: "evictions/s",
    of: |report| over(report, number(report, "/buffer/evictions")?, "/run/seconds"),
};

/// Pages evicted per second of processor time of evictors and writers.
pub const EVICTIONS_PER_CPU: Measure = Measure {
    name: "evictions_per_cpu",
    label: "evictions per second of processor time of evictors and writers",
    of: |report| over(report, number(report, "/buffer/evictions")?, "/buffer/evictor_cpu_seconds"),
};

/// Candidates that were looked at for each page evicted.
pub const CANDIDATES: Measure = Measure {
    name: "candidates",
    label: "candidates for each eviction",
    of: |report| over(report, number(report, "/buffer/evictor/candidates")?, "/buffer/evictions"),
};

/// Pages written per second.
pub const WRITES_PER_SECOND: Measure = Measure {
    name: "writes_per_second",
    label: "pages written/s",
    of: |report| over(report, number(report, "/buffer/pages_written")?, "/run/seconds"),
};

/// Instructions of the workers per operation, where the system counts them.
pub const INSTRUCTIONS: Measure = Measure {
    name: "instructions",
    label: "instructions per transaction",
    of: |report| per_operation(report, "/process/instructions"),
};

/// Processor time of all threads but evictors and writers per operation.
pub const WORKER_CPU: Measure = Measure {
    name: "worker_cpu_us",
    label: "us of processor time per transaction, without evictors",
    of: |report| {
        let all =
            number(report, "/process/user_seconds")? + number(report, "/process/system_seconds")?;
        let workers = all - number(report, "/buffer/evictor_cpu_seconds")?;
        over(report, workers * 1e6, "/run/operations")
    },
};
