//! Reads the next piece of a log in a thread of its own, while the previous one is looked at.
//!
//! The memory of a piece goes to the thread with the request and comes back with the answer.

use std::{
    io,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{Builder, JoinHandle},
};
use wattle_buffer::io::{LogBuffer, LogStorage};

/// A part of a segment, and memory for it.
pub(crate) struct Piece {
    pub segment: u64,
    pub at: u64,
    pub len: usize,
    pub buffer: LogBuffer,
}

impl Piece {
    /// Whether it has `len` bytes of a segment from `at` on.
    pub(crate) fn has(&self, segment: u64, at: u64, len: usize) -> bool {
        let end = self.at + self.len as u64;
        self.segment == segment && at >= self.at && at + len as u64 <= end
    }
}

/// See the module documentation.
pub(crate) struct ReadAhead {
    /// None: the thread is told to end.
    requests: Option<Sender<Piece>>,
    answers: Receiver<(Piece, io::Result<()>)>,
    thread: Option<JoinHandle<()>>,
}

impl ReadAhead {
    /// Starts the thread.
    pub(crate) fn start(storage: Arc<dyn LogStorage>) -> io::Result<ReadAhead> {
        let (requests, asked) = channel::<Piece>();
        let (answer, answers) = channel();
        let thread = Builder::new().name("log-read-ahead".into()).spawn(move || {
            for mut piece in asked {
                let (segment, at, len) = (piece.segment, piece.at, piece.len);
                let read = storage.read(segment, at, &mut piece.buffer[..len]);
                if answer.send((piece, read)).is_err() {
                    break;
                }
            }
        })?;
        Ok(ReadAhead { requests: Some(requests), answers, thread: Some(thread) })
    }

    /// Asks for a piece. One is asked for at a time.
    pub(crate) fn ask(&self, piece: Piece) {
        let requests = self.requests.as_ref().expect("the thread runs");
        // If it has ended by a panic, the answer is missing.
        let _gone = requests.send(piece);
    }

    /// Waits for the piece that was asked for. None: the thread has ended.
    pub(crate) fn answer(&self) -> Option<(Piece, io::Result<()>)> {
        self.answers.recv().ok()
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // A panic in a storage was reported where it happened.
            let _panic = thread.join();
        }
    }
}
