//! Threads, and tasks on them, that run one job in parallel.
//!
//! Without tasks every thread runs the job once with a blocking client. With tasks every thread has
//! an asynchronous runtime and runs the job once in each task. The job is the same code.

use std::any::Any;
use std::future::Future;
use std::pin::pin;
use std::sync::{Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_util::stream::{FuturesUnordered, StreamExt};

use super::control::{Control, Phase};
use super::failure::Failure;
use super::store::{Client, Store};
use crate::machine;

/// The number of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crew {
    /// Threads of the operating system.
    pub threads: usize,
    /// Tasks on each thread; 0 for a blocking client on each thread.
    pub tasks: usize,
    /// Whether each thread is bound to a core.
    pub pinned: bool,
}

impl Crew {
    /// Operations that may be in flight at once.
    pub fn workers(self) -> usize {
        self.threads * self.tasks.max(1)
    }
}

/// A worker of a crew.
#[derive(Clone, Copy, Debug)]
pub struct Worker {
    /// Number of its thread, from 0.
    pub thread: usize,
    /// Its own number in the crew, from 0.
    pub number: usize,
}

/// Work that a crew does together.
#[allow(async_fn_in_trait, reason = "a job stays on its thread, so futures need not be Send")]
pub trait Job<C: Client>: Sync {
    /// State that the workers of one thread share.
    type Local;

    /// Makes the shared state of thread `thread`; called on that thread.
    fn local(&self, thread: usize) -> Self::Local;

    /// Does the share of one worker.
    async fn work(&self, local: &Self::Local, worker: Worker, client: C) -> Result<(), Failure>;

    /// Called when all workers of a thread are done, even if one failed.
    fn finish(&self, local: Self::Local);
}

/// Runs `job` with every worker of `crew`, and `supervise` on the calling thread once all workers
/// have their clients. Returns the result of `supervise` when the last worker is done. `control`
/// has the first failure of a worker; a panic, for example on a row of a wrong layout, counts as
/// one.
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
    let ready = Gate::new(crew.threads + 1);
    // If the cores are not known, every worker reports that it could not be pinned.
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
        // If the supervisor panics, nothing else would tell the workers to stop.
        let _stopped = StopAtPanic(control);
        let mut workers = Vec::new();
        for thread in 0..crew.threads {
            match named(thread).spawn_scoped(scope, work(thread)) {
                Ok(worker) => workers.push(worker),
                Err(error) => {
                    control.fail(Failure::Thread(error));
                    ready.open();
                    break;
                }
            }
        }
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

/// A thread of the crew; a profile knows it by its name.
fn named(thread: usize) -> std::thread::Builder {
    std::thread::Builder::new().name(format!("worker {thread}"))
}

/// A barrier at which the threads of a crew wait for each other before they begin.
struct Gate {
    missing: Mutex<usize>,
    opened: Condvar,
}

impl Gate {
    /// Opens when `threads` threads have arrived.
    fn new(threads: usize) -> Gate {
        Gate { missing: Mutex::new(threads), opened: Condvar::new() }
    }

    /// Arrives, and waits until the gate is open.
    fn wait(&self) {
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        *missing = missing.saturating_sub(1);
        if *missing == 0 {
            self.opened.notify_all();
        }
        while *missing > 0 {
            missing = self.opened.wait(missing).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Opens the gate, even if some threads have not arrived.
    fn open(&self) {
        *self.missing.lock().unwrap_or_else(PoisonError::into_inner) = 0;
        self.opened.notify_all();
    }
}

/// Stops the work of a crew when its supervisor panics.
struct StopAtPanic<'a>(&'a Control);

impl Drop for StopAtPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.enter(Phase::Stop);
        }
    }
}

/// The message of a panic.
fn words(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().map(String::as_str);
    words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked").to_owned()
}

/// Reports the end of a thread. If the thread panics, the supervisor must not wait for it, and the
/// other threads stop.
struct Done<'a>(&'a Control);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        drop(StopAtPanic(self.0));
        self.0.thread_done();
    }
}

/// Runs the job on this thread, with a blocking client.
fn blocking<S, J>(store: &S, thread: usize, ready: &Gate, job: &J) -> Result<(), Failure>
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

/// Runs the job on this thread, once in each of `tasks` tasks. A task that fails stops the others
/// through `control`, so that each of them finishes its operation.
fn asynchronous<S, J>(
    store: &S,
    thread: usize,
    tasks: usize,
    ready: &Gate,
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
        // The runtime did not start: the other threads must not wait for this one.
        ready.wait();
    }
    done.map_err(Failure::from)
}

/// The result of tasks that are pending only because they let each other run: those of a store
/// whose task clients block.
pub fn by_turns<F: Future>(tasks: F) -> F::Output {
    let mut tasks = pin!(tasks);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = tasks.as_mut().poll(&mut context) {
            return output;
        }
    }
}

/// The result of a future that never waits: every future of a blocking client.
pub fn at_once<F: Future>(future: F) -> F::Output {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("a blocking client returned a future that waits"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_opens_for_all_when_the_last_has_come_or_when_one_cannot_come() {
        for missing in [0, 2] {
            let gate = Gate::new(3 + missing);
            std::thread::scope(|scope| {
                (0..3).for_each(|_| _ = scope.spawn(|| gate.wait()));
                if missing > 0 {
                    gate.open();
                }
            });
            gate.wait();
        }
    }
}
