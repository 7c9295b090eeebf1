//! Tickets: commits whose durability somebody may wait for.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use wattle_buffer::Result;
use wattle_wal::{Log, Urgency};

/// A session's own reference to the log: tickets count their references here, and not where all
/// sessions would meet.
pub(crate) struct LogHandle(pub Arc<Log>);

/// A commit on its way to the device. Wait for it in a thread ([`Ticket::wait`]) or await it. Dropping
/// it, or leaking it, changes nothing: the commit goes on. It is `Send` and `Sync`.
///
/// A commit is done when its epoch is durable *and* its time is within what is known to be durable:
/// from then on readers see it, which look at what is durable. The second nearly always comes with
/// the first; a commit that drew its time while the next epoch began already waits for one flush
/// more.
#[must_use = "a commit is durable only when its ticket says so"]
#[derive(Clone)]
pub struct Ticket {
    pending: Option<Pending>,
}

/// A commit is durable with its epoch of the log. Whoever is told so also relies on others seeing it:
/// single reads and transactions that only read see commits up to the mark of the log, which can be a
/// flush behind. That flush has nothing of this commit to write.
#[derive(Clone)]
struct Pending {
    log: Arc<LogHandle>,
    epoch: u64,
    time: u64,
    /// How soon it must be durable once somebody waits for it.
    urgency: Urgency,
}

impl Pending {
    /// Somebody waits.
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

    /// Asks for the flush that moves the mark; gives its epoch.
    fn request_mark(&self) -> u64 {
        let epoch = self.log.0.epoch();
        self.log.0.request(epoch, Urgency::Now);
        epoch
    }
}

impl Ticket {
    /// The ticket of a commit that waits for nothing.
    pub(crate) fn done() -> Ticket {
        Ticket { pending: None }
    }

    /// The ticket of a commit at `time`, in an epoch of the log, and the request to flush it: soon, and
    /// with `urgency` as soon as somebody waits.
    #[inline]
    pub(crate) fn new(log: &Arc<LogHandle>, epoch: u64, time: u64, urgency: Urgency) -> Ticket {
        log.0.request(epoch, Urgency::Soon);
        Ticket { pending: Some(Pending { log: log.clone(), epoch, time, urgency }) }
    }

    /// Whether the commit is durable already, or waits for nothing.
    #[inline]
    pub fn is_durable(&self) -> bool {
        self.pending.as_ref().is_none_or(|pending| pending.is_durable() && pending.is_seen())
    }

    /// Blocks until the commit is durable.
    ///
    /// # Errors
    /// [`wattle_buffer::Error::CommitUnknown`] when the log fails meanwhile.
    pub fn wait(self) -> Result<()> {
        let Some(pending) = self.pending else { return Ok(()) };
        pending.hurry();
        pending.log.0.wait_durable(pending.epoch)?;
        while !pending.is_seen() {
            let epoch = pending.request_mark();
            // It is durable, whatever becomes of the log.
            if pending.log.0.wait_durable(epoch).is_err() {
                break;
            }
        }
        Ok(())
    }
}

impl Future for Ticket {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
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
                // It is durable, whatever becomes of the log.
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
