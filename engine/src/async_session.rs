//! Asynchronous sessions: operations that let other tasks of the thread run while they wait for a
//! page. With the back end `uring` run them inside [`crate::run`], one runtime for each thread;
//! with the others any executor will do.

use crate::{
    async_range::AsyncRange,
    async_transaction::AsyncTransaction,
    engine::Engine,
    handle::User,
    key_interval::KeyInterval,
    op::{auto, many, read, visit::visit_auto},
    range::borrowed,
    session::{
        bulk_load::bulk_load,
        resolve::{Environment, OwnsState, Resolve},
        tasks::AsyncSession,
    },
    tree::Tree,
    txn::{Begun, Ticket, TxnOptions},
};
use std::ops::{Bound, ControlFlow};
use wattle_btree::{Direction, Mode, prefix_range};
#[cfg(doc)]
use wattle_buffer::Error;
use wattle_buffer::Result;

impl Engine {
    /// A session whose operations are awaited; clones of it serve the tasks of one thread.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// # let tree = engine.tree("tree")?;
    /// wattle::run(8, async {
    ///     let session = engine.async_session()?;
    ///     session.put(&tree, b"key", b"value").await
    /// })??;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Limit`] when the pool is too small for another session.
    pub fn async_session(&self) -> Result<AsyncSession> {
        let core = self.grip();
        core.check_caller(&[])?;
        let state = core.session_state()?;
        Ok(AsyncSession::new(core.share(User::AsyncSession), state))
    }
}

impl AsyncSession {
    /// Begins a transaction. Several transactions of one session may be under way, one for each of
    /// its tasks.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// # let tree = engine.tree("tree")?;
    /// # wattle::run(8, async {
    /// # let session = engine.async_session()?;
    /// let mut txn = session.begin()?;
    /// txn.put(&tree, b"key", b"value").await?;
    /// txn.commit().await?;
    /// # Ok::<(), wattle::Error>(())
    /// # })??;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Poisoned`] after the log failed.
    pub fn begin(&self) -> Result<AsyncTransaction> {
        self.begin_with(TxnOptions::default())
    }

    /// As [`crate::Session::begin_with`].
    ///
    /// # Errors
    /// As [`AsyncSession::begin`].
    pub fn begin_with(&self, options: TxnOptions) -> Result<AsyncTransaction> {
        let txn = Begun::new(self, options)?.into_txn();
        Ok(AsyncTransaction::new(self.clone(), txn))
    }

    /// As [`crate::Session::begin_read`].
    ///
    /// # Errors
    /// As [`AsyncSession::begin`].
    pub fn begin_read(&self) -> Result<AsyncTransaction> {
        self.begin_with(read::READ)
    }

    /// Waits until a commit of this session is durable, as the ticket itself does, and lets the
    /// other tasks of the thread run if it is their turn.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// # let tree = engine.tree("tree")?;
    /// # wattle::run(8, async {
    /// # let session = engine.async_session()?;
    /// let ticket = session.put_ticket(&tree, b"key", b"value").await?;
    /// session.wait(ticket).await?;
    /// # Ok::<(), wattle::Error>(())
    /// # })??;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As awaiting the ticket.
    pub async fn wait(&self, ticket: Ticket) -> Result<()> {
        self.wait_ticket(ticket).await?;
        self.take_turn().await;
        Ok(())
    }

    /// As [`crate::Session::insert`].
    ///
    /// # Errors
    /// As there.
    pub async fn insert(&self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        let ticket = self.insert_ticket(tree, key, value).await?;
        self.wait_ticket(ticket).await
    }

    /// As [`crate::Session::put`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// # let tree = engine.tree("tree")?;
    /// # wattle::run(8, async {
    /// # let session = engine.async_session()?;
    /// session.put(&tree, b"key", b"value").await?;
    /// # Ok::<(), wattle::Error>(())
    /// # })??;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As there.
    pub async fn put(&self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        let ticket = self.put_ticket(tree, key, value).await?;
        self.wait_ticket(ticket).await
    }

    /// As [`crate::Session::update`].
    ///
    /// # Errors
    /// As there.
    pub async fn update(&self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<bool> {
        let (existed, ticket) = self.update_ticket(tree, key, value).await?;
        self.wait_ticket(ticket).await.map(|()| existed)
    }

    /// As [`crate::Session::modify`].
    ///
    /// # Errors
    /// As there.
    pub async fn modify(
        &self,
        tree: &Tree,
        key: &[u8],
        change: impl FnMut(&mut [u8]),
    ) -> Result<bool> {
        let (existed, ticket) = self.modify_ticket(tree, key, change).await?;
        self.wait_ticket(ticket).await.map(|()| existed)
    }

    /// As [`crate::Session::remove`].
    ///
    /// # Errors
    /// As there.
    pub async fn remove(&self, tree: &Tree, key: &[u8]) -> Result<bool> {
        let (existed, ticket) = self.remove_ticket(tree, key).await?;
        self.wait_ticket(ticket).await.map(|()| existed)
    }

    /// As [`crate::Session::put_many`].
    ///
    /// # Errors
    /// As there.
    pub async fn put_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        tree: &Tree,
        records: &[(K, V)],
    ) -> Result<()> {
        self.take_turn().await;
        let ticket = many::put_many_auto(self, tree, records).await?;
        self.wait_ticket(ticket).await
    }

    /// As [`crate::Session::remove_many`].
    ///
    /// # Errors
    /// As there.
    pub async fn remove_many<K: AsRef<[u8]>>(&self, tree: &Tree, keys: &[K]) -> Result<usize> {
        self.take_turn().await;
        let (removed, ticket) = many::remove_many_auto(self, tree, keys).await?;
        self.wait_ticket(ticket).await.map(|()| removed)
    }

    /// As [`AsyncSession::insert`], without waiting for durability: the task goes on, and has as
    /// many commits under way as it keeps tickets.
    ///
    /// # Errors
    /// As [`AsyncSession::insert`].
    pub async fn insert_ticket(&self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<Ticket> {
        self.take_turn().await;
        auto::write(self, tree, key, value, Mode::Insert).await.map(|(_, ticket)| ticket)
    }

    /// As [`AsyncSession::put`], without waiting for durability.
    ///
    /// # Errors
    /// As [`AsyncSession::insert`].
    pub async fn put_ticket(&self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<Ticket> {
        self.take_turn().await;
        auto::write(self, tree, key, value, Mode::Put).await.map(|(_, ticket)| ticket)
    }

    /// As [`AsyncSession::update`], without waiting for durability.
    ///
    /// # Errors
    /// As [`AsyncSession::insert`].
    pub async fn update_ticket(
        &self,
        tree: &Tree,
        key: &[u8],
        value: &[u8],
    ) -> Result<(bool, Ticket)> {
        self.take_turn().await;
        auto::write(self, tree, key, value, Mode::Update).await
    }

    /// As [`AsyncSession::modify`], without waiting for durability.
    ///
    /// # Errors
    /// As [`AsyncSession::insert`].
    pub async fn modify_ticket(
        &self,
        tree: &Tree,
        key: &[u8],
        mut change: impl FnMut(&mut [u8]),
    ) -> Result<(bool, Ticket)> {
        self.take_turn().await;
        let mut change = |_: usize, value: &mut [u8]| change(value);
        let mut buffer = self.state().take_buffer();
        let modified = auto::modify(self, tree, key, &mut buffer, &mut change).await;
        self.state().give_buffer(buffer);
        modified
    }

    /// As [`AsyncSession::remove`], without waiting for durability.
    ///
    /// # Errors
    /// As [`AsyncSession::insert`].
    pub async fn remove_ticket(&self, tree: &Tree, key: &[u8]) -> Result<(bool, Ticket)> {
        self.take_turn().await;
        auto::remove(self, tree, key).await
    }

    /// As [`crate::Session::get`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// # let tree = engine.tree("tree")?;
    /// # wattle::run(8, async {
    /// # let session = engine.async_session()?;
    /// assert_eq!(session.get(&tree, b"key").await?, None);
    /// # Ok::<(), wattle::Error>(())
    /// # })??;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As there.
    pub async fn get(&self, tree: &Tree, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(tree, key, &mut value).await?.then_some(value))
    }

    /// Replaces `value` by the value of a key; false when there is no such key. Allocates only when
    /// `value` has no room.
    ///
    /// # Errors
    /// As [`crate::Session::get`].
    pub async fn get_into(&self, tree: &Tree, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.take_turn().await;
        value.clear();
        read::get(self, tree, key, value).await
    }

    /// As [`crate::Session::multi_get`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// # let tree = engine.tree("tree")?;
    /// # wattle::run(8, async {
    /// # let session = engine.async_session()?;
    /// session.multi_get(&tree, &["a", "b"], |index, value| assert!(value.is_none())).await?;
    /// # Ok::<(), wattle::Error>(())
    /// # })??;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As there.
    pub async fn multi_get<K: AsRef<[u8]>>(
        &self,
        tree: &Tree,
        keys: &[K],
        read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        self.take_turn().await;
        read::multi_get(self, tree, keys, &mut Vec::new(), read).await
    }

    /// As [`crate::Session::prefetch`].
    ///
    /// # Errors
    /// As there.
    pub async fn prefetch<K: AsRef<[u8]>>(&self, records: &[(&Tree, K)]) -> Result<()> {
        self.take_turn().await;
        read::prefetch(self, records).await
    }

    /// As [`crate::Session::contains`].
    ///
    /// # Errors
    /// As there.
    pub async fn contains(&self, tree: &Tree, key: &[u8]) -> Result<bool> {
        self.take_turn().await;
        let mut buffer = self.state().take_buffer();
        let found = read::get(self, tree, key, &mut buffer).await;
        self.state().give_buffer(buffer);
        found
    }

    /// As [`crate::Session::range`].
    ///
    /// # Errors
    /// As there.
    pub async fn range<'s>(
        &'s self,
        tree: &'s Tree,
        range: impl KeyInterval,
    ) -> Result<AsyncRange<'s>> {
        AsyncRange::auto(self, tree, range.key_bounds()).await
    }

    /// As [`crate::Session::prefix`].
    ///
    /// # Errors
    /// As there.
    pub async fn prefix<'s>(&'s self, tree: &'s Tree, prefix: &[u8]) -> Result<AsyncRange<'s>> {
        AsyncRange::auto(self, tree, borrowed(&prefix_range(prefix))).await
    }

    /// As [`crate::Session::scan`].
    ///
    /// # Errors
    /// As there.
    pub async fn scan<'s>(&'s self, tree: &'s Tree) -> Result<AsyncRange<'s>> {
        AsyncRange::auto(self, tree, (Bound::Unbounded, Bound::Unbounded)).await
    }

    /// As [`crate::Session::visit`].
    ///
    /// # Errors
    /// As there.
    pub async fn visit(
        &self,
        tree: &Tree,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.take_turn().await;
        visit_auto(self, tree, bounds, direction, visit).await
    }

    /// As [`crate::Session::bulk_load`]. It blocks the thread until the load is durable: other
    /// tasks of the thread wait.
    ///
    /// # Errors
    /// As there.
    pub fn bulk_load<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        tree: &Tree,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Result<u64> {
        bulk_load(self.core(), self.cx(), tree, entries)
    }
}
