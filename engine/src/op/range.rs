//! A range that a blocking or asynchronous session reads entry by entry, in a transaction or
//! auto-committed.

use super::{
    read::begin_reading,
    scan::{self, Entry},
};
use crate::{
    session::resolve::Resolve,
    tree::Tree,
    txn::{Begun, Txn},
};
use std::ops::Bound;
use wattle_btree::{Cursor, Direction, Taken};
use wattle_buffer::Result;

/// Bounds of a range of keys: the low one, the high one.
pub(crate) type KeyBounds<'k> = (Bound<&'k [u8]>, Bound<&'k [u8]>);

/// The transaction that a range reads in.
enum Source<'s, R: Resolve> {
    /// One of the user.
    Txn(&'s Txn),
    /// One of its own. When its snapshot is cancelled, the range goes on in a new one.
    Own(Begun<'s, R>),
}

/// See the module documentation.
///
/// A serializable transaction must know which keys were read. From the first load on the whole
/// range counts as read, because a range that is leaked does not tell how far it came. Dropping the
/// range narrows that.
pub(crate) struct RangeReader<'s, R: Resolve> {
    session: &'s R,
    source: Source<'s, R>,
    tree: &'s Tree,
    /// A cursor of the session, which gets it back. Its copy of a page costs more to allocate than
    /// to fill.
    cursor: Option<Box<Cursor>>,
    /// A large value.
    whole: Vec<u8>,
    is_begun: bool,
    is_ended: bool,
    /// Its index among the reads of a serializable transaction.
    noted: Option<usize>,
}

impl<'s, R: Resolve> RangeReader<'s, R> {
    /// A range that is read in a transaction.
    ///
    /// # Errors
    /// [`wattle_buffer::Error::ForeignTree`], [`wattle_buffer::Error::MustAbort`].
    pub fn in_txn(
        session: &'s R,
        txn: &'s Txn,
        tree: &'s Tree,
        bounds: KeyBounds<'_>,
        direction: Direction,
    ) -> Result<Self> {
        session.core().check_tree(tree)?;
        txn.check()?;
        Ok(Self::new(session, Source::Txn(txn), tree, bounds, direction))
    }

    /// A range that is read auto-committed.
    ///
    /// # Errors
    /// As [`begin_reading`].
    pub async fn auto(
        session: &'s R,
        tree: &'s Tree,
        bounds: KeyBounds<'_>,
        direction: Direction,
    ) -> Result<Self> {
        let begun = begin_reading(session, tree).await?;
        Ok(Self::new(session, Source::Own(begun), tree, bounds, direction))
    }

    fn new(
        session: &'s R,
        source: Source<'s, R>,
        tree: &'s Tree,
        (low, high): KeyBounds<'_>,
        direction: Direction,
    ) -> Self {
        let cursor = match session.take_cursor() {
            Some(mut cursor) => {
                cursor.restart(low, high, direction);
                cursor
            }
            None => {
                let (low, high) = (low.map(<[u8]>::to_vec), high.map(<[u8]>::to_vec));
                Box::new(Cursor::new(low, high, direction))
            }
        };
        let (cursor, whole) = (Some(cursor), Vec::new());
        let (is_begun, is_ended, noted) = (false, false, None);
        Self { session, source, tree, cursor, whole, is_begun, is_ended, noted }
    }

    #[inline(always)]
    fn cursor(&mut self) -> &mut Cursor {
        self.cursor.as_mut().expect("given back when the range is dropped")
    }

    /// Restarts the range in the other direction, at its other end.
    pub fn reverse(&mut self) {
        self.note_end();
        self.cursor().reverse();
    }

    /// Says how many records will probably be read.
    pub fn expect(&mut self, records: usize) {
        self.cursor().expect(records);
    }

    /// The next entry, from the part of a leaf that is loaded; `None` when [`RangeReader::load`]
    /// must follow.
    #[inline]
    pub fn next_loaded(&mut self) -> Result<Option<Taken>> {
        scan::next_loaded(self.cursor())
    }

    /// Guards the entry that [`RangeReader::next_loaded`] gave, until [`RangeReader::load`] has it.
    #[cfg(feature = "async")]
    pub fn unread(&mut self) -> scan::Unread<'_> {
        scan::Unread::begin(self.cursor())
    }

    /// Goes on after [`RangeReader::next_loaded`], which gave `taken`. `None` at the end of the
    /// range.
    ///
    /// # Errors
    /// Failed I/O, corruption; [`wattle_buffer::Error::SnapshotTooOld`].
    pub async fn load(&mut self, taken: Option<Taken>) -> Result<Option<Entry>> {
        self.load_with(taken, true).await
    }

    /// As [`RangeReader::load`], after nothing was taken, without reading a large value. The key is
    /// that of [`Entry::Inline`].
    ///
    /// # Errors
    /// As there.
    pub async fn load_key(&mut self) -> Result<Option<Entry>> {
        self.load_with(None, false).await
    }

    async fn load_with(&mut self, mut taken: Option<Taken>, values: bool) -> Result<Option<Entry>> {
        if !self.is_begun {
            self.note_beginning();
        }
        let mut since = None;
        let RangeReader { session, source, tree, cursor, whole, .. } = self;
        let cursor = cursor.as_mut().expect("given back when the range is dropped");
        loop {
            let txn = match source {
                Source::Txn(txn) => *txn,
                Source::Own(begun) => begun.get(),
            };
            match scan::next_entry(*session, txn, tree, cursor, whole, taken.take(), values).await {
                Ok(entry) => {
                    self.is_ended = entry.is_none();
                    return Ok(entry);
                }
                Err(error) => {
                    let Source::Own(begun) = source else { return Err(error) };
                    // Boxed: it is rare, and would take room in the future of every scan.
                    Box::pin(scan::next_piece(begun, tree, error, &mut since)).await?;
                }
            }
        }
    }

    /// Key and value of the entry that was read last.
    #[inline]
    pub fn pair(&self, entry: Entry) -> (&[u8], &[u8]) {
        let cursor = self.cursor.as_ref().expect("given back when the range is dropped");
        match entry {
            Entry::Inline => (cursor.key(), cursor.value()),
            Entry::Whole => (cursor.key(), &self.whole),
        }
    }

    #[cold]
    fn note_beginning(&mut self) {
        self.is_begun = true;
        let Source::Txn(Txn { reads: Some(reads), .. }) = self.source else { return };
        let (low, high) = self.cursor().bounds();
        let (low, high) = (low.map(<[u8]>::to_vec), high.map(<[u8]>::to_vec));
        self.noted = Some(reads.borrow_mut().range(&self.tree.open, low, high));
    }

    fn note_end(&mut self) {
        self.is_begun = false;
        let Some(at) = self.noted.take() else { return };
        if let (Source::Txn(Txn { reads: Some(reads), .. }), false) = (&self.source, self.is_ended)
        {
            let cursor = self.cursor.as_ref().expect("given back when the range is dropped");
            reads.borrow_mut().narrow(at, cursor.direction(), cursor.key());
        }
    }
}

impl<R: Resolve> Drop for RangeReader<'_, R> {
    fn drop(&mut self) {
        self.note_end();
        if let Some(cursor) = self.cursor.take() {
            self.session.give_cursor(cursor);
        }
    }
}
