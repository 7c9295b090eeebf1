//! Blocking transactions of several operations, and ranges.

use crate::{
    core::Core,
    held::Held,
    op::{
        many, read,
        scan::{self, Entry},
        visit::visit_in,
        whole,
        write::{self, Once},
    },
    session::{
        blocking::Session,
        resolve::{Resolve, now},
    },
    tree::Tree,
    txn::{
        Begun, BoxedTxn, ReadSet, Savepoint, Ticket, Txn, TxnOptions, give_to_engine, savepoint,
    },
};
use std::{
    cell::RefCell,
    ops::{Bound, ControlFlow, RangeBounds},
    time::Instant,
};
use wattle_btree::{Cursor, Direction, Mode, Taken, prefix_range};
use wattle_buffer::{Error, Result};

/// A transaction: it reads everything as of one moment and its own changes, and all its changes
/// become visible, and durable, at once or not at all.
///
/// Dropped without [`Transaction::commit`] it is rolled back. After [`Error::Conflict`] it can only
/// be aborted, and tried again from the start. A commit takes it away, so it cannot be used afterwards:
///
/// ```compile_fail
/// # use wattle::{Engine, IoKind, Options};
/// # let engine = Engine::open("m", Options::default().io(IoKind::Memory)).unwrap();
/// # let tree = engine.tree("t").unwrap();
/// let mut txn = engine.begin().unwrap();
/// txn.commit().unwrap();
/// txn.put(&tree, b"k", b"v").unwrap();
/// ```
///
/// It is `Send` and not `Sync`: it may move between threads, but not while a [`Range`] of it is alive. One
/// of [`Session::begin`] that is used on another thread than its session's takes a session of its own
/// there, up to its end: its commit then counts among those of other sessions ([`crate::Options::reads`]).
///
/// ```
/// # use wattle::{Engine, IoKind, Options};
/// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
/// # let tree = engine.tree("t")?;
/// let mut txn = engine.begin()?;
/// txn.put(&tree, b"k", b"v")?;
/// let commit = std::thread::spawn(move || txn.commit());
/// commit.join().expect("no panic")?;
/// assert!(engine.session()?.contains(&tree, b"k")?);
/// # Ok::<(), wattle::Error>(())
/// ```
///
/// A transaction that is leaked (`std::mem::forget`) stays open: what it changed stays closed to others,
/// versions and log are kept for it as for any other, and its changes are taken back when the store is
/// opened next.
pub struct Transaction<'s> {
    /// Before the session: it is ended first.
    txn: Option<BoxedTxn>,
    session: Held<'s>,
}

impl<'s> Transaction<'s> {
    #[inline]
    pub(crate) fn of(session: &'s Session, options: TxnOptions) -> Result<Transaction<'s>> {
        let txn = Begun::new(session, options)?.into_txn();
        Ok(Transaction { txn: Some(txn), session: Held::lent(session) })
    }

    pub(crate) fn owned(session: Session, options: TxnOptions) -> Result<Transaction<'static>> {
        let txn = Begun::new(&session, options)?.into_txn();
        Ok(Transaction { txn: Some(txn), session: Held::Own(Box::new(session)) })
    }

    #[inline(always)]
    fn txn(&self) -> &Txn {
        self.txn.as_ref().expect("not ended")
    }

    /// Session and transaction, to change something.
    #[inline(always)]
    fn parts(&mut self) -> Result<(&Session, &mut Txn)> {
        let txn = self.txn.as_mut().expect("not ended");
        Ok((self.session.get(txn)?, txn))
    }

    /// Session and transaction, to read.
    #[inline(always)]
    fn reading(&self) -> Result<(&Session, &Txn)> {
        let txn = self.txn();
        Ok((self.session.get(txn)?, txn))
    }

    /// Adds a record.
    ///
    /// # Errors
    /// [`Error::KeyExists`]; [`Error::Conflict`] when another transaction changed the record first;
    /// [`Error::ReadOnly`]; [`Error::MustAbort`] after a conflict; [`Error::KeyTooLong`] above 1024
    /// bytes, [`Error::ValueTooLong`] above 4 GiB - 1; [`Error::DiskFull`]; failed I/O. This
    /// operation changed nothing then.
    pub fn insert(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(tree, key, value, Mode::Insert).map(|_| ())
    }

    /// Sets the value of a key, whether or not it exists.
    ///
    /// # Errors
    /// As [`Transaction::insert`].
    pub fn put(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(tree, key, value, Mode::Put).map(|_| ())
    }

    /// Replaces the value of a key by one of any size; false when there is no such key.
    ///
    /// # Errors
    /// As [`Transaction::insert`].
    pub fn update(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<bool> {
        self.write(tree, key, value, Mode::Update)
    }

    fn write(&mut self, tree: &Tree, key: &[u8], value: &[u8], mode: Mode) -> Result<bool> {
        let (session, txn) = self.parts()?;
        match write::write_once(session, txn, tree, key, value, mode) {
            Ok(Once::Done(existed)) => Ok(existed),
            other => now(write::write_on(session, txn, tree, key, value, mode, other)),
        }
    }

    /// Changes the bytes of a value without changing their number; false when there is no such key.
    /// `change` may run again with the value as it was.
    ///
    /// # Errors
    /// As [`Transaction::insert`].
    #[inline]
    pub fn modify(
        &mut self,
        tree: &Tree,
        key: &[u8],
        mut change: impl FnMut(&mut [u8]),
    ) -> Result<bool> {
        self.modify_by(tree, key, &mut |_, value| change(value))
    }

    /// One piece of code for all changes, so that a transaction of several finds it in the cache.
    #[inline(never)]
    fn modify_by(
        &mut self,
        tree: &Tree,
        key: &[u8],
        change: &mut dyn FnMut(usize, &mut [u8]),
    ) -> Result<bool> {
        let (session, txn) = self.parts()?;
        session.with_buffer(|buffer| {
            match write::modify_once(session, txn, tree, key, buffer, change) {
                Ok(Once::Done(found)) => Ok(found),
                other => now(write::modify_on(session, txn, tree, key, buffer, change, other)),
            }
        })
    }

    /// Adds several records: all of them, or none. In any order, but those that lie next to each other
    /// cost less one after the other, because they are added to their leaf together.
    ///
    /// # Errors
    /// As [`Transaction::insert`], for any of them.
    ///
    /// ```
    /// # use wattle::{Engine, Error, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// # let tree = engine.tree("t")?;
    /// let mut txn = engine.begin()?;
    /// txn.insert_many(&tree, &[("a1", "x"), ("a2", "y")])?;
    /// let again = txn.insert_many(&tree, &[("a3", "z"), ("a1", "x")]);
    /// assert!(matches!(again, Err(Error::KeyExists)) && !txn.contains(&tree, b"a3")?);
    /// # Ok::<(), wattle::Error>(())
    /// ```
    pub fn insert_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        tree: &Tree,
        records: &[(K, V)],
    ) -> Result<()> {
        let (session, txn) = self.parts()?;
        now(many::insert_many(session, txn, tree, records))
    }

    /// Changes the bytes of several values without changing their numbers, as [`Transaction::modify`] does:
    /// of all keys that exist; gives how many do. `change` gets the position of the key, too; keys that are
    /// there twice are changed twice. As with [`Transaction::insert_many`], keys that lie next to each other
    /// should follow each other.
    ///
    /// # Errors
    /// As [`Transaction::insert`]; no value is changed then. After a panic of `change` the transaction can
    /// only be aborted.
    pub fn modify_many<K: AsRef<[u8]>>(
        &mut self,
        tree: &Tree,
        keys: &[K],
        mut change: impl FnMut(usize, &mut [u8]),
    ) -> Result<usize> {
        let (session, txn) = self.parts()?;
        session.with_buffer(|buffer| {
            now(many::modify_many(session, txn, tree, keys, buffer, &mut change))
        })
    }

    /// Removes a record; false when there is no such key.
    ///
    /// # Errors
    /// As [`Transaction::insert`].
    pub fn remove(&mut self, tree: &Tree, key: &[u8]) -> Result<bool> {
        let (session, txn) = self.parts()?;
        now(write::remove_in(session, txn, tree, key))
    }

    /// The value of a key.
    ///
    /// # Errors
    /// Failed I/O, corruption; [`Error::SnapshotTooOld`] when the engine had to give up versions.
    pub fn get(&self, tree: &Tree, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get_with(tree, key, <[u8]>::to_vec)
    }

    /// Calls `read` with the value of a key. Allocates nothing for a resident value that fits a
    /// leaf.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    #[inline]
    pub fn get_with<T>(
        &self,
        tree: &Tree,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        let (session, txn) = self.reading()?;
        session.with_buffer(|buffer| {
            let found = now(read::get_in(session, txn, tree, key, buffer))?;
            Ok(found.then(|| read(buffer)))
        })
    }

    /// Whether a key exists.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn contains(&self, tree: &Tree, key: &[u8]) -> Result<bool> {
        Ok(self.get_with(tree, key, |_| ())?.is_some())
    }

    /// Looks many keys up at once; see [`Session::multi_get`].
    ///
    /// # Errors
    /// As [`Transaction::get`]; `read` may have been called for some keys then.
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        tree: &Tree,
        keys: &[K],
        read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let (session, txn) = self.reading()?;
        session
            .with_buffer(|buffer| now(read::multi_get_in(session, txn, tree, keys, buffer, read)))
    }

    /// Brings records near that will be read or changed in a moment; see [`Session::prefetch`]. For a
    /// serializable transaction this is no read.
    ///
    /// # Errors
    /// As [`Session::prefetch`].
    pub fn prefetch<K: AsRef<[u8]>>(&self, records: &[(&Tree, K)]) -> Result<()> {
        now(read::prefetch(self.reading()?.0, records))
    }

    /// The records of a range of keys in ascending order; [`Range::rev`] turns it round.
    ///
    /// # Errors
    /// [`Error::ForeignTree`], [`Error::MustAbort`]. Reading the range has errors of its own.
    pub fn range<'t, K: AsRef<[u8]> + ?Sized + 't>(
        &'t self,
        tree: &'t Tree,
        range: impl RangeBounds<&'t K>,
    ) -> Result<Range<'t>> {
        let owned = |bound: Bound<&&'t K>| bound.map(|key| key.as_ref().to_vec());
        self.range_of(tree, owned(range.start_bound()), owned(range.end_bound()))
    }

    /// The records whose keys begin with `prefix`.
    ///
    /// # Errors
    /// As [`Transaction::range`].
    pub fn prefix<'t>(&'t self, tree: &'t Tree, prefix: &[u8]) -> Result<Range<'t>> {
        let (low, high) = prefix_range(prefix);
        self.range_of(tree, low, high)
    }

    /// All records.
    ///
    /// # Errors
    /// As [`Transaction::range`].
    pub fn scan<'t>(&'t self, tree: &'t Tree) -> Result<Range<'t>> {
        self.range_of(tree, Bound::Unbounded, Bound::Unbounded)
    }

    /// Calls `visit` with the records between two bounds, ascending or descending, until it breaks.
    /// Cheaper than [`Transaction::range`] for a few records: resident ones are visited without
    /// allocating a page's copy each time.
    ///
    /// # Errors
    /// As [`Transaction::range`] and reading the range.
    ///
    /// ```
    /// # use wattle::{Engine, IoKind, Options};
    /// use std::ops::{Bound::{Excluded, Unbounded}, ControlFlow};
    /// use wattle::Direction;
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// # let tree = engine.tree("t")?;
    /// let mut txn = engine.begin()?;
    /// for key in [b"a", b"b", b"c"] {
    ///     txn.put(&tree, key, b"")?;
    /// }
    /// let mut newest = None;
    /// txn.visit(&tree, (Unbounded, Excluded(b"c")), Direction::Backward, |key, _| {
    ///     newest = Some(key.to_vec());
    ///     ControlFlow::Break(())
    /// })?;
    /// assert_eq!(newest.as_deref(), Some(&b"b"[..]));
    /// # Ok::<(), wattle::Error>(())
    /// ```
    pub fn visit(
        &self,
        tree: &Tree,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let (session, txn) = self.reading()?;
        now(visit_in(session, txn, tree, bounds, direction, visit))
    }

    fn range_of<'t>(
        &'t self,
        tree: &'t Tree,
        low: Bound<Vec<u8>>,
        high: Bound<Vec<u8>>,
    ) -> Result<Range<'t>> {
        self.txn().check()?;
        Range::new(Source::Txn(self), tree, low, high)
    }

    /// A point to which [`Transaction::rollback_to`] takes the transaction back.
    pub fn savepoint(&self) -> Savepoint {
        savepoint(self.txn())
    }

    /// Takes back everything after `savepoint`. Records that were changed stay closed to others
    /// until the end of the transaction only if they had been changed before it.
    ///
    /// # Errors
    /// A savepoint of another transaction, or one that lies behind a roll-back already; failed I/O,
    /// after which the transaction can only be aborted.
    pub fn rollback_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        let (session, txn) = self.parts()?;
        now(whole::rollback_to(session, txn, savepoint))
    }

    /// Commits, and waits until that is durable (unless the durability is
    /// [`crate::Durability::None`]).
    ///
    /// # Errors
    /// [`Error::Conflict`] or [`Error::MustAbort`]: it was rolled back. [`Error::CommitUnknown`]: the
    /// log failed, and it will be known when the store is opened again.
    pub fn commit(self) -> Result<()> {
        self.commit_async()?.wait()
    }

    /// Commits: others see the changes from here on. The ticket tells when they are durable.
    ///
    /// # Errors
    /// As [`Transaction::commit`], except for the log.
    pub fn commit_async(mut self) -> Result<Ticket> {
        now(self.take()?.commit())
    }

    /// Takes back all changes.
    ///
    /// # Errors
    /// Failed I/O. The engine tries again in the background then; the records stay closed to others
    /// until it succeeds.
    pub fn abort(mut self) -> Result<()> {
        now(self.take()?.abort())
    }

    /// Takes the transaction out, to end it.
    fn take(&mut self) -> Result<Begun<'_, Session>> {
        let session = self.session.get(self.txn.as_ref().expect("not ended"))?;
        Ok(Begun::resume(session, self.txn.take().expect("not ended")))
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if self.txn.is_none() {
            return;
        }
        let aborted = match self.take() {
            Ok(begun) => now(begun.abort()),
            Err(error) => Err(error),
        };
        if let Err(error) = aborted {
            tracing::error!(%error, "a transaction that was dropped could not be rolled back");
        }
        if let Some(txn) = self.txn.take() {
            // There is no session for it on this thread: the engine rolls it back.
            give_to_engine(self.session.core(), txn);
        }
    }
}

/// Where a range reads.
enum Source<'s> {
    /// In a transaction.
    Txn(&'s Transaction<'s>),
    /// In a snapshot of its own, and in newer ones when that is cancelled.
    Own(Box<Begun<'s, Session>>),
}

/// Records of a range, in key order. Read it with [`Range::next_entry`], which lends key and value,
/// or as an iterator of owned pairs. It is neither `Send` nor `Sync`: it stays on the thread of its session or
/// transaction.
pub struct Range<'s> {
    source: Source<'s>,
    tree: &'s Tree,
    low: Bound<Vec<u8>>,
    high: Bound<Vec<u8>>,
    cursor: Cursor,
    value: Vec<u8>,
    /// An entry was asked for, and the end was met: what serializability must know.
    read: bool,
    ended: bool,
    /// Where it is among the reads of a serializable transaction.
    noted: Option<usize>,
}

impl<'s> Range<'s> {
    pub(crate) fn of_session(
        session: &'s Session,
        tree: &'s Tree,
        low: Bound<Vec<u8>>,
        high: Bound<Vec<u8>>,
    ) -> Result<Range<'s>> {
        let source = Source::Own(Box::new(now(read::begin_reading(session, tree))?));
        Range::new(source, tree, low, high)
    }

    fn new(
        source: Source<'s>,
        tree: &'s Tree,
        low: Bound<Vec<u8>>,
        high: Bound<Vec<u8>>,
    ) -> Result<Range<'s>> {
        let core: &Core = match &source {
            Source::Txn(txn) => txn.session.core(),
            Source::Own(begun) => begun.session().core(),
        };
        core.check_tree(tree)?;
        let cursor = Cursor::new(low.clone(), high.clone(), Direction::Forward);
        let (value, noted) = (Vec::new(), None);
        Ok(Range { source, tree, low, high, cursor, value, read: false, ended: false, noted })
    }

    /// The same range in the other direction, from its beginning.
    pub fn rev(mut self) -> Self {
        self.note();
        let direction = match self.cursor.direction() {
            Direction::Forward => Direction::Backward,
            Direction::Backward => Direction::Forward,
        };
        self.cursor = Cursor::new(self.low.clone(), self.high.clone(), direction);
        self
    }

    /// The next record: its key and value, valid until the next call.
    ///
    /// # Errors
    /// Failed I/O, corruption; [`Error::SnapshotTooOld`] in a transaction whose snapshot was cancelled, or while
    /// another transaction that is too large for versions changes the tree.
    pub fn next_entry(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if !self.read {
            self.announce();
        }
        let entry = match scan::next_loaded(&mut self.cursor)? {
            Some(Taken::Inline) => Some(Entry::Inline),
            taken => self.next_not_loaded(taken)?,
        };
        let Range { cursor, value, ended, .. } = self;
        Ok(match entry {
            None => {
                *ended = true;
                None
            }
            Some(Entry::Inline) => Some((cursor.key(), cursor.value())),
            Some(Entry::Whole) => Some((cursor.key(), value)),
        })
    }

    /// The next entry when it is not in the cursor: once for each leaf, and for each large value.
    #[inline(never)]
    fn next_not_loaded(&mut self, mut taken: Option<Taken>) -> Result<Option<Entry>> {
        let mut since = None;
        loop {
            let Range { source, tree, cursor, value, .. } = self;
            let (session, txn) = match source {
                Source::Txn(txn) => txn.reading()?,
                Source::Own(begun) => (begun.session(), begun.get()),
            };
            match now(scan::next_entry(session, txn, tree, cursor, value, taken.take())) {
                Ok(entry) => return Ok(entry),
                Err(error) => self.renew(error, &mut since)?,
            }
        }
    }

    /// Takes a new snapshot after `error`, see [`scan::next_piece`].
    #[cold]
    fn renew(&mut self, error: Error, since: &mut Option<Instant>) -> Result<()> {
        match &mut self.source {
            Source::Own(begun) => now(scan::next_piece(begun, self.tree, error, since)),
            Source::Txn(_) => Err(error),
        }
    }

    /// The reads of a serializable transaction.
    fn reads(&self) -> Option<&RefCell<ReadSet>> {
        let Source::Txn(Transaction { txn: Some(txn), .. }) = &self.source else { return None };
        txn.reads.as_ref()
    }

    /// Notes for serializability that the range is read. All of it counts for now: a range that is
    /// leaked does not say how much of it was.
    #[cold]
    fn announce(&mut self) {
        self.read = true;
        let whole = || (self.low.clone(), self.high.clone());
        self.noted = self.reads().map(|reads| {
            let (low, high) = whole();
            reads.borrow_mut().range(&self.tree.open, low, high)
        });
    }

    /// Notes for serializability how much was read.
    fn note(&mut self) {
        self.read = false;
        if let Some(at) = self.noted.take()
            && !self.ended
            && let Some(reads) = self.reads()
        {
            reads.borrow_mut().narrow(at, self.cursor.direction(), self.cursor.key());
        }
    }
}

impl Drop for Range<'_> {
    fn drop(&mut self) {
        self.note();
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
