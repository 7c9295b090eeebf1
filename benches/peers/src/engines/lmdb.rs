//! LMDB, through heed: a copy-on-write B-tree in a memory-mapped file, one writer at a time.

use crate::store::{Config, Key, Result, Session, Store, absent};
use heed::{Database, Env, EnvFlags, EnvOpenOptions, types::Bytes};
use std::ops::Bound;

/// Address space of the map.
const MAP_BYTES: usize = 64 << 30;

pub struct Lmdb {
    env: Env,
    database: Database<Bytes, Bytes>,
}

impl Lmdb {
    pub fn open(config: &Config) -> Result<Self> {
        let mut options = EnvOpenOptions::new();
        options.map_size(MAP_BYTES).max_dbs(4).max_readers(200);
        let mut flags = EnvFlags::empty();
        flags.set(EnvFlags::NO_SYNC, !config.durable);
        flags.set(EnvFlags::NO_READ_AHEAD, config.larger);
        // SAFETY: no flag is set that lets the caller write to the map or share transactions
        // between threads. A crash of the system during NO_SYNC rows may lose their store, which
        // only they read.
        unsafe { options.flags(flags) };
        // SAFETY: the directory belongs to this row, so no other process changes the mapped file,
        // and this process has opened it only once.
        let env = unsafe { options.open(&config.dir)? };
        let existing = {
            let txn = env.read_txn()?;
            let database = env.open_database(&txn, Some("t"))?;
            txn.commit()?;
            database
        };
        let database = match existing {
            Some(database) => database,
            None => {
                let mut txn = env.write_txn()?;
                let database = env.create_database(&mut txn, Some("t"))?;
                txn.commit()?;
                database
            }
        };
        Ok(Self { env, database })
    }
}

impl Store for Lmdb {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(LmdbSession { store: self }))
    }

    fn sync(&self) -> Result<()> {
        Ok(self.env.force_sync()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}

struct LmdbSession<'a> {
    store: &'a Lmdb,
}

impl Session for LmdbSession<'_> {
    fn get(&mut self, key: &Key, show: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let txn = self.store.env.read_txn()?;
        Ok(self.store.database.get(&txn, key)?.map(show).is_some())
    }

    fn get_many(&mut self, keys: &[Key], show: &mut dyn FnMut(&[u8])) -> Result<()> {
        let txn = self.store.env.read_txn()?;
        for key in keys {
            show(self.store.database.get(&txn, key)?.ok_or_else(|| absent(key))?);
        }
        Ok(())
    }

    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        self.put_many(&[(*key, value)])
    }

    fn put_many(&mut self, records: &[(Key, &[u8])]) -> Result<()> {
        let mut txn = self.store.env.write_txn()?;
        for (key, value) in records {
            self.store.database.put(&mut txn, key, value)?;
        }
        Ok(txn.commit()?)
    }

    fn remove_many(&mut self, keys: &[Key]) -> Result<()> {
        let mut txn = self.store.env.write_txn()?;
        for key in keys {
            if !self.store.database.delete(&mut txn, key)? {
                return Err(absent(key));
            }
        }
        Ok(txn.commit()?)
    }

    fn scan(
        &mut self,
        from: &[u8],
        limit: usize,
        show: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize> {
        let txn = self.store.env.read_txn()?;
        // LMDB takes no empty key.
        let from = if from.is_empty() { Bound::Unbounded } else { Bound::Included(from) };
        let mut records = 0;
        for entry in self.store.database.range(&txn, &(from, Bound::Unbounded))?.take(limit) {
            let (key, value) = entry?;
            show(key, value);
            records += 1;
        }
        Ok(records)
    }
}
