//! YCSB and TPC-C, by the drivers of the `wattle` binary, on Wattle and on the engines that have
//! transactions. Each cell of the table is a run of its own process, which loads its store.

mod fjall;
mod lmdb;
mod neutral;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;

use crate::{check_names, run, store::Result, table::short};
use neutral::{Peer, PeerBackend};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::Path,
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};
use wattle_workloads::{
    cli::{self, record::Recording},
    driver::control::Interrupt,
};

/// Engines of this table.
pub const ENGINES: &[&str] = &[
    "wattle",
    "redb",
    "fjall",
    "lmdb",
    #[cfg(feature = "rocksdb")]
    "rocksdb",
];

/// A row: its name and what it runs.
struct Row {
    name: &'static str,
    title: &'static str,
    command: &'static str,
}

const fn row(name: &'static str, title: &'static str, command: &'static str) -> Row {
    Row { name, title, command }
}

/// Records, warehouses, seconds and the pool are in the flags of all rows.
const ROWS: &[Row] = &[
    row("ycsb-a", "half reads, half updates", "ycsb --workload a --durability none"),
    row("ycsb-b", "95 % reads, 5 % updates", "ycsb --workload b --durability none"),
    row("ycsb-c", "reads", "ycsb --workload c --durability none"),
    row("ycsb-d", "95 % reads of new records, 5 % inserts", "ycsb --workload d --durability none"),
    row("ycsb-e", "95 % scans, 5 % inserts", "ycsb --workload e --durability none"),
    row("ycsb-f", "half reads, half read-modify-writes", "ycsb --workload f --durability none"),
    row("ycsb-a-sync", "A, durable commits", "ycsb --workload a --durability sync"),
    row("tpcc", "TPC-C, transactions", "tpcc --check --durability none"),
    row("tpcc-sync", "TPC-C, durable commits", "tpcc --check --durability sync"),
];

/// Sizes of the runs.
struct Sizes {
    records: u64,
    warehouses: u64,
    warm_up: &'static str,
    duration: &'static str,
    repetitions: u64,
}

const QUICK: Sizes =
    Sizes { records: 100_000, warehouses: 1, warm_up: "500ms", duration: "2s", repetitions: 1 };
const FULL: Sizes =
    Sizes { records: 1_000_000, warehouses: 4, warm_up: "3s", duration: "10s", repetitions: 3 };

/// Longest time of a process.
const LIMIT: Duration = Duration::from_secs(600);

/// The command line of a cell, without the name of the program.
fn command(row: &Row, sizes: &Sizes, store: &Path) -> Vec<OsString> {
    let size = match row.command.starts_with("tpcc") {
        true => format!("--warehouses {}", sizes.warehouses),
        false => format!("--records {}", sizes.records),
    };
    let line = format!(
        "{} {size} --pool 2GiB --threads 2 --warmup {} --duration {} --format json",
        row.command, sizes.warm_up, sizes.duration
    );
    let mut words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
    words.extend(["--db".into(), store.into()]);
    words
}

/// Runs a workload on an engine and prints its report as JSON: a process of [`drive`].
pub fn child(engine: &str, words: &[OsString]) -> Result<ExitCode> {
    let arguments: Vec<_> = std::iter::once("wattle".into()).chain(words.iter().cloned()).collect();
    match engine {
        "wattle" => Ok(cli::main(arguments)),
        "redb" => run_on::<redb::Redb>(&arguments),
        "fjall" => run_on::<fjall::Fjall>(&arguments),
        "lmdb" => run_on::<lmdb::Lmdb>(&arguments),
        #[cfg(feature = "rocksdb")]
        "rocksdb" => run_on::<rocksdb::RocksDb>(&arguments),
        _ => Err(format!("no engine {engine}; there are {}", ENGINES.join(", ")).into()),
    }
}

fn run_on<P: Peer>(arguments: &[OsString]) -> Result<ExitCode> {
    let command = match cli::parse(arguments) {
        Ok(Some(cli::Command::Workload(command))) => command,
        Ok(_) => return Err("only ycsb, tpcc, tpcb and tatp run on other engines".into()),
        Err(exit) => return Ok(exit.report()),
    };
    let interrupt = Interrupt::of_process()?;
    let (backend, out) = (PeerBackend::<P>::default(), &mut std::io::stdout().lock());
    let line = format!("on {}", P::NAME);
    let done = cli::run_workload(&command, line, &backend, &Recording::none(), &interrupt, out);
    Ok(done.map_or_else(|exit| exit.report(), |()| ExitCode::SUCCESS))
}

/// Operations or transactions per second, of a cell in a process of its own.
fn measure(engine: &str, words: &[OsString]) -> Result<f64> {
    let mut process = Command::new(std::env::current_exe()?);
    process.arg("--on").arg(engine).args(words);
    let process = process.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let output = run::ended(process, LIMIT)?;
    if !output.status.success() {
        let messages = String::from_utf8_lossy(&output.stderr);
        let last = messages.lines().last().unwrap_or_default();
        return Err(format!("ended with {}: {last}", output.status).into());
    }
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let throughput = report.pointer("/run/throughput").and_then(serde_json::Value::as_f64);
    Ok(throughput.ok_or("the report has no throughput")?)
}

/// Measures the rows in `only`, or all, with the engines named, or all, and prints the table.
pub fn drive(
    quick: bool,
    repetitions: Option<u64>,
    dir: &Path,
    (only, engines): (&[String], &[String]),
) -> Result<ExitCode> {
    let sizes = if quick { QUICK } else { FULL };
    let repetitions = repetitions.unwrap_or(sizes.repetitions).max(1);
    let wanted = |names: &[String], name: &str| names.is_empty() || names.iter().any(|n| n == name);
    let rows: Vec<_> = ROWS.iter().filter(|row| wanted(only, row.name)).collect();
    let chosen: Vec<_> = ENGINES.iter().filter(|name| wanted(engines, name)).copied().collect();
    let names: Vec<_> = ROWS.iter().map(|row| row.name).collect();
    for (given, known, kind) in [(only, &names[..], "row"), (engines, ENGINES, "engine")] {
        check_names(given, known, kind)?;
    }
    std::fs::create_dir_all(dir)?;
    let mut found: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
    let (mut failures, started) = (0, Instant::now());
    for repetition in 1..=repetitions {
        for row in &rows {
            for engine in &chosen {
                let store = tempfile::tempdir_in(dir)?;
                let words = command(row, &sizes, &store.path().join("store"));
                match measure(engine, &words) {
                    Ok(figure) => found.entry((row.name, engine)).or_default().push(figure),
                    Err(error) => {
                        failures += 1;
                        eprintln!("{}: {engine}: {error}", row.name);
                    }
                }
            }
            let seconds = started.elapsed().as_secs();
            eprintln!("{seconds} s: repetition {repetition}, {}", row.name);
        }
    }
    println!(
        "{} records of 1 KB, or {} TPC-C warehouse{}, pool or cache of 2 GiB, 2 threads, {} after \
         {}, medians of {repetitions}; operations or transactions per second.\n",
        sizes.records,
        sizes.warehouses,
        if sizes.warehouses == 1 { "" } else { "s" },
        sizes.duration,
        sizes.warm_up
    );
    println!("| row | what | {} | Wattle to the best peer |", chosen.join(" | "));
    println!("|---|---|{}---|", "---|".repeat(chosen.len()));
    for row in rows {
        let medians: Vec<_> = chosen
            .iter()
            .map(|engine| found.get(&(row.name, *engine)).cloned().map(crate::median))
            .collect();
        let of = |ours: bool| {
            let pairs = chosen.iter().zip(&medians);
            let pairs = pairs.filter(|(name, _)| (**name == "wattle") == ours);
            pairs.filter_map(|(_, figure)| *figure).reduce(f64::max)
        };
        let ratio = of(true).zip(of(false)).map(|(wattle, best)| wattle / best);
        let ratio = ratio.map_or("-".into(), |ratio| format!("{ratio:.2}"));
        let cells: Vec<_> = medians.iter().map(|f| f.map_or("-".into(), short)).collect();
        println!("| `{}` | {} | {} | {ratio} |", row.name, row.title, cells.join(" | "));
    }
    Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
