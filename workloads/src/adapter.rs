//! The engine as a [`Store`]: the one file that knows both sides.

use std::cell::Cell;
use std::future::Future;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use wattle::{
    AsyncSession, AsyncTransaction, Engine, Error, Session, Ticket, Transaction, Tree, TxnOptions,
};

use wattle_buffer::Pool;

use crate::driver::alarm;
use crate::driver::store::{
    Access, Client, Counters, Direction, Pending, Place, Queue, Stop, Store, StoreResult, Turn,
    Txn, TxnResult,
};

/// An open engine.
pub struct EngineStore {
    engine: Engine,
    pipelined: bool,
}

impl EngineStore {
    /// The store that `engine` has open. `pipelined`: clients go on before a commit is durable.
    pub fn new(engine: Engine, pipelined: bool) -> Self {
        Self { engine, pipelined }
    }
}

/// A session that blocks its thread.
pub struct BlockingClient {
    session: Session,
    pipelined: bool,
    pending: Cell<Option<Ticket>>,
    pool: Arc<Pool>,
}

impl BlockingClient {
    /// Waits for a commit, or leaves that to whoever asks for it.
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

/// The commit of a task, which awaits it.
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

/// A session of one task. Values are read into a buffer of its own, because they may have to be
/// awaited while other tasks of the thread read theirs.
pub struct TaskClient {
    session: AsyncSession,
    pipelined: bool,
    pending: Cell<Option<Ticket>>,
    buffer: Cell<Vec<u8>>,
    pool: Arc<Pool>,
}

impl TaskClient {
    /// Waits for a commit, or leaves that to whoever asks for it.
    #[inline]
    async fn settle(&self, ticket: Ticket) -> Result<(), Error> {
        if self.pipelined {
            self.pending.set(Some(ticket));
            return Ok(());
        }
        // Nothing to wait for: it is not this task's turn to let others run.
        if ticket.is_durable() {
            return Ok(());
        }
        self.session.wait(ticket).await
    }
}

/// A pool whose evictors are at work has fewer free frames than one of this many.
const PAGING_SHARE: usize = 16;

#[inline]
fn is_paging(pool: &Pool) -> bool {
    pool.free_frames() < pool.frames() / PAGING_SHARE
}

impl Store for EngineStore {
    type Table = Tree;
    type Session = BlockingClient;
    type Task = TaskClient;

    fn table_names(&self) -> StoreResult<Vec<String>> {
        Ok(self.engine.trees()?)
    }

    fn table(&self, name: &str) -> StoreResult<Tree> {
        Ok(self.engine.tree(name)?)
    }

    fn session(&self) -> StoreResult<BlockingClient> {
        let (session, pending) = (self.engine.session()?, Cell::new(None));
        let pool = self.engine.pool().clone();
        Ok(BlockingClient { session, pipelined: self.pipelined, pending, pool })
    }

    fn task_clients(&self, tasks: usize) -> StoreResult<Vec<TaskClient>> {
        let session = self.engine.async_session()?;
        let client = |_| TaskClient {
            session: session.clone(),
            pipelined: self.pipelined,
            pending: Cell::new(None),
            buffer: Cell::new(Vec::new()),
            pool: self.engine.pool().clone(),
        };
        Ok((0..tasks).map(client).collect())
    }

    fn run_tasks<F: Future>(&self, in_flight: usize, tasks: F) -> StoreResult<F::Output> {
        Ok(wattle::run(in_flight as u32, tasks)?)
    }

    fn counters(&self) -> Counters {
        let stats = self.engine.stats();
        Counters {
            frames: stats.frames,
            free_frames: stats.free_frames,
            hits: stats.hits,
            faults: stats.faults,
            pages_read: stats.pages_read,
            pages_written: stats.pages_written,
            evictions: stats.evictions,
            evictions_dirty: stats.evictions_dirty,
            evictor_cpu_seconds: stats.evictor_cpu_seconds,
            epochs: stats.epochs,
            restarts: stats.restarts,
            frame_waits: stats.frame_waits,
            log_bytes: stats.log_bytes,
            log_record_bytes: stats.log_record_bytes.saturating_sub(stats.log_image_bytes),
            log_syncs: stats.log_syncs,
            commits: stats.commits,
            checkpoints: stats.checkpoints,
            log_sync_us: stats.log_sync_median_us,
        }
    }

    fn file_bytes(&self) -> u64 {
        self.engine.stats().file_bytes
    }

    fn close(self) -> StoreResult<()> {
        Ok(self.engine.close()?)
    }
}

/// How the engine begins a transaction.
fn options(access: Access) -> TxnOptions {
    TxnOptions { read_only: access == Access::ReadOnly, ..TxnOptions::default() }
}

/// What an error of the engine means for a transaction.
#[cold]
fn stop(error: Error) -> Stop {
    match error {
        Error::Conflict(_) | Error::SnapshotTooOld(_) | Error::MustAbort(_) => Stop::Conflict,
        error => Stop::Failed(error.into()),
    }
}

/// A transaction of a session that blocks its thread.
pub struct BlockingTxn<'a> {
    txn: Transaction<'a>,
    client: &'a BlockingClient,
}

/// A transaction of a task.
pub struct TaskTxn<'a> {
    txn: AsyncTransaction,
    client: &'a TaskClient,
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
        // Workers tell each other which records there are: others see one when it is durable.
        Ok(self.session.insert(tree, key, value)?)
    }

    #[inline]
    async fn put(&self, tree: &Tree, key: &[u8], value: &[u8]) -> StoreResult<()> {
        self.settle(self.session.put_async(tree, key, value)?)
    }

    #[inline]
    async fn update(&self, tree: &Tree, key: &[u8], value: &[u8]) -> StoreResult<bool> {
        let (existed, ticket) = self.session.update_async(tree, key, value)?;
        self.settle(ticket).map(|()| existed)
    }

    #[inline]
    async fn modify(
        &self,
        tree: &Tree,
        key: &[u8],
        change: impl FnMut(&mut [u8]),
    ) -> StoreResult<bool> {
        let (existed, ticket) = self.session.modify_async(tree, key, change)?;
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
        direction: Direction,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> TxnResult<()> {
        let bounds = (Bound::Included(low), Bound::Excluded(high));
        self.txn.visit(tree, bounds, direction, visit).map_err(stop)
    }

    #[inline]
    async fn commit_in_turn(self, turn: &mut Option<Turn<'_>>) -> TxnResult<()> {
        let ticket = self.txn.commit_async().map_err(stop)?;
        *turn = None;
        self.client.settle(ticket).map_err(Stop::Failed)
    }

    async fn abort(self) -> StoreResult<()> {
        Ok(self.txn.abort()?)
    }
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
        // As a blocking client does.
        Ok(self.session.insert(tree, key, value).await?)
    }

    #[inline]
    async fn put(&self, tree: &Tree, key: &[u8], value: &[u8]) -> StoreResult<()> {
        let ticket = self.session.put_async(tree, key, value).await?;
        Ok(self.settle(ticket).await?)
    }

    #[inline]
    async fn update(&self, tree: &Tree, key: &[u8], value: &[u8]) -> StoreResult<bool> {
        let (existed, ticket) = self.session.update_async(tree, key, value).await?;
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
        let (existed, ticket) = self.session.modify_async(tree, key, change).await?;
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
        self.session.scan(tree, bounds, Direction::Forward, visit).await?;
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
        direction: Direction,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> TxnResult<()> {
        let bounds = (Bound::Included(low), Bound::Excluded(high));
        self.txn.scan(tree, bounds, direction, visit).await.map_err(stop)
    }

    #[inline]
    async fn commit_in_turn(self, turn: &mut Option<Turn<'_>>) -> TxnResult<()> {
        let ticket = self.txn.commit_async().await.map_err(stop)?;
        *turn = None;
        self.client.settle(ticket).await.map_err(stop)?;
        // The best moment: no transaction of this task is under way.
        self.client.session.take_turn().await;
        Ok(())
    }

    async fn abort(self) -> StoreResult<()> {
        Ok(self.txn.abort().await?)
    }
}
