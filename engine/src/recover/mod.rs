//! Recovery, first half: redo applies the changes of the log that the pages lack, and finds
//! unfinished transactions. Rolling them back takes open trees, and follows in
//! `finish_recovery.rs`.
//!
//! One thread reads the log (`source`). One looks at every record in order (`analysis`), and gives
//! the ops to workers, each of which owns some of the pages (`worker`, `cache`). Redo writes only
//! pages, at any time, because the log is durable: a crash during redo is followed by the same
//! redo. The first error ends all threads, and is the result. A log without records, as that of a
//! store that was closed, takes no thread, and its syncs are left for the first change.

mod analysis;
mod cache;
mod check;
mod found;
mod found_ghosts;
mod redo;
mod redo_state;
mod release;
mod shape;
mod source;
mod worker;

pub(crate) use check::check_log;
pub(crate) use found::{Loser, Recovered, make_durable};
pub(crate) use found_ghosts::FoundGhosts;
pub(crate) use redo::redo;
pub(crate) use release::release;
pub(crate) use shape::{Bytes, Escaped, Shape};
pub(crate) use source::{Located, Source};
