//! How a transaction ends, and why a try of it may fail.

use super::schema::Table;
use crate::driver::store::{Stop, StoreError};

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Commit it.
    Commit,
    /// Roll it back, as clause 2.4.2.3 requires.
    RollBack,
}

/// Why a try of a transaction failed.
#[derive(Debug)]
pub enum Halt {
    /// The store stopped it.
    Stop(Stop),
    /// A row is missing or wrong.
    Wrong(String),
}

impl From<Stop> for Halt {
    fn from(stop: Stop) -> Self {
        Halt::Stop(stop)
    }
}

impl From<StoreError> for Halt {
    fn from(error: StoreError) -> Self {
        Halt::Stop(Stop::Failed(error))
    }
}

/// The error of a row that must exist and does not.
#[cold]
pub fn missing(table: Table, key: &[u8]) -> Halt {
    wrong(format!("a row of {} with the key {} is missing", table.name(), key.escape_ascii()))
}

/// The error of data that are wrong in another way.
#[cold]
pub fn wrong(sentence: String) -> Halt {
    Halt::Wrong(sentence)
}
