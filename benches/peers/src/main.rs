//! Wattle beside other embedded engines: the same rows, data, durability and memory, in one run.
//! The processes of the engines alternate, and the table shows medians. See README.md.

mod data;
mod engines;
mod machine;
mod rows;
mod run;
mod store;
mod table;
mod workloads;

use clap::Parser;
use machine::MemoryGroup;
use rows::{PARTS, Part};
use run::Case;
use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};
use store::Result;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Bytes of the cache of each engine, where the data fit.
const CACHE_BYTES: u64 = 2 << 30;

/// Measures Wattle and other embedded engines, and prints a table in Markdown.
#[derive(Parser)]
struct Arguments {
    /// A tenth of the records, and less time: at most ten minutes in all.
    #[arg(long)]
    quick: bool,
    /// Rows to measure (default: all), by name.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Engines to measure (default: all).
    #[arg(long, value_delimiter = ',')]
    engines: Vec<String>,
    /// Where the stores are made, and removed at the end.
    #[arg(long, default_value = "target/peers")]
    dir: PathBuf,
    /// Repetitions (default: 3 with --quick, else 5).
    #[arg(long)]
    repetitions: Option<u64>,
    /// Measures YCSB and TPC-C instead, by the drivers of the `wattle` binary, on the engines that
    /// have transactions.
    #[arg(long)]
    workloads: bool,
    /// Runs `ycsb`, `tpcc`, `tpcb` or `tatp` with the flags of the `wattle` binary on one engine.
    #[arg(
        long,
        num_args = 2..,
        allow_hyphen_values = true,
        value_names = ["ENGINE", "WORKLOAD"]
    )]
    on: Vec<OsString>,
    /// Measures one part with one engine; the driver starts itself so.
    #[arg(long, hide = true, num_args = 3, value_names = ["PART", "ENGINE", "SEED"])]
    child: Vec<String>,
}

impl Arguments {
    fn repetitions(&self) -> u64 {
        self.repetitions.unwrap_or(if self.quick { 3 } else { 5 }).max(1)
    }

    /// The case of a process.
    fn case(&self, part: Option<&Part>, engine: &str, seed: u64) -> Case {
        let (records, seconds) = if self.quick { (100_000, 0.4) } else { (1_200_000, 3.0) };
        let larger = part.is_some_and(|part| part.larger);
        let cache_bytes = if larger { rows::small_cache(records, 1000) } else { CACHE_BYTES };
        let dir = self.dir.join(engine);
        let engine = engine.to_string();
        Case { engine, dir, records, value_bytes: 1000, cache_bytes, larger, seconds, seed }
    }

    /// Longest time of one process.
    fn limit(&self) -> Duration {
        Duration::from_secs(if self.quick { 30 } else { 600 })
    }

    /// Refuses names of rows and engines that do not exist.
    fn check(&self) -> Result<()> {
        let rows: Vec<_> = PARTS.iter().flat_map(|part| part.rows).map(|row| row.name).collect();
        for (names, known, kind) in
            [(&self.only, &rows[..], "row"), (&self.engines, engines::ENGINES, "engine")]
        {
            check_names(names, known, kind)?;
        }
        Ok(())
    }

    fn wants(&self, part: &Part) -> bool {
        self.only.is_empty() || part.rows.iter().any(|row| self.only.iter().any(|o| o == row.name))
    }
}

/// Refuses names that are not known.
fn check_names(names: &[String], known: &[&str], kind: &str) -> Result<()> {
    match names.iter().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(format!("no {kind} {name}; there are {}", known.join(", ")).into()),
        None => Ok(()),
    }
}

/// The middle one, or the mean of the two in the middle.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let (low, high) = ((figures.len() - 1) / 2, figures.len() / 2);
    f64::midpoint(figures[low], figures[high])
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match &arguments.child[..] {
        [part, engine, seed] => measure(&arguments, part, engine, seed),
        _ => match &arguments.on[..] {
            [engine, words @ ..] => workloads::child(&engine.to_string_lossy(), words),
            [] if arguments.workloads => workloads::drive(
                arguments.quick,
                arguments.repetitions,
                &arguments.dir,
                (&arguments.only, &arguments.engines),
            ),
            [] => drive(&arguments),
        },
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A process of the driver: prints a figure for each row of its part.
fn measure(arguments: &Arguments, part: &str, engine: &str, seed: &str) -> Result<ExitCode> {
    let seed = seed.parse()?;
    if part == "crash" {
        rows::crash(&arguments.case(None, engine, seed))?;
        return Ok(ExitCode::FAILURE);
    }
    let part = PARTS.iter().find(|one| one.name == part).ok_or("no such part")?;
    for figure in (part.run)(&arguments.case(Some(part), engine, seed))? {
        println!("{figure}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Figures of all repetitions, by row and engine. Failed ones are left out.
type Figures = BTreeMap<(&'static str, &'static str), Vec<f64>>;

fn drive(arguments: &Arguments) -> Result<ExitCode> {
    arguments.check()?;
    std::fs::create_dir_all(&arguments.dir)?;
    let chosen = |name: &&&str| {
        arguments.engines.is_empty() || arguments.engines.iter().any(|engine| engine == **name)
    };
    let engines: Vec<_> = engines::ENGINES.iter().filter(chosen).copied().collect();
    let mut figures = Figures::new();
    let mut failures = 0;
    let mut unlimited = None;
    let started = Instant::now();
    for repetition in 1..=arguments.repetitions() {
        // The first part makes the store for the others.
        for part in PARTS.iter().filter(|part| part.name == "load" || arguments.wants(part)) {
            for engine in engines.iter().filter(|name| !part.files || **name != "btreemap") {
                match child(arguments, part, engine, repetition, &mut unlimited) {
                    Ok(found) => {
                        for (row, figure) in part.rows.iter().zip(found) {
                            figures.entry((row.name, *engine)).or_default().push(figure);
                        }
                    }
                    Err(error) => {
                        failures += 1;
                        eprintln!("{}: {engine}: {error}", part.name);
                    }
                }
            }
            let seconds = started.elapsed().as_secs();
            eprintln!("{seconds} s: repetition {repetition}, {}", part.name);
        }
    }
    std::fs::remove_dir_all(&arguments.dir)?;
    std::fs::create_dir_all(&arguments.dir)?;
    table::print(arguments, &engines, &figures, unlimited.as_deref());
    Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs a part with an engine in a process of its own, in a limited group where the data are larger
/// than the cache and the system allows it; `unlimited` gets the reason if it does not.
fn child(
    arguments: &Arguments,
    part: &Part,
    engine: &str,
    repetition: u64,
    unlimited: &mut Option<String>,
) -> Result<Vec<f64>> {
    let case = arguments.case(Some(part), engine, repetition);
    let group = match part.larger.then(|| MemoryGroup::new(case.cache_bytes)) {
        Some(Ok(group)) => Some(group),
        Some(Err(reason)) => {
            *unlimited = Some(reason);
            None
        }
        None => None,
    };
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments.quick.then_some("--quick")).arg("--dir").arg(&arguments.dir);
    command.args(["--child", part.name, engine, &repetition.to_string()]);
    let process = command.stdout(Stdio::piped()).spawn()?;
    if let Some(group) = &group {
        group.add(process.id())?;
    }
    let output = run::ended(process, arguments.limit())?;
    if !output.status.success() {
        return Err(format!("ended with {}", output.status).into());
    }
    let text = String::from_utf8(output.stdout)?;
    let found = text.lines().map(str::parse).collect::<std::result::Result<Vec<f64>, _>>()?;
    if found.len() != part.rows.len() {
        return Err(format!("{} figures for {} rows", found.len(), part.rows.len()).into());
    }
    Ok(found)
}

/// The directory of the stores, for the description of its file system.
fn stores(arguments: &Arguments) -> &Path {
    &arguments.dir
}
