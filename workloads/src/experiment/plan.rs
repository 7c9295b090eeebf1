//! The plan of an experiment: its cells that this binary can run, their stores, its time, and
//! whether the machine is large enough. Nothing is written before the plan is made.

use std::path::{Path, PathBuf};

use super::design::{Cell, Design, Experiment, Needs, Scale, Store};
use crate::cli::exit::{Exit, failed};
use crate::machine::{self, Machine};
use crate::report::figures::{bytes, plural};

/// Assumed bytes per second of a load, until it has been measured.
const LOAD_RATE: f64 = 40e6;
/// Assumed bytes per second of a copy of a store.
const COPY_RATE: f64 = 500e6;
/// Assumed seconds of a run besides warm-up and measured part: to start, open and close.
const OVERHEAD: f64 = 0.7;
/// Room for logs and results besides the stores.
const BESIDE_STORES: u64 = 1 << 30;
/// Where stores in memory are kept, if the system has it.
const IN_MEMORY: &str = "/dev/shm";

/// An experiment that is to run.
pub struct Plan<'a> {
    /// The experiment.
    pub experiment: &'a Experiment,
    /// Its scale.
    pub scale: Scale,
    /// Its cells that this binary can run, and the rest of its design.
    pub design: Design,
    /// Cells that this binary cannot run, with the reason.
    pub left_out: Vec<(Cell, String)>,
    /// The directory of its results.
    pub out: &'a Path,
}

/// Says why this binary does not accept a command line.
pub type Refuses<'a> = &'a dyn Fn(&[String]) -> Option<String>;

impl<'a> Plan<'a> {
    /// Plans `experiment`. `refuses` says why the binary does not accept the arguments of a cell.
    pub fn new(
        experiment: &'a Experiment,
        scale: Scale,
        repetitions: Option<usize>,
        out: &'a Path,
        refuses: Refuses<'_>,
    ) -> Self {
        let mut design = (experiment.design)(scale, machine::cores());
        design.repetitions = repetitions.unwrap_or(design.repetitions);
        let mut plan = Self { experiment, scale, design, left_out: Vec::new(), out };
        // On a machine that is too small many flags are refused, for reasons that say less.
        if plan.shortage().ok().flatten().is_none() {
            for cell in std::mem::take(&mut plan.design.cells) {
                let words = cell.command.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
                match refuses(&words) {
                    None => plan.design.cells.push(cell),
                    Some(why) => {
                        // Without the names and flags that are known: these are many.
                        let ends = [": known are", "; --help"].map(|mark| why.find(mark));
                        let end = ends.into_iter().flatten().min().unwrap_or(why.len());
                        plan.left_out.push((cell, why[..end].to_owned()));
                    }
                }
            }
        }
        plan
    }

    /// The stores of the cells, each once.
    pub fn stores(&self) -> Vec<&Store> {
        let mut stores: Vec<&Store> = Vec::new();
        for store in self.design.cells.iter().filter_map(|cell| cell.store.as_ref()) {
            if !stores.contains(&store) {
                stores.push(store);
            }
        }
        stores
    }

    /// Where the store is kept.
    pub fn folder(&self, store: &Store) -> PathBuf {
        let memory = Path::new(IN_MEMORY);
        if store.in_memory && memory.is_dir() {
            // The same for each resumption, and another one for each directory of results.
            let out = std::path::absolute(self.out).unwrap_or_else(|_| self.out.to_owned());
            let out = out.to_string_lossy().replace(['/', ' '], "-");
            return memory.join(format!("wattle{out}"));
        }
        self.out.join("stores")
    }

    /// Assumed seconds of a load.
    pub fn load_seconds(store: &Store) -> f64 {
        OVERHEAD + store.bytes as f64 / LOAD_RATE
    }

    /// Assumed seconds of a run of `cell`.
    pub fn run_seconds(cell: &Cell) -> f64 {
        let copied = cell.store.as_ref().filter(|store| store.copied);
        let copy = copied.map_or(0.0, |store| store.bytes as f64 / COPY_RATE);
        OVERHEAD + cell.warm_up + cell.seconds + copy
    }

    /// Assumed seconds of the whole experiment.
    pub fn seconds(&self) -> f64 {
        let loads: f64 = self.stores().into_iter().map(Self::load_seconds).sum();
        let runs: f64 = self.design.cells.iter().map(Self::run_seconds).sum();
        loads + runs * self.design.repetitions as f64
    }

    /// Bytes of the stores on disk and in memory, each with a copy if runs get one.
    fn store_bytes(&self) -> (u64, u64) {
        let (mut disk, mut memory) = (0, 0);
        for store in self.stores() {
            let all = store.bytes * if store.copied { 2 } else { 1 };
            let on_disk = !self.folder(store).starts_with(IN_MEMORY);
            *(if on_disk { &mut disk } else { &mut memory }) += all;
        }
        (disk, memory)
    }

    /// Demands on memory, cores and disk.
    fn needs(&self) -> (Needs, u64) {
        let (disk, memory) = self.store_bytes();
        let Needs { memory: more, cores } = self.design.needs;
        (Needs { memory: memory + more, cores }, disk + disk / 4 + BESIDE_STORES)
    }

    /// A sentence that says what the machine lacks; `None` if it is large enough.
    pub fn shortage(&self) -> Result<Option<String>, Exit> {
        let (needs, disk) = self.needs();
        let asking = format!("asking for the free space at {}", self.out.display());
        // Stores of an experiment that goes on are there already.
        let free = machine::free_bytes(self.out).map_err(failed(asking))? + bytes_in(self.out);
        let memory = wattle::memory_limit();
        let cores = machine::cores();
        let enough = disk <= free
            && memory.is_none_or(|memory| needs.memory <= memory)
            && needs.cores <= cores;
        let has = memory.map_or("unknown memory".to_owned(), |memory| bytes(memory) + " of memory");
        if enough {
            return self.shortage_in_memory();
        }
        Ok(Some(format!(
            "{} at this scale needs {}, {} of memory and {} of disk; this machine has {}, \
                 {has} and {} free at {}",
            self.experiment.name,
            plural(needs.cores.max(1) as u64, "core"),
            bytes(needs.memory),
            bytes(disk),
            plural(cores as u64, "core"),
            bytes(free),
            self.out.display()
        )))
    }

    /// As [`Plan::shortage`], for the file system of the stores in memory.
    fn shortage_in_memory(&self) -> Result<Option<String>, Exit> {
        let (_, in_memory) = self.store_bytes();
        if in_memory == 0 {
            return Ok(None);
        }
        let needed = in_memory + in_memory / 4;
        let asking = format!("asking for the free space at {IN_MEMORY}");
        let free = machine::free_bytes(Path::new(IN_MEMORY)).map_err(failed(asking))?;
        Ok((needed > free).then(|| {
            format!(
                "{} at this scale keeps {} of stores in {IN_MEMORY}, which has {} free",
                self.experiment.name,
                bytes(needed),
                bytes(free)
            )
        }))
    }

    /// Refuses an experiment that cannot run here.
    pub fn check(&self) -> Result<(), Exit> {
        if let Some(sentence) = self.shortage()? {
            let advice = if self.scale == Scale::Small { "smoke" } else { "small" };
            return Err(Exit::Usage(format!("{sentence}; take --scale {advice}")));
        }
        if self.design.cells.is_empty() {
            let why = self.left_out.first().map_or("it has none", |(_, why)| why);
            return Err(Exit::Usage(format!(
                "this binary can run no cell of {}: {why}",
                self.experiment.name
            )));
        }
        Ok(())
    }

    /// The plan for people.
    pub fn text(&self) -> String {
        let Self { experiment, design, .. } = self;
        let mut lines = vec![
            format!("{}: {} ({})", experiment.name, experiment.about, experiment.source),
            format!(
                "scale {:?}, {}, {} each, which alternate; about {} in all",
                self.scale,
                plural(design.cells.len() as u64, "cell"),
                plural(design.repetitions as u64, "run"),
                duration(self.seconds())
            )
            .to_lowercase(),
        ];
        let (needs, disk) = self.needs();
        lines.push(format!(
            "needs {}, {} of memory and {} of disk",
            plural(needs.cores.max(1) as u64, "core"),
            bytes(needs.memory),
            bytes(disk)
        ));
        for store in self.stores() {
            lines.push(format!(
                "store {}: about {}, in {}, loaded once by \"wattle {}\", {}",
                store.name,
                bytes(store.bytes),
                self.folder(store).display(),
                store.load,
                match store.copied {
                    true => "copied before each run, because runs make it grow",
                    false => "shared by the runs one after the other: they do not make it grow",
                }
            ));
        }
        lines.extend(design.notes.iter().map(|note| format!("note: {note}")));
        for cell in &design.cells {
            let Cell { warm_up, seconds, command, .. } = cell;
            lines.push(format!(
                "cell {}: {seconds} s after {warm_up} s of \"wattle {command}\"",
                cell.name()
            ));
        }
        lines.extend(self.left_out_lines());
        lines.join("\n") + "\n"
    }

    /// The cells that do not run, with the reason; cells with the same reason in one line.
    pub fn left_out_lines(&self) -> Vec<String> {
        let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
        for (cell, why) in &self.left_out {
            match reasons.iter_mut().find(|(reason, _)| reason == why) {
                Some((_, cells)) => cells.push(cell.name()),
                None => reasons.push((why, vec![cell.name()])),
            }
        }
        let line = |(why, cells): (&str, Vec<String>)| {
            format!("left out, because {why}: {}", cells.join("; "))
        };
        reasons.into_iter().map(line).collect()
    }

    /// Everything that must be equal for results to compare.
    pub fn facts(&self, build: &str) -> Vec<(&'static str, serde_json::Value)> {
        let machine = Machine::this();
        vec![
            ("experiment", self.experiment.name.into()),
            ("scale", format!("{:?}", self.scale).to_lowercase().into()),
            ("repetitions", self.design.repetitions.into()),
            ("version", env!("CARGO_PKG_VERSION").into()),
            ("build", build.into()),
            ("processor", machine.cpu.into()),
            ("cores", machine.cores.into()),
            ("kernel", machine.kernel.into()),
        ]
    }
}

/// Bytes of the files in a directory, as far as they can be read.
fn bytes_in(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes_in(&entry.path()),
        found => found.map_or(0, |found| found.len()),
    };
    entries.flatten().map(size).sum()
}

/// A time in minutes and seconds.
pub fn duration(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}
