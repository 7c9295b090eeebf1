#![doc = include_str!("../docs/guide.md")]
#![forbid(unsafe_code)]

mod async_compound;
mod async_session;
mod async_transaction;
mod background;
mod backup;
mod barrier;
mod catalog;
mod checkpoint;
mod close;
mod compact;
mod compound;
mod core;
mod engine;
mod epochs;
mod finish_recovery;
mod garbage;
mod handle;
mod held;
mod internal;
mod janitor;
mod keeper;
mod kept_readers;
mod key_interval;
mod lease;
mod limits;
mod liveness;
mod log_dump;
mod memory;
mod mvcc;
mod op;
mod open;
mod opening;
mod options;
#[cfg(feature = "metrics")]
mod publish;
mod range;
mod recover;
mod runtime;
mod session;
mod snapshot;
mod snapshot_range;
mod spawn;
mod stats;
mod store;
mod store_info;
mod task_place;
mod task_threads;
mod transact;
mod transaction;
mod transaction_trees;
mod tree;
mod trees;
mod txn;
mod typed;
mod typed_key;
mod unlogged_pages;
mod value_reader;
mod verify;
mod waits;
mod warm;

pub use async_transaction::AsyncTransaction;
pub use backup::BackupReport;
pub use catalog::MAX_TREE_NAME;
pub use compact::CompactReport;
pub use engine::{CloseError, Engine};
pub use key_interval::KeyInterval;
pub use log_dump::dump_log;
pub use memory::memory_limit;
pub use op::update::CompareFailed;
pub use options::{MIN_LOG_BYTES, Options, default_log_bytes};
pub use range::{AsyncRange, Keys, Range};
pub use runtime::run;
pub use session::{blocking::Session, tasks::AsyncSession};
pub use snapshot::Snapshot;
pub use snapshot_range::{SnapshotKeys, SnapshotRange};
pub use spawn::Spawned;
pub use stats::{Refused, Stats, TreeStat};
pub use store::{DATA_FILE, LOG_DIRECTORY, STORE_VERSION, WARM_FILE};
pub use store_info::StoreInfo;
pub use transaction::Transaction;
pub use tree::Tree;
pub use txn::{Durability, Isolation, Reads, Savepoint, Ticket, TxnOptions};
pub use typed::{ReadsRecords, TypedRange, TypedTree, TypedValue, WritesRecords};
pub use typed_key::TypedKey;
pub use value_reader::ValueReader;
pub use verify::VerifyReport;
pub use wattle_btree::{Direction, MAX_KEY, MAX_VALUE, PageImages};
pub use wattle_buffer::{
    Ace, Error, MIN_POOL_BYTES, PAGE_SIZE, PageAccess, PageId, PageTrace, Result, TraceSink,
    TreeId, WriteOrder,
    io::{IoKind, LogStorage, Storage},
    replacement::{PolicyInfo, policies},
};
#[doc(hidden)]
pub use wattle_wal::FlushPolicy;

/// Simulated devices, memory devices and the device probe.
pub mod io {
    pub use wattle_buffer::io::*;
}

/// The example of the README of the repository, compiled and run with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct ReadmeDoctest;
