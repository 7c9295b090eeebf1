//! The tracker of a frame: 52 bytes in the second cache line of its header, which belong to the
//! policy of the pool. Twelve words and four bytes; each policy says in its file what it keeps
//! where. Zero is the empty tracker.
//!
//! Trackers are read and written without a latch. Every access is a relaxed load or store, so a
//! race loses an update and tears nothing.

use crate::sync::{AtomicU8, AtomicU32, Ordering};

/// First epoch of a pool. Stamps start at zero, so an unused log entry looks 2^30 epochs old and
/// adds nothing; ages stay positive as `i32` for another 2^30 epochs.
pub const FIRST_EPOCH: u32 = 1 << 30;

/// Words of a tracker.
pub const WORDS: usize = 12;
/// Bytes of a tracker after its words.
pub const BYTES: usize = 4;

/// See the module documentation.
///
/// ```
/// use wattle_buffer::replacement::Tracker;
///
/// let tracker = Tracker::default();
/// tracker.set_word(0, 7);
/// assert_eq!((tracker.word(0), tracker.byte(3)), (7, 0));
/// ```
#[derive(Debug, Default)]
#[repr(C)]
pub struct Tracker {
    pub(super) words: [AtomicU32; WORDS],
    pub(super) bytes: [AtomicU8; BYTES],
}
#[cfg(not(shuttle))]
const _: () = assert!(size_of::<Tracker>() == 52 && align_of::<Tracker>() == 4);

impl Tracker {
    /// Word `index`, below [`WORDS`].
    #[inline(always)]
    pub fn word(&self, index: usize) -> u32 {
        self.words[index].load(Ordering::Relaxed)
    }

    /// Sets word `index`, below [`WORDS`].
    #[inline(always)]
    pub fn set_word(&self, index: usize, value: u32) {
        self.words[index].store(value, Ordering::Relaxed);
    }

    /// Byte `index`, below [`BYTES`].
    #[inline(always)]
    pub fn byte(&self, index: usize) -> u8 {
        self.bytes[index].load(Ordering::Relaxed)
    }

    /// Sets byte `index`, below [`BYTES`].
    #[inline(always)]
    pub fn set_byte(&self, index: usize, value: u8) {
        self.bytes[index].store(value, Ordering::Relaxed);
    }

    /// Empties the tracker.
    pub fn reset(&self) {
        for word in &self.words {
            word.store(0, Ordering::Relaxed);
        }
        for byte in &self.bytes {
            byte.store(0, Ordering::Relaxed);
        }
    }
}
