//! Random frames for policies that draw some.

use super::policy::Frames;
use crate::{
    ids::FrameId,
    random::{GOLDEN, mix},
    sync::{AtomicU64, Ordering},
};

/// A source of random frames that evictors share.
#[derive(Debug)]
pub(super) struct Draw {
    state: AtomicU64,
}

impl Draw {
    pub fn new() -> Draw {
        Draw { state: AtomicU64::new(0) }
    }

    /// A frame of the pool, by [`mix`] over a counter.
    pub fn frame(&self, frames: &dyn Frames) -> FrameId {
        let x = mix(self.state.fetch_add(GOLDEN, Ordering::Relaxed).wrapping_add(GOLDEN));
        FrameId((((x >> 32) * frames.count() as u64) >> 32) as u32)
    }
}
