//! Reading the log back, flush by flush, up to where it ends.
//!
//! What is an end and what is damage:
//!
//! - The head of a segment says with which block the log goes on in it. So in every segment but the
//!   last one it is known which blocks must be there: all of them, whole, or the log is damaged.
//!   Blocks beyond are the remains of a flush that a former recovery found torn; they are ignored.
//! - In the last segment the log ends with the last flush that is whole. What comes behind it may
//!   have holes (sectors that were not written for this segment), as a power cut leaves in the one flush
//!   that was not synced. A sector that is neither what was written, nor zero, nor what an earlier
//!   segment had there is damage, and so is any block of a later
//!   flush behind a hole, because flushes are written one after the other.
//! - The head of a segment is synced with the first blocks behind it. So the segment behind the last one
//!   with a head may hold remains of the one flush that was not synced, and nothing later.
//!
//! Invariants: no bytes make the reader panic, or allocate more than the log has bytes; a flush is
//! given out whole or not at all.

use crate::{
    append::GSN_COUNTER_BITS,
    block::{
        self, BLOCK_ALIGN, BlockHeader, CHUNK_HEADER, FORMAT_VERSION, MAX_BLOCK, Origin, Payload,
        SECTOR, SEGMENT_HEADER, Sector, SegmentHeader, Which, is_zero,
    },
    log::LogStart,
    record::{self, Base, Record, u32_at, u64_at},
};
use std::{path::PathBuf, sync::Arc};
use wattle_buffer::{
    Error, Result,
    io::{LogBuffer, LogStorage},
};

/// No log has so many blocks or flushes, nor epochs: one that says so is forged, and must not make numbers run over.
pub const MAX_NUMBER: u64 = 1 << 62;
/// No epoch is above.
pub const MAX_EPOCH: u64 = (1 << (u64::BITS - GSN_COUNTER_BITS)) - (1 << 20);
/// Bytes read at once.
const READ_BYTES: usize = 1 << 20;

/// One flush: a consistent cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flush {
    /// All its records have this epoch or a smaller one.
    pub epoch: u64,
    /// Ascending by 1.
    pub flush_number: u64,
    /// Whole records, by worker; the records of one worker are in their order.
    pub chunks: Vec<Chunk>,
}

/// Records of one worker, side by side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// The worker.
    pub worker: u32,
    /// What the numbers of the records are relative to.
    pub base: Base,
    /// The records.
    pub bytes: Vec<u8>,
}

impl Chunk {
    /// The records in their order. The error of one says where it begins and what does not fit, and is the
    /// last item.
    pub fn records(&self) -> impl Iterator<Item = Result<Record<'_>, String>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let rest = self.bytes.get(at..).filter(|rest| !rest.is_empty())?;
            Some(match record::parse(rest, self.base) {
                Ok((record, len)) => {
                    at += len;
                    Ok(record)
                }
                Err(what) => {
                    let worker = self.worker;
                    let what = format!("at byte {at} of the records of worker {worker}: {what}");
                    at = self.bytes.len();
                    Err(what)
                }
            })
        })
    }
}

/// Where a log ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogEnd {
    /// Number of the store.
    pub store_id: u64,
    /// Last segment with a head; 0 where nothing was ever written.
    pub segment: u64,
    /// Epoch of the last whole flush.
    pub epoch: u64,
    /// Its number.
    pub flush: u64,
    /// Sequence of its last block.
    pub sequence: u64,
}

impl LogStart {
    /// The start of a log that goes on after `end`: in a new segment, with the next epoch. The
    /// image epoch is that epoch too, so that every page is logged as a whole again.
    pub fn after(end: LogEnd) -> LogStart {
        LogStart {
            store_id: end.store_id,
            segment: end.segment + 1,
            sequence: end.sequence + 1,
            flush: end.flush + 1,
            epoch: end.epoch + 1,
            image_epoch: end.epoch + 1,
        }
    }
}

/// Reads a log from front to back.
pub struct LogReader {
    storage: Arc<dyn LogStorage>,
    store_id: u64,
    /// Segments with a head, ascending, without gaps.
    segments: Vec<SegmentHeader>,
    /// For each of them, the least sequence that it or a later one goes on after.
    limits: Vec<u64>,
    /// Index of the one being read.
    index: usize,
    /// Offset of the next block.
    at: u64,
    /// The last block that was read, and the last whole flush.
    sequence: u64,
    end: LogEnd,
    /// The flush that is being read, and where it began.
    pending: Option<Pending>,
    finished: bool,
    /// The segment behind the last one with a head, if there is one, and its bytes.
    headless: Option<(u64, u64)>,
    /// Where in its segment the flush that is being read begins; 0 for the first one of a segment.
    flush_at: u64,
    /// The end of the last whole flush: its segment, and the bytes there.
    tail: Option<(u64, u64, u64)>,
    window: LogBuffer,
    window_segment: u64,
    window_at: u64,
    window_len: usize,
}

struct Pending {
    flush: Flush,
    /// It began in a segment that is not there any more: counted, and not given out.
    headless: bool,
}

impl LogReader {
    /// Opens the log of the store `store_id`, to be read from the segment `from_segment` on. Reads
    /// the heads of all segments.
    pub fn open(
        storage: Arc<dyn LogStorage>,
        store_id: u64,
        from_segment: u64,
    ) -> Result<LogReader> {
        let found = storage.segments().map_err(|error| Error::io("list the log", error))?;
        let found: Vec<_> = found.into_iter().filter(|found| found.0 >= from_segment).collect();
        if found.first().is_none_or(|first| first.0 != from_segment) {
            return Err(wrong_log(format!("segment {from_segment} of the log is missing")));
        }
        let mut segments: Vec<SegmentHeader> = Vec::new();
        let mut prepared = Vec::new();
        for (&(number, bytes), expected) in found.iter().zip(from_segment..) {
            if number != expected {
                let what = format!(
                    "the segment is missing, but segment {number} is there, {}",
                    unless_ours(number)
                );
                return Err(damaged(expected, 0, what));
            }
            match read_header(&*storage, store_id, number, bytes)? {
                Some(header) => {
                    if let Some(&(empty, _)) = prepared.first() {
                        let what = "the head of the segment is empty, but later ones are in use";
                        return Err(damaged(empty, 0, what));
                    }
                    if let Some(before) = segments.last()
                        && header.sequence < before.sequence
                        && header.continues
                    {
                        let what = "the head continues a flush that the one before does not have";
                        return Err(damaged(number, 0, what));
                    }
                    segments.push(header);
                }
                None => prepared.push((number, bytes)),
            }
        }
        let mut limits: Vec<u64> = segments.iter().map(|head| head.sequence - 1).collect();
        for index in (1..limits.len()).rev() {
            limits[index - 1] = limits[index - 1].min(limits[index]);
        }
        let mut reader = LogReader {
            storage,
            store_id,
            limits,
            index: 0,
            at: SEGMENT_HEADER as u64,
            sequence: 0,
            end: LogEnd { store_id, ..LogEnd::default() },
            pending: None,
            finished: false,
            headless: prepared.first().copied(),
            flush_at: 0,
            tail: None,
            segments,
            window: LogBuffer::new(READ_BYTES),
            window_segment: 0,
            window_at: 0,
            window_len: 0,
        };
        for (number, bytes) in prepared.into_iter().skip(1) {
            reader.check_empty(number, bytes)?;
        }
        match (reader.segments.first(), reader.segments.last()) {
            (Some(first), Some(last)) => {
                reader.sequence = first.sequence - 1;
                reader.end.segment = last.segment;
                reader.end.sequence = first.sequence - 1;
                reader.end.flush = first.flush - 1;
                reader.end.epoch = first.epoch_before;
                if first.continues {
                    let flush = Flush { flush_number: first.flush, ..Flush::default() };
                    reader.pending = Some(Pending { flush, headless: true });
                }
            }
            // Only a log in which nothing was ever flushed looks like this.
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

    /// The epoch that no record before what is read next is above.
    pub fn epoch_before(&self) -> u64 {
        self.end.epoch
    }

    /// Segment and byte offset behind what was read so far, for messages.
    pub fn position(&self) -> (u64, u64) {
        let segment = self.segments.get(self.index).map_or(self.end.segment, |head| head.segment);
        (segment, self.at)
    }

    /// Where the log ends; reads what is left of it. Makes durable what was read, in case the
    /// process that wrote it ended before it could.
    pub fn end(mut self) -> Result<LogEnd> {
        while self.next_flush()?.is_some() {}
        if self.end.segment != 0 {
            let synced = self.storage.sync(self.end.segment);
            synced.map_err(|error| Error::io("sync the log that was read", error))?;
        }
        Ok(self.end)
    }

    /// Makes the end of the log durable, after the last flush was read, for whoever goes on from there.
    ///
    /// The last flush alone may not be: each is written when the one before was synced. It is written
    /// again, because its sync may have failed: then the kernel gives its bytes, regards them as
    /// written, and a sync that succeeds proves nothing.
    pub fn settle(mut self) -> Result<LogEnd> {
        while self.next_flush()?.is_some() {}
        let last = self.end.segment;
        if last == 0 {
            return Ok(self.end);
        }
        let tail = self.tail.filter(|(segment, ..)| *segment == last);
        // Without a flush of its own the segment has a head, which may not be durable either.
        let (_, mut at, end) = tail.unwrap_or((last, 0, SEGMENT_HEADER as u64));
        while at < end {
            let len = (end - at).min(READ_BYTES as u64) as usize;
            let (storage, piece) = (Arc::clone(&self.storage), self.bytes(last, at, len)?);
            let written = storage.write(last, &[(at, piece)]);
            written.map_err(|error| {
                Error::io(format_args!("write the end of the log again, segment {last}"), error)
            })?;
            at += len as u64;
        }
        self.end()
    }

    /// The sequence up to which blocks of segment `index` count: what any later head goes on after.
    fn limit(&self, index: usize) -> Option<u64> {
        self.limits.get(index + 1).copied()
    }

    /// Reads one block or passes on to the next segment; gives a flush when it completes one.
    fn read_block(&mut self) -> Result<Option<Flush>> {
        let header = self.segments[self.index];
        let limit = self.limit(self.index);
        if let Some(limit) = limit
            && self.sequence >= limit
        {
            self.next_segment()?;
            return Ok(None);
        }
        let must_be_there = limit.is_some();
        let offset = self.at;
        if offset >= header.bytes {
            if must_be_there {
                let what = format!("the segment ends with block {}", self.sequence);
                return Err(damaged(header.segment, offset, what));
            }
            self.finish()?;
            return Ok(None);
        }
        let left = (header.bytes - offset).min(MAX_BLOCK as u64) as usize;
        let origin = Origin { store_id: self.store_id, segment: header.segment };
        let damage = |what: String| damaged(header.segment, offset, what);
        let sector = self.bytes(header.segment, offset, SECTOR)?;
        let block = match origin.look(sector, offset, Which::First) {
            Sector::Written => BlockHeader::parse(sector).map_err(damage)?,
            Sector::Unwritten if must_be_there => {
                return Err(damage(format!("block {} is missing", self.sequence + 1)));
            }
            Sector::Unwritten => {
                self.nothing_behind(offset)?;
                return Ok(None);
            }
            Sector::Damaged => {
                let what = "the checksum of a sector differs where a block may begin";
                return Err(damage(what.into()));
            }
        };
        self.check_block(&block, &header, offset).map_err(damage)?;
        let len = block::block_bytes(block.payload_len);
        if len > left {
            return Err(damage(format!("a block of {len} bytes does not fit the segment")));
        }
        let bytes = self.bytes(header.segment, offset, len)?;
        let payload = match block.payload(bytes) {
            Payload::Whole(payload) => payload,
            Payload::Torn if must_be_there => {
                let what = format!("block {} has sectors that were never written", block.sequence);
                return Err(damage(what));
            }
            Payload::Torn => {
                self.nothing_behind(offset)?;
                return Ok(None);
            }
            Payload::Damaged(index) => {
                let at = offset + (index * SECTOR) as u64;
                let what = format!("the checksum of a sector of block {} differs", block.sequence);
                return Err(damaged(header.segment, at, what));
            }
        };
        self.at = offset + len as u64;
        self.sequence = block.sequence;
        self.add(&block, &payload).map_err(damage)
    }

    /// Whether a block is the one that has to come.
    fn check_block(
        &self,
        block: &BlockHeader,
        header: &SegmentHeader,
        offset: u64,
    ) -> Result<(), String> {
        let place = (block.store_id, block.segment, block.offset);
        if place != (self.store_id, header.segment, offset) {
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

    /// Adds the payload of a block to its flush, which is given out when it ends with it.
    fn add(&mut self, block: &BlockHeader, mut payload: &[u8]) -> Result<Option<Flush>, String> {
        let pending = self.pending.get_or_insert_with(|| {
            let flush = Flush { flush_number: block.flush, ..Flush::default() };
            Pending { flush, headless: false }
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
            let chunks = &mut pending.flush.chunks;
            let last = chunks.pop_if(|last| (last.worker, last.base) == (worker, base));
            let mut chunk = last.unwrap_or(Chunk { worker, base, bytes: Vec::new() });
            chunk.bytes.extend_from_slice(records);
            chunks.push(chunk);
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
        let header = self.segments[self.index];
        (self.at, self.flush_at) = (SEGMENT_HEADER as u64, 0);
        // A head whose blocks a later one takes back has nothing to say.
        if self.limit(self.index).is_some_and(|limit| limit < header.sequence) {
            return Ok(());
        }
        let (flush, continues) = match &self.pending {
            Some(pending) => (pending.flush.flush_number, true),
            None => (self.end.flush + 1, false),
        };
        let expected = (self.sequence + 1, flush, continues);
        if (header.sequence, header.flush, header.continues) != expected {
            let what = format!(
                "the head goes on with block {} of flush {}, the log with block {} of flush {flush}",
                header.sequence,
                header.flush,
                self.sequence + 1,
            );
            return Err(damaged(header.segment, 0, what));
        }
        Ok(())
    }

    /// The log ends before the flush that was being read, or would be, with a hole at `offset`: no
    /// block of a later flush may be behind it.
    fn nothing_behind(&mut self, offset: u64) -> Result<()> {
        let header = self.segments[self.index];
        self.no_later_flush(header.segment, offset, header.bytes)?;
        self.finish()
    }

    /// The log ends here: no block of a flush behind the one that may be torn is in a segment whose head
    /// is not there.
    fn finish(&mut self) -> Result<()> {
        self.finished = true;
        match self.headless {
            Some((segment, bytes)) => self.no_later_flush(segment, 0, bytes),
            None => Ok(()),
        }
    }

    fn no_later_flush(&mut self, segment: u64, from: u64, bytes: u64) -> Result<()> {
        let (torn, store_id) = (self.end.flush + 1, self.store_id);
        let origin = Origin { store_id, segment };
        let mut at = from;
        while at < bytes {
            let len = (bytes - at).min(READ_BYTES as u64) as usize;
            let pages = self.bytes(segment, at, len)?.chunks(BLOCK_ALIGN);
            for (page, place) in pages.zip((at..).step_by(BLOCK_ALIGN)) {
                if let Some(sector) = page.get(..SECTOR)
                    && origin.look(sector, place, Which::First) == Sector::Written
                    && let Ok(block) = BlockHeader::parse(sector)
                    && (block.store_id, block.segment, block.offset) == (store_id, segment, place)
                    && block.flush > torn
                {
                    let what =
                        format!("flush {torn} is torn, but flush {} is behind it", block.flush);
                    return Err(damaged(segment, from, what));
                }
            }
            at += len as u64;
        }
        Ok(())
    }

    /// A segment that was prepared holds nothing of its own. What else is in it may be of any age, and
    /// damage to that is nobody's loss.
    fn check_empty(&mut self, segment: u64, bytes: u64) -> Result<()> {
        let store_id = self.store_id;
        let origin = Origin { store_id, segment };
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
        let inside = self.window_segment == segment
            && at >= self.window_at
            && at + len as u64 <= self.window_at + self.window_len as u64;
        if !inside {
            let end = self.segments.get(self.index).filter(|known| known.segment == segment);
            let left = end.map_or(len as u64, |known| known.bytes - at);
            let read = left.min(READ_BYTES as u64).max(len as u64) as usize;
            self.window_len = 0;
            let action = || format!("read log segment {segment} at byte {at}");
            self.storage
                .read(segment, at, &mut self.window[..read])
                .map_err(|error| Error::io(action(), error))?;
            (self.window_segment, self.window_at, self.window_len) = (segment, at, read);
        }
        let start = (at - self.window_at) as usize;
        Ok(&self.window[start..start + len])
    }
}

/// The head of a segment, or `None` of one that was only prepared.
pub(crate) fn read_header(
    storage: &dyn LogStorage,
    store_id: u64,
    segment: u64,
    bytes: u64,
) -> Result<Option<SegmentHeader>> {
    if bytes < SEGMENT_HEADER as u64 {
        let what = format!("the segment has {bytes} bytes, {}", unless_ours(segment));
        return Err(damaged(segment, bytes, what));
    }
    let mut page = LogBuffer::new(SEGMENT_HEADER);
    storage.read(segment, 0, &mut page).map_err(|error| {
        Error::io(format_args!("read the head of log segment {segment}"), error)
    })?;
    if is_zero(&page) {
        return Ok(None);
    }
    let header = SegmentHeader::parse(&page).map_err(|what| damaged(segment, 0, what))?;
    if header.version != FORMAT_VERSION {
        let (path, found) = (PathBuf::from(format!("log segment {segment}")), header.version);
        return Err(Error::WrongVersion { path, found, expected: FORMAT_VERSION });
    }
    if header.store_id != store_id {
        let found = header.store_id;
        return Err(wrong_log(format!("it belongs to store {found:#x}, not to {store_id:#x}")));
    }
    if header.segment != segment || header.bytes != bytes {
        let what = format!(
            "the head is of segment {} with {} bytes, the segment has {bytes} bytes",
            header.segment, header.bytes
        );
        return Err(damaged(segment, 0, what));
    }
    let numbers = 1..=MAX_NUMBER;
    if !numbers.contains(&header.sequence)
        || !numbers.contains(&header.flush)
        || header.epoch_before > MAX_EPOCH
    {
        let what = format!(
            "the head goes on with block {} of flush {}, after epoch {}",
            header.sequence, header.flush, header.epoch_before
        );
        return Err(damaged(segment, 0, what));
    }
    if !is_zero(&page[SECTOR..]) {
        return Err(damaged(segment, SECTOR as u64, "the rest of the head is not empty"));
    }
    Ok(Some(header))
}

/// What to do about a file that something else may have put there: the log never leaves one like it.
pub(crate) fn unless_ours(segment: u64) -> String {
    format!("which the log does not leave so: if {segment:016}.log is not its file, move it away")
}

/// An error of bytes in a segment.
pub(crate) fn damaged(segment: u64, offset: u64, what: impl Into<String>) -> Error {
    Error::LogCorruption { segment, offset, what: what.into() }
}

/// An error of a log that is not the store's.
pub(crate) fn wrong_log(why: String) -> Error {
    Error::WrongLog { path: PathBuf::from("this store"), why }
}
