//! fjall with optimistic transactions: several writers, conflicts are found at the commit.

use super::neutral::{Peer, PeerTxn, Visit, failed};
use crate::engines::fjall::keyspace_options;
use fjall::{
    CompressionType, OptimisticTxDatabase, OptimisticTxKeyspace, OptimisticWriteTx, PersistMode,
    Readable, Snapshot,
};
use std::ops::Bound;
use wattle_workloads::driver::{
    options::{Durability, StoreOptions},
    store::{Access, Direction, Stop, StoreResult, TxnResult},
};

pub struct Fjall {
    database: OptimisticTxDatabase,
    durability: Option<PersistMode>,
}

impl Peer for Fjall {
    const NAME: &'static str = "fjall";
    const ISOLATION: &'static str = "serializable";
    type Table = OptimisticTxKeyspace;
    type Txn<'a> = FjallTxn;

    fn open(options: &StoreOptions) -> StoreResult<Self> {
        let database = OptimisticTxDatabase::builder(options.path.join("store"))
            .cache_size(options.memory_bytes)
            .journal_compression(CompressionType::None)
            .open()?;
        let is_durable = options.durability == Durability::Sync;
        Ok(Self { database, durability: is_durable.then_some(PersistMode::SyncData) })
    }

    fn table_names(&self) -> StoreResult<Vec<String>> {
        let names = self.database.list_keyspace_names();
        Ok(names.iter().map(|name| name.to_string()).collect())
    }

    fn table(&self, name: &str) -> StoreResult<OptimisticTxKeyspace> {
        Ok(self.database.keyspace(name, keyspace_options)?)
    }

    fn begin(&self, access: Access) -> StoreResult<FjallTxn> {
        Ok(match access {
            Access::ReadOnly => FjallTxn::Read(self.database.read_tx()),
            Access::ReadWrite => {
                FjallTxn::Write(self.database.write_tx()?.durability(self.durability))
            }
        })
    }

    fn get<R>(
        &self,
        table: &OptimisticTxKeyspace,
        key: &[u8],
        look: impl FnOnce(&[u8]) -> R,
    ) -> StoreResult<Option<R>> {
        Ok(table.get(key)?.map(|value| look(&value)))
    }

    fn sync(&self) -> StoreResult<()> {
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }

    fn close(self) -> StoreResult<()> {
        self.sync()
    }
}

pub enum FjallTxn {
    Read(Snapshot),
    Write(OptimisticWriteTx),
}

fn scan(
    txn: &impl Readable,
    table: &OptimisticTxKeyspace,
    (low, high): (&[u8], Option<&[u8]>),
    direction: Direction,
    visit: Visit<'_>,
) -> StoreResult<()> {
    let bounds = (Bound::Included(low), high.map_or(Bound::Unbounded, Bound::Excluded));
    let mut range = txn.range::<&[u8], _>(table, bounds);
    let mut next = || match direction {
        Direction::Forward => range.next(),
        Direction::Backward => range.next_back(),
    };
    while let Some(pair) = next() {
        let (key, value) = pair.into_inner()?;
        if visit(&key, &value).is_break() {
            break;
        }
    }
    Ok(())
}

impl PeerTxn for FjallTxn {
    type Table = OptimisticTxKeyspace;

    fn get<R>(
        &self,
        table: &OptimisticTxKeyspace,
        key: &[u8],
        look: impl FnOnce(&[u8]) -> R,
    ) -> StoreResult<Option<R>> {
        let value = match self {
            FjallTxn::Read(snapshot) => snapshot.get(table, key)?,
            FjallTxn::Write(txn) => txn.get(table, key)?,
        };
        Ok(value.map(|value| look(&value)))
    }

    fn put(&mut self, table: &OptimisticTxKeyspace, key: &[u8], value: &[u8]) -> TxnResult<()> {
        let FjallTxn::Write(txn) = self else { return Err(failed("it only reads")) };
        txn.insert(table, key, value);
        Ok(())
    }

    fn remove(&mut self, table: &OptimisticTxKeyspace, key: &[u8]) -> TxnResult<()> {
        let FjallTxn::Write(txn) = self else { return Err(failed("it only reads")) };
        txn.remove(table, key);
        Ok(())
    }

    fn scan(
        &self,
        table: &OptimisticTxKeyspace,
        low: &[u8],
        high: Option<&[u8]>,
        direction: Direction,
        visit: Visit<'_>,
    ) -> StoreResult<()> {
        match self {
            FjallTxn::Read(snapshot) => scan(snapshot, table, (low, high), direction, visit),
            FjallTxn::Write(txn) => scan(txn, table, (low, high), direction, visit),
        }
    }

    fn commit(self) -> TxnResult<()> {
        match self {
            FjallTxn::Read(_) => Ok(()),
            FjallTxn::Write(txn) => txn.commit().map_err(failed)?.map_err(|_| Stop::Conflict),
        }
    }
}
