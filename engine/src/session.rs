//! Blocking sessions: operations that return when they are done.

pub(crate) mod admit;
pub(crate) mod conflict_wait;
pub(crate) mod large_room;
pub(crate) mod resolve;
pub(crate) mod state;
pub(crate) mod step;

use crate::{
    catalog::OpenTree,
    core::Core,
    handle::{Grip, User},
    mvcc::Kept,
    ops,
    transaction::{Range, Transaction},
    tree::Tree,
    txn::{BoxedTxn, LogHandle, Ticket, TxnOptions},
};
use resolve::{Resolve, now, pause};
use state::SessionState;
use std::{
    ops::{Bound, RangeBounds},
    sync::{Arc, atomic::Ordering},
};
use step::run;
use wattle_btree::{
    BulkLoad, BulkValue, CHUNK, Context, Cursor, Journal, LargeValue, Mode, System, Value,
    fits_inline, prefix_range,
};
use wattle_buffer::{Error, Fault, Inside, Result};

/// A blocking session. Its operations are transactions of their own; [`Session::begin`] makes one of
/// several. It is `Send` and not `Sync`: it may move between threads, while no transaction and no range of it
/// is alive, but threads do not share it. A session that is leaked counts as alive for
/// [`crate::Engine::close`].
///
/// Auto-committed reads see every commit that has returned, from every session, or only what is durable and the
/// session's own commits ([`crate::Options::reads`]); they never wait for a writer or for the log.
pub struct Session {
    state: Option<Box<SessionState>>,
    core: Grip,
}

impl Resolve for Session {
    #[inline(always)]
    fn core(&self) -> &Core {
        &self.core
    }
    #[inline(always)]
    fn cx(&self) -> &Context {
        &self.state().cx
    }
    async fn resolve(&self, fault: Fault) -> Result<()> {
        self.cx().worker.resolve(fault)
    }
    async fn wait_log(&self, _: &mut Option<u64>) -> Result<()> {
        match &self.cx().journal {
            Journal::On(log, _) => log.wait_flush(),
            Journal::Off => Ok(()),
        }
    }
    async fn wait_ticket(&self, ticket: Ticket) -> Result<()> {
        ticket.wait()
    }
    async fn pause(&self, turn: u32) {
        pause(turn);
    }
    #[inline(always)]
    fn log(&self) -> Option<&Arc<LogHandle>> {
        self.state().log.as_ref()
    }
    fn number(&self) -> u64 {
        self.state().number.get()
    }
    fn own(&self) -> u64 {
        self.state().own()
    }
    fn committed(&self, time: u64, stored: &[Kept]) {
        self.state().committed(&self.core.txns, time, stored);
    }
    fn take_idle(&self) -> BoxedTxn {
        self.state().take_idle(&self.core.txns)
    }
    fn give_idle(&self, txn: BoxedTxn) {
        self.state().give_idle(txn);
    }
    fn take_before(&self) -> Vec<u8> {
        self.state().take_before()
    }
    fn give_before(&self, buffer: Vec<u8>) {
        self.state().give_before(buffer);
    }
    fn take_cursor(&self) -> Option<Cursor> {
        self.state().take_cursor()
    }
    fn give_cursor(&self, cursor: Cursor) {
        self.state().give_cursor(cursor);
    }
}

impl Session {
    /// A session of an engine.
    ///
    /// # Errors
    /// [`Error::Limit`] when the pool is too small for another one.
    pub(crate) fn open(core: &Grip, user: User) -> Result<Session> {
        core.check_caller(&[])?;
        if core.idle.lock().is_empty() {
            core.pool.check_workers()?;
        }
        Ok(Session::new(core.share(user)))
    }

    #[inline(always)]
    pub(crate) fn handle(&self) -> &Grip {
        &self.core
    }

    pub(crate) fn journal(&self) -> &Journal {
        &self.state().cx.journal
    }

    fn new(core: Grip) -> Session {
        let idle = core.idle.lock().pop();
        let state = idle.unwrap_or_else(|| Box::new(SessionState::new(&core.txns)));
        state.number.set(core.sessions.fetch_add(1, Ordering::Relaxed));
        Session { state: Some(state), core }
    }

    #[inline(always)]
    fn state(&self) -> &SessionState {
        self.state.as_deref().expect("kept until the session is dropped")
    }

    #[inline(always)]
    pub(crate) fn with_buffer<T>(&self, use_it: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let mut buffer = self.state().take_buffer();
        let result = use_it(&mut buffer);
        self.state().give_buffer(buffer);
        result
    }

    /// Begins a transaction with snapshot isolation.
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

    /// Begins a transaction that only reads, from a snapshot of the newest commit, or of the newest one that is
    /// durable ([`crate::Options::reads`]).
    ///
    /// # Errors
    /// As [`Session::begin`].
    #[inline]
    pub fn begin_read(&self) -> Result<Transaction<'_>> {
        self.begin_with(ops::READ)
    }

    /// Adds a record.
    ///
    /// # Errors
    /// [`Error::KeyExists`]; [`Error::KeyTooLong`] above 1024 bytes, [`Error::ValueTooLong`] above
    /// 4 GiB - 1; [`Error::Conflict`] when a transaction that changed the record does not end within
    /// [`crate::Options::conflict_wait`], or is one of this session; [`Error::DiskFull`]; failed I/O. The tree is
    /// unchanged then.
    /// [`Error::CommitUnknown`] when the log fails.
    pub fn insert(&self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        self.insert_async(tree, key, value)?.wait()
    }

    /// Sets the value of a key, whether or not it exists.
    ///
    /// # Errors
    /// As [`Session::insert`].
    pub fn put(&self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_async(tree, key, value)?.wait()
    }

    /// Replaces the value of a key by one of any size; false when there is no such key.
    ///
    /// # Errors
    /// As [`Session::insert`].
    pub fn update(&self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<bool> {
        waited(self.update_async(tree, key, value)?)
    }

    /// Changes the bytes of a value without changing their number; false when there is no such key.
    /// `change` runs under the latch of the leaf, and may run again with the value as it was: it must
    /// be short and should not use the engine, whose calls fail in it with [`Error::Reentrant`] when they
    /// would have to wait.
    ///
    /// # Errors
    /// As [`Session::insert`]; [`Error::Conflict`] also when the value is large and others change the
    /// record again and again for the stall timeout, each time before this change of it is written.
    pub fn modify(&self, tree: &Tree, key: &[u8], change: impl FnMut(&mut [u8])) -> Result<bool> {
        waited(self.modify_async(tree, key, change)?)
    }

    /// Removes a record; false when there is no such key.
    ///
    /// # Errors
    /// As [`Session::insert`].
    pub fn remove(&self, tree: &Tree, key: &[u8]) -> Result<bool> {
        waited(self.remove_async(tree, key)?)
    }

    /// As [`Session::insert`], without waiting for durability; only that a key exists is not said before
    /// that is durable.
    ///
    /// # Errors
    /// As [`Session::insert`].
    pub fn insert_async(&self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<Ticket> {
        now(ops::write(self, tree, key, value, Mode::Insert)).map(|(_, ticket)| ticket)
    }

    /// As [`Session::put`], without waiting for durability.
    ///
    /// # Errors
    /// As [`Session::insert`].
    pub fn put_async(&self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<Ticket> {
        now(ops::write(self, tree, key, value, Mode::Put)).map(|(_, ticket)| ticket)
    }

    /// As [`Session::update`], without waiting for durability.
    ///
    /// # Errors
    /// As [`Session::insert`].
    pub fn update_async(&self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<(bool, Ticket)> {
        now(ops::write(self, tree, key, value, Mode::Update))
    }

    /// As [`Session::modify`], without waiting for durability.
    ///
    /// # Errors
    /// As [`Session::insert`].
    pub fn modify_async(
        &self,
        tree: &Tree,
        key: &[u8],
        mut change: impl FnMut(&mut [u8]),
    ) -> Result<(bool, Ticket)> {
        let mut change = |_: usize, value: &mut [u8]| change(value);
        self.with_buffer(|buffer| now(ops::modify(self, tree, key, buffer, &mut change)))
    }

    /// As [`Session::remove`], without waiting for durability.
    ///
    /// # Errors
    /// As [`Session::insert`].
    pub fn remove_async(&self, tree: &Tree, key: &[u8]) -> Result<(bool, Ticket)> {
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
    /// in batches of 32. Calls `read` once for each key with its index, in any order. Each key is
    /// looked up by itself; for a consistent picture use a transaction.
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

    /// Brings records near that will be read or changed in a moment, of one tree or of several: their pages
    /// into memory, all reads side by side, and what a search touches into the cache of the processor. Pays
    /// for some ten keys in no order. Says nothing about the records; keys may be absent.
    ///
    /// # Errors
    /// As [`Session::get`].
    pub fn prefetch<K: AsRef<[u8]>>(&self, records: &[(&Tree, K)]) -> Result<()> {
        now(ops::prefetch(self, records))
    }

    /// The records of a range of keys in ascending order; [`Range::rev`] turns it round.
    ///
    /// It reads from a snapshot of now. If that is cancelled, because others change so much meanwhile that its
    /// versions take more than [`crate::Options::version_bytes`], the scan goes on at the same place with a new
    /// snapshot: it then gives a sequence of pieces, each consistent in itself, the later ones newer. Each record
    /// was committed at the time of its piece; keys ascend, none comes twice, and no record is missed that was
    /// there all the time. A scan in a transaction is of one snapshot or fails.
    ///
    /// # Errors
    /// [`Error::ForeignTree`]. Reading the range has errors of its own.
    pub fn range<'s, K: AsRef<[u8]> + ?Sized + 's>(
        &'s self,
        tree: &'s Tree,
        range: impl RangeBounds<&'s K>,
    ) -> Result<Range<'s>> {
        let owned = |bound: Bound<&&'s K>| bound.map(|key| key.as_ref().to_vec());
        Range::of_session(self, tree, owned(range.start_bound()), owned(range.end_bound()))
    }

    /// The records whose keys begin with `prefix`; see [`Session::range`].
    ///
    /// # Errors
    /// As [`Session::range`].
    pub fn prefix<'s>(&'s self, tree: &'s Tree, prefix: &[u8]) -> Result<Range<'s>> {
        let (low, high) = prefix_range(prefix);
        Range::of_session(self, tree, low, high)
    }

    /// All records; see [`Session::range`].
    ///
    /// # Errors
    /// As [`Session::range`].
    pub fn scan<'s>(&'s self, tree: &'s Tree) -> Result<Range<'s>> {
        Range::of_session(self, tree, Bound::Unbounded, Bound::Unbounded)
    }

    /// Fills an empty tree from entries with strictly ascending keys, several times faster than
    /// inserts and with fuller pages. Durable when it returns; gives the number of entries. The load
    /// is one change that belongs to no transaction: all of it is seen from its end on, also by
    /// snapshots that are older.
    ///
    /// # Errors
    /// [`Error::NotEmpty`], [`Error::NotSorted`], and as [`Session::insert`]; [`Error::Limit`] when a backup
    /// does not end within the stall timeout. The tree is unchanged then.
    pub fn bulk_load<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        tree: &Tree,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Result<u64> {
        self.core.check_tree(tree)?;
        self.core.check_alive()?;
        self.core.check_caller(&[Inside::Verify])?;
        let _no_backup = self.core.bulk_loads()?;
        // Not after the engine was abandoned while this waited.
        self.core.check_alive()?;
        let mut load = BulkLoad::new(&tree.open.tree)?;
        let mut chunks = BulkChunks { core: &self.core, open: &tree.open, values: Vec::new() };
        self.fill(tree, &mut load, &mut chunks, entries)?;
        let count = load.finish(self.cx(), &|| self.core.sync_pages())?;
        for large in std::mem::take(&mut chunks.values) {
            if let Err(error) = self.core.catalog.unlist_adopted(self.cx(), &tree.open, large) {
                // The tree is loaded. What is left on the list is found to be in use when the store is opened.
                tracing::warn!(%error, "a large value of a bulk load stays listed until the store is opened");
            }
        }
        if let Some(log) = &self.core.log {
            log.flush_now()?;
        }
        Ok(count)
    }

    fn fill<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        tree: &Tree,
        load: &mut BulkLoad<'_>,
        chunks: &mut BulkChunks<'_>,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Result<()> {
        let _inside = Inside::Load.enter();
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
            let store = self.core.catalog.large(&self.core.txns, self.cx(), &tree.open)?;
            let large = LargeValue { id: store.next_id(), len: value.len() as u64 };
            // Listed before it exists, for the case that the load does not come to its end.
            self.core.catalog.list_garbage(self.cx(), &tree.open, key, large)?;
            chunks.values.push(large);
            for (chunk, bytes) in value.chunks(CHUNK).enumerate() {
                let key = large.chunk_key(chunk as u64);
                now(run(self, |restarts| {
                    let value = Value::Inline(bytes);
                    store.tree.write_step(
                        self.cx(),
                        &key,
                        value,
                        Mode::Insert,
                        &mut System,
                        restarts,
                    )
                }))?;
            }
            load.push(key, BulkValue::Large(large))?;
        }
        Ok(())
    }
}

/// Large values written by a bulk load that may still fail, or whose entries may panic: they are cleared away then.
struct BulkChunks<'a> {
    core: &'a Core,
    open: &'a Arc<OpenTree>,
    values: Vec<LargeValue>,
}

impl Drop for BulkChunks<'_> {
    fn drop(&mut self) {
        if !self.values.is_empty() {
            self.core.txns.garbage.add_large(self.open, std::mem::take(&mut self.values));
        }
    }
}

fn waited((outcome, ticket): (bool, Ticket)) -> Result<bool> {
    ticket.wait().map(|()| outcome)
}

impl Drop for Session {
    fn drop(&mut self) {
        let Some(state) = self.state.take() else { return };
        self.core.keep_idle(state);
    }
}
