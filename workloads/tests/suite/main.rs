//! All suites of the drivers and the binary, in one program: a build compiles drivers and lab for
//! each kind of client and policy, which takes most of its time. `cargo test -p wattle-workloads
//! --test suite tpcc::` runs one suite.

mod ace;
mod bench;
mod claims;
mod command_line;
mod ends;
mod engine;
mod policies;
mod record_trace;
mod recorded;
mod reference;
mod second_engine;
mod smoke;
mod store_commands;
mod support;
mod tpcc;
mod twins;
mod ycsb;
