//! The command line of `wattle`.
//!
//! Exit codes: 0 for success, 1 for a failed run or check, 2 for bad arguments, 130 for an
//! interrupt.

pub mod backup;
pub mod bench_flags;
pub mod bench_run;
pub mod breakdown;
pub mod common;
pub mod dump;
pub mod evict_phase;
pub mod exit;
pub mod experiment;
pub mod io_backend;
pub mod live;
pub mod load;
mod load_csv;
mod load_format;
pub mod log_policy;
pub mod maintain;
pub mod probe;
pub mod progress;
pub mod record;
pub mod run;
pub mod shell;
pub mod simulate;
pub mod stage;
pub mod tpcc;
pub mod tpcc_run;
pub mod units;
pub mod write_back;
pub mod ycsb;
pub mod ycsb_run;

use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory, Parser, Subcommand};

use crate::breakdown::profile::Profiler;
use crate::driver::backend::Backend;
use crate::driver::control::{Interrupt, say, wait_while_ending};
use bench_run::BenchScenario;
use common::RunFlags;
use exit::Exit;
use record::Recording;

/// Wattle: an embedded ordered key-value store whose data may outgrow memory, and its benchmarks.
#[derive(Parser, Debug)]
#[command(name = "wattle", version, arg_required_else_help = false, max_term_width = 100)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Names the replacement policies of the engine with their parameters, as --policy help does.
    #[arg(long, exclusive = true)]
    pub list_policies: bool,
}

/// The subcommands that run a workload.
#[derive(Subcommand, Debug)]
pub enum WorkloadCommand {
    /// Runs a YCSB core workload and prints the results.
    ///
    /// Loads the records unless the store has them, runs for the warm-up time, then measures. It
    /// checks every value that it reads against its key: a wrong one ends the run with exit code 1.
    Ycsb(Box<ycsb::YcsbFlags>),
    /// Runs TPC-C, or one of its transactions, and prints the results.
    ///
    /// Loads the warehouses unless the store has them, runs for the warm-up time, then measures.
    /// --check checks the consistency conditions of the specification after the load and after the
    /// run: if one does not hold the exit code is 1.
    Tpcc(Box<tpcc::TpccFlags>),
    /// Runs TPC-B: transactions that move money into accounts of branches.
    ///
    /// Loads the branches unless the store has them, runs for the warm-up time, then measures. Each
    /// transaction updates an account, a teller and a branch, and adds to the history.
    Tpcb(Box<bench_flags::TpcbFlags>),
    /// Runs TATP: the seven transactions of a register of mobile subscribers.
    ///
    /// Loads the subscribers unless the store has them, runs for the warm-up time, then measures.
    /// Transactions that end unsuccessfully, as the benchmark intends, are counted separately.
    Tatp(Box<bench_flags::TatpFlags>),
}

/// The subcommands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Runs a workload.
    #[command(flatten)]
    Workload(WorkloadCommand),
    /// Checks every page and tree of a store; exit code 1 and a list if something is wrong.
    Verify(maintain::VerifyFlags),
    /// Shows the sizes of a store and its trees.
    Stat(maintain::StatFlags),
    /// Moves pages from the end of the data file to free pages before them, and truncates the file.
    Compact(maintain::CompactFlags),
    /// Writes all key-value pairs of a store to standard output, one on a line.
    Dump(dump::DumpFlags),
    /// Reads lines in the format of dump from standard input and stores their pairs.
    Load(load::LoadFlags),
    /// Copies a store that is not in use into a new directory, and changes nothing in it.
    Backup(backup::BackupFlags),
    /// Checks a backup and copies it into a new directory.
    Restore(backup::RestoreFlags),
    /// Measures the device under a directory: reads and writes per second against queue depth.
    Probe(probe::ProbeFlags),
    /// Shows which component of the engine uses the processor, in ycsb and tpcc.
    ///
    /// Runs each workload with a sampling profiler. The rows are exclusive self time and add up to
    /// 100 %, for the threads that run operations and for those of the engine.
    Breakdown(Box<breakdown::BreakdownFlags>),
    /// Replays page traces through replacement policies and counts misses, reads and writes.
    Simulate(Box<simulate::SimulateFlags>),
    /// Runs a workload, then lets evictors alone free a part of the pool, and times them.
    #[command(hide = true)]
    EvictPhase {
        /// Flags of the second phase.
        #[command(flatten)]
        flags: evict_phase::EvictPhaseFlags,
        /// The workload of the first phase.
        #[command(subcommand)]
        workload: WorkloadCommand,
    },
    /// Repeats an experiment of a paper, and prints the paper's figures beside ours.
    ///
    /// Without a name: lists the experiments.
    Experiment(experiment::ExperimentFlags),
    /// Prints a script with which a shell completes the subcommands and flags of wattle.
    Completions(shell::CompletionsFlags),
    /// Writes the manual pages of wattle and its subcommands.
    Man(shell::ManFlags),
}

/// Parses `arguments`, the first of which is the name of the program, and runs the subcommand.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let done = parse(&arguments).and_then(|command| match command {
        Some(command) => run(command, &arguments),
        None => Ok(()),
    });
    wait_while_ending();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(exit) => exit.report(),
    }
}

/// Parses `arguments` and checks them as far as that is possible without a store. Prints the help
/// or the version, and returns `None`, if they ask for that.
pub fn parse(arguments: &[OsString]) -> Result<Option<Command>, Exit> {
    let command = match Cli::try_parse_from(arguments) {
        Ok(cli) if cli.list_policies => return exit::print(&engine_policies()).map(|()| None),
        Ok(Cli { command: Some(command), .. }) => command,
        Ok(_) => {
            // The flags without a subcommand are optional for clap, so it must be told to object.
            let strict = Cli::command().subcommand_required(true);
            let program = &arguments[..arguments.len().min(1)];
            let error = strict.try_get_matches_from(program).expect_err("no subcommand");
            // The sentence comes last, where it is seen.
            say(Cli::command().render_help());
            return Err(Exit::Usage(exit::sentence(&error)));
        }
        Err(error) if error.use_stderr() => return Err(Exit::Usage(exit::sentence(&error))),
        Err(help) => {
            return match help.print() {
                // A reader that closes the pipe early, such as `head`.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(None),
                printed => printed.map(|()| None).map_err(exit::failed("printing the help")),
            };
        }
    };
    match &command {
        Command::Workload(workload) if workload.run_flags().policy == "help" => {
            return exit::print(&engine_policies()).map(|()| None);
        }
        Command::Workload(workload) | Command::EvictPhase { workload, .. } => match workload {
            WorkloadCommand::Ycsb(flags) => flags.spec().map(drop)?,
            workload => workload.run_flags().check()?,
        },
        Command::Probe(flags) => flags.check()?,
        Command::Simulate(flags) => flags.check()?,
        Command::Breakdown(flags) => {
            flags.check()?;
            flags.commands().iter().try_for_each(|words| parse(words).map(drop))?;
        }
        Command::Experiment(flags) => flags.check()?,
        Command::Verify(_)
        | Command::Stat(_)
        | Command::Compact(_)
        | Command::Dump(_)
        | Command::Load(_)
        | Command::Backup(_)
        | Command::Restore(_)
        | Command::Completions(_)
        | Command::Man(_) => {}
    }
    Ok(Some(command))
}

/// The policies of the engine: one line each, and one for each parameter.
fn engine_policies() -> String {
    let list: String = wattle::policies().iter().map(|info| info.to_string()).collect();
    format!("{list}\n--policy NAME:key=value,key=value sets parameters\n")
}

fn run(command: Command, arguments: &[OsString]) -> Result<(), Exit> {
    // An open store must be closed, or it needs recovery: an interrupt must not just end the
    // process.
    let interrupt = Interrupt::of_process().map_err(Exit::Failed)?;
    match command {
        Command::Workload(workload) => {
            let (flags, line) = (workload.run_flags(), command_line(arguments));
            let recording = Recording::new(flags);
            let backend = flags.wattle(recording.trace(), &interrupt);
            let out = &mut std::io::stdout().lock();
            run_workload(&workload, line, &backend, &recording, &interrupt, out)
        }
        Command::Verify(flags) => maintain::verify(&flags, &interrupt),
        Command::Stat(flags) => maintain::stat(&flags, &interrupt),
        Command::Compact(flags) => maintain::compact(&flags, &interrupt),
        Command::Dump(flags) => dump::dump(&flags, &mut std::io::stdout().lock(), &interrupt),
        Command::Backup(flags) => backup::backup(&flags, &interrupt),
        Command::Restore(flags) => backup::restore(&flags, &interrupt),
        Command::Load(flags) => load::load(&flags, &mut std::io::stdin().lock(), &interrupt),
        Command::Probe(flags) => probe::probe(&flags, &interrupt),
        Command::Breakdown(flags) => {
            let run = |words: &[OsString], profiler, out: &mut Vec<u8>| {
                profiled(words, profiler, &interrupt, out)
            };
            breakdown::breakdown(&flags, command_line(arguments), &run)
        }
        Command::Simulate(flags) => simulate::simulate(&flags, command_line(arguments), &interrupt),
        Command::Completions(flags) => shell::completions(&flags, Cli::command()),
        Command::Man(flags) => shell::man(&flags, Cli::command()),
        Command::EvictPhase { flags, workload } => evict_phase(&flags, &workload, &interrupt),
        Command::Experiment(flags) => {
            experiment::experiment(&flags, &|words| refusal(words, &interrupt), &interrupt)
        }
    }
}

fn evict_phase(
    flags: &evict_phase::EvictPhaseFlags,
    workload: &WorkloadCommand,
    interrupt: &Interrupt,
) -> Result<(), Exit> {
    let run = workload.run_flags();
    match workload {
        WorkloadCommand::Ycsb(ycsb) => evict_phase::run(&ycsb.spec()?, flags, run, interrupt),
        WorkloadCommand::Tpcc(tpcc) => evict_phase::run(&tpcc.scenario(), flags, run, interrupt),
        WorkloadCommand::Tpcb(tpcb) => {
            evict_phase::run(&BenchScenario::new(tpcb.bench()), flags, run, interrupt)
        }
        WorkloadCommand::Tatp(tatp) => {
            evict_phase::run(&BenchScenario::new(tatp.bench()), flags, run, interrupt)
        }
    }
}

/// Says why this binary does not run a command line, as far as that is known without a store.
fn refusal(words: &[String], interrupt: &Interrupt) -> Option<String> {
    let words = std::iter::once("wattle").chain(words.iter().map(String::as_str));
    let arguments: Vec<OsString> = words.map(OsString::from).collect();
    let checked = parse(&arguments).and_then(|command| match command {
        Some(Command::Workload(workload) | Command::EvictPhase { workload, .. }) => {
            let flags = workload.run_flags();
            let reads = flags.reads(false);
            let options = flags.store_options("".as_ref(), 1, reads);
            Ok(flags.wattle(None, interrupt).check(&options)?)
        }
        _ => Ok(()),
    });
    match checked {
        Err(Exit::Usage(sentence) | Exit::Failed(sentence)) => Some(sentence),
        _ => None,
    }
}

/// Runs the workload that `words` name, and profiles it if there is a profiler.
fn profiled(
    words: &[OsString],
    profiler: Option<Arc<Profiler>>,
    interrupt: &Interrupt,
    out: &mut Vec<u8>,
) -> Result<(), Exit> {
    let Some(Command::Workload(command)) = parse(words)? else {
        unreachable!("the words of a breakdown name a workload")
    };
    let backend = command.run_flags().wattle(None, interrupt);
    let recording = Recording::of_time(profiler);
    run_workload(&command, command_line(words), &backend, &recording, interrupt, out)
}

/// Runs the workload of `command` on the store that `backend` opens, and writes the result to
/// `out`. `line` is the command line, for the report.
pub fn run_workload<B: Backend>(
    command: &WorkloadCommand,
    line: String,
    backend: &B,
    recording: &Recording,
    interrupt: &Interrupt,
    out: &mut dyn Write,
) -> Result<(), Exit> {
    let flags = command.run_flags();
    let reads = flags.reads(!matches!(command, WorkloadCommand::Ycsb(_)));
    let request = |check, settings| run::Request { flags, check, reads, settings, command: line };
    match command {
        WorkloadCommand::Ycsb(flags) => {
            let spec = flags.spec()?;
            let request = request(false, flags.settings(&spec));
            run::run(&spec, request, backend, recording, interrupt, out)
        }
        WorkloadCommand::Tpcc(flags) => {
            let request = request(flags.check, flags.settings());
            run::run(&flags.scenario(), request, backend, recording, interrupt, out)
        }
        WorkloadCommand::Tpcb(flags) => {
            let request = request(flags.check, flags.settings());
            let scenario = BenchScenario::new(flags.bench());
            run::run(&scenario, request, backend, recording, interrupt, out)
        }
        WorkloadCommand::Tatp(flags) => {
            let request = request(flags.check, flags.settings());
            let scenario = BenchScenario::new(flags.bench());
            run::run(&scenario, request, backend, recording, interrupt, out)
        }
    }
}

impl WorkloadCommand {
    /// The flags that all workloads share.
    pub fn run_flags(&self) -> &RunFlags {
        match self {
            WorkloadCommand::Ycsb(flags) => &flags.run,
            WorkloadCommand::Tpcc(flags) => &flags.run,
            WorkloadCommand::Tpcb(flags) => &flags.run,
            WorkloadCommand::Tatp(flags) => &flags.run,
        }
    }
}

/// The command line as a shell accepts it: the program without its folder, and quotes around words
/// with blanks.
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
