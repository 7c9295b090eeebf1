//! A window on the bytes of a log: segments are read in large pieces.

use std::sync::Arc;
use wattle_buffer::{
    Error, Result,
    io::{LogBuffer, LogStorage},
};

/// Bytes read at once.
pub(crate) const READ_BYTES: usize = 1 << 20;

/// See the module documentation.
pub(crate) struct LogWindow {
    storage: Arc<dyn LogStorage>,
    buffer: LogBuffer,
    /// Content of the buffer: a segment, an offset, a length.
    segment: u64,
    at: u64,
    len: usize,
}

impl LogWindow {
    pub(crate) fn new(storage: Arc<dyn LogStorage>) -> LogWindow {
        LogWindow { storage, buffer: LogBuffer::new(READ_BYTES), segment: 0, at: 0, len: 0 }
    }

    pub(crate) fn storage(&self) -> &Arc<dyn LogStorage> {
        &self.storage
    }

    /// `len` bytes of a segment, at most [`READ_BYTES`], and inside of it. Reads ahead up to `end`.
    pub(crate) fn bytes(&mut self, segment: u64, at: u64, len: usize, end: u64) -> Result<&[u8]> {
        let inside = self.segment == segment
            && at >= self.at
            && at + len as u64 <= self.at + self.len as u64;
        if !inside {
            let read = (end - at).min(READ_BYTES as u64).max(len as u64) as usize;
            self.len = 0;
            let action = || format!("read log segment {segment} at byte {at}");
            self.storage
                .read(segment, at, &mut self.buffer[..read])
                .map_err(|error| Error::io(action(), error))?;
            (self.segment, self.at, self.len) = (segment, at, read);
        }
        let start = (at - self.at) as usize;
        Ok(&self.buffer[start..start + len])
    }
}
