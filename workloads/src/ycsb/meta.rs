//! The description of YCSB data in a store, with which a later run can use them.
//!
//! One record in a separate table holds the sizes of the data, and whether the load and the last
//! run with inserts were finished. A run uses the data only if both were, and if all sizes are the
//! ones that it asks for.

use serde::{Deserialize, Serialize};

use super::record::RecordShape;
use crate::driver::description::{self, Found};
use crate::driver::store::{Store, StoreResult};
use crate::key::KeyFormat;
use crate::report::figures::plural;

/// Table of the records.
pub const DATA_TABLE: &str = "ycsb";
/// Table of the description.
pub const META_TABLE: &str = "ycsb-meta";

/// The description of the data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Records loaded.
    pub records: u64,
    /// Size of a key.
    pub key_size: usize,
    /// Fields of a value.
    pub fields: usize,
    /// Size of a field.
    pub field_size: usize,
    /// Records now, with those that runs inserted.
    pub present: u64,
    /// Whether they are complete.
    pub state: DataState,
}

/// Whether the data are complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataState {
    /// A load began and was not finished.
    Loading,
    /// All records exist.
    Ready,
    /// A run that inserts records began and was not finished.
    Inserting,
}

impl Meta {
    /// The description of `records` records before they are loaded.
    pub fn of_load(records: u64, keys: KeyFormat, shape: RecordShape) -> Self {
        Self {
            records,
            key_size: keys.bytes(),
            fields: shape.fields(),
            field_size: shape.field_bytes(),
            present: 0,
            state: DataState::Loading,
        }
    }

    /// Writes the description.
    pub fn write<S: Store>(&self, store: &S) -> StoreResult<()> {
        description::write(store, META_TABLE, self)
    }

    fn sizes(&self) -> String {
        format!(
            "{} with keys of {} and {} of {}",
            plural(self.records, "record"),
            plural(self.key_size as u64, "byte"),
            if self.fields == 1 {
                "values".to_owned()
            } else {
                plural(self.fields as u64, "field")
            },
            plural(self.field_size as u64, "byte")
        )
    }
}

/// Looks for the data that `wanted` describes.
pub fn find<S: Store>(store: &S, wanted: &Meta) -> StoreResult<Found<Meta>> {
    Found::in_store(store, META_TABLE, "YCSB", |found: Meta, _| {
        let same_sizes = Meta { present: 0, state: DataState::Loading, ..found.clone() } == *wanted;
        match found.state {
            _ if !same_sizes => Found::OtherSize(format!(
                "holds {}, and not {} as asked for",
                found.sizes(),
                wanted.sizes()
            )),
            DataState::Loading => Found::Unusable("holds a load that was not finished".to_owned()),
            DataState::Inserting => Found::Unusable(
                "was left in the middle of a run that inserts, so its records are not known"
                    .to_owned(),
            ),
            DataState::Ready => Found::Data(found),
        }
    })
}
