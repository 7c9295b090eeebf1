//! State shared by the threads of one redo: whether it must stop, and its outcome.

use crate::{epochs::Gaps, options::Options};
use parking_lot::Mutex;
use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering},
};
use wattle_buffer::{Error, Gsn, PageId, Result};
use wattle_wal::LogEnd;

/// See the module documentation.
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

    /// Stops all threads; the first error is the result.
    pub fn fail(&self, error: Error) {
        self.error.lock().get_or_insert(error);
        self.stop();
    }

    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Checked before each step: after an error, or an interrupt, all threads stop.
    pub fn is_stopped(&self) -> bool {
        if let Err(interrupted) = self.options.check_interrupt() {
            self.fail(interrupted);
        }
        self.stopped.load(Ordering::Relaxed)
    }

    /// Fails for a page that no earlier opening of the store can have written. Whether a page is
    /// newer than this log is known at the end of the log.
    pub fn check_read(&self, page: PageId, gsn: Gsn) -> Result<()> {
        self.gaps.lock().check(gsn).map_err(|what| Error::corruption(page, what))
    }
}
