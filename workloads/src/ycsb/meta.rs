//! What a store knows about the YCSB data in it, so that a later run can use them again.
//!
//! One record in a table of its own holds the sizes that the data were loaded with, and whether the
//! load, and the last run that inserted records, came to their end. A run uses the data again only
//! if both did and all sizes are the ones asked for.

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
    /// Records there are, with those that runs inserted.
    pub present: u64,
    /// What can be said about them.
    pub state: DataState,
}

/// Whether the data are whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataState {
    /// A load has begun and not come to its end.
    Loading,
    /// All records are there.
    Ready,
    /// A run that inserts records has begun and not come to its end.
    Inserting,
}

impl Meta {
    /// The description of `records` records that are about to be loaded.
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
                "was left in the middle of a run that inserts, so what it holds is not known"
                    .to_owned(),
            ),
            DataState::Ready => Found::Data(found),
        }
    })
}
