//! The hand of the CLOCK family: it goes around the frames of the pool. Evictors move it by atomic
//! additions, so they need no latch, and each frame is looked at by one of them.

use super::policy::Frames;
use crate::{
    ids::FrameId,
    sync::{AtomicU32, Ordering},
};

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Hand {
    /// Frames that were passed, modulo 2^32.
    passed: AtomicU32,
}

impl Hand {
    /// Moves over at most `limit` frames, and adds those for which `leaves` returns true to
    /// `victims` until there are `most`. Pages that could not leave are passed.
    pub fn sweep(
        &self,
        frames: &dyn Frames,
        limit: usize,
        most: usize,
        victims: &mut Vec<FrameId>,
        mut leaves: impl FnMut(FrameId) -> bool,
    ) {
        for _ in 0..limit {
            if victims.len() >= most {
                break;
            }
            let at = self.passed.fetch_add(1, Ordering::Relaxed) as usize % frames.count();
            let frame = FrameId(at as u32);
            if frames.standing(frame).may_leave() && leaves(frame) && !victims.contains(&frame) {
                victims.push(frame);
            }
        }
    }
}
