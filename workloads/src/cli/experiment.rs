//! `wattle experiment`: repeats an experiment of a paper.

use std::path::{Path, PathBuf};

use clap::Args;

use super::exit::{Exit, failed, print};
use crate::driver::control::{Interrupt, say};
use crate::experiment::all;
use crate::experiment::conduct::conduct;
use crate::experiment::design::{Experiment, Scale};
use crate::experiment::journal::{self, Journal};
use crate::experiment::page;
use crate::experiment::plan::{Plan, Refuses};
use crate::experiment::results::Results;

/// Flags of `experiment`.
#[derive(Args, Clone, Debug)]
pub struct ExperimentFlags {
    /// The experiment; without a name they are listed.
    #[arg(value_name = "NAME")]
    pub name: Option<String>,

    /// Size of data and time: small, at most 15 minutes on two cores; paper, the sizes of the
    /// paper, if the machine is large enough; smoke, seconds, which only shows that it works.
    #[arg(long, value_enum, default_value_t = Scale::Small)]
    pub scale: Scale,

    /// Runs of each cell. Default: by experiment and scale.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub repetitions: Option<u64>,

    /// Print the cells, the stores and the time that they will take, and do nothing.
    #[arg(long)]
    pub dry_run: bool,

    /// Go on with an experiment that was interrupted, by its journal in the --out directory.
    #[arg(long)]
    pub resume: bool,

    /// Directory for the journal, results.csv, report.html, and the stores while it runs. Default:
    /// experiment-NAME in the current directory.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Seed of all random numbers; each repetition adds 1.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

impl ExperimentFlags {
    /// Refuses an unknown name.
    pub fn check(&self) -> Result<(), Exit> {
        self.experiment().map(drop)
    }

    fn experiment(&self) -> Result<Option<&'static Experiment>, Exit> {
        let Some(name) = &self.name else { return Ok(None) };
        let known = || {
            Exit::Usage(format!(
                "unknown experiment {name:?}; known are\n{}",
                all::listed().trim_end()
            ))
        };
        all::find(name).map(Some).ok_or_else(known)
    }
}

/// Runs an experiment, or lists them. `refuses` says why this binary does not accept arguments.
pub fn experiment(
    flags: &ExperimentFlags,
    refuses: Refuses<'_>,
    interrupt: &Interrupt,
) -> Result<(), Exit> {
    let Some(experiment) = flags.experiment()? else { return print(&all::listed()) };
    let default = PathBuf::from(format!("experiment-{}", experiment.name));
    let out = flags.out.as_ref().unwrap_or(&default);
    let repetitions = flags.repetitions.map(|runs| runs as usize);
    let plan = Plan::new(experiment, flags.scale, repetitions, out, refuses);
    if flags.dry_run {
        print(&plan.text())?;
        return plan.check();
    }
    plan.check()?;
    for line in plan.left_out_lines() {
        say(line);
    }
    std::fs::create_dir_all(out).map_err(|error| {
        Exit::Usage(format!("--out {} cannot be created: {error}", out.display()))
    })?;
    let build = journal::build()?;
    let mut facts = plan.facts(&build);
    facts.push(("seed", flags.seed.into()));
    let configuration = journal::configuration(facts, &plan.design.cells);
    let mut journal = Journal::open(out, &configuration, flags.resume)?;
    conduct(&plan, &mut journal, flags.seed, interrupt)?;
    deliver(&plan, &journal, out, &build)
}

/// Writes the results beside the journal, and prints them.
fn deliver(plan: &Plan<'_>, journal: &Journal, out: &Path, build: &str) -> Result<(), Exit> {
    let results = Results::of(&plan.design, &journal.entries);
    for (name, content) in
        [("results.csv", page::csv(&results)), ("report.html", page::html(plan, &results, build))]
    {
        let path = out.join(name);
        let writing = format!("writing {}", path.display());
        std::fs::write(path, content).map_err(failed(writing))?;
    }
    let files = format!("results.csv and report.html are in {}\n", out.display());
    print(&(page::text(plan, &results) + &files))
}
