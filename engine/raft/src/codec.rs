//! Encoding of records, and errors of storage.

use openraft::{
    AnyError, LogId, NodeId, RaftTypeConfig, SnapshotMeta, StorageError, StorageIOError,
};
use serde::{Serialize, de::DeserializeOwned};
use std::error::Error;

/// Trees of the engine that this crate uses.
pub const LOG_TREE: &str = "raft-log";
pub const META_TREE: &str = "raft-meta";
/// Not shared with the log: a large transaction of the state machine owns each tree that it
/// changes, and a vote must not meet a conflict.
pub const MACHINE_TREE: &str = "raft-machine";
pub const DATA_TREE: &str = "raft-data";

pub type Failure<C> = StorageError<<C as RaftTypeConfig>::NodeId>;
pub type Id<C> = LogId<<C as RaftTypeConfig>::NodeId>;
pub type Meta<C> = SnapshotMeta<<C as RaftTypeConfig>::NodeId, <C as RaftTypeConfig>::Node>;

pub fn reading<I: NodeId>(error: impl Error + 'static) -> StorageError<I> {
    StorageIOError::read(&error).into()
}

pub fn writing<I: NodeId>(error: impl Error + 'static) -> StorageError<I> {
    StorageIOError::write(AnyError::new(&error)).into()
}

/// An error with a sentence of its own.
pub fn refused<I: NodeId>(sentence: impl ToString) -> StorageError<I> {
    StorageIOError::write(AnyError::error(sentence)).into()
}

pub fn encode<I: NodeId>(value: &impl Serialize) -> Result<Vec<u8>, StorageError<I>> {
    postcard::to_stdvec(value).map_err(writing)
}

pub fn decode<T: DeserializeOwned, I: NodeId>(bytes: &[u8]) -> Result<T, StorageError<I>> {
    postcard::from_bytes(bytes).map_err(reading)
}
