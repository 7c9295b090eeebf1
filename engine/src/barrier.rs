//! The engine's [`LogBarrier`]: what must be durable before a page is written. With a log: its
//! records up to the last change of the page. Without a log: the mark that says so.

use crate::{epochs::Epochs, store::UnloggedMark};
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};
use wattle_buffer::{Gsn, LogBarrier, Result};
use wattle_wal::Log;

/// See the module documentation.
#[derive(Default)]
pub(crate) struct Barrier {
    /// An operation found no room for pages. The checkpoint thread reads and clears it.
    pub room_wanted: AtomicBool,
    pub log: OnceLock<Arc<Log>>,
    pub unlogged: OnceLock<UnloggedMark>,
    pub epochs: OnceLock<Epochs>,
}

impl LogBarrier for Barrier {
    fn ensure_durable(&self, gsn: Gsn) -> Result<()> {
        if let Some(log) = self.log.get() {
            return log.ensure_durable(gsn);
        }
        if let Some(epochs) = self.epochs.get() {
            epochs.written(gsn);
        }
        self.unlogged.get().map_or(Ok(()), |mark| mark.ensure_durable(gsn))
    }

    fn check_read(&self, gsn: Gsn) -> Result<(), String> {
        self.epochs.get().map_or(Ok(()), |epochs| epochs.check(gsn))
    }

    fn is_log(&self) -> bool {
        self.log.get().is_some()
    }

    fn give_room_back(&self) -> bool {
        self.room_wanted.store(true, Ordering::Relaxed);
        self.log.get().is_some_and(|log| log.give_room_back())
    }
}
