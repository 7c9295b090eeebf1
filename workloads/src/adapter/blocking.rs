//! The client of a thread without tasks: its calls block the thread.

use std::cell::Cell;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use wattle::{Session, Ticket, Transaction, Tree};
use wattle_buffer::Pool;

use super::convert::{direction, is_paging, options, stop};
use crate::driver::store::{
    Access, Client, Direction, Pending, Place, Queue, Stop, StoreResult, Turn, Txn, TxnResult,
};

/// A session that blocks its thread.
pub struct BlockingClient {
    session: Session,
    pipelined: bool,
    pending: Cell<Option<Ticket>>,
    pool: Arc<Pool>,
}

impl BlockingClient {
    /// A client of `session`, on `pool`. `pipelined`: it goes on before a commit is durable.
    pub(super) fn new(session: Session, pool: Arc<Pool>, pipelined: bool) -> Self {
        Self { session, pipelined, pending: Cell::new(None), pool }
    }

    /// Waits for a commit; a pipelined client keeps it for [`Client::take_pending`] instead.
    #[inline]
    fn settle(&self, ticket: Ticket) -> StoreResult<()> {
        if self.pipelined {
            self.pending.set(Some(ticket));
            return Ok(());
        }
        Ok(ticket.wait()?)
    }
}

impl Pending for Ticket {
    #[inline]
    fn is_durable(&self) -> bool {
        Ticket::is_durable(self)
    }

    async fn wait(self) -> StoreResult<()> {
        Ok(Ticket::wait(self)?)
    }
}

/// A transaction of a session that blocks its thread.
pub struct BlockingTxn<'a> {
    txn: Transaction<'a>,
    client: &'a BlockingClient,
}

impl Client for BlockingClient {
    type Table = Tree;
    type Pending = Ticket;
    type Txn<'a> = BlockingTxn<'a>;

    #[inline]
    async fn begin(&self, access: Access) -> StoreResult<BlockingTxn<'_>> {
        Ok(BlockingTxn { txn: self.session.begin_with(options(access))?, client: self })
    }

    #[inline]
    fn take_pending(&self) -> Option<Ticket> {
        self.pending.take().filter(|ticket| !ticket.is_durable())
    }

    #[inline]
    async fn read<R>(
        &self,
        tree: &Tree,
        key: &[u8],
        look: impl FnOnce(&[u8]) -> R,
    ) -> StoreResult<Option<R>> {
        Ok(self.session.get_with(tree, key, look)?)
    }

    #[inline]
    async fn insert(&self, tree: &Tree, key: &[u8], value: &[u8]) -> StoreResult<()> {
        // The insert waits until it is durable, because other workers then read the record.
        Ok(self.session.insert(tree, key, value)?)
    }

    #[inline]
    async fn put(&self, tree: &Tree, key: &[u8], value: &[u8]) -> StoreResult<()> {
        self.settle(self.session.put_ticket(tree, key, value)?)
    }

    #[inline]
    async fn update(&self, tree: &Tree, key: &[u8], value: &[u8]) -> StoreResult<bool> {
        let (existed, ticket) = self.session.update_ticket(tree, key, value)?;
        self.settle(ticket).map(|()| existed)
    }

    #[inline]
    async fn modify(
        &self,
        tree: &Tree,
        key: &[u8],
        change: impl FnMut(&mut [u8]),
    ) -> StoreResult<bool> {
        let (existed, ticket) = self.session.modify_ticket(tree, key, change)?;
        self.settle(ticket).map(|()| existed)
    }

    async fn scan(
        &self,
        tree: &Tree,
        start: &[u8],
        limit: usize,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> StoreResult<usize> {
        let mut records = self.session.range(tree, start..)?;
        let mut found = 0;
        while found < limit {
            let Some((key, value)) = records.next_entry()? else { break };
            visit(key, value);
            found += 1;
        }
        Ok(found)
    }

    fn is_paging(&self) -> bool {
        is_paging(&self.pool)
    }

    async fn pause(&self) {
        std::thread::yield_now();
    }

    async fn enter<'q>(&self, queue: &'q Queue) -> Place<'q> {
        queue.blocking_enter()
    }

    async fn turn<'q>(&self, place: Place<'q>) -> Turn<'q> {
        place.blocking_turn()
    }
}

impl Txn for BlockingTxn<'_> {
    type Table = Tree;

    #[inline]
    async fn read<R>(
        &self,
        tree: &Tree,
        key: &[u8],
        look: impl FnOnce(&[u8]) -> R,
    ) -> TxnResult<Option<R>> {
        self.txn.get_with(tree, key, look).map_err(stop)
    }

    #[inline]
    async fn read_many<K: AsRef<[u8]>>(
        &self,
        tree: &Tree,
        keys: &[K],
        look: impl FnMut(usize, Option<&[u8]>),
    ) -> TxnResult<()> {
        self.txn.multi_get(tree, keys, look).map_err(stop)
    }

    #[inline]
    async fn prefetch<K: AsRef<[u8]>>(&self, pairs: &[(&Tree, K)]) -> TxnResult<()> {
        self.txn.prefetch(pairs).map_err(stop)
    }

    #[inline]
    async fn insert(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> TxnResult<()> {
        self.txn.insert(tree, key, value).map_err(stop)
    }

    #[inline]
    async fn put(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> TxnResult<()> {
        self.txn.put(tree, key, value).map_err(stop)
    }

    #[inline]
    async fn update(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> TxnResult<bool> {
        self.txn.update(tree, key, value).map_err(stop)
    }

    #[inline]
    async fn modify(
        &mut self,
        tree: &Tree,
        key: &[u8],
        change: impl FnMut(&mut [u8]),
    ) -> TxnResult<bool> {
        self.txn.modify(tree, key, change).map_err(stop)
    }

    #[inline]
    async fn insert_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        tree: &Tree,
        pairs: &[(K, V)],
    ) -> TxnResult<()> {
        self.txn.insert_many(tree, pairs).map_err(stop)
    }

    #[inline]
    async fn modify_many<K: AsRef<[u8]>>(
        &mut self,
        tree: &Tree,
        keys: &[K],
        change: impl FnMut(usize, &mut [u8]),
    ) -> TxnResult<usize> {
        self.txn.modify_many(tree, keys, change).map_err(stop)
    }

    #[inline]
    async fn remove(&mut self, tree: &Tree, key: &[u8]) -> TxnResult<bool> {
        self.txn.remove(tree, key).map_err(stop)
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
        self.txn.visit(tree, bounds, direction(order), visit).map_err(stop)
    }

    #[inline]
    async fn commit_in_turn(self, turn: &mut Option<Turn<'_>>) -> TxnResult<()> {
        let ticket = self.txn.commit_ticket().map_err(stop)?;
        *turn = None;
        self.client.settle(ticket).map_err(Stop::Failed)
    }

    async fn abort(self) -> StoreResult<()> {
        Ok(self.txn.abort()?)
    }
}
