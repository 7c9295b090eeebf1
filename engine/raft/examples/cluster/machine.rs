//! The replicated map: what each node does with a committed command.

use crate::protocol::{Command, Reply, TypeConfig};
use wattle::{Transaction, Tree};
use wattle_raft::{Apply, StateMachine};

pub type Machine = StateMachine<TypeConfig, Map>;

/// Keys and values.
pub struct Map;

impl Apply<TypeConfig> for Map {
    fn apply(txn: &mut Transaction<'_>, tree: &Tree, command: Command) -> wattle::Result<Reply> {
        let (key, expected, value) = match command {
            Command::Set { key, value } => (key, None, value),
            Command::Swap { key, expected, value } => (key, Some(expected), value),
        };
        let before = txn.get(tree, key.as_bytes())?.map(|value| text(&value));
        if expected.is_none_or(|expected| expected == before) {
            txn.put(tree, key.as_bytes(), value.as_bytes())?;
        }
        Ok(Reply(before))
    }

    fn no_reply() -> Reply {
        Reply(None)
    }
}

/// A key or a value of the map, which commands give as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
