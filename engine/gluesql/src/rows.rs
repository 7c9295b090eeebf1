//! The rows of a table, one after the other, as a scan reads them.

use crate::{error::storage, key, table::Table};
use gluesql_core::{
    data::{Key, Value},
    error::Result,
};
use std::sync::Arc;
use wattle::{Range, SnapshotRange};

/// Length of the number of a table, with which the keys of its rows begin.
const PREFIX: usize = size_of::<u64>();

/// The key of a row in the tree.
pub fn row_key(table: &Table, key: &Key) -> Vec<u8> {
    let mut bytes = table.id.to_be_bytes().to_vec();
    key::encode(key, &mut bytes);
    bytes
}

/// A range of records, within a transaction or outside.
pub trait Entries {
    fn next_entry(&mut self) -> wattle::Result<Option<(&[u8], &[u8])>>;
}

impl Entries for Range<'_> {
    fn next_entry(&mut self) -> wattle::Result<Option<(&[u8], &[u8])>> {
        Range::next_entry(self)
    }
}

impl Entries for SnapshotRange {
    fn next_entry(&mut self) -> wattle::Result<Option<(&[u8], &[u8])>> {
        SnapshotRange::next_entry(self)
    }
}

/// Holds one record at a time, and what the engine reads ahead. Ends after an error.
pub struct Rows<E> {
    entries: E,
    table: Arc<Table>,
    is_done: bool,
}

impl<E: Entries> Rows<E> {
    pub fn new(entries: E, table: Arc<Table>) -> Rows<E> {
        Rows { entries, table, is_done: false }
    }

    fn next_row(&mut self) -> Result<Option<(Key, Vec<Value>)>> {
        let Some((key, row)) = self.entries.next_entry().map_err(storage)? else { return Ok(None) };
        Ok(Some((key::decode(&key[PREFIX..])?, self.table.row_from_bytes(row)?)))
    }
}

impl<E: Entries> Iterator for Rows<E> {
    type Item = Result<(Key, Vec<Value>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let row = self.next_row();
        self.is_done = !matches!(row, Ok(Some(_)));
        row.transpose()
    }
}
