//! How a transaction ends, and why it may not come to its end.

use super::schema::Table;
use crate::driver::store::{Stop, StoreError};

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is to be committed.
    Commit,
    /// It is to be rolled back, as clause 2.4.2.3 says.
    RollBack,
}

/// Why a transaction does not come to its end.
#[derive(Debug)]
pub enum Halt {
    /// The store says so.
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

/// A row that has to be there is not.
#[cold]
pub fn missing(table: Table, key: &[u8]) -> Halt {
    wrong(format!("a row of {} with the key {} is missing", table.name(), key.escape_ascii()))
}

/// The data are wrong in some other way.
#[cold]
pub fn wrong(sentence: String) -> Halt {
    Halt::Wrong(sentence)
}
