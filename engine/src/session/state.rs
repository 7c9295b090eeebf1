//! The state of a session, blocking or asynchronous.

use crate::{
    mvcc::{OwnedVersion, Stored},
    txn::{BoxedTxn, LogHandle, Txn, TxnSystem},
};
use std::{
    cell::{Cell, RefCell},
    sync::Arc,
};
use wattle_btree::{Context, Cursor};
use wattle_buffer::Result;

/// See the module documentation. The next session reuses it.
pub(crate) struct SessionState {
    pub cx: Context,
    pub log: Option<Arc<LogHandle>>,
    /// Transactions that have ended.
    idle: RefCell<Vec<BoxedTxn>>,
    /// Versions that its commits left.
    stored: RefCell<Stored>,
    /// The newest commit.
    own: Cell<u64>,
    /// Number of the blocking session that has it; 0 for an asynchronous one.
    pub(super) number: Cell<u64>,
    before: Cell<Vec<u8>>,
    /// Reused by every look-up, so that a resident one allocates nothing.
    buffer: Cell<Vec<u8>>,
    /// Reused by scans: allocating the copy of a page costs more than filling it. Tasks that share
    /// an asynchronous session may use several at once.
    #[expect(clippy::vec_box, reason = "a scan moves its cursor several times")]
    cursors: RefCell<Vec<Box<Cursor>>>,
}

/// A buffer above this is not kept: a large value must not stay in memory.
const MAX_KEPT: usize = 1 << 16;
/// Transactions that a session leaves to the next one.
const MAX_IDLE_TXNS: usize = 4;
/// Cursors that are kept, of some 5 KiB each.
const MAX_CURSORS: usize = 16;

impl SessionState {
    /// # Errors
    /// [`wattle_buffer::Error::Limit`] when the pool is too small for another session.
    pub fn new(system: &TxnSystem) -> Result<SessionState> {
        Ok(SessionState {
            cx: system.session_context()?,
            log: system.log.clone().map(|log| Arc::new(LogHandle(log, system.waits.clone()))),
            idle: RefCell::default(),
            stored: RefCell::default(),
            own: Cell::new(0),
            number: Cell::new(0),
            before: Cell::default(),
            buffer: Cell::new(Vec::with_capacity(4096)),
            cursors: RefCell::default(),
        })
    }

    pub fn number(&self) -> u64 {
        self.number.get()
    }

    pub fn own(&self) -> u64 {
        self.own.get()
    }

    /// The session has committed at `time` and stored these versions.
    pub fn committed(&self, system: &TxnSystem, time: u64, stored: &[OwnedVersion]) {
        self.own.set(self.own.get().max(time));
        let mut all = self.stored.borrow_mut();
        all.add(&system.versions, time, stored);
        system.drop_stored(&mut all);
    }

    /// The session has ended. Another session will go on with this state.
    pub fn forget_own(&self, system: &TxnSystem) {
        self.own.set(0);
        self.stored.borrow_mut().give_up(&system.versions);
    }

    pub fn take_idle(&self, system: &TxnSystem) -> BoxedTxn {
        let idle = self.idle.borrow_mut().pop();
        idle.unwrap_or_else(|| Txn::idle(system))
    }

    pub fn give_idle(&self, txn: BoxedTxn) {
        self.idle.borrow_mut().push(txn);
    }

    /// Keeps few of the transactions that have ended: one may have come from another session.
    pub fn trim(&self, system: &TxnSystem) {
        let mut idle = self.idle.borrow_mut();
        let kept = idle.len().min(MAX_IDLE_TXNS);
        idle.drain(kept..).for_each(|txn| system.snapshots.retire(txn.slot));
    }

    pub fn take_before(&self) -> Vec<u8> {
        self.before.take()
    }

    pub fn give_before(&self, buffer: Vec<u8>) {
        self.before.set(buffer);
    }

    /// An empty buffer for a value, with memory unless another task of the session has it.
    pub fn take_buffer(&self) -> Vec<u8> {
        let mut buffer = self.buffer.take();
        buffer.clear();
        buffer
    }

    pub fn give_buffer(&self, buffer: Vec<u8>) {
        if buffer.capacity() <= MAX_KEPT {
            self.buffer.set(buffer);
        }
    }

    pub fn take_cursor(&self) -> Option<Box<Cursor>> {
        self.cursors.borrow_mut().pop()
    }

    pub fn give_cursor(&self, cursor: Box<Cursor>) {
        let mut cursors = self.cursors.borrow_mut();
        if cursors.len() < MAX_CURSORS {
            cursors.push(cursor);
        }
    }

    /// Gives the slots of its transactions back to the engine.
    pub fn retire(&self, system: &TxnSystem) {
        for txn in self.idle.borrow_mut().drain(..) {
            system.snapshots.retire(txn.slot);
        }
    }
}
