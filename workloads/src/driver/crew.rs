//! Threads, and tasks on them, that do one job side by side.
//!
//! With no tasks every thread runs the job once with a blocking client. With tasks every thread has
//! an asynchronous runtime and runs the job once in each task. The job is the same code.

use std::any::Any;
use std::future::Future;
use std::pin::pin;
use std::sync::Barrier;
use std::task::{Context, Poll, Waker};

use futures_util::stream::{FuturesUnordered, StreamExt};

use super::control::{Control, Phase};
use super::failure::Failure;
use super::store::{Client, Store};
use crate::machine;

/// How many workers there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crew {
    /// Operating system threads.
    pub threads: usize,
    /// Tasks on each thread; 0 for a blocking client on each thread.
    pub tasks: usize,
    /// Each thread stays on a core.
    pub pinned: bool,
}

impl Crew {
    /// Operations that may be in flight at once.
    pub fn workers(self) -> usize {
        self.threads * self.tasks.max(1)
    }
}

/// One of the workers of a crew.
#[derive(Clone, Copy, Debug)]
pub struct Worker {
    /// Its thread, from 0.
    pub thread: usize,
    /// Its number in the whole crew, from 0.
    pub number: usize,
}

/// Work that a crew shares.
#[allow(async_fn_in_trait, reason = "a job stays on its thread, so futures need not be Send")]
pub trait Job<C: Client>: Sync {
    /// What the workers of one thread share.
    type Local;

    /// Makes what the workers of thread `thread` share; called on that thread.
    fn local(&self, thread: usize) -> Self::Local;

    /// The share of one worker.
    async fn work(&self, local: &Self::Local, worker: Worker, client: C) -> Result<(), Failure>;

    /// Called when all workers of a thread are done, also when one failed.
    fn finish(&self, local: Self::Local);
}

/// Runs `job` with every worker of `crew`, and `supervise` on the calling thread once all of them
/// have their clients. Returns what `supervise` returned, when the last worker is done. The first
/// failure of a worker is in `control`; a panic, such as of a row that is not what it should be, is one.
pub fn run<S, J, T>(
    store: &S,
    crew: Crew,
    control: &Control,
    job: &J,
    supervise: impl FnOnce() -> T,
) -> T
where
    S: Store,
    J: Job<S::Session> + Job<S::Task>,
{
    let ready = Barrier::new(crew.threads + 1);
    // Whoever does not know the cores cannot be bound: each worker says so.
    let cores = crew.pinned.then(machine::cores_to_pin);
    let pin = |thread| match &cores {
        None => Ok(()),
        Some(Ok(cores)) => machine::pin_thread(cores, thread),
        Some(Err(error)) => Err(std::io::Error::from(error.kind())),
    };
    std::thread::scope(|scope| {
        let work = |thread: usize| {
            let (ready, pin) = (&ready, &pin);
            move || {
                let _done = Done(control);
                if let Err(error) = pin(thread) {
                    control.fail(Failure::Pin(error));
                }
                let done = match crew.tasks {
                    0 => blocking(store, thread, ready, job),
                    tasks => asynchronous(store, thread, tasks, ready, job, control),
                };
                if let Err(failure) = done {
                    control.fail(failure);
                }
            }
        };
        let workers: Vec<_> = (0..crew.threads).map(|thread| scope.spawn(work(thread))).collect();
        ready.wait();
        let supervised = supervise();
        for worker in workers {
            if let Err(panic) = worker.join() {
                control.fail(Failure::Panicked(words(&*panic)));
            }
        }
        supervised
    })
}

/// What a panic says.
fn words(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().map(String::as_str);
    words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked").to_owned()
}

/// Reports the end of a thread, also of one that panics: the supervisor must not wait for it, and the others
/// have nothing left to do.
struct Done<'a>(&'a Control);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.enter(Phase::Stop);
        }
        self.0.thread_done();
    }
}

/// The life of a thread with a blocking client.
fn blocking<S, J>(store: &S, thread: usize, ready: &Barrier, job: &J) -> Result<(), Failure>
where
    S: Store,
    J: Job<S::Session>,
{
    let session = store.session();
    ready.wait();
    let local = job.local(thread);
    let done = match session {
        Ok(session) => at_once(job.work(&local, Worker { thread, number: thread }, session)),
        Err(error) => Err(error.into()),
    };
    job.finish(local);
    done
}

/// The life of a thread with tasks. A task that fails stops the others through `control`, so that
/// each of them still ends in order.
fn asynchronous<S, J>(
    store: &S,
    thread: usize,
    tasks: usize,
    ready: &Barrier,
    job: &J,
    control: &Control,
) -> Result<(), Failure>
where
    S: Store,
    J: Job<S::Task>,
{
    let mut waited = false;
    let done = store.run_tasks(tasks, async {
        let clients = store.task_clients(tasks);
        ready.wait();
        waited = true;
        let local = job.local(thread);
        match clients {
            Ok(clients) => {
                let mut running: FuturesUnordered<_> = clients
                    .into_iter()
                    .enumerate()
                    .map(|(task, client)| {
                        job.work(&local, Worker { thread, number: thread * tasks + task }, client)
                    })
                    .collect();
                while let Some(done) = running.next().await {
                    if let Err(failure) = done {
                        control.fail(failure);
                    }
                }
            }
            Err(error) => control.fail(error.into()),
        }
        job.finish(local);
    });
    if !waited {
        // The runtime did not start; the others must not wait for this thread.
        ready.wait();
    }
    done.map_err(Failure::from)
}

/// The result of a future that never waits, as all futures over blocking clients.
pub fn at_once<F: Future>(future: F) -> F::Output {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("a blocking client returned a future that waits"),
    }
}
