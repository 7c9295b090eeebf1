//! Stops the threads of an opening that fails. Pool, trees and log refer to each other, and threads
//! to all of them; without this they would run forever, next to those of the next attempt.
//!
//! Used in `open.rs` until the engine exists, which is closed as a whole from then on.

use std::sync::Arc;
use wattle_btree::Forest;
use wattle_buffer::Background;
use wattle_wal::Log;

/// Ends everything when it is dropped before [`Opening::done`].
pub(crate) struct Opening {
    forest: Arc<Forest>,
    log: Option<Arc<Log>>,
    background: Option<Background>,
}

impl Opening {
    /// Only the log has threads yet.
    pub fn new(forest: &Arc<Forest>, log: Option<&Arc<Log>>) -> Opening {
        Opening { forest: forest.clone(), log: log.cloned(), background: None }
    }

    /// The threads of the pool run.
    pub fn started(&mut self, background: Background) {
        self.background = Some(background);
    }

    /// The engine exists: gives it the threads of the pool.
    pub fn done(mut self) -> Option<Background> {
        self.log = None;
        self.background.take()
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if self.background.is_some() || self.log.is_some() {
            self.forest.merge_in(None);
        }
        drop(self.background.take());
        // Nothing was acknowledged, so nothing is lost.
        if let Some(log) = self.log.take()
            && let Err(error) = log.close()
        {
            tracing::error!(%error, "the log of a store that could not be opened was not closed");
        }
    }
}
