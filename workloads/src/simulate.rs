//! The replacement lab: replays page traces through replacement policies and counts the reads and
//! writes of the device.
//!
//! `source` opens a trace, `replay` runs one policy on one trace, `experiment` runs all
//! combinations in parallel, `table` prints. Each policy is one file in `policies`; `registry`
//! finds it by name. `live` runs the policies of the engine. Nothing else here uses the storage
//! engine, except that WATT uses the tracker and the value of the engine.

pub mod ace;
pub mod bound;
pub mod entry;
pub mod experiment;
pub mod formats;
pub mod generate;
pub mod io_trace;
pub mod kinds;
pub mod lists;
pub mod live;
pub mod pins;
pub mod policies;
pub mod policy;
pub mod pool;
pub mod publication;
pub mod registry;
pub mod repeat;
pub mod replay;
pub mod source;
pub mod statistics;
pub mod study;
pub mod table;
pub mod trace;
pub mod upcoming;
