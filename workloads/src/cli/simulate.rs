//! `wattle simulate`: replays page traces through replacement policies.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use super::common::check_outputs;
use super::exit::{Exit, failed, print};
use super::progress::Progress;
use crate::driver::control::Interrupt;
use crate::machine::Machine;
use crate::report::figures::plural;
use crate::simulate::ace;
use crate::simulate::bound::{self, Bound};
use crate::simulate::experiment::{CacheSize, Run, combine, in_parallel, run_all};
use crate::simulate::formats::Format;
use crate::simulate::generate::KINDS;
use crate::simulate::io_trace::IoTrace;
use crate::simulate::policies::ALL;
use crate::simulate::publication::{self, Origin};
use crate::simulate::registry::Spec;
use crate::simulate::repeat::summarise;
use crate::simulate::replay::{Counts, Device};
use crate::simulate::source;
use crate::simulate::statistics::{self, Statistics};
use crate::simulate::study;
use crate::simulate::table::{self, Resistance, Row};
use crate::simulate::trace::Trace;

const MAX_THREADS: u64 = 1024;
const MAX_CONCURRENCY: u64 = 1 << 20;

/// Flags of `simulate`.
#[derive(Args, Debug)]
pub struct SimulateFlags {
    /// Trace files, also as .gz or .zst; gen:NAME for a synthetic one (--list-policies names
    /// them).
    #[arg(long, value_name = "FILE", num_args = 1.., required_unless_present = "list_policies")]
    pub trace: Vec<PathBuf>,

    /// Format of the trace files: page (`page,R` or `page,W` per line, perhaps with
    /// `,inner|leaf,level,tree`), arc, oracleGeneral, fio,
    /// msr, spc, csv, blkparse or plain; auto recognises each file.
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = TraceFormat::parse)]
    pub trace_format: TraceFormat,

    /// Policies with their parameters as NAME:key=value,key=value; all for all policies, live(NAME)
    /// for one of the engine, studies for WATT with the parameters that its paper varies.
    #[arg(long, value_name = "NAME", num_args = 1.., default_value = "watt")]
    pub policy: Vec<String>,

    /// Cache sizes in pages or in percent of the different pages of a trace (then at least 10).
    #[arg(long, value_name = "SIZE", num_args = 1.., value_delimiter = ',',
        default_value = "1%,5%,10%,20%,50%",
          value_parser = CacheSize::parse)]
    pub cache: Vec<CacheSize>,

    /// Adds the misses relative to those of this policy, which is replayed as well.
    #[arg(long, value_name = "NAME")]
    pub normalise: Option<String>,

    /// Share of the pages that cannot leave, as if they were latched or pinned: drawn again after
    /// as many accesses as the cache has pages.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    pub pinned: f64,

    /// Adds a lower bound of the cost of any policy for each trace and cache; exact or nearly exact
    /// if accesses times pages are at most 4 million.
    #[arg(long)]
    pub bound: bool,

    /// Adds the hit rate lost to a scan as long as the cache, with the smallest cache of each
    /// trace. --report does so as well.
    #[arg(long)]
    pub scan_test: bool,

    /// Prints the statistics of the traces (WATT, Table 2) and replays nothing.
    #[arg(long)]
    pub statistics: bool,

    /// Time to read a page, in microseconds.
    #[arg(long, value_name = "US", default_value_t = 100.0, value_parser = cost)]
    pub read_cost: f64,

    /// Time to write a page, in microseconds.
    #[arg(long, value_name = "US", default_value_t = 800.0, value_parser = cost)]
    pub write_cost: f64,

    /// Time to write a page right after its predecessor, in microseconds, for the column
    /// combined_seconds. Default: the write cost.
    #[arg(long, value_name = "US", value_parser = cost)]
    pub sequential_write_cost: Option<f64>,

    /// Writes what reaches the device as a fio iolog (version 2), for one trace, policy and cache.
    #[arg(long, value_name = "FILE")]
    pub io_trace: Option<PathBuf>,

    /// Time of a write divided by the time of a read on the emulated device. Default: write cost /
    /// read cost.
    #[arg(long, value_name = "A", value_parser = cost)]
    pub asymmetry: Option<f64>,

    /// Pages that the emulated device reads or writes in the time of one.
    #[arg(long, value_name = "K", default_value_t = 8,
        value_parser = clap::value_parser!(u64).range(1..=MAX_CONCURRENCY))]
    pub concurrency: u64,

    /// Replays in parallel, 1 to 1024. Default: all cores.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_THREADS))]
    pub threads: Option<u64>,

    /// Seed of all random numbers, those of synthetic traces and of the scan test included.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Replays with as many seeds, from --seed on: means and their 95 % confidence intervals.
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub repeat: u64,

    /// Format of the result.
    #[arg(long, value_enum, default_value_t = TableFormat::Text)]
    pub format: TableFormat,

    /// HTML file with miss-ratio curves, mean relative misses, read/write trade-off, costs, a scan
    /// test, and parameter studies: --policy all adds those of WATT with the middle cache size.
    /// Error bars need --repeat.
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,

    /// Folder for each chart of the report as an SVG file, each table as CSV, and index.csv with
    /// their captions; files of the same names are replaced.
    #[arg(long, value_name = "DIR")]
    pub figures: Option<PathBuf>,

    /// Names all policies with their parameters and source papers.
    #[arg(long)]
    pub list_policies: bool,
}

/// The format of the results of replays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TableFormat {
    /// Tables to read.
    Text,
    /// One JSON object.
    Json,
    /// One line for each trace, cache and policy.
    Csv,
}

/// The format of trace files; `None` is the one that is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceFormat(pub Option<Format>);

impl TraceFormat {
    fn parse(name: &str) -> Result<Self, String> {
        Format::parse(name).map(Self)
    }
}

fn cost(text: &str) -> Result<f64, String> {
    let refused = || format!("\"{text}\" is not a number above 0");
    text.parse().ok().filter(|cost| *cost > 0.0 && *cost <= 1e12).ok_or_else(refused)
}

fn share(text: &str) -> Result<f64, String> {
    let refused = || format!("\"{text}\" is not a share from 0 to 0.9");
    text.parse().ok().filter(|share| (0.0..=0.9).contains(share)).ok_or_else(refused)
}

impl SimulateFlags {
    /// Refuses a report that cannot be written, or that would overwrite a trace, before the work.
    pub fn check(&self) -> Result<(), Exit> {
        let outputs = [("--report", &self.report), ("--io-trace", &self.io_trace)];
        let traces: Vec<_> = self.trace.iter().map(|path| ("--trace", path.as_path())).collect();
        for (flag, path) in outputs {
            let Some(path) = path.as_deref() else { continue };
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            if folder.is_some_and(|folder| !folder.is_dir()) || path.is_dir() {
                return Err(Exit::Usage(format!(
                    "{flag} {}: there is no folder for this file",
                    path.display()
                )));
            }
        }
        if let Some(folder) = self.figures.as_deref()
            && (folder.exists() && !folder.is_dir())
        {
            let shown = folder.display();
            return Err(Exit::Usage(format!("--figures {shown} is a file; give a folder")));
        }
        let given = outputs.iter().filter_map(|(flag, path)| Some((*flag, path.as_deref()?)));
        let given: Vec<_> = given.collect();
        match given[..] {
            [] => Ok(()),
            [one] => check_outputs([one], &traces, None),
            [one, other, ..] => check_outputs([one, other], &traces, None),
        }
    }

    fn device(&self) -> Device {
        Device {
            read_us: self.read_cost,
            write_us: self.write_cost,
            sequential_write_us: self.sequential_write_cost.unwrap_or(self.write_cost),
            asymmetry: self.asymmetry.unwrap_or(self.write_cost / self.read_cost),
            concurrency: self.concurrency as usize,
        }
    }

    /// Whether the results are also drawn.
    fn draws(&self) -> bool {
        self.report.is_some() || self.figures.is_some()
    }

    fn asks_for(&self, word: &str) -> bool {
        self.policy.iter().any(|text| text == word)
    }

    /// The policies; the one to compare with is at the end if it is not among them. Also the
    /// position of the first policy that only parameter studies use.
    fn specs(&self) -> Result<(Vec<Spec>, usize), Exit> {
        let mut specs: Vec<Spec> = Vec::new();
        let add = |specs: &mut Vec<Spec>, text: &str| -> Result<(), Exit> {
            let mut spec = Spec::parse(text).map_err(Exit::Usage)?;
            spec.pinned = self.pinned;
            if specs.iter().all(|other| other.text != spec.text) {
                specs.push(spec);
            }
            Ok(())
        };
        for text in &self.policy {
            match &**text {
                "all" => ALL.iter().try_for_each(|entry| add(&mut specs, entry.name))?,
                "studies" => add(&mut specs, "watt")?,
                text => add(&mut specs, text)?,
            }
        }
        if let Some(text) = &self.normalise {
            add(&mut specs, text)?;
        }
        let policies = specs.len();
        if self.asks_for("studies") || self.asks_for("all") && self.draws() {
            study::studied().iter().try_for_each(|text| add(&mut specs, text))?;
        }
        Ok((specs, policies))
    }

    fn facts(&self, device: &Device, command: String) -> Vec<(&'static str, String)> {
        vec![
            ("command", command),
            ("costs", format!("read {} us, write {} us", device.read_us, device.write_us)),
            (
                "emulated device",
                format!("asymmetry {}, concurrency {}", device.asymmetry, device.concurrency),
            ),
            ("seed", self.seed.to_string()),
            ("replays", self.repeat.to_string()),
            ("pinned pages", format!("{} %", 100.0 * self.pinned)),
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("machine", publication::machine(&Machine::this())),
        ]
    }

    fn settings(&self, device: &Device, threads: usize) -> Map<String, Value> {
        let files = self.trace.iter().map(|path| path.display().to_string());
        let settings = json!({
            "trace": files.collect::<Vec<_>>(),
            "policy": self.policy,
            "normalise": self.normalise,
            "bound": self.bound,
            "scan_test": self.scan_test,
            "read_cost": device.read_us,
            "write_cost": device.write_us,
            "sequential_write_cost": device.sequential_write_us,
            "asymmetry": device.asymmetry,
            "concurrency": device.concurrency,
            "threads": threads,
            "seed": self.seed,
            "repeat": self.repeat,
            "pinned": self.pinned,
        });
        settings.as_object().cloned().expect("the settings are an object")
    }
}

/// Replays traces and prints the result.
pub fn simulate(flags: &SimulateFlags, command: String, interrupt: &Interrupt) -> Result<(), Exit> {
    if flags.list_policies {
        return print(&list_policies());
    }
    let ((specs, policies), device) = (flags.specs()?, flags.device());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = flags.threads.map_or(cores, |threads| threads as usize);
    let go_on = || !interrupt.requested();
    let traces = read_all(flags, threads)?;
    if flags.statistics {
        let all = in_parallel(&traces, threads, &go_on, &Statistics::of);
        let all: Vec<Statistics> = all.into_iter().flatten().collect();
        print(&match flags.format {
            TableFormat::Text => statistics::text(&all),
            TableFormat::Csv => statistics::csv(&all),
            TableFormat::Json => format!("{:#}\n", statistics::json(&all)),
        })?;
        return match all.len() == traces.len() {
            true => Ok(()),
            false => Err(Exit::Interrupted("interrupted: traces are missing".to_owned())),
        };
    }
    let mut runs = combine(&traces, &flags.cache, &specs, flags.seed).map_err(Exit::Usage)?;
    let studied = |run: &Run| specs[policies..].iter().any(|spec| std::ptr::eq(spec, run.spec));
    if !flags.asks_for("studies") {
        // Policies of parameter studies are replayed with one cache only.
        let middle = middle_sizes(&runs);
        runs.retain(|run| !studied(run) || middle.contains(&task(run)));
    }
    write_io_trace(flags, &runs, device)?;
    let results = replay_all(flags, &runs, threads, device, &go_on);
    let bounds = if flags.bound { bounds(&runs, threads, &device, &go_on) } else { Vec::new() };
    let scans = match flags.scan_test || flags.draws() {
        true => scans(&runs, &studied, threads, device, &go_on),
        false => Vec::new(),
    };
    let done = runs.iter().enumerate().zip(&results).filter_map(|((index, run), samples)| {
        let (counts, spread) = (!samples.is_empty()).then(|| summarise(samples, &device))?;
        Some(Row {
            trace: run.trace.name().to_owned(),
            pages: run.trace.pages(),
            cache_pages: run.cache_pages,
            policy: run.spec.text.clone(),
            counts,
            relative: None,
            complexity: run.spec.complexity(),
            bound: bounds.iter().find(|(of, _)| *of == task(run)).map(|(_, bound)| *bound),
            resistance: scans.iter().find(|(of, _)| *of == index).map(|(_, scan)| *scan),
            studied: studied(run),
            spread,
        })
    });
    let mut rows: Vec<Row> = done.collect();
    if let Some(policy) = &flags.normalise {
        table::normalise(&mut rows, policy);
    }
    let interrupted = interrupt.requested();
    if flags.draws() {
        write_report(flags, &rows, &device, command)?;
    }
    print(&match flags.format {
        TableFormat::Text => table::text(&rows, &device, flags.normalise.as_deref()),
        TableFormat::Csv => table::csv(&rows, &device, flags.normalise.is_some()),
        TableFormat::Json => {
            let settings = flags.settings(&device, threads);
            format!("{:#}\n", table::json(&rows, &device, settings, interrupted))
        }
    })?;
    if interrupted {
        let all = plural(runs.len() as u64, "replay");
        return Err(Exit::Interrupted(format!("interrupted: finished {} of {all}", rows.len())));
    }
    Ok(())
}

/// Writes what `--report` and `--figures` ask for.
fn write_report(
    flags: &SimulateFlags,
    rows: &[Row],
    device: &Device,
    command: String,
) -> Result<(), Exit> {
    let facts = flags.facts(device, command);
    let base = flags.normalise.as_deref().unwrap_or("watt");
    let origin = Origin {
        seed: flags.seed,
        replays: flags.repeat,
        pinned: flags.pinned,
        machine: Machine::this(),
    };
    let document = publication::report(&facts, rows, device, base, &origin);
    if let Some(folder) = &flags.figures {
        document
            .write_files(folder)
            .map_err(failed(format!("writing --figures {}", folder.display())))?;
    }
    if let Some(path) = &flags.report {
        std::fs::write(path, document.html())
            .map_err(failed(format!("writing --report {}", path.display())))?;
    }
    Ok(())
}

/// Replays the only run once more into `--io-trace`.
fn write_io_trace(flags: &SimulateFlags, runs: &[Run], device: Device) -> Result<(), Exit> {
    let Some(path) = &flags.io_trace else { return Ok(()) };
    let [run] = runs else {
        return Err(Exit::Usage(format!(
            "--io-trace takes the requests of one replay, not of {}: give one trace, one policy \
             and one cache size",
            runs.len()
        )));
    };
    let broken = || failed(format!("writing --io-trace {}", path.display()));
    let device_name = format!("{}.pages", run.trace.name());
    let mut log = IoTrace::create(path, &device_name).map_err(broken())?;
    run.spec.run_into(run.trace, run.cache_pages, run.seed, device, &mut log);
    log.finish().map(drop).map_err(broken())
}

/// The counts of each run, one for each seed that was replayed to the end.
fn replay_all(
    flags: &SimulateFlags,
    runs: &[Run],
    threads: usize,
    device: Device,
    go_on: &(impl Fn() -> bool + Sync),
) -> Vec<Vec<Counts>> {
    let seeded = |seed| runs.iter().map(move |run| Run { seed, ..*run });
    let seeds = (0..flags.repeat).map(|index| flags.seed.wrapping_add(index));
    let all: Vec<Run> = seeds.flat_map(seeded).collect();
    let progress = Progress::new("replaying", all.iter().map(|run| run.trace.len() as u64).sum());
    let results = run_all(&all, threads, device, &|accesses| {
        progress.advance(accesses as u64);
        go_on()
    });
    progress.finish();
    let of_run = |index| results.iter().skip(index).step_by(runs.len()).filter_map(|one| *one);
    (0..runs.len()).map(|index| of_run(index).collect()).collect()
}

/// All traces; those with the name of an earlier one get a number.
fn read_all(flags: &SimulateFlags, threads: usize) -> Result<Vec<Trace>, Exit> {
    let read = in_parallel(&flags.trace, threads, &|| true, &|path: &PathBuf| {
        source::open(path, flags.trace_format.0, flags.seed)
    });
    let mut traces: Vec<Trace> =
        read.into_iter().flatten().collect::<Result<_, _>>().map_err(Exit::Usage)?;
    let names: Vec<String> = traces.iter().map(|trace| trace.name().to_owned()).collect();
    for (index, trace) in traces.iter_mut().enumerate() {
        let before = names[..index].iter().filter(|name| *name == trace.name()).count();
        if before > 0 {
            trace.rename(format!("{} ({})", names[index], before + 1));
        }
    }
    Ok(traces)
}

/// A trace, identified by its address, and a cache size.
type Task = (*const Trace, usize);

fn task(run: &Run) -> Task {
    (std::ptr::from_ref(run.trace), run.cache_pages)
}

/// The middle one of the cache sizes of each trace.
fn middle_sizes(runs: &[Run]) -> Vec<Task> {
    let mut tasks: Vec<Task> = runs.iter().map(task).collect();
    tasks.sort_unstable();
    tasks.dedup();
    tasks.chunk_by(|a, b| a.0 == b.0).map(|sizes| sizes[(sizes.len() - 1) / 2]).collect()
}

/// The least cost of each trace and cache.
fn bounds(
    runs: &[Run],
    threads: usize,
    device: &Device,
    go_on: &(impl Fn() -> bool + Sync),
) -> Vec<(Task, Bound)> {
    // Runs of one trace and cache are consecutive.
    let mut firsts: Vec<&Run> = runs.iter().collect();
    firsts.dedup_by_key(|run| task(run));
    let progress = Progress::new("bounding", firsts.iter().map(|run| run.trace.len() as u64).sum());
    let found = in_parallel(&firsts, threads, go_on, &|run: &&Run| {
        let bound = bound::bound(run.trace, run.cache_pages, device);
        progress.advance(run.trace.len() as u64);
        bound
    });
    progress.finish();
    firsts.into_iter().zip(found).filter_map(|(run, bound)| Some((task(run), bound?))).collect()
}

/// The scan test of every policy on every trace, with the smallest cache that was replayed, by the
/// number of the run.
fn scans(
    runs: &[Run],
    studied: &impl Fn(&Run) -> bool,
    threads: usize,
    device: Device,
    go_on: &(impl Fn() -> bool + Sync),
) -> Vec<(usize, Resistance)> {
    let smallest = |run: &Run| {
        let same = runs.iter().filter(|other| std::ptr::eq(other.trace, run.trace));
        same.map(|other| other.cache_pages).min() == Some(run.cache_pages)
    };
    let tested: Vec<usize> =
        (0..runs.len()).filter(|run| smallest(&runs[*run]) && !studied(&runs[*run])).collect();
    let progress = Progress::new("scan tests", tested.len() as u64);
    let found = in_parallel(&tested, threads, go_on, &|index: &usize| {
        let run = &runs[*index];
        let scan = study::resistance(run.trace, run.cache_pages, run.spec, device, run.seed);
        progress.advance(1);
        scan
    });
    progress.finish();
    tested.into_iter().zip(found).filter_map(|(run, scan)| Some((run, scan.flatten()?))).collect()
}

/// All policies with their parameters, sources and costs.
fn list_policies() -> String {
    let mut text = String::new();
    for entry in ALL {
        text += &format!("{:<12} {}; {}\n", entry.name, entry.source, entry.cost);
        for parameter in entry.parameters {
            text += &format!(
                "             {}={}  {} ({})\n",
                parameter.name,
                parameter.default,
                parameter.about,
                parameter.takes.describe()
            );
        }
    }
    text += "\nace(POLICY):nw=8,ne=1,prefetch=both puts ACE around a policy (Papon, Athanassoulis, \
             ICDE 2023):\npages written at a time, pages evicted at a time (1 is without \
             prefetching), and the prefetched\npages (both, sequential or history). \
             It writes few pages at once with\n";
    for (entry, why) in ALL.iter().filter_map(|entry| Some((entry, ace::limit(entry.name)?))) {
        text += &format!("{:<12} {why}\n", entry.name);
    }
    text.push('\n');
    text += "live(NAME:key=value,..) runs a policy of the engine (wattle --list-policies)\n\n";
    text += "synthetic traces, as --trace gen:NAME:seed=1,accesses=N,pages=N,writes=SHARE\n";
    for kind in KINDS {
        text += &format!("{:<12} {}\n", kind.name, kind.source);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_policies_are_listed_with_their_parameters() {
        let text = list_policies();
        for entry in ALL {
            assert!(text.contains(&format!("{:<12} {}", entry.name, entry.source)));
        }
        assert!(text.contains("ref_at_load=1"));
    }
}
