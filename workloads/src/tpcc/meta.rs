//! The description of a TPC-C population, with which a later run and `wattle verify` can use it.
//!
//! One record in a separate table holds the number of warehouses, the constant that C_LAST was
//! drawn with, and whether the load was finished.

use serde::{Deserialize, Serialize};

use super::random::LAST_NAME_CONSTANT;
use super::schema::{FORMAT, Table};
use crate::driver::description::{self, Found};
use crate::driver::store::{Store, StoreResult};
use crate::report::figures::{count, plural};

/// Table of the description.
pub const META_TABLE: &str = "tpcc-meta";

/// The description of the population.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// [`FORMAT`] at the time of the load; 0 if the description has none.
    #[serde(default)]
    pub format: u32,
    /// Number of warehouses.
    pub warehouses: u16,
    /// The constant C of NURand that the population drew C_LAST with (clause 2.1.6.1).
    pub last_name_constant: u64,
    /// Rows and index entries that were loaded.
    pub records: u64,
    /// Bytes of their keys and values.
    pub data_bytes: u64,
    /// Whether the load was finished.
    pub loaded: bool,
}

impl Meta {
    /// Writes the description.
    pub fn write<S: Store>(&self, store: &S) -> StoreResult<()> {
        description::write(store, META_TABLE, self)
    }
}

/// Looks for a population, of `warehouses` warehouses if that is given.
pub fn find<S: Store>(store: &S, warehouses: Option<u16>) -> StoreResult<Found<Meta>> {
    Found::in_store(store, META_TABLE, "TPC-C", |meta: Meta, tables| {
        let missing = |table: &Table| !tables.iter().any(|name| name == table.name());
        match warehouses {
            _ if meta.format != FORMAT => Found::Unusable(format!(
                "holds TPC-C data of format {}, and this version reads and writes format {FORMAT}",
                meta.format
            )),
            Some(wanted) if wanted != meta.warehouses => Found::OtherSize(format!(
                "holds {}, and not the {} asked for",
                plural(meta.warehouses.into(), "TPC-C warehouse"),
                count(wanted.into())
            )),
            _ if meta.last_name_constant > LAST_NAME_CONSTANT || meta.warehouses == 0 => {
                Found::Unusable("has a description of TPC-C data that no load wrote".to_owned())
            }
            _ if !meta.loaded => Found::Unusable("holds a load that was not finished".to_owned()),
            _ => match Table::ALL.iter().find(|table| missing(table)) {
                Some(table) => Found::Unusable(format!("has lost the table {}", table.name())),
                None => Found::Data(meta),
            },
        }
    })
}
