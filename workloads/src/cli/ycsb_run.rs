//! `wattle ycsb`, from opening the store to the report.

use std::io::Write;
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use wattle::Options;

use super::common::IoBackend;
use super::exit::{Exit, failed};
use super::live::Live;
use super::record::{Recording, TraceFile};
use super::stage::{Home, Outputs, Room, Stage, deliver};
use super::ycsb::{YcsbFlags, YcsbSpec};
use crate::driver::control::Interrupt;
use crate::driver::measure::{self, Measurement, Plan};
use crate::driver::store::Store;
use crate::machine::{self, Machine};
use crate::report::{
    CheckReport, Condition, Details, LoadReport, LogReport, ProcessReport, Report, RunReport,
};
use crate::ycsb::growth::Growth;
use crate::ycsb::load::{self, LoadEnd, LoadPlan};
use crate::ycsb::meta::{DATA_TABLE, DataState, Found, Meta, find};
use crate::ycsb::mix::Kind;
use crate::ycsb::requests::Requests;
use crate::ycsb::workload::Ycsb;

/// Runs the subcommand on the store that `open` opens and writes the result to `out`. `command` is
/// the command line, for the report.
pub fn run<S: Store>(
    flags: &YcsbFlags,
    command: String,
    interrupt: &Interrupt,
    out: &mut dyn Write,
    open: impl FnOnce(&Path, Options) -> Result<S, Exit>,
) -> Result<(), Exit> {
    let spec = flags.spec()?;
    let home = Home::new(flags.run.db.as_deref())?;
    let recording = Recording::new(&flags.run);
    let stage = Stage::set(&home, &flags.run, room(&spec), &recording)?;
    let store = open(&home.path, recording.options(flags.run.store_options()))?;
    let session = Session {
        flags,
        spec: &spec,
        home: &home,
        store: &store,
        interrupt,
        recording: &recording,
    };
    let (load, measurement) = match session.load_and_measure(stage) {
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
    let report = Report {
        subcommand: "ycsb",
        command,
        settings: flags.settings(&spec),
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
        check: check(&measurement),
        error,
        details: Details { samples: measurement.samples, latencies: measurement.latencies },
    };
    deliver(&report, &flags.run, out)
}

/// What the load takes.
fn room(spec: &YcsbSpec) -> Room {
    let data_bytes = spec.data_bytes(spec.records);
    Room { number: spec.records, unit: "record", data: Room::of_data(data_bytes), log: data_bytes }
}

/// The one check of YCSB: all that was read is what was written.
fn check(measurement: &Measurement) -> CheckReport {
    let passed = !measurement.failure.as_ref().is_some_and(|failure| failure.is_wrong_answer());
    let name = "every record asked for was found, with a value that was written to it".to_owned();
    CheckReport { passed, conditions: vec![Condition { name, passed, detail: None }] }
}

/// A run on an open store.
struct Session<'a, S> {
    flags: &'a YcsbFlags,
    spec: &'a YcsbSpec,
    home: &'a Home,
    store: &'a S,
    interrupt: &'a Interrupt,
    recording: &'a Recording,
}

impl<S: Store> Session<'_, S> {
    fn load_and_measure(&self, stage: Stage<'_>) -> Result<(LoadReport, Measurement), Exit> {
        let spec = self.spec;
        let wanted = Meta::of_load(spec.records, spec.keys, spec.shape);
        let found = match find(self.store, &wanted).map_err(failed("reading the store"))? {
            Found::OtherSizes(sentence) => {
                Err((sentence, "give another --db or the sizes it was loaded with"))
            }
            Found::Unusable(sentence) => Err((sentence, "give another --db")),
            Found::Data(meta) => Ok(Some(meta)),
            Found::Nothing => Ok(None),
        };
        let found = found.map_err(|(sentence, advice)| {
            let path = self.home.path.display();
            Exit::Usage(format!("the store at {path} {sentence}; {advice}"))
        })?;
        let Outputs { samples, trace } = stage.outputs(found.is_some())?;
        let mut live = Live::new(self.flags.run.format, samples);
        let table = |name| self.store.table(name).map_err(failed("opening the table"));
        let (mut meta, seconds) = match found {
            Some(meta) => (meta, None),
            None => {
                // The description comes first, so that half a load is known as such.
                wanted.write(self.store).map_err(failed("describing the data"))?;
                let seconds = self.load(&table(DATA_TABLE)?)?;
                let state = DataState::Ready;
                let meta = Meta { present: spec.records, state, ..wanted };
                meta.write(self.store).map_err(failed("describing the data"))?;
                (meta, Some(seconds))
            }
        };
        let load = LoadReport {
            seconds: seconds.unwrap_or(0.0),
            records: meta.present,
            data_bytes: spec.data_bytes(meta.present),
            file_bytes: self.store.file_bytes(),
            reused: seconds.is_none(),
            file_system: match self.flags.run.io {
                IoBackend::Memory => "memory".to_owned(),
                _ => self.home.description(),
            },
        };
        let measurement = self.measure(&table(DATA_TABLE)?, &mut meta, &mut live, trace)?;
        Ok((load, measurement))
    }

    fn load(&self, table: &S::Table) -> Result<f64, Exit> {
        let spec = self.spec;
        let plan = LoadPlan {
            crew: self.flags.run.crew(),
            records: spec.records,
            keys: spec.keys,
            shape: spec.shape,
            seed: self.flags.run.seed,
        };
        let style = ProgressStyle::with_template(
            "loading records {bar:40} {human_pos} of {human_len}, {per_sec}, {eta} left",
        )
        .expect("the template is a constant that indicatif accepts");
        let progress = ProgressBar::new(spec.records).with_style(style);
        let end = load::load(self.store, table, plan, self.interrupt, &progress);
        progress.finish_and_clear();
        match end {
            LoadEnd::Loaded(time) => Ok(time.as_secs_f64()),
            LoadEnd::Interrupted => Err(Exit::Interrupted("interrupted while loading".to_owned())),
            LoadEnd::Failed(failure) => Err(Exit::Failed(format!("loading: {failure}"))),
        }
    }

    fn measure(
        &self,
        table: &S::Table,
        meta: &mut Meta,
        live: &mut Live,
        trace: Option<TraceFile>,
    ) -> Result<Measurement, Exit> {
        let (spec, run) = (self.spec, &self.flags.run);
        let inserts = spec.mix.share(Kind::Insert) > 0.0;
        if inserts {
            meta.state = DataState::Inserting;
            meta.write(self.store).map_err(failed("describing the data"))?;
        }
        let plan = Plan {
            crew: run.crew(),
            warm_up: run.warmup,
            length: run.length(),
            kinds: spec.mix.kinds().map(Kind::name).collect(),
        };
        let growth = Growth::new(meta.present, plan.crew.workers());
        let workload = Ycsb {
            table,
            keys: spec.keys,
            shape: spec.shape,
            kinds: spec.mix.chooser(),
            requests: Requests::new(spec.distribution, spec.theta, meta.present),
            growth: &growth,
            seed: run.seed,
        };
        let mut observer = |sample: &_| live.show(sample);
        let measurement = self.recording.during(trace, &mut observer, |observer| {
            measure::run(self.store, &workload, &plan, self.interrupt, observer)
        })?;
        if inserts && growth.is_whole() {
            meta.state = DataState::Ready;
            meta.present = growth.present();
            meta.write(self.store).map_err(failed("describing the data"))?;
        }
        Ok(measurement)
    }
}
