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
/// it changes nothing: the commit goes on.
#[must_use = "a commit is durable only when its ticket says so"]
#[derive(Clone)]
pub struct Ticket {
    pending: Option<(Arc<LogHandle>, u64)>,
}

impl Ticket {
    /// The ticket of a commit that waits for nothing.
    pub(crate) fn done() -> Ticket {
        Ticket { pending: None }
    }

    /// The ticket of a commit in an epoch of the log, and the request to flush it.
    #[inline]
    pub(crate) fn new(log: &Arc<LogHandle>, epoch: u64, urgency: Urgency) -> Ticket {
        log.0.request(epoch, urgency);
        Ticket { pending: Some((log.clone(), epoch)) }
    }

    /// Whether the commit is durable already, or waits for nothing.
    pub fn is_durable(&self) -> bool {
        self.pending.as_ref().is_none_or(|(log, epoch)| log.0.durable_epoch() >= *epoch)
    }

    /// Blocks until the commit is durable.
    ///
    /// # Errors
    /// [`wattle_buffer::Error::CommitUnknown`] when the log fails meanwhile.
    pub fn wait(self) -> Result<()> {
        match self.pending {
            Some((log, epoch)) => log.0.wait_durable(epoch),
            None => Ok(()),
        }
    }
}

impl Future for Ticket {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        match &self.pending {
            Some((log, epoch)) => log.0.poll_durable(*epoch, context.waker()),
            None => Poll::Ready(Ok(())),
        }
    }
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let epoch = self.pending.as_ref().map(|(_, epoch)| epoch);
        f.debug_struct("Ticket").field("epoch", &epoch).finish()
    }
}
