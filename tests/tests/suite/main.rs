//! The suites that need no process of their own, in one program: it is linked once, and its tests
//! go on while a long one of another suite takes one of the processors. `cargo test -p wattle-tests
//! --test suite crash::` runs one suite. Without the feature `async`, those that only use blocking
//! sessions are left.

#[cfg(feature = "async")]
mod asynchronous;
mod backup;
mod bad_input;
mod bulk;
mod bulk_large;
mod catalog;
#[cfg(feature = "async")]
mod closing;
mod compact;
mod compound;
mod conflict_wait;
mod corruption;
mod crash;
mod delete_range;
mod direct_values;
mod estimates;
mod evictor_counters;
mod faults;
mod files;
mod fill;
mod forged_superblocks;
mod garbage;
mod golden;
#[cfg(feature = "async")]
mod history;
mod isolation;
mod large_transactions;
mod large_values;
#[cfg(feature = "async")]
mod leaks;
mod little_room;
#[cfg(feature = "async")]
mod log_fails;
mod log_room;
mod long_readers;
#[cfg(feature = "async")]
mod many;
mod many_trees;
mod model;
mod moving;
#[cfg(feature = "async")]
mod on_durable;
mod opening;
mod page_trace;
mod patches;
#[cfg(feature = "async")]
mod pieces;
mod policies;
#[cfg(feature = "async")]
mod ranges;
mod read_only;
mod recovery;
mod reentrance;
mod replaced;
#[cfg(feature = "async")]
mod rows;
mod savepoints;
#[cfg(feature = "async")]
mod sendable;
mod snapshots;
#[cfg(feature = "async")]
mod spawned;
#[cfg(feature = "async")]
mod storm;
#[cfg(feature = "async")]
mod tasks;
mod transact;
mod transactions;
mod tree_changes;
mod two_times;
mod typed;
#[cfg(feature = "async")]
mod unpolled;
mod unsettled;
#[cfg(feature = "async")]
mod visibility;
mod visit;
mod warm;
#[cfg(feature = "async")]
mod wide;
