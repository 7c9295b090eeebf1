//! TPC-C as a [`Scenario`].
//!
//! It is not a [`crate::bench::Benchmark`]: its tables have names and its load has parts that
//! differ, and all workers share its load and its checks.

use std::sync::atomic::AtomicU64;

use super::common::{OnOff, RunFlags};
use super::exit::{Exit, failed};
use super::run::{Measuring, Scenario, When, loaded, progress};
use super::stage::Room;
use crate::driver::control::Interrupt;
use crate::driver::description::Found;
use crate::driver::measure::Measurement;
use crate::driver::store::{Store, StoreResult};
use crate::machine;
use crate::report::{Condition, TransactionReport, per};
use crate::rng::Rng;
use crate::tpcc::check::{self, CheckEnd};
use crate::tpcc::hints::Hints;
use crate::tpcc::load::{self, LoadPlan, Loaded, ROWS_PER_WAREHOUSE};
use crate::tpcc::meta::{self, Meta};
use crate::tpcc::mix::{Kind, Mix};
use crate::tpcc::random::Constants;
use crate::tpcc::schema::{FORMAT, ITEMS, Table, Tables};
use crate::tpcc::workload::{Tpcc, now};

/// Approximate bytes of the data file for each warehouse after loading.
const BYTES_PER_WAREHOUSE: u64 = 100 << 20;
/// Approximate bytes of log that loading a warehouse writes; checkpoints remove it.
const LOG_BYTES_PER_WAREHOUSE: u64 = 100 << 20;
/// Streams of random numbers for constants.
const LOAD_CONSTANT_STREAM: u64 = u64::MAX;
const RUN_CONSTANTS_STREAM: u64 = u64::MAX - 1;

/// A run of TPC-C.
#[derive(Clone, Copy, Debug)]
pub struct TpccScenario {
    /// Warehouses; `None` accepts any number, for a check.
    pub warehouses: Option<u16>,
    /// Transactions to run.
    pub mix: Mix,
    /// Whether every worker stays at one warehouse.
    pub affinity: bool,
    /// Hints that the store gets.
    pub hints: Hints,
    /// Whether Deliveries to one warehouse queue.
    pub delivery_queue: OnOff,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Most threads of a check.
    pub check_threads: usize,
}

impl TpccScenario {
    /// To check the data that a store holds, with any number of warehouses.
    pub fn of_any_size() -> Self {
        Self {
            warehouses: None,
            mix: Mix::Standard,
            affinity: false,
            hints: Hints::None,
            delivery_queue: OnOff::Off,
            seed: 0,
            check_threads: machine::cores(),
        }
    }
}

/// The open tables, and the description of the population in them.
pub struct TpccData<T> {
    meta: Meta,
    tables: Tables<T>,
}

impl Scenario for TpccScenario {
    const NAME: &'static str = "tpcc";
    const TITLE: &'static str = "TPC-C";
    const ADVICE: &'static str = "give another --db or the --warehouses that it was loaded with";

    type Data<S: Store> = TpccData<S::Table>;

    fn room(&self) -> Room {
        let warehouses = u64::from(self.warehouses.unwrap_or(0));
        Room {
            number: warehouses,
            unit: "warehouse",
            data: warehouses * BYTES_PER_WAREHOUSE,
            log: warehouses * LOG_BYTES_PER_WAREHOUSE,
        }
    }

    fn tables(&self) -> usize {
        Table::ALL.len() + 1
    }

    fn kinds(&self) -> Vec<&'static str> {
        self.mix.kinds().iter().map(|kind| kind.name()).collect()
    }

    fn hints(&self) -> Hints {
        self.hints
    }

    fn delivery_queue(&self) -> OnOff {
        self.delivery_queue
    }

    fn find<S: Store>(&self, store: &S) -> StoreResult<Found<TpccData<S::Table>>> {
        Ok(match meta::find(store, self.warehouses)? {
            Found::Data(meta) => Found::Data(TpccData { meta, tables: Tables::open(store)? }),
            Found::Nothing => Found::Nothing,
            Found::OtherSize(sentence) => Found::OtherSize(sentence),
            Found::Unusable(sentence) => Found::Unusable(sentence),
        })
    }

    fn load<S: Store>(
        &self,
        store: &S,
        flags: &RunFlags,
        interrupt: &Interrupt,
    ) -> Result<(TpccData<S::Table>, f64), Exit> {
        let warehouses = self.warehouses.expect("a run has a number of warehouses");
        let mut rng = Rng::new(self.seed, LOAD_CONSTANT_STREAM);
        let mut meta = Meta {
            format: FORMAT,
            warehouses,
            last_name_constant: Constants::of_load(&mut rng),
            records: 0,
            data_bytes: 0,
            loaded: false,
        };
        // The description comes first, so that a load that was not finished is recognised.
        meta.write(store).map_err(failed("describing the data"))?;
        let tables = Tables::open(store).map_err(failed("opening the tables"))?;
        let plan = LoadPlan {
            crew: flags.crew(),
            warehouses,
            last_name_constant: meta.last_name_constant,
            seed: self.seed,
            date: now(),
        };
        let template =
            "loading rows {bar:40} {human_pos} of about {human_len}, {per_sec}, {eta} left";
        let rows = u64::from(warehouses) * ROWS_PER_WAREHOUSE + u64::from(ITEMS);
        let Loaded { time, records, bytes } = loaded(template, rows, |progress| {
            load::load(store, &tables, plan, interrupt, progress)
        })?;
        meta = Meta { records, data_bytes: bytes, loaded: true, ..meta };
        meta.write(store).map_err(failed("describing the data"))?;
        Ok((TpccData { meta, tables }, time.as_secs_f64()))
    }

    fn size<S: Store>(&self, data: &TpccData<S::Table>) -> (u64, u64) {
        (data.meta.records, data.meta.data_bytes)
    }

    fn measure<S: Store>(
        &self,
        store: &S,
        data: &mut TpccData<S::Table>,
        measuring: Measuring<'_>,
    ) -> Result<(Measurement, Option<TransactionReport>), Exit> {
        let warehouses = data.meta.warehouses;
        let mut rng = Rng::new(self.seed, RUN_CONSTANTS_STREAM);
        let workload = Tpcc {
            tables: &data.tables,
            warehouses,
            mix: self.mix,
            homes_of: self.affinity.then_some(measuring.workers()),
            constants: Constants::of_run(data.meta.last_name_constant, &mut rng),
            seed: self.seed,
            hints: self.hints,
            deliveries: (self.delivery_queue == OnOff::On)
                .then(|| Tpcc::<S::Table>::queues(warehouses)),
            skipped: AtomicU64::new(0),
        };
        let measurement = measuring.run(store, &workload)?;
        let transactions = transactions(&measurement, workload.skipped.into_inner());
        Ok((measurement, Some(transactions)))
    }

    /// A wrong answer ends the run with an error of its own.
    fn answers(&self) -> Option<&'static str> {
        None
    }

    fn check<S: Store>(
        &self,
        store: &S,
        data: &TpccData<S::Table>,
        when: When,
        interrupt: &Interrupt,
    ) -> Result<Vec<Condition>, Exit> {
        let progress = progress("checking {bar:40} {percent} %, {eta} left", 0);
        let (tables, warehouses) = (&data.tables, data.meta.warehouses);
        let threads = self.check_threads;
        let end = check::check(store, tables, warehouses, threads, interrupt, &progress);
        progress.finish_and_clear();
        let findings = match end {
            CheckEnd::Checked(findings) => findings,
            CheckEnd::Interrupted => {
                return Err(Exit::Interrupted("interrupted while checking".to_owned()));
            }
            CheckEnd::Failed(failure) => return Err(Exit::Failed(format!("checking: {failure}"))),
        };
        let name = match when {
            _ if self.warehouses.is_none() => "now",
            When::Loaded => "after the load",
            When::Before => "before the run",
            When::After => "after the run",
        };
        Ok(findings.conditions(name, when == When::Loaded))
    }
}

/// The results that only a run of TPC-C has.
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
