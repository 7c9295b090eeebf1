//! The flusher: one thread that gathers all buffers into one write, syncs once, and publishes.
//!
//! Invariants: one flush is in flight at a time; a block is written when everything of the flush
//! before it is durable; the head of a segment is written when everything in the segment before is
//! durable, and synced with the first blocks behind it. Nothing that failed is tried again: the first
//! error ends the thread, and the log is poisoned with it.

use crate::{
    block::{self, BlockHeader, CHUNK_HEADER, MAX_BLOCK, MAX_PAYLOAD, SECTOR, SegmentHeader},
    log::LogStart,
    record,
    shared::{BUFFER_BYTES, Cut, Shared, Taken},
};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};
use wattle_buffer::{PAGE_SIZE, io::LogBuffer};

/// Blocks that are gathered before they are written.
const WRITE_BYTES: usize = 1 << 20;
/// A write goes to the device in pieces of this size, all in flight at once.
const PIECE_BYTES: usize = 256 << 10;
/// Buffers that are kept for the next flush, and what all of them may hold on to.
const MAX_SPARES: usize = 64;
const MAX_SPARE_BYTES: usize = BUFFER_BYTES;

/// A flush for which the rest of the segment seems too small begins the next one, because to begin here and
/// go on there takes two syncs; but not if the rest is more than this part of a segment, nor if the next
/// one is not made yet: of a full log the rest is all there is.
const LARGEST_REST: u64 = 8;
/// So much of its payload a block mostly lacks at most: what does not fit may be the image of a page.
const UNUSED: usize = PAGE_SIZE + SECTOR;

/// The segment that is being written.
struct Current {
    number: u64,
    /// Where the first byte of the buffer goes.
    at: u64,
    /// Something was written that no sync has covered.
    unsynced: bool,
    /// What its head says of the epochs before, until that is durable.
    entering: Option<u64>,
    /// The next one is being made.
    succeeded: bool,
}

pub(crate) struct Flusher {
    shared: Arc<Shared>,
    store_id: u64,
    current: Option<Current>,
    /// Sequence of the next block, number of the next flush, epoch of the last one.
    sequence: u64,
    flush: u64,
    last_epoch: u64,
    /// Blocks of this flush that are sealed, whether written or not.
    sealed_blocks: u64,
    /// Sealed blocks, then the open one, its payload in place.
    buffer: LogBuffer,
    sealed: usize,
    payload: usize,
    taken: Vec<Taken>,
    spares: Vec<Vec<u8>>,
}

type Outcome<T = ()> = Result<T, String>;

impl Flusher {
    pub(crate) fn new(shared: Arc<Shared>, start: &LogStart) -> Flusher {
        Flusher {
            shared,
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

    /// Body of the thread. The error says what failed.
    pub(crate) fn run(mut self) -> Outcome {
        loop {
            let last = self.shared.wait_for_reason();
            if !last {
                self.shared.wait_for_company();
            }
            if !self.flush()? {
                return Ok(());
            }
            if last {
                self.shared.waits.end();
                return Ok(());
            }
        }
    }

    /// False: another thread of the log failed, and has said so.
    fn flush(&mut self) -> Outcome<bool> {
        // 1. From here on new sections are behind the cut.
        let Some(cut) = self.shared.cut() else { return Ok(false) };
        // 2. What is before it.
        let mut taken = std::mem::take(&mut self.taken);
        self.shared.take_buffers(cut.epoch, &mut self.spares, &mut taken);
        // 3. Up to when every time that the clock gave belongs to it.
        let mark = self.shared.mark_of(cut.epoch);
        self.shared.waits.buffers_taken();
        // 4. Onto the device. A checkpoint is written even if it is empty, so that its epoch lasts.
        if !taken.is_empty() || cut.checkpoint {
            self.write(&cut, &taken)?;
            self.last_epoch = cut.epoch;
        }
        let mut kept: usize = self.spares.iter().map(Vec::capacity).sum();
        for Taken { mut records, .. } in taken.drain(..) {
            records.clear();
            if kept + records.capacity() <= MAX_SPARE_BYTES {
                kept += records.capacity();
                self.spares.push(records);
            }
        }
        self.spares.truncate(MAX_SPARES);
        self.taken = taken;
        // 5. Whoever waits for it.
        self.shared.publish(&cut, mark);
        // 6. Only now who may want the device as well.
        if let Some(current) = self.current.as_mut().filter(|current| !current.succeeded) {
            let bytes = self.shared.options.segment_bytes;
            current.succeeded = self.shared.segments.flushed(current.at, bytes);
        }
        Ok(true)
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
        self.shared.durable_flush.store(self.flush, Ordering::Release);
        self.flush += 1;
        self.shared.stats.lock().0.flushes += 1;
        Ok(())
    }

    /// Whether the flush is better begun in the next segment.
    fn begins_a_segment(&self, taken: &[Taken]) -> bool {
        let Some(current) = &self.current else { return true };
        let bytes = self.shared.options.segment_bytes;
        let rest = bytes - current.at;
        let payload: usize = taken.iter().map(|part| CHUNK_HEADER + part.records.len()).sum();
        let (full, last) = (payload / (MAX_PAYLOAD - UNUSED), payload % (MAX_PAYLOAD - UNUSED));
        rest <= bytes / LARGEST_REST
            && (full * MAX_BLOCK + block::block_bytes(last)) as u64 > rest
            && self.shared.segments.is_ready()
    }

    /// Where in the segment the open block lies.
    fn place(&self) -> Option<u64> {
        Some(self.current.as_ref()?.at + self.sealed as u64)
    }

    /// Whether the segment has room for the smallest block.
    fn block_fits(&self) -> bool {
        let bytes = self.shared.options.segment_bytes;
        self.place().is_some_and(|place| place < bytes)
    }

    /// Bytes that the open block can still take.
    fn room(&self) -> usize {
        let Some(place) = self.place().filter(|_| self.block_fits()) else { return 0 };
        let left = (self.shared.options.segment_bytes - place) as usize;
        MAX_PAYLOAD.min(block::payload_room(left / SECTOR)) - self.payload
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

    /// The open block takes no more: the next one, in the next segment if it is time.
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
        self.shared.storage.write(current.number, &pieces).map_err(|error| {
            let (bytes, at) = (self.sealed, current.at);
            format!("writing {bytes} bytes to log segment {} at {at}: {error}", current.number)
        })?;
        current.at += self.sealed as u64;
        current.unsynced = true;
        self.shared.segments.used(current.at);
        self.shared.stats.lock().0.bytes_written += self.sealed as u64;
        self.sealed = 0;
        Ok(())
    }

    fn sync(&mut self) -> Outcome {
        let Some(current) = self.current.as_mut().filter(|current| current.unsynced) else {
            return Ok(());
        };
        let started = Instant::now();
        let result = self.shared.storage.sync(current.number);
        result.map_err(|error| format!("syncing log segment {}: {error}", current.number))?;
        current.unsynced = false;
        if let Some(epoch_before) = current.entering.take() {
            self.shared.segments.entered(current.number, epoch_before);
        }
        let ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let mut stats = self.shared.stats.lock();
        stats.0.syncs += 1;
        stats.0.sync_ns += ns;
        stats.1.add(ns);
        Ok(())
    }

    /// Goes on in the segment that was made ahead.
    fn next_segment(&mut self, cut: &Cut) -> Outcome {
        // 1. What the new head builds upon must be durable before it.
        self.write_out()?;
        self.sync()?;
        let number = self.shared.segments.take_ready(self.shared.options.patience)?;
        // 2. The head says how the log goes on.
        let continues = self.sealed_blocks > 0;
        let header = SegmentHeader {
            version: block::FORMAT_VERSION,
            store_id: self.store_id,
            segment: number,
            bytes: self.shared.options.segment_bytes,
            sequence: self.sequence,
            flush: self.flush,
            epoch_before: if continues { cut.epoch } else { self.last_epoch },
            continues,
        };
        let entering = Some(header.epoch_before);
        self.current = Some(Current { number, at: 0, unsynced: false, entering, succeeded: false });
        let page = &mut self.buffer[..block::SEGMENT_HEADER];
        header.seal(page);
        self.sealed = page.len();
        Ok(())
    }
}

/// End of the longest run of whole records from `at` on that is at most `room` bytes long.
fn whole_records(records: &[u8], at: usize, room: usize) -> usize {
    if records.len() - at <= room {
        // Without a look at the records, which another core has written.
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
