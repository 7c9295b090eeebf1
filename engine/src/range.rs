//! Ranges as users have them.

use crate::{
    op::{
        range::{KeyBounds, RangeReader},
        scan::Entry,
    },
    session::{blocking::Session, resolve::now},
    tree::Tree,
    txn::Txn,
};
use std::ops::Bound;
#[cfg(doc)]
use wattle_btree::prefix_range;
use wattle_btree::{Direction, Taken};
#[cfg(doc)]
use wattle_buffer::Error;
use wattle_buffer::Result;

/// Bounds of the keys that begin with a prefix, from those of [`prefix_range`].
pub(crate) fn borrowed((low, high): &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> KeyBounds<'_> {
    (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice))
}

/// Records of a range, in key order. Read it with [`Range::next_entry`], which lends key and value,
/// or as an iterator of owned pairs. It is neither `Send` nor `Sync`: it stays on the thread of its
/// session or transaction.
///
/// ```
/// # use wattle::{Engine, IoKind, Options};
/// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
/// # let tree = engine.tree("t")?;
/// # let session = engine.session()?;
/// for key in [b"a", b"b", b"c"] {
///     session.put(&tree, key, b"")?;
/// }
/// let mut range = session.range(&tree, &b"b"[..]..)?;
/// assert_eq!(range.next_entry()?, Some((&b"b"[..], &b""[..])));
/// let newest = session.scan(&tree)?.rev().next().expect("three records")?;
/// assert_eq!(newest.0, b"c");
/// # Ok::<(), wattle::Error>(())
/// ```
pub struct Range<'s> {
    reader: RangeReader<'s, Session>,
}

impl<'s> Range<'s> {
    pub(crate) fn auto(
        session: &'s Session,
        tree: &'s Tree,
        bounds: KeyBounds<'_>,
    ) -> Result<Range<'s>> {
        let reader = now(RangeReader::auto(session, tree, bounds, Direction::Forward))?;
        Ok(Range { reader })
    }

    pub(crate) fn in_txn(
        session: &'s Session,
        txn: &'s Txn,
        tree: &'s Tree,
        bounds: KeyBounds<'_>,
    ) -> Result<Range<'s>> {
        let reader = RangeReader::in_txn(session, txn, tree, bounds, Direction::Forward)?;
        Ok(Range { reader })
    }

    /// The same range in the other direction, from its other end.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// # let tree = engine.tree("tree")?;
    /// # let session = engine.session()?;
    /// session.put(&tree, b"a", b"value")?;
    /// session.put(&tree, b"b", b"value")?;
    /// let last = session.scan(&tree)?.rev().next().unwrap()?;
    /// assert_eq!(last.0, b"b");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rev(mut self) -> Self {
        self.reader.reverse();
        self
    }

    /// Says that about so many records will be read. Then the range reads the pages that it needs
    /// together, as far as [`crate::Options::read_ahead`] allows, instead of one after the other,
    /// and none beyond them. How many these are it knows from the last page of the tree that the
    /// session has scanned; the first time it waits for one page alone. It may be read less far, or
    /// farther. Give it after [`Range::rev`].
    ///
    /// ```
    /// # use wattle::{Engine, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// # let tree = engine.tree("t")?;
    /// # let session = engine.session()?;
    /// # session.put(&tree, b"a", b"")?;
    /// let page = session.range(&tree, &b"a"[..]..)?.expect_records(100).take(100);
    /// assert_eq!(page.count(), 1);
    /// # Ok::<(), wattle::Error>(())
    /// ```
    pub fn expect_records(mut self, records: usize) -> Self {
        self.reader.expect(records);
        self
    }

    /// The next record: its key and value, valid until the next call.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// # let tree = engine.tree("tree")?;
    /// # let session = engine.session()?;
    /// session.put(&tree, b"a", b"value")?;
    /// let mut range = session.scan(&tree)?;
    /// while let Some((key, value)) = range.next_entry()? {
    ///     assert_eq!((key, value), (&b"a"[..], &b"value"[..]));   // borrowed, not copied
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Failed I/O, corruption; [`Error::SnapshotTooOld`] in a transaction whose snapshot was
    /// cancelled, or while another transaction that is too large for versions changes the tree.
    pub fn next_entry(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let entry = match self.reader.next_loaded()? {
            Some(Taken::Inline) => Some(Entry::Inline),
            taken => self.load(taken)?,
        };
        Ok(entry.map(|entry| self.reader.pair(entry)))
    }

    /// The next key, without its value: a large value is not read. Otherwise as
    /// [`Range::next_entry`].
    ///
    /// # Errors
    /// As [`Range::next_entry`].
    pub fn next_key(&mut self) -> Result<Option<&[u8]>> {
        if self.reader.next_loaded()?.is_none() && now(self.reader.load_key())?.is_none() {
            return Ok(None);
        }
        Ok(Some(self.reader.pair(Entry::Inline).0))
    }

    /// The keys of the range, without their values. Reads no chunks of large values.
    ///
    /// ```
    /// # use wattle::{Engine, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// # let tree = engine.tree("t")?;
    /// # let session = engine.session()?;
    /// session.put_many(&tree, &[("a", "1"), ("b", "2")])?;
    /// let keys: Vec<_> = session.scan(&tree)?.rev().keys().collect::<Result<_, _>>()?;
    /// assert_eq!(keys, [b"b", b"a"]);
    /// # Ok::<(), wattle::Error>(())
    /// ```
    pub fn keys(self) -> Keys<'s> {
        Keys { range: self }
    }

    /// Not inlined: it runs once for each leaf and each large value.
    #[inline(never)]
    fn load(&mut self, taken: Option<Taken>) -> Result<Option<Entry>> {
        now(self.reader.load(taken))
    }
}

/// The keys of a [`Range`], in its order; from [`Range::keys`].
pub struct Keys<'s> {
    range: Range<'s>,
}

impl Keys<'_> {
    /// The next key, valid until the next call.
    ///
    /// # Errors
    /// As [`Range::next_entry`].
    pub fn next_key(&mut self) -> Result<Option<&[u8]>> {
        self.range.next_key()
    }
}

impl Iterator for Keys<'_> {
    type Item = Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_key().map(|key| key.map(<[u8]>::to_vec)).transpose()
    }
}

impl Iterator for Range<'_> {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_entry()
            .map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())))
            .transpose()
    }
}
