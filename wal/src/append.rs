//! Appending: each worker writes records into a buffer of its own, and never waits.
//!
//! The buffer has its own lock. Only the flusher contends for it, and briefly. A section reads the
//! epoch under that lock, which makes a flush a consistent cut (see the crate's page).
//!
//! Invariants: while a section exists, all bytes that it adds belong to its epoch. Only a buffer
//! with an open section can hold an unfinished record.

use crate::{
    classes::class_of,
    core::LogCore,
    gsn::{GSN_COUNTER_BITS, epoch_of},
    record::{self, AUTO, Kind, MAX_OPS, MAX_RECORD},
    slot::{AppendBuffer, AppendSlot},
};
use std::{
    cell::Cell,
    sync::{Arc, atomic::Ordering},
};
use wattle_buffer::{
    BriefGuard, Gsn, PageId, Result, Scope, ScopePart, TreeId, prefetch_write, scope,
};

/// A section requests a flush when its buffer has this many bytes, or half of the soft limit.
const FLUSH_BYTES: usize = 256 << 10;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Number of cache lines of a buffer that are prefetched before they are written: those of the next
/// few records. 0: none. With the flusher on another core an append takes 22.5 ns instead of 26.3
/// ns; on the same core it takes 15.0 instead of 14.5 ns (12 instructions of an update). The
/// example `append_cost` measures both.
const AHEAD_LINES: usize = 8;

/// The handle with which one worker appends to the log.
///
/// It may move between threads, but only one thread uses it at a time. When it is dropped, the
/// flusher still writes its records.
pub struct Appender {
    core: Arc<LogCore>,
    slot: Arc<AppendSlot>,
    /// The largest GSN that this worker has seen elsewhere. The cell also keeps the appender from
    /// being shared between threads.
    observed: Cell<u64>,
}

impl Appender {
    pub(crate) fn new(core: Arc<LogCore>) -> Appender {
        let slot = core.new_slot();
        Appender { core, slot, observed: Cell::new(0) }
    }

    /// Number of this appender. No other appender of this log has it.
    pub fn worker(&self) -> u32 {
        self.slot.worker
    }

    /// Whether there is room for the records of one more operation; otherwise the caller lets a
    /// flush take the buffers first ([`crate::Log::wait_flush`], [`crate::Log::poll_flush`]). An
    /// operation calls this before it takes a latch; a rollback does not call it.
    ///
    /// Fails if the log was poisoned or closed, or if the device has no room and changes have
    /// waited for it for the [`crate::LogOptions::room_timeout`].
    #[inline]
    pub fn check_room(&self) -> Result<bool> {
        if !self.core.gate.is_open() && !self.core.check_gate()? {
            return Ok(false);
        }
        Ok(self.slot.filled.load(Ordering::Relaxed) < self.core.gate.soft_limit())
    }

    /// Begins a section: all its records belong to one epoch.
    ///
    /// The caller holds the latches of all pages that it changes, because they order the sections
    /// of workers that change the same page; the section must end before the caller releases one of
    /// them.
    #[inline]
    pub fn begin(&self) -> Section<'_> {
        let scope = scope(ScopePart::LogAppend);
        let mut buffer = self.slot.buffer.lock();
        let epoch = self.core.epochs.current();
        let image_epoch = self.core.epochs.newest_image();
        buffer.enter(epoch);
        buffer.last_gsn = buffer.last_gsn.max(self.observed.get()).max(epoch << GSN_COUNTER_BITS);
        let filled = buffer.bytes.len();
        Section { appender: self, buffer, epoch, image_epoch, filled, record: None, _scope: scope }
    }

    /// From now on GSNs of this appender are above `gsn`.
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
    buffer: BriefGuard<'a, AppendBuffer>,
    epoch: u64,
    /// The newest of all classes.
    image_epoch: u64,
    /// Bytes in the buffer when the section began.
    filled: usize,
    record: Option<OpenRecord>,
    _scope: Scope,
}

/// The record that is being written.
struct OpenRecord {
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

    /// Whether this is the first change of `page`, whose last change was `last`, since the last
    /// checkpoint began for its class: then its image must be logged.
    ///
    /// A section of the epoch before a checkpoint may already see the image epoch of that
    /// checkpoint. It logs an image too, because it can no longer know whether the previous
    /// checkpoint asks for one.
    #[inline]
    pub fn needs_image(&self, page: PageId, last: Gsn) -> bool {
        epoch_of(last) < self.image_epoch && self.class_needs_image(page, last)
    }

    #[cold]
    fn class_needs_image(&self, page: PageId, last: Gsn) -> bool {
        epoch_of(last) < self.appender.core.epochs.image(class_of(page))
    }

    /// Notes a time that the clock of the log gave inside of this section. See
    /// [`crate::Log::durable_mark`].
    #[inline]
    pub fn note_time(&mut self, time: u64) {
        self.buffer.note_time(self.epoch, time);
    }

    /// Counts `len` bytes of page images in the statistics.
    pub fn count_image(&mut self, len: usize) {
        self.buffer.counts.image_bytes += len as u64;
    }

    /// Begins a record and gives its GSN, which is above the GSN of every record of this appender
    /// and above `pages_gsn`, the largest GSN of the pages that it changes. Flags are up to
    /// [`record::MAX_FLAGS`].
    ///
    /// A page may have an epoch after that of the section. An append cannot fail, so the next cut
    /// skips that epoch, as it does after an overflow of a counter. Reads of pages refuse epochs
    /// from after the end of the log ([`wattle_buffer::LogBarrier::check_read`]).
    #[inline]
    pub fn start(&mut self, kind: Kind, flags: u8, txn: u64, pages_gsn: Gsn) -> Gsn {
        assert!(self.record.is_none(), "the record before it is not finished");
        let buffer = &mut *self.buffer;
        let gsn = Gsn(buffer.last_gsn.max(pages_gsn.0) + 1);
        buffer.last_gsn = gsn.0;
        let at = buffer.bytes.len();
        let base = buffer.base_for(txn);
        record::header(&mut buffer.bytes, kind, flags, txn, gsn, base);
        self.record = Some(OpenRecord { at, kind, flags, ops: 0, has_undo: false });
        if gsn.0 >= (self.epoch << GSN_COUNTER_BITS) + (1 << (GSN_COUNTER_BITS - 1)) {
            self.appender.core.counter_runs_over(gsn);
        }
        gsn
    }

    /// Adds an operation whose payload is the concatenation of the parts. At most [`MAX_OPS`] for
    /// each record, all of them before [`Section::undo`].
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

    /// Adds flags to those that the record was started with. The layers above define their meaning.
    #[inline]
    pub fn add_flags(&mut self, flags: u8) {
        let open = self.record.as_mut().expect("a record was started");
        open.flags |= flags;
        record::add_flags(&mut self.buffer.bytes[open.at..], flags);
    }

    /// Adds undo bytes: the concatenation of the parts.
    #[inline]
    pub fn undo(&mut self, parts: &[&[u8]]) {
        let open = self.record.as_mut().expect("a record was started");
        open.has_undo = true;
        let bytes = &mut self.buffer.bytes;
        for part in parts {
            bytes.extend_from_slice(part);
        }
    }

    /// Completes the record and gives its length, at most [`MAX_RECORD`]. A record that is not
    /// completed before the section ends is dropped.
    #[inline]
    pub fn finish(&mut self) -> usize {
        let open = self.record.take().expect("a record was started");
        let buffer = &mut *self.buffer;
        let end = buffer.bytes.len();
        let len = end - open.at;
        if len > MAX_RECORD {
            // The assertion unwinds: no part of the record may stay.
            buffer.bytes.truncate(open.at);
        }
        assert!(len <= MAX_RECORD, "a record of {len} bytes is above the limit of {MAX_RECORD}");
        record::complete(&mut buffer.bytes[open.at..], open.ops);
        buffer.counts.commits += u64::from(open.kind == Kind::Commit || (open.flags & AUTO != 0));
        len
    }
}

impl Section<'_> {
    /// Prefetches the lines after `filled` that the next records will write. The flusher read them
    /// when it last emptied the buffer, so they are in the cache of its core. Their transfer takes
    /// as long as everything else about a record, and the release of a lock waits for it.
    #[inline]
    fn prefetch_ahead(&self, filled: usize) {
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
        self.prefetch_ahead(filled);
        self.appender.slot.filled.store(filled, Ordering::Relaxed);
        // Only the section that crosses the limit requests a flush.
        let half = (self.appender.core.gate.soft_limit() / 2).min(FLUSH_BYTES);
        if filled >= half && self.filled < half {
            self.appender.core.buffer_is_half_full(self.epoch);
        }
    }
}
