//! An asynchronous session: it gives the thread to other tasks where an operation waits. Its
//! operations are in the module `async_session`, above the transactions that it begins.

use super::{
    resolve::{Environment, OwnsState, Resolve},
    state::SessionState,
};
use crate::{core::Core, handle::Grip, task_threads::ThreadSession, txn::Ticket, waits::Waited};
use std::{
    cell::Cell,
    future::{Future, poll_fn},
    pin::pin,
    rc::{Rc, Weak},
    sync::Arc,
    time::Duration,
};
use wattle_btree::Journal;
use wattle_buffer::{Fault, Result, io::breathe};

/// A task lets the others run after so many operations that found everything resident.
pub(crate) const TURN: u32 = 32;
/// The same in the middle of a transaction that may change something, and of an operation on many
/// records, each of which counts as one. If it let the others run earlier, they would conflict with
/// its changes. It lets them run when it has ended.
pub(crate) const LONG_TURN: u32 = 512;
/// A task that waits for another transaction lets the other tasks run so often before it sleeps.
const BREATHS: u32 = 8;
/// How long it sleeps, each time. The keeper, which wakes it, does not distinguish shorter times.
const PAUSE: Duration = Duration::from_millis(1);

/// An asynchronous session. Clones share one worker and serve the tasks of one thread: it is
/// neither `Send` nor `Sync`, and neither are its transactions and futures.
///
/// ```
/// # use wattle::{Engine, IoKind, Options};
/// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
/// # let tree = engine.tree("t")?;
/// # wattle::run(8, async {
/// let session = engine.async_session()?;
/// let mut value = Vec::new();
/// for number in 0..1_000_u32 {
///     let ticket = session.put_ticket(&tree, &number.to_be_bytes(), b"value").await?;
///     session.take_turn().await;                         // the other tasks of the thread run
///     assert!(session.get_into(&tree, &number.to_be_bytes(), &mut value).await?);
///     drop(ticket);                                      // durable some time later
/// }
/// # Ok::<(), wattle::Error>(())
/// # })??;
/// # Ok::<(), wattle::Error>(())
/// ```
#[derive(Clone)]
pub struct AsyncSession {
    shared: Rc<Shared>,
}

/// A session of the tasks of a thread, while it is alive.
#[derive(Default)]
pub(crate) struct WeakSession(Weak<Shared>);

impl WeakSession {
    pub fn of(session: &AsyncSession) -> WeakSession {
        WeakSession(Rc::downgrade(&session.shared))
    }

    pub fn upgrade(&self) -> Option<AsyncSession> {
        self.0.upgrade().map(|shared| AsyncSession { shared })
    }
}

struct Shared {
    state: Option<Box<SessionState>>,
    core: Grip,
    /// Of a session of a task thread.
    thread: Option<Arc<ThreadSession>>,
    /// Operations since a task last waited.
    turn: Cell<u32>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let Some(state) = self.state.take() else { return };
        let Some(thread) = &self.thread else { return self.core.keep_idle(state) };
        if self.core.pool.process().is_other() {
            // It belongs to the parent process. The lock may have been held at the fork.
            return std::mem::forget(state);
        }
        self.core.clean(&state);
        thread.end(state, |state| self.core.keep_idle(state));
    }
}

impl OwnsState for AsyncSession {
    #[inline(always)]
    fn engine(&self) -> &Core {
        &self.shared.core
    }
    #[inline(always)]
    fn state(&self) -> &SessionState {
        self.shared.state.as_deref().expect("kept until the last clone is dropped")
    }
}

impl Resolve for AsyncSession {
    async fn resolve(&self, fault: Fault) -> Result<()> {
        self.waits(self.cx().worker.resolve_async(fault)).await
    }
    async fn resolve_all(&self, faults: Vec<Fault>) -> Result<()> {
        self.waits(self.cx().worker.resolve_all_async(faults)).await
    }
    fn read_ahead(&self, faults: Vec<Fault>) {
        self.cx().worker.read_ahead_in_runtime(faults);
    }
    async fn wait_log(&self, since: &mut Option<u64>) -> Result<()> {
        match &self.cx().journal {
            Journal::On(log, _) => self.waits(log.next_flush(since)).await,
            Journal::Off => Ok(()),
        }
    }
    async fn wait_ticket(&self, ticket: Ticket) -> Result<()> {
        let waits = &self.system().waits;
        let begun = waits.begin();
        let outcome = self.waits(ticket).await;
        waits.end(Waited::Commit, begun);
        outcome
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
    fn may_block(&self) -> bool {
        false
    }
    async fn next_turn(&self, done: usize) {
        self.end_turn(done, LONG_TURN).await;
    }
}

impl AsyncSession {
    pub(crate) fn new(core: Grip, state: Box<SessionState>) -> AsyncSession {
        AsyncSession::of_thread(core, state, None)
    }

    /// A session, perhaps that of a task thread.
    pub(crate) fn of_thread(
        core: Grip,
        state: Box<SessionState>,
        thread: Option<Arc<ThreadSession>>,
    ) -> AsyncSession {
        // A task waits for another task of its session, so no transaction is the session's own.
        state.number.set(0);
        let turn = Cell::new(0);
        AsyncSession { shared: Rc::new(Shared { state: Some(state), core, thread, turn }) }
    }

    /// Lets the other tasks of the thread run, when the last 32 operations of the session did not
    /// wait: the thread submits reads, and notices completed ones, only between tasks. Each
    /// operation calls this when it begins. A task that does not wait for its commits may call it
    /// between its transactions, so that none is interrupted.
    pub async fn take_turn(&self) {
        self.end_turn_after(TURN).await;
    }

    pub(crate) async fn end_turn_after(&self, operations: u32) {
        self.end_turn(1, operations).await;
    }

    /// Awaits something that may be there already, as a frame often is. If it is not, the others
    /// run meanwhile, and a turn begins.
    async fn waits<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        poll_fn(|context| {
            let polled = future.as_mut().poll(context);
            if polled.is_pending() {
                self.shared.turn.set(0);
            }
            polled
        })
        .await
    }

    /// After `done` operations: lets the other tasks run when the turn has had so many.
    async fn end_turn(&self, done: usize, operations: u32) {
        let done = u32::try_from(done).unwrap_or(u32::MAX);
        let turn = self.shared.turn.get().saturating_add(done);
        let is_over = turn >= operations;
        self.shared.turn.set(if is_over { 0 } else { turn });
        if is_over {
            breathe().await;
        }
    }
}
