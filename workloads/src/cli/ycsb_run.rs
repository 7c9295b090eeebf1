//! YCSB as a [`Scenario`].

use super::common::RunFlags;
use super::exit::{Exit, failed};
use super::run::{Measuring, Scenario, When, loaded};
use super::stage::Room;
use super::ycsb::YcsbSpec;
use crate::driver::control::Interrupt;
use crate::driver::description::Found;
use crate::driver::measure::Measurement;
use crate::driver::store::{Store, StoreResult};
use crate::report::{Condition, TransactionReport};
use crate::ycsb::growth::Growth;
use crate::ycsb::load;
use crate::ycsb::load_plan::LoadPlan;
use crate::ycsb::meta::{self, DATA_TABLE, DataState, Meta};
use crate::ycsb::mix::Kind;
use crate::ycsb::requests::Requests;
use crate::ycsb::workload::Ycsb;

/// The table of the records, and the description of the data in it.
pub struct YcsbData<T> {
    meta: Meta,
    table: T,
}

impl Scenario for YcsbSpec {
    const NAME: &'static str = "ycsb";
    const TITLE: &'static str = "YCSB";
    const ADVICE: &'static str = "give another --db or the sizes it was loaded with";

    type Data<S: Store> = YcsbData<S::Table>;

    fn room(&self) -> Room {
        let data_bytes = self.data_bytes(self.records);
        Room {
            number: self.records,
            unit: "record",
            data: Room::of_data(data_bytes),
            log: data_bytes,
        }
    }

    fn tables(&self) -> usize {
        2
    }

    fn kinds(&self) -> Vec<&'static str> {
        self.mix.kinds().map(Kind::name).collect()
    }

    fn find<S: Store>(&self, store: &S) -> StoreResult<Found<YcsbData<S::Table>>> {
        let wanted = Meta::of_load(self.records, self.keys, self.shape);
        Ok(match meta::find(store, &wanted)? {
            Found::Data(meta) => Found::Data(YcsbData { meta, table: store.table(DATA_TABLE)? }),
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
    ) -> Result<(YcsbData<S::Table>, f64), Exit> {
        // The description comes first, so that a load that was not finished is recognised.
        let loading = Meta::of_load(self.records, self.keys, self.shape);
        describe(&loading, store)?;
        let table = store.table(DATA_TABLE).map_err(failed("opening the table"))?;
        let plan = LoadPlan {
            method: self.load,
            crew: flags.crew(),
            records: self.records,
            keys: self.keys,
            shape: self.shape,
            seed: self.seed,
        };
        let template = "loading records {bar:40} {human_pos} of {human_len}, {per_sec}, {eta} left";
        let time = loaded(template, self.records, |progress| {
            load::load(store, &table, plan, interrupt, progress)
        })?;
        let meta = Meta { present: self.records, state: DataState::Ready, ..loading };
        describe(&meta, store)?;
        Ok((YcsbData { meta, table }, time.as_secs_f64()))
    }

    fn size<S: Store>(&self, data: &YcsbData<S::Table>) -> (u64, u64) {
        (data.meta.present, self.data_bytes(data.meta.present))
    }

    fn measure<S: Store>(
        &self,
        store: &S,
        data: &mut YcsbData<S::Table>,
        measuring: Measuring<'_>,
    ) -> Result<(Measurement, Option<TransactionReport>), Exit> {
        let inserts = self.mix.share(Kind::Insert) > 0.0;
        let meta = &mut data.meta;
        if inserts {
            meta.state = DataState::Inserting;
            describe(meta, store)?;
        }
        let growth = Growth::new(meta.present, measuring.workers());
        let workload = Ycsb {
            table: &data.table,
            keys: self.keys,
            shape: self.shape,
            kinds: self.mix.chooser(),
            requests: Requests::new(self.distribution, self.theta, meta.present),
            growth: &growth,
            seed: self.seed,
        };
        let measurement = measuring.run(store, &workload)?;
        if inserts && growth.is_whole() {
            meta.state = DataState::Ready;
            meta.present = growth.present();
            describe(meta, store)?;
        }
        Ok((measurement, None))
    }

    fn answers(&self) -> Option<&'static str> {
        Some("every record asked for was found, with a value that was written to it")
    }

    /// The run itself checks every value that it reads.
    fn check<S: Store>(
        &self,
        _store: &S,
        _data: &YcsbData<S::Table>,
        _when: When,
        _interrupt: &Interrupt,
    ) -> Result<Vec<Condition>, Exit> {
        Ok(Vec::new())
    }
}

fn describe<S: Store>(meta: &Meta, store: &S) -> Result<(), Exit> {
    meta.write(store).map_err(failed("describing the data"))
}
