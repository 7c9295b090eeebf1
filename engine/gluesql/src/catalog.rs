//! The trees of the store, the keys in them, and the removal of the rows of dropped tables.
//!
//! Creating, dropping and renaming a tree of Wattle is no part of a transaction, and a pool limits
//! how many trees can be open. So all rows are in one tree, each under the number of its table, and
//! everything about tables and functions is in another one: DDL is a change of records there, and
//! is committed or rolled back with the data.
//!
//! `DROP TABLE` removes the record of the table and adds one that says which rows are left. After
//! the commit they are removed in batches: one transaction that removes a large table would keep
//! other writers out of the tree. The next opening removes what a crash left.

use crate::error::{damaged, message, storage};
use gluesql_core::error::Result;
use wattle::{Durability, Engine, Error, Transaction, Tree, TxnOptions};

/// Version of the keys and records in these trees.
const FORMAT: &[u8] = &[1];
const FORMAT_KEY: &[u8] = b"v";
/// The next number of a table.
const NEXT_KEY: &[u8] = b"n";
/// All functions, as one record.
pub const FUNCTIONS_KEY: &[u8] = b"f";
/// Before the name of a table: its [`crate::table::Table`].
pub const TABLE: &[u8] = b"t";
/// Before the number of a table that was dropped.
const DROPPED: &[u8] = b"d";

/// Rows of dropped tables that one transaction removes.
const BATCH: usize = 1000;

pub struct Catalog {
    pub engine: Engine,
    pub tables: Tree,
    pub rows: Tree,
}

impl Catalog {
    pub fn open(engine: &Engine) -> Result<Catalog> {
        let tables = engine.tree("sql-tables").map_err(storage)?;
        let rows = engine.tree("sql-rows").map_err(storage)?;
        let session = engine.session().map_err(storage)?;
        let mut found = session.get(&tables, FORMAT_KEY).map_err(storage)?;
        if found.is_none() {
            // Another connection may be first.
            let set = |before: Option<&[u8]>| Some(before.unwrap_or(FORMAT).to_vec());
            session.fetch_update(&tables, FORMAT_KEY, set).map_err(storage)?;
            found = session.get(&tables, FORMAT_KEY).map_err(storage)?;
        }
        if found.as_deref() != Some(FORMAT) {
            return Err(message(format_args!(
                "the tables have version {found:?} of the format, and this program knows {FORMAT:?}"
            )));
        }
        let catalog = Catalog { engine: engine.clone(), tables, rows };
        catalog.remove_leftovers()?;
        Ok(catalog)
    }

    /// A number for a new table. It is taken at once, so that transactions that create tables do
    /// not meet a conflict, and is lost with a transaction that is rolled back.
    pub fn new_table_id(&self) -> Result<u64> {
        let session = self.engine.session().map_err(storage)?;
        let before = session.fetch_update(&self.tables, NEXT_KEY, |before| {
            let next = before.map_or(Some(0), number).map(|id| id + 1);
            // A damaged record stays as it is.
            next.map(|next| next.to_be_bytes().to_vec()).or(before.map(<[u8]>::to_vec))
        });
        let before = before.map_err(storage)?;
        let before = before.as_deref().unwrap_or(&[0; 8]);
        number(before).ok_or_else(|| damaged(format_args!("the number of a table is {before:?}")))
    }

    /// Notes in the transaction that drops a table that its rows are left.
    pub fn note_dropped(&self, txn: &mut Transaction<'_>, id: u64) -> Result<()> {
        txn.put(&self.tables, &[DROPPED, &id.to_be_bytes()].concat(), &[]).map_err(storage)
    }

    /// Removes rows of a dropped table. The note stays: a transaction that began before the table
    /// was dropped may still add rows.
    pub fn remove_rows(&self, id: u64) -> wattle::Result<()> {
        let prefix = id.to_be_bytes();
        loop {
            // A crash that takes a batch back leaves it to the next opening.
            let options = TxnOptions { durability: Some(Durability::None), ..Default::default() };
            let mut txn = self.engine.begin_with(options)?;
            let keys = txn.prefix(&self.rows, &prefix)?.keys().take(BATCH);
            let keys = keys.collect::<wattle::Result<Vec<_>>>()?;
            if keys.is_empty() {
                return txn.abort();
            }
            txn.remove_many(&self.rows, &keys)?;
            txn.commit()?;
        }
    }

    /// Removes the rows of all dropped tables, and the notes.
    fn remove_leftovers(&self) -> Result<()> {
        let session = self.engine.session().map_err(storage)?;
        let notes = session.prefix(&self.tables, DROPPED).map_err(storage)?.keys();
        let notes = notes.collect::<wattle::Result<Vec<_>>>().map_err(storage)?;
        for note in notes {
            let id = number(&note[DROPPED.len()..])
                .ok_or_else(|| damaged(format_args!("a dropped table has the key {note:?}")))?;
            let removed =
                self.remove_rows(id).and_then(|()| session.remove(&self.tables, &note).map(drop));
            match removed {
                // Another connection does it, or is still in the table: the next opening does it.
                Err(error) if error.is_retryable() => {}
                // The whole store is.
                Err(Error::ReadOnly) => return Ok(()),
                removed => removed.map_err(storage)?,
            }
        }
        Ok(())
    }
}

fn number(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_be_bytes)
}
