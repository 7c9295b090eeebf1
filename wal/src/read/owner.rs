//! The store that a log belongs to, for a store that lost its own number. Called while a store is
//! opened.

use crate::{
    block::{SEGMENT_HEADER, SegmentHeader, is_zero},
    error::{damaged, unless_ours},
};
use wattle_buffer::{
    Error, Result,
    io::{LogBuffer, LogStorage},
};

/// The number of the store in the head of the first of these segments (number and bytes) that has a
/// head, and the number of that segment; `None` if all of them were only prepared.
///
/// # Errors
/// A head that is damaged; failed I/O.
pub fn store_of(storage: &dyn LogStorage, segments: &[(u64, u64)]) -> Result<Option<(u64, u64)>> {
    let mut page = LogBuffer::new(SEGMENT_HEADER);
    for &(segment, bytes) in segments {
        if bytes < SEGMENT_HEADER as u64 {
            let what = format!("the segment has {bytes} bytes, {}", unless_ours(segment));
            return Err(damaged(segment, bytes, what));
        }
        let action = || format!("read the head of log segment {segment}");
        let read = storage.read(segment, 0, &mut page);
        read.map_err(|error| Error::io(action(), error))?;
        if !is_zero(&page) {
            let header = SegmentHeader::parse(&page).map_err(|what| damaged(segment, 0, what))?;
            return Ok(Some((header.store_id, segment)));
        }
    }
    Ok(None)
}
