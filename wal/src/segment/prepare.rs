//! The segments when a log is started: reads the heads of those that are there, removes those that
//! were prepared and never used, and makes the first new one, unless that is left for later.

use super::{files, reserve::MadeSegment, segments::Segments, table::SegmentTable};
use crate::{
    error::wrong_log, options::MIN_SEGMENT_BYTES, position::LogEnd, read::heads, room::is_of_room,
};
use std::io;
use wattle_buffer::{Error, PAGE_SIZE, Result, io::LogStorage};

/// A segment is at most this part of the room that the device has for the log.
const PART_OF_ROOM: u64 = 16;

/// Prepares a log that goes on in the segment `first`, with segments of `bytes` or less where the
/// device has little room. `late`: does not make that segment.
pub(crate) fn prepare(
    storage: &dyn LogStorage,
    store_id: u64,
    first: u64,
    bytes: u64,
    late: bool,
) -> Result<Segments> {
    let mut table = SegmentTable::default();
    let found = storage.segments().map_err(|error| Error::io("list the log", error))?;
    let mut unused = Vec::new();
    for (number, len) in found {
        match heads::read_head(storage, store_id, number, len)? {
            Some(head) if number < first => table.found(number, len, head.epoch_before),
            Some(_) => {
                let why = format!("segment {number} is in use, but the log ends before it");
                return Err(wrong_log(why));
            }
            None => unused.push(number),
        }
    }
    // The last one first: a crash in between must not leave a gap in the numbers.
    unused.into_iter().rev().try_for_each(|number| files::remove(storage, number))?;
    let segments = Segments::new(table, first, fitting_bytes(storage, bytes)?);
    if !late {
        let made = make_first(storage, &segments, first).map_err(|error| {
            let bytes = segments.segment_bytes();
            Error::io(format_args!("make log segment {first} of {bytes} bytes"), error)
        })?;
        segments.state.lock().reserve.made(made);
    }
    Ok(segments)
}

/// Bytes of segments: `wanted`, or fewer if those are more than a part of the room for the log.
fn fitting_bytes(storage: &dyn LogStorage, wanted: u64) -> Result<u64> {
    let Some(room) = storage.room() else { return Ok(wanted) };
    let segments = storage.segments().map_err(|error| Error::io("list the log", error))?;
    let used: u64 = segments.iter().map(|(_, bytes)| bytes).sum();
    // A power of two, so that files fit again when the store is opened the next time.
    let part = (room.saturating_add(used) / PART_OF_ROOM).checked_ilog2().map_or(0, |n| 1 << n);
    Ok(wanted.min(part).max(MIN_SEGMENT_BYTES.min(wanted)))
}

/// Makes the first segment. If it does not fit on the device, half of it, and half again; then no
/// later segment is larger. Leaves no segment if that fails.
pub(crate) fn make_first(
    storage: &dyn LogStorage,
    segments: &Segments,
    first: u64,
) -> io::Result<MadeSegment> {
    let wanted = segments.segment_bytes();
    let mut bytes = wanted;
    while let Err(error) = storage.create(first, bytes) {
        files::removed(first, storage.remove(first)).map_err(io::Error::other)?;
        if !is_of_room(&error) || bytes <= MIN_SEGMENT_BYTES {
            return Err(error);
        }
        bytes = ((bytes / 2) & !(PAGE_SIZE as u64 - 1)).max(MIN_SEGMENT_BYTES);
        segments.shrink(bytes);
    }
    if segments.segment_bytes() < wanted {
        tracing::info!(
            bytes,
            wanted,
            "segments of the log are smaller, because there is little room"
        );
    }
    Ok(MadeSegment { number: first, bytes })
}

/// The last segment from which on a log that ends with `end` has all records of `epoch` and later
/// ones; not before the segment `from`, which has.
///
/// # Errors
/// Failed I/O, damage.
pub fn segment_for(storage: &dyn LogStorage, end: &LogEnd, from: u64, epoch: u64) -> Result<u64> {
    let found = storage.segments().map_err(|error| Error::io("list the log", error))?;
    // Reading cannot begin at a head that continues a torn flush, or whose blocks a later head
    // takes back.
    let mut next = end.sequence + 1;
    for (number, len) in found.into_iter().rev().filter(|(number, _)| *number > from) {
        let Some(head) = heads::read_head(storage, end.store_id, number, len)? else { continue };
        let counts = head.sequence < next || (head.sequence == next && !head.continues);
        if counts && head.epoch_before < epoch {
            return Ok(number);
        }
        next = next.min(head.sequence);
    }
    Ok(from)
}
