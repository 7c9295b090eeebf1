//! Blocking transactions of several operations.

use crate::{
    held::Held,
    key_interval::KeyInterval,
    op::{
        many,
        range::KeyBounds,
        read,
        visit::visit_in,
        whole,
        write::{ModifyRecord, WriteRecord, drive_now, remove_in},
    },
    range::{Range, borrowed},
    session::{
        blocking::Session,
        resolve::{Environment, now},
    },
    tree::Tree,
    txn::{Begun, BoxedTxn, Savepoint, Ticket, Txn, TxnOptions, give_to_engine, savepoint},
};
use std::ops::{Bound, ControlFlow};
use wattle_btree::{Direction, Mode, prefix_range};
#[cfg(doc)]
use wattle_buffer::Error;
use wattle_buffer::Result;

/// A transaction reads from one consistent snapshot, plus its own changes. All its changes become
/// visible, and durable, together or not at all.
///
/// A transaction that is dropped without [`Transaction::commit`] is rolled back. After
/// [`Error::Conflict`] the caller can only abort it and run it again. A commit consumes it, so it
/// cannot be used afterwards:
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
/// ```
/// # use wattle::{Engine, IoKind, Options};
/// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
/// # let tree = engine.tree("t")?;
/// let mut txn = engine.begin()?;
/// txn.insert(&tree, b"a", b"1")?;                        // fails if there is one
/// txn.put_many(&tree, &[("b", "2"), ("b2", "3"), ("c", "4")])?;
/// assert!(txn.update(&tree, b"b", b"22")?);              // only if there is one
/// assert_eq!(txn.get_with(&tree, b"b", |value| value.len())?, Some(2));
/// assert_eq!(txn.value_len(&tree, b"b")?, Some(2));
/// txn.prefetch(&[(&tree, "b"), (&tree, "c")])?;
/// txn.modify_many(&tree, &["b", "b2"], |_index, value| value[0] = b'9')?;
/// assert_eq!(txn.prefix(&tree, b"b")?.count(), 2);
///
/// let savepoint = txn.savepoint();
/// assert!(txn.remove(&tree, b"a")?);
/// assert_eq!(txn.remove_many(&tree, &["b", "b2", "x"])?, 2);
/// assert_eq!(txn.last(&tree)?, txn.pop_first(&tree)?);   // "c" alone was left
/// txn.rollback_to(&savepoint)?;
/// assert_eq!(txn.scan(&tree)?.count(), 4);
/// assert_eq!(txn.pop_last(&tree)?, Some((b"c".to_vec(), b"4".to_vec())));
/// txn.commit()?;
/// # Ok::<(), wattle::Error>(())
/// ```
///
/// It is `Send` and not `Sync`: it may move between threads, but not while a [`Range`] of it is
/// alive. A transaction of [`Session::begin`] that another thread uses takes a session of its own
/// there until it ends. Its commit then counts as that of another session
/// ([`crate::Options::reads`]).
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
/// A transaction that is leaked (`std::mem::forget`) stays open: other transactions that change its
/// records get [`Error::Conflict`], versions and log are kept for it, and the next opening of the
/// store rolls its changes back.
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
    pub(crate) fn parts(&mut self) -> Result<(&Session, &mut Txn)> {
        let txn = self.txn.as_mut().expect("not ended");
        Ok((self.session.get(txn)?, txn))
    }

    /// Session and transaction, to read.
    #[inline(always)]
    pub(crate) fn reading(&self) -> Result<(&Session, &Txn)> {
        let txn = self.txn();
        Ok((self.session.get(txn)?, txn))
    }

    /// Whether it has met a conflict, so that it may succeed when it runs again.
    pub(crate) fn is_in_conflict(&self) -> bool {
        self.txn().is_in_conflict()
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
        drive_now(session, txn, WriteRecord { tree, key, value, mode })
    }

    /// Changes the bytes of a value without changing its length; false when there is no such key.
    /// `change` may run again with the original value.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// # let tree = engine.tree("tree")?;
    /// # let session = engine.session()?;
    /// # let mut txn = session.begin()?;
    /// txn.put(&tree, b"hits", &[0; 8])?;
    /// txn.modify(&tree, b"hits", |value| value[0] += 1)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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

    /// One function for all changes, so that a transaction of several changes finds its code in the
    /// cache.
    #[inline(never)]
    fn modify_by(
        &mut self,
        tree: &Tree,
        key: &[u8],
        change: &mut dyn FnMut(usize, &mut [u8]),
    ) -> Result<bool> {
        let (session, txn) = self.parts()?;
        session.with_buffer(|buffer| {
            drive_now(session, txn, ModifyRecord { tree, key, buffer, change })
        })
    }

    /// Adds several records: all of them, or none. They may be in any order. Neighbouring keys cost
    /// less if they follow each other, because they are added to their leaf together.
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

    /// Sets the values of several keys, whether or not they exist: of all of them, or of none. The
    /// later one counts of two records with the same key. Does the same as a
    /// [`Transaction::put`] for each record, but reads the leaves of 32 records at once, which is
    /// several times faster when they are not in memory.
    ///
    /// # Errors
    /// As [`Transaction::insert`], for any of them.
    ///
    /// ```
    /// # use wattle::{Engine, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// # let tree = engine.tree("t")?;
    /// let mut txn = engine.begin()?;
    /// txn.put_many(&tree, &[("a", "1"), ("b", "2"), ("a", "3")])?;
    /// assert_eq!(txn.get(&tree, b"a")?.as_deref(), Some(&b"3"[..]));
    /// assert_eq!(txn.remove_many(&tree, &["a", "c"])?, 1);
    /// # Ok::<(), wattle::Error>(())
    /// ```
    pub fn put_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        tree: &Tree,
        records: &[(K, V)],
    ) -> Result<()> {
        let (session, txn) = self.parts()?;
        now(many::put_many(session, txn, tree, records))
    }

    /// Removes several records: all that exist, or none. Gives how many existed. Faster than a
    /// [`Transaction::remove`] for each as [`Transaction::put_many`] is.
    ///
    /// # Errors
    /// As [`Transaction::insert`].
    pub fn remove_many<K: AsRef<[u8]>>(&mut self, tree: &Tree, keys: &[K]) -> Result<usize> {
        let (session, txn) = self.parts()?;
        now(many::remove_many(session, txn, tree, keys))
    }

    /// Changes the bytes of several values without changing their lengths, as
    /// [`Transaction::modify`] does, for all keys that exist; gives how many do. `change` gets the
    /// position of the key, too. A key that is listed twice is changed twice. As with
    /// [`Transaction::insert_many`], neighbouring keys should follow each other.
    ///
    /// # Errors
    /// As [`Transaction::insert`]; no value is changed then. After a panic of `change` the
    /// transaction can only be aborted.
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
        now(remove_in(session, txn, tree, key))
    }

    /// The value of a key.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// # let tree = engine.tree("tree")?;
    /// # let session = engine.session()?;
    /// # let mut txn = session.begin()?;
    /// txn.put(&tree, b"key", b"value")?;
    /// assert_eq!(txn.get(&tree, b"key")?.as_deref(), Some(&b"value"[..]));   // its own change
    /// assert_eq!(session.get(&tree, b"key")?, None);                         // not committed
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Failed I/O, corruption; [`Error::SnapshotTooOld`] when the snapshot was cancelled.
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
            let found = read::get_in_now(session, txn, tree, key, buffer)?;
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

    /// Prefetches records that will be read or changed soon; see [`Session::prefetch`]. For a
    /// serializable transaction this is not a read.
    ///
    /// # Errors
    /// As [`Session::prefetch`].
    pub fn prefetch<K: AsRef<[u8]>>(&self, records: &[(&Tree, K)]) -> Result<()> {
        now(read::prefetch(self.reading()?.0, records))
    }

    /// The records of a range of keys in ascending order; [`Range::rev`] turns it round.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// # let tree = engine.tree("tree")?;
    /// # let session = engine.session()?;
    /// # let mut txn = session.begin()?;
    /// txn.put(&tree, b"a", b"value")?;
    /// let keys: Vec<_> = txn.range(&tree, "a"..)?.map(|entry| entry.unwrap().0).collect();
    /// assert_eq!(keys, [b"a"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ForeignTree`], [`Error::MustAbort`]. Reading the range has errors of its own.
    pub fn range<'t>(&'t self, tree: &'t Tree, range: impl KeyInterval) -> Result<Range<'t>> {
        self.range_of(tree, range.key_bounds())
    }

    /// The records whose keys begin with `prefix`.
    ///
    /// # Errors
    /// As [`Transaction::range`].
    pub fn prefix<'t>(&'t self, tree: &'t Tree, prefix: &[u8]) -> Result<Range<'t>> {
        self.range_of(tree, borrowed(&prefix_range(prefix)))
    }

    /// All records.
    ///
    /// # Errors
    /// As [`Transaction::range`].
    pub fn scan<'t>(&'t self, tree: &'t Tree) -> Result<Range<'t>> {
        self.range_of(tree, (Bound::Unbounded, Bound::Unbounded))
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

    fn range_of<'t>(&'t self, tree: &'t Tree, bounds: KeyBounds<'_>) -> Result<Range<'t>> {
        let (session, txn) = self.reading()?;
        Range::in_txn(session, txn, tree, bounds)
    }

    /// A point to which [`Transaction::rollback_to`] can roll the transaction back.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// # let tree = engine.tree("tree")?;
    /// # let session = engine.session()?;
    /// # let mut txn = session.begin()?;
    /// txn.put(&tree, b"kept", b"value")?;
    /// let savepoint = txn.savepoint();
    /// txn.put(&tree, b"undone", b"value")?;
    /// txn.rollback_to(&savepoint)?;
    /// txn.commit()?;
    /// assert_eq!(session.scan(&tree)?.count(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn savepoint(&self) -> Savepoint {
        savepoint(self.txn())
    }

    /// Undoes every change after `savepoint`. Other transactions can then change these records,
    /// except those that were changed before the savepoint, too.
    ///
    /// # Errors
    /// A savepoint of another transaction, or one that a rollback has passed; failed I/O, after
    /// which the transaction can only be aborted.
    pub fn rollback_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        let (session, txn) = self.parts()?;
        now(whole::rollback_to(session, txn, savepoint))
    }

    /// Commits, and waits until that is durable (unless the durability is
    /// [`crate::Durability::None`]).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// # let tree = engine.tree("tree")?;
    /// # let session = engine.session()?;
    /// # let mut txn = session.begin()?;
    /// txn.put(&tree, b"key", b"value")?;
    /// txn.commit()?;                  // durable, unless the durability is `None`
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Conflict`] or [`Error::MustAbort`]: it was rolled back. [`Error::CommitUnknown`]:
    /// the log failed; only the next opening of the store will tell whether the transaction was
    /// committed. [`Error::Reentrant`] in a closure of [`Ticket::on_durable`], where
    /// [`Transaction::commit_ticket`] works: it was rolled back.
    pub fn commit(self) -> Result<()> {
        self.may_wait()?;
        self.commit_ticket()?.wait()
    }

    /// Refuses a commit that could not be waited for.
    pub(crate) fn may_wait(&self) -> Result<()> {
        let (session, txn) = self.reading()?;
        match &txn.state {
            Some(_) => session.may_wait_by(txn.durability(session.system())),
            None => Ok(()),
        }
    }

    /// Commits: other transactions see the changes from here on. The ticket tells when they are
    /// durable.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// # let tree = engine.tree("tree")?;
    /// # let session = engine.session()?;
    /// # let mut txn = session.begin()?;
    /// txn.put(&tree, b"key", b"value")?;
    /// let ticket = txn.commit_ticket()?;   // visible now
    /// ticket.wait()?;                     // durable
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::commit`], except for the log.
    pub fn commit_ticket(mut self) -> Result<Ticket> {
        now(self.take()?.commit())
    }

    /// Rolls all changes back.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// # let tree = engine.tree("tree")?;
    /// # let session = engine.session()?;
    /// # let mut txn = session.begin()?;
    /// txn.put(&tree, b"key", b"value")?;
    /// txn.abort()?;
    /// assert_eq!(session.get(&tree, b"key")?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Failed I/O. The engine then tries again in the background; until it succeeds, other
    /// transactions that change the records get [`Error::Conflict`].
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
