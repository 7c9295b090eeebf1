//! The suites that need no process of their own, in one program: it is linked once, and its tests go on while a
//! long one of another suite takes one of the processors. `cargo test -p wattle-tests --test suite crash::` runs
//! one suite.

mod asynchronous;
mod backup;
mod bad_input;
mod bulk;
mod bulk_large;
mod catalog;
mod closing;
mod compact;
mod conflict_wait;
mod corruption;
mod crash;
mod faults;
mod files;
mod forged_superblocks;
mod garbage;
mod golden;
mod history;
mod isolation;
mod large_transactions;
mod leaks;
mod little_room;
mod log_fails;
mod log_room;
mod long_readers;
mod many_trees;
mod model;
mod moving;
mod page_trace;
mod patches;
mod pieces;
mod read_only;
mod recovery;
mod replaced;
mod rows;
mod savepoints;
mod sendable;
mod storm;
mod tasks;
mod transactions;
mod two_times;
mod unsettled;
mod visibility;
mod visit;
mod wide;
