//! Random frames for policies that draw some.

use super::policy::Frames;
use crate::{
    ids::FrameId,
    sync::{AtomicU64, Ordering},
};

/// The output function of splitmix64: each bit of the result depends on all bits of the argument.
#[inline]
pub(super) fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

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
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let x = mix(self.state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP));
        FrameId((((x >> 32) * frames.count() as u64) >> 32) as u32)
    }
}
