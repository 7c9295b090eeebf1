//! Blocking sessions: operations that return when they are done.

use crate::{
    engine::{Core, Tree},
    ops::{self, Resolve},
};
use std::{
    cell::Cell,
    future::Future,
    ops::{Bound, RangeBounds},
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};
use wattle_btree::{
    BulkLoad, BulkValue, CHUNK, Cursor, Direction, LargeValue, Mode, Value, fits_inline,
    prefix_range,
};
use wattle_buffer::{Error, Fault, Result, Worker};

/// A blocking session. Each operation is atomic and takes effect at once; there are no transactions
/// of several operations yet. Not shared between threads, but it may move between them.
pub struct Session {
    worker: Worker,
    core: Arc<Core>,
    /// Reused by every look-up, so that a resident one allocates nothing.
    buffer: Cell<Vec<u8>>,
}

impl Resolve for Session {
    #[inline(always)]
    fn core(&self) -> &Core {
        &self.core
    }
    #[inline(always)]
    fn worker(&self) -> &Worker {
        &self.worker
    }
    async fn resolve(&self, fault: Fault) -> Result<()> {
        self.worker.resolve(fault)
    }
}

/// Runs a future of a blocking session: it never waits, because faults are resolved inside.
#[inline(always)]
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("an operation of a blocking session does not wait"),
    }
}

impl Session {
    pub(crate) fn new(core: Arc<Core>) -> Session {
        Session { worker: core.worker(), core, buffer: Cell::new(Vec::with_capacity(4096)) }
    }

    #[inline(always)]
    fn with_buffer<T>(&self, use_it: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let mut buffer = self.buffer.take();
        buffer.clear();
        let result = use_it(&mut buffer);
        // A large value must not stay in memory.
        if buffer.capacity() <= 1 << 16 {
            self.buffer.set(buffer);
        }
        result
    }

    /// Adds a record.
    ///
    /// # Errors
    /// [`Error::KeyExists`]; [`Error::KeyTooLong`] above 1024 bytes, [`Error::ValueTooLong`] above
    /// 4 GiB - 1; [`Error::DiskFull`]; failed I/O. The tree is unchanged then.
    pub fn insert(&self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        now(ops::write(self, tree, key, value, Mode::Insert)).map(|_| ())
    }

    /// Sets the value of a key, whether or not it exists.
    ///
    /// # Errors
    /// As [`Session::insert`].
    pub fn put(&self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        now(ops::write(self, tree, key, value, Mode::Put)).map(|_| ())
    }

    /// Replaces the value of a key by one of any size; false when there is no such key.
    ///
    /// # Errors
    /// As [`Session::insert`].
    pub fn update(&self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<bool> {
        now(ops::write(self, tree, key, value, Mode::Update))
    }

    /// Changes the bytes of a value without changing their number; false when there is no such key.
    /// Atomic for values that fit a leaf; a large value is read, changed and replaced, and of two
    /// threads that do so at once one may lose its change. `change` runs under the latch of the
    /// leaf: it must be short and must not use the engine.
    ///
    /// # Errors
    /// As [`Session::insert`].
    pub fn modify(&self, tree: &Tree, key: &[u8], change: impl FnMut(&mut [u8])) -> Result<bool> {
        self.with_buffer(|buffer| now(ops::modify(self, tree, key, buffer, change)))
    }

    /// Removes a record; false when there is no such key.
    ///
    /// # Errors
    /// Failed I/O.
    pub fn remove(&self, tree: &Tree, key: &[u8]) -> Result<bool> {
        now(ops::remove(self, tree, key))
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
            let found = now(ops::get(self, tree, key, buffer))?;
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
    /// in batches of 32. Calls `read` once for each key with its index, in any order.
    ///
    /// # Errors
    /// As [`Session::get`]; `read` may have been called for some keys then.
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        tree: &Tree,
        keys: &[K],
        read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        self.with_buffer(|buffer| now(ops::multi_get(self, tree, keys, buffer, read)))
    }

    /// The records of a range of keys in ascending order; [`Range::rev`] turns it round. Not a
    /// snapshot: it sees changes that others make ahead of it.
    ///
    /// # Errors
    /// [`Error::ForeignTree`]. Reading the range has errors of its own.
    pub fn range<'s, K: AsRef<[u8]> + ?Sized + 's>(
        &'s self,
        tree: &'s Tree,
        range: impl RangeBounds<&'s K>,
    ) -> Result<Range<'s>> {
        let owned = |bound: Bound<&&'s K>| bound.map(|key| key.as_ref().to_vec());
        self.range_of(tree, owned(range.start_bound()), owned(range.end_bound()))
    }

    /// The records whose keys begin with `prefix`.
    ///
    /// # Errors
    /// As [`Session::range`].
    pub fn prefix<'s>(&'s self, tree: &'s Tree, prefix: &[u8]) -> Result<Range<'s>> {
        let (low, high) = prefix_range(prefix);
        self.range_of(tree, low, high)
    }

    /// All records.
    ///
    /// # Errors
    /// As [`Session::range`].
    pub fn scan<'s>(&'s self, tree: &'s Tree) -> Result<Range<'s>> {
        self.range_of(tree, Bound::Unbounded, Bound::Unbounded)
    }

    fn range_of<'s>(
        &'s self,
        tree: &'s Tree,
        low: Bound<Vec<u8>>,
        high: Bound<Vec<u8>>,
    ) -> Result<Range<'s>> {
        self.core.check_tree(tree)?;
        let cursor = Cursor::new(low.clone(), high.clone(), Direction::Forward);
        Ok(Range { session: self, tree, low, high, cursor, value: Vec::new() })
    }

    /// Fills an empty tree from entries with strictly ascending keys, several times faster than
    /// inserts and with fuller pages. Gives the number of entries.
    ///
    /// # Errors
    /// [`Error::NotEmpty`], [`Error::NotSorted`], and as [`Session::insert`]. The tree is
    /// unchanged then.
    pub fn bulk_load<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        tree: &Tree,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Result<u64> {
        self.core.check_tree(tree)?;
        let mut load = BulkLoad::new(&tree.open.tree)?;
        let mut chunks: Option<BulkChunks> = None;
        let outcome = self.fill(tree, &mut load, &mut chunks, entries);
        match outcome.and_then(|()| load.finish(&self.worker)) {
            Ok(count) => Ok(count),
            Err(error) => {
                if let (Some(chunks), Some(store)) = (chunks, tree.open.large.get()) {
                    for large in chunks {
                        now(ops::remove_large(self, store, large));
                    }
                }
                Err(error)
            }
        }
    }

    fn fill<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        tree: &Tree,
        load: &mut BulkLoad<'_>,
        chunks: &mut Option<BulkChunks>,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Result<()> {
        for (key, value) in entries {
            let (key, value) = (key.as_ref(), value.as_ref());
            if fits_inline(key.len(), value.len()) {
                load.push(key, BulkValue::Inline(value))?;
                continue;
            }
            if key.len() > wattle_btree::MAX_KEY {
                return Err(Error::KeyTooLong { len: key.len(), max: wattle_btree::MAX_KEY });
            }
            if value.len() as u64 > wattle_btree::MAX_VALUE {
                let (len, max) = (value.len() as u64, wattle_btree::MAX_VALUE);
                return Err(Error::ValueTooLong { len, max });
            }
            let store = self.core.catalog.large(&self.core, &tree.open)?;
            let large = LargeValue { id: store.next_id(), len: value.len() as u64 };
            chunks.get_or_insert_default().push(large);
            for (chunk, bytes) in value.chunks(CHUNK).enumerate() {
                let key = large.chunk_key(chunk as u64);
                now(ops::run(self, |restarts| {
                    let value = Value::Inline(bytes);
                    store.tree.write_step(&self.worker, &key, value, Mode::Insert, restarts)
                }))?;
            }
            load.push(key, BulkValue::Large(large))?;
        }
        Ok(())
    }
}

/// Large values written by a bulk load that may still fail.
type BulkChunks = Vec<LargeValue>;

/// Records of a range, in key order. Read it with [`Range::next_entry`], which lends key and value,
/// or as an iterator of owned pairs.
pub struct Range<'s> {
    session: &'s Session,
    tree: &'s Tree,
    low: Bound<Vec<u8>>,
    high: Bound<Vec<u8>>,
    cursor: Cursor,
    value: Vec<u8>,
}

impl Range<'_> {
    /// The same range in the other direction, from its beginning.
    pub fn rev(self) -> Self {
        let direction = match self.cursor.direction() {
            Direction::Forward => Direction::Backward,
            Direction::Backward => Direction::Forward,
        };
        let cursor = Cursor::new(self.low.clone(), self.high.clone(), direction);
        Range { cursor, ..self }
    }

    /// The next record: its key and value, valid until the next call.
    ///
    /// # Errors
    /// Failed I/O, corruption.
    pub fn next_entry(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let Range { session, tree, cursor, value, .. } = self;
        loop {
            if !now(ops::advance(*session, tree, cursor))? {
                return Ok(None);
            }
            let (_, _, large) = cursor.take()?;
            let Some(large) = large else { break };
            let key = cursor.key().to_vec();
            if now(ops::scanned_large(*session, tree, &key, large, value))? {
                return Ok(Some((self.cursor.key(), &self.value)));
            }
        }
        Ok(Some((self.cursor.key(), self.cursor.value())))
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
