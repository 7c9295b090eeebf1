//! Wattle.

use crate::store::{Config, Key, Result, Session, Store, absent};
use std::ops::{Bound, ControlFlow};
use wattle::{Direction, Durability, Engine, IoKind, Options, Tree};

pub struct Wattle {
    // Handles go before the engine.
    tree: Tree,
    engine: Engine,
}

impl Wattle {
    pub fn open(config: &Config, io: IoKind) -> Result<Self> {
        let durability = if config.durable { Durability::Sync } else { Durability::None };
        let options = Options::default().pool_bytes(config.cache_bytes);
        let options = options.durability(durability).io(io);
        let engine = Engine::open(config.dir.join("store"), options)?;
        Ok(Self { tree: engine.tree("t")?, engine })
    }
}

impl Store for Wattle {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(WattleSession { session: self.engine.session()?, tree: &self.tree }))
    }

    fn sync(&self) -> Result<()> {
        Ok(self.engine.sync()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        let Self { tree, engine } = *self;
        drop(tree);
        engine.close().map_err(|error| error.to_string().into())
    }
}

struct WattleSession<'a> {
    session: wattle::Session,
    tree: &'a Tree,
}

impl Session for WattleSession<'_> {
    fn get(&mut self, key: &Key, show: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.session.get_with(self.tree, key, |value| show(value))?.is_some())
    }

    fn get_many(&mut self, keys: &[Key], show: &mut dyn FnMut(&[u8])) -> Result<()> {
        let txn = self.session.begin_read()?;
        for key in keys {
            txn.get_with(self.tree, key, |value| show(value))?.ok_or_else(|| absent(key))?;
        }
        Ok(txn.commit()?)
    }

    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        Ok(self.session.put(self.tree, key, value)?)
    }

    fn put_many(&mut self, records: &[(Key, &[u8])]) -> Result<()> {
        Ok(self.session.put_many(self.tree, records)?)
    }

    fn remove_many(&mut self, keys: &[Key]) -> Result<()> {
        let removed = self.session.remove_many(self.tree, keys)?;
        if removed == keys.len() { Ok(()) } else { Err("a record to remove is absent".into()) }
    }

    fn scan(
        &mut self,
        from: &[u8],
        limit: usize,
        show: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize> {
        let mut records = 0;
        if limit == usize::MAX {
            let bounds = (Bound::Included(from), Bound::Unbounded);
            self.session.visit(self.tree, bounds, Direction::Forward, |key, value| {
                show(key, value);
                records += 1;
                ControlFlow::Continue(())
            })?;
            return Ok(records);
        }
        let mut range = self.session.range(self.tree, from..)?.expect_records(limit);
        while records < limit
            && let Some((key, value)) = range.next_entry()?
        {
            show(key, value);
            records += 1;
        }
        Ok(records)
    }
}
