//! The parts of transactions that are only in memory: whether a transaction is committed
//! ([`state`]), commit times and snapshots ([`clock`]), older versions of records ([`versions`]),
//! and the changes to undo in a rollback ([`undo`]).
//!
//! This is memory-optimised multi-versioning after Freitag, Kemper and Neumann ("Memory-Optimized
//! Multi-Version Concurrency Control for Disk-Based Database Systems", VLDB 2022). Pages hold only
//! the newest version of each record. A writer changes the page in place, under the exclusive latch
//! of the leaf, and stores the value before its change in the version index. All commit times come
//! from one clock; a snapshot sees the commits up to its time. Nothing here survives the process:
//! after a restart no snapshot is older than the pages.
//!
//! Each file imports only files of this order: `patch`, `bytes`, `state`, `clock`, `version`,
//! `chain`, `change`, `seen`, `spare`, `look`, `push`, `prune`, `shard`, `versions`, `stored`;
//! `undo` imports none of them.
//!
//! Order of locks: leaf latch, then one shard of the version index, then the published [`Active`].
//! A thread locks one shard at a time, and does not wait for a transaction while it does.

mod bytes;
mod chain;
mod change;
mod clock;
mod look;
mod patch;
mod prune;
mod push;
mod seen;
mod shard;
mod spare;
mod state;
mod stored;
mod undo;
mod version;
mod versions;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod stress_tests;
#[cfg(test)]
mod versions_tests;

pub(crate) use change::{Change, ConflictWith, HashedRecord, OwnedVersion, Undone, WriteCheck};
pub(crate) use clock::{Active, Clock, SnapshotSlot, Snapshots};
pub(crate) use seen::{Changed, Visible};
pub(crate) use state::{ABANDONED, TxnState};
pub(crate) use stored::{MAX_OF_ONE, Stored};
pub(crate) use undo::{Savepoint, UndoBuffer, UndoEntry};
pub(crate) use versions::Versions;
