//! A window on the bytes of a log: segments are read in large pieces, the next one ahead.

use super::ahead::{Piece, ReadAhead};
use crate::block::MAX_BLOCK;
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
    piece: Piece,
    /// Started with the first segment of more than one piece.
    ahead: Option<ReadAhead>,
    /// A piece is read ahead.
    asked: bool,
    /// Memory for the next piece that is read ahead.
    spare: Option<LogBuffer>,
}

impl LogWindow {
    pub(crate) fn new(storage: Arc<dyn LogStorage>) -> LogWindow {
        let piece = Piece { segment: 0, at: 0, len: 0, buffer: LogBuffer::new(READ_BYTES) };
        LogWindow { storage, piece, ahead: None, asked: false, spare: None }
    }

    pub(crate) fn storage(&self) -> &Arc<dyn LogStorage> {
        &self.storage
    }

    /// `len` bytes of a segment, at most [`READ_BYTES`], and inside of it. Reads ahead up to `end`.
    pub(crate) fn bytes(&mut self, segment: u64, at: u64, len: usize, end: u64) -> Result<&[u8]> {
        if !self.piece.has(segment, at, len) {
            self.take_ahead(segment, at, len);
        }
        if !self.piece.has(segment, at, len) {
            let read = (end - at).min(READ_BYTES as u64).max(len as u64) as usize;
            self.piece.len = 0;
            let action = || format!("read log segment {segment} at byte {at}");
            self.storage
                .read(segment, at, &mut self.piece.buffer[..read])
                .map_err(|error| Error::io(action(), error))?;
            (self.piece.segment, self.piece.at, self.piece.len) = (segment, at, read);
        }
        self.ask_ahead(end);
        let start = (at - self.piece.at) as usize;
        Ok(&self.piece.buffer[start..start + len])
    }

    /// Waits for the piece that is read ahead, and takes it if it has these bytes. One that could
    /// not be read is read again when it is needed, and fails then.
    fn take_ahead(&mut self, segment: u64, at: u64, len: usize) {
        if !std::mem::take(&mut self.asked) {
            return;
        }
        let answer = self.ahead.as_ref().and_then(ReadAhead::answer);
        let Some((piece, read)) = answer else { return };
        let other = match read {
            Ok(()) if piece.has(segment, at, len) => std::mem::replace(&mut self.piece, piece),
            _ => piece,
        };
        self.spare = Some(other.buffer);
    }

    /// Reads the next piece of the segment ahead, if there is one. It begins so far before the end
    /// of this one that a block which does not fit here is whole there.
    fn ask_ahead(&mut self, end: u64) {
        let from = (self.piece.at + self.piece.len as u64).saturating_sub(MAX_BLOCK as u64);
        let is_last = self.piece.len < READ_BYTES || from + MAX_BLOCK as u64 >= end;
        if is_last || self.asked {
            return;
        }
        if self.ahead.is_none() {
            match ReadAhead::start(self.storage.clone()) {
                Ok(ahead) => self.ahead = Some(ahead),
                Err(error) => return tracing::debug!(%error, "the log is not read ahead"),
            }
        }
        let buffer = self.spare.take().unwrap_or_else(|| LogBuffer::new(READ_BYTES));
        let len = (end - from).min(READ_BYTES as u64) as usize;
        let piece = Piece { segment: self.piece.segment, at: from, len, buffer };
        self.asked = true;
        self.ahead.as_ref().expect("started").ask(piece);
    }
}
