//! The flusher: one thread that gathers all buffers into one write, syncs once, and publishes.
//!
//! Invariants: one flush is in flight at a time; the flusher writes a block only when the whole
//! previous flush is durable; it writes the head of a segment only when the whole previous segment
//! is durable, and syncs the head together with the first blocks after it. It does not retry: the
//! first error ends the thread and poisons the log.

use crate::{
    block::{self, BlockHeader, CHUNK_HEADER, MAX_BLOCK, MAX_PAYLOAD, SECTOR, SegmentHeader},
    core::LogCore,
    epochs::Cut,
    position::LogStart,
    record,
    segment::reserve::MadeSegment,
    slots::{BUFFER_BYTES, Taken},
};
use std::{sync::Arc, time::Instant};
use wattle_buffer::{PAGE_SIZE, ScopePart, io::LogBuffer, scope};

/// The flusher gathers this many bytes of blocks before it writes them.
const WRITE_BYTES: usize = 1 << 20;
/// A write goes to the device in pieces of this size, all in flight at once.
const PIECE_BYTES: usize = 256 << 10;
/// Buffers that are kept for the next flush, and their capacity in all.
const MAX_SPARES: usize = 64;
const MAX_SPARE_BYTES: usize = BUFFER_BYTES;

/// If a flush seems too large for the rest of the segment, it begins in the next one, because a
/// flush in two segments takes two syncs. It does not if the rest is larger than a segment divided
/// by this number, or if the next segment is not made yet.
const LARGEST_REST: u64 = 8;
/// Upper bound on the unused tail of a block, as a rule: the next record may be a full page image.
const UNUSED: usize = PAGE_SIZE + SECTOR;

/// The segment that is being written.
struct CurrentSegment {
    number: u64,
    bytes: u64,
    /// Where the first byte of the buffer goes.
    at: u64,
    /// A write was not synced yet.
    unsynced: bool,
    /// The epoch that its head says all earlier segments end with, until the head is durable.
    entering: Option<u64>,
    /// The helper makes the next one.
    succeeded: bool,
}

/// See the module documentation.
pub(crate) struct Flusher {
    core: Arc<LogCore>,
    store_id: u64,
    current: Option<CurrentSegment>,
    /// Sequence of the next block, number of the next flush, epoch of the last one.
    sequence: u64,
    flush: u64,
    last_epoch: u64,
    /// Sealed blocks of this flush, written or not.
    sealed_blocks: u64,
    /// Sealed blocks, then the open one, its payload in place.
    buffer: LogBuffer,
    sealed: usize,
    payload: usize,
    taken: Vec<Taken>,
    spares: Vec<Vec<u8>>,
}

/// The error says what failed.
type Outcome<T = ()> = Result<T, String>;

impl Flusher {
    pub(crate) fn new(core: Arc<LogCore>, start: &LogStart) -> Flusher {
        Flusher {
            core,
            store_id: start.store_id,
            current: None,
            sequence: start.sequence,
            flush: start.flush,
            last_epoch: start.epoch - 1,
            sealed_blocks: 0,
            buffer: LogBuffer::new(WRITE_BYTES + MAX_BLOCK),
            sealed: 0,
            payload: 0,
            taken: Vec::new(),
            spares: Vec::new(),
        }
    }

    /// Body of the thread.
    pub(crate) fn run(mut self) -> Outcome {
        loop {
            let last = {
                let _scope = scope(ScopePart::Idle);
                let last = self.core.wait_for_reason();
                if !last {
                    self.core.wait_for_group();
                }
                last
            };
            let _scope = scope(ScopePart::Flush);
            if !self.flush()? {
                return Ok(());
            }
            if last {
                self.core.waits.end();
                return Ok(());
            }
        }
    }

    /// Gives false if another thread of the log has failed and poisoned it.
    fn flush(&mut self) -> Outcome<bool> {
        // 1. From here on new sections are after the cut.
        let Some(cut) = self.core.cut() else { return Ok(false) };
        // 2. Take the records before it, and the mark: all times up to it belong to the cut.
        let mut taken = std::mem::take(&mut self.taken);
        let mark = self.core.take_buffers(&cut, &mut self.spares, &mut taken);
        // 3. Write them. A checkpoint is written even if it is empty, so that its epoch lasts.
        if !taken.is_empty() || !cut.checkpoint.is_empty() {
            self.write(&cut, &taken)?;
            self.last_epoch = cut.epoch;
        }
        self.keep_spares(&mut taken);
        self.taken = taken;
        // 4. Wake the waiters.
        self.core.publish(&cut, mark);
        // 5. Only now the helper, which wants the device as well.
        if let Some(current) = self.current.as_mut().filter(|current| !current.succeeded) {
            current.succeeded = self.core.segments.flushed(current.at);
        }
        Ok(true)
    }

    /// Keeps buffers for the next flush.
    fn keep_spares(&mut self, taken: &mut Vec<Taken>) {
        let mut kept: usize = self.spares.iter().map(Vec::capacity).sum();
        for Taken { mut records, .. } in taken.drain(..) {
            records.clear();
            if kept + records.capacity() <= MAX_SPARE_BYTES {
                kept += records.capacity();
                self.spares.push(records);
            }
        }
        self.spares.truncate(MAX_SPARES);
    }

    fn write(&mut self, cut: &Cut, taken: &[Taken]) -> Outcome {
        self.sealed_blocks = 0;
        if self.begins_a_segment(taken) {
            self.next_segment(cut)?;
        }
        for part in taken {
            let (records, mut at) = (&part.records[..], 0);
            while at < records.len() {
                let end = whole_records(records, at, self.room().saturating_sub(CHUNK_HEADER));
                if end == at {
                    self.next_block(cut)?;
                    continue;
                }
                self.add_chunk(part, &records[at..end]);
                at = end;
            }
        }
        if self.payload == 0 && !self.block_fits() {
            self.next_block(cut)?;
        }
        self.seal(cut, true);
        self.write_out()?;
        self.sync()?;
        self.core.epochs.flush_is_durable(self.flush);
        self.flush += 1;
        self.core.counters.flushed();
        Ok(())
    }

    /// Whether the flush should begin in the next segment.
    fn begins_a_segment(&self, taken: &[Taken]) -> bool {
        let Some(current) = &self.current else { return true };
        if self.core.segments.is_last_made() {
            return true;
        }
        let rest = current.bytes - current.at;
        let payload: usize = taken.iter().map(|part| CHUNK_HEADER + part.records.len()).sum();
        let (full, last) = (payload / (MAX_PAYLOAD - UNUSED), payload % (MAX_PAYLOAD - UNUSED));
        rest <= current.bytes / LARGEST_REST
            && (full * MAX_BLOCK + block::block_bytes(last)) as u64 > rest
            && self.core.segments.is_ready()
    }

    /// Offset of the open block in the segment.
    fn place(&self) -> Option<u64> {
        Some(self.current.as_ref()?.at + self.sealed as u64)
    }

    /// Bytes of the segment from the open block on.
    fn left(&self) -> u64 {
        let bytes = self.current.as_ref().map_or(0, |current| current.bytes);
        self.place().map_or(0, |place| bytes - place)
    }

    /// Whether the segment has room for the smallest block.
    fn block_fits(&self) -> bool {
        self.left() > 0
    }

    /// Bytes that the open block can still take.
    fn room(&self) -> usize {
        match self.left() as usize {
            0 => 0,
            left => MAX_PAYLOAD.min(block::payload_room(left / SECTOR)) - self.payload,
        }
    }

    fn add_chunk(&mut self, part: &Taken, records: &[u8]) {
        let mut head = [0; CHUNK_HEADER];
        head[0..4].copy_from_slice(&part.worker.to_le_bytes());
        head[4..8].copy_from_slice(&(records.len() as u32).to_le_bytes());
        head[8..16].copy_from_slice(&part.base.epoch.to_le_bytes());
        head[16..24].copy_from_slice(&part.base.txn.to_le_bytes());
        let block = &mut self.buffer[self.sealed..];
        block::put(block, self.payload, &head);
        block::put(block, self.payload + CHUNK_HEADER, records);
        self.payload += CHUNK_HEADER + records.len();
    }

    /// The open block is full: begins the next one, in the next segment if this one has no room.
    fn next_block(&mut self, cut: &Cut) -> Outcome {
        if self.payload > 0 {
            self.seal(cut, false);
            if self.sealed + MAX_BLOCK > self.buffer.len() {
                self.write_out()?;
            }
            return Ok(());
        }
        self.next_segment(cut)
    }

    /// Completes the open block.
    fn seal(&mut self, cut: &Cut, last: bool) {
        let current = self.current.as_ref().expect("a block was begun in a segment");
        let header = BlockHeader {
            store_id: self.store_id,
            sequence: self.sequence,
            flush: self.flush,
            epoch: cut.epoch,
            segment: current.number,
            offset: current.at + self.sealed as u64,
            payload_len: self.payload,
            last,
        };
        let bytes = block::block_bytes(self.payload);
        header.seal(&mut self.buffer[self.sealed..self.sealed + bytes]);
        self.sealed += bytes;
        self.payload = 0;
        self.sequence += 1;
        self.sealed_blocks += 1;
    }

    /// Writes the sealed blocks. There is no open one.
    fn write_out(&mut self) -> Outcome {
        let Some(current) = self.current.as_mut().filter(|_| self.sealed > 0) else {
            return Ok(());
        };
        let offsets = (current.at..).step_by(PIECE_BYTES);
        let pieces: Vec<_> = offsets.zip(self.buffer[..self.sealed].chunks(PIECE_BYTES)).collect();
        self.core.storage.write(current.number, &pieces).map_err(|error| {
            let (bytes, at) = (self.sealed, current.at);
            format!("writing {bytes} bytes to log segment {} at {at}: {error}", current.number)
        })?;
        current.at += self.sealed as u64;
        current.unsynced = true;
        self.core.segments.used(current.at);
        self.core.counters.wrote(self.sealed as u64);
        self.sealed = 0;
        Ok(())
    }

    fn sync(&mut self) -> Outcome {
        let Some(current) = self.current.as_mut().filter(|current| current.unsynced) else {
            return Ok(());
        };
        let started = Instant::now();
        let result = self.core.storage.sync(current.number);
        result.map_err(|error| format!("syncing log segment {}: {error}", current.number))?;
        current.unsynced = false;
        if let Some(epoch_before) = current.entering.take() {
            self.core.segments.entered(current.number, epoch_before);
        }
        self.core.counters.synced(started.elapsed());
        Ok(())
    }

    /// Continues the log in the segment that was made ahead.
    fn next_segment(&mut self, cut: &Cut) -> Outcome {
        // 1. All before the new head must be durable first.
        self.write_out()?;
        self.sync()?;
        let MadeSegment { number, bytes } =
            self.core.segments.take_ready(self.core.options.room_timeout)?;
        // 2. The head says how the log goes on.
        let continues = self.sealed_blocks > 0;
        let header = SegmentHeader {
            version: block::FORMAT_VERSION,
            store_id: self.store_id,
            segment: number,
            bytes,
            sequence: self.sequence,
            flush: self.flush,
            epoch_before: if continues { cut.epoch } else { self.last_epoch },
            continues,
        };
        let entering = Some(header.epoch_before);
        self.current = Some(CurrentSegment {
            number,
            bytes,
            at: 0,
            unsynced: false,
            entering,
            succeeded: false,
        });
        let page = &mut self.buffer[..block::SEGMENT_HEADER];
        header.seal(page);
        self.sealed = page.len();
        Ok(())
    }
}

/// End of the longest run of whole records from `at` on that is at most `room` bytes long.
fn whole_records(records: &[u8], at: usize, room: usize) -> usize {
    if records.len() - at <= room {
        // This spares reading the records, which another core has written.
        return records.len();
    }
    let mut end = at;
    while end < records.len() {
        let next = end + record::length(&records[end..]);
        assert!(next > end && next <= records.len(), "an appender writes whole records");
        if next - at > room {
            break;
        }
        end = next;
    }
    end
}
