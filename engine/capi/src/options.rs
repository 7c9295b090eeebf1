//! Options of engines and transactions, as C has them: zero is the default of each.

use crate::code::{Failure, Outcome};
use std::time::Duration;
use wattle::{Durability, IoKind, Isolation, Options, TxnOptions};

/// Commits are durable when they return; the log is flushed at once. The default.
pub const WATTLE_DURABILITY_SYNC: u32 = 1;
/// As `SYNC`, but the flush begins up to 1 ms later, so that more commits share it.
pub const WATTLE_DURABILITY_GROUP: u32 = 2;
/// Commits return at once. A crash may lose those of the last 100 ms or so.
pub const WATTLE_DURABILITY_NONE: u32 = 3;

/// `pread` and `pwrite` in threads, instead of io_uring.
pub const WATTLE_IO_THREADS: u32 = 1;
/// Nothing is stored: the store is in memory and ends with the engine.
pub const WATTLE_IO_MEMORY: u32 = 2;
/// Pages go through the page cache of the system; the log does not.
pub const WATTLE_IO_BUFFERED: u32 = 3;

/// Transactions behave as if they ran one after the other.
pub const WATTLE_ISOLATION_SERIALIZABLE: u32 = 1;

/// Options of a store. Begin with `WattleOptions options = {0};`: zero is the default of each.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct WattleOptions {
    /// Budget of the buffer pool, bytes. Default 256 MiB.
    pub pool_bytes: u64,
    /// Bytes that checkpoints keep the log below. Default: four times the pool, 1 to 16 GiB.
    pub log_bytes: u64,
    /// Limit of the memory for versions that snapshots need, bytes. Default 16 MiB.
    pub version_bytes: u64,
    /// Upper bound on waits for room and for other operations, milliseconds. Default 10 s.
    pub stall_timeout_ms: u64,
    /// One of `WATTLE_DURABILITY_*`.
    pub durability: u32,
    /// One of `WATTLE_IO_*`. Default: io_uring.
    pub io: u32,
    /// Not 0: the store is only read, and its files are not changed.
    pub read_only: u32,
    /// Not 0: an absent store is an error instead of being created.
    pub must_exist: u32,
    /// Must be 0; for options of later versions.
    pub reserved: [u64; 8],
}

/// Options of a transaction. Zero is the default of each.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct WattleTxnOptions {
    /// `WATTLE_ISOLATION_SERIALIZABLE`. Default: snapshot isolation.
    pub isolation: u32,
    /// Not 0: changes are refused.
    pub read_only: u32,
    /// One of `WATTLE_DURABILITY_*`. Default: that of the engine.
    pub durability: u32,
    /// Must be 0; for options of later versions.
    pub reserved: u32,
}

fn durability(number: u32) -> Outcome<Option<Durability>> {
    Ok(Some(match number {
        0 => return Ok(None),
        WATTLE_DURABILITY_SYNC => Durability::Sync,
        WATTLE_DURABILITY_GROUP => Durability::Group,
        WATTLE_DURABILITY_NONE => Durability::None,
        _ => return Err(unknown("durability", number, "0 to 3")),
    }))
}

fn unknown(option: &str, number: u32, known: &str) -> Failure {
    Failure::argument(format!("the option {option} is {number}; known are {known}"))
}

impl WattleOptions {
    pub(crate) fn to_options(self) -> Outcome<Options> {
        if self.reserved != [0; 8] {
            return Err(Failure::argument(
                "reserved options are not 0: begin with `WattleOptions options = {0};`",
            ));
        }
        let mut options = Options::default();
        if self.pool_bytes != 0 {
            options = options.pool_bytes(self.pool_bytes);
        }
        if self.log_bytes != 0 {
            options = options.log_bytes(self.log_bytes);
        }
        if self.version_bytes != 0 {
            options = options.version_bytes(self.version_bytes);
        }
        if self.stall_timeout_ms != 0 {
            options = options.stall_timeout(Duration::from_millis(self.stall_timeout_ms));
        }
        if let Some(durability) = durability(self.durability)? {
            options = options.durability(durability);
        }
        options = match self.io {
            0 => options,
            WATTLE_IO_THREADS => options.io(IoKind::Threads),
            WATTLE_IO_MEMORY => options.io(IoKind::Memory),
            WATTLE_IO_BUFFERED => options.io(IoKind::Buffered),
            _ => return Err(unknown("io", self.io, "0 to 3")),
        };
        Ok(options.read_only(self.read_only != 0).create(self.must_exist == 0))
    }
}

impl WattleTxnOptions {
    pub(crate) fn to_options(self) -> Outcome<TxnOptions> {
        let isolation = match self.isolation {
            0 => Isolation::Snapshot,
            WATTLE_ISOLATION_SERIALIZABLE => Isolation::Serializable,
            _ => return Err(unknown("isolation", self.isolation, "0 and 1")),
        };
        if self.reserved != 0 {
            return Err(unknown("reserved", self.reserved, "0"));
        }
        let durability = durability(self.durability)?;
        Ok(TxnOptions { isolation, read_only: self.read_only != 0, durability })
    }
}
