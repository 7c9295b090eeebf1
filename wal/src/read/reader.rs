//! Reading the log back, flush by flush, up to its end.
//!
//! How the end differs from damage:
//!
//! - The head of a segment says with which block the log goes on in it. So in every segment but the
//!   last, the reader knows which blocks must be there: all of them, whole, or the log is damaged.
//!   Blocks beyond are the remains of a flush that an earlier recovery found torn; they are
//!   ignored.
//! - In the last segment the log ends with the last whole flush. After it there may be holes
//!   (sectors that were not written for this segment), as a power cut leaves them in the one flush
//!   that was not synced. A sector is damaged if it is neither as it was written, nor zero, nor as
//!   an earlier segment left it. A block of a later flush after a hole is damage too, because
//!   flushes are written one after the other.
//! - The head of a segment is synced with the first blocks after it. So the segment after the last
//!   one with a head may hold remains of the one flush that was not synced, and of no later one.
//!
//! Invariants: no bytes make the reader panic, or allocate more than the log has bytes; it gives
//! out a flush whole or not at all.

use super::{
    flush::{Chunk, Flush},
    heads::SegmentHeads,
    window::{LogWindow, READ_BYTES},
};
use crate::{
    block::{
        self, BLOCK_ALIGN, BlockHeader, BlockPayload, CHUNK_HEADER, MAX_BLOCK, SECTOR,
        SEGMENT_HEADER, SectorOrigin, SectorPlace, SectorState, SegmentHeader,
    },
    error::{damaged, wrong_log},
    gsn::MAX_EPOCH,
    position::LogEnd,
    record::{Base, u32_at, u64_at},
};
use std::sync::Arc;
use wattle_buffer::{Error, Result, io::LogStorage};

/// Reads a log from front to back.
pub struct LogReader {
    window: LogWindow,
    store_id: u64,
    heads: SegmentHeads,
    /// Index of the segment that is being read.
    index: usize,
    /// Offset of the next block.
    at: u64,
    /// The last block that was read.
    sequence: u64,
    /// The last whole flush.
    end: LogEnd,
    /// The flush that is being read.
    pending: Option<PendingFlush>,
    finished: bool,
    /// Where in its segment the flush that is being read begins; 0 for the first one of a segment.
    flush_at: u64,
    /// The last whole flush, as far as it is in the segment where it ends: that segment, first and
    /// last byte.
    tail: Option<(u64, u64, u64)>,
}

struct PendingFlush {
    flush: Flush,
    /// It began in a segment that was retired: it counts, but is not given out.
    headless: bool,
}

/// Makes these segments durable.
///
/// # Errors
/// A sync failed. Another sync that succeeds proves nothing then.
pub fn sync_segments(storage: &dyn LogStorage, segments: &[u64]) -> Result<()> {
    segments.iter().try_for_each(|&segment| {
        let synced = storage.sync(segment);
        synced.map_err(|error| Error::io(format_args!("sync log segment {segment}"), error))
    })
}

impl LogReader {
    /// Opens the log of the store `store_id`, to be read from the segment `from_segment` on. Reads
    /// the heads of all segments.
    pub fn open(
        storage: Arc<dyn LogStorage>,
        store_id: u64,
        from_segment: u64,
    ) -> Result<LogReader> {
        let heads = SegmentHeads::read(&*storage, store_id, from_segment)?;
        let prepared: Vec<_> = heads.prepared.iter().skip(1).copied().collect();
        let mut reader = LogReader {
            window: LogWindow::new(storage),
            store_id,
            heads,
            index: 0,
            at: SEGMENT_HEADER as u64,
            sequence: 0,
            end: LogEnd { store_id, ..LogEnd::default() },
            pending: None,
            finished: false,
            flush_at: 0,
            tail: None,
        };
        for (number, bytes) in prepared {
            reader.check_empty(number, bytes)?;
        }
        match (reader.heads.heads.first(), reader.heads.heads.last()) {
            (Some(first), Some(last)) => {
                reader.sequence = first.sequence - 1;
                reader.end.segment = last.segment;
                reader.end.sequence = first.sequence - 1;
                reader.end.flush = first.flush - 1;
                reader.end.epoch = first.epoch_before;
                if first.continues {
                    let flush = Flush { flush_number: first.flush, ..Flush::default() };
                    reader.pending = Some(PendingFlush { flush, headless: true });
                }
            }
            // Only a log that never flushed looks like this.
            _ if from_segment > 1 => {
                let why = format!("segment {from_segment} of the log was never used");
                return Err(wrong_log(why));
            }
            _ => reader.finish()?,
        }
        Ok(reader)
    }

    /// The next whole flush, or `None` at the end of the log.
    pub fn next_flush(&mut self) -> Result<Option<Flush>> {
        while !self.finished {
            if let Some(flush) = self.read_block()? {
                return Ok(Some(flush));
            }
        }
        Ok(None)
    }

    /// No record before the next flush has a later epoch.
    pub fn epoch_before(&self) -> u64 {
        self.end.epoch
    }

    /// Segment and byte offset of the next block, for messages.
    pub fn position(&self) -> (u64, u64) {
        let segment =
            self.heads.heads.get(self.index).map_or(self.end.segment, |head| head.segment);
        (segment, self.at)
    }

    /// Reads the rest of the log, and gives its end. Syncs it, in case the process that wrote it
    /// ended before its last sync.
    pub fn end(mut self) -> Result<LogEnd> {
        while self.next_flush()?.is_some() {}
        if self.end.segment != 0 {
            let synced = self.window.storage().sync(self.end.segment);
            synced.map_err(|error| Error::io("sync the log that was read", error))?;
        }
        Ok(self.end)
    }

    /// Reads the rest of the log, makes its end durable, and gives that end, for a log that goes on
    /// from there. Flushes up to `durable_flush` are known to be durable: if the log ends with one
    /// of them nothing is written.
    ///
    /// Only the last flush may not be durable, because each is written after the sync of the
    /// previous one. It is written again, because its sync may have failed: after a failed fsync
    /// the page cache may return bytes that later fsyncs never write.
    pub fn settle(self, durable_flush: u64) -> Result<LogEnd> {
        let storage = Arc::clone(self.window.storage());
        let (end, unsynced) = self.settle_later(durable_flush)?;
        sync_segments(&*storage, &unsynced)?;
        Ok(end)
    }

    /// As [`LogReader::settle`], but leaves the syncs of files that need nothing else to the
    /// caller, who calls [`sync_segments`] with the segments that are given, before the log goes
    /// on.
    pub fn settle_later(mut self, durable_flush: u64) -> Result<(LogEnd, Vec<u64>)> {
        while self.next_flush()?.is_some() {}
        let last = self.end.segment;
        // A later segment than that of the last flush has at least a head.
        let in_last = self.tail.is_some_and(|(segment, ..)| segment == last);
        if last == 0 {
            return Ok((self.end, Vec::new()));
        }
        if in_last && self.end.flush <= durable_flush {
            // The files may be copies that were never synced. A sync of clean files writes nothing.
            let segments = self.heads.heads.iter().map(|head| head.segment).collect();
            return Ok((self.end, segments));
        }
        let tail = self.tail.filter(|(segment, ..)| *segment == last);
        // A segment without a flush has at least a head, which may not be durable either.
        let (_, mut at, end) = tail.unwrap_or((last, 0, SEGMENT_HEADER as u64));
        while at < end {
            let len = (end - at).min(READ_BYTES as u64) as usize;
            let (storage, piece) = (Arc::clone(self.window.storage()), self.bytes(last, at, len)?);
            let written = storage.write(last, &[(at, piece)]);
            written.map_err(|error| {
                Error::io(format_args!("write the end of the log again, segment {last}"), error)
            })?;
            at += len as u64;
        }
        Ok((self.end()?, Vec::new()))
    }

    /// Reads one block or goes on to the next segment. Gives a flush that the block completes.
    fn read_block(&mut self) -> Result<Option<Flush>> {
        let head = self.heads.heads[self.index];
        let limit = self.heads.limit(self.index);
        if let Some(limit) = limit
            && self.sequence >= limit
        {
            self.next_segment()?;
            return Ok(None);
        }
        let must_be_there = limit.is_some();
        let offset = self.at;
        if offset >= head.bytes {
            if must_be_there {
                let what = format!("the segment ends with block {}", self.sequence);
                return Err(damaged(head.segment, offset, what));
            }
            self.finish()?;
            return Ok(None);
        }
        let left = (head.bytes - offset).min(MAX_BLOCK as u64) as usize;
        let origin = SectorOrigin { store_id: self.store_id, segment: head.segment };
        let damage = |what: String| damaged(head.segment, offset, what);
        let sector = self.bytes(head.segment, offset, SECTOR)?;
        let block = match origin.look(sector, offset, SectorPlace::First) {
            SectorState::Written => BlockHeader::parse(sector).map_err(damage)?,
            SectorState::Unwritten if must_be_there => {
                return Err(damage(format!("block {} is missing", self.sequence + 1)));
            }
            SectorState::Unwritten => {
                self.finish_torn(offset)?;
                return Ok(None);
            }
            SectorState::Damaged => {
                let what = "the checksum of a sector differs where a block may begin";
                return Err(damage(what.into()));
            }
        };
        self.check_block(&block, &head, offset).map_err(damage)?;
        let len = block::block_bytes(block.payload_len);
        if len > left {
            return Err(damage(format!("a block of {len} bytes does not fit the segment")));
        }
        let bytes = self.bytes(head.segment, offset, len)?;
        let payload = match block.payload(bytes) {
            BlockPayload::Whole(payload) => payload,
            BlockPayload::Torn if must_be_there => {
                let what = format!("block {} has sectors that were never written", block.sequence);
                return Err(damage(what));
            }
            BlockPayload::Torn => {
                self.finish_torn(offset)?;
                return Ok(None);
            }
            BlockPayload::Damaged(index) => {
                let at = offset + (index * SECTOR) as u64;
                let what = format!("the checksum of a sector of block {} differs", block.sequence);
                return Err(damaged(head.segment, at, what));
            }
        };
        self.at = offset + len as u64;
        self.sequence = block.sequence;
        self.add(&block, &payload).map_err(damage)
    }

    /// Fails unless a block is the next one of the log.
    fn check_block(
        &self,
        block: &BlockHeader,
        head: &SegmentHeader,
        offset: u64,
    ) -> Result<(), String> {
        let place = (block.store_id, block.segment, block.offset);
        if place != (self.store_id, head.segment, offset) {
            return Err(format!(
                "the block belongs to store {:#x}, segment {}, byte {}",
                place.0, place.1, place.2
            ));
        }
        if block.sequence != self.sequence + 1 {
            let (found, expected) = (block.sequence, self.sequence + 1);
            return Err(format!("block {found} where block {expected} belongs"));
        }
        let expected = match &self.pending {
            Some(pending) => pending.flush.flush_number,
            None => self.end.flush + 1,
        };
        if block.flush != expected {
            return Err(format!("flush {} where flush {expected} belongs", block.flush));
        }
        let epoch = self.pending.as_ref().map_or(0, |pending| pending.flush.epoch);
        let is_next = block.epoch >= self.end.epoch && block.epoch <= MAX_EPOCH;
        if (epoch != 0 && block.epoch != epoch) || !is_next {
            return Err(format!("epoch {} after epoch {}", block.epoch, epoch.max(self.end.epoch)));
        }
        Ok(())
    }

    /// Adds the payload of a block to its flush. Gives the flush if the block is its last.
    fn add(&mut self, block: &BlockHeader, mut payload: &[u8]) -> Result<Option<Flush>, String> {
        let pending = self.pending.get_or_insert_with(|| {
            let flush = Flush { flush_number: block.flush, ..Flush::default() };
            PendingFlush { flush, headless: false }
        });
        pending.flush.epoch = block.epoch;
        while !payload.is_empty() {
            let head = payload.get(..CHUNK_HEADER);
            let records =
                head.and_then(|head| payload[CHUNK_HEADER..].get(..u32_at(head, 4) as usize));
            let (Some(head), Some(records)) = (head, records) else {
                return Err(format!("a chunk does not fit into block {}", block.sequence));
            };
            payload = &payload[CHUNK_HEADER + records.len()..];
            if pending.headless {
                continue;
            }
            let worker = u32_at(head, 0);
            let base = Base { epoch: u64_at(head, 8), txn: u64_at(head, 16) };
            // Records of one worker in several blocks stay apart: to join them would copy them
            // again and again.
            pending.flush.chunks.push(Chunk { worker, base, bytes: records.to_vec() });
        }
        if !block.last {
            return Ok(None);
        }
        self.end.sequence = block.sequence;
        self.end.flush = block.flush;
        self.end.epoch = block.epoch;
        self.tail = Some((block.segment, self.flush_at, self.at));
        self.flush_at = self.at;
        let whole = self.pending.take().filter(|pending| !pending.headless);
        Ok(whole.map(|pending| pending.flush))
    }

    fn next_segment(&mut self) -> Result<()> {
        self.index += 1;
        let head = self.heads.heads[self.index];
        (self.at, self.flush_at) = (SEGMENT_HEADER as u64, 0);
        // A later head takes back the blocks of this one.
        if self.heads.limit(self.index).is_some_and(|limit| limit < head.sequence) {
            return Ok(());
        }
        let (flush, continues) = match &self.pending {
            Some(pending) => (pending.flush.flush_number, true),
            None => (self.end.flush + 1, false),
        };
        let expected = (self.sequence + 1, flush, continues);
        if (head.sequence, head.flush, head.continues) != expected {
            let what = format!(
                "the head goes on with block {} of flush {}, \
                 the log with block {} of flush {flush}",
                head.sequence,
                head.flush,
                self.sequence + 1,
            );
            return Err(damaged(head.segment, 0, what));
        }
        Ok(())
    }

    /// The log ends before the flush that is being read, which has a hole at `offset`. Fails if a
    /// block of a later flush follows.
    fn finish_torn(&mut self, offset: u64) -> Result<()> {
        let head = self.heads.heads[self.index];
        self.no_later_flush(head.segment, offset, head.bytes)?;
        self.finish()
    }

    /// The log ends here. Fails if a segment without a head has a block of a later flush than the
    /// one that may be torn.
    fn finish(&mut self) -> Result<()> {
        self.finished = true;
        match self.heads.prepared.first() {
            Some(&(segment, bytes)) => self.no_later_flush(segment, 0, bytes),
            None => Ok(()),
        }
    }

    fn no_later_flush(&mut self, segment: u64, from: u64, bytes: u64) -> Result<()> {
        let (torn, store_id) = (self.end.flush + 1, self.store_id);
        let origin = SectorOrigin { store_id, segment };
        let mut at = from;
        while at < bytes {
            let len = (bytes - at).min(READ_BYTES as u64) as usize;
            let pages = self.bytes(segment, at, len)?.chunks(BLOCK_ALIGN);
            for (page, place) in pages.zip((at..).step_by(BLOCK_ALIGN)) {
                if let Some(sector) = page.get(..SECTOR)
                    && origin.look(sector, place, SectorPlace::First) == SectorState::Written
                    && let Ok(block) = BlockHeader::parse(sector)
                    && (block.store_id, block.segment, block.offset) == (store_id, segment, place)
                    && block.flush > torn
                {
                    let what =
                        format!("flush {torn} is torn, but flush {} follows it", block.flush);
                    return Err(damaged(segment, from, what));
                }
            }
            at += len as u64;
        }
        Ok(())
    }

    /// Fails if a prepared segment holds a sector that was written for it. Its other sectors may be
    /// of any age, and damage to them loses nothing.
    fn check_empty(&mut self, segment: u64, bytes: u64) -> Result<()> {
        let store_id = self.store_id;
        let origin = SectorOrigin { store_id, segment };
        let mut at = 0;
        while at < bytes {
            let len = (bytes - at).min(READ_BYTES as u64) as usize;
            let sectors = self.bytes(segment, at, len)?.chunks(SECTOR);
            for (sector, place) in sectors.zip((at..).step_by(SECTOR)) {
                if sector.len() == SECTOR && origin.is_written(sector, place) {
                    let what = "the segment has no head, and is not empty";
                    return Err(damaged(segment, place, what));
                }
            }
            at += len as u64;
        }
        Ok(())
    }

    /// Bytes of a segment through the window; at most its size, and inside the segment.
    fn bytes(&mut self, segment: u64, at: u64, len: usize) -> Result<&[u8]> {
        let head = self.heads.heads.get(self.index).filter(|head| head.segment == segment);
        let end = head.map_or(at + len as u64, |head| head.bytes);
        self.window.bytes(segment, at, len, end)
    }
}
