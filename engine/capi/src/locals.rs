//! Handles of one thread: sessions, transactions and ranges.
//!
//! Each thread has a table of its own. The upper bits of a handle are the number of its thread, so
//! its use on another thread is found without a lock. When a thread ends, what it left open is
//! dropped: transactions are rolled back.

use crate::{
    chunks::Chunks,
    code::{Failure, Outcome, WattleCode},
    globals::WattleEngine,
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::{
    cell::RefCell,
    sync::atomic::{AtomicU64, Ordering},
};
use wattle::{Savepoint, Session, Transaction};

/// A session: its changes are auto-committed. Only the thread that opened it may use it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WattleSession {
    /// Number of the handle; 0 is none.
    pub number: u64,
}

/// A transaction. Only the thread that began it may use it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WattleTxn {
    /// Number of the handle; 0 is none.
    pub number: u64,
}

/// The records between two keys, in order. Only the thread that opened it may use it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WattleRange {
    /// Number of the handle; 0 is none.
    pub number: u64,
}

/// A session, and the number of its engine.
pub struct OpenSession {
    pub session: Session,
    pub engine: WattleEngine,
}

/// A transaction and its savepoints, by number.
pub struct OpenTxn {
    pub txn: Transaction<'static>,
    pub savepoints: Vec<Savepoint>,
}

/// The transaction that a range reads in.
pub enum Source {
    /// One of its own, for a range of a session.
    Own(Box<Transaction<'static>>),
    /// The handle of the caller's.
    Of(u64),
}

/// A range and its transaction.
pub struct OpenRange {
    pub chunks: Chunks,
    pub source: Source,
}

/// Bits of a handle that count the handles of its thread.
const COUNT_BITS: u32 = 40;

type Map<T> = HashMap<u64, T, FixedState>;

/// The open handles of a thread.
pub struct Locals {
    thread: u64,
    last: u64,
    pub sessions: Map<OpenSession>,
    pub txns: Map<OpenTxn>,
    pub ranges: Map<OpenRange>,
}

thread_local! {
    static LOCALS: RefCell<Locals> = RefCell::new(Locals::new());
}

impl Locals {
    fn new() -> Locals {
        static THREADS: AtomicU64 = AtomicU64::new(0);
        let map = || FixedState::with_seed(3);
        Locals {
            thread: THREADS.fetch_add(1, Ordering::Relaxed) + 1,
            last: 0,
            sessions: HashMap::with_hasher(map()),
            txns: HashMap::with_hasher(map()),
            ranges: HashMap::with_hasher(map()),
        }
    }

    /// A handle that was never given before.
    pub fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.thread << COUNT_BITS | self.last
    }

    /// Why a handle of `what` was not found.
    fn missing(thread: u64, what: &str, number: u64) -> Failure {
        if number >> COUNT_BITS != thread && number >> COUNT_BITS != 0 {
            let message = format!("the handle {number} belongs to another thread: open one here");
            return Failure::new(WattleCode::WrongThread, message);
        }
        let message = format!("the handle {number} is no open {what}: it was closed, or never was");
        Failure::new(WattleCode::ClosedHandle, message)
    }

    pub fn session(&self, number: u64) -> Outcome<&OpenSession> {
        let found = self.sessions.get(&number);
        found.ok_or_else(|| Self::missing(self.thread, "session", number))
    }

    pub fn txn(&mut self, number: u64) -> Outcome<&mut OpenTxn> {
        let thread = self.thread;
        self.txns.get_mut(&number).ok_or_else(|| Self::missing(thread, "transaction", number))
    }

    pub fn take_session(&mut self, number: u64) -> Outcome<OpenSession> {
        let found = self.sessions.remove(&number);
        found.ok_or_else(|| Self::missing(self.thread, "session", number))
    }

    pub fn take_txn(&mut self, number: u64) -> Outcome<OpenTxn> {
        let found = self.txns.remove(&number);
        found.ok_or_else(|| Self::missing(self.thread, "transaction", number))
    }

    pub fn take_range(&mut self, number: u64) -> Outcome<OpenRange> {
        let found = self.ranges.remove(&number);
        found.ok_or_else(|| Self::missing(self.thread, "range", number))
    }

    /// Goes to the next record of a range; false at its end.
    pub fn advance(&mut self, number: u64) -> Outcome<bool> {
        let (thread, txns) = (self.thread, &self.txns);
        let Some(range) = self.ranges.get_mut(&number) else {
            return Err(Self::missing(thread, "range", number));
        };
        if range.chunks.step() {
            return Ok(true);
        }
        let txn = match &range.source {
            Source::Own(txn) => txn,
            Source::Of(txn) => {
                let open = txns.get(txn);
                &open.ok_or_else(|| Self::missing(thread, "transaction", *txn))?.txn
            }
        };
        Ok(range.chunks.fill(txn)? && range.chunks.step())
    }
}

/// Runs `work` with the handles of this thread.
///
/// # Errors
/// [`WattleCode::Reentrant`] inside of another call on this thread, and
/// [`WattleCode::WrongThread`] when the thread is about to end.
pub fn with_locals<T>(work: impl FnOnce(&mut Locals) -> Outcome<T>) -> Outcome<T> {
    let run = |locals: &RefCell<Locals>| match locals.try_borrow_mut() {
        Ok(mut locals) => work(&mut locals),
        Err(_) => {
            let message = "the library was called inside of another call on the same thread";
            Err(Failure::new(WattleCode::Reentrant, message))
        }
    };
    LOCALS.try_with(run).unwrap_or_else(|_| {
        Err(Failure::new(WattleCode::WrongThread, "the thread has ended its handles already"))
    })
}
