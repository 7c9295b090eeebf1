//! What an engine that is being opened has started so far. Pool, trees and log refer to each other, and
//! threads to all of them, so an attempt that fails must take them apart: they would go on for ever,
//! beside those of the next attempt.
//!
//! Used by `Engine::open_file` until the engine is made, which is closed as a whole from then on.

use std::sync::Arc;
use wattle_btree::Forest;
use wattle_buffer::Background;
use wattle_wal::Log;

/// Ends everything when dropped, unless it was made into an engine.
pub(crate) struct Opening {
    forest: Arc<Forest>,
    log: Option<Arc<Log>>,
    background: Option<Background>,
}

impl Opening {
    /// Nothing has a thread yet but the log.
    pub fn new(forest: &Arc<Forest>, log: Option<&Arc<Log>>) -> Opening {
        Opening { forest: forest.clone(), log: log.cloned(), background: None }
    }

    /// The threads of the pool run.
    pub fn started(&mut self, background: Background) {
        self.background = Some(background);
    }

    /// The engine is made: it has the threads of the pool now.
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
