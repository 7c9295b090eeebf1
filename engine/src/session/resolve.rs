//! How a session waits. Operations are written once; a blocking session blocks its thread where
//! they wait, an asynchronous one awaits.

use crate::{
    core::Core,
    mvcc::OwnedVersion,
    txn::{BoxedTxn, LogHandle, Ticket, TxnSystem},
};
use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context as TaskContext, Poll, Waker},
    time::Duration,
};
use wattle_btree::{Context, Cursor};
use wattle_buffer::{Fault, Result};

/// The environment of an operation: the engine, how the session waits, and what it reuses.
pub(crate) trait Resolve {
    fn core(&self) -> &Core;
    /// The transactions of the engine.
    #[inline(always)]
    fn system(&self) -> &TxnSystem {
        &self.core().txns
    }
    fn cx(&self) -> &Context;
    /// Waits for a page or for room.
    fn resolve(&self, fault: Fault) -> impl Future<Output = Result<()>>;
    /// Waits for several pages that the operation reads itself, all at once.
    fn resolve_all(&self, faults: Vec<Fault>) -> impl Future<Output = Result<()>> {
        async { self.cx().worker.resolve_all(faults) }
    }
    /// Waits until the log has room. `since`: `None` at the first wait of an operation; each wait
    /// updates it for the next one.
    fn wait_log(&self, since: &mut Option<u64>) -> impl Future<Output = Result<()>>;
    /// Waits for a commit to be durable.
    fn wait_ticket(&self, ticket: Ticket) -> impl Future<Output = Result<()>>;
    /// Lets other threads or tasks run, for the `turn`-th time in a row.
    fn pause(&self, turn: u32) -> impl Future<Output = ()>;
    /// Waits for a time.
    fn sleep(&self, time: Duration) -> impl Future<Output = ()> {
        std::thread::sleep(time);
        std::future::ready(())
    }
    /// Lets other tasks run in the middle of an operation on many records, when their time slice is
    /// due.
    fn next_turn(&self) -> impl Future<Output = ()> {
        std::future::ready(())
    }
    /// The session's reference to the log.
    fn log(&self) -> Option<&Arc<LogHandle>>;
    /// Number of a blocking session; 0 for other sessions.
    fn number(&self) -> u64 {
        0
    }
    /// The newest commit of the session.
    fn own(&self) -> u64;
    /// The session has committed at `time`, and has stored these versions.
    fn committed(&self, time: u64, stored: &[OwnedVersion]);
    /// A transaction to begin.
    fn take_idle(&self) -> BoxedTxn;
    /// Gives it back when it has ended.
    fn give_idle(&self, txn: BoxedTxn);
    /// A buffer for the record before a change; given back at the end.
    fn take_before(&self) -> Vec<u8>;
    /// Gives it back.
    fn give_before(&self, buffer: Vec<u8>);
    /// A cursor to use again, if there is one.
    fn take_cursor(&self) -> Option<Cursor>;
    /// Gives it back.
    fn give_cursor(&self, cursor: Cursor);
}

/// Runs a future of a blocking session: it never waits, because faults are resolved inside.
#[inline(always)]
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut TaskContext::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("an operation of a blocking session does not wait"),
    }
}

/// Lets other threads or tasks run, for the `turn`-th time in a row.
pub(crate) fn pause(turn: u32) {
    match turn {
        0..8 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(50 << (turn - 8).min(5))),
    }
}
