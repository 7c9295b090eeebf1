//! The `wattle` binary.
fn main() {}
