//! The replacement lab: replays page traces through replacement policies and counts what the
//! device would have had to do.
//!
//! `trace` reads, `replay` drives one policy over one trace, `experiment` runs every combination
//! in parallel, `table` prints. A policy is one file below `policies`, found through `registry`.
//! Nothing here touches the storage engine, except that WATT's tracker and value are its own.

pub mod ace;
pub mod bound;
pub mod entry;
pub mod experiment;
pub mod generate;
pub mod lists;
pub mod policies;
pub mod policy;
pub mod pool;
pub mod registry;
pub mod replay;
pub mod source;
pub mod study;
pub mod table;
pub mod trace;
