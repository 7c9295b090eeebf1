//! Places for tasks on the threads of [`crate::Engine::spawn`], with a claim on their session.

use crate::{
    handle::{Grip, User},
    session::tasks::{AsyncSession, WeakSession},
    task_threads::{Busy, Job, TaskThread, TaskThreads, ThreadSession},
};
use std::{
    cell::RefCell,
    sync::{Arc, atomic::Ordering},
};
use tokio::sync::mpsc;
use wattle_buffer::{Result, processors};

/// Threads at most, also on a larger machine.
const MAX_THREADS: usize = 64;

thread_local! {
    /// The session of the tasks of this thread, which belongs to one engine.
    static SESSION: RefCell<WeakSession> = RefCell::default();
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
        let state = self.thread.begin();
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
        self.thread.give_up(|state| core.keep_idle(state));
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

/// Threads at most.
fn most_threads() -> usize {
    processors().min(MAX_THREADS)
}

fn place_among(threads: &mut Vec<TaskThread>, core: &Grip) -> Result<Place> {
    let busy = |thread: &&TaskThread| thread.busy.load(Ordering::Relaxed);
    let least = threads.iter().min_by_key(busy);
    let least = least.filter(|thread| threads.len() >= most_threads() || busy(thread) == 0);
    if let Some(least) = least.filter(|least| least.session.claim()) {
        return Ok(place_on(least, core));
    }
    let refused = match (core.session_state(), least) {
        (Ok(state), Some(least)) => {
            least.session.claim_new(state);
            return Ok(place_on(least, core));
        }
        (Ok(state), None) => match TaskThread::start() {
            Ok(started) => {
                started.session.claim_new(state);
                let place = place_on(&started, core);
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
    threads.sort_by_cached_key(|thread| busy(&thread));
    let other = threads.iter().find(|thread| thread.session.claim());
    other.map(|thread| place_on(thread, core)).ok_or(refused)
}

/// A place on a thread whose session is claimed.
fn place_on(thread: &TaskThread, core: &Grip) -> Place {
    let core = Some(core.share(User::AsyncSession));
    let claim = Claim { core, thread: Arc::clone(&thread.session) };
    Place { claim, busy: Busy::begin(&thread.busy), jobs: thread.jobs.clone() }
}
