//! Reads the log for recovery: flush by flush, in its own thread, so that reading overlaps with
//! applying. The records of a flush are in the order of their numbers.
//!
//! Invariant: recovery gets only durable records. The process that wrote the log may have been
//! killed between a write and its sync, or its last sync failed. If redo wrote pages from such a
//! tail, and a power cut then lost the tail, these pages would be newer than the log forever. So a
//! flush is given out when the next flush is there, which was written after its sync; and the last
//! flush after it was written and synced again.

use super::redo_state::RedoState;
use crate::store::{StoreFile, Superblock};
use std::{
    path::Path,
    sync::{Arc, mpsc::SyncSender},
};
use wattle_buffer::{Error, Gsn, Result, io::LogStorage};
use wattle_wal::{Chunk, Flush, LogEnd, LogReader, record::Record};

/// One flush, and the position of its end.
pub(crate) struct Located {
    /// Its number.
    pub number: u64,
    /// Its epoch.
    pub epoch: u64,
    /// Whole records by worker. Shared with the operations that are taken from it.
    pub chunks: Vec<Arc<Chunk>>,
    /// Segment and byte of its end.
    position: (u64, u64),
}

impl Located {
    /// A flush, and where it ends.
    pub fn new(flush: Flush, position: (u64, u64)) -> Located {
        let chunks = flush.chunks.into_iter().map(Arc::new);
        let (number, epoch) = (flush.flush_number, flush.epoch);
        Located { number, epoch, chunks: chunks.collect(), position }
    }

    /// Bytes of records.
    pub fn bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.bytes.len() as u64).sum()
    }

    /// All records, each with the index of its chunk, ordered by their numbers. For each page and
    /// each transaction this is the order in which they were made.
    pub fn records(&self) -> Result<impl Iterator<Item = (usize, Record<'_>)>> {
        let mut records = Vec::new();
        for (index, chunk) in self.chunks.iter().enumerate() {
            for record in chunk.records() {
                records.push((index, record.map_err(|what| self.damage(&what))?));
            }
        }
        // Only numbers move, because a record is six times as large.
        let numbers = records.iter().zip(0_u32..);
        let mut order: Vec<(Gsn, u32)> =
            numbers.map(|((_, record), at)| (record.gsn, at)).collect();
        // Stable, and fast on the ascending runs of the workers.
        order.sort_by_key(|(gsn, _)| *gsn);
        Ok(order.into_iter().map(move |(_, at)| records[at as usize]))
    }

    /// The error of a flush whose checksums are right, but whose content makes no sense.
    pub fn damage(&self, what: &str) -> Error {
        let (segment, offset) = self.position;
        let what = format!("flush {}, which ends here, makes no sense: {what}", self.number);
        Error::LogCorruption { segment, offset, what }
    }
}

/// A log that is read from where recovery begins.
pub(crate) struct Source<'f> {
    reader: LogReader,
    path: &'f Path,
}

impl<'f> Source<'f> {
    /// Opens the log of a store. Changes nothing.
    pub fn open(
        file: &'f StoreFile,
        log: &Arc<dyn LogStorage>,
        block: &Superblock,
    ) -> Result<Source<'f>> {
        let reader = LogReader::open(log.clone(), block.store_id, block.segment);
        let reader = reader.map_err(|error| named(error, &file.path))?;
        let (before, undo) = (reader.epoch_before(), block.undo_epoch);
        if before >= undo {
            let segment = block.segment;
            let why = format!(
                "recovery needs records from epoch {undo} on, but segment {segment}, where it \
                 begins, comes after epoch {before}"
            );
            return Err(Error::WrongLog { path: file.path.clone(), why });
        }
        Ok(Source { reader, path: &file.path })
    }

    /// No record before the first flush has a later epoch.
    pub fn epoch_before(&self) -> u64 {
        self.reader.epoch_before()
    }

    /// The next whole flush, or `None` at the end.
    pub fn next(&mut self) -> Result<Option<Located>> {
        let flush = self.reader.next_flush().map_err(|error| named(error, self.path))?;
        Ok(flush.map(|flush| Located::new(flush, self.reader.position())))
    }

    /// Where the log ends.
    pub fn end(self) -> Result<LogEnd> {
        self.reader.end().map_err(|error| named(error, self.path))
    }

    /// Passes over the flushes without records, and gives the first one with some, or an error of
    /// `passed`. None: there is none. The log of a store that was closed has none.
    pub fn first(&mut self, mut passed: impl FnMut(u64) -> Result<()>) -> Result<Option<Located>> {
        while let Some(flush) = self.next()? {
            if flush.bytes() > 0 {
                return Ok(Some(flush));
            }
            passed(flush.epoch)?;
        }
        Ok(None)
    }

    /// As [`Source::end`], of a log without records. Flushes up to `durable_flush` are known to be
    /// durable; also gives the segments that must be synced before the log goes on.
    pub(super) fn end_without_records(self, durable_flush: u64) -> Result<(LogEnd, Vec<u64>)> {
        self.reader.settle_later(durable_flush).map_err(|error| named(error, self.path))
    }

    /// As [`Source::end`]; the end of the log is durable then.
    fn durable_end(self, durable_flush: u64) -> Result<LogEnd> {
        self.reader.settle(durable_flush).map_err(|error| named(error, self.path))
    }

    /// Reads everything after the flush `first`, for `receiver` of `flushes`, which gets that one
    /// too. Gives the end, or nothing when the receiver wants no more. Flushes up to
    /// `durable_flush` are known to be durable.
    pub(super) fn feed(
        mut self,
        first: Located,
        flushes: SyncSender<Located>,
        durable_flush: u64,
        shared: &RedoState,
    ) -> Option<LogEnd> {
        let fed = (|| {
            let mut last = first;
            while let Some(flush) = self.next()? {
                if flushes.send(std::mem::replace(&mut last, flush)).is_err() {
                    return Ok(None);
                }
            }
            let end = self.durable_end(durable_flush)?;
            Ok(flushes.send(last).is_ok().then_some(end))
        })();
        // `flushes` is dropped after a failure is known, so that its end is not taken for that of
        // the log.
        fed.unwrap_or_else(|error| {
            shared.fail(error);
            None
        })
    }
}

/// The log does not know the name of its store.
fn named(error: Error, path: &Path) -> Error {
    match error {
        Error::WrongLog { why, .. } => Error::WrongLog { path: path.to_path_buf(), why },
        other => other,
    }
}

/// The error of a log that ends before the checkpoint does: a checkpoint waits for its epoch, and
/// writes no page that the log has whole by then.
pub(super) fn wrong_end(file: &StoreFile, block: &Superblock, end: &LogEnd) -> Option<Error> {
    let begun = block.last_class_epoch();
    let ends = if end.epoch + 1 < begun {
        format!("began with epoch {begun}, and the log ends with epoch {}", end.epoch)
    } else if end.flush < block.durable_flush {
        let durable = block.durable_flush;
        format!("ended when flush {durable} was durable, and the log ends with flush {}", end.flush)
    } else {
        return None;
    };
    let why = format!("the last checkpoint {ends}: the end of the log is missing");
    Some(Error::WrongLog { path: file.path.clone(), why })
}
