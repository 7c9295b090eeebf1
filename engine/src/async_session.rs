//! Asynchronous sessions: operations that give the thread to other tasks while they wait for a
//! page. With the back end `uring` run them inside [`run`], one runtime for each thread; with the
//! others any executor will do.

use crate::{
    engine::{Core, Tree},
    ops::{self, Resolve},
};
use std::{
    cell::Cell,
    future::{Future, poll_fn},
    io,
    ops::{Bound, ControlFlow},
    rc::Rc,
    sync::Arc,
    task::Poll,
};
use wattle_btree::{Cursor, Direction, Mode};
use wattle_buffer::{Error, Fault, Result, Worker, io::start_runtime};

/// Operations that found everything resident after which a task lets the others run.
const TURN: u32 = 32;

/// An asynchronous session. Clones share one worker and serve the tasks of one thread.
#[derive(Clone)]
pub struct AsyncSession {
    shared: Rc<Shared>,
}

struct Shared {
    worker: Worker,
    core: Arc<Core>,
    /// Operations since a task last waited.
    turn: Cell<u32>,
}

impl Resolve for AsyncSession {
    #[inline(always)]
    fn core(&self) -> &Core {
        &self.shared.core
    }
    #[inline(always)]
    fn worker(&self) -> &Worker {
        &self.shared.worker
    }
    async fn resolve(&self, fault: Fault) -> Result<()> {
        self.shared.turn.set(0);
        self.shared.worker.resolve_async(fault).await
    }
}

impl AsyncSession {
    pub(crate) fn new(core: Arc<Core>) -> AsyncSession {
        let shared = Shared { worker: core.worker(), core, turn: Cell::new(0) };
        AsyncSession { shared: Rc::new(shared) }
    }

    /// Lets the other tasks run after a while of operations that did not wait: completed reads are
    /// only noticed between tasks.
    async fn take_turn(&self) {
        let turn = self.shared.turn.get() + 1;
        self.shared.turn.set(turn % TURN);
        if turn < TURN {
            return;
        }
        let mut yielded = false;
        poll_fn(|context| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// As [`crate::Session::insert`].
    ///
    /// # Errors
    /// As there.
    pub async fn insert(&self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        self.take_turn().await;
        ops::write(self, tree, key, value, Mode::Insert).await.map(|_| ())
    }

    /// As [`crate::Session::put`].
    ///
    /// # Errors
    /// As there.
    pub async fn put(&self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        self.take_turn().await;
        ops::write(self, tree, key, value, Mode::Put).await.map(|_| ())
    }

    /// As [`crate::Session::update`].
    ///
    /// # Errors
    /// As there.
    pub async fn update(&self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<bool> {
        self.take_turn().await;
        ops::write(self, tree, key, value, Mode::Update).await
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
        self.take_turn().await;
        let mut buffer = Vec::new();
        ops::modify(self, tree, key, &mut buffer, change).await
    }

    /// As [`crate::Session::remove`].
    ///
    /// # Errors
    /// As there.
    pub async fn remove(&self, tree: &Tree, key: &[u8]) -> Result<bool> {
        self.take_turn().await;
        ops::remove(self, tree, key).await
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
        ops::get(self, tree, key, value).await
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
        ops::multi_get(self, tree, keys, &mut Vec::new(), read).await
    }

    /// Calls `visit` with the records between two bounds, in either direction, until it breaks.
    ///
    /// # Errors
    /// As [`crate::Session::range`] and reading the range.
    pub async fn scan(
        &self,
        tree: &Tree,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.take_turn().await;
        self.shared.core.check_tree(tree)?;
        let (low, high) = (bounds.0.map(<[u8]>::to_vec), bounds.1.map(<[u8]>::to_vec));
        let mut cursor = Cursor::new(low, high, direction);
        let mut whole = Vec::new();
        while ops::advance(self, tree, &mut cursor).await? {
            let (key, value, large) = cursor.take()?;
            let flow = match large {
                None => visit(key, value),
                Some(large) => {
                    let key = key.to_vec();
                    if !ops::scanned_large(self, tree, &key, large, &mut whole).await? {
                        continue;
                    }
                    visit(&key, &whole)
                }
            };
            if flow.is_break() {
                break;
            }
        }
        Ok(())
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
