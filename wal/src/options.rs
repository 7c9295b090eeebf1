//! How the log works, and how soon a request wants its flush.

use crate::{block::BLOCK_ALIGN, pacing::FlushPolicy};
use std::time::Duration;
use wattle_buffer::{Error, Result};

/// Smallest size of a segment.
pub const MIN_SEGMENT_BYTES: u64 = 128 << 10;
/// Largest size of a segment. Page numbers inside of it fit 32 bits, and making one ahead does not
/// take long.
pub const MAX_SEGMENT_BYTES: u64 = 1 << 30;

/// Bytes of the segment that a closed log consists of: its head and one small block.
pub(crate) const LAST_SEGMENT_BYTES: u64 = 2 * BLOCK_ALIGN as u64;

/// After the reserve is used up, a flush waits for room: this many room timeouts, and at least this
/// long. Then the log fails.
const STALL: (u32, Duration) = (6, Duration::from_secs(5));

/// Gives the newest time that was drawn, see [`crate::Log::durable_mark`].
pub(crate) type Clock = Box<dyn Fn() -> u64 + Send + Sync>;

/// How the log works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// Bytes of a segment: a multiple of 4096, from 128 KiB to 1 GiB. Default 16 MiB. Segments are
    /// smaller where the device has little room.
    pub segment_bytes: u64,
    /// Longest time from a request with [`Urgency::Soon`] to the start of its flush; five times as
    /// long while no committer waits for flushes and no processor is idle. Default 1 ms.
    pub group_delay: Duration,
    /// The first segment is made when it is first needed, instead of when the log is started, so
    /// that a log that is not used writes nothing. Changes wait for it. Default false.
    pub late_first_segment: bool,
    /// The first change of a page after a checkpoint logs the full page
    /// ([`crate::Section::needs_image`]), against devices that may tear pages. Default true.
    pub page_images: bool,
    /// How long changes wait while the device has no room for another segment, before they are
    /// refused. Default: not at all.
    pub room_timeout: Duration,
    /// Tuned figures of the threads of the log, each with a switch.
    pub policy: FlushPolicy,
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions {
            segment_bytes: 16 << 20,
            group_delay: Duration::from_millis(1),
            late_first_segment: false,
            page_images: true,
            room_timeout: Duration::ZERO,
            policy: FlushPolicy::default(),
        }
    }
}

impl LogOptions {
    /// Fails if the log cannot work like this.
    pub(crate) fn check(&self) -> Result<()> {
        let bytes = self.segment_bytes;
        let limits = MIN_SEGMENT_BYTES..=MAX_SEGMENT_BYTES;
        if limits.contains(&bytes) && bytes.is_multiple_of(BLOCK_ALIGN as u64) {
            return Ok(());
        }
        Err(Error::InvalidOption(format!(
            "a log segment has {MIN_SEGMENT_BYTES} to {MAX_SEGMENT_BYTES} bytes, \
             a multiple of 4096, not {bytes}"
        )))
    }
}

/// Longest time that a flush waits for room, with this room timeout of changes.
pub(crate) fn longest_stall(room_timeout: Duration) -> Duration {
    room_timeout.saturating_mul(STALL.0).max(STALL.1)
}

/// How soon a request wants its flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// As soon as the device is free.
    Now,
    /// After a short delay, in which other commits join the group.
    Soon,
}
