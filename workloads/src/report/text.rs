//! The result of a run as text.

use std::fmt::Write;

use serde_json::Value;

use super::figures::{bytes, count, plural, rate, seconds, significant, table};
use super::{Program, Report, Rules, per};

/// The whole report.
pub fn report(report: &Report) -> String {
    let mut text = String::new();
    for (name, value) in summary(report) {
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "{name:<12}{}", wrapped(&value));
    }
    let mut rows = vec![row(["latency us", "count", "mean", "p50", "p95", "p99", "p99.9", "max"])];
    rows.extend(latency_rows(report));
    text.push('\n');
    text.push_str(&table("", &rows));
    let mut rows = vec![row(["buffer pool", "total", "per second", "per operation"])];
    rows.extend(buffer_rows(report));
    text.push('\n');
    text.push_str(&table("", &rows));
    let mut rows = vec![row(["log", "total", "per second", "per operation"])];
    rows.extend(log_rows(report));
    text.push('\n');
    text.push_str(&table("", &rows));
    let _ = write!(text, "\n{:<12}{}", "commits", commits(report));
    for (name, value) in outcome(report) {
        let _ = write!(text, "\n{name:<12}{value}");
    }
    text.push('\n');
    text
}

/// `value` in lines of a readable width, broken at commas and indented to the column of values.
fn wrapped(value: &str) -> String {
    const WIDTH: usize = 96;
    let mut text = String::new();
    let mut used = 0;
    for part in value.split_inclusive(", ") {
        if used > 0 && used + part.trim_end().len() > WIDTH {
            text.truncate(text.trim_end().len());
            text.push_str("\n            ");
            used = 0;
        }
        text.push_str(part);
        used += part.len();
    }
    text
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// The command, the machine and the results: pairs of a name and a value.
pub fn summary(report: &Report) -> Vec<(&'static str, String)> {
    let Report { machine, load, run, .. } = report;
    let mut lines = vec![
        ("command", report.command.clone()),
        (
            "machine",
            format!(
                "{}, {}, {} memory, {}",
                if machine.cpu.is_empty() { "unknown processor" } else { &machine.cpu },
                plural(machine.cores as u64, "core"),
                bytes(machine.memory_bytes),
                machine.kernel
            ),
        ),
        ("wattle", program(report)),
        ("device", device(report)),
        ("settings", settings(report)),
        ("rules", rules(&report.rules)),
        (
            "data",
            format!(
                "{}, {} of keys and values, {} on disk after loading ({}){}",
                plural(load.records, "record"),
                bytes(load.data_bytes),
                bytes(load.file_bytes),
                load.file_system,
                pool_to_data(report)
            ),
        ),
    ];
    let loaded = if load.reused {
        "reused data of an earlier run".to_owned()
    } else {
        let speed = rate(per(load.records as f64, load.seconds));
        format!("{}, {speed} records/s", seconds(load.seconds))
    };
    lines.push(("load", loaded));
    lines.push((
        "run",
        format!(
            "{}, {}, {} operations/s{}",
            seconds(run.seconds),
            plural(run.operations, "operation"),
            rate(run.throughput),
            if run.interrupted { " (interrupted)" } else { "" }
        ),
    ));
    if let Some(sync) = &report.sync {
        let (throughput, length) = (rate(sync.throughput), seconds(sync.seconds));
        lines.push((
            "with sync",
            format!(
                "{throughput} operations/s in {length}, each ends when its commit is durable \
                 (median sync {} us)",
                significant(sync.sync_us)
            ),
        ));
    }
    if let Some(accesses) = run.trace_accesses {
        lines.push(("trace", plural(accesses, "page access")));
    }
    if let Some(transactions) = &run.transactions {
        lines.push((
            "tpmC",
            format!(
                "{}, {} aborted by conflicts, {} on purpose, {} without an order to deliver",
                rate(transactions.tpmc),
                plural(run.aborts, "try"),
                plural(transactions.rollbacks, "roll-back"),
                plural(transactions.deliveries_skipped, "district")
            ),
        ));
    } else if run.aborts > 0 {
        lines.push(("conflicts", format!("{} aborted by conflicts", plural(run.aborts, "try"))));
    }
    lines
}

fn program(report: &Report) -> String {
    let Program { version, commit, date } = &report.program;
    format!("version {version}, commit {commit}, {date}")
}

/// The figures of `wattle probe`.
fn device(report: &Report) -> String {
    match &report.device {
        None => "not probed; wattle probe keeps its figures in a store".to_owned(),
        Some(probed) => format!(
            "k_r {}, k_w {}, asymmetry {}, probed {}",
            probed.k_r,
            probed.k_w,
            significant(probed.asymmetry),
            probed.probed
        ),
    }
}

/// Pages read and written against what the device can do, if that was probed.
fn device_load(report: &Report) -> Option<String> {
    let probed = report.device.as_ref()?;
    let part = |what, pages: u64, most: Option<u64>| {
        let most = most? as f64;
        let found = per(pages as f64, report.run.seconds);
        let percent = significant(100.0 * found / most);
        Some(format!("{} {what}/s, {percent} % of the {} that it can do", rate(found), rate(most)))
    };
    let reads = part("reads", report.buffer.pages_read, probed.reads_per_second)?;
    let writes = part("writes", report.buffer.pages_written, probed.writes_per_second)?;
    Some(format!("{reads}; {writes}"))
}

/// The pool to the keys and values, if both are known.
fn pool_to_data(report: &Report) -> String {
    match report.settings.get("pool").and_then(Value::as_u64) {
        Some(pool) if report.load.data_bytes > 0 => {
            let ratio = pool as f64 / report.load.data_bytes as f64;
            format!(", pool : data {}", significant(ratio))
        }
        _ => ", pool : data unknown".to_owned(),
    }
}

/// The values of all flags that are set.
fn settings(report: &Report) -> String {
    let shown = |(name, value): (&String, &Value)| {
        let value = match (name.as_str(), value) {
            (_, Value::Null) => return None,
            ("pool" | "value_size", Value::Number(number)) => {
                bytes(number.as_u64().unwrap_or(0)).replace(' ', "")
            }
            ("duration" | "warmup", Value::Number(number)) => format!("{number}s"),
            (_, Value::String(text)) => text.clone(),
            (_, other) => other.to_string(),
        };
        Some(format!("{}={value}", name.replace('_', "-")))
    };
    report.settings.iter().filter_map(shown).collect::<Vec<_>>().join(", ")
}

/// The rules of a run.
fn rules(rules: &Rules) -> String {
    let Rules { engine, isolation, durability, reads, hints, delivery_queue, pin } = rules;
    format!(
        "engine={engine}, isolation={isolation}, durability={durability}, reads={reads}, \
         hints={hints}, delivery-queue={delivery_queue}, pin={pin}"
    )
}

/// One row of cells for each kind of operation.
pub fn latency_rows(report: &Report) -> Vec<Vec<String>> {
    let cells = |(kind, total): &(&'static str, crate::histogram::LatencyTotal)| {
        let latency = total.summary();
        let mut cells = vec![(*kind).to_owned(), count(latency.count)];
        let figures =
            [latency.mean, latency.p50, latency.p95, latency.p99, latency.p999, latency.max];
        cells.extend(figures.map(significant));
        cells
    };
    report.details.latencies.iter().map(cells).collect()
}

/// One row of cells for each counter of the buffer pool.
pub fn buffer_rows(report: &Report) -> Vec<Vec<String>> {
    let (buffer, run) = (&report.buffer, &report.run);
    let counters = [
        ("hits", buffer.hits),
        ("faults", buffer.faults),
        ("pages read", buffer.pages_read),
        ("pages written", buffer.pages_written),
        ("evictions", buffer.evictions),
        ("evictions of dirty pages", buffer.evictions_dirty),
        ("restarts", buffer.restarts),
        ("waits for a frame", buffer.frame_waits),
        ("epochs", buffer.epochs),
        ("swizzles", buffer.evictor.swizzles),
        ("unswizzles", buffer.evictor.unswizzles),
        ("candidates for eviction", buffer.evictor.candidates),
        ("queued for a write", buffer.evictor.queued),
    ];
    let refused = buffer.evictor.refused.reasons();
    let refused = refused.into_iter().filter(|(_, count)| *count > 0);
    let cells = |(name, total): (String, u64)| {
        vec![
            name,
            count(total),
            rate(per(total as f64, run.seconds)),
            significant(per(total as f64, run.operations as f64)),
        ]
    };
    let counters = counters.into_iter().map(|(name, total)| (name.to_owned(), total));
    let refused = refused.map(|(why, total)| (format!("stayed: {why}"), total));
    counters.chain(refused).map(cells).collect()
}

/// One row of cells for each counter of the log.
pub fn log_rows(report: &Report) -> Vec<Vec<String>> {
    let Report { log, run, .. } = report;
    let sizes = [("bytes", log.bytes), ("bytes of records", log.record_bytes)];
    let sizes = sizes.map(|(name, total)| {
        let second = per(total as f64, run.seconds).round() as u64;
        let operation = per(total as f64, run.operations as f64).round() as u64;
        let cells = [bytes(total), bytes(second), bytes(operation)];
        std::iter::once(name.to_owned()).chain(cells).collect()
    });
    let counts = [
        ("flushes", log.flushes),
        ("syncs", log.syncs),
        ("commits", log.commits),
        ("checkpoints", log.checkpoints),
    ];
    let counts = counts.map(|(name, total)| {
        vec![
            name.to_owned(),
            count(total),
            rate(per(total as f64, run.seconds)),
            significant(per(total as f64, run.operations as f64)),
        ]
    });
    sizes.into_iter().chain(counts).collect()
}

/// How commits shared flushes, and the part of the run that syncs took.
pub fn commits(report: &Report) -> String {
    let Report { log, run, .. } = report;
    if log.flushes == 0 {
        return "0 commits per flush: the log was not written".to_owned();
    }
    let syncing = per(log.syncs as f64 * log.sync_us / 1e6, run.seconds).min(1.0);
    format!(
        "{} commits per flush, a sync takes {} us (median of the last ones), syncs took about {} % \
         of the run",
        significant(per(log.commits as f64, log.flushes as f64)),
        significant(log.sync_us),
        significant(syncing * 100.0)
    )
}

/// The resources and the checks: pairs of a name and a value.
pub fn outcome(report: &Report) -> Vec<(&'static str, String)> {
    let Report { process, run, buffer, .. } = report;
    let cpu = process.user_seconds + process.system_seconds;
    let load = device_load(report).map(|load| ("device load", load));
    let mut lines = load.into_iter().collect::<Vec<_>>();
    lines.extend([
        (
            "frames",
            format!("{}, {} free at the end", count(buffer.frames), count(buffer.free_frames)),
        ),
        (
            "evictors",
            format!(
                "{} candidates per eviction, mean threshold {}, epoch {}, {} in the write queue \
                 at the end",
                significant(buffer.evictor.candidates_per_eviction(buffer.evictions)),
                significant(buffer.evictor.threshold),
                count(buffer.evictor.epoch),
                plural(buffer.evictor.queued_writes, "page"),
            ),
        ),
        (
            "process",
            format!(
                "{} resident at most; processor time {} user, {} system, {} evictors; {} us per \
                 operation",
                bytes(process.peak_rss_bytes),
                seconds(process.user_seconds),
                seconds(process.system_seconds),
                seconds(buffer.evictor_cpu_seconds),
                significant(per(cpu * 1e6, run.operations as f64))
            ),
        ),
    ]);
    for condition in &report.check.conditions {
        lines.push(("check", condition.text()));
    }
    if let Some(error) = &report.error {
        lines.push(("error", error.clone()));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_broken_at_commas() {
        let value = ["setting=value"; 10].join(", ");
        let text = wrapped(&value);
        assert_eq!(text.replace("\n           ", ""), value);
        assert_eq!(text.lines().count(), 2);
        assert!(text.lines().all(|line| line.trim().len() <= 96));
    }

    #[test]
    fn settings_machine_results_and_checks_are_all_there() {
        let text = report(&super::super::tests::example());
        for part in [
            "command     wattle ycsb --records 1000",
            "workload=c, records=1000, pool=256KiB, threads=1",
            "rules       engine=wattle, isolation=snapshot, durability=sync, reads=newest",
            "delivery-queue=off, pin=false",
            "2 cores",
            "3.00 s, 1,000 operations, 333 operations/s",
            "latency us  count",
            "pages written",
            "check       passed: reads are right",
            "wattle      version 0.1.0, commit abc, 2026-11-28T00:00:00Z",
            "device      k_r 32, k_w 16, asymmetry 1.30, probed 2026-11-01T00:00:00Z",
            "pool : data 0.250",
            "device load ",
            " of the 24,100 that it can do; ",
            "log               total  per second  per operation",
            "flushes             150        50.0          0.150",
            "commits     6.00 commits per flush, a sync takes 10,000 us",
            "syncs took about 50.0 % of the run",
        ] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
    }
}
