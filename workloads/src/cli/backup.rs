//! `wattle backup` and `wattle restore`: copies of a store that is not open elsewhere.

use std::path::{Path, PathBuf};

use clap::Args;
use wattle::Engine;

use super::common::StoreFlags;
use super::exit::{Exit, ended, failed, print};
use crate::driver::control::Interrupt;
use crate::report::figures::{bytes, plural};

/// Flags of `backup`.
#[derive(Args, Debug)]
#[command(after_help = "A store that a process has open is backed up by that process: \
    Engine::backup, without an interruption of its work.")]
pub struct BackupFlags {
    /// The store. Nothing in it is changed.
    #[command(flatten)]
    pub store: StoreFlags,

    /// Directory of the backup, which must not exist or be empty.
    #[arg(value_name = "BACKUP")]
    pub target: PathBuf,
}

/// Flags of `restore`.
#[derive(Args, Debug)]
pub struct RestoreFlags {
    /// The backup. It is checked, and nothing in it is changed.
    #[command(flatten)]
    pub store: StoreFlags,

    /// Directory of the restored store, which must not exist or be empty.
    #[arg(value_name = "TARGET")]
    pub target: PathBuf,
}

/// Copies a store.
pub fn backup(flags: &BackupFlags, interrupt: &Interrupt) -> Result<(), Exit> {
    let engine = flags.store.open_read_only(interrupt)?;
    let copied = copy(&engine, &flags.target, "backed up");
    copied.and(engine.close().map_err(failed("closing the store")))
}

/// Checks a backup and copies it to the place of a new store.
pub fn restore(flags: &RestoreFlags, interrupt: &Interrupt) -> Result<(), Exit> {
    let engine = flags.store.open_read_only(interrupt)?;
    let restored = checked(&engine, &flags.store.path, interrupt)
        .and_then(|()| copy(&engine, &flags.target, "restored"));
    restored.and(engine.close().map_err(failed("closing the backup")))
}

fn checked(engine: &Engine, path: &Path, interrupt: &Interrupt) -> Result<(), Exit> {
    let report = engine.verify_until(interrupt.flag(), &mut |_| {});
    let report = report.map_err(ended("checking the backup"))?;
    match report.problems.first() {
        None => Ok(()),
        Some(problem) => Err(Exit::Failed(format!(
            "{} is damaged and was not restored: {problem}{}",
            path.display(),
            match report.problems.len() {
                1 => String::new(),
                problems => format!(", and {} more; wattle verify lists them", problems - 1),
            }
        ))),
    }
}

fn copy(engine: &Engine, target: &Path, done: &str) -> Result<(), Exit> {
    let report = engine
        .backup(target)
        .map_err(failed(format!("copying the store to {}", target.display())))?;
    print(&format!(
        "{done} {} and {} of log to {}\n",
        plural(report.pages, "page"),
        bytes(report.log_bytes),
        target.display()
    ))
}
