//! The session that a transaction runs in, on any thread.
//!
//! A transaction of [`crate::Engine::begin`] has a session of its own and takes it along. One of
//! [`crate::Session::begin`] is lent the session of its caller, which other threads must not touch.
//! When such a transaction runs on another thread for the first time it takes a session of its own,
//! and uses that until its end, also if it comes back.
//!
//! **The change of sessions in the middle of a transaction is safe**, because all that belongs to
//! the transaction is in its [`Txn`]: snapshot, undo entries, versions, reads, open trees. Of the
//! session it uses a worker and an appender of the log. Recovery needs the records of one
//! transaction in the order of its changes: a record without undo takes back the newest change
//! before it. Numbers of records ascend for each appender, so the new appender observes the number
//! of the newest change before it writes anything. A commit is durable with the epoch of its
//! record; the changes have earlier epochs or the same one, because the transaction was handed over
//! between the two.

use crate::{
    core::Core,
    handle::{Grip, User},
    session::blocking::Session,
    txn::Txn,
};
use std::cell::OnceCell;
use wattle_btree::Journal;
use wattle_buffer::{HomeRef, Result};

/// See the module documentation.
pub(crate) enum Held<'s> {
    Lent(Lent<'s>),
    Own(Box<Session>),
}

/// A session that is lent while the transaction is on its thread.
pub(crate) struct Lent<'s> {
    session: HomeRef<'s, Session>,
    core: &'s Grip,
    /// In place of the lent one, since the transaction was on another thread.
    own: OnceCell<Box<Session>>,
}

impl<'s> Held<'s> {
    #[inline]
    pub fn lent(session: &'s Session) -> Held<'s> {
        let core = session.handle();
        Held::Lent(Lent { session: HomeRef::new(session), core, own: OnceCell::new() })
    }

    /// The session to run `txn` in on the calling thread.
    ///
    /// # Errors
    /// [`wattle_buffer::Error::Limit`] when the transaction needs a session of its own and the pool
    /// is too small for another one.
    #[inline(always)]
    pub fn get(&self, txn: &Txn) -> Result<&Session> {
        match self {
            Held::Lent(lent) => match lent.session.get() {
                Some(session) => Ok(session),
                None => lent.away(txn),
            },
            Held::Own(session) => Ok(session),
        }
    }

    pub fn core(&self) -> &Core {
        match self {
            Held::Lent(lent) => lent.core,
            Held::Own(session) => session.handle(),
        }
    }
}

impl Lent<'_> {
    #[cold]
    fn away(&self, txn: &Txn) -> Result<&Session> {
        if let Some(session) = self.own.get() {
            return Ok(session);
        }
        let session = Session::open(self.core, User::Transaction)?;
        if let Journal::On(_, appender) = session.journal() {
            appender.observe(txn.last_gsn);
        }
        // The session of the caller would have to observe, too.
        self.session.leave();
        Ok(self.own.get_or_init(|| Box::new(session)))
    }
}
