//! What both kinds of clients translate between the drivers and the engine.

use wattle::{Direction, Error, TxnOptions};
use wattle_buffer::Pool;

use crate::driver::store::{self, Access, Stop};

/// A pool whose evictors are at work has fewer free frames than one of this many.
const PAGING_SHARE: usize = 16;

#[inline]
pub fn is_paging(pool: &Pool) -> bool {
    pool.free_frames() < pool.frames() / PAGING_SHARE
}

/// How the engine begins a transaction.
pub fn options(access: Access) -> TxnOptions {
    TxnOptions { read_only: access == Access::ReadOnly, ..TxnOptions::default() }
}

/// What an error of the engine means for a transaction.
#[cold]
pub fn stop(error: Error) -> Stop {
    match error {
        Error::Conflict(_) | Error::SnapshotTooOld(_) | Error::MustAbort(_) => Stop::Conflict,
        error => Stop::Failed(error.into()),
    }
}

/// The order of a scan, as the engine has it.
#[inline]
pub fn direction(direction: store::Direction) -> Direction {
    match direction {
        store::Direction::Forward => Direction::Forward,
        store::Direction::Backward => Direction::Backward,
    }
}
