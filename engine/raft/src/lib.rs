#![doc = include_str!("../README.md")]
// The error is openraft's.
#![allow(clippy::result_large_err)]

mod codec;
mod file;
mod format;
mod log;
mod machine;
mod progress;
mod remove;
mod snapshots;

pub use file::SnapshotFile;
pub use log::LogStore;
pub use machine::{Apply, StateMachine};

use openraft::{Entry, RaftTypeConfig, StorageError};
use progress::Progress;
use std::{path::Path, sync::Arc};
use wattle::Engine;

#[cfg(test)]
extern crate self as wattle_raft;
#[cfg(test)]
#[path = "../tests/suite/types.rs"]
mod types;

/// The log and the state machine of a node.
pub type Stores<C, A> = (LogStore<C>, StateMachine<C, A>);

/// Opens the log and the state machine of the node whose store this is. Its snapshots are files in
/// `snapshots`, a directory of this node alone, which is created if its parent exists. An
/// installation of a snapshot that a crash has interrupted is finished. Once per engine: parts of
/// snapshots in the directory are removed.
///
/// # Errors
/// The engine has no log ([`wattle::Options::log`]), so that nothing would be durable. The log was
/// purged up to an entry that neither the state machine nor a snapshot has, as when the directory
/// is not the node's. Errors of the engine; failed I/O in the directory, or damage to a snapshot.
pub fn open<C, A>(
    engine: &Engine,
    snapshots: impl AsRef<Path>,
) -> Result<Stores<C, A>, StorageError<C::NodeId>>
where
    C: RaftTypeConfig<Entry = Entry<C>, SnapshotData = SnapshotFile>,
    A: Apply<C>,
{
    if !engine.has_log() {
        return Err(codec::refused(
            "the engine has no log (Options::log), so no entry of Raft would be durable",
        ));
    }
    let progress = Arc::new(Progress::new());
    let machine = StateMachine::open(engine, snapshots.as_ref(), progress.clone())?;
    Ok((LogStore::open(engine, progress)?, machine))
}
