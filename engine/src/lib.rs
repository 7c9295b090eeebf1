#![doc = include_str!("../docs/guide.md")]
// The guide describes the whole crate.
#![cfg_attr(not(feature = "async"), allow(rustdoc::broken_intra_doc_links))]
#![forbid(unsafe_code)]

#[cfg(feature = "async")]
mod async_compound;
#[cfg(feature = "async")]
mod async_range;
#[cfg(feature = "async")]
mod async_session;
#[cfg(feature = "async")]
mod async_transact;
#[cfg(feature = "async")]
mod async_transaction;
#[cfg(feature = "async")]
mod async_trees;
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
#[cfg(feature = "async")]
mod runtime;
mod session;
mod snapshot;
mod snapshot_range;
#[cfg(feature = "async")]
mod spawn;
mod stats;
mod store;
mod store_info;
#[cfg(feature = "async")]
mod task_place;
#[cfg(feature = "async")]
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

#[cfg(feature = "async")]
pub use async_range::AsyncRange;
#[cfg(feature = "async")]
pub use async_transaction::AsyncTransaction;
pub use backup::BackupReport;
pub use catalog::MAX_TREE_NAME;
pub use compact::CompactReport;
pub use engine::{CloseError, Engine};
pub use key_interval::KeyInterval;
pub use log_dump::dump_log;
pub use memory::memory_limit;
pub use op::{extent::RangeEstimate, update::CompareFailed};
pub use options::{MIN_LOG_BYTES, Options, default_log_bytes};
pub use range::{Keys, Range};
#[cfg(feature = "async")]
pub use runtime::run;
pub use session::blocking::Session;
#[cfg(feature = "async")]
pub use session::tasks::AsyncSession;
pub use snapshot::Snapshot;
pub use snapshot_range::{SnapshotKeys, SnapshotRange};
#[cfg(feature = "async")]
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
