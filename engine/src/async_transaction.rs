//! Asynchronous transactions of several operations.

use crate::{
    async_range::AsyncRange,
    key_interval::KeyInterval,
    op::{
        many, read,
        visit::visit_in,
        whole,
        write::{ModifyRecord, WriteRecord, drive, remove_in},
    },
    range::borrowed,
    session::{
        resolve::OwnsState,
        tasks::{AsyncSession, LONG_TURN, TURN},
    },
    tree::Tree,
    txn::{Begun, BoxedTxn, Savepoint, Ticket, Txn, savepoint},
};
use std::ops::{Bound, ControlFlow};
use wattle_btree::{Direction, Mode, prefix_range};
use wattle_buffer::Result;

/// An asynchronous transaction; see [`crate::Transaction`]. Dropped without a commit it is rolled
/// back in the background. It is neither `Send` nor `Sync`. An operation whose future is leaked
/// half way (`std::mem::forget`) leaves a transaction that can only be aborted.
pub struct AsyncTransaction {
    txn: Option<BoxedTxn>,
    session: AsyncSession,
}

impl AsyncTransaction {
    pub(crate) fn new(session: AsyncSession, txn: BoxedTxn) -> AsyncTransaction {
        AsyncTransaction { txn: Some(txn), session }
    }

    fn txn(&self) -> &Txn {
        self.txn.as_ref().expect("not ended")
    }

    /// As that of [`crate::Transaction`].
    pub(crate) fn is_in_conflict(&self) -> bool {
        self.txn().is_in_conflict()
    }

    async fn take_turn(&self) {
        let may_change = !self.txn().options.read_only;
        self.session.end_turn_after(if may_change { LONG_TURN } else { TURN }).await;
    }

    fn parts(&mut self) -> (&AsyncSession, &mut Txn) {
        (&self.session, self.txn.as_mut().expect("not ended"))
    }

    /// Takes a turn; gives session and transaction, to read.
    pub(crate) async fn reading(&self) -> (&AsyncSession, &Txn) {
        self.take_turn().await;
        (&self.session, self.txn())
    }

    /// As [`AsyncTransaction::reading`], to change something.
    pub(crate) async fn changing(&mut self) -> (&AsyncSession, &mut Txn) {
        self.take_turn().await;
        self.parts()
    }

    async fn write(&mut self, tree: &Tree, key: &[u8], value: &[u8], mode: Mode) -> Result<bool> {
        self.take_turn().await;
        let (session, txn) = self.parts();
        drive(session, txn, WriteRecord { tree, key, value, mode }).await
    }

    /// As [`crate::Transaction::insert`].
    ///
    /// # Errors
    /// As there.
    pub async fn insert(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(tree, key, value, Mode::Insert).await.map(|_| ())
    }

    /// As [`crate::Transaction::put`].
    ///
    /// # Errors
    /// As there.
    pub async fn put(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(tree, key, value, Mode::Put).await.map(|_| ())
    }

    /// As [`crate::Transaction::update`].
    ///
    /// # Errors
    /// As there.
    pub async fn update(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<bool> {
        self.write(tree, key, value, Mode::Update).await
    }

    /// As [`crate::Transaction::modify`].
    ///
    /// # Errors
    /// As there.
    pub async fn modify(
        &mut self,
        tree: &Tree,
        key: &[u8],
        mut change: impl FnMut(&mut [u8]),
    ) -> Result<bool> {
        self.take_turn().await;
        let (session, txn) = self.parts();
        let change = &mut |_: usize, value: &mut [u8]| change(value);
        let mut buffer = session.state().take_buffer();
        let one = ModifyRecord { tree, key, buffer: &mut buffer, change };
        let found = drive(session, txn, one).await;
        session.state().give_buffer(buffer);
        found
    }

    /// As [`crate::Transaction::insert_many`].
    ///
    /// # Errors
    /// As there.
    pub async fn insert_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        tree: &Tree,
        records: &[(K, V)],
    ) -> Result<()> {
        self.take_turn().await;
        let (session, txn) = self.parts();
        many::insert_many(session, txn, tree, records).await
    }

    /// As [`crate::Transaction::put_many`].
    ///
    /// # Errors
    /// As there.
    pub async fn put_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        tree: &Tree,
        records: &[(K, V)],
    ) -> Result<()> {
        self.take_turn().await;
        let (session, txn) = self.parts();
        many::put_many(session, txn, tree, records).await
    }

    /// As [`crate::Transaction::remove_many`].
    ///
    /// # Errors
    /// As there.
    pub async fn remove_many<K: AsRef<[u8]>>(&mut self, tree: &Tree, keys: &[K]) -> Result<usize> {
        self.take_turn().await;
        let (session, txn) = self.parts();
        many::remove_many(session, txn, tree, keys).await
    }

    /// As [`crate::Transaction::modify_many`].
    ///
    /// # Errors
    /// As there.
    pub async fn modify_many<K: AsRef<[u8]>>(
        &mut self,
        tree: &Tree,
        keys: &[K],
        mut change: impl FnMut(usize, &mut [u8]),
    ) -> Result<usize> {
        self.take_turn().await;
        let (session, txn) = self.parts();
        let mut buffer = session.state().take_buffer();
        let found = many::modify_many(session, txn, tree, keys, &mut buffer, &mut change).await;
        session.state().give_buffer(buffer);
        found
    }

    /// As [`crate::Transaction::remove`].
    ///
    /// # Errors
    /// As there.
    pub async fn remove(&mut self, tree: &Tree, key: &[u8]) -> Result<bool> {
        self.take_turn().await;
        let (session, txn) = self.parts();
        remove_in(session, txn, tree, key).await
    }

    /// As [`crate::Transaction::get`].
    ///
    /// # Errors
    /// As there.
    pub async fn get(&self, tree: &Tree, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(tree, key, &mut value).await?.then_some(value))
    }

    /// Replaces `value` by the value of a key; false when there is no such key.
    ///
    /// # Errors
    /// As [`crate::Transaction::get`].
    pub async fn get_into(&self, tree: &Tree, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.take_turn().await;
        value.clear();
        read::get_in(&self.session, self.txn(), tree, key, value).await
    }

    /// As [`crate::Transaction::multi_get`].
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
        read::multi_get_in(&self.session, self.txn(), tree, keys, &mut Vec::new(), read).await
    }

    /// As [`crate::Transaction::prefetch`].
    ///
    /// # Errors
    /// As there.
    pub async fn prefetch<K: AsRef<[u8]>>(&self, records: &[(&Tree, K)]) -> Result<()> {
        self.take_turn().await;
        read::prefetch(&self.session, records).await
    }

    /// As [`crate::Transaction::contains`].
    ///
    /// # Errors
    /// As there.
    pub async fn contains(&self, tree: &Tree, key: &[u8]) -> Result<bool> {
        self.take_turn().await;
        let mut buffer = self.session.state().take_buffer();
        let found = read::get_in(&self.session, self.txn(), tree, key, &mut buffer).await;
        self.session.state().give_buffer(buffer);
        found
    }

    /// As [`crate::Transaction::range`].
    ///
    /// # Errors
    /// As there.
    pub fn range<'t>(&'t self, tree: &'t Tree, range: impl KeyInterval) -> Result<AsyncRange<'t>> {
        AsyncRange::in_txn(&self.session, self.txn(), tree, range.key_bounds())
    }

    /// As [`crate::Transaction::prefix`].
    ///
    /// # Errors
    /// As there.
    pub fn prefix<'t>(&'t self, tree: &'t Tree, prefix: &[u8]) -> Result<AsyncRange<'t>> {
        AsyncRange::in_txn(&self.session, self.txn(), tree, borrowed(&prefix_range(prefix)))
    }

    /// As [`crate::Transaction::scan`].
    ///
    /// # Errors
    /// As there.
    pub fn scan<'t>(&'t self, tree: &'t Tree) -> Result<AsyncRange<'t>> {
        AsyncRange::in_txn(&self.session, self.txn(), tree, (Bound::Unbounded, Bound::Unbounded))
    }

    /// As [`crate::Transaction::visit`].
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
        visit_in(&self.session, self.txn(), tree, bounds, direction, visit).await
    }

    /// As [`crate::Transaction::savepoint`].
    pub fn savepoint(&self) -> Savepoint {
        savepoint(self.txn())
    }

    /// As [`crate::Transaction::rollback_to`].
    ///
    /// # Errors
    /// As there.
    pub async fn rollback_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        let (session, txn) = self.parts();
        whole::rollback_to(session, txn, savepoint).await
    }

    /// As [`crate::Transaction::commit`].
    ///
    /// # Errors
    /// As there.
    pub async fn commit(self) -> Result<()> {
        let session = self.session.clone();
        let ticket = self.commit_ticket().await?;
        session.wait(ticket).await
    }

    /// As [`crate::Transaction::commit_ticket`].
    ///
    /// # Errors
    /// As there.
    pub async fn commit_ticket(mut self) -> Result<Ticket> {
        let txn = self.txn.take().expect("not ended");
        Begun::resume(&self.session, txn).commit().await
    }

    /// As [`crate::Transaction::abort`].
    ///
    /// # Errors
    /// As there.
    pub async fn abort(mut self) -> Result<()> {
        let txn = self.txn.take().expect("not ended");
        Begun::resume(&self.session, txn).abort().await?;
        self.session.take_turn().await;
        Ok(())
    }
}

impl Drop for AsyncTransaction {
    fn drop(&mut self) {
        if let Some(txn) = self.txn.take() {
            drop(Begun::resume(&self.session, txn));
        }
    }
}
