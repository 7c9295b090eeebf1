//! Appending: each worker writes records into a buffer of its own, and never waits.
//!
//! The buffer has its own lock, which only the flusher ever contends for, and for a moment. The
//! epoch is read under it: that makes a flush a consistent cut (see the crate's page).
//!
//! Invariants: while a section exists, all bytes that it adds belong to its epoch; a buffer holds
//! bytes of at most two epochs, because the flusher empties all buffers of an epoch before it
//! begins the next but one; a record that was not finished is never in a buffer without a section.

use crate::{
    record::{self, AUTO, Base, Kind, MAX_OPS, MAX_RECORD},
    shared::{FULL_ENOUGH, Shared},
};
use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};
use wattle_buffer::{BriefGuard, BriefMutex, Gsn, PageId, Result, TreeId, prefetch_write};

/// Bits of a GSN below the epoch.
pub const GSN_COUNTER_BITS: u32 = 20;

/// Bytes of a cache line.
const LINE: usize = 64;
/// So many lines of a buffer are asked for before they are written: those of the next few records.
const AHEAD_LINES: usize = 8;

/// The epoch in a GSN.
pub fn epoch_of(gsn: Gsn) -> u64 {
    gsn.0 >> GSN_COUNTER_BITS
}

/// What an appender and the flusher share.
pub(crate) struct Slot {
    pub worker: u32,
    pub buffer: BriefMutex<Buffer>,
    /// Bytes in the buffer, to be looked at without the lock.
    pub filled: AtomicUsize,
    /// The appender is gone: no record will come any more.
    pub closed: AtomicBool,
}

/// Records that no flush has taken yet.
#[derive(Default)]
pub(crate) struct Buffer {
    pub bytes: Vec<u8>,
    /// Epoch of the first byte, and what the numbers of its records are relative to.
    base: Base,
    /// Where the next epoch begins, if it has, and the same of that.
    newer: Option<(usize, Base)>,
    last_gsn: u64,
    pub counts: Counts,
    /// The first time that was noted in the newest epoch that has one, and that epoch.
    first_time: (u64, u64),
}

/// What the flusher adds to the statistics when it takes a buffer.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub commits: u64,
    pub image_bytes: u64,
}

impl Buffer {
    /// Notes that bytes of `epoch` follow.
    fn enter(&mut self, epoch: u64) {
        if self.bytes.is_empty() {
            self.base = Base { epoch, txn: 0 };
        } else if epoch > self.base.epoch && self.newer.is_none() {
            self.newer = Some((self.bytes.len(), Base { epoch, txn: 0 }));
        }
    }

    /// What the numbers of a record of `txn` are written relative to.
    #[inline(always)]
    fn base_for(&mut self, txn: u64) -> Base {
        let base = self.newer.as_mut().map_or(&mut self.base, |(_, base)| base);
        if base.txn == 0 {
            base.txn = txn;
        }
        *base
    }

    /// The first time that was noted in a section behind `cut`.
    pub(crate) fn first_time_behind(&self, cut: u64) -> Option<u64> {
        let (epoch, time) = self.first_time;
        (epoch > cut).then_some(time)
    }

    /// Takes all bytes of epochs up to `cut`, the epoch before the current one, in exchange for an
    /// empty vector. Younger bytes stay. All that is taken is of one epoch.
    pub(crate) fn take(&mut self, cut: u64, mut spare: Vec<u8>) -> (Base, Vec<u8>) {
        debug_assert!(spare.is_empty());
        let base = self.base;
        if self.bytes.is_empty() || base.epoch > cut {
            return (base, spare);
        }
        if let Some((from, newer)) = self.newer.take() {
            debug_assert!(newer.epoch > cut, "a cut empties all buffers");
            spare.extend_from_slice(&self.bytes[from..]);
            self.bytes.truncate(from);
            self.base = newer;
        }
        (base, std::mem::replace(&mut self.bytes, spare))
    }
}

/// One worker's end of the log.
///
/// May move between threads, but is used by one at a time. Dropping it leaves its records to the
/// flusher.
pub struct Appender {
    shared: Arc<Shared>,
    slot: Arc<Slot>,
    /// The largest GSN that this worker knows of from elsewhere. The cell also keeps the appender
    /// from being shared between threads.
    observed: Cell<u64>,
}

impl Appender {
    pub(crate) fn new(shared: Arc<Shared>, slot: Arc<Slot>) -> Appender {
        Appender { shared, slot, observed: Cell::new(0) }
    }

    /// Number of this appender, which no other appender of this log ever had.
    pub fn worker(&self) -> u32 {
        self.slot.worker
    }

    /// Whether there is room for the records of one more operation; otherwise the caller lets a
    /// flush take the buffers first ([`crate::Log::wait_flush`], [`crate::Log::poll_flush`]). Asked
    /// before any latch is taken; rolling back does not ask.
    ///
    /// Fails when the log was poisoned or closed, or has no room on the device for new changes, and they have
    /// waited for it as long as they should ([`crate::LogOptions::patience`]).
    #[inline]
    pub fn check_room(&self) -> Result<bool> {
        if self.shared.status.load(Ordering::Relaxed) != 0 && !self.shared.check_status()? {
            return Ok(false);
        }
        Ok(self.slot.filled.load(Ordering::Relaxed) < self.shared.soft_limit())
    }

    /// Begins a section: all its records belong to one epoch.
    ///
    /// Must be called when all latches of the pages to be changed are held already, because they
    /// order the sections of workers that change the same page; and must end before any of them is
    /// released.
    #[inline]
    pub fn begin(&self) -> Section<'_> {
        let mut buffer = self.slot.buffer.lock();
        // Acquire, with the flusher's store: whoever reads an epoch also reads the image epoch that
        // was set before it.
        let epoch = self.shared.epoch.load(Ordering::Acquire);
        let image_epoch = self.shared.image_epoch.load(Ordering::Relaxed);
        buffer.enter(epoch);
        buffer.last_gsn = buffer.last_gsn.max(self.observed.get()).max(epoch << GSN_COUNTER_BITS);
        let filled = buffer.bytes.len();
        Section { appender: self, buffer, epoch, image_epoch, filled, record: None }
    }

    /// Later GSNs of this appender are above `gsn`.
    pub fn observe(&self, gsn: Gsn) {
        self.observed.set(self.observed.get().max(gsn.0));
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        self.slot.closed.store(true, Ordering::Release);
    }
}

/// Records being appended in one epoch, under the lock of the appender's own buffer.
pub struct Section<'a> {
    appender: &'a Appender,
    buffer: BriefGuard<'a, Buffer>,
    epoch: u64,
    image_epoch: u64,
    /// Bytes in the buffer when the section began.
    filled: usize,
    record: Option<Open>,
}

/// The record that is being written.
struct Open {
    at: usize,
    kind: Kind,
    flags: u8,
    ops: usize,
    has_undo: bool,
}

impl Section<'_> {
    /// The epoch of all records of this section.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether this is the first change since the last checkpoint of a page whose last change was
    /// `page`: its image must be logged.
    ///
    /// A section of the epoch before a checkpoint may see the image epoch of it already. It logs an
    /// image too: whether the page needs one by the checkpoint before is no longer known.
    #[inline]
    pub fn needs_image(&self, page: Gsn) -> bool {
        epoch_of(page) < self.image_epoch
    }

    /// Notes a time that the clock of the log gave inside of this section. See
    /// [`crate::Log::durable_mark`].
    #[inline]
    pub fn note_time(&mut self, time: u64) {
        if self.buffer.first_time.0 != self.epoch {
            self.buffer.first_time = (self.epoch, time);
        }
    }

    /// Counts `len` bytes of page images in the statistics.
    pub fn count_image(&mut self, len: usize) {
        self.buffer.counts.image_bytes += len as u64;
    }

    /// Begins a record and gives its GSN, which is above that of every record of this appender and
    /// above `pages_gsn`, the largest GSN of the pages that it changes. Flags are up to [`record::MAX_FLAGS`].
    ///
    /// A page of an epoch after that of the section is not refused here, where nothing can be refused any
    /// more: the next cut goes beyond its epoch, as for a counter that ran over. Whoever reads pages
    /// refuses those from after the end of the log ([`wattle_buffer::LogBarrier::check_read`]).
    #[inline]
    pub fn start(&mut self, kind: Kind, flags: u8, txn: u64, pages_gsn: Gsn) -> Gsn {
        assert!(self.record.is_none(), "the record before it is not finished");
        let buffer = &mut *self.buffer;
        let gsn = Gsn(buffer.last_gsn.max(pages_gsn.0) + 1);
        buffer.last_gsn = gsn.0;
        let at = buffer.bytes.len();
        let base = buffer.base_for(txn);
        record::header(&mut buffer.bytes, kind, flags, txn, gsn, base);
        self.record = Some(Open { at, kind, flags, ops: 0, has_undo: false });
        if gsn.0 >= (self.epoch << GSN_COUNTER_BITS) + (1 << (GSN_COUNTER_BITS - 1)) {
            self.appender.shared.counter_runs_over(gsn);
        }
        gsn
    }

    /// Adds an operation whose payload is the parts one after the other. At most [`MAX_OPS`], all
    /// of them before [`Section::undo`].
    #[inline]
    pub fn op(&mut self, page: PageId, tree: TreeId, code: u8, payload: &[&[u8]]) {
        let open = self.record.as_mut().expect("a record was started");
        assert!(!open.has_undo, "operations come before the undo bytes");
        assert!(open.ops < MAX_OPS, "a record has at most {MAX_OPS} operations");
        open.ops += 1;
        let len = payload.iter().map(|part| part.len()).sum();
        assert!(len <= MAX_RECORD, "a payload of {len} bytes is larger than a record");
        let bytes = &mut self.buffer.bytes;
        record::op_header(bytes, page, tree, code, len);
        for part in payload {
            bytes.extend_from_slice(part);
        }
    }

    /// Adds flags to those that the record was started with: what they mean is the business of the layers
    /// above.
    #[inline]
    pub fn add_flags(&mut self, flags: u8) {
        let open = self.record.as_mut().expect("a record was started");
        open.flags |= flags;
        record::add_flags(&mut self.buffer.bytes[open.at..], flags);
    }

    /// Adds undo bytes, the parts one after the other.
    #[inline]
    pub fn undo(&mut self, parts: &[&[u8]]) {
        let open = self.record.as_mut().expect("a record was started");
        open.has_undo = true;
        let bytes = &mut self.buffer.bytes;
        for part in parts {
            bytes.extend_from_slice(part);
        }
    }

    /// Completes the record and gives its bytes. At most [`MAX_RECORD`]. A record that is not
    /// completed before the section ends is taken back.
    #[inline]
    pub fn finish(&mut self) -> usize {
        let open = self.record.take().expect("a record was started");
        let buffer = &mut *self.buffer;
        let end = buffer.bytes.len();
        let len = end - open.at;
        if len > MAX_RECORD {
            // Nothing of it may stay when the assertion unwinds.
            buffer.bytes.truncate(open.at);
        }
        assert!(len <= MAX_RECORD, "a record of {len} bytes is above the limit of {MAX_RECORD}");
        record::complete(&mut buffer.bytes[open.at..], open.ops);
        buffer.counts.commits += u64::from(open.kind == Kind::Commit || (open.flags & AUTO != 0));
        len
    }
}

impl Section<'_> {
    /// The flusher has read what lies behind `filled` the last time that the buffer was full. To get a line
    /// back from its processor takes as long as all else about a record, and whoever releases a lock waits
    /// for it; so each line is asked for some records ahead.
    #[inline]
    fn approach(&self, filled: usize) {
        let lines = (filled / LINE).saturating_sub(self.filled / LINE).min(AHEAD_LINES);
        let start = self.buffer.bytes.as_ptr().wrapping_add(filled);
        for line in 0..lines {
            prefetch_write(start.wrapping_add((AHEAD_LINES - line) * LINE));
        }
    }
}

impl Drop for Section<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(open) = self.record.take() {
            self.buffer.bytes.truncate(open.at);
        }
        let filled = self.buffer.bytes.len();
        self.approach(filled);
        self.appender.slot.filled.store(filled, Ordering::Relaxed);
        // Only the section that crosses the line speaks to the flusher.
        let half = (self.appender.shared.soft_limit() / 2).min(FULL_ENOUGH);
        if filled >= half && self.filled < half {
            self.appender.shared.wake_for(self.epoch);
        }
    }
}
