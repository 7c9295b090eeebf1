//! `wattle verify` and `wattle stat`, which only read a store, and `wattle compact`, which shrinks
//! it.

use std::io::Write;
use std::ops::ControlFlow;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use wattle::{CompactReport, PAGE_SIZE, Stats, StoreInfo, TreeStat, VerifyReport};

use super::bench_run::BenchScenario;
use super::common::{Format, StoreFlags};
use super::exit::{Exit, ended, failed, not_opened, print};
use super::run::check_store;
use super::tpcc_run::TpccScenario;
use crate::adapter::store::EngineStore;
use crate::driver::control::Interrupt;
use crate::driver::store::Store;
use crate::report::figures::{bytes, count, plural, table};
use crate::report::{CheckReport, Condition};
use crate::tatp::benchmark::Tatp;
use crate::tpcb::benchmark::Tpcb;

/// Flags of `verify`.
#[derive(Args, Debug)]
pub struct VerifyFlags {
    /// The store.
    #[command(flatten)]
    pub store: StoreFlags,

    /// Check also the consistency conditions of TPC-C, on a store that `wattle tpcc` loaded.
    #[arg(long)]
    pub tpcc: bool,

    /// Check also the balances and the history of TPC-B.
    #[arg(long, conflicts_with_all = ["tatp", "tpcc"])]
    pub tpcb: bool,

    /// Check also the rows of TATP and their references.
    #[arg(long, conflicts_with = "tpcc")]
    pub tatp: bool,

    /// Format of the result.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Flags of `stat`.
#[derive(Args, Debug)]
pub struct StatFlags {
    /// The store.
    #[command(flatten)]
    pub store: StoreFlags,

    /// Print the log instead, one line for each flush and record, from the point where recovery
    /// would begin.
    #[arg(long, conflicts_with = "format")]
    pub log: bool,

    /// Format of the result.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Checks a store.
pub fn verify(flags: &VerifyFlags, interrupt: &Interrupt) -> Result<(), Exit> {
    let engine = flags.store.open_read_only(interrupt)?;
    let style = ProgressStyle::with_template("checking records: {human_pos}, {per_sec}")
        .expect("the template is a constant that indicatif accepts");
    let progress = ProgressBar::no_length().with_style(style);
    let report =
        engine.verify_until(interrupt.flag(), &mut |records| progress.set_position(records));
    progress.finish_and_clear();
    let mut verdict = Verdict::of(report.map_err(ended("checking the store"))?);
    let store = EngineStore::new(engine, false);
    // The data of a damaged store are not checked.
    if verdict.passed {
        let path = &flags.store.path;
        let found = match (flags.tpcc, flags.tpcb, flags.tatp) {
            (true, ..) => {
                check_store(&TpccScenario::of_any_size(), &store, path, interrupt).map(Some)
            }
            (_, true, _) => {
                let tpcb = BenchScenario::<Tpcb>::of_any_size();
                check_store(&tpcb, &store, path, interrupt).map(Some)
            }
            (.., true) => {
                let tatp = BenchScenario::<Tatp>::of_any_size();
                check_store(&tatp, &store, path, interrupt).map(Some)
            }
            _ => Ok(None),
        };
        match found {
            Ok(Some(check)) => verdict.add(check),
            Ok(None) => {}
            Err(exit) => {
                // The first failure says more than an error from closing the store.
                let _closed = store.close();
                return Err(exit);
            }
        }
    }
    let printed = match flags.format {
        Format::Text => print(&verdict.text()),
        Format::Json => print(&(json(&verdict) + "\n")),
    };
    let closed = store.close().map_err(failed("closing the store"));
    // If the list of problems could not be printed, that is the error.
    printed?;
    if verdict.passed { closed } else { Err(Exit::Reported) }
}

/// Shows the sizes of a store.
pub fn stat(flags: &StatFlags, interrupt: &Interrupt) -> Result<(), Exit> {
    if flags.log {
        return log(flags, interrupt);
    }
    let engine = flags.store.open_read_only(interrupt)?;
    let trees = engine.tree_stats_until(interrupt.flag()).map_err(ended("measuring the trees"))?;
    let sizes = Sizes::of(&engine.store_info(), &engine.stats(), &trees);
    let printed = match flags.format {
        Format::Text => print(&sizes.text()),
        Format::Json => print(&(json(&sizes) + "\n")),
    };
    printed.and(engine.close().map_err(failed("closing the store")))
}

/// Flags of `compact`.
#[derive(Args, Debug)]
pub struct CompactFlags {
    /// The store.
    #[command(flatten)]
    pub store: StoreFlags,

    /// Format of the result.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Truncates the free room at the end of the data file.
pub fn compact(flags: &CompactFlags, interrupt: &Interrupt) -> Result<(), Exit> {
    let engine = flags.store.open_existing(interrupt)?;
    let report = engine.compact_until(interrupt.flag());
    let closed = engine.close().map_err(failed("closing the store"));
    let compacted = Compacted::of(report.map_err(ended("compacting the store"))?);
    let printed = match flags.format {
        Format::Text => print(&compacted.text()),
        Format::Json => print(&(json(&compacted) + "\n")),
    };
    printed.and(closed)
}

/// The result of a compaction, as printed.
#[derive(Serialize)]
struct Compacted {
    moved_pages: u64,
    file_bytes_before: u64,
    file_bytes: u64,
}

impl Compacted {
    fn of(report: CompactReport) -> Self {
        Self {
            moved_pages: report.moved_pages,
            file_bytes_before: report.bytes_before,
            file_bytes: report.bytes_after,
        }
    }

    fn text(&self) -> String {
        format!(
            "moved {}, the data file has {} and had {}\n",
            plural(self.moved_pages, "page"),
            bytes(self.file_bytes),
            bytes(self.file_bytes_before)
        )
    }
}

/// Prints the log.
fn log(flags: &StatFlags, interrupt: &Interrupt) -> Result<(), Exit> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut written = Ok(());
    let dumped = wattle::dump_log(&flags.store.path, &mut |line| {
        written = writeln!(out, "{line}");
        match written.is_ok() && !interrupt.requested() {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    match written.and_then(|()| out.flush()) {
        // The reader closed the pipe early.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
        written => written.map_err(failed("writing the log"))?,
    }
    if interrupt.requested() {
        return Err(Exit::Interrupted("interrupted while writing the log".to_owned()));
    }
    dumped.map_err(not_opened)
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).expect("the value consists of plain values")
}

/// The result of a check, as printed.
#[derive(Serialize)]
struct Verdict {
    passed: bool,
    pages: u64,
    used_pages: u64,
    file_pages: u64,
    trees: u64,
    records: u64,
    log_bytes: u64,
    problems: Vec<String>,
    /// Conditions of the data; empty unless the user asked for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<Condition>,
}

impl Verdict {
    fn of(report: VerifyReport) -> Self {
        Self {
            passed: report.problems.is_empty(),
            pages: report.pages,
            used_pages: report.used_pages,
            file_pages: report.file_pages,
            trees: report.trees,
            records: report.records,
            log_bytes: report.log_bytes,
            problems: report.problems,
            conditions: Vec::new(),
        }
    }

    /// Adds the conditions of the data.
    fn add(&mut self, check: CheckReport) {
        self.passed &= check.passed;
        self.conditions = check.conditions;
    }

    fn text(&self) -> String {
        let seen = format!(
            "checked {} with {} and {}, and {} of log",
            plural(self.pages, "page"),
            plural(self.trees, "tree"),
            plural(self.records, "record"),
            bytes(self.log_bytes)
        );
        let conditions: String = self.conditions.iter().map(|found| found.text() + "\n").collect();
        if self.problems.is_empty() {
            return format!("{seen}: nothing is wrong\n{conditions}");
        }
        let problems: String =
            self.problems.iter().map(|problem| format!("  {problem}\n")).collect();
        format!("{seen}: this is wrong\n{problems}{conditions}")
    }
}

/// The sizes of a store, as printed.
#[derive(Serialize)]
struct Sizes {
    format_version: u32,
    /// Opening the store recovers nothing.
    closed_cleanly: bool,
    /// Its changes are logged.
    logged: bool,
    last_checkpoint: CheckpointSeen,
    log_segments: u64,
    log_file_bytes: u64,
    file_bytes: u64,
    page_bytes: u64,
    pages: u64,
    used_pages: u64,
    free_pages: u64,
    /// Bytes by which `wattle compact` would shrink the data file.
    compact_bytes: u64,
    trees: Vec<TreeSizes>,
}

/// The last checkpoint, and what the log has since then.
#[derive(Serialize)]
struct CheckpointSeen {
    /// Superblocks written so far.
    number: u64,
    redo_epoch: u64,
    replay_bytes: u64,
    replay_records: u64,
}

/// The sizes of one tree. `depth` counts the nodes from root to leaf; `leaf_fill` is from 0 to 1.
#[derive(Serialize)]
struct TreeSizes {
    name: String,
    records: u64,
    depth: usize,
    inner_pages: u64,
    leaf_pages: u64,
    large_pages: u64,
    leaf_fill: f64,
}

impl Sizes {
    fn of(info: &StoreInfo, stats: &Stats, trees: &[TreeStat]) -> Self {
        let tree = |tree: &TreeStat| TreeSizes {
            name: tree.name.clone(),
            records: tree.records,
            depth: tree.depth,
            inner_pages: tree.inner_pages,
            leaf_pages: tree.leaf_pages,
            large_pages: tree.large_pages,
            leaf_fill: tree.fill,
        };
        Self {
            format_version: info.version,
            closed_cleanly: info.closed,
            logged: info.logged,
            last_checkpoint: CheckpointSeen {
                number: info.checkpoints,
                redo_epoch: info.redo_epoch,
                replay_bytes: info.replay_bytes,
                replay_records: info.replay_records,
            },
            log_segments: info.log_segments,
            log_file_bytes: info.log_file_bytes,
            file_bytes: stats.file_bytes,
            page_bytes: PAGE_SIZE as u64,
            pages: stats.pages,
            used_pages: stats.used_pages,
            free_pages: stats.pages - stats.used_pages,
            compact_bytes: stats.compact_bytes,
            trees: trees.iter().map(tree).collect(),
        }
    }

    fn text(&self) -> String {
        let checkpoint = &self.last_checkpoint;
        // A store that was used without a log, and not closed, does not open.
        let left = match self.closed_cleanly {
            true => "closed cleanly".to_owned(),
            false => format!(
                "not closed: the next opening recovers {} of {}",
                plural(checkpoint.replay_records, "record"),
                bytes(checkpoint.replay_bytes)
            ),
        };
        let log = match self.logged {
            true => format!(
                "{} in {}, {} of records since the last checkpoint",
                bytes(self.log_file_bytes),
                plural(self.log_segments, "segment"),
                bytes(checkpoint.replay_bytes)
            ),
            false => "none".to_owned(),
        };
        let mut text = format!(
            "store  format version {}, {left}\n\
             log    {log}\n\
             last   checkpoint number {}, the log is needed from epoch {}\n\
             file   {}, {} less after wattle compact\n\
             pages  {} of {}, {} of them free\n\n",
            self.format_version,
            count(checkpoint.number),
            count(checkpoint.redo_epoch),
            bytes(self.file_bytes),
            bytes(self.compact_bytes),
            count(self.pages),
            bytes(self.page_bytes),
            count(self.free_pages)
        );
        let header =
            ["tree", "records", "depth", "inner pages", "leaf pages", "large pages", "leaf fill"];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        for tree in &self.trees {
            rows.push(vec![
                tree.name.clone(),
                count(tree.records),
                tree.depth.to_string(),
                count(tree.inner_pages),
                count(tree.leaf_pages),
                count(tree.large_pages),
                format!("{:.0} %", tree.leaf_fill * 100.0),
            ]);
        }
        text.push_str(&table("", &rows));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clean_store_takes_one_line_and_a_damaged_one_a_list() {
        let clean = VerifyReport { pages: 1200, trees: 2, records: 9, ..VerifyReport::default() };
        assert_eq!(
            Verdict::of(clean.clone()).text(),
            "checked 1,200 pages with 2 trees and 9 records, and 0 B of log: nothing is wrong\n"
        );
        let damaged = VerifyReport { problems: vec!["page 7 is torn".to_owned()], ..clean };
        let damaged = Verdict::of(damaged);
        assert!(damaged.text().ends_with(": this is wrong\n  page 7 is torn\n"));
        let verdict: serde_json::Value = serde_json::from_str(&json(&damaged)).unwrap();
        assert_eq!(verdict["passed"], false);
        assert_eq!(verdict["problems"][0], "page 7 is torn");
    }

    #[test]
    fn sizes_are_shown_per_tree() {
        let tree = TreeStat {
            name: "orders".to_owned(),
            records: 12_345,
            depth: 3,
            fill: 0.705,
            ..TreeStat::default()
        };
        let stats = Stats {
            file_bytes: 1 << 20,
            pages: 100,
            used_pages: 97,
            compact_bytes: 3 << 12,
            ..Stats::default()
        };
        let text = Sizes::of(&StoreInfo::default(), &stats, &[tree]).text();
        let file = "file   1 MiB, 12 KiB less after wattle compact\n";
        assert!(text.contains(&format!("{file}pages  100 of 4 KiB, 3 of them free\n")), "{text}");
        assert!(text.contains("orders   12,345      3") && text.contains("70 %"), "{text}");
    }
}
