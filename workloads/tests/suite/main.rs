//! All suites of the drivers and the binary, in one program: drivers and lab are made into machine code for each
//! kind of client and policy, which takes most of the time of a build. `cargo test -p wattle-workloads --test suite
//! tpcc::` runs one suite.

mod bench;
mod claims;
mod command_line;
mod ends;
mod engine;
mod policies;
mod record_trace;
mod reference;
mod second_engine;
mod store_commands;
mod support;
mod tpcc;
mod ycsb;
