//! What a store knows about the data of a benchmark in it, so that a later run can use them again.
//!
//! One record in a table of its own: the size, whether the load came to its end, and how many runs
//! there were. Transactions keep the data consistent, also when the process ends in the middle of a
//! run, so nothing but a load that was not finished makes data useless.

use serde::{Deserialize, Serialize};

use super::Benchmark;
use crate::driver::description;
use crate::driver::store::{Store, StoreResult};

/// The description of the data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// The size that was loaded.
    pub size: u64,
    /// Whether all of it is there.
    pub loaded: bool,
    /// Runs that were begun.
    pub runs: u64,
}

/// What a run finds in a store.
#[derive(Debug, PartialEq)]
pub enum Found {
    /// Nothing: the data have to be loaded.
    Nothing,
    /// Data of the benchmark.
    Data(Meta),
    /// Something else; the sentence says what, and the store must not be touched.
    Unusable(String),
}

/// Name of the table of the description.
fn table_name<B: Benchmark>() -> String {
    format!("{}-meta", B::NAME)
}

/// Writes the description.
pub fn write<B: Benchmark, S: Store>(meta: &Meta, store: &S) -> StoreResult<()> {
    description::write(store, &table_name::<B>(), meta)
}

/// Looks for data of the benchmark.
pub fn find<B: Benchmark, S: Store>(store: &S) -> StoreResult<Found> {
    let mut names = store.table_names()?;
    if names.is_empty() {
        return Ok(Found::Nothing);
    }
    if !names.contains(&table_name::<B>()) {
        names.sort();
        return Ok(Found::Unusable(format!(
            "holds other data (tables {}) and no {} data",
            names.join(", "),
            B::TITLE
        )));
    }
    let meta: Option<Meta> = description::read(store, &table_name::<B>())?;
    Ok(match meta {
        Some(meta) if !(1..=B::MAX_SIZE).contains(&meta.size) => {
            Found::Unusable(format!("has a description of {} data that no load wrote", B::TITLE))
        }
        Some(meta) if meta.loaded => Found::Data(meta),
        Some(_) => Found::Unusable("holds a load that was not finished".to_owned()),
        None => Found::Unusable("holds the beginning of a load only".to_owned()),
    })
}

/// Opens the tables of the benchmark.
pub fn tables<B: Benchmark, S: Store>(store: &S) -> StoreResult<Vec<S::Table>> {
    B::TABLES.iter().map(|name| store.table(&format!("{}-{name}", B::NAME))).collect()
}
