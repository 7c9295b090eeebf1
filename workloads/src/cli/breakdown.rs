//! `wattle breakdown`: runs workloads with a sampling profiler and prints the shares of components.
//!
//! It runs `ycsb` and `tpcc` as their subcommands do, with the same code; the profile covers the
//! measured part. One store for each workload serves all runs, so the data are loaded once.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::Value;

use super::common::{Format, OnOff, check_outputs};
use super::exit::{Exit, failed, print};
use super::io_backend::IoBackend;
use super::units;
use crate::breakdown::component::Component;
use crate::breakdown::profile::{Profile, Profiler};
use crate::breakdown::report::{Ablation, Breakdown, Overhead, ProfiledRun, excess, median};
use crate::breakdown::sampler;
use crate::breakdown::symbols::Symbols;
use crate::driver::options::Durability;
use crate::machine::{self, Machine};

const METHOD: &str = "shares of processor time by SIGPROF at each clock tick of a running thread; \
                      exclusive self time, inlined functions counted for themselves";

const NO_LINES: &str = "this binary has no line tables, so its functions have no source files; \
                        build it with debug = \"line-tables-only\", as --release does";

const NO_MVCC: &str = "snapshots, conflict checks and rollbacks read versions, so an engine \
                       without them gives wrong answers. A read of a page that no open \
                       transaction has changed looks at no version: its hint says so. The rows \
                       say what versions cost";
const NO_LATCHES: &str = "evictors, writers and checkpoints latch pages also beside a single \
                          worker, so a pool without latches loses changes. An optimistic read \
                          stores nothing to a latch. The row says what latches cost";

/// Most pairs of runs.
const MAX_PAIRS: u64 = 99;

/// Runs a subcommand, given by its words, and writes its result to a buffer.
pub type RunCommand<'a> =
    &'a dyn Fn(&[OsString], Option<Arc<Profiler>>, &mut Vec<u8>) -> Result<(), Exit>;

/// Flags of `breakdown`.
#[derive(Args, Clone, Debug)]
pub struct BreakdownFlags {
    /// Workloads. Default: all.
    #[arg(value_enum, value_name = "WORKLOAD")]
    pub workloads: Vec<ProfiledWorkload>,

    /// Numbers of worker threads, separated by commas. Default: 1 and all cores.
    #[arg(long, value_name = "N,N,..", value_delimiter = ',',
        value_parser = units::count(1..=1024))]
    pub threads: Vec<u64>,

    /// Directory for a store of each workload; those that have the right data are used again.
    /// Default: a new temporary directory that is removed at the end.
    #[arg(long, value_name = "PATH")]
    pub db: Option<PathBuf>,

    /// Size of the buffer pool, in bytes or with KiB, MiB or GiB.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = units::pool_size)]
    pub pool: u64,

    /// Records of ycsb.
    #[arg(long, value_name = "N", default_value_t = 500_000,
        value_parser = units::count(1..))]
    pub records: u64,

    /// Warehouses of tpcc.
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = units::count(1..=10_000))]
    pub warehouses: u64,

    /// Length of each profile, with ms, s or m.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::some_time)]
    pub duration: Duration,

    /// Length of the run before each profile, with ms, s or m.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = units::time)]
    pub warmup: Duration,

    /// When an operation ends: sync, group or none.
    #[arg(long, value_enum, default_value_t = Durability::Group, hide_possible_values = true)]
    pub durability: Durability,

    /// Whether there is a write-ahead log.
    #[arg(long, value_enum, default_value_t = OnOff::On)]
    pub log: OnOff,

    /// Page replacement policy, with its parameters as NAME:key=value,key=value.
    #[arg(long, value_name = "NAME", default_value = "watt")]
    pub policy: String,

    /// Whether inner pages name the frames of their children.
    #[arg(long, value_enum, default_value_t = OnOff::On)]
    pub swizzling: OnOff,

    /// Storage back end.
    #[arg(long, value_name = "BACK-END", default_value = "uring", value_parser = IoBackend::parse)]
    pub io: IoBackend,

    /// Seed of all random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Also switches mechanisms off, one at a time: log, tracking of accesses, swizzling. So many
    /// pairs of runs with and without each; 0 for none.
    #[arg(long, value_name = "PAIRS", default_value_t = 0,
        value_parser = units::count(..=MAX_PAIRS))]
    pub ablation: u64,

    /// Also compares so many pairs of runs with and without sampling; 0 for none.
    #[arg(long, value_name = "PAIRS", default_value_t = 0,
        value_parser = units::count(..=MAX_PAIRS))]
    pub overhead: u64,

    /// Format of the result.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,

    /// HTML file with the tables and stacked bars.
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
}

/// The workloads of a breakdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProfiledWorkload {
    /// YCSB with look-ups only.
    YcsbRead,
    /// YCSB with updates only.
    YcsbUpdate,
    /// TPC-C.
    Tpcc,
}

impl ProfiledWorkload {
    fn name(self) -> &'static str {
        match self {
            ProfiledWorkload::YcsbRead => "ycsb-read",
            ProfiledWorkload::YcsbUpdate => "ycsb-update",
            ProfiledWorkload::Tpcc => "tpcc",
        }
    }

    /// The arguments that only it has.
    fn arguments(self, flags: &BreakdownFlags) -> Vec<String> {
        let words = match self {
            ProfiledWorkload::YcsbRead => format!("ycsb --workload c --records {}", flags.records),
            ProfiledWorkload::YcsbUpdate => {
                format!("ycsb --update 1 --records {}", flags.records)
            }
            ProfiledWorkload::Tpcc => format!("tpcc --warehouses {}", flags.warehouses),
        };
        words.split(' ').map(str::to_owned).collect()
    }

    /// The folder of its store. The data of ycsb serve both kinds.
    fn folder(self) -> &'static str {
        match self {
            ProfiledWorkload::YcsbRead | ProfiledWorkload::YcsbUpdate => "ycsb",
            ProfiledWorkload::Tpcc => "tpcc",
        }
    }
}

/// A mechanism that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mechanism {
    Log,
    Tracking,
    Swizzling,
    Mvcc,
    Latching,
}

impl Mechanism {
    const ALL: [Mechanism; 5] = [
        Mechanism::Log,
        Mechanism::Tracking,
        Mechanism::Swizzling,
        Mechanism::Mvcc,
        Mechanism::Latching,
    ];

    fn name(self) -> &'static str {
        match self {
            Mechanism::Log => "log",
            Mechanism::Tracking => "tracking",
            Mechanism::Swizzling => "swizzling",
            Mechanism::Mvcc => "mvcc",
            Mechanism::Latching => "latching",
        }
    }

    /// Flags without it, or why there are none.
    fn without(self, flags: &BreakdownFlags) -> Result<BreakdownFlags, &'static str> {
        let flags = flags.clone();
        Ok(match self {
            Mechanism::Log => BreakdownFlags { log: OnOff::Off, ..flags },
            Mechanism::Tracking => BreakdownFlags { policy: "random".to_owned(), ..flags },
            Mechanism::Swizzling => BreakdownFlags { swizzling: OnOff::Off, ..flags },
            Mechanism::Mvcc => return Err(NO_MVCC),
            Mechanism::Latching => return Err(NO_LATCHES),
        })
    }

    /// The rows that it causes.
    fn rows(self) -> &'static [Component] {
        match self {
            Mechanism::Log => &[Component::LogAppend, Component::Flush, Component::CommitWait],
            Mechanism::Tracking => &[Component::Tracking],
            Mechanism::Swizzling => &[Component::Swizzling],
            Mechanism::Mvcc => &[Component::Versions],
            Mechanism::Latching => &[Component::Latching],
        }
    }
}

impl BreakdownFlags {
    /// Refuses values that do not go together.
    pub fn check(&self) -> Result<(), Exit> {
        if self.db.is_some() && self.io.is_volatile() {
            return Err(Exit::Usage(
                "--db goes with --io uring or threads; --io memory stores nothing".to_owned(),
            ));
        }
        let outputs = self.report.as_deref().map(|path| ("--report", path));
        check_outputs(outputs, &[], self.db.as_deref())
    }

    /// The subcommands that it will run, so that their flags are checked before the first begins.
    pub fn commands(&self) -> Vec<Vec<OsString>> {
        self.workloads().into_iter().map(|workload| self.command(workload, 1, None)).collect()
    }

    fn workloads(&self) -> Vec<ProfiledWorkload> {
        match self.workloads.is_empty() {
            true => ProfiledWorkload::value_variants().to_vec(),
            false => self.workloads.clone(),
        }
    }

    fn thread_counts(&self) -> Vec<u64> {
        let mut counts = self.threads.clone();
        if counts.is_empty() {
            counts = vec![1, machine::cores() as u64];
            counts.dedup();
        }
        counts
    }

    /// The subcommand of a run, on a store below `stores`.
    fn command(
        &self,
        workload: ProfiledWorkload,
        threads: u64,
        stores: Option<&Path>,
    ) -> Vec<OsString> {
        let mut words = vec!["wattle".to_owned()];
        words.extend(workload.arguments(self));
        let mut flag = |name: &str, value: String| words.extend([format!("--{name}"), value]);
        flag("pool", self.pool.to_string());
        flag("threads", threads.to_string());
        flag("duration", format!("{}ms", self.duration.as_millis()));
        flag("warmup", format!("{}ms", self.warmup.as_millis()));
        flag("durability", self.durability.name().to_owned());
        flag("log", self.log.name().to_owned());
        flag("policy", self.policy.clone());
        flag("swizzling", self.swizzling.name().to_owned());
        flag("seed", self.seed.to_string());
        flag("format", "json".to_owned());
        flag("io", self.io.to_string());
        let mut words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
        if let Some(stores) = stores {
            words.extend(["--db".into(), stores.join(workload.folder()).into_os_string()]);
        }
        words
    }
}

/// Profiles the workloads, each run by `run`, and prints the result. `line` is the command line,
/// for the report.
pub fn breakdown(flags: &BreakdownFlags, line: String, run: RunCommand<'_>) -> Result<(), Exit> {
    let mut symbols = Symbols::of_this_program().map_err(Exit::Failed)?;
    if !symbols.have_lines() {
        return Err(Exit::Failed(NO_LINES.to_owned()));
    }
    sampler::prepare(symbols.code()).map_err(failed("installing the handler of samples"))?;
    let home = match &flags.db {
        Some(_) => None,
        None => Some(tempfile::tempdir().map_err(failed("creating a temporary directory"))?),
    };
    let stores = match (&flags.db, &home) {
        _ if flags.io.is_volatile() => None,
        (Some(path), _) => Some(path.clone()),
        (None, Some(home)) => Some(home.path().to_owned()),
        (None, None) => unreachable!("there is a directory"),
    };
    if let Some(path) = &stores {
        let shown = path.display();
        std::fs::create_dir_all(path)
            .map_err(|error| Exit::Usage(format!("--db {shown} cannot be created: {error}")))?;
    }
    if let Some(path) = &flags.report {
        // Before the long work, so that a wrong path is reported at once.
        let shown = path.display();
        std::fs::File::create(path)
            .map_err(|error| Exit::Usage(format!("--report {shown} cannot be created: {error}")))?;
    }
    let cost = sampler::cost();
    let mut study = Study { flags, stores, symbols, cost, run };
    let mut found = Breakdown {
        subcommand: "breakdown",
        command: line,
        machine: Machine::this(),
        method: METHOD,
        runs: Vec::new(),
        ablation: Vec::new(),
        overhead: Vec::new(),
    };
    for workload in flags.workloads() {
        for threads in flags.thread_counts() {
            found.runs.push(study.profile(workload, threads)?);
            if flags.ablation > 0 {
                let run = found.runs.last().expect("just pushed");
                let ablation = study.ablation(workload, threads, &run.profile)?;
                found.ablation.extend(ablation);
            }
            if flags.overhead > 0 {
                found.overhead.push(study.overhead(workload, threads)?);
            }
        }
    }
    let page = match &flags.report {
        Some(path) => std::fs::write(path, found.html())
            .map_err(failed(format_args!("writing {}", path.display()))),
        None => Ok(()),
    };
    print(&match flags.format {
        Format::Text => found.text(),
        Format::Json => found.json(),
    })?;
    page
}

/// The result of one run.
struct Outcome {
    seconds: f64,
    operations: u64,
    throughput: f64,
    cpu_us: f64,
}

/// Runs, one after the other.
struct Study<'a> {
    flags: &'a BreakdownFlags,
    stores: Option<PathBuf>,
    symbols: Symbols,
    cost: Duration,
    run: RunCommand<'a>,
}

impl Study<'_> {
    /// Runs a workload once.
    fn run(
        &self,
        flags: &BreakdownFlags,
        (workload, threads): (ProfiledWorkload, u64),
        profiler: Option<Arc<Profiler>>,
    ) -> Result<Outcome, Exit> {
        let words = flags.command(workload, threads, self.stores.as_deref());
        let mut out = Vec::new();
        (self.run)(&words, profiler, &mut out)?;
        let report: Value =
            serde_json::from_slice(&out).map_err(failed("reading the result of a run"))?;
        let number = |part: &str, name: &str| report[part][name].as_f64().unwrap_or(0.0);
        let operations = number("run", "operations");
        let cpu = number("process", "user_seconds") + number("process", "system_seconds");
        Ok(Outcome {
            seconds: number("run", "seconds"),
            operations: operations as u64,
            throughput: number("run", "throughput"),
            cpu_us: if operations > 0.0 { cpu * 1e6 / operations } else { 0.0 },
        })
    }

    fn profile(&mut self, workload: ProfiledWorkload, threads: u64) -> Result<ProfiledRun, Exit> {
        let profiler = Arc::new(Profiler::default());
        let outcome = self.run(self.flags, (workload, threads), Some(profiler.clone()))?;
        let profile = profiler.take(&mut self.symbols, self.cost).map_err(Exit::Failed)?;
        Ok(ProfiledRun {
            workload: workload.name(),
            threads: threads as usize,
            seconds: outcome.seconds,
            operations: outcome.operations,
            throughput: outcome.throughput,
            profile,
        })
    }

    /// Pairs of runs with and without each mechanism, in turns.
    fn ablation(
        &self,
        workload: ProfiledWorkload,
        threads: u64,
        profile: &Profile,
    ) -> Result<Vec<Ablation>, Exit> {
        let mut found = Vec::new();
        for mechanism in Mechanism::ALL {
            let rows = profile.rows.iter().filter(|row| mechanism.rows().contains(&row.component));
            let mut one = Ablation {
                without: mechanism.name(),
                workload: workload.name(),
                threads: threads as usize,
                cpu_us_with: None,
                cpu_us_without: None,
                throughput_ratio: None,
                rows_percent: rows.map(|row| row.percent).sum(),
                why_not: None,
            };
            match mechanism.without(self.flags) {
                Err(why) => one.why_not = Some(why),
                Ok(without) => {
                    let pairs = pairs(self.flags.ablation, |first| {
                        let flags = if first { self.flags } else { &without };
                        self.run(flags, (workload, threads), None)
                    })?;
                    let of = |value: &dyn Fn(&(Outcome, Outcome)) -> f64| {
                        Some(median(pairs.iter().map(value).collect()))
                    };
                    one.cpu_us_with = of(&|pair| pair.0.cpu_us);
                    one.cpu_us_without = of(&|pair| pair.1.cpu_us);
                    one.throughput_ratio = of(&|pair| pair.1.throughput / pair.0.throughput);
                }
            }
            found.push(one);
        }
        Ok(found)
    }

    /// Pairs of runs with and without sampling, in turns.
    fn overhead(&self, workload: ProfiledWorkload, threads: u64) -> Result<Overhead, Exit> {
        let pairs = pairs(self.flags.overhead, |first| {
            let profiler = first.then(|| Arc::new(Profiler::default()));
            self.run(self.flags, (workload, threads), profiler)
        })?;
        let cpu_us: Vec<_> = pairs.iter().map(|pair| (pair.0.cpu_us, pair.1.cpu_us)).collect();
        let median_percent =
            median(cpu_us.iter().map(|(with, without)| excess(*with, *without)).collect());
        Ok(Overhead {
            workload: workload.name(),
            threads: threads as usize,
            cpu_us,
            median_percent,
        })
    }
}

/// Calls `run(true)` and `run(false)` `count` times each; every second pair begins with the
/// other one.
fn pairs(
    count: u64,
    run: impl Fn(bool) -> Result<Outcome, Exit>,
) -> Result<Vec<(Outcome, Outcome)>, Exit> {
    (0..count)
        .map(|turn| match turn % 2 {
            0 => Ok((run(true)?, run(false)?)),
            _ => {
                let second = run(false)?;
                Ok((run(true)?, second))
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::exit::Exit;

    fn flags(words: &str) -> Result<BreakdownFlags, Exit> {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            flags: BreakdownFlags,
        }
        let words = ["breakdown"].into_iter().chain(words.split_whitespace());
        let line = <Line as clap::Parser>::try_parse_from(words);
        let flags = line.map_err(|error| Exit::Usage(error.to_string()))?.flags;
        flags.check()?;
        Ok(flags)
    }

    #[test]
    fn a_mechanism_that_is_left_out_changes_one_flag() {
        let flags = flags("tpcc --threads 2,4").unwrap();
        assert_eq!(flags.thread_counts(), [2, 4]);
        let line = |flags: &BreakdownFlags| {
            let words = flags.command(ProfiledWorkload::Tpcc, 2, None);
            words.into_iter().map(|word| word.into_string().unwrap()).collect::<Vec<_>>()
        };
        for mechanism in Mechanism::ALL {
            let Ok(without) = mechanism.without(&flags) else {
                assert!(matches!(mechanism, Mechanism::Mvcc | Mechanism::Latching));
                continue;
            };
            let (with, without) = (line(&flags), line(&without));
            let changed = with.iter().zip(&without).filter(|(with, without)| with != without);
            assert_eq!(changed.count(), 1, "{mechanism:?}: {without:?}");
        }
    }

    #[test]
    fn flags_that_do_not_go_together_are_refused() {
        for (words, part) in [
            ("--io memory --db x", "stores nothing"),
            ("nonsense", "ycsb-read"),
            ("--threads 0", "1..=1024"),
            ("--ablation 100", "99"),
        ] {
            match flags(words) {
                Err(Exit::Usage(sentence)) => assert!(sentence.contains(part), "{sentence}"),
                other => panic!("{words}: {other:?}"),
            }
        }
    }

    #[test]
    fn every_second_pair_begins_with_the_other_one() {
        let flags = flags("").unwrap();
        let order = std::cell::RefCell::new(Vec::new());
        let pairs = pairs(3, |first| {
            order.borrow_mut().push(first);
            let outcome = Outcome {
                seconds: 1.0,
                operations: 1,
                throughput: f64::from(u8::from(first)),
                cpu_us: 1.0,
            };
            Ok(outcome)
        });
        assert_eq!(*order.borrow(), [true, false, false, true, true, false]);
        for (with, without) in pairs.unwrap() {
            assert_eq!((with.throughput, without.throughput), (1.0, 0.0));
        }
        assert_eq!(flags.workloads().len(), 3);
    }
}
