//! The session of the engine's own work: blocking, in a given context.

use crate::{
    core::Core,
    mvcc::OwnedVersion,
    session::resolve::{Resolve, now, pause},
    txn::{Begun, BoxedTxn, LogHandle, Ticket, Txn, TxnOptions},
};
use std::sync::Arc;
use wattle_btree::{Context, Cursor, Journal};
use wattle_buffer::{Fault, Result};

/// See the module documentation.
pub(crate) struct Internal<'c> {
    pub core: &'c Core,
    pub cx: &'c Context,
    log: Option<Arc<LogHandle>>,
}

impl<'c> Internal<'c> {
    pub fn new(core: &'c Core, cx: &'c Context) -> Internal<'c> {
        let log = core.log.clone().map(|log| Arc::new(LogHandle(log)));
        Internal { core, cx, log }
    }
}

impl Resolve for Internal<'_> {
    fn core(&self) -> &Core {
        self.core
    }
    fn cx(&self) -> &Context {
        self.cx
    }
    async fn resolve(&self, fault: Fault) -> Result<()> {
        self.cx.worker.resolve(fault)
    }
    async fn wait_log(&self, _: &mut Option<u64>) -> Result<()> {
        match &self.cx.journal {
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
    fn log(&self) -> Option<&Arc<LogHandle>> {
        self.log.as_ref()
    }
    fn own(&self) -> u64 {
        0
    }
    fn committed(&self, _: u64, stored: &[OwnedVersion]) {
        self.core.txns.versions.hand_over(stored);
    }
    fn take_idle(&self) -> BoxedTxn {
        Txn::idle(&self.core.txns)
    }
    fn give_idle(&self, txn: BoxedTxn) {
        self.core.txns.snapshots.retire(txn.slot);
    }
    fn take_before(&self) -> Vec<u8> {
        Vec::new()
    }
    fn give_before(&self, _: Vec<u8>) {}
    fn take_cursor(&self) -> Option<Cursor> {
        None
    }
    fn give_cursor(&self, _: Cursor) {}
}

/// Changes records that only the engine reads, all of them or none, durably.
pub(crate) fn system_transaction(
    core: &Core,
    cx: &Context,
    change: impl FnOnce(&mut Txn) -> Result<()>,
) -> Result<()> {
    let internal = Internal::new(core, cx);
    let mut begun = Begun::new(&internal, TxnOptions::default())?;
    begun.txn().start_system(&core.txns);
    match change(begun.txn()) {
        Ok(()) => now(begun.commit())?.wait(),
        Err(error) => {
            now(begun.abort())?;
            Err(error)
        }
    }
}
