//! Blocking sessions: operations that return when they are done.

pub(crate) mod admit;
pub(crate) mod blocking;
pub(crate) mod bulk_load;
pub(crate) mod conflict_wait;
pub(crate) mod idle;
pub(crate) mod large_room;
pub(crate) mod resolve;
pub(crate) mod state;
pub(crate) mod step;
#[cfg(feature = "async")]
pub(crate) mod tasks;

use crate::{
    key_interval::KeyInterval,
    op::{auto, many, read, visit::visit_auto},
    range::{Range, borrowed},
    transaction::Transaction,
    tree::Tree,
    txn::{Ticket, TxnOptions},
};
use blocking::Session;
use resolve::{Environment, now};
use std::ops::{Bound, ControlFlow};
use wattle_btree::{Direction, Mode, prefix_range};
#[cfg(doc)]
use wattle_buffer::Error;
use wattle_buffer::Result;

impl Session {
    /// Begins a transaction with snapshot isolation.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// # let tree = engine.tree("tree")?;
    /// # let session = engine.session()?;
    /// let mut txn = session.begin()?;
    /// txn.put(&tree, b"key", b"value")?;
    /// txn.commit()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Poisoned`] after the log failed.
    #[inline]
    pub fn begin(&self) -> Result<Transaction<'_>> {
        self.begin_with(TxnOptions::default())
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// As [`Session::begin`].
    #[inline]
    pub fn begin_with(&self, options: TxnOptions) -> Result<Transaction<'_>> {
        Transaction::of(self, options)
    }

    /// Begins a transaction that only reads, from a snapshot of the newest commit, or of the newest
    /// one that is durable ([`crate::Options::reads`]).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// # let tree = engine.tree("tree")?;
    /// # let session = engine.session()?;
    /// let txn = session.begin_read()?;
    /// assert_eq!(txn.get(&tree, b"key")?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::begin`].
    #[inline]
    pub fn begin_read(&self) -> Result<Transaction<'_>> {
        self.begin_with(read::READ)
    }

    /// Adds a record.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// # let tree = engine.tree("tree")?;
    /// # let session = engine.session()?;
    /// session.insert(&tree, b"key", b"value")?;
    /// let again = session.insert(&tree, b"key", b"other");
    /// assert!(matches!(again, Err(wattle::Error::KeyExists)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::KeyExists`]; [`Error::KeyTooLong`] above 1024 bytes, [`Error::ValueTooLong`] above
    /// 4 GiB - 1; [`Error::Conflict`] when a transaction that changed the record does not end
    /// within [`crate::Options::conflict_wait`], or is one of this session; [`Error::DiskFull`];
    /// [`Error::Reentrant`] in a closure of [`Ticket::on_durable`], where
    /// [`Session::insert_ticket`] works; failed I/O. The tree is unchanged then.
    /// [`Error::CommitUnknown`] when the log fails.
    pub fn insert(&self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        self.may_wait()?;
        self.insert_ticket(tree, key, value)?.wait()
    }

    /// Sets the value of a key, whether or not it exists.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// # let tree = engine.tree("tree")?;
    /// # let session = engine.session()?;
    /// session.put(&tree, b"key", b"old")?;
    /// session.put(&tree, b"key", b"new")?;
    /// assert_eq!(session.get(&tree, b"key")?.as_deref(), Some(&b"new"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::insert`].
    pub fn put(&self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        self.may_wait()?;
        self.put_ticket(tree, key, value)?.wait()
    }

    /// Replaces the value of a key by one of any size; false when there is no such key.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// # let tree = engine.tree("tree")?;
    /// # let session = engine.session()?;
    /// assert!(!session.update(&tree, b"key", b"value")?);   // there is no such record
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::insert`].
    pub fn update(&self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<bool> {
        self.may_wait()?;
        waited(self.update_ticket(tree, key, value)?)
    }

    /// Changes the bytes of a value without changing its length; false when there is no such key.
    /// `change` runs under the latch of the leaf, and may run again with the original value. It
    /// must be short and should not use the engine: calls that would have to wait fail in it with
    /// [`Error::Reentrant`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// # let tree = engine.tree("tree")?;
    /// # let session = engine.session()?;
    /// session.put(&tree, b"hits", &[0; 8])?;
    /// session.modify(&tree, b"hits", |value| value[0] += 1)?;
    /// assert_eq!(session.get(&tree, b"hits")?.unwrap()[0], 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::insert`]; [`Error::Conflict`] also when the value is large and other
    /// transactions change the record repeatedly for the stall timeout, each time before this
    /// change is written.
    pub fn modify(&self, tree: &Tree, key: &[u8], change: impl FnMut(&mut [u8])) -> Result<bool> {
        self.may_wait()?;
        waited(self.modify_ticket(tree, key, change)?)
    }

    /// Removes a record; false when there is no such key.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// # let tree = engine.tree("tree")?;
    /// # let session = engine.session()?;
    /// session.put(&tree, b"key", b"value")?;
    /// assert!(session.remove(&tree, b"key")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::insert`].
    pub fn remove(&self, tree: &Tree, key: &[u8]) -> Result<bool> {
        self.may_wait()?;
        waited(self.remove_ticket(tree, key)?)
    }

    /// Sets the values of several keys as one transaction: of all of them, or of none. The later
    /// one counts of two records with the same key. Reads the leaves of 32 records at once, which
    /// is several times faster than one after the other when they are not in memory.
    ///
    /// ```
    /// # use wattle::{Engine, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// # let tree = engine.tree("t")?;
    /// # let session = engine.session()?;
    /// session.put_many(&tree, &[("a", "1"), ("b", "2")])?;
    /// assert_eq!(session.remove_many(&tree, &["a", "c"])?, 1);
    /// # Ok::<(), wattle::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::insert`], for any of them, but [`Error::KeyExists`].
    pub fn put_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        tree: &Tree,
        records: &[(K, V)],
    ) -> Result<()> {
        self.may_wait()?;
        now(many::put_many_auto(self, tree, records))?.wait()
    }

    /// Removes several records as one transaction: all that exist, or none. Gives how many existed.
    /// See [`Session::put_many`].
    ///
    /// # Errors
    /// As [`Session::put_many`].
    pub fn remove_many<K: AsRef<[u8]>>(&self, tree: &Tree, keys: &[K]) -> Result<usize> {
        self.may_wait()?;
        let (removed, ticket) = now(many::remove_many_auto(self, tree, keys))?;
        ticket.wait().map(|()| removed)
    }

    /// As [`Session::insert`], without waiting for durability. Only [`Error::KeyExists`] waits: it
    /// is returned when the commit that it relies on is durable.
    ///
    /// # Errors
    /// As [`Session::insert`].
    pub fn insert_ticket(&self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<Ticket> {
        now(auto::write(self, tree, key, value, Mode::Insert)).map(|(_, ticket)| ticket)
    }

    /// As [`Session::put`], without waiting for durability.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// # let tree = engine.tree("tree")?;
    /// # let session = engine.session()?;
    /// let ticket = session.put_ticket(&tree, b"key", b"value")?;   // visible now
    /// ticket.wait()?;                                             // durable
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::insert`].
    pub fn put_ticket(&self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<Ticket> {
        now(auto::write(self, tree, key, value, Mode::Put)).map(|(_, ticket)| ticket)
    }

    /// As [`Session::update`], without waiting for durability.
    ///
    /// # Errors
    /// As [`Session::insert`].
    pub fn update_ticket(&self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<(bool, Ticket)> {
        now(auto::write(self, tree, key, value, Mode::Update))
    }

    /// As [`Session::modify`], without waiting for durability.
    ///
    /// # Errors
    /// As [`Session::insert`].
    pub fn modify_ticket(
        &self,
        tree: &Tree,
        key: &[u8],
        mut change: impl FnMut(&mut [u8]),
    ) -> Result<(bool, Ticket)> {
        let mut change = |_: usize, value: &mut [u8]| change(value);
        self.with_buffer(|buffer| now(auto::modify(self, tree, key, buffer, &mut change)))
    }

    /// As [`Session::remove`], without waiting for durability.
    ///
    /// # Errors
    /// As [`Session::insert`].
    pub fn remove_ticket(&self, tree: &Tree, key: &[u8]) -> Result<(bool, Ticket)> {
        now(auto::remove(self, tree, key))
    }

    /// The value of a key.
    ///
    /// # Errors
    /// Failed I/O, corruption.
    pub fn get(&self, tree: &Tree, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get_with(tree, key, <[u8]>::to_vec)
    }

    /// Calls `read` with the value of a key. Allocates nothing for a resident value that fits a
    /// leaf.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// # let tree = engine.tree("tree")?;
    /// # let session = engine.session()?;
    /// session.put(&tree, b"key", b"value")?;
    /// let length = session.get_with(&tree, b"key", |value| value.len())?;
    /// assert_eq!(length, Some(5));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::get`].
    #[inline]
    pub fn get_with<T>(
        &self,
        tree: &Tree,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        self.with_buffer(|buffer| {
            let found = read::get_now(self, tree, key, buffer)?;
            Ok(found.then(|| read(buffer)))
        })
    }

    /// Whether a key exists.
    ///
    /// # Errors
    /// As [`Session::get`].
    pub fn contains(&self, tree: &Tree, key: &[u8]) -> Result<bool> {
        Ok(self.get_with(tree, key, |_| ())?.is_some())
    }

    /// Looks many keys up at once, much faster than one after the other: look-ups are interleaved
    /// in batches of 32. Calls `read` once for each key with its index, in any order. Each look-up
    /// is auto-committed; use a transaction for a consistent snapshot.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// # let tree = engine.tree("tree")?;
    /// # let session = engine.session()?;
    /// session.put(&tree, b"b", b"value")?;
    /// let mut found = [false; 3];
    /// session.multi_get(&tree, &["a", "b", "c"], |index, value| found[index] = value.is_some())?;
    /// assert_eq!(found, [false, true, false]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::get`]; `read` may have been called for some keys then.
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        tree: &Tree,
        keys: &[K],
        read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        self.with_buffer(|buffer| now(read::multi_get(self, tree, keys, buffer, read)))
    }

    /// Prefetches records of one or several trees that will be read or changed soon: reads their
    /// pages into memory, in parallel, and brings the cache lines of a search into the processor.
    /// Worth it for about ten keys in random order. It does not tell whether the keys exist.
    ///
    /// # Errors
    /// As [`Session::get`].
    pub fn prefetch<K: AsRef<[u8]>>(&self, records: &[(&Tree, K)]) -> Result<()> {
        now(read::prefetch(self, records))
    }

    /// The records of a range of keys in ascending order; [`Range::rev`] turns it round.
    ///
    /// It reads from a snapshot that is taken now. The engine cancels the snapshot when other
    /// transactions change so much meanwhile that its versions exceed
    /// [`crate::Options::version_bytes`]. The scan then continues at the same place with a new
    /// snapshot: it gives a sequence of pieces, each from one snapshot, each newer than the
    /// previous one. Keys ascend, none comes twice, and no record is missed that exists during the
    /// whole scan. A scan in a transaction reads from one snapshot or fails.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// # let tree = engine.tree("tree")?;
    /// # let session = engine.session()?;
    /// for key in ["a", "b", "c"] {
    ///     session.put(&tree, key.as_bytes(), b"value")?;
    /// }
    /// assert_eq!(session.range(&tree, "a".."c")?.count(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ForeignTree`]. Reading the range has errors of its own.
    pub fn range<'s>(&'s self, tree: &'s Tree, range: impl KeyInterval) -> Result<Range<'s>> {
        Range::auto(self, tree, range.key_bounds())
    }

    /// The records whose keys begin with `prefix`; see [`Session::range`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// # let tree = engine.tree("tree")?;
    /// # let session = engine.session()?;
    /// session.put(&tree, b"user 1", b"value")?;
    /// for entry in session.prefix(&tree, b"user ")? {
    ///     let (key, value) = entry?;
    ///     assert_eq!((&key[..], &value[..]), (&b"user 1"[..], &b"value"[..]));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::range`].
    pub fn prefix<'s>(&'s self, tree: &'s Tree, prefix: &[u8]) -> Result<Range<'s>> {
        Range::auto(self, tree, borrowed(&prefix_range(prefix)))
    }

    /// All records; see [`Session::range`].
    ///
    /// # Errors
    /// As [`Session::range`].
    pub fn scan<'s>(&'s self, tree: &'s Tree) -> Result<Range<'s>> {
        Range::auto(self, tree, (Bound::Unbounded, Bound::Unbounded))
    }

    /// Calls `visit` with the records between two bounds, ascending or descending, until it breaks.
    /// It reads as [`Session::range`] does.
    ///
    /// # Errors
    /// As [`Session::range`] and reading the range.
    pub fn visit(
        &self,
        tree: &Tree,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        now(visit_auto(self, tree, bounds, direction, visit))
    }

    /// Fills an empty tree from entries with strictly ascending keys, several times faster than
    /// inserts and with fuller pages. Durable when it returns; gives the number of entries. The
    /// load is one change that belongs to no transaction: when it ends, all readers see all of it,
    /// even those with older snapshots.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// # let tree = engine.tree("tree")?;
    /// # let session = engine.session()?;
    /// let count = session.bulk_load(&tree, (0..1000_u32).map(|i| (i.to_be_bytes(), b"value")))?;
    /// assert_eq!(count, 1000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotEmpty`], [`Error::NotSorted`], and as [`Session::insert`]; [`Error::Limit`] when
    /// a backup does not end within the stall timeout. The tree is unchanged then.
    pub fn bulk_load<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        tree: &Tree,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Result<u64> {
        bulk_load::bulk_load(self.core(), self.cx(), tree, entries)
    }
}

fn waited((outcome, ticket): (bool, Ticket)) -> Result<bool> {
    ticket.wait().map(|()| outcome)
}
