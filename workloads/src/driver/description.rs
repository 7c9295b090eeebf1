//! The description of the data in a store: one record, in one table for each workload.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::crew::at_once;
use super::store::{Client, Pending, Store, StoreError, StoreResult};

const KEY: &[u8] = b"data";

/// The contents of a store, as a run finds them. A store with other data must not be changed.
#[derive(Debug, PartialEq)]
pub enum Found<M> {
    /// The store is empty: load the data.
    Nothing,
    /// The data that were asked for.
    Data(M),
    /// Data of another size; the sentence says which.
    OtherSize(String),
    /// Other data, or data that cannot be used; the sentence says which.
    Unusable(String),
}

impl<M> Found<M> {
    /// Looks for a description of the data of the benchmark `title` in the table `name`, and lets
    /// `judge` decide on it. `judge` also gets the names of all tables.
    pub fn in_store<S: Store, D: DeserializeOwned>(
        store: &S,
        name: &str,
        title: &str,
        judge: impl FnOnce(D, &[String]) -> Found<M>,
    ) -> StoreResult<Self> {
        let mut tables = store.table_names()?;
        if tables.is_empty() {
            return Ok(Found::Nothing);
        }
        tables.sort();
        if !tables.iter().any(|table| table == name) {
            let tables = tables.join(", ");
            let sentence = format!("holds other data (tables {tables}) and no {title} data");
            return Ok(Found::Unusable(sentence));
        }
        Ok(match read(store, name)? {
            Some(description) => judge(description, &tables),
            None => Found::Unusable("holds the beginning of a load only".to_owned()),
        })
    }
}

/// Writes the description into the table `name`, and waits until the commit is durable, even if
/// commits are pipelined.
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
