//! Preparation and end of a run: the directory of the store, checks before the long work, output
//! files, and the delivery of the result.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::common::{Format, OnOff, RunFlags};
use super::exit::{Exit, failed, print_to};
use super::record::{Recording, TraceFile};
use crate::driver::control;
use crate::machine;
use crate::report::csv::SampleFile;
use crate::report::figures::{bytes, many, plural};
use crate::report::{self, Report};

/// The place of the store: a directory of the user, or a temporary one that this value removes when
/// it is dropped.
pub struct Home {
    /// The directory of the store.
    pub path: PathBuf,
    /// Whether the directory is absent or empty.
    is_new: bool,
    temporary: Option<Temporary>,
}

/// A directory that is removed when this value is dropped, or when a second interrupt ends the
/// process.
struct Temporary(tempfile::TempDir);

impl Temporary {
    fn new() -> std::io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("wattle-").tempdir()?;
        control::remove_at_exit(folder.path());
        Ok(Self(folder))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        control::keep_at_exit(self.0.path());
    }
}

impl Home {
    /// The directory `db`, or a new temporary one.
    pub fn new(db: Option<&Path>) -> Result<Self, Exit> {
        if let Some(path) = db {
            let is_new = match std::fs::read_dir(path) {
                // A new file system has one entry.
                Ok(mut entries) => {
                    entries.all(|entry| entry.is_ok_and(|entry| entry.file_name() == "lost+found"))
                }
                Err(error) => error.kind() == ErrorKind::NotFound,
            };
            return Ok(Self { path: path.to_owned(), is_new, temporary: None });
        }
        let folder = Temporary::new().map_err(failed("creating a temporary directory"))?;
        Ok(Self { path: folder.0.path().join("store"), is_new: true, temporary: Some(folder) })
    }

    /// Its file system.
    pub fn description(&self) -> String {
        let kind = if self.temporary.is_some() { "temporary store on " } else { "" };
        format!("{kind}{}", machine::file_system(&self.path))
    }
}

/// The room that a load needs.
pub struct Room {
    /// Number of units to load.
    pub number: u64,
    /// Name of one unit, as `warehouse`.
    pub unit: &'static str,
    /// Approximate bytes of the data file after loading.
    pub data: u64,
    /// Approximate bytes of log that loading writes; checkpoints remove it.
    pub log: u64,
}

/// Bytes of log of a new store: two segments of the largest size.
const FIRST_LOG: u64 = 32 << 20;

impl Room {
    /// Least bytes of the data file for `data_bytes` bytes of keys and values: pages are not full.
    pub fn of_data(data_bytes: u64) -> u64 {
        data_bytes.saturating_add(data_bytes / 4)
    }

    /// Refuses a load for which the device has no room.
    fn check(&self, home: &Home, run: &RunFlags) -> Result<(), Exit> {
        if run.io.is_volatile() {
            return Ok(());
        }
        let log = match run.log {
            OnOff::On => run.log_limit().min(self.log.max(FIRST_LOG)),
            OnOff::Off => 0,
        };
        let path = &home.path;
        let free = machine::free_bytes(path)
            .map_err(failed(format_args!("asking for the free space at {}", path.display())))?;
        if self.data.saturating_add(log) <= free {
            return Ok(());
        }
        Err(Exit::Usage(format!(
            "loading {} takes about {} and up to {} of log, but only {} are free at {}; give \
             fewer {} or another --db",
            plural(self.number, self.unit),
            bytes(self.data),
            bytes(log),
            bytes(free),
            path.display(),
            many(self.unit)
        )))
    }
}

/// The files that a run writes while it runs. They are created before the long work, so that a
/// wrong path is reported at once.
pub struct Outputs {
    /// The file of `--samples`.
    pub samples: Option<SampleFile>,
    /// The file of `--record-trace`.
    pub trace: Option<TraceFile>,
}

impl Outputs {
    /// Creates them, and the file of `--report`.
    fn create(run: &RunFlags, recording: &Recording) -> Result<Self, Exit> {
        let refused = |flag: &str, path: &Path, error| {
            Exit::Usage(format!("{flag} {} cannot be created: {error}", path.display()))
        };
        if let Some(path) = &run.report {
            File::create(path).map_err(|error| refused("--report", path, error))?;
        }
        let create = |path: &PathBuf| {
            SampleFile::create(path).map_err(|error| refused("--samples", path, error))
        };
        let samples = run.samples.as_ref().map(create).transpose()?;
        Ok(Self { samples, trace: recording.create()? })
    }
}

/// The state before a run begins.
pub struct Stage<'a> {
    home: &'a Home,
    run: &'a RunFlags,
    room: Room,
    recording: &'a Recording,
    outputs: Option<Outputs>,
}

impl<'a> Stage<'a> {
    /// Before the store is opened: if the store will be new, checks the room and creates the output
    /// files, so that a refusal leaves no store. Otherwise [`Stage::outputs`] does that
    /// after the store was recognised, so that a wrong store does not cost the files of an earlier
    /// run.
    pub fn set(
        home: &'a Home,
        run: &'a RunFlags,
        room: Room,
        recording: &'a Recording,
    ) -> Result<Self, Exit> {
        let mut stage = Self { home, run, room, recording, outputs: None };
        if home.is_new {
            stage.room.check(home, run)?;
            stage.outputs = Some(Outputs::create(run, recording)?);
        }
        Ok(stage)
    }

    /// After the store was opened. `has_data`: the data need not be loaded.
    pub fn outputs(self, has_data: bool) -> Result<Outputs, Exit> {
        if let Some(outputs) = self.outputs {
            return Ok(outputs);
        }
        if !has_data {
            self.room.check(self.home, self.run)?;
        }
        Outputs::create(self.run, self.recording)
    }
}

/// Writes the page and prints the report.
pub fn deliver(report: &Report, flags: &RunFlags, out: &mut dyn Write) -> Result<(), Exit> {
    let page = match &flags.report {
        Some(path) => std::fs::write(path, report::html::report(report))
            .map_err(failed(format_args!("writing {}", path.display()))),
        None => Ok(()),
    };
    let text = match flags.format {
        Format::Json => report.json() + "\n",
        Format::Text => report::text::report(report),
    };
    print_to(out, &text)?;
    page?;
    match &report.error {
        Some(error) => Err(Exit::Failed(error.clone())),
        // A wrong answer counts as such even in a run that was interrupted.
        None if report.run.interrupted && !report.check.found_something() => {
            Err(Exit::Interrupted("interrupted: these are the results so far".to_owned()))
        }
        None if !report.succeeded() => Err(Exit::Reported),
        None => Ok(()),
    }
}
