//! The interface of an engine: one [`Store`] for each, one [`Session`] for each thread.

use std::{error::Error, path::PathBuf};

/// Result of an adapter or a row. A failure of any engine ends the row with its message.
pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Bytes of a key.
pub const KEY: usize = 24;

/// A key: `user` and twenty digits.
pub type Key = [u8; KEY];

/// How to open a store.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory that the engine has for itself.
    pub dir: PathBuf,
    /// Bytes of the engine's cache. LMDB has none: it uses the page cache of the system.
    pub cache_bytes: u64,
    /// Whether a commit that has returned survives a power failure.
    pub durable: bool,
    /// Threads that will have a session; SQLite divides its cache among them.
    pub threads: usize,
    /// Whether the data are larger than the cache.
    pub larger: bool,
}

/// An open store with one table.
pub trait Store: Send + Sync {
    /// A session for the thread that calls.
    ///
    /// # Errors
    /// Those of the engine.
    fn session(&self) -> Result<Box<dyn Session + '_>>;

    /// Makes all commits durable that have returned.
    ///
    /// # Errors
    /// Those of the engine.
    fn sync(&self) -> Result<()>;

    /// Closes the store as the engine's manual advises.
    ///
    /// # Errors
    /// Those of the engine.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Operations of one thread. Each `put` is an auto-committed transaction.
pub trait Session {
    /// Shows the value of `key`; false if there is none.
    ///
    /// # Errors
    /// Those of the engine.
    fn get(&mut self, key: &Key, show: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Shows the values of `keys` from one snapshot. Engines without snapshots read one by one.
    ///
    /// # Errors
    /// Those of the engine, and one if a key is absent.
    fn get_many(&mut self, keys: &[Key], show: &mut dyn FnMut(&[u8])) -> Result<()> {
        for key in keys {
            if !self.get(key, show)? {
                return Err(absent(key));
            }
        }
        Ok(())
    }

    /// Writes one record.
    ///
    /// # Errors
    /// Those of the engine.
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()>;

    /// Writes records in one transaction.
    ///
    /// # Errors
    /// Those of the engine.
    fn put_many(&mut self, records: &[(Key, &[u8])]) -> Result<()>;

    /// Removes records in one transaction.
    ///
    /// # Errors
    /// Those of the engine.
    fn remove_many(&mut self, keys: &[Key]) -> Result<()>;

    /// Shows up to `limit` records from `from` on, in order; how many there were.
    ///
    /// # Errors
    /// Those of the engine.
    fn scan(
        &mut self,
        from: &[u8],
        limit: usize,
        show: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize>;
}

/// The error of a record that should be there.
pub fn absent(key: &[u8]) -> Box<dyn Error + Send + Sync> {
    format!("the record {} is lost", String::from_utf8_lossy(key)).into()
}
