//! `wattle tpcc`, from opening the store to the report.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use indicatif::{ProgressBar, ProgressStyle};
use wattle::Options;

use super::common::{IoBackend, OnOff};
use super::exit::{Exit, failed};
use super::live::Live;
use super::record::{Recording, TraceFile};
use super::stage::{Home, Outputs, Room, Stage, deliver};
use super::tpcc::TpccFlags;
use crate::driver::control::Interrupt;
use crate::driver::measure::{self, Measurement, Plan};
use crate::driver::store::Store;
use crate::machine::{self, Machine};
use crate::report::{
    CheckReport, Condition, Details, LoadReport, LogReport, ProcessReport, Report, RunReport,
    TransactionReport, per,
};
use crate::rng::Rng;
use crate::tpcc::check::{self, CheckEnd};
use crate::tpcc::conditions::Findings;
use crate::tpcc::load::{self, LoadEnd, LoadPlan, Loaded, ROWS_PER_WAREHOUSE};
use crate::tpcc::meta::{Found, Meta, find};
use crate::tpcc::mix::Kind;
use crate::tpcc::random::Constants;
use crate::tpcc::schema::{FORMAT, ITEMS, Table, Tables};
use crate::tpcc::workload::{Tpcc, now};

/// Bytes of the data file for each warehouse after loading, about.
const BYTES_PER_WAREHOUSE: u64 = 100 << 20;
/// Bytes of log that loading a warehouse writes, about; checkpoints take it away again.
const LOG_BYTES_PER_WAREHOUSE: u64 = 100 << 20;
/// Streams of random numbers for constants.
const LOAD_CONSTANT_STREAM: u64 = u64::MAX;
const RUN_CONSTANTS_STREAM: u64 = u64::MAX - 1;

/// Runs the subcommand on the store that `open` opens and writes the result to `out`. `command` is
/// the command line, for the report.
pub fn run<S: Store>(
    flags: &TpccFlags,
    command: String,
    interrupt: &Interrupt,
    out: &mut dyn Write,
    open: impl FnOnce(&Path, Options) -> Result<S, Exit>,
) -> Result<(), Exit> {
    flags.run.check()?;
    // The tables, and the description of what they hold.
    let least = Options::min_pool_bytes(Table::ALL.len() + 1);
    if flags.run.pool < least {
        return Err(Exit::Usage(format!(
            "a --pool of {} bytes is too small for the tables of TPC-C; the minimum is {least}",
            flags.run.pool
        )));
    }
    let home = Home::new(flags.run.db.as_deref())?;
    let recording = Recording::new(&flags.run);
    let stage = Stage::set(&home, &flags.run, room(flags.warehouses), &recording)?;
    let store = open(&home.path, recording.options(flags.run.transaction_options()))?;
    let session = Session { flags, home: &home, store: &store, interrupt, recording: &recording };
    let done = match session.load_and_measure(stage) {
        Ok(done) => done,
        Err(exit) => {
            // The first failure says more than what closing the store may add to it.
            let _closed = store.close();
            return Err(exit);
        }
    };
    let closed = store.close();

    let Finished { load, measurement, check, skipped } = done;
    let error = match (&measurement.failure, closed) {
        (Some(failure), _) => Some(failure.to_string()),
        (None, Err(error)) => Some(format!("closing the store: {error}")),
        (None, Ok(())) => None,
    };
    let mut run = RunReport::of(&measurement);
    run.transactions = Some(transactions(&measurement, skipped));
    let report = Report {
        subcommand: "tpcc",
        command,
        settings: flags.settings(),
        machine: Machine::this(),
        load,
        run,
        buffer: measurement.counters,
        log: LogReport::of(&measurement.counters),
        process: ProcessReport {
            peak_rss_bytes: machine::peak_rss_bytes(),
            user_seconds: measurement.cpu.user_seconds,
            system_seconds: measurement.cpu.system_seconds,
        },
        check,
        error,
        details: Details { samples: measurement.samples, latencies: measurement.latencies },
    };
    deliver(&report, &flags.run, out)
}

/// What the load takes.
fn room(warehouses: u16) -> Room {
    let warehouses = u64::from(warehouses);
    Room {
        number: warehouses,
        unit: "warehouse",
        data: warehouses * BYTES_PER_WAREHOUSE,
        log: warehouses * LOG_BYTES_PER_WAREHOUSE,
    }
}

/// What the report says about the transactions.
fn transactions(measurement: &Measurement, skipped: u64) -> TransactionReport {
    let kinds = || measurement.latencies.iter().zip(&measurement.ends);
    let new_orders = kinds().find(|((kind, _), _)| *kind == Kind::NewOrder.name());
    let new_orders = new_orders.map_or(0, |((_, latency), _)| latency.count());
    TransactionReport {
        tpmc: per(new_orders as f64 * 60.0, measurement.seconds),
        rollbacks: measurement.ends.iter().map(|ends| ends.rollbacks).sum(),
        aborts_by_kind: kinds()
            .map(|((kind, _), ends)| ((*kind).to_owned(), ends.conflicts.into()))
            .collect(),
        deliveries_skipped: skipped,
    }
}

/// Checks the conditions of the TPC-C data in an open store, for `wattle verify --tpcc`.
pub fn check_store<S: Store>(
    store: &S,
    path: &Path,
    interrupt: &Interrupt,
) -> Result<CheckReport, Exit> {
    let meta = match find(store, None).map_err(failed("reading the store"))? {
        Found::Data(meta) => meta,
        Found::Nothing => return Err(unusable(path, "holds no TPC-C data")),
        Found::OtherSize(sentence) | Found::Unusable(sentence) => {
            return Err(unusable(path, &sentence));
        }
    };
    let tables = Tables::open(store).map_err(failed("opening the tables"))?;
    let findings = check_tables(store, &tables, meta.warehouses, machine::cores(), interrupt)?;
    let conditions = findings.conditions("now", false);
    Ok(CheckReport { passed: conditions.iter().all(|found| found.passed), conditions })
}

fn unusable(path: &Path, sentence: &str) -> Exit {
    Exit::Usage(format!("the store at {} {sentence}", path.display()))
}

/// What a check finds, or why it finds nothing: also that the user interrupts it, or has interrupted the run
/// before it.
fn check_tables<S: Store>(
    store: &S,
    tables: &Tables<S::Table>,
    warehouses: u16,
    threads: usize,
    interrupt: &Interrupt,
) -> Result<Findings, Exit> {
    let style = ProgressStyle::with_template("checking {bar:40} {percent} %, {eta} left")
        .expect("the template is a constant that indicatif accepts");
    let progress = ProgressBar::new(0).with_style(style);
    let end = check::check(store, tables, warehouses, threads, interrupt, &progress);
    progress.finish_and_clear();
    match end {
        CheckEnd::Checked(findings) => Ok(*findings),
        CheckEnd::Interrupted => Err(Exit::Interrupted("interrupted while checking".to_owned())),
        CheckEnd::Failed(failure) => Err(Exit::Failed(format!("checking: {failure}"))),
    }
}

/// A run on an open store.
struct Session<'a, S> {
    flags: &'a TpccFlags,
    home: &'a Home,
    store: &'a S,
    interrupt: &'a Interrupt,
    recording: &'a Recording,
}

/// What came of it.
struct Finished {
    load: LoadReport,
    measurement: Measurement,
    check: CheckReport,
    /// Districts without an order to deliver.
    skipped: u64,
}

impl<S: Store> Session<'_, S> {
    fn load_and_measure(&self, stage: Stage<'_>) -> Result<Finished, Exit> {
        let (flags, store) = (self.flags, self.store);
        let found = find(store, Some(flags.warehouses)).map_err(failed("reading the store"))?;
        let found = match found {
            Found::OtherSize(sentence) => {
                let advice = "give another --db or the --warehouses that it was loaded with";
                return Err(unusable(&self.home.path, &format!("{sentence}; {advice}")));
            }
            Found::Unusable(sentence) => {
                return Err(unusable(&self.home.path, &format!("{sentence}; give another --db")));
            }
            Found::Data(meta) => Some(meta),
            Found::Nothing => None,
        };
        let Outputs { samples, trace } = stage.outputs(found.is_some())?;
        let mut live = Live::new(flags.run.format, samples);
        let (meta, tables, seconds) = match found {
            Some(meta) => (meta, self.tables()?, None),
            None => {
                let (meta, tables, seconds) = self.load()?;
                (meta, tables, Some(seconds))
            }
        };
        let load = LoadReport {
            seconds: seconds.unwrap_or(0.0),
            records: meta.records,
            data_bytes: meta.data_bytes,
            file_bytes: store.file_bytes(),
            reused: seconds.is_none(),
            file_system: match flags.run.io {
                IoBackend::Memory => "memory".to_owned(),
                _ => self.home.description(),
            },
        };
        let mut conditions = Vec::new();
        if flags.check {
            let loaded = seconds.is_some();
            let when = if loaded { "after the load" } else { "before the run" };
            let findings = self.check(&tables)?;
            conditions.extend(findings.conditions(when, loaded));
        }
        let (measurement, skipped) = self.measure(&meta, &tables, &mut live, trace)?;
        // After an error of the store, its data would say little.
        let failed = measurement.failure.as_ref().filter(|failed| !failed.is_wrong_answer());
        if let (true, Some(failed)) = (flags.check, failed) {
            let why = format!("the run failed: {failed}");
            conditions.push(Condition::not_checked("after the run", &why));
        } else if flags.check {
            // The results of the run are there all the same.
            match self.check(&tables) {
                Ok(findings) => conditions.extend(findings.conditions("after the run", false)),
                Err(Exit::Failed(why) | Exit::Interrupted(why)) => {
                    conditions.push(Condition::not_checked("after the run", &why));
                }
                Err(exit) => return Err(exit),
            }
        }
        let wrong = measurement.failure.as_ref().is_some_and(|failed| failed.is_wrong_answer());
        let passed = !wrong && conditions.iter().all(|condition| condition.passed);
        let check = CheckReport { passed, conditions };
        Ok(Finished { load, measurement, check, skipped })
    }

    fn tables(&self) -> Result<Tables<S::Table>, Exit> {
        Tables::open(self.store).map_err(failed("opening the tables"))
    }

    fn check(&self, tables: &Tables<S::Table>) -> Result<Findings, Exit> {
        let threads = self.flags.run.crew().threads.min(machine::cores());
        check_tables(self.store, tables, self.flags.warehouses, threads, self.interrupt)
    }

    /// Fills the store; gives what is in it now, and how many seconds it took.
    fn load(&self) -> Result<(Meta, Tables<S::Table>, f64), Exit> {
        let (flags, store) = (self.flags, self.store);
        let mut rng = Rng::new(flags.run.seed, LOAD_CONSTANT_STREAM);
        let mut meta = Meta {
            format: FORMAT,
            warehouses: flags.warehouses,
            last_name_constant: Constants::of_load(&mut rng),
            records: 0,
            data_bytes: 0,
            loaded: false,
        };
        // The description comes first, so that half a load is known as such.
        meta.write(store).map_err(failed("describing the data"))?;
        let tables = self.tables()?;
        let plan = LoadPlan {
            crew: flags.run.crew(),
            warehouses: flags.warehouses,
            last_name_constant: meta.last_name_constant,
            seed: flags.run.seed,
            date: now(),
        };
        let style = ProgressStyle::with_template(
            "loading rows {bar:40} {human_pos} of about {human_len}, {per_sec}, {eta} left",
        )
        .expect("the template is a constant that indicatif accepts");
        let rows = u64::from(flags.warehouses) * ROWS_PER_WAREHOUSE + u64::from(ITEMS);
        let progress = ProgressBar::new(rows).with_style(style);
        let end = load::load(store, &tables, plan, self.interrupt, &progress);
        progress.finish_and_clear();
        let Loaded { time, records, bytes } = match end {
            LoadEnd::Loaded(loaded) => loaded,
            LoadEnd::Interrupted => {
                return Err(Exit::Interrupted("interrupted while loading".to_owned()));
            }
            LoadEnd::Failed(failure) => return Err(Exit::Failed(format!("loading: {failure}"))),
        };
        meta = Meta { records, data_bytes: bytes, loaded: true, ..meta };
        meta.write(store).map_err(failed("describing the data"))?;
        Ok((meta, tables, time.as_secs_f64()))
    }

    /// Runs the transactions; gives also the districts that Deliveries skipped.
    fn measure(
        &self,
        meta: &Meta,
        tables: &Tables<S::Table>,
        live: &mut Live,
        trace: Option<TraceFile>,
    ) -> Result<(Measurement, u64), Exit> {
        let (flags, run) = (self.flags, &self.flags.run);
        let plan = Plan {
            crew: run.crew(),
            warm_up: run.warmup,
            length: run.length(),
            kinds: flags.mix.kinds().iter().map(|kind| kind.name()).collect(),
        };
        let mut rng = Rng::new(run.seed, RUN_CONSTANTS_STREAM);
        let workload = Tpcc {
            tables,
            warehouses: flags.warehouses,
            mix: flags.mix,
            homes_of: flags.affinity.then_some(run.crew().workers()),
            constants: Constants::of_run(meta.last_name_constant, &mut rng),
            seed: run.seed,
            hints: flags.hints,
            deliveries: (flags.delivery_queue == OnOff::On)
                .then(|| Tpcc::<S::Table>::queues(flags.warehouses)),
            skipped: AtomicU64::new(0),
        };
        let mut observer = |sample: &_| live.show(sample);
        let measurement = self.recording.during(trace, &mut observer, |observer| {
            measure::run(self.store, &workload, &plan, self.interrupt, observer)
        })?;
        Ok((measurement, workload.skipped.into_inner()))
    }
}
