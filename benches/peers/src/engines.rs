//! The engines and their adapters.

use crate::store::{Config, Result, Store};
use ::wattle::IoKind;

mod btree_map;
pub mod fjall;
mod lmdb;
mod redb;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;
mod sled;
mod sqlite;
mod wattle;

/// Names of the engines, in the order of the table's columns. `wattle-buffered` reads
/// and writes through the page cache of the system, as most of the others do.
pub const ENGINES: &[&str] = &[
    "wattle",
    "wattle-buffered",
    "redb",
    "fjall",
    "lmdb",
    #[cfg(feature = "rocksdb")]
    "rocksdb",
    "sqlite",
    "sled",
    "btreemap",
];

/// How each engine is told that a commit must be durable.
pub const DURABLE_COMMITS: &[(&str, &str)] = &[
    ("wattle", "`Durability::Sync`"),
    ("wattle-buffered", "the same"),
    ("redb", "`Durability::Immediate`"),
    ("fjall", "`PersistMode::SyncData` after each commit"),
    ("lmdb", "no flag (`fdatasync` and the meta page, at each commit)"),
    ("rocksdb", "`WriteOptions::sync`"),
    ("sqlite", "write-ahead log, `synchronous=FULL`"),
    ("sled", "`flush` after each commit, which is no sync of the device (no peer in these rows)"),
];

/// Engines whose commits do not reach past the cache of the device, so that they are no peers in
/// durable rows. sled 0.34 calls `sync_file_range`, whose manual says that it does not flush the
/// cache of the disk nor write the file's metadata.
pub const WITHOUT_DEVICE_SYNC: &[&str] = &["sled"];

/// Opens or creates a store of the engine with this name.
///
/// # Errors
/// Those of the engine, and one for an unknown name.
pub fn open(engine: &str, config: &Config) -> Result<Box<dyn Store>> {
    std::fs::create_dir_all(&config.dir)?;
    Ok(match engine {
        "wattle" => Box::new(wattle::Wattle::open(config, IoKind::Uring)?),
        "wattle-buffered" => Box::new(wattle::Wattle::open(config, IoKind::Buffered)?),
        "redb" => Box::new(redb::Redb::open(config)?),
        "fjall" => Box::new(fjall::Fjall::open(config)?),
        "lmdb" => Box::new(lmdb::Lmdb::open(config)?),
        #[cfg(feature = "rocksdb")]
        "rocksdb" => Box::new(rocksdb::RocksDb::open(config)?),
        "sqlite" => Box::new(sqlite::Sqlite::open(config)?),
        "sled" => Box::new(sled::Sled::open(config)?),
        "btreemap" => Box::new(btree_map::Map::default()),
        _ => return Err(format!("no engine {engine}; there are {}", ENGINES.join(", ")).into()),
    })
}
