//! Harness of the suites in `tests/`: key and value shapes, a client that compares every answer
//! of the engine with a `BTreeMap`, and what else several suites share.

pub mod crash;
pub mod harness;
pub mod history;
pub mod model;
pub mod mounted;
