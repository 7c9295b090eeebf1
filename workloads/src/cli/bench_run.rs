//! Every [`Benchmark`], that is TPC-B and TATP, as a [`Scenario`].

use super::common::RunFlags;
use super::exit::{Exit, failed};
use super::run::{Measuring, Scenario, When, loaded};
use super::stage::Room;
use crate::bench::load;
use crate::bench::meta::{self, Meta};
use crate::bench::{Benchmark, Running};
use crate::driver::control::Interrupt;
use crate::driver::crew::at_once;
use crate::driver::description::Found;
use crate::driver::failure::Failure;
use crate::driver::measure::Measurement;
use crate::driver::store::{Store, StoreResult};
use crate::report::{Condition, TransactionReport};

/// A benchmark of one size, or, for a check, of any size.
pub struct BenchScenario<B> {
    bench: B,
    any_size: bool,
}

impl<B: Benchmark> BenchScenario<B> {
    /// To run `bench`.
    pub fn new(bench: B) -> Self {
        Self { bench, any_size: false }
    }

    /// To check the data that a store holds, of any size.
    pub fn of_any_size() -> Self {
        Self { bench: B::with_size(1), any_size: true }
    }
}

/// The open tables of a benchmark, and the description of the data in them.
pub struct BenchData<T> {
    meta: Meta,
    tables: Vec<T>,
}

impl<B: Benchmark> Scenario for BenchScenario<B> {
    const NAME: &'static str = B::NAME;
    const TITLE: &'static str = B::TITLE;
    const ADVICE: &'static str = "give another --db or the size it was loaded with";

    type Data<S: Store> = BenchData<S::Table>;

    fn room(&self) -> Room {
        let (_, data_bytes) = self.bench.loaded();
        Room {
            number: self.bench.size(),
            unit: B::UNIT,
            data: Room::of_data(data_bytes),
            log: data_bytes,
        }
    }

    fn tables(&self) -> usize {
        B::TABLES.len() + 1
    }

    fn kinds(&self) -> Vec<&'static str> {
        B::KINDS.to_vec()
    }

    fn find<S: Store>(&self, store: &S) -> StoreResult<Found<BenchData<S::Table>>> {
        let wanted = (!self.any_size).then(|| self.bench.size());
        Ok(match meta::find::<B, S>(store, wanted)? {
            Found::Data(meta) => {
                Found::Data(BenchData { meta, tables: meta::tables::<B, S>(store)? })
            }
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
    ) -> Result<(BenchData<S::Table>, f64), Exit> {
        let bench = &self.bench;
        // The description comes first, so that a load that was not finished is recognised.
        let mut meta = Meta { size: bench.size(), loaded: false, runs: 0 };
        describe::<B, S>(&meta, store)?;
        let tables = meta::tables::<B, S>(store).map_err(failed("opening the tables"))?;
        let template = "loading {bar:40} {human_pos} of {human_len}, {per_sec}, {eta} left";
        let threads = flags.crew().threads;
        let time = loaded(template, bench.items(), |progress| {
            load::load(store, &tables, bench, threads, interrupt, progress)
        })?;
        meta.loaded = true;
        describe::<B, S>(&meta, store)?;
        Ok((BenchData { meta, tables }, time.as_secs_f64()))
    }

    fn size<S: Store>(&self, _data: &BenchData<S::Table>) -> (u64, u64) {
        self.bench.loaded()
    }

    fn measure<S: Store>(
        &self,
        store: &S,
        data: &mut BenchData<S::Table>,
        measuring: Measuring<'_>,
    ) -> Result<(Measurement, Option<TransactionReport>), Exit> {
        let running = Running { bench: &self.bench, tables: &data.tables, run: data.meta.runs };
        // Before anything else, so that no other run has the same number, however this one ends.
        data.meta.runs += 1;
        describe::<B, S>(&data.meta, store)?;
        Ok((measuring.run(store, &running)?, None))
    }

    fn answers(&self) -> Option<&'static str> {
        Some("every row asked for was there and as it was written")
    }

    fn check<S: Store>(
        &self,
        store: &S,
        data: &BenchData<S::Table>,
        when: When,
        interrupt: &Interrupt,
    ) -> Result<Vec<Condition>, Exit> {
        let bench = B::with_size(data.meta.size);
        let session = store.session().map_err(failed("checking the data"))?;
        let when = match (self.any_size, when) {
            (true, _) => "",
            (false, When::Loaded | When::Before) => "before the run: ",
            (false, When::After) => "after the run: ",
        };
        match at_once(bench.check(&data.tables, &session, interrupt)) {
            Ok(conditions) => {
                let named =
                    |one: Condition| Condition { name: format!("{when}{}", one.name), ..one };
                Ok(conditions.into_iter().map(named).collect())
            }
            Err(Failure::Interrupted) => {
                Err(Exit::Interrupted("interrupted while checking".to_owned()))
            }
            Err(failure) => Err(failed("checking the data")(failure)),
        }
    }
}

fn describe<B: Benchmark, S: Store>(meta: &Meta, store: &S) -> Result<(), Exit> {
    meta::write::<B, S>(meta, store).map_err(failed("describing the data"))
}
