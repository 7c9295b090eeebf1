//! Harness of the suites in `tests/`: key and value shapes, and a client that compares every answer
//! of the engine with a `BTreeMap`.

pub mod model;
