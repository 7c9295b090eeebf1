//! The threads of [`crate::Engine::spawn`].
//!
//! A *task thread* runs a runtime of [`crate::run`] and does nothing but run the jobs that it is
//! sent, which start tasks. It starts with the first task that finds all others busy, up to one for
//! each processor, and ends with the engine. It holds no handle of the engine: each job brings one.
//!
//! The tasks of a thread share a session. Each job has a [`Claim`] on it from when its thread was
//! chosen, so that the room of a session is there when the job runs: a session that ends while there
//! are claims leaves its state to the next job. Where there is no room for another session, jobs go
//! to the threads that have one.
//!
//! Jobs contain closures of the user. They are run, and dropped, while no lock is held: a closure
//! that is dropped may call the engine.

use crate::{
    core::Core,
    handle::{Grip, User},
    runtime,
    session::{
        state::SessionState,
        tasks::{AsyncSession, WeakSession},
    },
};
use parking_lot::Mutex;
use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::sync::mpsc;
use wattle_buffer::{Error, Result};

/// Reads that a task thread can have in flight.
const READS: u32 = 256;
/// Threads at most, also on a larger machine.
const MAX_THREADS: usize = 64;

thread_local! {
    /// The session of the tasks of this thread, which belongs to one engine.
    static SESSION: RefCell<WeakSession> = RefCell::default();
}

/// Starts a task, on a task thread.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// The task threads of an engine.
#[derive(Default)]
pub(crate) struct TaskThreads {
    threads: Mutex<Vec<TaskThread>>,
}

struct TaskThread {
    jobs: mpsc::UnboundedSender<Job>,
    /// Tasks that it was sent and that have not ended.
    busy: Arc<AtomicUsize>,
    session: Arc<ThreadSession>,
}

/// Counts a task until it ends, in whatever way.
pub(crate) struct Busy(Arc<AtomicUsize>);

impl Busy {
    fn begin(tasks: &Arc<AtomicUsize>) -> Busy {
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
    fn claim(&self) -> bool {
        let mut inner = self.inner.lock();
        let has_session = inner.is_alive || inner.state.is_some();
        inner.waiting += usize::from(has_session);
        has_session
    }

    /// Claims a session that is yet to begin with this state. There is no other one.
    fn claim_new(&self, state: Box<SessionState>) {
        let mut inner = self.inner.lock();
        assert!(!inner.is_alive && inner.state.is_none(), "a task thread has one session");
        inner.state = Some(state);
        inner.waiting += 1;
    }

    /// The session has ended.
    pub fn end(&self, core: &Core, state: Box<SessionState>) {
        if core.pool.process().is_other() {
            // The lock may have been held at the fork.
            return std::mem::forget(state);
        }
        let mut inner = self.inner.lock();
        inner.is_alive = false;
        // Under the lock: whoever sees no session here finds the state among those that are kept.
        match inner.waiting {
            0 => core.keep_idle(state),
            _ => {
                core.clean(&state);
                inner.state = Some(state);
            }
        }
    }
}

/// The right of a job to the session of its thread.
pub(crate) struct Claim {
    core: Option<Grip>,
    thread: Arc<ThreadSession>,
}

impl Claim {
    /// The session, on its thread.
    pub fn begin(mut self) -> AsyncSession {
        let alive = SESSION.with_borrow(WeakSession::upgrade);
        if let Some(session) = alive {
            // Dropping the claim gives it up.
            return session;
        }
        let core = self.core.take().expect("a claim begins once");
        let mut inner = self.thread.inner.lock();
        inner.waiting -= 1;
        inner.is_alive = true;
        let state = inner.state.take().expect("kept for the claims");
        drop(inner);
        let session = AsyncSession::of_thread(core, state, Some(Arc::clone(&self.thread)));
        SESSION.set(WeakSession::of(&session));
        session
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let Some(core) = self.core.take() else { return };
        if core.pool.process().is_other() {
            // The lock may have been held at the fork.
            return;
        }
        let mut inner = self.thread.inner.lock();
        inner.waiting -= 1;
        if inner.waiting == 0
            && let Some(state) = inner.state.take()
        {
            core.keep_idle(state);
        }
    }
}

/// A place for a task on a thread.
pub(crate) struct Place {
    pub claim: Claim,
    pub busy: Busy,
    pub jobs: mpsc::UnboundedSender<Job>,
}

impl TaskThreads {
    /// A place on the thread with the fewest tasks, among those that have a session, or get one.
    pub fn place(&self, core: &Grip) -> Result<Place> {
        let mut threads = self.threads.lock();
        let is_ended = |thread: &mut TaskThread| thread.jobs.is_closed();
        let ended: Vec<_> = threads.extract_if(.., is_ended).collect();
        let place = place_among(&mut threads, core);
        drop(threads);
        // They may have jobs.
        drop(ended);
        place
    }
}

fn place_among(threads: &mut Vec<TaskThread>, core: &Grip) -> Result<Place> {
    let most = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    threads.sort_by_cached_key(|thread| thread.busy.load(Ordering::Relaxed));
    let least = threads
        .first()
        .filter(|thread| threads.len() >= most || thread.busy.load(Ordering::Relaxed) == 0);
    if let Some(least) = least.filter(|least| least.session.claim()) {
        return Ok(least.place(core));
    }
    let refused = match (core.session_state(), least) {
        (Ok(state), Some(least)) => {
            least.session.claim_new(state);
            return Ok(least.place(core));
        }
        (Ok(state), None) => match TaskThread::start() {
            Ok(started) => {
                started.session.claim_new(state);
                let place = started.place(core);
                threads.push(started);
                return Ok(place);
            }
            Err(error) => {
                core.keep_idle(state);
                error
            }
        },
        (Err(error), _) => error,
    };
    let other = threads.iter().find(|thread| thread.session.claim());
    other.map(|thread| thread.place(core)).ok_or(refused)
}

impl TaskThread {
    fn start() -> Result<TaskThread> {
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

    /// A place on this thread, whose session is claimed.
    fn place(&self, core: &Grip) -> Place {
        let core = Some(core.share(User::AsyncSession));
        let claim = Claim { core, thread: Arc::clone(&self.session) };
        Place { claim, busy: Busy::begin(&self.busy), jobs: self.jobs.clone() }
    }
}

/// The work of a task thread.
async fn work(mut jobs: mpsc::UnboundedReceiver<Job>) {
    while let Some(job) = jobs.recv().await {
        job();
    }
}
