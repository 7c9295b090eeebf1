//! The threads of [`crate::Engine::spawn`].
//!
//! A *task thread* runs a runtime of [`crate::run`] and does nothing but run the jobs that it is
//! sent, which start tasks. It starts with the first task that finds all others busy, up to one for
//! each processor, and ends with the engine. It holds no handle of the engine: each job brings one.

use crate::runtime;
use parking_lot::Mutex;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use tokio::sync::mpsc;
use wattle_buffer::{Error, Result};

/// Reads that a task thread can have in flight.
const READS: u32 = 256;
/// Threads at most, also on a larger machine.
const MAX_THREADS: usize = 64;

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
}

/// Counts a task until it ends, in whatever way.
pub(crate) struct Busy(Arc<AtomicUsize>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl TaskThreads {
    /// Sends a task to the thread with the fewest.
    pub fn send(&self, make: impl FnOnce(Busy) -> Job) -> Result<()> {
        let mut threads = self.threads.lock();
        threads.retain(|thread| !thread.jobs.is_closed());
        let most = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        let least = threads.iter().map(|thread| thread.busy.load(Ordering::Relaxed)).min();
        if threads.len() < most && least != Some(0) {
            threads.push(TaskThread::start()?);
        }
        let thread = threads.iter().min_by_key(|thread| thread.busy.load(Ordering::Relaxed));
        let thread = thread.expect("one was started if there was none");
        thread.busy.fetch_add(1, Ordering::Relaxed);
        let job = make(Busy(Arc::clone(&thread.busy)));
        if let Err(mpsc::error::SendError(job)) = thread.jobs.send(job) {
            // It ended just now.
            drop(job);
            return Err(Error::Limit("the thread for tasks of the engine has ended".to_string()));
        }
        Ok(())
    }
}

impl TaskThread {
    fn start() -> Result<TaskThread> {
        let (jobs, received) = mpsc::unbounded_channel();
        let busy = Arc::new(AtomicUsize::new(0));
        let thread = std::thread::Builder::new().name("tasks".to_string());
        let work = move || {
            if let Err(error) = runtime::run(READS, work(received)) {
                tracing::error!(%error, "a thread for tasks of the engine did not start");
            }
        };
        thread.spawn(work).map_err(|error| Error::io("start a thread", error))?;
        Ok(TaskThread { jobs, busy })
    }
}

/// The work of a task thread.
async fn work(mut jobs: mpsc::UnboundedReceiver<Job>) {
    while let Some(job) = jobs.recv().await {
        job();
    }
}
