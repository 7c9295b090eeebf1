//! Suites that test the engine as a whole; see `tests/`.
