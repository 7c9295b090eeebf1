//! Runs the cells of a plan: loads the stores, lets the repetitions alternate, and writes each
//! finished run to the journal.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::child::{Finished, Runner};
use super::design::{Cell, Store};
use super::journal::{Entry, Journal};
use super::plan::{Plan, duration};
use crate::cli::exit::{Exit, failed};
use crate::driver::control::{Interrupt, say};
use crate::report::figures::significant;

/// Runs the cells of `plan` that `journal` lacks.
///
/// # Errors
/// [`Exit::Interrupted`] if the user interrupted it; the journal has the finished runs.
pub fn conduct(
    plan: &Plan<'_>,
    journal: &mut Journal,
    seed: u64,
    interrupt: &Interrupt,
) -> Result<(), Exit> {
    let runner = Runner::of_this_binary(plan.out, interrupt)?;
    let mut stores = Stores { plan, runner: &runner, ready: Vec::new(), loading: 0.0 };
    let total = plan.design.cells.len() * plan.design.repetitions;
    let mut clock = Clock::new(plan, journal);
    for repetition in 0..plan.design.repetitions {
        for (index, cell) in plan.design.cells.iter().enumerate() {
            if journal.has(index, repetition) {
                continue;
            }
            let number = journal.entries.len() + 1;
            let left = duration(clock.left());
            say(format_args!("[{number}/{total}] {}, {left} left", cell.name()));
            // Runs of one repetition have the same random numbers.
            let seed = seed + repetition as u64;
            let began = Instant::now();
            let loaded = stores.loading;
            let run = stores.directory(cell).and_then(|directory| {
                runner.run(&arguments(cell, directory.as_deref(), seed)).map_err(
                    |exit| match exit {
                        Exit::Failed(why) => Exit::Failed(format!("{}: {why}", cell.name())),
                        exit => exit,
                    },
                )
            });
            let Finished { report, seconds } =
                run.map_err(|exit| interrupted(exit, journal, total))?;
            let loading = stores.loading - loaded;
            clock.passed(Plan::run_seconds(cell), began.elapsed().as_secs_f64() - loading);
            let mut shown = plan.design.measures.iter();
            if let Some((name, value)) = shown.find_map(|one| Some((one.label, (one.of)(&report)?)))
            {
                say(format_args!("        {} {name}", significant(value)));
            }
            journal.add(Entry { cell: index, repetition, seconds, report })?;
        }
    }
    stores.remove()
}

fn interrupted(exit: Exit, journal: &Journal, total: usize) -> Exit {
    match exit {
        Exit::Interrupted(_) => Exit::Interrupted(format!(
            "interrupted after {} of {total} runs; --resume goes on",
            journal.entries.len()
        )),
        exit => exit,
    }
}

/// The arguments of a run of `cell`.
fn arguments(cell: &Cell, directory: Option<&Path>, seed: u64) -> Vec<String> {
    let mut words: Vec<String> = cell.command.split_whitespace().map(str::to_owned).collect();
    let time = |seconds: f64| format!("{}ms", (seconds * 1000.0).round() as u64);
    if let Some(directory) = directory {
        // Every run begins with an empty pool, whichever run used the store last.
        words.extend(["--db".to_owned(), directory.display().to_string()]);
        words.extend(["--warm-start", "off"].map(str::to_owned));
    }
    for (flag, value) in [
        ("--warmup", time(cell.warm_up)),
        ("--duration", time(cell.seconds)),
        ("--seed", seed.to_string()),
        ("--format", "json".to_owned()),
    ] {
        words.extend([flag.to_owned(), value]);
    }
    words
}

/// The time that is left: the planned time, corrected by the runs so far.
struct Clock {
    /// Planned seconds of the runs that are left.
    left: f64,
    /// Planned seconds of the runs since the start, and the seconds that they took.
    planned: f64,
    taken: f64,
}

impl Clock {
    fn new(plan: &Plan<'_>, journal: &Journal) -> Self {
        let cells = plan.design.cells.iter().enumerate();
        let runs = |(index, cell): (usize, &Cell)| {
            let missing = (0..plan.design.repetitions).filter(|one| !journal.has(index, *one));
            missing.count() as f64 * Plan::run_seconds(cell)
        };
        Self { left: cells.map(runs).sum(), planned: 0.0, taken: 0.0 }
    }

    fn passed(&mut self, planned: f64, taken: f64) {
        self.left -= planned;
        self.planned += planned;
        self.taken += taken;
    }

    fn left(&self) -> f64 {
        self.left * if self.planned > 0.0 { self.taken / self.planned } else { 1.0 }
    }
}

/// The stores on disk and in memory.
struct Stores<'a> {
    plan: &'a Plan<'a>,
    runner: &'a Runner<'a>,
    /// Names of those that are loaded.
    ready: Vec<String>,
    /// Seconds of all loads.
    loading: f64,
}

impl Stores<'_> {
    /// The directory for a run of `cell`: its store, loaded if it is not, or a fresh copy of it.
    fn directory(&mut self, cell: &Cell) -> Result<Option<PathBuf>, Exit> {
        let Some(store) = &cell.store else { return Ok(None) };
        let folder = self.plan.folder(store);
        let loaded = folder.join(&store.name);
        if !self.ready.contains(&store.name) {
            let began = Instant::now();
            self.load(store, &folder)?;
            self.loading += began.elapsed().as_secs_f64();
            self.ready.push(store.name.clone());
        }
        if !store.copied {
            return Ok(Some(loaded));
        }
        let copy = folder.join("copy");
        removed(&copy)?;
        let copied = copy_all(&loaded, &copy);
        copied.map_err(failed(format_args!("copying {}", loaded.display())))?;
        Ok(Some(copy))
    }

    /// Loads a store, unless an earlier part of the experiment did. The marker beside it has the
    /// arguments of a load that was finished.
    fn load(&self, store: &Store, folder: &Path) -> Result<(), Exit> {
        let (path, marker) =
            (folder.join(&store.name), folder.join(store.name.clone() + ".loaded"));
        if fs::read_to_string(&marker).is_ok_and(|load| load == store.load) && path.is_dir() {
            return Ok(());
        }
        let left = duration(Plan::load_seconds(store));
        say(format_args!("loading {}, about {left}", store.name));
        removed(&path)?;
        let creating = format!("creating {}", folder.display());
        fs::create_dir_all(folder).map_err(failed(creating))?;
        let words = store.load.split_whitespace().map(str::to_owned);
        let path = path.display().to_string();
        let rest = ["--db", &path, "--warmup", "0", "--operations", "1", "--format", "json"];
        let words: Vec<String> = words.chain(rest.map(str::to_owned)).collect();
        self.runner.run(&words)?;
        fs::write(&marker, &store.load)
            .map_err(failed(format_args!("writing {}", marker.display())))
    }

    /// Removes all stores.
    fn remove(&self) -> Result<(), Exit> {
        self.plan.stores().into_iter().try_for_each(|store| removed(&self.plan.folder(store)))
    }
}

impl Drop for Stores<'_> {
    /// Stores in memory do not outlive the process; those on disk stay for `--resume`.
    fn drop(&mut self) {
        for store in self.plan.stores().into_iter().filter(|store| store.in_memory) {
            if let Err(Exit::Failed(why)) = removed(&self.plan.folder(store)) {
                say(format_args!("warning: {why}"));
            }
        }
    }
}

/// Removes a directory, if it is there.
fn removed(path: &Path) -> Result<(), Exit> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(failed(format_args!("removing {}", path.display()))(error))
        }
        _ => Ok(()),
    }
}

/// Copies a directory with everything in it.
fn copy_all(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_all(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}
