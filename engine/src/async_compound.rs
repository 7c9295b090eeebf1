//! The operations of `compound.rs` and `value_reader.rs` for asynchronous sessions and
//! transactions.

use crate::{
    async_transaction::AsyncTransaction,
    key_interval::KeyInterval,
    op::{
        delete::{delete_range_auto, delete_range_in},
        ends::{end_auto, end_in, pop_auto, pop_in},
        extent::{RangeEstimate, approximate_range},
        part::{Bytes, Length, get_part, get_part_in},
        update::{CompareFailed, fetch_update_auto, fetch_update_in, swap_auto, swap_in},
    },
    session::{resolve::Resolve, tasks::AsyncSession},
    tree::Tree,
};
use std::ops::RangeBounds;
use wattle_btree::Direction;
use wattle_buffer::Result;

/// A key and its value.
type Record = (Vec<u8>, Vec<u8>);

impl AsyncSession {
    /// As [`crate::Session::first`].
    ///
    /// # Errors
    /// As there.
    pub async fn first(&self, tree: &Tree) -> Result<Option<Record>> {
        self.take_turn().await;
        end_auto(self, tree, Direction::Forward).await
    }

    /// As [`crate::Session::last`].
    ///
    /// # Errors
    /// As there.
    pub async fn last(&self, tree: &Tree) -> Result<Option<Record>> {
        self.take_turn().await;
        end_auto(self, tree, Direction::Backward).await
    }

    /// As [`crate::Session::pop_first`].
    ///
    /// ```
    /// # use wattle::{Engine, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// # let tree = engine.tree("t")?;
    /// # wattle::run(8, async {
    /// let session = engine.async_session()?;
    /// session.put(&tree, b"job", b"x").await?;
    /// assert_eq!(session.pop_first(&tree).await?, Some((b"job".to_vec(), b"x".to_vec())));
    /// # Ok::<(), wattle::Error>(())
    /// # })??;
    /// # Ok::<(), wattle::Error>(())
    /// ```
    ///
    /// # Errors
    /// As there.
    pub async fn pop_first(&self, tree: &Tree) -> Result<Option<Record>> {
        self.pop(tree, Direction::Forward).await
    }

    /// As [`crate::Session::pop_last`].
    ///
    /// # Errors
    /// As there.
    pub async fn pop_last(&self, tree: &Tree) -> Result<Option<Record>> {
        self.pop(tree, Direction::Backward).await
    }

    async fn pop(&self, tree: &Tree, direction: Direction) -> Result<Option<Record>> {
        self.take_turn().await;
        let (popped, ticket) = pop_auto(self, tree, direction).await?;
        self.wait_ticket(ticket).await.map(|()| popped)
    }

    /// As [`crate::Session::delete_range`].
    ///
    /// # Errors
    /// As there.
    pub async fn delete_range(&self, tree: &Tree, range: impl KeyInterval) -> Result<u64> {
        self.take_turn().await;
        let (removed, ticket) = delete_range_auto(self, tree, range.key_bounds()).await?;
        self.wait_ticket(ticket).await.map(|()| removed)
    }

    /// As [`crate::Session::clear`].
    ///
    /// # Errors
    /// As there.
    pub async fn clear(&self, tree: &Tree) -> Result<u64> {
        self.delete_range(tree, ..).await
    }

    /// As [`crate::Session::compare_and_swap`].
    ///
    /// # Errors
    /// As there.
    pub async fn compare_and_swap(
        &self,
        tree: &Tree,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Result<(), CompareFailed>> {
        self.take_turn().await;
        let (swapped, ticket) = swap_auto(self, tree, key, expected, new).await?;
        self.wait_ticket(ticket).await.map(|()| swapped)
    }

    /// As [`crate::Session::fetch_update`].
    ///
    /// # Errors
    /// As there.
    pub async fn fetch_update(
        &self,
        tree: &Tree,
        key: &[u8],
        mut update: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>> {
        self.take_turn().await;
        let (before, ticket) =
            fetch_update_auto(self, tree, key, &mut |value| Ok(update(value))).await?;
        self.wait_ticket(ticket).await.map(|()| before)
    }

    /// As [`crate::Session::get_many`].
    ///
    /// # Errors
    /// As there.
    pub async fn get_many<K: AsRef<[u8]>>(
        &self,
        tree: &Tree,
        keys: &[K],
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let mut values = vec![None; keys.len()];
        self.multi_get(tree, keys, |at, value| values[at] = value.map(<[u8]>::to_vec)).await?;
        Ok(values)
    }

    /// As [`crate::Session::get_range`].
    ///
    /// # Errors
    /// As there.
    pub async fn get_range(
        &self,
        tree: &Tree,
        key: &[u8],
        range: impl RangeBounds<u64>,
    ) -> Result<Option<Vec<u8>>> {
        self.take_turn().await;
        let (mut bytes, mut value) = (Bytes::of(&range), Vec::new());
        let found = get_part(self, tree, key, &mut bytes, &mut value).await?;
        Ok(found.then_some(value))
    }

    /// As [`crate::Session::value_len`].
    ///
    /// # Errors
    /// As there.
    pub async fn value_len(&self, tree: &Tree, key: &[u8]) -> Result<Option<u64>> {
        self.take_turn().await;
        let mut len = Length::default();
        let found = get_part(self, tree, key, &mut len, &mut Vec::new()).await?;
        Ok(found.then_some(len.0))
    }

    /// As [`crate::Session::approximate_range`].
    ///
    /// ```
    /// # use wattle::{Engine, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// # let tree = engine.tree("t")?;
    /// # wattle::run(8, async {
    /// let session = engine.async_session()?;
    /// session.put(&tree, b"a", b"").await?;
    /// assert_eq!(session.approximate_range(&tree, ..).await?.records, Some(1));
    /// # Ok::<(), wattle::Error>(())
    /// # })??;
    /// # Ok::<(), wattle::Error>(())
    /// ```
    ///
    /// # Errors
    /// As there.
    pub async fn approximate_range(
        &self,
        tree: &Tree,
        range: impl KeyInterval,
    ) -> Result<RangeEstimate> {
        self.take_turn().await;
        approximate_range(self, tree, range.key_bounds()).await
    }
}

impl AsyncTransaction {
    /// As [`crate::Transaction::first`].
    ///
    /// # Errors
    /// As there.
    pub async fn first(&self, tree: &Tree) -> Result<Option<Record>> {
        let (session, txn) = self.reading().await;
        end_in(session, txn, tree, Direction::Forward).await
    }

    /// As [`crate::Transaction::last`].
    ///
    /// # Errors
    /// As there.
    pub async fn last(&self, tree: &Tree) -> Result<Option<Record>> {
        let (session, txn) = self.reading().await;
        end_in(session, txn, tree, Direction::Backward).await
    }

    /// As [`crate::Transaction::pop_first`].
    ///
    /// # Errors
    /// As there.
    pub async fn pop_first(&mut self, tree: &Tree) -> Result<Option<Record>> {
        let (session, txn) = self.changing().await;
        pop_in(session, txn, tree, Direction::Forward).await
    }

    /// As [`crate::Transaction::pop_last`].
    ///
    /// # Errors
    /// As there.
    pub async fn pop_last(&mut self, tree: &Tree) -> Result<Option<Record>> {
        let (session, txn) = self.changing().await;
        pop_in(session, txn, tree, Direction::Backward).await
    }

    /// As [`crate::Transaction::delete_range`].
    ///
    /// # Errors
    /// As there.
    pub async fn delete_range(&mut self, tree: &Tree, range: impl KeyInterval) -> Result<u64> {
        let (session, txn) = self.changing().await;
        delete_range_in(session, txn, tree, range.key_bounds()).await
    }

    /// As [`crate::Transaction::clear`].
    ///
    /// # Errors
    /// As there.
    pub async fn clear(&mut self, tree: &Tree) -> Result<u64> {
        self.delete_range(tree, ..).await
    }

    /// As [`crate::Transaction::compare_and_swap`].
    ///
    /// # Errors
    /// As there.
    pub async fn compare_and_swap(
        &mut self,
        tree: &Tree,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Result<(), CompareFailed>> {
        let (session, txn) = self.changing().await;
        swap_in(session, txn, tree, key, expected, new).await
    }

    /// As [`crate::Transaction::fetch_update`].
    ///
    /// # Errors
    /// As there.
    pub async fn fetch_update(
        &mut self,
        tree: &Tree,
        key: &[u8],
        mut update: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>> {
        let (session, txn) = self.changing().await;
        fetch_update_in(session, txn, tree, key, &mut |value| Ok(update(value))).await
    }

    /// As [`crate::Transaction::get_many`].
    ///
    /// # Errors
    /// As there.
    pub async fn get_many<K: AsRef<[u8]>>(
        &self,
        tree: &Tree,
        keys: &[K],
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let mut values = vec![None; keys.len()];
        self.multi_get(tree, keys, |at, value| values[at] = value.map(<[u8]>::to_vec)).await?;
        Ok(values)
    }

    /// As [`crate::Session::get_range`]. Several calls in one transaction read one version of the
    /// value.
    ///
    /// # Errors
    /// As [`crate::Transaction::get`].
    pub async fn get_range(
        &self,
        tree: &Tree,
        key: &[u8],
        range: impl RangeBounds<u64>,
    ) -> Result<Option<Vec<u8>>> {
        let (session, txn) = self.reading().await;
        let (mut bytes, mut value) = (Bytes::of(&range), Vec::new());
        let found = get_part_in(session, txn, tree, key, &mut bytes, &mut value).await?;
        Ok(found.then_some(value))
    }

    /// As [`crate::Session::value_len`].
    ///
    /// # Errors
    /// As [`crate::Transaction::get`].
    pub async fn value_len(&self, tree: &Tree, key: &[u8]) -> Result<Option<u64>> {
        let (session, txn) = self.reading().await;
        let mut len = Length::default();
        let found = get_part_in(session, txn, tree, key, &mut len, &mut Vec::new()).await?;
        Ok(found.then_some(len.0))
    }

    /// As [`crate::Transaction::approximate_range`].
    ///
    /// # Errors
    /// As there.
    pub async fn approximate_range(
        &self,
        tree: &Tree,
        range: impl KeyInterval,
    ) -> Result<RangeEstimate> {
        let (session, txn) = self.reading().await;
        txn.check()?;
        approximate_range(session, tree, range.key_bounds()).await
    }
}
