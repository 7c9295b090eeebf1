//! sled: a lock-free tree over a log-structured store.

use crate::store::{Config, Key, Result, Session, Store};

pub struct Sled {
    tree: sled::Tree,
    database: sled::Db,
    durable: bool,
}

impl Sled {
    pub fn open(config: &Config) -> Result<Self> {
        let database = sled::Config::new()
            .path(config.dir.join("store"))
            .cache_capacity(config.cache_bytes)
            .open()?;
        Ok(Self { tree: database.open_tree("t")?, database, durable: config.durable })
    }
}

impl Store for Sled {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(SledSession { store: self }))
    }

    fn sync(&self) -> Result<()> {
        self.database.flush()?;
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.sync()
    }
}

struct SledSession<'a> {
    store: &'a Sled,
}

impl SledSession<'_> {
    fn committed(&self) -> Result<()> {
        if self.store.durable {
            self.store.tree.flush()?;
        }
        Ok(())
    }
}

impl Session for SledSession<'_> {
    fn get(&mut self, key: &Key, show: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.store.tree.get(key)?.map(|value| show(&value)).is_some())
    }

    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        self.store.tree.insert(key, value)?;
        self.committed()
    }

    fn put_many(&mut self, records: &[(Key, &[u8])]) -> Result<()> {
        let mut batch = sled::Batch::default();
        for (key, value) in records {
            batch.insert(&key[..], *value);
        }
        self.store.tree.apply_batch(batch)?;
        self.committed()
    }

    fn remove_many(&mut self, keys: &[Key]) -> Result<()> {
        let mut batch = sled::Batch::default();
        for key in keys {
            batch.remove(&key[..]);
        }
        self.store.tree.apply_batch(batch)?;
        self.committed()
    }

    fn scan(
        &mut self,
        from: &[u8],
        limit: usize,
        show: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize> {
        let mut records = 0;
        for entry in self.store.tree.range(from..).take(limit) {
            let (key, value) = entry?;
            show(&key, &value);
            records += 1;
        }
        Ok(records)
    }
}
