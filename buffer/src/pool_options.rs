//! The options of a pool, and the limits that follow from its size.

use crate::{
    error::{Error, Result},
    memory::FrameMemory,
    replacement::Policy,
    trace::PageTrace,
    write_options::{Ace, WRITERS, WriteOrder},
};
use std::time::Duration;

/// Smallest number of frames of a pool. Each tree needs its root, a path and a sibling, and an
/// evictor needs some choice. The model checker uses a pool that one small tree fills.
pub const MIN_FRAMES: usize = if cfg!(shuttle) { 14 } else { 48 };

/// Smallest pool budget in bytes.
pub const MIN_POOL_BYTES: u64 = (MIN_FRAMES * FrameMemory::FRAME_BYTES) as u64;

/// Most pages that a scan may read ahead.
const MAX_READ_AHEAD: usize = 1024;

/// The options of a pool.
#[derive(Debug, Clone)]
pub struct PoolOptions {
    /// Budget for frames and their headers, bytes. At least [`MIN_POOL_BYTES`].
    pub pool_bytes: u64,
    /// Replacement policy, `name` or `name:key=value,..`.
    pub policy: String,
    /// Evictor threads, at least 1.
    pub evictors: usize,
    /// Page images in flight to storage at once (k_w), at least 1.
    pub write_concurrency: usize,
    /// Pages that a scan reads ahead at most, 0 to 1024; also at most 1/32 of the frames. (k_r)
    pub read_ahead: usize,
    /// Whether dirty victims are written in batches of `write_concurrency` pages.
    pub ace: Ace,
    /// The order in which dirty victims are written.
    pub write_order: WriteOrder,
    /// Waiting for a frame fails when nothing was freed for this long.
    pub stall_timeout: Duration,
    /// Whether parents name the frames of their children; otherwise every hop from parent to child
    /// looks in a page table (for experiments).
    pub swizzling: bool,
    /// Records page accesses; `None` costs nothing.
    pub trace: Option<PageTrace>,
}

impl PoolOptions {
    /// Checks the options, as [`Pool::open`](crate::Pool::open) does.
    ///
    /// # Errors
    /// [`Error::InvalidOption`].
    pub fn check(&self) -> Result<()> {
        if self.pool_bytes < MIN_POOL_BYTES {
            return Err(Error::InvalidOption(format!(
                "a pool of {} bytes is too small: the minimum is {MIN_POOL_BYTES} bytes \
                 ({MIN_FRAMES} frames)",
                self.pool_bytes
            )));
        }
        if self.frames() > u32::MAX as usize / 2 {
            return Err(Error::InvalidOption(format!(
                "a pool of {} bytes is too large: the maximum is {} frames",
                self.pool_bytes,
                u32::MAX / 2
            )));
        }
        let (policy, _) = Policy::parse(&self.policy, self.frames())?;
        if self.ace != Ace::Off && !policy.orders_by_value() && policy.order().is_none() {
            return Err(Error::InvalidOption(format!(
                "ACE writes the dirty pages that the policy would evict next, and {} has no order: \
                 it takes any page",
                policy.name()
            )));
        }
        for (name, value, max) in
            [("evictors", self.evictors, 256), ("write concurrency", self.write_concurrency, 1024)]
        {
            if !(1..=max).contains(&value) {
                return Err(Error::InvalidOption(format!(
                    "{name} must be between 1 and {max}, not {value}"
                )));
            }
        }
        if self.read_ahead > MAX_READ_AHEAD {
            return Err(Error::InvalidOption(format!(
                "read-ahead must be at most {MAX_READ_AHEAD} pages, not {}",
                self.read_ahead
            )));
        }
        Ok(())
    }

    /// Number of workers that the pool can serve at a time, including those of the engine's own
    /// threads. Each may keep a batch of free frames, and other frames must be left.
    pub fn max_workers(&self) -> usize {
        self.frames() / (4 * cache_batch(self.frames()))
    }

    /// Number of writer threads, and pages in flight of each: together the write concurrency.
    pub(crate) fn writers(&self) -> (usize, usize) {
        let writers = WRITERS.min(self.write_concurrency);
        (writers, self.write_concurrency.div_ceil(writers))
    }

    pub(crate) fn frames(&self) -> usize {
        self.pool_bytes as usize / FrameMemory::FRAME_BYTES
    }
}

/// Number of free frames that a worker takes at once.
pub(crate) fn cache_batch(frames: usize) -> usize {
    (frames / 2048).clamp(1, 32)
}
