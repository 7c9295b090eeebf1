//! Positions in [`crate::bench::Benchmark::TABLES`].

pub const SUBSCRIBER: usize = 0;
pub const NUMBER: usize = 1;
pub const ACCESS_INFO: usize = 2;
pub const SPECIAL_FACILITY: usize = 3;
pub const CALL_FORWARDING: usize = 4;
