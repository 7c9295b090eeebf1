//! Parts of values and streams over them, as users have them.

use crate::{
    op::part::{Bytes, KeptValue, Length, get_part, get_part_in},
    session::{blocking::Session, resolve::now},
    transaction::Transaction,
    tree::Tree,
};
use std::{
    io::{self, BufRead, Read, Seek, SeekFrom},
    ops::RangeBounds,
};
#[cfg(doc)]
use wattle_buffer::Error;
use wattle_buffer::Result;

/// Bytes that a [`ValueReader`] reads at once.
const PIECE: u64 = 64 << 10;

impl Session {
    /// Some bytes of the value of a key: those in `range` that the value has. Of a large value only
    /// the pages that contain them are read.
    ///
    /// ```
    /// # use wattle::{Engine, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// # let tree = engine.tree("t")?;
    /// # let session = engine.session()?;
    /// session.put(&tree, b"film", &vec![7; 1 << 20])?;
    /// let part = session.get_range(&tree, b"film", 500_000..500_010)?;
    /// assert_eq!(part, Some(vec![7; 10]));
    /// assert_eq!(session.get_range(&tree, b"film", 1 << 20..)?, Some(vec![]));
    /// assert_eq!(session.value_len(&tree, b"film")?, Some(1 << 20));
    /// # Ok::<(), wattle::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::get`].
    pub fn get_range(
        &self,
        tree: &Tree,
        key: &[u8],
        range: impl RangeBounds<u64>,
    ) -> Result<Option<Vec<u8>>> {
        let (mut bytes, mut value) = (Bytes::of(&range), Vec::new());
        let found = now(get_part(self, tree, key, &mut bytes, &mut value))?;
        Ok(found.then_some(value))
    }

    /// The length of the value of a key, bytes. Reads none of the bytes of a large value.
    ///
    /// # Errors
    /// As [`Session::get`].
    pub fn value_len(&self, tree: &Tree, key: &[u8]) -> Result<Option<u64>> {
        let mut len = Length::default();
        let found = self.with_buffer(|buffer| now(get_part(self, tree, key, &mut len, buffer)))?;
        Ok(found.then_some(len.0))
    }

    /// The newest value of a key as a stream; `None` when there is no such key. The reader keeps a
    /// snapshot until it is dropped.
    ///
    /// ```
    /// # use std::io::{Read, Seek, SeekFrom};
    /// # use wattle::{Engine, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// # let tree = engine.tree("t")?;
    /// # let session = engine.session()?;
    /// session.put(&tree, b"film", &vec![7; 1 << 20])?;
    /// let mut film = session.value_reader(&tree, b"film")?.expect("it was just put");
    /// film.seek(SeekFrom::End(-10))?;
    /// let mut end = Vec::new();
    /// film.read_to_end(&mut end)?;
    /// assert_eq!(end, [7; 10]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::get`].
    pub fn value_reader<'s>(
        &'s self,
        tree: &'s Tree,
        key: &[u8],
    ) -> Result<Option<ValueReader<'s>>> {
        Ok(now(KeptValue::auto(self, tree, key))?.map(ValueReader::new))
    }
}

impl Transaction<'_> {
    /// Some bytes of the value of a key; see [`Session::get_range`].
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn get_range(
        &self,
        tree: &Tree,
        key: &[u8],
        range: impl RangeBounds<u64>,
    ) -> Result<Option<Vec<u8>>> {
        let (session, txn) = self.reading()?;
        let (mut bytes, mut value) = (Bytes::of(&range), Vec::new());
        let found = now(get_part_in(session, txn, tree, key, &mut bytes, &mut value))?;
        Ok(found.then_some(value))
    }

    /// The length of the value of a key, bytes; see [`Session::value_len`].
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn value_len(&self, tree: &Tree, key: &[u8]) -> Result<Option<u64>> {
        let (session, txn) = self.reading()?;
        let mut len = Length::default();
        let found = session
            .with_buffer(|buffer| now(get_part_in(session, txn, tree, key, &mut len, buffer)))?;
        Ok(found.then_some(len.0))
    }

    /// The value of a key as a stream; see [`Session::value_reader`].
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn value_reader<'t>(
        &'t self,
        tree: &'t Tree,
        key: &[u8],
    ) -> Result<Option<ValueReader<'t>>> {
        let (session, txn) = self.reading()?;
        Ok(now(KeptValue::in_txn(session, txn, tree, key))?.map(ValueReader::new))
    }
}

/// The value of one key in one snapshot, as a stream: [`Read`], [`BufRead`] and [`Seek`]. Changes
/// that are made meanwhile do not show. It holds at most 64 KiB of a large value. It is neither
/// `Send` nor `Sync`.
///
/// A failed read is an [`io::Error`] with the [`Error`] of the engine inside:
/// [`Error::SnapshotTooOld`] when the engine has cancelled the snapshot, because other transactions
/// have changed more than [`crate::Options::version_bytes`] meanwhile; failed I/O; corruption.
///
/// See [`Session::value_reader`] for an example.
pub struct ValueReader<'s> {
    value: KeptValue<'s, Session>,
    /// The next byte to read.
    at: u64,
    /// Bytes of the value from `piece_at` on.
    piece: Vec<u8>,
    piece_at: u64,
}

impl<'s> ValueReader<'s> {
    fn new(value: KeptValue<'s, Session>) -> ValueReader<'s> {
        ValueReader { value, at: 0, piece: Vec::new(), piece_at: 0 }
    }

    /// The length of the value, bytes.
    pub fn value_len(&self) -> u64 {
        self.value.len()
    }

    /// The bytes of the piece at and after the position.
    fn rest(&self) -> &[u8] {
        let passed = self.at.checked_sub(self.piece_at).and_then(|at| usize::try_from(at).ok());
        passed.and_then(|passed| self.piece.get(passed..)).unwrap_or(&[])
    }
}

impl BufRead for ValueReader<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.rest().is_empty() && self.at < self.value.len() {
            self.piece.clear();
            self.piece_at = self.at;
            let bytes = self.at..self.value.len().min(self.at + PIECE);
            if let Err(error) = now(self.value.read(bytes, &mut self.piece)) {
                self.piece.clear();
                return Err(io::Error::other(error));
            }
        }
        Ok(self.rest())
    }

    fn consume(&mut self, amount: usize) {
        self.at += amount.min(self.rest().len()) as u64;
    }
}

impl Read for ValueReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut bytes = self.fill_buf()?;
        let count = bytes.read(into)?;
        self.consume(count);
        Ok(count)
    }
}

impl Seek for ValueReader<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.value.len().checked_add_signed(by),
        };
        self.at = at.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "a position before the value")
        })?;
        Ok(self.at)
    }
}
