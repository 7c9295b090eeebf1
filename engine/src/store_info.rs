//! [`StoreInfo`]: how a store was left before it was opened.

use crate::{
    recover::Recovered,
    store::{STORE_VERSION, StoreState, Superblock},
};
use std::sync::Arc;
use wattle_buffer::{Error, Result, io::LogStorage};

/// How a store was left, as the engine found it when it was opened; from
/// [`Engine::store_info`](crate::Engine::store_info).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct StoreInfo {
    /// Format version of the store, see [`STORE_VERSION`].
    pub version: u32,
    /// It was closed, or is new: there was nothing to recover.
    pub closed: bool,
    /// Its changes were logged, see [`Options::log`](crate::Options::log).
    pub logged: bool,
    /// Superblocks written so far. Each checkpoint writes one, also that of a close.
    pub checkpoints: u64,
    /// The first epoch of the log whose changes the data file may have lacked, since the last
    /// checkpoint.
    pub redo_epoch: u64,
    /// Bytes of records since then, which recovery has read.
    pub replay_bytes: u64,
    /// Records since then.
    pub replay_records: u64,
    /// Segments of the log.
    pub log_segments: u64,
    /// Bytes of these files.
    pub log_file_bytes: u64,
}

impl StoreInfo {
    /// A store that was not logged, or a new one.
    pub(crate) fn without_log(block: &Superblock) -> StoreInfo {
        StoreInfo {
            // A store of another version is not opened.
            version: STORE_VERSION,
            closed: block.state != StoreState::Unlogged,
            logged: block.state == StoreState::Logged,
            checkpoints: block.sequence,
            redo_epoch: block.redo_epoch,
            ..StoreInfo::default()
        }
    }

    /// A store with a log, which was `recovered`.
    pub(crate) fn with_log(
        block: &Superblock,
        log: &Arc<dyn LogStorage>,
        recovered: &Recovered,
    ) -> Result<StoreInfo> {
        let segments =
            log.segments().map_err(|error| Error::io("list the segments of the log", error))?;
        Ok(StoreInfo {
            closed: recovered.records == 0,
            replay_bytes: recovered.bytes,
            replay_records: recovered.records,
            log_segments: segments.len() as u64,
            log_file_bytes: segments.iter().map(|(_, bytes)| bytes).sum(),
            ..StoreInfo::without_log(block)
        })
    }
}
