//! The session of the engine's own work: blocking, in a given context.

use crate::{
    core::Core,
    mvcc::OwnedVersion,
    session::resolve::{Environment, Resolve, now},
    txn::{Begun, BoxedTxn, LogHandle, Txn, TxnOptions},
};
use std::sync::Arc;
use wattle_btree::{Context, Cursor};
use wattle_buffer::Result;

/// See the module documentation.
pub(crate) struct Internal<'c> {
    pub core: &'c Core,
    pub cx: &'c Context,
    log: Option<Arc<LogHandle>>,
}

impl<'c> Internal<'c> {
    pub fn new(core: &'c Core, cx: &'c Context) -> Internal<'c> {
        let log = core.log.clone().map(|log| Arc::new(LogHandle(log, core.txns.waits.clone())));
        Internal { core, cx, log }
    }
}

impl Environment for Internal<'_> {
    fn core(&self) -> &Core {
        self.core
    }
    fn cx(&self) -> &Context {
        self.cx
    }
    fn log(&self) -> Option<&Arc<LogHandle>> {
        self.log.as_ref()
    }
    fn number(&self) -> u64 {
        0
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
    fn take_cursor(&self) -> Option<Box<Cursor>> {
        None
    }
    fn give_cursor(&self, _: Box<Cursor>) {}
}

impl Resolve for Internal<'_> {}

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
