//! redb: one writer at a time, which waits for its turn. Its readers have snapshots.

use super::neutral::{Peer, PeerTxn, Visit, failed};
use redb::{
    Database, Durability, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable, Table,
    TableDefinition, TableHandle, WriteTransaction,
};
use self_cell::self_cell;
use std::{
    cell::RefCell,
    ops::Bound,
    sync::{Mutex, PoisonError},
};
use wattle_workloads::driver::{
    options::{Durability as Asked, StoreOptions},
    store::{Access, Direction, StoreResult, TxnResult},
};

type Bytes = &'static [u8];

fn definition(name: &str) -> TableDefinition<'_, Bytes, Bytes> {
    TableDefinition::new(name)
}

pub struct Redb {
    database: Database,
    durability: Durability,
    names: Mutex<Vec<String>>,
}

/// A table: its name, and its place among those of a transaction.
pub struct RedbTable {
    name: String,
    place: usize,
}

impl Peer for Redb {
    const NAME: &'static str = "redb";
    const ISOLATION: &'static str = "serializable";
    type Table = RedbTable;
    type Txn<'a> = RedbTxn;

    fn open(options: &StoreOptions) -> StoreResult<Self> {
        let mut builder = Database::builder();
        builder.set_cache_size(options.memory_bytes as usize);
        let durability = match options.durability {
            Asked::Sync => Durability::Immediate,
            _ => Durability::None,
        };
        let database = builder.create(options.path.join("store.redb"))?;
        Ok(Self { database, durability, names: Mutex::default() })
    }

    fn table_names(&self) -> StoreResult<Vec<String>> {
        let txn = self.database.begin_read()?;
        Ok(txn.list_tables()?.map(|table| table.name().to_owned()).collect())
    }

    fn table(&self, name: &str) -> StoreResult<RedbTable> {
        let txn = self.database.begin_write()?;
        txn.open_table(definition(name))?;
        txn.commit()?;
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let place = names.iter().position(|known| known == name).unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
        Ok(RedbTable { name: name.to_owned(), place })
    }

    fn begin(&self, access: Access) -> StoreResult<RedbTxn> {
        Ok(match access {
            Access::ReadOnly => RedbTxn::Read(self.database.begin_read()?, RefCell::default()),
            Access::ReadWrite => {
                let mut txn = self.database.begin_write()?;
                txn.set_durability(self.durability)?;
                RedbTxn::Write(Writing::new(txn, |_| Opened::default()))
            }
        })
    }

    fn sync(&self) -> StoreResult<()> {
        Ok(self.database.begin_write()?.commit()?)
    }

    fn close(self) -> StoreResult<()> {
        self.sync()
    }
}

/// The tables that a transaction has used, by their places.
#[derive(Default)]
struct Opened<'a>(RefCell<Vec<Option<Table<'a, Bytes, Bytes>>>>);

self_cell!(
    /// A transaction that writes, with its tables: each is opened once.
    pub struct Writing {
        owner: WriteTransaction,
        #[not_covariant]
        dependent: Opened,
    }
);

impl Writing {
    fn with<R>(
        &self,
        table: &RedbTable,
        work: impl FnOnce(&mut Table<'_, Bytes, Bytes>) -> StoreResult<R>,
    ) -> StoreResult<R> {
        self.with_dependent(|txn, opened| {
            let mut opened = opened.0.borrow_mut();
            work(slot(&mut opened, table.place, || Ok(txn.open_table(definition(&table.name))?))?)
        })
    }
}

/// The entry of a place, made if it is not there.
fn slot<T>(
    opened: &mut Vec<Option<T>>,
    place: usize,
    open: impl FnOnce() -> StoreResult<T>,
) -> StoreResult<&mut T> {
    if opened.len() <= place {
        opened.resize_with(place + 1, || None);
    }
    let slot = &mut opened[place];
    if slot.is_none() {
        *slot = Some(open()?);
    }
    Ok(slot.as_mut().expect("just made"))
}

type ReadTables = RefCell<Vec<Option<ReadOnlyTable<Bytes, Bytes>>>>;

pub enum RedbTxn {
    Read(ReadTransaction, ReadTables),
    Write(Writing),
}

fn get<R>(
    table: &impl ReadableTable<Bytes, Bytes>,
    key: &[u8],
    look: impl FnOnce(&[u8]) -> R,
) -> StoreResult<Option<R>> {
    Ok(table.get(key)?.map(|value| look(value.value())))
}

fn scan(
    table: &impl ReadableTable<Bytes, Bytes>,
    (low, high): (&[u8], Option<&[u8]>),
    direction: Direction,
    visit: Visit<'_>,
) -> StoreResult<()> {
    let bounds = (Bound::Included(low), high.map_or(Bound::Unbounded, Bound::Excluded));
    let mut range = table.range::<&[u8]>(bounds)?;
    let mut next = || match direction {
        Direction::Forward => range.next(),
        Direction::Backward => range.next_back(),
    };
    while let Some(pair) = next() {
        let (key, value) = pair?;
        if visit(key.value(), value.value()).is_break() {
            break;
        }
    }
    Ok(())
}

impl PeerTxn for RedbTxn {
    type Table = RedbTable;

    fn get<R>(
        &self,
        table: &RedbTable,
        key: &[u8],
        look: impl FnOnce(&[u8]) -> R,
    ) -> StoreResult<Option<R>> {
        match self {
            RedbTxn::Write(writing) => writing.with(table, |table| get(table, key, look)),
            RedbTxn::Read(txn, tables) => {
                let open = || Ok(txn.open_table(definition(&table.name))?);
                get(slot(&mut tables.borrow_mut(), table.place, open)?, key, look)
            }
        }
    }

    fn put(&mut self, table: &RedbTable, key: &[u8], value: &[u8]) -> TxnResult<()> {
        let RedbTxn::Write(writing) = self else { return Err(failed("it only reads")) };
        let put = writing.with(table, |table| Ok(table.insert(key, value).map(drop)?));
        put.map_err(failed)
    }

    fn remove(&mut self, table: &RedbTable, key: &[u8]) -> TxnResult<()> {
        let RedbTxn::Write(writing) = self else { return Err(failed("it only reads")) };
        writing.with(table, |table| Ok(table.remove(key).map(drop)?)).map_err(failed)
    }

    fn scan(
        &self,
        table: &RedbTable,
        low: &[u8],
        high: Option<&[u8]>,
        direction: Direction,
        visit: Visit<'_>,
    ) -> StoreResult<()> {
        match self {
            RedbTxn::Write(writing) => {
                writing.with(table, |table| scan(table, (low, high), direction, visit))
            }
            RedbTxn::Read(txn, tables) => {
                let open = || Ok(txn.open_table(definition(&table.name))?);
                let mut tables = tables.borrow_mut();
                scan(slot(&mut tables, table.place, open)?, (low, high), direction, visit)
            }
        }
    }

    fn commit(self) -> TxnResult<()> {
        match self {
            RedbTxn::Read(..) => Ok(()),
            RedbTxn::Write(writing) => writing.into_owner().commit().map_err(failed),
        }
    }
}
