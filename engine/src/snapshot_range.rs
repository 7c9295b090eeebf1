//! Ranges of a [`crate::Snapshot`]. They own what they need, and are read from both ends.

use crate::{
    lease::Lease,
    op::{
        range::KeyBounds,
        scan::{self, Entry},
    },
    session::resolve::now,
    tree::Tree,
};
use std::ops::Bound;
use wattle_btree::{Cursor, Direction, Taken};
#[cfg(doc)]
use wattle_buffer::Error;
use wattle_buffer::Result;

/// Records of a range of keys of a [`crate::Snapshot`]. It is `Send`, holds its snapshot and its
/// tree, and takes the room of a session while it lives. It is read from both ends, which meet: no
/// record comes twice. Read it with [`SnapshotRange::next_entry`], which lends key and value, or as
/// an iterator of owned pairs, which ends after an error.
///
/// ```
/// # use wattle::{Engine, IoKind, Options};
/// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
/// # let tree = engine.tree("t")?;
/// # engine.session()?.put_many(&tree, &[("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")])?;
/// let mut range = engine.snapshot()?.scan(&tree)?;
/// range.seek(b"b");
/// assert_eq!(range.next_entry()?, Some((&b"b"[..], &b"2"[..])));
/// let rest: Vec<_> = range.keys().rev().collect::<Result<_, _>>()?;
/// assert_eq!(rest, [b"d", b"c"]);
/// # Ok::<(), wattle::Error>(())
/// ```
pub struct SnapshotRange {
    lease: Lease,
    tree: Tree,
    low: Bound<Vec<u8>>,
    high: Bound<Vec<u8>>,
    front: End,
    /// From the first read at the back on.
    back: Option<End>,
    /// A large value.
    whole: Vec<u8>,
    expected: Option<usize>,
    is_done: bool,
}

/// One end of a range.
struct End {
    cursor: Box<Cursor>,
    /// Key of the record that it gave last, or that it was moved to.
    at: Option<Vec<u8>>,
    /// It was moved there, and has not given that record.
    is_moved: bool,
}

impl End {
    fn new(cursor: Cursor) -> End {
        End { cursor: Box::new(cursor), at: None, is_moved: false }
    }

    /// It has given the record at its cursor.
    fn note_given(&mut self) {
        let at = self.at.get_or_insert_default();
        at.clear();
        at.extend_from_slice(self.cursor.key());
        self.is_moved = false;
    }

    /// Whether `key`, which the other end has come to, lies past this end. `direction`: of the
    /// other end.
    fn is_passed_by(&self, key: &[u8], direction: Direction) -> bool {
        let Some(at) = &self.at else { return false };
        let order = key.cmp(at);
        let beyond = match direction {
            Direction::Forward => order.is_gt(),
            Direction::Backward => order.is_lt(),
        };
        beyond || (order.is_eq() && !self.is_moved)
    }
}

impl SnapshotRange {
    pub(crate) fn new(lease: Lease, tree: &Tree, (low, high): KeyBounds<'_>) -> SnapshotRange {
        let (low, high) = (low.map(<[u8]>::to_vec), high.map(<[u8]>::to_vec));
        let front = End::new(Cursor::new(low.clone(), high.clone(), Direction::Forward));
        SnapshotRange {
            lease,
            tree: tree.clone(),
            low,
            high,
            front,
            back: None,
            whole: Vec::new(),
            expected: None,
            is_done: false,
        }
    }

    /// Says that about so many records will be read; see [`crate::Range::expect_records`]. Give it
    /// before the first read.
    pub fn expect_records(mut self, records: usize) -> SnapshotRange {
        self.expected = Some(records);
        self.front.cursor.expect(records);
        self
    }

    /// The next record at the front; its key and value are valid until the next call.
    ///
    /// # Errors
    /// Failed I/O, corruption; [`Error::SnapshotTooOld`] when the snapshot was cancelled. The next
    /// call tries again.
    pub fn next_entry(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let entry = self.advance(Direction::Forward, true)?;
        Ok(entry.map(|entry| self.pair(&self.front, entry)))
    }

    /// The next record at the back.
    ///
    /// # Errors
    /// As [`SnapshotRange::next_entry`].
    pub fn next_back_entry(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let entry = self.advance(Direction::Backward, true)?;
        Ok(entry.zip(self.back.as_ref()).map(|(entry, back)| self.pair(back, entry)))
    }

    /// The next key at the front, without its value: a large value is not read.
    ///
    /// # Errors
    /// As [`SnapshotRange::next_entry`].
    pub fn next_key(&mut self) -> Result<Option<&[u8]>> {
        let entry = self.advance(Direction::Forward, false)?;
        Ok(entry.map(|_| self.front.cursor.key()))
    }

    /// The next key at the back.
    ///
    /// # Errors
    /// As [`SnapshotRange::next_entry`].
    pub fn next_back_key(&mut self) -> Result<Option<&[u8]>> {
        let entry = self.advance(Direction::Backward, false)?;
        Ok(entry.and(self.back.as_ref()).map(|back| back.cursor.key()))
    }

    /// The keys of the range, without their values.
    pub fn keys(self) -> SnapshotKeys {
        SnapshotKeys { range: self }
    }

    /// Moves the front to the first record at `key` or after it, within the range; also back, to
    /// records that it has given before. The back stays where it is.
    pub fn seek(&mut self, key: &[u8]) {
        let low = match &self.low {
            Bound::Included(low) if key < low.as_slice() => Bound::Included(low.as_slice()),
            Bound::Excluded(low) if key <= low.as_slice() => Bound::Excluded(low.as_slice()),
            _ => Bound::Included(key),
        };
        let high = self.high.as_ref().map(Vec::as_slice);
        self.front.cursor.restart(low, high, Direction::Forward);
        (self.front.at, self.front.is_moved) = (Some(key.to_vec()), true);
        self.is_done = false;
    }

    fn pair<'a>(&'a self, end: &'a End, entry: Entry) -> (&'a [u8], &'a [u8]) {
        let value = match entry {
            Entry::Inline => end.cursor.value(),
            Entry::Whole => &self.whole,
        };
        (end.cursor.key(), value)
    }

    /// Reads the next record at the end from which `direction` leads inwards.
    fn advance(&mut self, direction: Direction, values: bool) -> Result<Option<Entry>> {
        if self.is_done {
            return Ok(None);
        }
        let (this, other) = match direction {
            Direction::Forward => (&mut self.front, self.back.as_ref()),
            Direction::Backward => {
                let back = self.back.get_or_insert_with(|| {
                    let (low, high) = (self.low.clone(), self.high.clone());
                    let mut cursor = Cursor::new(low, high, direction);
                    self.expected.into_iter().for_each(|records| cursor.expect(records));
                    End::new(cursor)
                });
                (back, Some(&self.front))
            }
        };
        let (lease, tree, whole) = (&self.lease, &self.tree, &mut self.whole);
        let entry = match scan::next_loaded(&mut this.cursor)? {
            Some(Taken::Inline) => Some(Entry::Inline),
            taken => {
                let txn = lease.txn();
                let cursor = &mut this.cursor;
                now(scan::next_entry(lease, txn, tree, cursor, whole, taken, values))?
            }
        };
        let key = this.cursor.key();
        let met = other.is_some_and(|other| other.is_passed_by(key, direction));
        self.is_done = entry.is_none() || met;
        if met && entry.is_some() {
            // After a seek it may be within the range.
            this.cursor.take_again();
        }
        if self.is_done {
            return Ok(None);
        }
        this.note_given();
        Ok(entry)
    }

    /// An item of the iterator, which ends after an error.
    fn item<T>(&mut self, next: Result<Option<T>>) -> Option<Result<T>> {
        self.is_done |= next.is_err();
        next.transpose()
    }
}

fn owned((key, value): (&[u8], &[u8])) -> (Vec<u8>, Vec<u8>) {
    (key.to_vec(), value.to_vec())
}

impl Iterator for SnapshotRange {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_entry().map(|entry| entry.map(owned));
        self.item(next)
    }
}

impl DoubleEndedIterator for SnapshotRange {
    fn next_back(&mut self) -> Option<Self::Item> {
        let next = self.next_back_entry().map(|entry| entry.map(owned));
        self.item(next)
    }
}

impl std::iter::FusedIterator for SnapshotRange {}

/// The keys of a [`SnapshotRange`], from both ends; from [`SnapshotRange::keys`].
pub struct SnapshotKeys {
    range: SnapshotRange,
}

impl Iterator for SnapshotKeys {
    type Item = Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.range.next_key().map(|key| key.map(<[u8]>::to_vec));
        self.range.item(next)
    }
}

impl DoubleEndedIterator for SnapshotKeys {
    fn next_back(&mut self) -> Option<Self::Item> {
        let next = self.range.next_back_key().map(|key| key.map(<[u8]>::to_vec));
        self.range.item(next)
    }
}

impl std::iter::FusedIterator for SnapshotKeys {}
