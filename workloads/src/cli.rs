//! The command line of `wattle`.
//!
//! Exit codes: 0 for success, 1 for a failed run or check, 2 for arguments that are wrong alone,
//! together, or for what they name.

pub mod bench_flags;
pub mod bench_run;
pub mod common;
pub mod dump;
pub mod exit;
pub mod live;
pub mod maintain;
pub mod probe;
pub mod record;
pub mod simulate;
pub mod stage;
pub mod tpcc;
pub mod tpcc_run;
pub mod units;
pub mod ycsb;
pub mod ycsb_run;

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::adapter::EngineStore;
use crate::driver::control::Interrupt;
use exit::Exit;

/// Wattle: an embedded ordered key-value store whose data may outgrow memory, and its benchmarks.
#[derive(Parser, Debug)]
#[command(name = "wattle", version, arg_required_else_help = false, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Runs a YCSB core workload and prints what it measured.
    ///
    /// Loads the records unless the store has them, runs for the warm-up time, then measures. Every
    /// value that is read is checked against its key: a wrong one ends the run with exit code 1.
    Ycsb(Box<ycsb::YcsbFlags>),
    /// Runs TPC-C, or one of its transactions, and prints what it measured.
    ///
    /// Loads the warehouses unless the store has them, runs for the warm-up time, then measures. With
    /// --check the consistency conditions of the specification are checked after the load and after the
    /// run: one that does not hold ends it with exit code 1.
    Tpcc(Box<tpcc::TpccFlags>),
    /// Runs TPC-B: transactions that move money into accounts of branches.
    ///
    /// Loads the branches unless the store has them, runs for the warm-up time, then measures. Each
    /// transaction updates an account, a teller and a branch, and adds to the history.
    Tpcb(Box<bench_flags::TpcbFlags>),
    /// Runs TATP: the seven transactions of a register of mobile subscribers.
    ///
    /// Loads the subscribers unless the store has them, runs for the warm-up time, then measures.
    /// Transactions that do not find what they look for, as the benchmark means it, are counted apart.
    Tatp(Box<bench_flags::TatpFlags>),
    /// Checks every page and tree of a store; exit code 1 and a list if something is wrong.
    Verify(maintain::VerifyFlags),
    /// Shows the sizes of a store and its trees.
    Stat(maintain::StatFlags),
    /// Moves pages from the end of the data file to free ones before them, and cuts the file off.
    Compact(maintain::CompactFlags),
    /// Writes all key-value pairs of a store to standard output, one on a line.
    Dump(dump::DumpFlags),
    /// Reads lines as dump writes them from standard input and stores their pairs.
    Load(dump::LoadFlags),
    /// Measures the device under a directory: reads and writes per second against queue depth.
    Probe(probe::ProbeFlags),
    /// Replays page traces through replacement policies and counts misses, reads and writes.
    Simulate(Box<simulate::SimulateFlags>),
}

/// Parses `arguments`, the first of which is the program's name, and does what they say.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let done = parse(&arguments).and_then(|command| match command {
        Some(command) => run(command, &arguments),
        None => Ok(()),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(exit) => exit.report(),
    }
}

/// What `arguments` ask for, checked as far as that goes without a store; `None` if it was help or
/// the version, which are printed.
pub fn parse(arguments: &[OsString]) -> Result<Option<Command>, Exit> {
    let command = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli.command,
        Err(error) if error.use_stderr() => return Err(Exit::Usage(exit::sentence(&error))),
        Err(help) => {
            return match help.print() {
                // A reader that has seen enough, such as `head`.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(None),
                printed => printed.map(|()| None).map_err(exit::failed("printing the help")),
            };
        }
    };
    match &command {
        Command::Ycsb(flags) => flags.spec().map(drop)?,
        Command::Tpcc(flags) => flags.run.check()?,
        Command::Tpcb(flags) => flags.run.check()?,
        Command::Tatp(flags) => flags.run.check()?,
        Command::Probe(flags) => flags.check()?,
        Command::Simulate(flags) => flags.check()?,
        Command::Verify(_)
        | Command::Stat(_)
        | Command::Compact(_)
        | Command::Dump(_)
        | Command::Load(_) => {}
    }
    Ok(Some(command))
}

fn run(command: Command, arguments: &[OsString]) -> Result<(), Exit> {
    // An open store must be closed, or it counts as damaged: no interrupt may simply end the process.
    let interrupt = Interrupt::of_process().map_err(Exit::Failed)?;
    let open = |pipelined| {
        let interrupt = &interrupt;
        move |path: &Path, options| {
            let engine = common::open(path, options, interrupt)?;
            Ok(EngineStore::new(engine, pipelined))
        }
    };
    match command {
        Command::Ycsb(flags) => {
            let (command, open) = (command_line(arguments), open(flags.run.pipelined()));
            ycsb_run::run(&flags, command, &interrupt, &mut std::io::stdout().lock(), open)
        }
        Command::Tpcb(flags) => {
            let job = bench_run::Job {
                bench: &flags.bench(),
                run: &flags.run,
                check: flags.check,
                settings: flags.settings(),
                command: command_line(arguments),
            };
            let mut out = std::io::stdout().lock();
            bench_run::run(job, &interrupt, &mut out, open(flags.run.pipelined()))
        }
        Command::Tatp(flags) => {
            let job = bench_run::Job {
                bench: &flags.bench(),
                run: &flags.run,
                check: flags.check,
                settings: flags.settings(),
                command: command_line(arguments),
            };
            let mut out = std::io::stdout().lock();
            bench_run::run(job, &interrupt, &mut out, open(flags.run.pipelined()))
        }
        Command::Tpcc(flags) => {
            let (command, open) = (command_line(arguments), open(flags.run.pipelined()));
            tpcc_run::run(&flags, command, &interrupt, &mut std::io::stdout().lock(), open)
        }
        Command::Verify(flags) => maintain::verify(&flags, &interrupt),
        Command::Stat(flags) => maintain::stat(&flags, &interrupt),
        Command::Compact(flags) => maintain::compact(&flags, &interrupt),
        Command::Dump(flags) => dump::dump(&flags, &mut std::io::stdout().lock(), &interrupt),
        Command::Load(flags) => dump::load(&flags, &mut std::io::stdin().lock(), &interrupt),
        Command::Probe(flags) => probe::probe(&flags, &interrupt),
        Command::Simulate(flags) => simulate::simulate(&flags, command_line(arguments), &interrupt),
    }
}

/// The command as it may be typed again: the program without its folder, words with blanks in
/// quotes.
fn command_line(arguments: &[OsString]) -> String {
    let words = arguments.iter().skip(1).map(|word| {
        let word = word.to_string_lossy();
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_=.,:/%+@".contains(letter);
        if !word.is_empty() && word.chars().all(plain) {
            word.into_owned()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    });
    std::iter::once("wattle".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_of_the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_command_line_can_be_typed_again() {
        let words = ["/bin/wattle", "ycsb", "--db", "my store", "--policy", "watt:epochs=4"];
        assert_eq!(
            command_line(&words.map(OsString::from)),
            "wattle ycsb --db 'my store' --policy watt:epochs=4"
        );
    }
}
