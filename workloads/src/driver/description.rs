//! What a store says about the data in it: one record, in a table of its own for each workload.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::crew::at_once;
use super::store::{Client, Pending, Store, StoreError, StoreResult};

const KEY: &[u8] = b"data";

/// Writes the description into the table `name`, and waits until others see it, also where commits
/// are pipelined.
pub fn write<S: Store>(store: &S, name: &str, description: &impl Serialize) -> StoreResult<()> {
    let table = store.table(name)?;
    let text = serde_json::to_vec(description)?;
    let session = store.session()?;
    at_once(session.put(&table, KEY, &text))?;
    session.take_pending().map_or(Ok(()), |commit| at_once(commit.wait()))
}

/// The description in the table `name`, if there is one.
pub fn read<S: Store, T: DeserializeOwned>(store: &S, name: &str) -> StoreResult<Option<T>> {
    let table = store.table(name)?;
    let text = at_once(store.session()?.read(&table, KEY, <[u8]>::to_vec))?;
    text.map(|text| serde_json::from_slice(&text)).transpose().map_err(StoreError::from)
}
