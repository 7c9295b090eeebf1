//! redb: a copy-on-write B-tree, one writer at a time.

use crate::store::{Config, Key, Result, Session, Store, absent};
use redb::{Database, Durability, ReadableDatabase, TableDefinition, WriteTransaction};

const TABLE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("t");

pub struct Redb {
    database: Database,
    durability: Durability,
}

impl Redb {
    pub fn open(config: &Config) -> Result<Self> {
        let mut builder = Database::builder();
        builder.set_cache_size(config.cache_bytes as usize);
        let path = config.dir.join("store.redb");
        let created = !path.exists();
        let database = builder.create(path)?;
        if created {
            let txn = database.begin_write()?;
            txn.open_table(TABLE)?;
            txn.commit()?;
        }
        let durability = if config.durable { Durability::Immediate } else { Durability::None };
        Ok(Self { database, durability })
    }

    fn begin(&self) -> Result<WriteTransaction> {
        let mut txn = self.database.begin_write()?;
        txn.set_durability(self.durability)?;
        Ok(txn)
    }
}

impl Store for Redb {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(RedbSession { store: self }))
    }

    fn sync(&self) -> Result<()> {
        Ok(self.database.begin_write()?.commit()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct RedbSession<'a> {
    store: &'a Redb,
}

impl Session for RedbSession<'_> {
    fn get(&mut self, key: &Key, show: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let table = self.store.database.begin_read()?.open_table(TABLE)?;
        let value = table.get(&key[..])?;
        Ok(value.map(|value| show(value.value())).is_some())
    }

    fn get_many(&mut self, keys: &[Key], show: &mut dyn FnMut(&[u8])) -> Result<()> {
        let table = self.store.database.begin_read()?.open_table(TABLE)?;
        for key in keys {
            show(table.get(&key[..])?.ok_or_else(|| absent(key))?.value());
        }
        Ok(())
    }

    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        self.put_many(&[(*key, value)])
    }

    fn put_many(&mut self, records: &[(Key, &[u8])]) -> Result<()> {
        let txn = self.store.begin()?;
        {
            let mut table = txn.open_table(TABLE)?;
            for (key, value) in records {
                table.insert(&key[..], *value)?;
            }
        }
        Ok(txn.commit()?)
    }

    fn remove_many(&mut self, keys: &[Key]) -> Result<()> {
        let txn = self.store.begin()?;
        {
            let mut table = txn.open_table(TABLE)?;
            for key in keys {
                table.remove(&key[..])?.ok_or_else(|| absent(key))?;
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
        let table = self.store.database.begin_read()?.open_table(TABLE)?;
        let mut records = 0;
        for entry in table.range::<&[u8]>(from..)?.take(limit) {
            let (key, value) = entry?;
            show(key.value(), value.value());
            records += 1;
        }
        Ok(records)
    }
}
