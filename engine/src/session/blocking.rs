//! A blocking session: it blocks its thread where an operation waits. Its operations are in the
//! parent module, above the transactions that it begins.

use super::{
    resolve::{Resolve, pause},
    state::SessionState,
};
use crate::{
    core::Core,
    handle::{Grip, User},
    mvcc::OwnedVersion,
    txn::{BoxedTxn, LogHandle, Ticket},
};
use std::sync::{Arc, atomic::Ordering};
use wattle_btree::{Context, Cursor, Journal};
use wattle_buffer::{Fault, Result};

/// A blocking session. Its operations are auto-committed; [`Session::begin`] begins a transaction
/// of several operations. It is `Send` and not `Sync`: it may move between threads while no
/// transaction and no range of it is alive. A session that is leaked counts as alive for
/// [`crate::Engine::close`].
///
/// Auto-committed reads see every commit that has returned, from every session, or only what is
/// durable and the session's own commits ([`crate::Options::reads`]); they never wait for a writer
/// or for the log.
pub struct Session {
    state: Option<Box<SessionState>>,
    pub(super) core: Grip,
}

impl Resolve for Session {
    #[inline(always)]
    fn core(&self) -> &Core {
        &self.core
    }
    #[inline(always)]
    fn cx(&self) -> &Context {
        &self.state().cx
    }
    async fn resolve(&self, fault: Fault) -> Result<()> {
        self.cx().worker.resolve(fault)
    }
    async fn wait_log(&self, _: &mut Option<u64>) -> Result<()> {
        match &self.cx().journal {
            Journal::On(log, _) => log.wait_flush(),
            Journal::Off => Ok(()),
        }
    }
    async fn wait_ticket(&self, ticket: Ticket) -> Result<()> {
        ticket.wait()
    }
    async fn pause(&self, turn: u32) {
        pause(turn);
    }
    #[inline(always)]
    fn log(&self) -> Option<&Arc<LogHandle>> {
        self.state().log.as_ref()
    }
    fn number(&self) -> u64 {
        self.state().number.get()
    }
    fn own(&self) -> u64 {
        self.state().own()
    }
    fn committed(&self, time: u64, stored: &[OwnedVersion]) {
        self.state().committed(&self.core.txns, time, stored);
    }
    fn take_idle(&self) -> BoxedTxn {
        self.state().take_idle(&self.core.txns)
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
    fn take_cursor(&self) -> Option<Cursor> {
        self.state().take_cursor()
    }
    fn give_cursor(&self, cursor: Cursor) {
        self.state().give_cursor(cursor);
    }
}

impl Session {
    /// A session of an engine.
    ///
    /// # Errors
    /// [`Error::Limit`] when the pool is too small for another one.
    pub(crate) fn open(core: &Grip, user: User) -> Result<Session> {
        core.check_caller(&[])?;
        if core.idle.lock().is_empty() {
            core.pool.check_workers()?;
        }
        Ok(Session::new(core.share(user)))
    }

    #[inline(always)]
    pub(crate) fn handle(&self) -> &Grip {
        &self.core
    }

    pub(crate) fn journal(&self) -> &Journal {
        &self.state().cx.journal
    }

    fn new(core: Grip) -> Session {
        let idle = core.idle.lock().pop();
        let state = idle.unwrap_or_else(|| Box::new(SessionState::new(&core.txns)));
        state.number.set(core.sessions.fetch_add(1, Ordering::Relaxed));
        Session { state: Some(state), core }
    }

    #[inline(always)]
    pub(super) fn state(&self) -> &SessionState {
        self.state.as_deref().expect("kept until the session is dropped")
    }

    #[inline(always)]
    pub(crate) fn with_buffer<T>(&self, use_it: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let mut buffer = self.state().take_buffer();
        let result = use_it(&mut buffer);
        self.state().give_buffer(buffer);
        result
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let Some(state) = self.state.take() else { return };
        self.core.keep_idle(state);
    }
}
