//! Tasks on threads of the engine: [`Engine::spawn`]. The tasks of a thread that are under way at
//! the same time share a session.

use crate::{engine::Engine, session::tasks::AsyncSession, task_place::Place};
use std::{
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::Pin,
    task::{Context, Poll},
};
use tokio::sync::{mpsc, oneshot};
use wattle_buffer::{Error, Inside, Result};

/// A task of [`Engine::spawn`]: a future of its result. It is `Send`. The task goes on if this is
/// dropped.
///
/// It panics when it is polled after the task has panicked, as the task did. It fails with
/// [`Error::Reentrant`] when it is polled before the task has ended, in a closure of
/// [`Ticket::on_durable`](crate::Ticket::on_durable): the task may wait for the thread that runs
/// the closure.
#[must_use = "only the future says how the task has ended"]
pub struct Spawned<T> {
    outcome: oneshot::Receiver<std::thread::Result<T>>,
}

impl<T> Future for Spawned<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        Poll::Ready(match Pin::new(&mut self.outcome).poll(context) {
            Poll::Ready(Ok(Ok(value))) => Ok(value),
            Poll::Ready(Ok(Err(panic))) => resume_unwind(panic),
            Poll::Ready(Err(_)) => {
                Err(Error::Limit("the thread of a task ended before the task".to_string()))
            }
            Poll::Pending => {
                Inside::Durable.refuse()?;
                return Poll::Pending;
            }
        })
    }
}

/// Runs a task; gives its result, or its panic. The task, and its session, are dropped by then.
async fn caught<T, F: Future<Output = T>>(make: impl FnOnce() -> F) -> std::thread::Result<T> {
    let mut task = Box::pin(catch_unwind(AssertUnwindSafe(make))?);
    poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(context)));
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}

impl Engine {
    /// Runs a task on a thread of the engine and gives a future of its result, which is `Send`: for
    /// handlers of a service in any runtime, whose own tasks cannot hold an [`AsyncSession`]. The
    /// closure is sent to the thread, and called there with a session; the task need not be `Send`.
    /// While it waits for a page or for a commit, the thread runs other tasks. Threads start when
    /// they are needed, up to one for each processor, and end with the engine. The tasks of a
    /// thread share a session; when there is no room for another one
    /// ([`Options::max_sessions`](crate::Options::max_sessions)), the task goes to a thread that
    /// has one.
    ///
    /// The task runs to its end also if the future is dropped. It counts as an asynchronous session
    /// for [`Engine::close`]. It should not block its thread.
    ///
    /// ```
    /// # use wattle::{Engine, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// let tree = engine.tree("hits")?;
    /// let handler = async {
    ///     let tree = tree.clone();
    ///     let hits = engine.spawn(async move |session| {
    ///         session.transact(async |txn| {
    ///             let hits = txn.get(&tree, b"hits").await?.map_or(0, |value| value[0]);
    ///             txn.put(&tree, b"hits", &[hits + 1]).await?;
    ///             Ok(hits + 1)
    ///         }).await
    ///     })?;
    ///     hits.await?
    /// };
    /// let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    /// assert_eq!(runtime.block_on(handler)?, 1);
    /// # Ok::<(), wattle::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Limit`] when the pool is too small for another session, and no other task is under
    /// way; a thread cannot start; [`Error::Reentrant`]. The future fails when its thread cannot
    /// start a runtime.
    pub fn spawn<T: Send + 'static, F: Future<Output = T> + 'static>(
        &self,
        work: impl FnOnce(AsyncSession) -> F + Send + 'static,
    ) -> Result<Spawned<T>> {
        let core = self.grip();
        core.check_caller(&[])?;
        let Place { claim, busy, jobs } = core.tasks.place(core)?;
        let (sender, outcome) = oneshot::channel();
        let job = move || {
            let session = claim.begin();
            let task = async move {
                let outcome = caught(move || work(session)).await;
                drop(busy);
                // The caller may have dropped the future.
                _ = sender.send(outcome);
            };
            drop(tokio::task::spawn_local(task));
        };
        // It fails if the thread ended just now.
        let sent = jobs.send(Box::new(job)).map_err(|mpsc::error::SendError(job)| drop(job));
        sent.map_err(|()| {
            Error::Limit("the thread for tasks of the engine has ended".to_string())
        })?;
        Ok(Spawned { outcome })
    }
}
