//! `BTreeMap` under a lock: the speed of memory alone. It has no files, so rows that need some skip
//! it.

use crate::store::{Key, Result, Session, Store, absent};
use std::{collections::BTreeMap, ops::Bound, sync::RwLock};

const POISONED: &str = "no thread panics with the map";

#[derive(Default)]
pub struct Map {
    records: RwLock<BTreeMap<Vec<u8>, Box<[u8]>>>,
}

impl Store for Map {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(MapSession { store: self }))
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct MapSession<'a> {
    store: &'a Map,
}

impl Session for MapSession<'_> {
    fn get(&mut self, key: &Key, show: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let records = self.store.records.read().expect(POISONED);
        Ok(records.get(&key[..]).map(|value| show(value)).is_some())
    }

    fn get_many(&mut self, keys: &[Key], show: &mut dyn FnMut(&[u8])) -> Result<()> {
        let records = self.store.records.read().expect(POISONED);
        for key in keys {
            show(records.get(&key[..]).ok_or_else(|| absent(key))?);
        }
        Ok(())
    }

    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        self.put_many(&[(*key, value)])
    }

    fn put_many(&mut self, new: &[(Key, &[u8])]) -> Result<()> {
        let mut records = self.store.records.write().expect(POISONED);
        for (key, value) in new {
            records.insert(key.to_vec(), (*value).into());
        }
        Ok(())
    }

    fn remove_many(&mut self, keys: &[Key]) -> Result<()> {
        let mut records = self.store.records.write().expect(POISONED);
        for key in keys {
            records.remove(&key[..]).ok_or_else(|| absent(key))?;
        }
        Ok(())
    }

    fn scan(
        &mut self,
        from: &[u8],
        limit: usize,
        show: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize> {
        let records = self.store.records.read().expect(POISONED);
        let range = records.range::<[u8], _>((Bound::Included(from), Bound::Unbounded)).take(limit);
        Ok(range.map(|(key, value)| show(key, value)).count())
    }
}
