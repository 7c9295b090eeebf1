//! What every subcommand that runs a workload needs around it: a place for the store, what has to be
//! known before long work, files for the outputs, and the delivery of the result.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::common::{Format, IoBackend, OnOff, RunFlags};
use super::exit::{Exit, failed};
use crate::driver::store::Store;
use crate::machine;
use crate::report::csv::SampleFile;
use crate::report::figures::{bytes, many, plural};
use crate::report::{self, Report};

/// Where the store lives: a directory of the user, or a temporary one that goes with this value.
pub struct Home {
    /// The directory of the store.
    pub path: PathBuf,
    /// There is no store yet: no such directory, or nothing in it.
    is_new: bool,
    temporary: Option<tempfile::TempDir>,
}

impl Home {
    /// At `db`, or in a new temporary directory.
    pub fn new(db: Option<&Path>) -> Result<Self, Exit> {
        if let Some(path) = db {
            let is_new = match std::fs::read_dir(path) {
                Ok(mut entries) => entries.next().is_none(),
                Err(error) => error.kind() == ErrorKind::NotFound,
            };
            return Ok(Self { path: path.to_owned(), is_new, temporary: None });
        }
        let folder = tempfile::Builder::new()
            .prefix("wattle-")
            .tempdir()
            .map_err(failed("creating a temporary directory"))?;
        Ok(Self { path: folder.path().join("store"), is_new: true, temporary: Some(folder) })
    }

    /// The file system that it is on.
    pub fn description(&self) -> String {
        let kind = if self.temporary.is_some() { "temporary store on " } else { "" };
        format!("{kind}{}", machine::file_system(&self.path))
    }
}

/// What a load takes.
pub struct Room {
    /// How many of them are loaded.
    pub number: u64,
    /// What one of them is, as `warehouse`.
    pub unit: &'static str,
    /// Bytes of the data file after loading, about.
    pub data: u64,
    /// Bytes of log that loading writes, about; checkpoints take it away again.
    pub log: u64,
}

impl Room {
    /// Bytes of the data file for so many bytes of keys and values, at least: pages are not all full.
    pub fn of_data(data_bytes: u64) -> u64 {
        data_bytes.saturating_add(data_bytes / 4)
    }

    /// Refuses a load that the device has no room for before the store is made for it, so that the
    /// refusal leaves nothing behind.
    pub fn check_before_opening(&self, home: &Home, run: &RunFlags) -> Result<(), Exit> {
        if home.is_new { self.check(home, run) } else { Ok(()) }
    }

    /// The same for a store that was there before, which turned out to have no data.
    pub fn check_before_loading(&self, home: &Home, run: &RunFlags) -> Result<(), Exit> {
        if home.is_new { Ok(()) } else { self.check(home, run) }
    }

    fn check(&self, home: &Home, run: &RunFlags) -> Result<(), Exit> {
        if run.io == IoBackend::Memory {
            return Ok(());
        }
        let log = match run.log {
            OnOff::On => run.log_limit().min(self.log),
            OnOff::Off => 0,
        };
        let path = &home.path;
        let free = machine::free_bytes(path)
            .map_err(failed(format_args!("asking for the free space at {}", path.display())))?;
        if self.data.saturating_add(log) <= free {
            return Ok(());
        }
        Err(Exit::Usage(format!(
            "loading {} takes about {} and up to {} of log, but only {} are free at {}; give fewer {} or \
             another --db",
            plural(self.number, self.unit),
            bytes(self.data),
            bytes(log),
            bytes(free),
            path.display(),
            many(self.unit)
        )))
    }
}

/// Refuses more threads than `store` serves at a time, before they are needed.
pub fn check_threads<S: Store>(store: &S, threads: usize) -> Result<(), Exit> {
    let sessions: Result<Vec<_>, _> = (0..threads).map(|_| store.session()).collect();
    sessions.map(drop).map_err(|error| {
        Exit::Usage(format!(
            "--threads {threads} are too many: {error}; give fewer --threads or a larger --pool"
        ))
    })
}

/// Creates the files of `--samples` and `--report` before the long work, so that a wrong path is known
/// at once.
pub fn create_outputs(flags: &RunFlags) -> Result<Option<SampleFile>, Exit> {
    let refused = |flag: &str, path: &Path, error| {
        Exit::Usage(format!("{flag} {} cannot be created: {error}", path.display()))
    };
    if let Some(path) = &flags.report {
        File::create(path).map_err(|error| refused("--report", path, error))?;
    }
    let samples = flags.samples.as_ref();
    samples
        .map(|path| SampleFile::create(path).map_err(|error| refused("--samples", path, error)))
        .transpose()
}

/// Prints the report and writes the page.
pub fn deliver(report: &Report, flags: &RunFlags, out: &mut dyn Write) -> Result<(), Exit> {
    let text = match flags.format {
        Format::Json => report.json() + "\n",
        Format::Text => report::text::report(report),
    };
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(failed("writing the result"))?;
    if let Some(path) = &flags.report {
        std::fs::write(path, report::html::report(report))
            .map_err(failed(format_args!("writing {}", path.display())))?;
    }
    match &report.error {
        Some(error) => Err(Exit::Failed(error.clone())),
        None if !report.succeeded() => Err(Exit::Reported),
        None => Ok(()),
    }
}
