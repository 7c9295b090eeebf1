//! What the threads of one redo share: whether it has to stop, and its outcome.

use crate::{epochs::Gaps, options::Options};
use parking_lot::Mutex;
use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering},
};
use wattle_buffer::{Error, Gsn, PageId, Result};
use wattle_wal::LogEnd;

/// What the threads of one recovery share.
pub(super) struct RedoState {
    /// Epochs that no page has, as far as it is known by now.
    pub gaps: Mutex<Gaps>,
    options: Options,
    stopped: AtomicBool,
    pub error: Mutex<Option<Error>>,
    /// Set once all of the log was read.
    pub end: OnceLock<LogEnd>,
}

impl RedoState {
    pub fn new(gaps: Gaps, options: &Options) -> RedoState {
        RedoState {
            gaps: Mutex::new(gaps),
            options: options.clone(),
            stopped: AtomicBool::new(false),
            error: Mutex::default(),
            end: OnceLock::new(),
        }
    }

    /// Ends everything; the first error counts.
    pub fn fail(&self, error: Error) {
        self.error.lock().get_or_insert(error);
        self.stop();
    }

    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Looked at before each step: after an error, or an interrupt, nobody goes on.
    pub fn is_stopped(&self) -> bool {
        if let Err(interrupted) = self.options.check_interrupt() {
            self.fail(interrupted);
        }
        self.stopped.load(Ordering::Relaxed)
    }

    /// A page that no life of the store before can have written. Whether it is newer than the log that is
    /// read now is known at its end.
    pub fn check_read(&self, page: PageId, gsn: Gsn) -> Result<()> {
        self.gaps.lock().check(gsn).map_err(|what| Error::corruption(page, what))
    }
}
