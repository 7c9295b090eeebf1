//! A connection: its transaction, and what GlueSQL reads and writes in it.

use crate::{
    catalog::{Catalog, TABLE},
    error::{message, storage},
    function::Functions,
    rows::{Rows, row_key},
    table::Table,
};
use gluesql_core::{
    data::{Key, Schema, Value},
    error::{AlterTableError, FetchError, Result},
    store::{Index, IndexMut, MetaIter, Metadata, Planner, RowIter, Store, StoreMut, Transaction},
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};
use uuid::Uuid;
use wattle::{Engine, TxnOptions};

/// A connection of GlueSQL to a store of Wattle.
///
/// A program may have any number of connections to an engine, each on a thread of its own. A
/// connection that is dropped rolls its transaction back. The engine cannot be closed before.
pub struct WattleStorage {
    catalog: Catalog,
    options: TxnOptions,
    open: Option<Open>,
    pub(crate) functions: Functions,
    /// Tables by name, so that a statement decodes a record that has not changed only once.
    tables: RefCell<HashMap<String, Known>>,
}

/// The record of a table, and what it says.
type Known = (Vec<u8>, Arc<Table>);

/// A transaction that has begun.
struct Open {
    txn: wattle::Transaction<'static>,
    /// Tables that it dropped.
    dropped: Vec<u64>,
}

impl WattleStorage {
    /// A connection with snapshot isolation and the durability of the engine.
    ///
    /// # Errors
    /// Those of [`Engine::tree`]; the tables are of another version of this package.
    pub fn new(engine: &Engine) -> Result<Self> {
        Self::with_options(engine, TxnOptions::default())
    }

    /// A connection whose transactions have these options.
    ///
    /// # Errors
    /// As [`WattleStorage::new`].
    pub fn with_options(engine: &Engine, options: TxnOptions) -> Result<Self> {
        Ok(WattleStorage {
            catalog: Catalog::open(engine)?,
            options,
            open: None,
            functions: Functions::default(),
            tables: RefCell::default(),
        })
    }

    /// A value of the tree of tables and functions.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let Catalog { engine, tables, .. } = &self.catalog;
        match &self.open {
            Some(open) => open.txn.get(tables, key),
            None => engine.session().and_then(|session| session.get(tables, key)),
        }
        .map_err(storage)
    }

    /// The transaction, and the trees that it changes.
    fn writing(&mut self) -> Result<(&mut Open, &Catalog)> {
        let open = self.open.as_mut().ok_or_else(|| message("there is no transaction"))?;
        Ok((open, &self.catalog))
    }

    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let (open, catalog) = self.writing()?;
        open.txn.put(&catalog.tables, key, value).map_err(storage)
    }

    pub(crate) fn table(&self, name: &str) -> Result<Option<Arc<Table>>> {
        let Some(bytes) = self.get(&table_key(name))? else {
            self.tables.borrow_mut().remove(name);
            return Ok(None);
        };
        if let Some((known, table)) = self.tables.borrow().get(name)
            && *known == bytes
        {
            return Ok(Some(table.clone()));
        }
        let table = Arc::new(Table::from_bytes(&bytes)?);
        self.tables.borrow_mut().insert(name.to_owned(), (bytes, table.clone()));
        Ok(Some(table))
    }

    fn existing(&self, name: &str) -> Result<Arc<Table>> {
        self.table(name)?.ok_or_else(|| FetchError::TableNotFound(name.to_owned()).into())
    }

    /// A table that `ALTER TABLE` is about to change.
    pub(crate) fn altered(&self, name: &str) -> Result<Table> {
        let table = self.table(name)?;
        let table = table.ok_or_else(|| AlterTableError::TableNotFound(name.to_owned()))?;
        Ok(Table::clone(&table))
    }

    pub(crate) fn put_table(&mut self, table: &Table) -> Result<()> {
        let bytes = table.to_bytes()?;
        self.put(&table_key(&table.schema.table_name), &bytes)
    }

    pub(crate) fn remove_table(&mut self, name: &str) -> Result<()> {
        let (open, catalog) = self.writing()?;
        open.txn.remove(&catalog.tables, &table_key(name)).map(drop).map_err(storage)
    }

    pub(crate) fn all_tables(&self) -> Result<Vec<Table>> {
        let Catalog { engine, tables, .. } = &self.catalog;
        let session;
        let range = match &self.open {
            Some(open) => open.txn.prefix(tables, TABLE),
            None => {
                session = engine.session().map_err(storage)?;
                session.prefix(tables, TABLE)
            }
        };
        let range = range.map_err(storage)?;
        range.map(|entry| Table::from_bytes(&entry.map_err(storage)?.1)).collect()
    }
}

fn table_key(name: &str) -> Vec<u8> {
    [TABLE, name.as_bytes()].concat()
}

impl Store for WattleStorage {
    fn fetch_schema(&self, table_name: &str) -> Result<Option<Schema>> {
        Ok(self.table(table_name)?.map(|table| table.schema.clone()))
    }

    fn fetch_all_schemas(&self) -> Result<Vec<Schema>> {
        Ok(self.all_tables()?.into_iter().map(|table| table.schema).collect())
    }

    fn fetch_data(&self, table_name: &str, key: &Key) -> Result<Option<Vec<Value>>> {
        let Catalog { engine, rows, .. } = &self.catalog;
        let table = self.existing(table_name)?;
        let key = row_key(&table, key);
        let decode = |row: &[u8]| table.row_from_bytes(row);
        match &self.open {
            Some(open) => open.txn.get_with(rows, &key, decode),
            None => engine.session().and_then(|session| session.get_with(rows, &key, decode)),
        }
        .map_err(storage)?
        .transpose()
    }

    fn scan_data<'a>(&'a self, table_name: &str) -> Result<RowIter<'a>> {
        let Catalog { engine, rows, .. } = &self.catalog;
        let table = self.existing(table_name)?;
        let prefix = table.id.to_be_bytes();
        Ok(match &self.open {
            Some(open) => {
                let range = open.txn.prefix(rows, &prefix).map_err(storage)?;
                Box::new(Rows::new(range, table))
            }
            None => {
                let range = engine.snapshot().and_then(|snapshot| snapshot.prefix(rows, &prefix));
                Box::new(Rows::new(range.map_err(storage)?, table))
            }
        })
    }
}

impl StoreMut for WattleStorage {
    /// Adds a table, or replaces the schema of one. The new schema may have another number of
    /// columns only if the table has no rows.
    fn insert_schema(&mut self, schema: &Schema) -> Result<()> {
        let name = &schema.table_name;
        if let Some(table) = self.table(name)? {
            if table.has_columns_of(schema) {
                let mut table = Table::clone(&table);
                table.schema = schema.clone();
                return self.put_table(&table);
            }
            if self.scan_data(name)?.next().is_some() {
                let why = "has rows: only ALTER TABLE changes its columns";
                return Err(message(format_args!("{name} {why}")));
            }
            // Rows that another transaction adds meanwhile belong to the old table.
            self.delete_schema(name)?;
        }
        let table = Table::new(self.catalog.new_table_id()?, schema);
        self.put_table(&table)
    }

    fn delete_schema(&mut self, table_name: &str) -> Result<()> {
        let Some(table) = self.table(table_name)? else { return Ok(()) };
        self.remove_table(table_name)?;
        let (open, catalog) = self.writing()?;
        catalog.note_dropped(&mut open.txn, table.id)?;
        open.dropped.push(table.id);
        Ok(())
    }

    /// The rows get keys that grow with time, so a scan gives them in the order of insertion.
    fn append_data(&mut self, table_name: &str, rows: Vec<Vec<Value>>) -> Result<()> {
        let key = |row| (Key::Uuid(Uuid::now_v7().as_u128()), row);
        self.insert_data(table_name, rows.into_iter().map(key).collect())
    }

    fn insert_data(&mut self, table_name: &str, rows: Vec<(Key, Vec<Value>)>) -> Result<()> {
        let table = self.existing(table_name)?;
        let record = |(key, row): (Key, Vec<Value>)| -> Result<_> {
            Ok((row_key(&table, &key), table.row_to_bytes(&row)?))
        };
        let records = rows.into_iter().map(record).collect::<Result<Vec<_>>>()?;
        let (open, catalog) = self.writing()?;
        open.txn.put_many(&catalog.rows, &records).map_err(storage)
    }

    fn delete_data(&mut self, table_name: &str, keys: Vec<Key>) -> Result<()> {
        let table = self.existing(table_name)?;
        let keys: Vec<_> = keys.iter().map(|key| row_key(&table, key)).collect();
        let (open, catalog) = self.writing()?;
        open.txn.remove_many(&catalog.rows, &keys).map(drop).map_err(storage)
    }
}

impl Transaction for WattleStorage {
    fn begin(&mut self, autocommit: bool) -> Result<bool> {
        if self.open.is_some() {
            let nested = "a transaction is open already: commit it or roll it back first";
            return if autocommit { Ok(false) } else { Err(message(nested)) };
        }
        let txn = self.catalog.engine.begin_with(self.options).map_err(storage)?;
        let functions = txn.get(&self.catalog.tables, crate::catalog::FUNCTIONS_KEY);
        self.functions.load(functions.map_err(storage)?)?;
        self.open = Some(Open { txn, dropped: Vec::new() });
        Ok(autocommit)
    }

    /// Without a transaction there is nothing to do: it ended with its failed commit.
    fn rollback(&mut self) -> Result<()> {
        self.open.take().map_or(Ok(()), |open| open.txn.abort().map_err(storage))
    }

    fn commit(&mut self) -> Result<()> {
        let open = self.open.take().ok_or_else(|| message("there is no transaction to commit"))?;
        open.txn.commit().map_err(storage)?;
        for id in open.dropped {
            // The commit has succeeded. The next opening removes what is left, and reports what
            // keeps it from that.
            if self.catalog.remove_rows(id).is_err() {
                break;
            }
        }
        Ok(())
    }
}

impl Metadata for WattleStorage {
    fn scan_table_meta(&self) -> Result<MetaIter> {
        let tables = self.all_tables()?.into_iter().map(|table| {
            let kind = ("OBJECT_TYPE".to_owned(), Value::Str("TABLE".to_owned()));
            let created = ("CREATED".to_owned(), Value::Timestamp(table.created));
            Ok((table.schema.table_name, BTreeMap::from([kind, created])))
        });
        Ok(Box::new(tables))
    }
}

impl Index for WattleStorage {}
impl IndexMut for WattleStorage {}
impl Planner for WattleStorage {}
