//! The records to load, and how.

use clap::ValueEnum;
use serde::Serialize;

use super::record::RecordShape;
use crate::driver::crew::Crew;
use crate::key::KeyFormat;

/// How records are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LoadMethod {
    /// The store gets all records in the order of their keys, and fills its pages.
    Bulk,
    /// Inserts in random order, as the core package does. Pages are fuller after a bulk load.
    Insert,
}

/// The records to load.
#[derive(Clone, Copy, Debug)]
pub struct LoadPlan {
    /// How they are loaded.
    pub method: LoadMethod,
    /// The workers of the run. The load uses at most one thread for each core, and inserts run in
    /// at least 32 tasks on each.
    pub crew: Crew,
    /// Number of records.
    pub records: u64,
    /// Encoding of keys.
    pub keys: KeyFormat,
    /// Sizes of values.
    pub shape: RecordShape,
    /// Seed of all random numbers.
    pub seed: u64,
}
