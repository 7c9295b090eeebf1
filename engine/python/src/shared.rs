//! The engine that all objects share, and its sessions.

use parking_lot::Mutex;
use wattle::{Engine, Error, Result, Session, Transaction};

/// An engine until it is closed, and idle sessions of it.
pub struct Shared {
    engine: Mutex<Option<Engine>>,
    sessions: Mutex<Vec<Session>>,
}

impl Shared {
    pub fn new(engine: Engine) -> Shared {
        Shared { engine: Mutex::new(Some(engine)), sessions: Mutex::new(Vec::new()) }
    }

    /// The engine.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn engine(&self) -> Result<Engine> {
        self.engine.lock().clone().ok_or(Error::Closed)
    }

    /// Runs `work` with a session that no other thread uses meanwhile.
    pub fn with_session<T>(&self, work: impl FnOnce(&Session) -> Result<T>) -> Result<T> {
        let idle = self.sessions.lock().pop();
        let session = match idle {
            Some(session) => session,
            None => self.engine()?.session()?,
        };
        let result = work(&session);
        // Under the lock of the engine, so that `close` finds all idle sessions.
        if self.engine.lock().is_some() {
            self.sessions.lock().push(session);
        }
        result
    }

    /// Closes the engine, unless transactions or ranges are open.
    pub fn close(&self) -> Result<()> {
        let mut open = self.engine.lock();
        let Some(engine) = open.take() else { return Ok(()) };
        self.sessions.lock().clear();
        engine.close().map_err(|refused| {
            let error = refused.error().clone();
            *open = refused.into_engine();
            error
        })
    }
}

/// A transaction until it ends.
pub struct Open(Mutex<Option<Transaction<'static>>>);

impl Open {
    pub fn new(txn: Transaction<'static>) -> Open {
        Open(Mutex::new(Some(txn)))
    }

    /// Runs `work` with the transaction.
    ///
    /// # Errors
    /// It has ended, or another thread uses it at this moment.
    pub fn with<T>(&self, work: impl FnOnce(&mut Transaction<'static>) -> Result<T>) -> Result<T> {
        let mut txn = self.0.try_lock().ok_or(IN_USE).map_err(in_use)?;
        work(txn.as_mut().ok_or(Error::Closed)?)
    }

    /// Takes the transaction, to end it.
    ///
    /// # Errors
    /// As [`Open::with`].
    pub fn take(&self) -> Result<Transaction<'static>> {
        let mut txn = self.0.try_lock().ok_or(IN_USE).map_err(in_use)?;
        txn.take().ok_or(Error::Closed)
    }
}

const IN_USE: &str =
    "another thread uses the transaction at this moment: begin one for each thread";

fn in_use(why: &str) -> Error {
    Error::Limit(why.to_string())
}
