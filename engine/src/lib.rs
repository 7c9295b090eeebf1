#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod async_session;
mod catalog;
mod engine;
mod mvcc;
mod ops;
mod options;
mod session;
mod stats;
mod store;
mod verify;

pub use async_session::{AsyncSession, run};
pub use catalog::MAX_TREE_NAME;
pub use engine::{Engine, Tree};
pub use options::Options;
pub use session::{Range, Session};
pub use stats::{Stats, TreeStat};
pub use store::{DATA_FILE, STORE_VERSION};
pub use verify::VerifyReport;
pub use wattle_btree::{Direction, MAX_KEY, MAX_VALUE};
pub use wattle_buffer::{
    Error, MIN_POOL_BYTES, PAGE_SIZE, Result,
    io::{IoKind, Storage},
};

/// Simulated devices, memory devices and the device probe.
pub mod io {
    pub use wattle_buffer::io::*;
}

/// The example of the README of the repository, compiled and run with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct ReadmeDoctest;
