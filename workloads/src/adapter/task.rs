//! The client of one task: its calls let the other tasks of the thread run while they wait.

use std::cell::Cell;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use wattle::{AsyncSession, AsyncTransaction, Error, Ticket, Tree};
use wattle_buffer::Pool;

use super::convert::{direction, is_paging, options, stop};
use crate::driver::alarm;
use crate::driver::store::{
    Access, Client, Direction, Pending, Place, Queue, StoreResult, Turn, Txn, TxnResult,
};

/// A commit that a task awaits.
pub struct TaskCommit(Ticket);

impl Pending for TaskCommit {
    #[inline]
    fn is_durable(&self) -> bool {
        self.0.is_durable()
    }

    async fn wait(self) -> StoreResult<()> {
        Ok(self.0.await?)
    }
}

/// A session of one task. It reads values into its own buffer, because other tasks of the thread
/// may read while it waits.
pub struct TaskClient {
    session: AsyncSession,
    pipelined: bool,
    pending: Cell<Option<Ticket>>,
    buffer: Cell<Vec<u8>>,
    pool: Arc<Pool>,
}

impl TaskClient {
    /// A client of `session`, on `pool`. `pipelined`: it goes on before a commit is durable.
    pub(super) fn new(session: AsyncSession, pool: Arc<Pool>, pipelined: bool) -> Self {
        let (pending, buffer) = (Cell::new(None), Cell::new(Vec::new()));
        Self { session, pipelined, pending, buffer, pool }
    }

    /// Waits for a commit; a pipelined client keeps it for [`Client::take_pending`] instead.
    #[inline]
    async fn settle(&self, ticket: Ticket) -> Result<(), Error> {
        if self.pipelined {
            self.pending.set(Some(ticket));
            return Ok(());
        }
        // A durable commit needs no wait, so the task need not yield.
        if ticket.is_durable() {
            return Ok(());
        }
        self.session.wait(ticket).await
    }
}

/// A transaction of a task.
pub struct TaskTxn<'a> {
    txn: AsyncTransaction,
    client: &'a TaskClient,
}

impl Client for TaskClient {
    type Table = Tree;
    type Pending = TaskCommit;
    type Txn<'a> = TaskTxn<'a>;

    #[inline]
    async fn begin(&self, access: Access) -> StoreResult<TaskTxn<'_>> {
        Ok(TaskTxn { txn: self.session.begin_with(options(access))?, client: self })
    }

    #[inline]
    fn take_pending(&self) -> Option<TaskCommit> {
        self.pending.take().filter(|ticket| !ticket.is_durable()).map(TaskCommit)
    }

    #[inline]
    async fn read<R>(
        &self,
        tree: &Tree,
        key: &[u8],
        look: impl FnOnce(&[u8]) -> R,
    ) -> StoreResult<Option<R>> {
        let mut buffer = self.buffer.take();
        let found = self.session.get_into(tree, key, &mut buffer).await?;
        let seen = found.then(|| look(&buffer));
        self.buffer.set(buffer);
        Ok(seen)
    }

    #[inline]
    async fn insert(&self, tree: &Tree, key: &[u8], value: &[u8]) -> StoreResult<()> {
        // The insert waits until it is durable, because other workers then read the record.
        Ok(self.session.insert(tree, key, value).await?)
    }

    #[inline]
    async fn put(&self, tree: &Tree, key: &[u8], value: &[u8]) -> StoreResult<()> {
        let ticket = self.session.put_ticket(tree, key, value).await?;
        Ok(self.settle(ticket).await?)
    }

    #[inline]
    async fn update(&self, tree: &Tree, key: &[u8], value: &[u8]) -> StoreResult<bool> {
        let (existed, ticket) = self.session.update_ticket(tree, key, value).await?;
        self.settle(ticket).await?;
        Ok(existed)
    }

    #[inline]
    async fn modify(
        &self,
        tree: &Tree,
        key: &[u8],
        change: impl FnMut(&mut [u8]),
    ) -> StoreResult<bool> {
        let (existed, ticket) = self.session.modify_ticket(tree, key, change).await?;
        self.settle(ticket).await?;
        Ok(existed)
    }

    async fn scan(
        &self,
        tree: &Tree,
        start: &[u8],
        limit: usize,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> StoreResult<usize> {
        if limit == 0 {
            return Ok(0);
        }
        let bounds = (Bound::Included(start), Bound::Unbounded);
        let mut found = 0;
        let visit = |key: &[u8], value: &[u8]| {
            visit(key, value);
            found += 1;
            if found < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        self.session.visit(tree, bounds, direction(Direction::Forward), visit).await?;
        Ok(found)
    }

    fn is_paging(&self) -> bool {
        is_paging(&self.pool)
    }

    async fn pause(&self) {
        alarm::pause().await;
    }

    async fn enter<'q>(&self, queue: &'q Queue) -> Place<'q> {
        queue.enter().await
    }

    async fn turn<'q>(&self, place: Place<'q>) -> Turn<'q> {
        place.turn().await
    }
}

impl Txn for TaskTxn<'_> {
    type Table = Tree;

    #[inline]
    async fn read<R>(
        &self,
        tree: &Tree,
        key: &[u8],
        look: impl FnOnce(&[u8]) -> R,
    ) -> TxnResult<Option<R>> {
        let mut buffer = self.client.buffer.take();
        let found = self.txn.get_into(tree, key, &mut buffer).await;
        let seen = found.map(|found| found.then(|| look(&buffer)));
        self.client.buffer.set(buffer);
        seen.map_err(stop)
    }

    #[inline]
    async fn read_many<K: AsRef<[u8]>>(
        &self,
        tree: &Tree,
        keys: &[K],
        look: impl FnMut(usize, Option<&[u8]>),
    ) -> TxnResult<()> {
        self.txn.multi_get(tree, keys, look).await.map_err(stop)
    }

    #[inline]
    async fn prefetch<K: AsRef<[u8]>>(&self, pairs: &[(&Tree, K)]) -> TxnResult<()> {
        self.txn.prefetch(pairs).await.map_err(stop)
    }

    #[inline]
    async fn insert(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> TxnResult<()> {
        self.txn.insert(tree, key, value).await.map_err(stop)
    }

    #[inline]
    async fn put(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> TxnResult<()> {
        self.txn.put(tree, key, value).await.map_err(stop)
    }

    #[inline]
    async fn update(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> TxnResult<bool> {
        self.txn.update(tree, key, value).await.map_err(stop)
    }

    #[inline]
    async fn modify(
        &mut self,
        tree: &Tree,
        key: &[u8],
        change: impl FnMut(&mut [u8]),
    ) -> TxnResult<bool> {
        self.txn.modify(tree, key, change).await.map_err(stop)
    }

    #[inline]
    async fn insert_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        tree: &Tree,
        pairs: &[(K, V)],
    ) -> TxnResult<()> {
        self.txn.insert_many(tree, pairs).await.map_err(stop)
    }

    #[inline]
    async fn modify_many<K: AsRef<[u8]>>(
        &mut self,
        tree: &Tree,
        keys: &[K],
        change: impl FnMut(usize, &mut [u8]),
    ) -> TxnResult<usize> {
        self.txn.modify_many(tree, keys, change).await.map_err(stop)
    }

    #[inline]
    async fn remove(&mut self, tree: &Tree, key: &[u8]) -> TxnResult<bool> {
        self.txn.remove(tree, key).await.map_err(stop)
    }

    #[inline]
    async fn scan(
        &self,
        tree: &Tree,
        low: &[u8],
        high: &[u8],
        order: Direction,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> TxnResult<()> {
        let bounds = (Bound::Included(low), Bound::Excluded(high));
        self.txn.visit(tree, bounds, direction(order), visit).await.map_err(stop)
    }

    #[inline]
    async fn commit_in_turn(self, turn: &mut Option<Turn<'_>>) -> TxnResult<()> {
        let ticket = self.txn.commit_ticket().await.map_err(stop)?;
        *turn = None;
        self.client.settle(ticket).await.map_err(stop)?;
        // The best point to yield: this task has no open transaction.
        self.client.session.take_turn().await;
        Ok(())
    }

    async fn abort(self) -> StoreResult<()> {
        Ok(self.txn.abort().await?)
    }
}
