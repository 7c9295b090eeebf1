#![doc = include_str!("../README.md")]

mod border;
mod chunks;
mod code;
mod ffi;
mod globals;
mod locals;
mod options;
mod stats;

pub use code::WattleCode;
pub use ffi::{engine::*, pointers::WattleBytes, session::*, txn::*};
pub use globals::{WattleEngine, WattleTree};
pub use locals::{WattleRange, WattleSession, WattleTxn};
pub use options::{
    WATTLE_DURABILITY_GROUP, WATTLE_DURABILITY_NONE, WATTLE_DURABILITY_SYNC, WATTLE_IO_BUFFERED,
    WATTLE_IO_MEMORY, WATTLE_IO_THREADS, WATTLE_ISOLATION_SERIALIZABLE, WattleOptions,
    WattleTxnOptions,
};
pub use stats::WattleStats;
