//! The parts of transactions that live in memory only: whether a transaction is committed
//! ([`state`]), what time it is and who still reads the past ([`clock`]), what records were before
//! they were changed ([`versions`]), and how a transaction takes its changes back ([`undo`]).
//!
//! The model is memory-optimised multi-versioning after Freitag, Kemper and Neumann ("Memory-
//! Optimized Multi-Version Concurrency Control for Disk-Based Database Systems", VLDB 2022). Pages
//! hold only the newest version of each record. A writer changes the page in place, under the
//! exclusive latch of the leaf, and leaves the value before its change in the version index. All
//! commit times come from one clock; a snapshot sees the commits up to its time. Nothing here
//! survives the process: after a restart nobody reads the past.
//!
//! Order of locks: leaf latch, then one shard of the version index, then the published [`Active`].
//! No shard is locked while another one is, and nobody waits for a transaction with a shard locked.

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

pub(crate) use change::{Change, ConflictWith, Kept, Record, Undone, WriteCheck};
pub(crate) use clock::{Active, Clock, Slot, Snapshots};
pub(crate) use seen::{Changed, Seen};
pub(crate) use state::{ABANDONED, TxnState};
pub(crate) use stored::{MAX_OF_ONE, Stored};
pub(crate) use undo::{Savepoint, UndoBuffer, UndoEntry};
pub(crate) use versions::Versions;
