//! Tickets, with which a caller waits for the durability of a commit.

use crate::waits::{Waited, Waits};
use parking_lot::Mutex;
use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
};
use wattle_buffer::{Inside, Result};
use wattle_wal::{Log, Urgency};

/// A session's own reference to the log. Tickets count their references here instead of in the
/// `Arc` that all sessions share.
pub(crate) struct LogHandle(pub Arc<Log>, pub Arc<Waits>);

/// A commit on its way to the device. Wait for it in a thread ([`Ticket::wait`]), await it, or
/// leave a closure ([`Ticket::on_durable`]). Dropping it, or leaking it, changes nothing: the
/// commit goes on. It is `Send` and `Sync`.
///
/// The commits of one session become durable in their order: when the ticket of a commit that
/// changed something says that it is durable, all earlier commits of the same session are. A commit
/// without changes, as a removal of an absent key, and one with
/// [`Durability::None`](crate::Durability::None) may be done at once, before earlier ones.
///
/// A commit is done when its epoch is durable *and* its time is within the durable mark of the log,
/// up to which durable readers see commits. Both nearly always come with the same flush. A commit
/// that drew its time while the next epoch began waits for one more flush.
#[must_use = "a commit is durable only when its ticket says so"]
#[derive(Clone)]
pub struct Ticket {
    pending: Option<Pending>,
}

/// A commit is durable with its epoch of the log. Its owner also relies on other sessions seeing
/// it: auto-committed reads and read-only transactions see commits up to the mark of the log, which
/// may follow one flush later. That flush writes nothing of this commit.
#[derive(Clone)]
struct Pending {
    log: Arc<LogHandle>,
    epoch: u64,
    time: u64,
    /// Urgency of the flush once a caller waits.
    urgency: Urgency,
}

impl Pending {
    /// Requests the flush: a caller waits.
    fn hurry(&self) {
        if self.urgency == Urgency::Now && !self.is_durable() {
            self.log.0.request(self.epoch, Urgency::Now);
        }
    }

    fn is_durable(&self) -> bool {
        self.log.0.durable_epoch() >= self.epoch
    }

    fn is_seen(&self) -> bool {
        self.log.0.durable_mark() >= self.time
    }

    /// Requests the flush that moves the mark; gives the epoch of that flush.
    fn request_mark(&self) -> u64 {
        let epoch = self.log.0.epoch();
        self.log.0.request(epoch, Urgency::Now);
        epoch
    }
}

impl Ticket {
    /// The ticket of a commit that need not be durable.
    pub(crate) fn done() -> Ticket {
        Ticket { pending: None }
    }

    /// The ticket of a commit at `time`, in an epoch of the log. Requests a flush soon, and one
    /// with `urgency` once a caller waits.
    #[inline]
    pub(crate) fn new(log: &Arc<LogHandle>, epoch: u64, time: u64, urgency: Urgency) -> Ticket {
        log.0.request(epoch, Urgency::Soon);
        Ticket { pending: Some(Pending { log: log.clone(), epoch, time, urgency }) }
    }

    /// Whether the commit is durable, or need not be.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// # let tree = engine.tree("tree")?;
    /// # let session = engine.session()?;
    /// let ticket = session.put_ticket(&tree, b"key", b"value")?;
    /// engine.sync()?;
    /// assert!(ticket.is_durable());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn is_durable(&self) -> bool {
        self.pending.as_ref().is_none_or(|pending| pending.is_durable() && pending.is_seen())
    }

    /// Blocks until the commit is durable.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// # let tree = engine.tree("tree")?;
    /// # let session = engine.session()?;
    /// let tickets = (0..100_u8).map(|i| session.put_ticket(&tree, &[i], b"value"));
    /// for ticket in tickets.collect::<Result<Vec<_>, _>>()? {   // all commits share a few flushes
    ///     ticket.wait()?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`wattle_buffer::Error::CommitUnknown`] when the log fails meanwhile;
    /// [`wattle_buffer::Error::Reentrant`] in a closure of [`Ticket::on_durable`], unless
    /// [`Ticket::is_durable`].
    pub fn wait(self) -> Result<()> {
        if !self.is_durable() {
            Inside::Durable.refuse()?;
        }
        let Some(pending) = self.pending else { return Ok(()) };
        let waits = &pending.log.1;
        let begun = waits.begin();
        pending.hurry();
        pending.log.0.wait_durable(pending.epoch)?;
        while !pending.is_seen() {
            let epoch = pending.request_mark();
            // It is durable, even if the log fails now.
            if pending.log.0.wait_durable(epoch).is_err() {
                break;
            }
        }
        waits.end(Waited::Commit, begun);
        Ok(())
    }

    /// Calls `then` with the outcome when the commit is durable, or when the log fails: at once if
    /// that is known, otherwise on the thread that flushes the log. So `then` should be short, such
    /// as a send to a channel. Calls of the engine that would have to wait fail in it with
    /// [`wattle_buffer::Error::Reentrant`], and so do tickets and spawned tasks that are polled in
    /// it before they are done. Its panic is caught, and reported as an error event.
    ///
    /// If the commit changed something, earlier commits of the session are durable, too, when it
    /// runs; but the closures of several tickets may run in another order, or at the same time.
    ///
    /// ```
    /// # use wattle::{Engine, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// # let tree = engine.tree("t")?;
    /// # let session = engine.session()?;
    /// let (sender, receiver) = std::sync::mpsc::channel();
    /// for number in 0..3_u8 {
    ///     let sender = sender.clone();
    ///     let ticket = session.put_ticket(&tree, &[number], b"value")?;
    ///     ticket.on_durable(move |outcome| _ = sender.send((number, outcome)));
    /// }
    /// for _ in 0..3 {
    ///     let (number, outcome) = receiver.recv().expect("each closure runs");
    ///     assert!(outcome.is_ok(), "{number}");
    /// }
    /// # Ok::<(), wattle::Error>(())
    /// ```
    pub fn on_durable(self, then: impl FnOnce(Result<()>) + Send + 'static) {
        let waits = Arc::new(DurableCall { left: Mutex::new(Some((self, then))) });
        if let Some((outcome, then)) = waits.poll() {
            call(then, outcome);
        }
    }
}

/// A closure that waits for a commit, and its ticket, until it is called.
struct DurableCall<F> {
    left: Mutex<Option<(Ticket, F)>>,
}

impl<F: FnOnce(Result<()>) + Send + 'static> DurableCall<F> {
    /// The outcome and the closure, once, when the outcome is known.
    fn poll(self: &Arc<Self>) -> Option<(Result<()>, F)> {
        let waker = Waker::from(Arc::clone(self));
        let mut left = self.left.lock();
        let (ticket, _) = left.as_ref()?;
        match ticket.poll_outcome(&mut Context::from_waker(&waker)) {
            Poll::Pending => None,
            Poll::Ready(outcome) => left.take().map(|(_, then)| (outcome, then)),
        }
    }
}

impl<F: FnOnce(Result<()>) + Send + 'static> Wake for DurableCall<F> {
    fn wake(self: Arc<Self>) {
        if let Some((outcome, then)) = self.poll() {
            let _inside = Inside::Durable.enter();
            call(then, outcome);
        }
    }
}

/// Calls a closure; a panic of it must not end the thread that flushes the log.
fn call(then: impl FnOnce(Result<()>), outcome: Result<()>) {
    if catch_unwind(AssertUnwindSafe(|| then(outcome))).is_err() {
        tracing::error!("a closure that waited for a commit has panicked");
    }
}

/// It fails with [`wattle_buffer::Error::Reentrant`] where [`Ticket::wait`] does: a closure of
/// [`Ticket::on_durable`] that waited for it would wait for its own thread.
impl Future for Ticket {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        if Inside::Durable.is_here() && !self.is_durable() {
            return Poll::Ready(Inside::Durable.refuse());
        }
        self.poll_outcome(context)
    }
}

impl Ticket {
    /// As its [`Future`], also for a caller that does not wait.
    fn poll_outcome(&self, context: &mut Context<'_>) -> Poll<Result<()>> {
        let Some(pending) = &self.pending else { return Poll::Ready(Ok(())) };
        pending.hurry();
        let log = &pending.log.0;
        match log.poll_durable(pending.epoch, context.waker()) {
            Poll::Ready(Ok(())) => {}
            outcome => return outcome,
        }
        while !pending.is_seen() {
            let epoch = pending.request_mark();
            match log.poll_durable(epoch, context.waker()) {
                Poll::Pending => return Poll::Pending,
                // It is durable, even if the log fails now.
                Poll::Ready(Err(_)) => break,
                Poll::Ready(Ok(())) => {}
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let epoch = self.pending.as_ref().map(|pending| pending.epoch);
        f.debug_struct("Ticket").field("epoch", &epoch).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, IoKind, Options, session::resolve::Environment};
    use std::{sync::mpsc, thread, time::Duration};
    use wattle_buffer::Error;

    #[test]
    fn the_thread_that_flushes_does_not_wait_for_the_mark_that_it_moves() {
        let options = Options::default().io(IoKind::Memory).pool_bytes(8 << 20);
        let engine = Engine::open("mark", options).expect("open");
        let session = engine.session().expect("session");
        let log = session.log().expect("a log").clone();
        // Its epoch is durable, and no flush comes to its time.
        let ticket = Ticket::new(&log, log.0.durable_epoch(), u64::MAX, Urgency::Soon);
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            let _inside = Inside::Durable.enter();
            _ = sender.send(ticket.wait());
        });
        let outcome = receiver.recv_timeout(Duration::from_secs(10));
        assert!(matches!(outcome, Ok(Err(Error::Reentrant(_)))), "{outcome:?}");
    }
}
