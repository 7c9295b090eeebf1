//! The buffers of all appenders, and the limits that depend on their number.
//!
//! Order of locks: the list, then a buffer, then the state of the segments.

use crate::{
    gate::Gate,
    record::Base,
    segment::segments::Segments,
    slot::{AppendCounts, AppendSlot},
};
use parking_lot::Mutex;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
};

/// Soft limit of all buffers together, at which appenders wait for a flush; a quarter of a segment
/// if that is less. Each buffer gets an equal part, within [`MIN_BUFFER`] and [`MAX_BUFFER`].
/// During a sync of 4 ms a thread appends about a megabyte.
pub const BUFFER_BYTES: usize = 4 << 20;
/// Least soft limit of one buffer, or a sixteenth of a segment if that is less.
pub const MIN_BUFFER: usize = 32 << 10;
/// Largest soft limit of one buffer.
pub const MAX_BUFFER: usize = 2 << 20;
/// An operation that begins just below the soft limit mostly takes no more than this: a split with
/// the images of its pages.
const OVERSHOOT: usize = 16 << 10;
/// Most segments that are kept in reserve.
const MAX_RESERVE: usize = 8;

/// See the module documentation.
#[derive(Default)]
pub(crate) struct AppendSlots {
    list: Mutex<Vec<Arc<AppendSlot>>>,
    next_worker: AtomicU32,
    /// Buffers that had records at the last cut.
    appending: AtomicUsize,
}

/// Records that a flush takes out of one buffer.
pub(crate) struct Taken {
    pub worker: u32,
    pub base: Base,
    pub records: Vec<u8>,
}

impl AppendSlots {
    /// Registers the buffer of a new appender.
    pub(crate) fn add(&self, gate: &Gate, segments: &Segments) -> Arc<AppendSlot> {
        let slot = Arc::new(AppendSlot {
            worker: self.next_worker.fetch_add(1, Ordering::Relaxed),
            buffer: Default::default(),
            filled: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        });
        let mut list = self.list.lock();
        list.push(Arc::clone(&slot));
        set_limits(list.len(), gate, segments);
        slot
    }

    /// Whether any buffer has records.
    pub(crate) fn any_filled(&self) -> bool {
        let list = self.list.lock();
        list.iter().any(|slot| slot.filled.load(Ordering::Relaxed) > 0)
    }

    /// Buffers that had records at the last cut.
    pub(crate) fn appending(&self) -> usize {
        self.appending.load(Ordering::Relaxed)
    }

    /// Takes the records of all epochs up to `cut` out of all buffers, and forgets appenders that
    /// are gone. Gives the sum of their counts.
    pub(crate) fn take(
        &self,
        cut: u64,
        spares: &mut Vec<Vec<u8>>,
        taken: &mut Vec<Taken>,
        (gate, segments): (&Gate, &Segments),
    ) -> AppendCounts {
        let mut list = self.list.lock();
        let before = list.len();
        let mut all = AppendCounts::default();
        list.retain(|slot| {
            let closed = slot.closed.load(Ordering::Acquire);
            let mut buffer = slot.buffer.lock();
            let (base, records) = buffer.take(cut, spares.pop().unwrap_or_default());
            slot.filled.store(buffer.bytes.len(), Ordering::Relaxed);
            let counts = std::mem::take(&mut buffer.counts);
            let empty = buffer.bytes.is_empty();
            drop(buffer);
            all.commits += counts.commits;
            all.image_bytes += counts.image_bytes;
            if records.is_empty() {
                spares.push(records);
            } else {
                taken.push(Taken { worker: slot.worker, base, records });
            }
            !(closed && empty)
        });
        if list.len() != before {
            set_limits(list.len(), gate, segments);
        }
        drop(list);
        self.appending.store(taken.len(), Ordering::Relaxed);
        all
    }

    /// The mark of a cut: all times up to it were noted in sections before the cut. `now` is the
    /// newest time that the clock had given before this call. If a section after the cut notes a
    /// time at most `now`, it drew that time before this call. Then it has ended, or this call
    /// waits for it, when this call reads its buffer, and lowers the mark below its first time.
    pub(crate) fn mark_of(&self, cut: u64, now: u64) -> u64 {
        let list = self.list.lock();
        let after = list.iter().filter_map(|slot| slot.buffer.lock().first_time_after(cut));
        after.fold(now, |mark, first| mark.min(first.saturating_sub(1)))
    }
}

/// Sets the limits that depend on the number of appenders; the list is locked.
fn set_limits(appenders: usize, gate: &Gate, segments: &Segments) {
    let (appenders, segment) = (appenders.max(1), segments.segment_bytes() as usize);
    let all = BUFFER_BYTES.min(segment / 4);
    let limit = (all / appenders).clamp(MIN_BUFFER.min(segment / 16), MAX_BUFFER);
    gate.set_soft_limit(limit);
    // When the log is found full, a flush may be under way and the buffers full again, and a
    // checkpoint begins after both.
    let reserve = (2 * appenders * (limit + OVERSHOOT)).div_ceil(segment);
    segments.keep_reserve(reserve.min(MAX_RESERVE));
}
