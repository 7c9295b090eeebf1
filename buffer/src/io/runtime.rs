//! tokio-uring runtimes: the one that the thread of an asynchronous session runs in
//! ([`start_runtime`]), and those of writer threads.
//!
//! tokio-uring keeps the buffer of a dropped operation until the kernel has finished it, with one
//! exception: a runtime that ends frees the buffers of dropped operations *before* it cancels them.
//! [`start_runtime`] closes that gap. A target that comes back while its runtime ends waits in
//! [`RingSession::graveyard`] until the runtime has ended, which happens only after every operation
//! has completed. For that reason asynchronous reads use only runtimes started here; elsewhere they
//! block.
//!
//! Invariant: the number of reads of a session in flight is at most `limit`, which is at most the
//! size of its ring. So submission never meets a full ring, where tokio-uring would panic.

use super::{file::PageFile, storage::ReadTarget};
use crate::tuning;
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::{Future, poll_fn},
    io,
    os::fd::OwnedFd,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    sync::{Arc, Weak},
    task::{Poll, Waker},
};
use tokio_uring::{Runtime, fs::File};

/// Upper bound on the ring size; the kernel allows 32768.
const MAX_ENTRIES: u32 = 4096;

thread_local! {
    /// The session whose runtime this thread is in.
    static SESSION: RefCell<Option<Rc<RingSession>>> = const { RefCell::new(None) };
}

/// Runs `future` on a new tokio-uring runtime of this thread. Asynchronous reads of the back end
/// `uring` use its ring. Tasks that the future spawned and that have not ended are dropped.
///
/// `entries` is the number of reads that the thread can have in flight, 1 to 4096 (clamped);
/// further reads wait in a queue.
///
/// Fails without running `future` if io_uring is refused, or if the thread is inside a tokio
/// runtime already.
pub fn start_runtime<F: Future>(entries: u32, future: F) -> io::Result<F::Output> {
    if inside_runtime() {
        return Err(io::Error::other("this thread is inside a tokio runtime already"));
    }
    let entries = entries.clamp(1, MAX_ENTRIES);
    // One more entry for the operation of `breathe`.
    let runtime = with_setup(entries + 1, SUBMIT_EVERY, |builder| Runtime::new(builder))?;
    let session = Rc::new(RingSession::new(entries));
    SESSION.set(Some(Rc::clone(&session)));
    let running = Running { runtime: Some(runtime), session };
    // Dropping it ends the runtime, even if the future panics.
    Ok(running.runtime.as_ref().expect("just made").block_on(future))
}

/// Lets the other tasks of the thread run, and lets the ring submit their reads to the kernel.
///
/// A runtime of [`start_runtime`] submits reads only when it has nothing else to do. A task that is
/// always ready would prevent that, and tasks that wait for pages would wait for ever. So if reads
/// are in flight, this waits for an operation without effect, which completes only after the reads
/// were submitted. Elsewhere, and when nothing is in flight, it lets the others run once.
pub async fn breathe() {
    let session = RingSession::current().filter(|session| session.begun.get() > 0);
    let mut asked = false;
    poll_fn(|context| {
        if std::mem::replace(&mut asked, true) {
            return Poll::Ready(());
        }
        match &session {
            Some(session) => session.wake_after_submission(context.waker()),
            None => context.waker().wake_by_ref(),
        }
        Poll::Pending
    })
    .await;
}

/// Whether this thread is inside a runtime of [`start_runtime`], whose reads end only while its
/// tasks run.
pub(crate) fn reads_on_this_thread() -> bool {
    RingSession::current().is_some()
}

/// Whether this thread is inside a tokio runtime, where no other runtime may block it.
pub(super) fn inside_runtime() -> bool {
    tokio::runtime::Handle::try_current().is_ok()
}

/// Checks, with a small ring, that the kernel lets this thread use io_uring. Once it did, it is not
/// asked again in this thread: each ring takes two dozen system calls, and the kernel ends it in
/// the background. A ring that is refused later is an error or a fallback where it is made.
pub(super) fn probe() -> io::Result<()> {
    thread_local! {
        static ALLOWED: Cell<bool> = const { Cell::new(false) };
    }
    if ALLOWED.get() {
        return Ok(());
    }
    with_setup(8, 8, |_| Ok(()))?;
    ALLOWED.set(true);
    Ok(())
}

/// Number of queued reads at which a runtime submits them to the kernel. It also submits all of
/// them when it has nothing to do but wait. With a long queue the device would idle while tasks
/// run, and the processor would idle while the device works.
const SUBMIT_EVERY: u32 = if tuning::SUBMIT_EARLY { 8 } else { u32::MAX };

/// A runtime for that many operations in flight, submitted together.
pub(super) fn new_runtime(entries: u32) -> io::Result<Runtime> {
    with_setup(entries, entries, |builder| Runtime::new(builder))
}

/// Finds the best ring set-up that the kernel accepts, by building a ring and closing it again, and
/// calls `make` with it. A runtime whose own ring is refused half-way would leak.
///
/// COOP_TASKRUN (Linux 5.19) avoids the interrupts of completions. SINGLE_ISSUER with
/// DEFER_TASKRUN, and IOPOLL, would be cheaper still, but tokio-uring 0.5 hangs with them: it waits
/// in epoll, where such rings make no progress.
///
/// `entries` is the number of operations in flight, `submit` the number of them that may be queued.
fn with_setup<T>(
    entries: u32,
    submit: u32,
    make: impl FnOnce(&mut tokio_uring::Builder) -> io::Result<T>,
) -> io::Result<T> {
    let entries = entries.max(1).next_power_of_two();
    let submit = entries.min(submit);
    let mut ring = tokio_uring::uring_builder();
    ring.setup_coop_taskrun().setup_cqsize(2 * entries);
    if let Err(error) = ring.build(submit) {
        if error.raw_os_error() != Some(libc::EINVAL) {
            return Err(error);
        }
        ring = tokio_uring::uring_builder();
        ring.setup_cqsize(2 * entries);
        ring.build(submit)?;
    }
    let _one_at_a_time = MAKING.lock();
    check_descriptors()?;
    let mut builder = tokio_uring::builder();
    let builder = builder.entries(submit).uring_builder(&ring);
    // Other threads may have taken the descriptors meanwhile. A panic here has started nothing.
    let made = catch_unwind(AssertUnwindSafe(|| make(builder)));
    made.unwrap_or_else(|_| Err(io::Error::other("a runtime for io_uring could not be made")))
}

/// Held while descriptors are counted and taken.
static MAKING: Mutex<()> = Mutex::new(());

/// Descriptors that a runtime needs, plus one for the file that it works with.
pub(super) const DESCRIPTORS: usize = 5;

/// Checks that the process has descriptors for a runtime. A runtime that is refused half-way would
/// leak those that it has, or panic.
fn check_descriptors() -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let open = |_| rustix::fs::openat(rustix::fs::CWD, "/", flags, Mode::empty());
    let taken = (0..DESCRIPTORS).map(open).collect::<Result<Vec<OwnedFd>, _>>();
    Ok(taken.map(drop)?)
}

/// The state of a session's runtime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Running,
    /// Tasks are being dropped and operations cancelled; the kernel may still write to targets.
    Ending,
    /// The kernel has no operation of it.
    Ended,
}

/// One run of [`start_runtime`], shared with the reads that it started.
pub(super) struct RingSession {
    phase: Cell<Phase>,
    limit: u32,
    in_flight: Cell<u32>,
    /// Reads that wait for a place, first come, first served: whether it has one, and its task.
    queue: RefCell<VecDeque<(Rc<Cell<bool>>, Waker)>>,
    /// Reads that were started and have not ended, including those in the queue.
    begun: Cell<u32>,
    pub(super) files: FileCache,
    graveyard: RefCell<Vec<ReadTarget>>,
    /// Tasks that wait for the submission of reads, all for one operation.
    breathing: RefCell<Vec<Waker>>,
}

impl RingSession {
    fn new(limit: u32) -> RingSession {
        RingSession {
            phase: Cell::new(Phase::Running),
            limit,
            in_flight: Cell::new(0),
            queue: RefCell::default(),
            begun: Cell::new(0),
            files: FileCache::default(),
            graveyard: RefCell::default(),
            breathing: RefCell::default(),
        }
    }

    /// Wakes a task once all operations that are in the ring now were submitted.
    fn wake_after_submission(self: &Rc<Self>, waker: &Waker) {
        let mut breathing = self.breathing.borrow_mut();
        breathing.push(waker.clone());
        if breathing.len() > 1 {
            return;
        }
        let session = Rc::clone(self);
        // In a task of its own, because the waiting task may be dropped.
        tokio_uring::spawn(async move {
            // It has no result. If the kernel refuses it, the reads were submitted before it
            // anyway.
            let _nothing = tokio_uring::no_op().await;
            let breathing = session.breathing.take();
            breathing.into_iter().for_each(Waker::wake);
        });
    }

    /// The session of this thread, if it is inside a running one.
    pub(super) fn current() -> Option<Rc<RingSession>> {
        let session = SESSION.try_with(|session| session.borrow().clone()).ok().flatten()?;
        (session.phase() == Phase::Running).then_some(session)
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// Takes a target whose read was dropped, and tells its owner once the kernel cannot use it.
    pub(super) fn abandon(&self, target: ReadTarget) {
        match self.phase() {
            // The kernel has finished with it or never had it.
            Phase::Running | Phase::Ended => drop(target),
            Phase::Ending => self.graveyard.borrow_mut().push(target),
        }
    }

    /// Counts a started read until the result is dropped.
    pub(super) fn begin_read(self: &Rc<Self>) -> Began {
        self.begun.set(self.begun.get() + 1);
        Began(Rc::clone(self))
    }

    /// Waits for a place in the ring. Only for a task of the runtime, which runs when it is woken,
    /// so that a place handed to it is used.
    pub(super) async fn admit(&self) {
        if self.in_flight.get() < self.limit {
            self.in_flight.set(self.in_flight.get() + 1);
            return;
        }
        let mut queued: Option<Rc<Cell<bool>>> = None;
        poll_fn(|context| match &queued {
            Some(handed) if handed.get() => Poll::Ready(()),
            Some(_) => Poll::Pending,
            None => {
                let handed = Rc::new(Cell::new(false));
                let entry = (Rc::clone(&handed), context.waker().clone());
                self.queue.borrow_mut().push_back(entry);
                queued = Some(handed);
                Poll::Pending
            }
        })
        .await;
    }

    /// Ends an admitted read and hands its place to the next one in the queue.
    pub(super) fn release(&self) {
        let next = self.queue.borrow_mut().pop_front();
        match next {
            Some((handed, waker)) => {
                handed.set(true);
                waker.wake();
            }
            None => self.in_flight.set(self.in_flight.get() - 1),
        }
    }
}

/// A read that was started and has not ended.
pub(super) struct Began(Rc<RingSession>);

impl Drop for Began {
    fn drop(&mut self) {
        self.0.begun.set(self.0.begun.get() - 1);
    }
}

/// A runtime that is ended in the right order.
struct Running {
    runtime: Option<Runtime>,
    session: Rc<RingSession>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.session.phase.set(Phase::Ending);
        // Drops all tasks, then cancels all operations and waits for their completion. If that
        // panics, the kernel may still write to frames, and their owners could not be told.
        let unfinished = AbortOnDrop;
        drop(self.runtime.take());
        std::mem::forget(unfinished);
        self.session.phase.set(Phase::Ended);
        SESSION.set(None);
        self.session.files.clear();
        // Owners may run any code, so nothing is borrowed meanwhile.
        let targets = self.session.graveyard.take();
        drop(targets);
    }
}

/// Aborts the process unless it is forgotten.
struct AbortOnDrop;

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        tracing::error!("an io_uring runtime could not be ended: aborting");
        std::process::abort();
    }
}

/// tokio-uring's handles of storage files. A handle belongs to one thread and closes its
/// descriptor, so each thread that does I/O keeps one duplicate per storage.
#[derive(Default)]
pub(super) struct FileCache(RefCell<Vec<(Weak<PageFile>, Rc<File>)>>);

impl FileCache {
    /// This thread's handle of `file`.
    pub(super) fn get(&self, file: &Arc<PageFile>) -> io::Result<Rc<File>> {
        let mut cached = self.0.borrow_mut();
        // A weak reference keeps the address from being reused, so the address identifies the file.
        if let Some((_, handle)) =
            cached.iter().find(|(weak, _)| std::ptr::eq(weak.as_ptr(), Arc::as_ptr(file)))
        {
            return Ok(Rc::clone(handle));
        }
        cached.retain(|(weak, _)| weak.strong_count() > 0);
        let handle = Rc::new(File::from_std(file.duplicate()?));
        cached.push((Arc::downgrade(file), Rc::clone(&handle)));
        Ok(handle)
    }

    fn clear(&self) {
        self.0.borrow_mut().clear();
    }
}
