//! `wattle tpcb` and `wattle tatp`, from opening the store to the report, and their checks of a store.

use std::io::Write;
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value};
use wattle::Options;

use super::common::{IoBackend, RunFlags};
use super::exit::{Exit, failed};
use super::live::Live;
use super::record::Recording;
use super::stage::{Home, Outputs, Room, Stage, deliver};
use crate::bench::load::{self, LoadEnd};
use crate::bench::meta::{self, Found, Meta};
use crate::bench::{Benchmark, Running};
use crate::driver::control::Interrupt;
use crate::driver::crew::at_once;
use crate::driver::failure::Failure;
use crate::driver::measure::{self, Measurement, Plan};
use crate::driver::store::Store;
use crate::machine::{self, Machine};
use crate::report::figures::{count, plural};
use crate::report::{
    CheckReport, Condition, Details, LoadReport, LogReport, ProcessReport, Report, RunReport,
};

/// What to run.
pub struct Job<'a, B> {
    /// The benchmark.
    pub bench: &'a B,
    /// Flags that all workloads share.
    pub run: &'a RunFlags,
    /// Check before and after the run.
    pub check: bool,
    /// All flags, for the report.
    pub settings: Map<String, Value>,
    /// The command line, for the report.
    pub command: String,
}

/// Runs `job` on the store that `open` opens and writes the result to `out`.
pub fn run<S: Store, B: Benchmark>(
    job: Job<'_, B>,
    interrupt: &Interrupt,
    out: &mut dyn Write,
    open: impl FnOnce(&Path, Options) -> Result<S, Exit>,
) -> Result<(), Exit> {
    let home = Home::new(job.run.db.as_deref())?;
    let recording = Recording::new(job.run);
    let stage = Stage::set(&home, job.run, room(job.bench), &recording)?;
    let store = open(&home.path, recording.options(job.run.transaction_options()))?;
    let session = Session { job: &job, home: &home, store: &store, interrupt };
    let (load, measurement, conditions) = match session.load_and_measure(stage, &recording) {
        Ok(done) => done,
        Err(exit) => {
            // The first failure says more than what closing the store may add to it.
            let _closed = store.close();
            return Err(exit);
        }
    };
    let closed = store.close();
    let error = match (&measurement.failure, closed) {
        (Some(failure), _) => Some(failure.to_string()),
        (None, Err(error)) => Some(format!("closing the store: {error}")),
        (None, Ok(())) => None,
    };
    let Job { run, settings, command, .. } = job;
    let report = Report {
        subcommand: B::NAME,
        command,
        settings,
        machine: Machine::this(),
        load,
        run: RunReport::of(&measurement),
        buffer: measurement.counters,
        log: LogReport::of(&measurement.counters),
        process: ProcessReport {
            peak_rss_bytes: machine::peak_rss_bytes(),
            user_seconds: measurement.cpu.user_seconds,
            system_seconds: measurement.cpu.system_seconds,
        },
        check: CheckReport { passed: conditions.iter().all(|one| one.passed), conditions },
        error,
        details: Details { samples: measurement.samples, latencies: measurement.latencies },
    };
    deliver(&report, run, out)
}

/// What the load takes.
fn room<B: Benchmark>(bench: &B) -> Room {
    let (_, data_bytes) = bench.loaded();
    Room { number: bench.size(), unit: B::UNIT, data: Room::of_data(data_bytes), log: data_bytes }
}

/// Checks the data of `B` in `store`, which is at `path` and must have them.
pub fn check_store<B: Benchmark, S: Store>(
    store: &S,
    path: &Path,
    interrupt: &Interrupt,
) -> Result<CheckReport, Exit> {
    let sentence = match meta::find::<B, S>(store).map_err(failed("reading the store"))? {
        Found::Data(meta) => {
            let bench = B::with_size(meta.size);
            let tables = meta::tables::<B, S>(store).map_err(failed("opening the tables"))?;
            let session = store.session().map_err(failed("checking the data"))?;
            let conditions = match at_once(bench.check(&tables, &session, interrupt)) {
                Ok(conditions) => conditions,
                Err(Failure::Interrupted) => {
                    return Err(Exit::Interrupted("interrupted while checking".to_owned()));
                }
                Err(failure) => return Err(failed("checking the data")(failure)),
            };
            let passed = conditions.iter().all(|one| one.passed);
            return Ok(CheckReport { passed, conditions });
        }
        Found::Nothing => format!("holds no {} data", B::TITLE),
        Found::Unusable(sentence) => sentence,
    };
    Err(Exit::Usage(format!("the store at {} {sentence}", path.display())))
}

/// A run on an open store.
struct Session<'a, B, S> {
    job: &'a Job<'a, B>,
    home: &'a Home,
    store: &'a S,
    interrupt: &'a Interrupt,
}

impl<B: Benchmark, S: Store> Session<'_, B, S> {
    fn load_and_measure(
        &self,
        stage: Stage<'_>,
        recording: &Recording,
    ) -> Result<(LoadReport, Measurement, Vec<Condition>), Exit> {
        let (bench, run) = (self.job.bench, self.job.run);
        let found = self.find()?;
        let reused = found.is_some();
        let Outputs { samples, trace } = stage.outputs(reused)?;
        let mut live = Live::new(run.format, samples);
        let (mut meta, seconds) = match found {
            Some(meta) => (meta, 0.0),
            None => self.load()?,
        };
        let tables = meta::tables::<B, S>(self.store).map_err(failed("opening the tables"))?;
        let (records, data_bytes) = bench.loaded();
        let load = LoadReport {
            seconds,
            records,
            data_bytes,
            file_bytes: self.store.file_bytes(),
            reused,
            file_system: match run.io {
                IoBackend::Memory => "memory".to_owned(),
                _ => self.home.description(),
            },
        };
        let mut conditions = self.check("before the run")?;

        let running = Running { bench, tables: &tables, run: meta.runs };
        // Before anything else, so that no other run has the same number, however this one ends.
        meta.runs += 1;
        self.describe(&meta)?;
        let plan = Plan {
            crew: run.crew(),
            warm_up: run.warmup,
            length: run.length(),
            kinds: B::KINDS.to_vec(),
        };
        let mut observer = |sample: &_| live.show(sample);
        let measurement = recording.during(trace, &mut observer, |observer| {
            measure::run(self.store, &running, &plan, self.interrupt, observer)
        })?;
        let wrong = measurement.failure.as_ref().is_some_and(|failure| failure.is_wrong_answer());
        let name = "every row asked for was there and as it was written".to_owned();
        conditions.push(Condition { name, passed: !wrong, detail: None });
        // The results of the run are there all the same.
        match self.check("after the run") {
            Ok(checked) => conditions.extend(checked),
            Err(Exit::Failed(why) | Exit::Interrupted(why)) => {
                conditions.push(Condition::not_checked("after the run", &why))
            }
            Err(exit) => return Err(exit),
        }
        Ok((load, measurement, conditions))
    }

    /// The data in the store, if there are any.
    fn find(&self) -> Result<Option<Meta>, Exit> {
        let wanted = self.job.bench.size();
        let (problem, advice) =
            match meta::find::<B, S>(self.store).map_err(failed("reading the store"))? {
                Found::Nothing => return Ok(None),
                Found::Data(meta) if meta.size == wanted => return Ok(Some(meta)),
                Found::Data(meta) => {
                    let problem = format!(
                        "holds {}, and not the {} asked for",
                        plural(meta.size, B::UNIT),
                        count(wanted)
                    );
                    (problem, "give another --db or the size it was loaded with")
                }
                Found::Unusable(sentence) => (sentence, "give another --db"),
            };
        Err(Exit::Usage(format!("the store at {} {problem}; {advice}", self.home.path.display())))
    }

    fn describe(&self, meta: &Meta) -> Result<(), Exit> {
        meta::write::<B, S>(meta, self.store).map_err(failed("describing the data"))
    }

    /// Loads all, and gives the description and the seconds that it took.
    fn load(&self) -> Result<(Meta, f64), Exit> {
        let bench = self.job.bench;
        // The description comes first, so that half a load is known as such.
        let mut meta = Meta { size: bench.size(), loaded: false, runs: 0 };
        self.describe(&meta)?;
        let tables = meta::tables::<B, S>(self.store).map_err(failed("opening the tables"))?;
        let style = ProgressStyle::with_template(
            "loading {bar:40} {human_pos} of {human_len}, {per_sec}, {eta} left",
        )
        .expect("the template is a constant that indicatif accepts");
        let progress = ProgressBar::new(bench.items()).with_style(style);
        let threads = self.job.run.crew().threads;
        let end = load::load(self.store, &tables, bench, threads, self.interrupt, &progress);
        progress.finish_and_clear();
        match end {
            LoadEnd::Loaded(time) => {
                meta.loaded = true;
                self.describe(&meta)?;
                Ok((meta, time.as_secs_f64()))
            }
            LoadEnd::Interrupted => Err(Exit::Interrupted("interrupted while loading".to_owned())),
            LoadEnd::Failed(failure) => Err(Exit::Failed(format!("loading: {failure}"))),
        }
    }

    /// The conditions, if they are asked for.
    fn check(&self, when: &str) -> Result<Vec<Condition>, Exit> {
        if !self.job.check {
            return Ok(Vec::new());
        }
        let named = |one: Condition| Condition { name: format!("{when}: {}", one.name), ..one };
        let check = check_store::<B, S>(self.store, &self.home.path, self.interrupt)?;
        Ok(check.conditions.into_iter().map(named).collect())
    }
}
