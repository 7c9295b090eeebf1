//! A pause of all changes that background threads make to trees, for verification.

use crate::{frame::FrameState, ids::FrameId, pool::Pool};
use std::time::Duration;

/// While this value lives, background threads change no tree, and no page is waiting to be freed.
pub struct Quiet<'p> {
    pool: &'p Pool,
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        self.pool.merges.open();
    }
}

impl Pool {
    /// Keeps background threads from changing trees, for verification. Waits for changes that are
    /// under way. Eviction and write-back go on.
    pub fn quiet(&self) -> Quiet<'_> {
        self.merges.close();
        let zombie = |frame: FrameId| self.header(frame).state() == FrameState::Zombie;
        // A background thread that panicked never ends its merge.
        while self.free.failed_for_ever().is_none()
            && (self.merges.is_used() || self.used_frames().any(zombie))
        {
            crate::sync::sleep(Duration::from_millis(1));
        }
        Quiet { pool: self }
    }
}
