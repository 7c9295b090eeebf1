//! Conversions between the types of the drivers and those of the engine.

use wattle::{Direction, Error, TxnOptions};
use wattle_buffer::Pool;

use crate::driver::store::{self, Access, Stop};

/// A pool with fewer free frames than one in this many has evictors at work.
const PAGING_SHARE: usize = 16;

#[inline]
pub fn is_paging(pool: &Pool) -> bool {
    pool.free_frames() < pool.frames() / PAGING_SHARE
}

/// The options of a transaction.
pub fn options(access: Access) -> TxnOptions {
    TxnOptions { read_only: access == Access::ReadOnly, ..TxnOptions::default() }
}

/// The meaning of an error of the engine for a transaction.
#[cold]
pub fn stop(error: Error) -> Stop {
    match error {
        Error::Conflict(_) | Error::SnapshotTooOld(_) | Error::MustAbort(_) => Stop::Conflict,
        error => Stop::Failed(error.into()),
    }
}

/// The order of a scan.
#[inline]
pub fn direction(direction: store::Direction) -> Direction {
    match direction {
        store::Direction::Forward => Direction::Forward,
        store::Direction::Backward => Direction::Backward,
    }
}
