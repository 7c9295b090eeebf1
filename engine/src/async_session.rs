//! Asynchronous sessions: operations that give the thread to other tasks while they wait for a
//! page. With the back end `uring` run them inside [`run`], one runtime for each thread; with the
//! others any executor will do.

use crate::{
    core::Core,
    handle::Grip,
    mvcc::OwnedVersion,
    op::{
        auto, many, read,
        visit::{visit_alone, visit_in},
        whole, write,
    },
    session::{resolve::Resolve, state::SessionState},
    tree::Tree,
    txn::{Begun, BoxedTxn, LogHandle, Savepoint, Ticket, Txn, TxnOptions, savepoint},
};
use std::{
    cell::Cell,
    future::Future,
    io,
    ops::{Bound, ControlFlow},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use wattle_btree::{Context, Cursor, Direction, Journal, Mode};
use wattle_buffer::{
    Error, Fault, Result,
    io::{breathe, start_runtime},
};

/// Operations that found everything resident after which a task lets the others run.
const TURN: u32 = 32;
/// The same in the middle of a transaction that may change something: all others that want to change the
/// same would fail meanwhile, or it would, as soon as they did. It lets the others run when it has ended.
const LONG_TURN: u32 = 512;
/// Times that a task that waits for another transaction only lets the other tasks run.
const BREATHS: u32 = 8;
/// The time that it waits after that, each time. Shorter ones the keeper does not tell apart.
const PAUSE: Duration = Duration::from_millis(1);

/// An asynchronous session. Clones share one worker and serve the tasks of one thread: it is neither `Send`
/// nor `Sync`, and neither are its transactions and futures.
#[derive(Clone)]
pub struct AsyncSession {
    shared: Rc<Shared>,
}

struct Shared {
    state: Option<Box<SessionState>>,
    core: Grip,
    /// Operations since a task last waited.
    turn: Cell<u32>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(state) = self.state.take() {
            self.core.keep_idle(state);
        }
    }
}

impl Resolve for AsyncSession {
    #[inline(always)]
    fn core(&self) -> &Core {
        &self.shared.core
    }
    #[inline(always)]
    fn cx(&self) -> &Context {
        &self.state().cx
    }
    async fn resolve(&self, fault: Fault) -> Result<()> {
        self.shared.turn.set(0);
        self.cx().worker.resolve_async(fault).await
    }
    async fn resolve_all(&self, faults: Vec<Fault>) -> Result<()> {
        self.shared.turn.set(0);
        self.cx().worker.resolve_all_async(faults).await
    }
    async fn wait_log(&self, since: &mut Option<u64>) -> Result<()> {
        self.shared.turn.set(0);
        match &self.cx().journal {
            Journal::On(log, _) => log.next_flush(since).await,
            Journal::Off => Ok(()),
        }
    }
    async fn wait_ticket(&self, ticket: Ticket) -> Result<()> {
        if !ticket.is_durable() {
            self.shared.turn.set(0);
        }
        ticket.await
    }
    async fn pause(&self, turn: u32) {
        match turn {
            0..BREATHS => breathe().await,
            _ => self.system().keeper.sleep(PAUSE).await,
        }
    }
    async fn sleep(&self, time: Duration) {
        match time < PAUSE {
            true => breathe().await,
            false => self.system().keeper.sleep(time).await,
        }
    }
    async fn next_turn(&self) {
        self.end_turn_after(LONG_TURN).await;
    }
    fn log(&self) -> Option<&Arc<LogHandle>> {
        self.state().log.as_ref()
    }
    fn own(&self) -> u64 {
        self.state().own()
    }
    fn committed(&self, time: u64, stored: &[OwnedVersion]) {
        self.state().committed(&self.shared.core.txns, time, stored);
    }
    fn take_idle(&self) -> BoxedTxn {
        self.state().take_idle(&self.shared.core.txns)
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

impl AsyncSession {
    pub(crate) fn new(core: Grip) -> AsyncSession {
        let idle = core.idle.lock().pop();
        let state = idle.unwrap_or_else(|| Box::new(SessionState::new(&core.txns)));
        AsyncSession { shared: Rc::new(Shared { state: Some(state), core, turn: Cell::new(0) }) }
    }

    #[inline(always)]
    fn state(&self) -> &SessionState {
        self.shared.state.as_deref().expect("kept until the last clone is dropped")
    }

    /// Lets the other tasks of the thread run after a while of operations that did not wait: reads are
    /// submitted, and completed ones noticed, only between tasks. Each operation does so when it begins;
    /// a task that does not wait for its commits may do so between its transactions, so that it does
    /// not in the middle of one.
    pub async fn take_turn(&self) {
        self.end_turn_after(TURN).await;
    }

    async fn end_turn_after(&self, operations: u32) {
        let turn = self.shared.turn.get() + 1;
        let is_over = turn >= operations;
        self.shared.turn.set(if is_over { 0 } else { turn });
        if is_over {
            breathe().await;
        }
    }

    /// Begins a transaction. Several transactions of one session may be under way, one for each of
    /// its tasks.
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
        Ok(AsyncTransaction { txn: Some(txn), session: self.clone() })
    }

    /// As [`crate::Session::begin_read`].
    ///
    /// # Errors
    /// As [`AsyncSession::begin`].
    pub fn begin_read(&self) -> Result<AsyncTransaction> {
        self.begin_with(read::READ)
    }

    /// Waits until a commit of this session is durable, as the ticket itself does, and lets the other
    /// tasks of the thread run if it is their turn.
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
        let ticket = self.insert_async(tree, key, value).await?;
        self.wait_ticket(ticket).await
    }

    /// As [`crate::Session::put`].
    ///
    /// # Errors
    /// As there.
    pub async fn put(&self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        let ticket = self.put_async(tree, key, value).await?;
        self.wait_ticket(ticket).await
    }

    /// As [`crate::Session::update`].
    ///
    /// # Errors
    /// As there.
    pub async fn update(&self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<bool> {
        let (existed, ticket) = self.update_async(tree, key, value).await?;
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
        let (existed, ticket) = self.modify_async(tree, key, change).await?;
        self.wait_ticket(ticket).await.map(|()| existed)
    }

    /// As [`crate::Session::remove`].
    ///
    /// # Errors
    /// As there.
    pub async fn remove(&self, tree: &Tree, key: &[u8]) -> Result<bool> {
        let (existed, ticket) = self.remove_async(tree, key).await?;
        self.wait_ticket(ticket).await.map(|()| existed)
    }

    /// As [`AsyncSession::insert`], without waiting for durability: the task goes on, and has as many
    /// commits under way as it keeps tickets.
    ///
    /// # Errors
    /// As [`AsyncSession::insert`].
    pub async fn insert_async(&self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<Ticket> {
        self.take_turn().await;
        auto::write(self, tree, key, value, Mode::Insert).await.map(|(_, ticket)| ticket)
    }

    /// As [`AsyncSession::put`], without waiting for durability.
    ///
    /// # Errors
    /// As [`AsyncSession::insert`].
    pub async fn put_async(&self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<Ticket> {
        self.take_turn().await;
        auto::write(self, tree, key, value, Mode::Put).await.map(|(_, ticket)| ticket)
    }

    /// As [`AsyncSession::update`], without waiting for durability.
    ///
    /// # Errors
    /// As [`AsyncSession::insert`].
    pub async fn update_async(
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
    pub async fn modify_async(
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
    pub async fn remove_async(&self, tree: &Tree, key: &[u8]) -> Result<(bool, Ticket)> {
        self.take_turn().await;
        auto::remove(self, tree, key).await
    }

    /// As [`crate::Session::get`].
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

    /// Calls `visit` with the records between two bounds, in either direction, until it breaks. Of one snapshot, or
    /// of several, one after the other, when that is cancelled: see [`crate::Session::range`].
    ///
    /// # Errors
    /// As [`crate::Session::range`] and reading the range.
    pub async fn scan(
        &self,
        tree: &Tree,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.take_turn().await;
        visit_alone(self, tree, bounds, direction, visit).await
    }
}

/// An asynchronous transaction; see [`crate::Transaction`]. Dropped without a commit it is rolled
/// back in the background. It is neither `Send` nor `Sync`. An operation whose future is leaked half way
/// (`std::mem::forget`) leaves a transaction that can only be aborted.
pub struct AsyncTransaction {
    txn: Option<BoxedTxn>,
    session: AsyncSession,
}

impl AsyncTransaction {
    fn txn(&self) -> &Txn {
        self.txn.as_ref().expect("not ended")
    }

    async fn take_turn(&self) {
        let may_change = !self.txn().options.read_only;
        self.session.end_turn_after(if may_change { LONG_TURN } else { TURN }).await;
    }

    fn parts(&mut self) -> (&AsyncSession, &mut Txn) {
        (&self.session, self.txn.as_mut().expect("not ended"))
    }

    /// As [`crate::Transaction::insert`].
    ///
    /// # Errors
    /// As there.
    pub async fn insert(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        self.take_turn().await;
        let (session, txn) = self.parts();
        write::write_in(session, txn, tree, key, value, Mode::Insert).await.map(|_| ())
    }

    /// As [`crate::Transaction::put`].
    ///
    /// # Errors
    /// As there.
    pub async fn put(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        self.take_turn().await;
        let (session, txn) = self.parts();
        write::write_in(session, txn, tree, key, value, Mode::Put).await.map(|_| ())
    }

    /// As [`crate::Transaction::update`].
    ///
    /// # Errors
    /// As there.
    pub async fn update(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<bool> {
        self.take_turn().await;
        let (session, txn) = self.parts();
        write::write_in(session, txn, tree, key, value, Mode::Update).await
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
        let mut change = |_: usize, value: &mut [u8]| change(value);
        let mut buffer = session.state().take_buffer();
        let found = write::modify_in(session, txn, tree, key, &mut buffer, &mut change).await;
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
        write::remove_in(session, txn, tree, key).await
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

    /// As [`AsyncSession::scan`], as of the snapshot of the transaction.
    ///
    /// # Errors
    /// As there.
    pub async fn scan(
        &self,
        tree: &Tree,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.take_turn().await;
        self.txn().check()?;
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
        let ticket = self.commit_async().await?;
        session.wait(ticket).await
    }

    /// As [`crate::Transaction::commit_async`].
    ///
    /// # Errors
    /// As there.
    pub async fn commit_async(mut self) -> Result<Ticket> {
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

/// Runs `future` on an executor of this thread for asynchronous sessions: a tokio-uring runtime
/// with room for `in_flight` reads, or a plain tokio runtime where io_uring is refused. Tasks are
/// spawned inside with `tokio::task::spawn_local`.
///
/// # Errors
/// When the thread runs inside a tokio runtime already, or the system refuses both.
pub fn run<F: Future>(in_flight: u32, future: F) -> Result<F::Output> {
    let mut future = Some(future);
    let started = start_runtime(in_flight, async {
        let future = future.take().expect("run once");
        future.await
    });
    let refused = match started {
        Ok(output) => return Ok(output),
        Err(error) => error,
    };
    let failed = |error: io::Error| Error::io("start an asynchronous runtime", error);
    let Some(future) = future else { return Err(failed(refused)) };
    if tokio::runtime::Handle::try_current().is_ok() {
        return Err(failed(refused));
    }
    tracing::warn!(error = %refused, "io_uring is refused: a plain runtime is used");
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(failed)?;
    let local = tokio::task::LocalSet::new();
    Ok(runtime.block_on(local.run_until(future)))
}
