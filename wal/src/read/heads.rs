//! The heads of segments: reading one, and what those of a log say together.

use crate::{
    block::{FORMAT_VERSION, OLDEST_VERSION, SECTOR, SEGMENT_HEADER, SegmentHeader, is_zero},
    error::{damaged, unless_ours, wrong_log},
    gsn::MAX_EPOCH,
};
use std::path::PathBuf;
use wattle_buffer::{
    Error, Result,
    io::{LogBuffer, LogStorage},
};

/// Largest number of a block or a flush. A head with a larger one is forged, and must not make
/// numbers overflow.
pub const MAX_NUMBER: u64 = 1 << 62;

/// The segments of a log from where reading begins.
pub(crate) struct SegmentHeads {
    /// Segments with a head, ascending, without gaps.
    pub heads: Vec<SegmentHeader>,
    /// For each of them, the least sequence that it or a later one goes on after.
    limits: Vec<u64>,
    /// Segments without a head, after the others: number and bytes.
    pub prepared: Vec<(u64, u64)>,
}

impl SegmentHeads {
    /// Reads the heads of all segments from `from` on.
    pub(crate) fn read(storage: &dyn LogStorage, store_id: u64, from: u64) -> Result<SegmentHeads> {
        let found = storage.segments().map_err(|error| Error::io("list the log", error))?;
        let found: Vec<_> = found.into_iter().filter(|found| found.0 >= from).collect();
        if found.first().is_none_or(|first| first.0 != from) {
            return Err(wrong_log(format!("segment {from} of the log is missing")));
        }
        let mut heads: Vec<SegmentHeader> = Vec::new();
        let mut prepared = Vec::new();
        for (&(number, bytes), expected) in found.iter().zip(from..) {
            if number != expected {
                let what = format!(
                    "the segment is missing, but segment {number} is there, {}",
                    unless_ours(number)
                );
                return Err(damaged(expected, 0, what));
            }
            let Some(head) = read_head(storage, store_id, number, bytes)? else {
                prepared.push((number, bytes));
                continue;
            };
            if let Some(&(empty, _)) = prepared.first() {
                let what = "the head of the segment is empty, but later ones are in use";
                return Err(damaged(empty, 0, what));
            }
            if let Some(before) = heads.last()
                && head.sequence < before.sequence
                && head.continues
            {
                let what = "the head continues a flush that the previous segment does not have";
                return Err(damaged(number, 0, what));
            }
            heads.push(head);
        }
        let mut limits: Vec<u64> = heads.iter().map(|head| head.sequence - 1).collect();
        for index in (1..limits.len()).rev() {
            limits[index - 1] = limits[index - 1].min(limits[index]);
        }
        Ok(SegmentHeads { heads, limits, prepared })
    }

    /// The sequence up to which blocks of segment `index` count: the least that a later head goes
    /// on after. `None` for the last segment.
    pub(crate) fn limit(&self, index: usize) -> Option<u64> {
        self.limits.get(index + 1).copied()
    }
}

/// The head of a segment, or `None` if the segment was only prepared.
pub(crate) fn read_head(
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
    let head = SegmentHeader::parse(&page).map_err(|what| damaged(segment, 0, what))?;
    if !(OLDEST_VERSION..=FORMAT_VERSION).contains(&head.version) {
        let (path, found) = (PathBuf::from(format!("log segment {segment}")), head.version);
        return Err(Error::WrongVersion { path, found, expected: FORMAT_VERSION });
    }
    if head.store_id != store_id {
        let found = head.store_id;
        return Err(wrong_log(format!("it belongs to store {found:#x}, not to {store_id:#x}")));
    }
    if head.segment != segment || head.bytes != bytes {
        let what = format!(
            "the head is of segment {} with {} bytes, the segment has {bytes} bytes",
            head.segment, head.bytes
        );
        return Err(damaged(segment, 0, what));
    }
    let numbers = 1..=MAX_NUMBER;
    if !numbers.contains(&head.sequence)
        || !numbers.contains(&head.flush)
        || head.epoch_before > MAX_EPOCH
    {
        let what = format!(
            "the head goes on with block {} of flush {}, after epoch {}",
            head.sequence, head.flush, head.epoch_before
        );
        return Err(damaged(segment, 0, what));
    }
    if !is_zero(&page[SECTOR..]) {
        return Err(damaged(segment, SECTOR as u64, "the rest of the head is not empty"));
    }
    Ok(Some(head))
}
