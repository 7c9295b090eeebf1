//! LMDB: one writer at a time, which waits for its turn. Its readers have snapshots.

use super::neutral::{Peer, PeerTxn, Visit, failed};
use heed::{
    Database, Env, EnvFlags, EnvOpenOptions, RoTxn, RwTxn, WithoutTls,
    types::{Bytes, DecodeIgnore, Str},
};
use std::ops::Bound;
use wattle_workloads::driver::{
    options::{Durability, StoreOptions},
    store::{Access, Direction, StoreResult, TxnResult},
};

/// Address space of the map.
const MAP_BYTES: usize = 64 << 30;
/// Most tables.
const TABLES: u32 = 64;

pub struct Lmdb(Env<WithoutTls>);

type Table = Database<Bytes, Bytes>;

impl Peer for Lmdb {
    const NAME: &'static str = "lmdb";
    const ISOLATION: &'static str = "serializable";
    type Table = Table;
    type Txn<'a> = LmdbTxn<'a>;

    fn open(options: &StoreOptions) -> StoreResult<Self> {
        let mut open = EnvOpenOptions::new().read_txn_without_tls();
        open.map_size(MAP_BYTES).max_dbs(TABLES).max_readers(1000);
        let mut flags = EnvFlags::empty();
        flags.set(EnvFlags::NO_SYNC, options.durability != Durability::Sync);
        // SAFETY: no flag is set that lets the caller write to the map. A crash of the system while
        // commits need not be durable may lose the store, which only this run reads.
        unsafe { open.flags(flags) };
        // SAFETY: the directory belongs to this run, so no other process changes the mapped file,
        // and this process has it open only once.
        Ok(Self(unsafe { open.open(&options.path)? }))
    }

    fn table_names(&self) -> StoreResult<Vec<String>> {
        let txn = self.0.read_txn()?;
        let main: Option<Database<Str, DecodeIgnore>> = self.0.open_database(&txn, None)?;
        let Some(main) = main else { return Ok(Vec::new()) };
        main.iter(&txn)?.map(|entry| Ok(entry?.0.to_owned())).collect()
    }

    fn table(&self, name: &str) -> StoreResult<Table> {
        let mut txn = self.0.write_txn()?;
        let table = self.0.create_database(&mut txn, Some(name))?;
        txn.commit()?;
        Ok(table)
    }

    fn begin(&self, access: Access) -> StoreResult<LmdbTxn<'_>> {
        Ok(match access {
            Access::ReadOnly => LmdbTxn::Read(self.0.read_txn()?),
            Access::ReadWrite => LmdbTxn::Write(self.0.write_txn()?),
        })
    }

    fn sync(&self) -> StoreResult<()> {
        Ok(self.0.force_sync()?)
    }

    fn close(self) -> StoreResult<()> {
        self.sync()?;
        self.0.prepare_for_closing().wait();
        Ok(())
    }
}

pub enum LmdbTxn<'a> {
    Read(RoTxn<'a, WithoutTls>),
    Write(RwTxn<'a>),
}

impl PeerTxn for LmdbTxn<'_> {
    type Table = Table;

    fn get<R>(
        &self,
        table: &Table,
        key: &[u8],
        look: impl FnOnce(&[u8]) -> R,
    ) -> StoreResult<Option<R>> {
        let value = match self {
            LmdbTxn::Read(txn) => table.get(txn, key)?,
            LmdbTxn::Write(txn) => table.get(txn, key)?,
        };
        Ok(value.map(look))
    }

    fn put(&mut self, table: &Table, key: &[u8], value: &[u8]) -> TxnResult<()> {
        let LmdbTxn::Write(txn) = self else { return Err(failed("it only reads")) };
        table.put(txn, key, value).map_err(failed)
    }

    fn remove(&mut self, table: &Table, key: &[u8]) -> TxnResult<()> {
        let LmdbTxn::Write(txn) = self else { return Err(failed("it only reads")) };
        table.delete(txn, key).map(drop).map_err(failed)
    }

    fn scan(
        &self,
        table: &Table,
        low: &[u8],
        high: Option<&[u8]>,
        direction: Direction,
        visit: Visit<'_>,
    ) -> StoreResult<()> {
        // LMDB takes no empty key.
        let low = if low.is_empty() { Bound::Unbounded } else { Bound::Included(low) };
        let bounds = (low, high.map_or(Bound::Unbounded, Bound::Excluded));
        macro_rules! visit_all {
            ($range:expr) => {
                for pair in $range {
                    let (key, value) = pair?;
                    if visit(key, value).is_break() {
                        break;
                    }
                }
            };
        }
        match (self, direction) {
            (LmdbTxn::Read(txn), Direction::Forward) => visit_all!(table.range(txn, &bounds)?),
            (LmdbTxn::Read(txn), Direction::Backward) => visit_all!(table.rev_range(txn, &bounds)?),
            (LmdbTxn::Write(txn), Direction::Forward) => visit_all!(table.range(txn, &bounds)?),
            (LmdbTxn::Write(txn), Direction::Backward) => {
                visit_all!(table.rev_range(txn, &bounds)?);
            }
        }
        Ok(())
    }

    fn commit(self) -> TxnResult<()> {
        match self {
            LmdbTxn::Read(_) => Ok(()),
            LmdbTxn::Write(txn) => txn.commit().map_err(failed),
        }
    }
}
