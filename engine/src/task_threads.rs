//! The threads of [`crate::Engine::spawn`].
//!
//! A *task thread* runs a runtime of [`crate::run`] and does nothing but run the jobs that it is
//! sent, which start tasks. It starts with the first task that finds all others busy, up to one for
//! each processor, and ends with the engine. It holds no handle of the engine: each job brings one.
//!
//! The tasks of a thread share a session. Each job has a claim on it (`task_place`) from when its
//! thread was chosen, so that the room of a session is there when the job runs: a session that ends
//! while there are claims leaves its state to the next job. Where there is no room for another
//! session, jobs go to the threads that have one.
//!
//! Jobs contain closures of the user. They are run, and dropped, while no lock is held: a closure
//! that is dropped may call the engine.

use crate::{runtime, session::state::SessionState};
use parking_lot::Mutex;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use tokio::sync::mpsc;
use wattle_buffer::{Error, Result};

/// Reads that a task thread can have in flight.
const READS: u32 = 256;

/// Starts a task, on a task thread.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// The task threads of an engine.
#[derive(Default)]
pub(crate) struct TaskThreads {
    pub threads: Mutex<Vec<TaskThread>>,
}

pub(crate) struct TaskThread {
    pub jobs: mpsc::UnboundedSender<Job>,
    /// Tasks that it was sent and that have not ended.
    pub busy: Arc<AtomicUsize>,
    pub session: Arc<ThreadSession>,
}

/// Counts a task until it ends, in whatever way.
pub(crate) struct Busy(Arc<AtomicUsize>);

impl Busy {
    pub fn begin(tasks: &Arc<AtomicUsize>) -> Busy {
        tasks.fetch_add(1, Ordering::Relaxed);
        Busy(Arc::clone(tasks))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The session of a task thread, as other threads see it. Its lock is taken before those of session
/// states that are kept.
#[derive(Default)]
pub(crate) struct ThreadSession {
    inner: Mutex<Claims>,
}

#[derive(Default)]
struct Claims {
    /// Jobs that have not begun.
    waiting: usize,
    /// A session of the thread is alive.
    is_alive: bool,
    /// For the next job, while jobs wait and no session is alive.
    state: Option<Box<SessionState>>,
}

impl ThreadSession {
    /// Claims the session, if there is one: for a job that will be sent.
    pub fn claim(&self) -> bool {
        let mut inner = self.inner.lock();
        let has_session = inner.is_alive || inner.state.is_some();
        inner.waiting += usize::from(has_session);
        has_session
    }

    /// Claims a session that is yet to begin with this state. There is no other one.
    pub fn claim_new(&self, state: Box<SessionState>) {
        let mut inner = self.inner.lock();
        assert!(!inner.is_alive && inner.state.is_none(), "a task thread has one session");
        inner.state = Some(state);
        inner.waiting += 1;
    }

    /// The session has ended, and this is its state, for any other session. `keep` is called with
    /// it under the lock, unless a job waits for it: a thread that sees no session here finds the
    /// state among those that are kept.
    pub fn end(&self, state: Box<SessionState>, keep: impl FnOnce(Box<SessionState>)) {
        let mut inner = self.inner.lock();
        inner.is_alive = false;
        match inner.waiting {
            0 => keep(state),
            _ => inner.state = Some(state),
        }
    }

    /// A job begins, and no session is alive: the state for one.
    pub fn begin(&self) -> Box<SessionState> {
        let mut inner = self.inner.lock();
        inner.waiting -= 1;
        inner.is_alive = true;
        inner.state.take().expect("kept for the claims")
    }

    /// A job needs its claim no more. `keep` is called with a state that no other job waits for.
    pub fn give_up(&self, keep: impl FnOnce(Box<SessionState>)) {
        let mut inner = self.inner.lock();
        inner.waiting -= 1;
        if inner.waiting == 0
            && let Some(state) = inner.state.take()
        {
            keep(state);
        }
    }
}

impl TaskThread {
    pub fn start() -> Result<TaskThread> {
        let (jobs, received) = mpsc::unbounded_channel();
        let thread = std::thread::Builder::new().name("tasks".to_string());
        let work = move || {
            if let Err(error) = runtime::run(READS, work(received)) {
                tracing::error!(%error, "a thread for tasks of the engine did not start");
            }
        };
        thread.spawn(work).map_err(|error| Error::io("start a thread", error))?;
        Ok(TaskThread { jobs, busy: Arc::default(), session: Arc::default() })
    }
}

/// The work of a task thread.
async fn work(mut jobs: mpsc::UnboundedReceiver<Job>) {
    while let Some(job) = jobs.recv().await {
        job();
    }
}
