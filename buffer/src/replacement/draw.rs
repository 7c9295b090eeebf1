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
        frame_at(mix(self.step()), frames)
    }

    /// A frame of the pool, such that successive ones are spread evenly: multiples of the golden
    /// ratio. No frame waits much longer than others for its turn.
    pub fn spread_frame(&self, frames: &dyn Frames) -> FrameId {
        frame_at(self.step(), frames)
    }

    fn step(&self) -> u64 {
        self.state.fetch_add(GOLDEN, Ordering::Relaxed).wrapping_add(GOLDEN)
    }
}

/// The frame at this fraction of the pool, in units of 2 to the power -64.
fn frame_at(fraction: u64, frames: &dyn Frames) -> FrameId {
    FrameId((((fraction >> 32) * frames.count() as u64) >> 32) as u32)
}
