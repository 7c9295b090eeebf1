//! The mark of a store that is used without a log.

use super::{StoreFile, Superblock};
use parking_lot::Mutex;
use std::sync::Arc;
use wattle_buffer::{Gsn, LogBarrier, Result};

/// Marks the store as in use without a log, durably, before the first page of it is overwritten. A
/// store that was only read stays closed, even if the process is killed.
pub struct UnloggedMark {
    file: Arc<StoreFile>,
    block: Superblock,
    marked: Mutex<bool>,
}

impl UnloggedMark {
    /// `block` is the superblock of `file` while it is in use.
    pub fn new(file: Arc<StoreFile>, block: Superblock) -> UnloggedMark {
        UnloggedMark { file, block, marked: Mutex::new(false) }
    }

    /// Marks the store, if that was not done before.
    pub fn mark(&self) -> Result<()> {
        let mut marked = self.marked.lock();
        if !*marked {
            self.file.write_superblock(&self.block)?;
            *marked = true;
        }
        Ok(())
    }

    /// Whether pages may have been overwritten.
    pub fn is_marked(&self) -> bool {
        *self.marked.lock()
    }
}

impl LogBarrier for UnloggedMark {
    fn ensure_durable(&self, _: Gsn) -> Result<()> {
        // Without a log this is the one thing that must come before a page.
        self.mark()
    }
}
