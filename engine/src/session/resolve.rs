//! How a session waits. Operations are written once; a blocking session blocks its thread where
//! they wait, an asynchronous one awaits.

use super::state::SessionState;
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
use wattle_btree::{Context, Cursor, Journal};
use wattle_buffer::{Fault, Result, ScopePart, scope};

/// The environment of an operation: the engine, and what the session reuses.
pub(crate) trait Environment {
    fn core(&self) -> &Core;
    /// The transactions of the engine.
    #[inline(always)]
    fn system(&self) -> &TxnSystem {
        &self.core().txns
    }
    fn cx(&self) -> &Context;
    /// The session's reference to the log.
    fn log(&self) -> Option<&Arc<LogHandle>>;
    /// Number of a blocking session; 0 for other sessions.
    fn number(&self) -> u64;
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
    fn take_cursor(&self) -> Option<Box<Cursor>>;
    /// Gives it back.
    fn give_cursor(&self, cursor: Box<Cursor>);
}

/// A session of the user, of either kind: its state is its environment.
pub(crate) trait OwnsState {
    fn engine(&self) -> &Core;
    fn state(&self) -> &SessionState;
}

impl<S: OwnsState> Environment for S {
    #[inline(always)]
    fn core(&self) -> &Core {
        self.engine()
    }
    #[inline(always)]
    fn cx(&self) -> &Context {
        &self.state().cx
    }
    #[inline(always)]
    fn log(&self) -> Option<&Arc<LogHandle>> {
        self.state().log.as_ref()
    }
    fn number(&self) -> u64 {
        self.state().number()
    }
    fn own(&self) -> u64 {
        self.state().own()
    }
    fn committed(&self, time: u64, stored: &[OwnedVersion]) {
        self.state().committed(self.system(), time, stored);
    }
    fn take_idle(&self) -> BoxedTxn {
        self.state().take_idle(self.system())
    }
    fn give_idle(&self, txn: BoxedTxn) {
        self.state().give_idle(txn);
    }
    fn take_before(&self) -> Vec<u8> {
        self.state().take_before()
    }
    fn give_before(&self, buffer: Vec<u8>) {
        self.state().give_before(buffer);
    }
    fn take_cursor(&self) -> Option<Box<Cursor>> {
        self.state().take_cursor()
    }
    fn give_cursor(&self, cursor: Box<Cursor>) {
        self.state().give_cursor(cursor);
    }
}

/// How a session waits. The methods given here block the thread.
pub(crate) trait Resolve: Environment {
    /// Waits for a page or for room.
    fn resolve(&self, fault: Fault) -> impl Future<Output = Result<()>> {
        async { self.cx().worker.resolve(fault) }
    }
    /// Waits for several pages that the operation reads itself, all at once.
    fn resolve_all(&self, faults: Vec<Fault>) -> impl Future<Output = Result<()>> {
        async { self.cx().worker.resolve_all(faults) }
    }
    /// Starts reads of pages that will probably be needed; does not wait for them.
    fn read_ahead(&self, faults: Vec<Fault>) {
        self.cx().worker.read_ahead(faults);
    }
    /// Waits until the log has room. `since`: `None` at the first wait of an operation; each wait
    /// updates it for the next one.
    fn wait_log(&self, _since: &mut Option<u64>) -> impl Future<Output = Result<()>> {
        async {
            match &self.cx().journal {
                Journal::On(log, _) => log.wait_flush(),
                Journal::Off => Ok(()),
            }
        }
    }
    /// Waits for a commit to be durable.
    fn wait_ticket(&self, ticket: Ticket) -> impl Future<Output = Result<()>> {
        async { ticket.wait() }
    }
    /// Lets other threads or tasks run, for the `turn`-th time in a row.
    fn pause(&self, turn: u32) -> impl Future<Output = ()> {
        async move {
            let _scope = scope(ScopePart::ConflictWait);
            match turn {
                0..8 => std::thread::yield_now(),
                _ => std::thread::sleep(Duration::from_micros(50 << (turn - 8).min(5))),
            }
        }
    }
    /// Waits for a time.
    fn sleep(&self, time: Duration) -> impl Future<Output = ()> {
        async move { std::thread::sleep(time) }
    }
    /// Whether an operation may block the thread for a write and a sync of the device.
    fn may_block(&self) -> bool {
        true
    }
    /// Lets other tasks run in the middle of an operation on many records, when their time slice is
    /// due. The operation has done so much since it called this last: a record, or a chunk of a
    /// large value, counts as one.
    fn next_turn(&self, _done: usize) -> impl Future<Output = ()> {
        std::future::ready(())
    }
}

/// Runs a future of a blocking session: it never waits, because faults are resolved inside.
#[inline(always)]
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut TaskContext::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("an operation of a blocking session does not wait"),
    }
}
