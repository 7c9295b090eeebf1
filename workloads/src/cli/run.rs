//! A run of a workload, from opening the store to the report: the same for every workload, on every
//! storage engine.
//!
//! 1. Check everything that can be checked without the store.
//! 2. Open the store and look for the data; load them if the store is empty.
//! 3. Check them, if asked to.
//! 4. Run the warm-up and the measured part.
//! 5. Check the data again, close the store, and deliver the report.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use crossbeam::channel::RecvTimeoutError;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value};

use super::common::{Format, OnOff, RunFlags};
use super::exit::{Exit, failed};
use super::live::Live;
use super::record::{Recording, TraceFile};
use super::stage::{Home, Outputs, Room, Stage, deliver};
use crate::driver::backend::Backend;
use crate::driver::control::{Interrupt, say};
use crate::driver::description::Found;
use crate::driver::load::LoadEnd;
use crate::driver::measure::{self, Length, Measurement, Plan, Workload};
use crate::driver::options::{Durability, Reads, StoreOptions};
use crate::driver::store::{Store, StoreResult};
use crate::machine::{self, Machine};
use crate::report::figures::rate;
use crate::report::{
    CheckReport, Condition, Details, LoadReport, ProcessReport, Program, Report, Rules, RunReport,
    SyncReport, TransactionReport,
};
use crate::tpcc::hints::Hints;

/// Time between two lines of progress where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// A workload with its data, as a subcommand runs it.
pub trait Scenario: Sync {
    /// The subcommand.
    const NAME: &'static str;
    /// Its name in sentences.
    const TITLE: &'static str;
    /// Advice for a user whose store holds data of another size.
    const ADVICE: &'static str;

    /// The open tables, and the description of the data in them.
    type Data<S: Store>;

    /// The room that loading needs.
    fn room(&self) -> Room;

    /// Tables, that of the description included.
    fn tables(&self) -> usize;

    /// Names of the kinds of operations.
    fn kinds(&self) -> Vec<&'static str>;

    /// Hints that the store gets.
    fn hints(&self) -> Hints {
        Hints::None
    }

    /// Whether Deliveries queue outside of the store.
    fn delivery_queue(&self) -> OnOff {
        OnOff::Off
    }

    /// Looks for the data in the store.
    fn find<S: Store>(&self, store: &S) -> StoreResult<Found<Self::Data<S>>>;

    /// Loads the data; returns also the seconds that it took.
    fn load<S: Store>(
        &self,
        store: &S,
        flags: &RunFlags,
        interrupt: &Interrupt,
    ) -> Result<(Self::Data<S>, f64), Exit>;

    /// Number of records, and bytes of their keys and values.
    fn size<S: Store>(&self, data: &Self::Data<S>) -> (u64, u64);

    /// Runs the workload by `measuring`. Only TPC-C returns a report of its transactions.
    fn measure<S: Store>(
        &self,
        store: &S,
        data: &mut Self::Data<S>,
        measuring: Measuring<'_>,
    ) -> Result<(Measurement, Option<TransactionReport>), Exit>;

    /// The condition that holds if no operation got a wrong answer.
    fn answers(&self) -> Option<&'static str>;

    /// Reads all data and checks them.
    fn check<S: Store>(
        &self,
        store: &S,
        data: &Self::Data<S>,
        when: When,
        interrupt: &Interrupt,
    ) -> Result<Vec<Condition>, Exit>;
}

/// When data are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Before the run, right after they were loaded.
    Loaded,
    /// Before a run on data that were there.
    Before,
    /// After the run.
    After,
}

/// The flags of a run besides those of the workload.
pub struct Request<'a> {
    /// Flags that all workloads share.
    pub flags: &'a RunFlags,
    /// Whether to check the data before and after the run.
    pub check: bool,
    /// Commits that reads outside of read-write transactions see.
    pub reads: Reads,
    /// The values of all flags, for the report.
    pub settings: Map<String, Value>,
    /// The command line, for the report.
    pub command: String,
}

/// The measured part of a run.
pub struct Measuring<'a> {
    plan: Plan,
    live: Live,
    recording: &'a Recording,
    trace: Option<TraceFile>,
    interrupt: &'a Interrupt,
}

impl<'a> Measuring<'a> {
    /// To run by `plan` without outputs.
    pub fn quiet(plan: Plan, recording: &'a Recording, interrupt: &'a Interrupt) -> Self {
        Self { plan, live: Live::new(Format::Json, None), recording, trace: None, interrupt }
    }

    /// Workers of the run.
    pub fn workers(&self) -> usize {
        self.plan.crew.workers()
    }

    /// Runs `workload`.
    pub fn run<S, W>(mut self, store: &S, workload: &W) -> Result<Measurement, Exit>
    where
        S: Store,
        W: Workload<S::Session> + Workload<S::Task>,
    {
        let mut observer = |sample: &_| self.live.show(sample);
        self.recording.during(self.trace, &mut observer, |observer| {
            let on_phase = |phase| self.recording.enter(phase);
            measure::run(store, workload, &self.plan, self.interrupt, observer, &on_phase)
        })
    }
}

/// Runs `scenario` on the store that `backend` opens, and writes the result to `out`.
pub fn run<B: Backend, W: Scenario>(
    scenario: &W,
    request: Request<'_>,
    backend: &B,
    recording: &Recording,
    interrupt: &Interrupt,
    out: &mut dyn Write,
) -> Result<(), Exit> {
    let flags = request.flags;
    flags.check()?;
    let home = Home::new(flags.db.as_deref())?;
    let options = flags.store_options(&home.path, scenario.tables(), request.reads);
    backend.check(&options)?;
    let stage = Stage::set(&home, flags, scenario.room(), recording)?;
    let store = backend.open(&options)?;
    let device = super::probe::kept(&home.path);
    let session = Session { scenario, request: &request, home: &home, store: &store, interrupt };
    let finished = match session.load_and_measure(stage, recording) {
        Ok(finished) => finished,
        Err(exit) => {
            // The first failure says more than an error from closing the store.
            let _closed = store.close();
            return Err(exit);
        }
    };
    let closed = store.close();
    let peak_rss_bytes = machine::peak_rss_bytes();
    let complete = finished.measurement.failure.is_none() && !finished.measurement.interrupted;
    let sync = match flags.sync_length().filter(|_| complete && closed.is_ok()) {
        Some(length) => {
            let options = StoreOptions { durability: Durability::Sync, ..options.clone() };
            run_with_sync(scenario, flags, length, (backend, &options), interrupt)?
        }
        None => None,
    };

    let Finished { load, measurement, transactions, check } = finished;
    let error = match (&measurement.failure, closed) {
        (Some(failure), _) => Some(failure.to_string()),
        (None, Err(error)) => Some(format!("closing the store: {error}")),
        (None, Ok(())) => None,
    };
    let report = Report {
        subcommand: W::NAME,
        command: request.command,
        settings: request.settings,
        rules: Rules {
            engine: B::NAME,
            isolation: B::ISOLATION,
            durability: options.durability.name(),
            reads: options.reads.name(),
            hints: scenario.hints().name(),
            delivery_queue: scenario.delivery_queue().name(),
            pin: flags.crew().pinned,
        },
        program: Program::this(),
        machine: Machine::this(),
        device,
        load,
        run: RunReport { transactions, ..RunReport::of(&measurement) },
        buffer: measurement.counters.buffer,
        log: measurement.counters.log,
        process: ProcessReport {
            peak_rss_bytes,
            user_seconds: measurement.cpu.user_seconds,
            system_seconds: measurement.cpu.system_seconds,
            instructions: measurement.instructions,
        },
        check,
        sync,
        error,
        details: Details { samples: measurement.samples, latencies: measurement.latencies },
    };
    deliver(&report, flags, out)
}

/// Runs `scenario` once more, for `length`, on a store in which each operation waits for its own
/// commit. Nothing if the data can no longer be used, or the user interrupts it.
fn run_with_sync<B: Backend, W: Scenario>(
    scenario: &W,
    flags: &RunFlags,
    length: Duration,
    (backend, options): (&B, &StoreOptions),
    interrupt: &Interrupt,
) -> Result<Option<SyncReport>, Exit> {
    say(format_args!("run with --durability sync for {:.1} s", length.as_secs_f64()));
    let store = backend.open(options)?;
    let Found::Data(mut data) = scenario.find(&store).map_err(failed("reading the store"))? else {
        return Ok(None);
    };
    let plan = Plan {
        crew: flags.crew(),
        warm_up: Duration::ZERO,
        length: Length::Time(length),
        kinds: scenario.kinds(),
    };
    let (live, recording) = (Live::none(), &Recording::none());
    let measuring = Measuring { plan, live, recording, trace: None, interrupt };
    let (measurement, _) = scenario.measure(&store, &mut data, measuring)?;
    store.close().map_err(failed("closing the store"))?;
    if let Some(failure) = measurement.failure {
        return Err(Exit::Failed(format!("the run with --durability sync: {failure}")));
    }
    let run = RunReport::of(&measurement);
    Ok((!measurement.interrupted).then_some(SyncReport {
        seconds: run.seconds,
        throughput: run.throughput,
        sync_us: measurement.counters.log.sync_us,
    }))
}

/// Checks the data of `scenario` in an open store, which must have them: `wattle verify`.
pub fn check_store<W: Scenario, S: Store>(
    scenario: &W,
    store: &S,
    path: &Path,
    interrupt: &Interrupt,
) -> Result<CheckReport, Exit> {
    let sentence = match scenario.find(store).map_err(failed("reading the store"))? {
        Found::Data(data) => {
            let conditions = scenario.check(store, &data, When::Before, interrupt)?;
            let passed = conditions.iter().all(|one| one.passed);
            return Ok(CheckReport { passed, conditions });
        }
        Found::Nothing => format!("holds no {} data", W::TITLE),
        Found::OtherSize(sentence) | Found::Unusable(sentence) => sentence,
    };
    Err(unusable(path, &sentence))
}

fn unusable(path: &Path, sentence: &str) -> Exit {
    Exit::Usage(format!("the store at {} {sentence}", path.display()))
}

/// Runs `load` with a progress bar of `items` steps whose text is `template`; returns its result.
pub fn loaded<T>(
    template: &str,
    items: u64,
    load: impl FnOnce(&ProgressBar) -> LoadEnd<T>,
) -> Result<T, Exit> {
    let progress = progress(template, items);
    let end = with_lines(&progress, "loading", || load(&progress));
    progress.finish_and_clear();
    match end {
        LoadEnd::Loaded(loaded) => Ok(loaded),
        LoadEnd::Interrupted => Err(Exit::Interrupted("interrupted while loading".to_owned())),
        LoadEnd::Failed(failure) => Err(Exit::Failed(format!("loading: {failure}"))),
    }
}

/// Runs `work`. If standard error is no terminal, where a progress bar is not shown, a line every
/// few seconds says how far the work has come.
fn with_lines<T>(progress: &ProgressBar, name: &str, work: impl FnOnce() -> T) -> T {
    if std::io::stderr().is_terminal() {
        return work();
    }
    let (done, is_done) = crossbeam::channel::bounded::<()>(0);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = is_done.recv_timeout(LINE_INTERVAL) {
                let (position, items) = (progress.position(), progress.length().unwrap_or(0));
                let (rate, left) = (rate(progress.per_sec()), progress.eta().as_secs());
                say(format_args!("{name}: {position} of {items}, {rate}/s, {left} s left"));
            }
        });
        let _done = done;
        work()
    })
}

/// A progress bar of `items` steps whose text is `template`.
pub fn progress(template: &str, items: u64) -> ProgressBar {
    let style = ProgressStyle::with_template(template);
    let style = style.expect("templates are constants that indicatif accepts");
    ProgressBar::new(items).with_style(style)
}

/// A run on an open store.
struct Session<'a, W, S> {
    scenario: &'a W,
    request: &'a Request<'a>,
    home: &'a Home,
    store: &'a S,
    interrupt: &'a Interrupt,
}

/// The results of a run.
struct Finished {
    load: LoadReport,
    measurement: Measurement,
    transactions: Option<TransactionReport>,
    check: CheckReport,
}

impl<W: Scenario, S: Store> Session<'_, W, S> {
    fn load_and_measure(&self, stage: Stage<'_>, recording: &Recording) -> Result<Finished, Exit> {
        let (scenario, store, flags) = (self.scenario, self.store, self.request.flags);
        let found = self.find()?;
        let reused = found.is_some();
        let Outputs { samples, trace } = stage.outputs(reused)?;
        let live = Live::new(flags.format, samples);
        let (mut data, seconds) = match found {
            Some(data) => (data, 0.0),
            None => scenario.load(store, flags, self.interrupt)?,
        };
        let (records, data_bytes) = scenario.size::<S>(&data);
        let load = LoadReport {
            seconds,
            records,
            data_bytes,
            file_bytes: store.file_bytes(),
            reused,
            file_system: match flags.io {
                io if io.is_volatile() => io.to_string(),
                _ => self.home.description(),
            },
        };
        let before = if reused { When::Before } else { When::Loaded };
        let mut conditions = match self.request.check {
            true => scenario.check(store, &data, before, self.interrupt)?,
            false => Vec::new(),
        };
        let plan = Plan {
            crew: flags.crew(),
            warm_up: flags.warmup,
            length: flags.length(),
            kinds: scenario.kinds(),
        };
        let interrupt = self.interrupt;
        let measuring = Measuring { plan, live, recording, trace, interrupt };
        let (measurement, transactions) = scenario.measure(store, &mut data, measuring)?;
        let wrong = measurement.failure.as_ref().is_some_and(|failure| failure.is_wrong_answer());
        if let Some(name) = scenario.answers() {
            let name = name.to_owned();
            conditions.push(Condition { name, passed: !wrong, detail: None });
        }
        if self.request.check {
            conditions.extend(self.check_after(&data, &measurement)?);
        }
        let passed = !wrong && conditions.iter().all(|one| one.passed);
        let check = CheckReport { passed, conditions };
        Ok(Finished { load, measurement, transactions, check })
    }

    /// The data in the store, if it has any.
    fn find(&self) -> Result<Option<W::Data<S>>, Exit> {
        let refused = |sentence: String, advice| {
            Err(unusable(&self.home.path, &format!("{sentence}; {advice}")))
        };
        match self.scenario.find(self.store).map_err(failed("reading the store"))? {
            Found::Nothing => Ok(None),
            Found::Data(data) => Ok(Some(data)),
            Found::OtherSize(sentence) => refused(sentence, W::ADVICE),
            Found::Unusable(sentence) => refused(sentence, "give another --db"),
        }
    }

    /// Checks the data after the run, whose results count even if that is not possible.
    fn check_after(
        &self,
        data: &W::Data<S>,
        measurement: &Measurement,
    ) -> Result<Vec<Condition>, Exit> {
        let failure = measurement.failure.as_ref().filter(|failure| !failure.is_wrong_answer());
        let why = match failure {
            // After an error of the store a check of its data would say little.
            Some(failure) => format!("the run failed: {failure}"),
            None => match self.scenario.check(self.store, data, When::After, self.interrupt) {
                Ok(conditions) => return Ok(conditions),
                Err(Exit::Failed(why) | Exit::Interrupted(why)) => why,
                Err(exit) => return Err(exit),
            },
        };
        Ok(vec![Condition::not_checked("after the run", &why)])
    }
}
