//! Swips: the 8-byte references from an inner node to its children.
//!
//! | bit 63 | bits 62..=48 | bits 47..=0 | meaning |
//! |---|---|---|---|
//! | 1 | 0 | page id | evicted: the child is on storage, or being read |
//! | 0 | 0 | frame id in bits 31..=0 | hot: the child is in that frame |
//!
//! On storage every swip is evicted. Following a hot swip takes one test and one address
//! computation; there is no cooling state (architecture, section 2).

use crate::ids::{FrameId, PageId};

const EVICTED: u64 = 1 << 63;
const _: () = assert!(PageId::MAX.0 < EVICTED);

/// A raw swip; see the module documentation for the bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swip(pub u64);

/// The target of a swip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A frame. Racy readers must treat the id as any number below 2^32.
    Hot(FrameId),
    /// A page on storage.
    Evicted(PageId),
}

impl Swip {
    /// A swip to a frame.
    #[inline(always)]
    pub fn hot(frame: FrameId) -> Swip {
        Swip(u64::from(frame.0))
    }

    /// A swip to a page on storage.
    #[inline(always)]
    pub fn evicted(page: PageId) -> Swip {
        debug_assert!(page <= PageId::MAX);
        Swip(EVICTED | page.0)
    }

    /// The target. Any bits give some target.
    #[inline(always)]
    pub fn target(self) -> Target {
        if self.0 & EVICTED == 0 {
            Target::Hot(FrameId(self.0 as u32))
        } else {
            Target::Evicted(PageId(self.0 & PageId::MAX.0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swips_name_the_target_that_they_were_made_from() {
        for frame in [0, 1, u32::MAX].map(FrameId) {
            assert_eq!(Swip::hot(frame).target(), Target::Hot(frame));
        }
        for page in [PageId(0), PageId(77), PageId::MAX] {
            assert_eq!(Swip::evicted(page).target(), Target::Evicted(page));
        }
    }
}
