//! Flags that several subcommands share.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;
use wattle::{Engine, FlushPolicy, IoKind, Options, PageImages as EngineImages, PageTrace};

use super::exit::{Exit, not_opened};
use super::io_backend::IoBackend;
use super::write_back::WriteBackFlags;
use super::{log_policy, units};
use crate::adapter::backend::Wattle;
use crate::driver::control::Interrupt;
use crate::driver::crew::Crew;
use crate::driver::measure::Length;
use crate::driver::options::{Durability, Reads, StoreOptions};
use crate::machine;

const MAX_THREADS: u64 = 1024;
const MAX_TASKS: u64 = 4096;
const MAX_IN_FLIGHT: usize = 1 << 16;
const MAX_EVICTORS: u64 = 256;

/// Flags of every subcommand that runs a workload.
#[derive(Args, Clone, Debug)]
pub struct RunFlags {
    /// Directory of the store. If it has the right data they are not loaded again. Default: a new
    /// temporary directory that is removed at the end.
    #[arg(long, value_name = "PATH")]
    pub db: Option<PathBuf>,

    /// Size of the buffer pool, in bytes or with KiB, MiB or GiB; at most the memory of the
    /// machine.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = units::pool_size)]
    pub pool: u64,

    /// Worker threads, 1 to 1024. Default: all cores.
    #[arg(long, value_name = "N", value_parser = units::count(1..=MAX_THREADS))]
    pub threads: Option<u64>,

    /// Operations in flight on each thread, as tasks of an asynchronous runtime, up to 4096; 0 for
    /// blocking sessions.
    #[arg(long, value_name = "N", default_value_t = 0,
        value_parser = units::count(..=MAX_TASKS))]
    pub tasks: u64,

    /// Bind each worker thread to a core; cores that take most interrupts of devices are used last.
    /// `auto` binds them if there are fewer workers than cores. Not bound, the kernel may move a
    /// worker away from its cache when a flush or an evictor needs its core.
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_value_t = Pin::Off,
        default_missing_value = "on")]
    pub pin: Pin,

    /// Length of the measured part, with ms, s or m. Default: 10s.
    #[arg(long, value_name = "TIME", value_parser = units::some_time,
        conflicts_with = "operations")]
    pub duration: Option<Duration>,

    /// Length of the measured part as a number of operations of all threads together.
    #[arg(long, value_name = "N", value_parser = units::count(1..))]
    pub operations: Option<u64>,

    /// Length of the run before the measured part, with ms, s or m.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = units::time)]
    pub warmup: Duration,

    /// When an operation ends: sync, when its commit is durable; group, the same, but the worker
    /// starts further operations meanwhile; none, without waiting for durability. Default: group;
    /// then a short run with sync follows, for comparison, unless --operations is given.
    #[arg(long, value_enum, hide_possible_values = true)]
    pub durability: Option<Durability>,

    /// Commits that auto-committed reads and read-only transactions see: newest, every commit, and
    /// a read-only transaction ends when these are durable; durable, durable commits and those of
    /// its own session. Default: newest for ycsb and with --durability group, otherwise durable.
    #[arg(long, value_enum, hide_possible_values = true)]
    pub reads: Option<Reads>,

    /// Whether there is a write-ahead log. Off is for experiments: a crash loses the store.
    #[arg(long, value_enum, default_value_t = OnOff::On)]
    pub log: OnOff,

    /// Bytes of log that checkpoints aim to stay below, with KiB, MiB or GiB. Default: four times
    /// the pool, 1 to 16 GiB.
    #[arg(long, value_name = "SIZE", value_parser = units::some_size)]
    log_limit: Option<u64>,

    /// The form in which the log has a page that is changed for the first time since a checkpoint:
    /// plain, or compressed where that saves an eighth.
    #[arg(long, value_enum, default_value_t = PageImages::Plain)]
    pub page_images: PageImages,

    /// Tuned figures of the log's threads, for experiments, as key=value,key=value.
    #[arg(long, hide = true, value_name = "FIGURES", value_parser = log_policy::parse)]
    log_policy: Option<FlushPolicy>,

    /// Page replacement policy, with its parameters as NAME:key=value,key=value; help lists them.
    #[arg(long, value_name = "NAME", default_value = "watt")]
    pub policy: String,

    /// Whether inner pages name the frames of their children. Off: every hop from parent to child
    /// looks in a page table; for experiments.
    #[arg(long, value_enum, default_value_t = OnOff::On)]
    pub swizzling: OnOff,

    /// Whether a full leaf gives records to a neighbour in memory that has room, before it is
    /// split.
    #[arg(long, value_enum, default_value_t = OnOff::On)]
    pub redistribution: OnOff,

    /// Whether the pages that were in memory when the store of --db was closed are read again in
    /// the background, and listed for the next time.
    #[arg(long, value_enum, default_value_t = OnOff::On)]
    pub warm_start: OnOff,

    /// Background evictor threads, 1 to 256. Default: one for every 8 cores, at least 1.
    #[arg(long, value_name = "N", value_parser = units::count(1..=MAX_EVICTORS))]
    pub evictors: Option<u64>,

    /// Storage back end: uring; threads; memory, where nothing is stored; or sim, which is memory
    /// that takes as long as a device, with sim:read_us=100,asymmetry=2.8,kr=80,kw=8.
    #[arg(long, value_name = "BACK-END", default_value = "uring", value_parser = IoBackend::parse)]
    pub io: IoBackend,

    /// Flags of write-back.
    #[command(flatten)]
    pub write_back: WriteBackFlags,

    /// Seed of all random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Format of the result; json prints one object on standard output and nothing else there.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,

    /// CSV file with one row for each second: throughput, faults, pages written, evictions,
    /// latency.
    #[arg(long, value_name = "FILE.csv")]
    pub samples: Option<PathBuf>,

    /// HTML file with the settings, the results and plots of the samples.
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,

    /// File for the page accesses of warm-up and measured part, in order, as lines
    /// page,R,leaf,0,tree or page,W,inner,level,tree, which simulate reads. If its name ends in
    /// .zst it is compressed.
    #[arg(long, value_name = "FILE")]
    pub record_trace: Option<PathBuf>,
}

/// Whether workers are bound to cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pin {
    /// If there are fewer workers than cores.
    Auto,
    /// Yes.
    On,
    /// No.
    Off,
}

/// A switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnOff {
    /// On.
    On,
    /// Off.
    Off,
}

impl OnOff {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            OnOff::On => "on",
            OnOff::Off => "off",
        }
    }
}

/// The form of page images in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PageImages {
    /// As they are.
    Plain,
    /// Compressed, where that saves an eighth.
    Compressed,
}

impl From<PageImages> for EngineImages {
    fn from(images: PageImages) -> EngineImages {
        match images {
            PageImages::Compressed => EngineImages::Compressed,
            PageImages::Plain => EngineImages::Plain,
        }
    }
}

/// The format of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Text to read.
    Text,
    /// One JSON object.
    Json,
}

impl RunFlags {
    /// Refuses values that do not go together.
    pub fn check(&self) -> Result<(), Exit> {
        if self.log_limit() < wattle::MIN_LOG_BYTES {
            return Err(Exit::Usage(format!(
                "--log-limit {} is too small; at least {} bytes (2 MiB) are accepted",
                self.log_limit(),
                wattle::MIN_LOG_BYTES
            )));
        }
        if self.db.is_some() && self.io.is_volatile() {
            return Err(Exit::Usage(
                "--db goes with --io uring or threads; --io memory and sim store nothing"
                    .to_owned(),
            ));
        }
        let outputs = [
            ("--samples", &self.samples),
            ("--report", &self.report),
            ("--record-trace", &self.record_trace),
        ];
        let outputs = outputs.into_iter().filter_map(|(flag, path)| Some((flag, path.as_deref()?)));
        check_outputs(outputs, &[], self.db.as_deref())?;
        let crew = self.crew();
        if crew.workers() > MAX_IN_FLIGHT {
            return Err(Exit::Usage(format!(
                "--threads {} with --tasks {} are {} operations in flight; at most {MAX_IN_FLIGHT} \
                 are accepted",
                crew.threads,
                crew.tasks,
                crew.workers()
            )));
        }
        Ok(())
    }

    /// Bytes of log that checkpoints aim to stay below.
    pub fn log_limit(&self) -> u64 {
        self.log_limit.unwrap_or_else(|| wattle::default_log_bytes(self.pool))
    }

    /// The workers.
    pub fn crew(&self) -> Crew {
        let threads = self.threads.map_or_else(machine::cores, |threads| threads as usize);
        let pinned = match self.pin {
            Pin::Auto => threads < machine::cores(),
            Pin::On => true,
            Pin::Off => false,
        };
        Crew { threads, tasks: self.tasks as usize, pinned }
    }

    /// The length of the measured part.
    pub fn length(&self) -> Length {
        match self.operations {
            Some(operations) => Length::Operations(operations),
            None => Length::Time(self.duration.unwrap_or(Duration::from_secs(10))),
        }
    }

    /// When an operation ends.
    pub fn durability(&self) -> Durability {
        self.durability.unwrap_or(Durability::Group)
    }

    /// The length of the run with `sync` for comparison, if there is one: a fifth of the run.
    pub fn sync_length(&self) -> Option<Duration> {
        let asked = self.durability.is_some() || self.operations.is_some();
        let durable = !self.io.is_volatile() && self.log == OnOff::On;
        match self.length() {
            Length::Time(time) if !asked && durable => Some(time / 5),
            _ => None,
        }
    }

    /// Commits that reads outside of read-write transactions see. `in_transactions`: the workload
    /// consists of transactions of several calls.
    pub fn reads(&self, in_transactions: bool) -> Reads {
        let durable = in_transactions && self.durability() != Durability::Group;
        self.reads.unwrap_or(if durable { Reads::Durable } else { Reads::Newest })
    }

    /// How to open a store at `path` that keeps `tables` tables open.
    pub fn store_options(&self, path: &Path, tables: usize, reads: Reads) -> StoreOptions {
        let crew = self.crew();
        StoreOptions {
            path: path.to_owned(),
            memory_bytes: self.pool,
            durability: self.durability(),
            log: self.log == OnOff::On,
            log_limit: self.log_limit(),
            reads,
            threads: crew.threads,
            tasks: crew.tasks,
            tables,
        }
    }

    /// Wattle with the settings that only it has. It records page accesses in `trace`.
    pub fn wattle(&self, trace: Option<PageTrace>, interrupt: &Interrupt) -> Wattle {
        Wattle {
            policy: self.policy.clone(),
            swizzling: self.swizzling == OnOff::On,
            redistribution: self.redistribution == OnOff::On,
            warm_start: self.warm_start == OnOff::On,
            evictors: self.evictor_threads(),
            write_back: self.write_back.into(),
            page_images: self.page_images.into(),
            log_policy: self.log_policy.unwrap_or_default(),
            io: self.io.into(),
            trace,
            interrupt: interrupt.flag().clone(),
        }
    }

    fn evictor_threads(&self) -> usize {
        self.evictors.map_or_else(|| (machine::cores() / 8).max(1), |evictors| evictors as usize)
    }

    /// The values of all flags, for the report; `in_transactions` as in [`RunFlags::reads`].
    pub fn settings(&self, in_transactions: bool) -> RunSettings {
        let crew = self.crew();
        let (duration, operations) = match self.length() {
            Length::Time(time) => (Some(time.as_secs_f64()), None),
            Length::Operations(operations) => (None, Some(operations)),
        };
        RunSettings {
            db: self.db.as_ref().map(|path| path.display().to_string()),
            pool: self.pool,
            threads: crew.threads,
            tasks: crew.tasks,
            pin: crew.pinned,
            duration,
            operations,
            warmup: self.warmup.as_secs_f64(),
            durability: self.durability(),
            reads: self.reads(in_transactions),
            log: self.log,
            log_limit: self.log_limit(),
            page_images: self.page_images,
            policy: self.policy.clone(),
            swizzling: self.swizzling,
            redistribution: self.redistribution,
            warm_start: self.warm_start,
            evictors: self.evictor_threads(),
            io: self.io,
            write_back: self.write_back,
            seed: self.seed,
            format: self.format,
            samples: self.samples.as_ref().map(|path| path.display().to_string()),
            report: self.report.as_ref().map(|path| path.display().to_string()),
            record_trace: self.record_trace.as_ref().map(|path| path.display().to_string()),
        }
    }
}

/// Refuses outputs that would overwrite the store, an input or each other. Each file comes with the
/// flag that names it.
pub fn check_outputs<'a>(
    outputs: impl IntoIterator<Item = (&'static str, &'a Path)>,
    inputs: &[(&'static str, &Path)],
    store: Option<&Path>,
) -> Result<(), Exit> {
    let store = store.map(resolved);
    let mut seen: Vec<_> = inputs.iter().map(|(flag, path)| (*flag, Place::of(path))).collect();
    for (flag, path) in outputs {
        let (shown, place) = (path.display(), Place::of(path));
        if store.as_ref().is_some_and(|store| place.path.starts_with(store)) {
            return Err(Exit::Usage(format!(
                "{flag} {shown} is in the directory of the store; give a path outside of --db"
            )));
        }
        if let Some((other, _)) = seen.iter().find(|(_, other)| other.is_file_of(&place)) {
            return Err(Exit::Usage(format!(
                "{other} and {flag} are both {shown}; give a file of its own to each"
            )));
        }
        seen.push((flag, place));
    }
    Ok(())
}

/// The file or directory that a path names.
struct Place {
    /// The path without links and relative parts.
    path: PathBuf,
    /// Its metadata, if it exists.
    found: Option<Metadata>,
}

impl Place {
    fn of(path: &Path) -> Self {
        let path = resolved(path);
        let found = std::fs::metadata(&path).ok();
        Self { path, found }
    }

    /// Whether both are one file. A device, such as /dev/null, may take several outputs.
    fn is_file_of(&self, other: &Self) -> bool {
        let number = |found: &Metadata| (found.dev(), found.ino());
        match (&self.found, &other.found) {
            (Some(this), Some(other)) => this.is_file() && number(this) == number(other),
            (None, None) => self.path == other.path,
            _ => false,
        }
    }
}

/// The path without relative parts, and without links as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let there = |part: &Path| Some((std::fs::canonicalize(part).ok()?, part.to_owned()));
    match absolute.ancestors().find_map(there) {
        Some((real, part)) => match absolute.strip_prefix(part) {
            Ok(rest) if rest.as_os_str().is_empty() => real,
            Ok(rest) => real.join(rest),
            Err(_) => absolute,
        },
        None => absolute,
    }
}

/// The values of [`RunFlags`].
#[derive(Debug, Serialize)]
pub struct RunSettings {
    db: Option<String>,
    pool: u64,
    threads: usize,
    tasks: usize,
    pin: bool,
    duration: Option<f64>,
    operations: Option<u64>,
    warmup: f64,
    durability: Durability,
    reads: Reads,
    log: OnOff,
    log_limit: u64,
    page_images: PageImages,
    policy: String,
    swizzling: OnOff,
    redistribution: OnOff,
    warm_start: OnOff,
    evictors: usize,
    io: IoBackend,
    #[serde(flatten)]
    write_back: WriteBackFlags,
    seed: u64,
    format: Format,
    samples: Option<String>,
    report: Option<String>,
    record_trace: Option<String>,
}

/// The store of a subcommand that runs no workload.
#[derive(Args, Clone, Debug)]
pub struct StoreFlags {
    /// Directory of the store.
    #[arg(value_name = "PATH")]
    pub path: PathBuf,

    /// Size of the buffer pool, in bytes or with KiB, MiB or GiB; at most the memory of the
    /// machine.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = units::pool_size)]
    pub pool: u64,

    /// Storage back end.
    #[arg(long, value_enum, default_value_t = FileBackend::Uring)]
    pub io: FileBackend,
}

/// Storage back ends that store data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FileBackend {
    /// io_uring with direct I/O.
    Uring,
    /// Blocking reads and writes, for systems without io_uring.
    Threads,
    /// As uring, but pages go through the page cache of the system.
    Buffered,
}

impl From<FileBackend> for IoKind {
    fn from(backend: FileBackend) -> Self {
        match backend {
            FileBackend::Uring => IoKind::Uring,
            FileBackend::Threads => IoKind::Threads,
            FileBackend::Buffered => IoKind::Buffered,
        }
    }
}

/// Opens a store; the user may interrupt that.
pub fn open(path: &Path, options: Options, interrupt: &Interrupt) -> Result<Engine, Exit> {
    let options = options.interrupted_by(interrupt.flag().clone());
    Engine::open(path, options).map_err(not_opened)
}

impl StoreFlags {
    /// Opens the store, which is created if it is absent.
    pub fn open(&self, interrupt: &Interrupt) -> Result<Engine, Exit> {
        open(&self.path, self.options(), interrupt)
    }

    /// Opens an existing store to change it.
    pub fn open_existing(&self, interrupt: &Interrupt) -> Result<Engine, Exit> {
        open(&self.path, self.options().create(false), interrupt)
    }

    /// Opens an existing store, and changes nothing in it.
    pub fn open_read_only(&self, interrupt: &Interrupt) -> Result<Engine, Exit> {
        open(&self.path, self.options().read_only(true), interrupt)
    }

    /// The list of pages for a warm start stays that of the program that the store is for.
    fn options(&self) -> Options {
        Options::default().pool_bytes(self.pool).io(self.io.into()).warm_start(false)
    }
}
