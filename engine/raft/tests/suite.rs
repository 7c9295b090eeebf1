//! openraft's own tests of storage, for each durability and kind of reads.

use openraft::{
    StorageError,
    testing::{StoreBuilder, Suite},
};
use serde::{Deserialize, Serialize};
use std::io::Cursor;
use wattle::{Durability, Engine, MIN_LOG_BYTES, Options, Reads, Transaction, Tree};
use wattle_raft::{Apply, LogStore, StateMachine};

#[derive(Serialize, Deserialize, Debug, Clone)]
struct Set {
    key: String,
    value: String,
}

#[derive(Serialize, Deserialize, Debug, Clone)]
struct Reply(Option<String>);

openraft::declare_raft_types!(TypeConfig: D = Set, R = Reply);

struct KeyValue;

impl Apply<TypeConfig> for KeyValue {
    fn apply(txn: &mut Transaction<'_>, tree: &Tree, set: Set) -> wattle::Result<Reply> {
        txn.put(tree, set.key.as_bytes(), set.value.as_bytes())?;
        Ok(Reply(Some(set.value)))
    }

    fn no_reply() -> Reply {
        Reply(None)
    }
}

type Machine = StateMachine<TypeConfig, KeyValue>;

struct Builder(Reads, Durability);

impl StoreBuilder<TypeConfig, LogStore<TypeConfig>, Machine, tempfile::TempDir> for Builder {
    async fn build(
        &self,
    ) -> Result<(tempfile::TempDir, LogStore<TypeConfig>, Machine), StorageError<u64>> {
        let directory = tempfile::tempdir().expect("a directory");
        let options = Options::default().pool_bytes(4 << 20).log_bytes(MIN_LOG_BYTES);
        let options = options.reads(self.0).durability(self.1);
        let engine = Engine::open(directory.path().join("store"), options).expect("a store");
        let log = LogStore::new(&engine).expect("a log");
        Ok((directory, log, Machine::new(&engine).expect("a state machine")))
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
