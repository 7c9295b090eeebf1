//! SQLite with a write-ahead log: one writer at a time, a connection for each thread.

use crate::store::{Config, Key, Result, Session, Store, absent};
use rusqlite::Connection;
use std::{path::PathBuf, time::Duration};

const PUT: &str = "INSERT INTO t(k, v) VALUES(?1, ?2) ON CONFLICT(k) DO UPDATE SET v = excluded.v";

pub struct Sqlite {
    path: PathBuf,
    cache_kib: u64,
    synchronous: &'static str,
    /// Keeps the log until the store is closed; closing the last connection clears it away.
    first: std::sync::Mutex<Connection>,
}

impl Sqlite {
    pub fn open(config: &Config) -> Result<Self> {
        let path = config.dir.join("store.db");
        let cache_kib = (config.cache_bytes >> 10) / config.threads as u64;
        let synchronous = if config.durable { "FULL" } else { "NORMAL" };
        let first = connect(&path, cache_kib, synchronous)?;
        first.execute_batch(
            "CREATE TABLE IF NOT EXISTS t(k BLOB PRIMARY KEY, v BLOB) WITHOUT ROWID",
        )?;
        Ok(Self { path, cache_kib, synchronous, first: first.into() })
    }
}

fn connect(path: &PathBuf, cache_kib: u64, synchronous: &str) -> Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(Duration::from_secs(30))?;
    connection.execute_batch(&format!(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous={synchronous}; \
         PRAGMA cache_size=-{cache_kib};"
    ))?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(connection)
}

impl Store for Sqlite {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let connection = connect(&self.path, self.cache_kib, self.synchronous)?;
        Ok(Box::new(SqliteSession { connection }))
    }

    fn sync(&self) -> Result<()> {
        let first = self.first.lock().expect("no thread panics with the connection");
        first.query_row("PRAGMA wal_checkpoint(FULL)", [], |_| Ok(()))?;
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        let first = self.first.into_inner().expect("no thread panics with the connection");
        first.close().map_err(|(_, error)| error.into())
    }
}

struct SqliteSession {
    connection: Connection,
}

impl SqliteSession {
    /// Runs `work` within a transaction that begins with `begin`.
    fn within(&mut self, begin: &str, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.connection.prepare_cached(begin)?.execute([])?;
        work(self)?;
        self.connection.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }
}

impl Session for SqliteSession {
    fn get(&mut self, key: &Key, show: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let mut statement = self.connection.prepare_cached("SELECT v FROM t WHERE k = ?1")?;
        let mut rows = statement.query([&key[..]])?;
        let Some(row) = rows.next()? else { return Ok(false) };
        show(row.get_ref(0)?.as_blob()?);
        Ok(true)
    }

    fn get_many(&mut self, keys: &[Key], show: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.within("BEGIN", |session| {
            for key in keys {
                if !session.get(key, show)? {
                    return Err(absent(key));
                }
            }
            Ok(())
        })
    }

    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        self.connection.prepare_cached(PUT)?.execute((&key[..], value))?;
        Ok(())
    }

    fn put_many(&mut self, records: &[(Key, &[u8])]) -> Result<()> {
        self.within("BEGIN IMMEDIATE", |session| {
            let mut statement = session.connection.prepare_cached(PUT)?;
            for (key, value) in records {
                statement.execute((&key[..], *value))?;
            }
            Ok(())
        })
    }

    fn remove_many(&mut self, keys: &[Key]) -> Result<()> {
        self.within("BEGIN IMMEDIATE", |session| {
            let mut statement = session.connection.prepare_cached("DELETE FROM t WHERE k = ?1")?;
            for key in keys {
                if statement.execute([&key[..]])? != 1 {
                    return Err(absent(key));
                }
            }
            Ok(())
        })
    }

    fn scan(
        &mut self,
        from: &[u8],
        limit: usize,
        show: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT k, v FROM t WHERE k >= ?1 ORDER BY k LIMIT ?2")?;
        let mut rows = statement.query((from, i64::try_from(limit).unwrap_or(-1)))?;
        let mut records = 0;
        while let Some(row) = rows.next()? {
            show(row.get_ref(0)?.as_blob()?, row.get_ref(1)?.as_blob()?);
            records += 1;
        }
        Ok(records)
    }
}
