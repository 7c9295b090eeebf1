//! The description of the data of a benchmark in a store, with which a later run can use them.
//!
//! One record in a separate table: the size, whether the load was finished, and the number of runs.
//! Transactions keep the data consistent even if the process ends in the middle of a run. Only a
//! load that was not finished makes data useless.

use serde::{Deserialize, Serialize};

use super::Benchmark;
use crate::driver::description::{self, Found};
use crate::driver::store::{Store, StoreResult};
use crate::report::figures::{count, plural};

/// The description of the data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// The size that was loaded.
    pub size: u64,
    /// Whether all of it is there.
    pub loaded: bool,
    /// Number of runs that began.
    pub runs: u64,
}

/// Name of the table of the description.
fn table_name<B: Benchmark>() -> String {
    format!("{}-meta", B::NAME)
}

/// Writes the description.
pub fn write<B: Benchmark, S: Store>(meta: &Meta, store: &S) -> StoreResult<()> {
    description::write(store, &table_name::<B>(), meta)
}

/// Looks for data of the benchmark, of the size `wanted` if that is given.
pub fn find<B: Benchmark, S: Store>(store: &S, wanted: Option<u64>) -> StoreResult<Found<Meta>> {
    Found::in_store(store, &table_name::<B>(), B::TITLE, |meta: Meta, _| match wanted {
        _ if !(1..=B::MAX_SIZE).contains(&meta.size) => {
            Found::Unusable(format!("has a description of {} data that no load wrote", B::TITLE))
        }
        _ if !meta.loaded => Found::Unusable("holds a load that was not finished".to_owned()),
        Some(wanted) if wanted != meta.size => Found::OtherSize(format!(
            "holds {}, and not the {} asked for",
            plural(meta.size, B::UNIT),
            count(wanted)
        )),
        _ => Found::Data(meta),
    })
}

/// Opens the tables of the benchmark.
pub fn tables<B: Benchmark, S: Store>(store: &S) -> StoreResult<Vec<S::Table>> {
    B::TABLES.iter().map(|name| store.table(&format!("{}-{name}", B::NAME))).collect()
}
