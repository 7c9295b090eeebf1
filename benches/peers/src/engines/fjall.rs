//! fjall: log-structured merge trees. Without compression, as the other engines.

use crate::store::{Config, Key, Result, Session, Store, absent};
use fjall::{
    CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable,
    config::CompressionPolicy,
};

pub struct Fjall {
    database: Database,
    keyspace: Keyspace,
    durable: bool,
}

/// Options of a table.
pub fn keyspace_options() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default()
        .data_block_compression_policy(CompressionPolicy::disabled())
        .index_block_compression_policy(CompressionPolicy::disabled())
}

impl Fjall {
    pub fn open(config: &Config) -> Result<Self> {
        let database = Database::builder(config.dir.join("store"))
            .cache_size(config.cache_bytes)
            .journal_compression(CompressionType::None)
            .open()?;
        let keyspace = database.keyspace("t", keyspace_options)?;
        Ok(Self { database, keyspace, durable: config.durable })
    }
}

impl Store for Fjall {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(FjallSession { store: self }))
    }

    fn sync(&self) -> Result<()> {
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.sync()
    }
}

struct FjallSession<'a> {
    store: &'a Fjall,
}

impl FjallSession<'_> {
    fn batch(&self) -> fjall::OwnedWriteBatch {
        let batch = self.store.database.batch();
        batch.durability(self.store.durable.then_some(PersistMode::SyncData))
    }
}

impl Session for FjallSession<'_> {
    fn get(&mut self, key: &Key, show: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.store.keyspace.get(key)?.map(|value| show(&value)).is_some())
    }

    fn get_many(&mut self, keys: &[Key], show: &mut dyn FnMut(&[u8])) -> Result<()> {
        let snapshot = self.store.database.snapshot();
        for key in keys {
            show(&snapshot.get(&self.store.keyspace, key)?.ok_or_else(|| absent(key))?);
        }
        Ok(())
    }

    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        self.store.keyspace.insert(&key[..], value)?;
        if self.store.durable {
            self.store.database.persist(PersistMode::SyncData)?;
        }
        Ok(())
    }

    fn put_many(&mut self, records: &[(Key, &[u8])]) -> Result<()> {
        let mut batch = self.batch();
        for (key, value) in records {
            batch.insert(&self.store.keyspace, &key[..], *value);
        }
        Ok(batch.commit()?)
    }

    fn remove_many(&mut self, keys: &[Key]) -> Result<()> {
        let mut batch = self.batch();
        for key in keys {
            batch.remove(&self.store.keyspace, &key[..]);
        }
        Ok(batch.commit()?)
    }

    fn scan(
        &mut self,
        from: &[u8],
        limit: usize,
        show: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize> {
        let mut records = 0;
        for entry in self.store.keyspace.range(from..).take(limit) {
            let (key, value) = entry.into_inner()?;
            show(&key, &value);
            records += 1;
        }
        Ok(records)
    }
}
