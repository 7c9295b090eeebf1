//! The options of a store, in terms that every key-value engine has.
//!
//! Settings that only one engine knows, such as a replacement policy, belong to its
//! [`super::backend::Backend`].

use std::path::PathBuf;

use clap::ValueEnum;
use serde::Serialize;

/// How to open a store.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreOptions {
    /// Directory of the store. It need not exist.
    pub path: PathBuf,
    /// Bytes of memory for cached data.
    pub memory_bytes: u64,
    /// When a commit returns.
    pub durability: Durability,
    /// Whether changes are logged. Without a log a crash loses the store.
    pub log: bool,
    /// Bytes of log that checkpoints aim to stay below.
    pub log_limit: u64,
    /// Commits that reads outside of read-write transactions see.
    pub reads: Reads,
    /// Worker threads.
    pub threads: usize,
    /// Tasks on each thread; 0 for blocking clients.
    pub tasks: usize,
    /// Tables that are open at a time.
    pub tables: usize,
}

impl StoreOptions {
    /// Whether clients go on before a commit is durable, and ask for it with
    /// [`super::store::Client::take_pending`].
    pub fn pipelined(&self) -> bool {
        self.durability == Durability::Group
    }
}

/// When a commit returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Each operation waits until its commit is durable.
    Sync,
    /// A worker goes on and has many commits under way; an operation counts when it is durable.
    Group,
    /// Commits wait for nothing.
    None,
}

/// Commits that auto-committed reads and read-only transactions see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reads {
    /// Every commit that has returned, durable or not. A read-only transaction ends when the
    /// commits that it has read are durable; an auto-committed read does not wait.
    Newest,
    /// Durable commits, and those of the session that reads.
    Durable,
}

impl Durability {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Durability::Sync => "sync",
            Durability::Group => "group",
            Durability::None => "none",
        }
    }
}

impl Reads {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Reads::Newest => "newest",
            Reads::Durable => "durable",
        }
    }
}
