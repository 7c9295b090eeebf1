//! A small application: keys and values.

use openraft::{CommittedLeaderId, Entry, EntryPayload, LogId};
use serde::{Deserialize, Serialize};
use wattle::{Transaction, Tree};
use wattle_raft::{Apply, SnapshotFile, StateMachine};

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct Set {
    pub key: String,
    pub value: String,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct Reply(pub Option<String>);

openraft::declare_raft_types!(
    pub TypeConfig: D = Set, R = Reply, SnapshotData = SnapshotFile
);

pub struct KeyValue;

impl Apply<TypeConfig> for KeyValue {
    fn apply(txn: &mut Transaction<'_>, tree: &Tree, set: Set) -> wattle::Result<Reply> {
        txn.put(tree, set.key.as_bytes(), set.value.as_bytes())?;
        Ok(Reply(Some(set.value)))
    }

    fn no_reply() -> Reply {
        Reply(None)
    }
}

pub type Machine = StateMachine<TypeConfig, KeyValue>;

pub fn id(index: u64) -> LogId<u64> {
    LogId::new(CommittedLeaderId::new(1, 0), index)
}

/// An entry that sets a key.
pub fn set(index: u64, key: impl ToString, value: impl ToString) -> Entry<TypeConfig> {
    let set = Set { key: key.to_string(), value: value.to_string() };
    Entry { log_id: id(index), payload: EntryPayload::Normal(set) }
}
