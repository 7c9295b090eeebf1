//! openraft's own tests of storage, for each durability and kind of reads, and tests of snapshots.

mod crash;
mod install;
mod types;

use openraft::{
    StorageError,
    testing::{StoreBuilder, Suite},
};
use types::{Machine, TypeConfig};
use wattle::{Durability, Engine, MIN_LOG_BYTES, Options, Reads};
use wattle_raft::LogStore;

struct Builder(Reads, Durability);

impl StoreBuilder<TypeConfig, LogStore<TypeConfig>, Machine, tempfile::TempDir> for Builder {
    async fn build(
        &self,
    ) -> Result<(tempfile::TempDir, LogStore<TypeConfig>, Machine), StorageError<u64>> {
        let directory = tempfile::tempdir().expect("a directory");
        let options = Options::default().pool_bytes(4 << 20).log_bytes(MIN_LOG_BYTES);
        let options = options.reads(self.0).durability(self.1);
        let engine = Engine::open(directory.path().join("store"), options).expect("a store");
        let (log, machine) = wattle_raft::open(&engine, directory.path().join("snapshots"))?;
        Ok((directory, log, machine))
    }
}

#[test]
fn newest_reads_and_sync() {
    Suite::test_all(Builder(Reads::Newest, Durability::Sync)).unwrap();
}

#[test]
fn newest_reads_and_group() {
    Suite::test_all(Builder(Reads::Newest, Durability::Group)).unwrap();
}

#[test]
fn durable_reads_and_sync() {
    Suite::test_all(Builder(Reads::Durable, Durability::Sync)).unwrap();
}

#[test]
fn durable_reads_and_group() {
    Suite::test_all(Builder(Reads::Durable, Durability::Group)).unwrap();
}
