//! Transactions that are repeated after conflicts.

use crate::{
    core::Core,
    engine::Engine,
    session::{
        blocking::Session,
        resolve::{Resolve, now},
    },
    transaction::Transaction,
    txn::TxnOptions,
};
use std::{
    hash::{BuildHasher, RandomState},
    time::{Duration, Instant},
};
use wattle_buffer::{Error, Result};

/// After so many conflicts in a row an attempt begins at once, but for a turn of the other threads.
const AT_ONCE: u32 = 2;
/// Upper bound on the first random pause. It doubles with each attempt.
const FIRST_PAUSE: Duration = Duration::from_micros(50);
/// How often it doubles: up to 12.8 ms.
const DOUBLINGS: u32 = 8;

/// The pauses between the attempts of one transaction.
pub(crate) struct BackOff {
    attempts: u32,
    since: Option<Instant>,
    random: RandomState,
}

impl BackOff {
    pub fn new() -> BackOff {
        BackOff { attempts: 0, since: None, random: RandomState::new() }
    }

    /// The pause before the next attempt; `None`: conflicts have gone on for too long.
    fn next(&mut self, core: &Core) -> Option<Duration> {
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() > core.stall_timeout.max(core.conflict_wait) {
            return None;
        }
        let attempt = self.attempts;
        self.attempts += 1;
        let Some(slow) = attempt.checked_sub(AT_ONCE) else { return Some(Duration::ZERO) };
        // Two transactions that stop each other must not stay in step.
        let bound = (FIRST_PAUSE * (1 << slow.min(DOUBLINGS))).as_nanos() as u64;
        Some(Duration::from_nanos(self.random.hash_one(attempt) % bound))
    }

    /// Waits before the next attempt; false: there is none.
    pub async fn wait<R: Resolve>(&mut self, session: &R) -> bool {
        match self.next(session.core()) {
            None => return false,
            Some(Duration::ZERO) => session.pause(0).await,
            Some(pause) => session.sleep(pause).await,
        }
        true
    }
}

fn transact<T, E: From<Error>>(
    session: &Session,
    options: TxnOptions,
    mut body: impl FnMut(&mut Transaction<'_>) -> Result<T, E>,
    may_repeat: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let mut back_off = BackOff::new();
    loop {
        let mut txn = session.begin_with(options)?;
        let error = match body(&mut txn) {
            Ok(value) => {
                let met = txn.is_in_conflict();
                txn.may_wait()?;
                match txn.commit_ticket() {
                    Ok(ticket) => return Ok(ticket.wait().map(|()| value)?),
                    Err(error) if met || error.is_retryable() => E::from(error),
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) => {
                let repeat = txn.is_in_conflict() || may_repeat(&error);
                txn.abort()?;
                if !repeat {
                    return Err(error);
                }
                error
            }
        };
        if !now(back_off.wait(session)) {
            return Err(error);
        }
    }
}

impl Engine {
    /// Runs `body` in a transaction, in a session of its own, and commits; durable when it returns.
    /// See [`Session::transact`].
    ///
    /// ```
    /// # use wattle::{Engine, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// # let tree = engine.tree("t")?;
    /// let number = engine.transact(|txn| {
    ///     let last = txn.get(&tree, b"last")?.map_or(0, |value| value[0]);
    ///     txn.put(&tree, b"last", &[last + 1])?;
    ///     Ok(last + 1)
    /// })?;
    /// assert_eq!(number, 1);
    /// # Ok::<(), wattle::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::transact`] and [`Engine::session`].
    pub fn transact<T>(&self, body: impl FnMut(&mut Transaction<'_>) -> Result<T>) -> Result<T> {
        self.session_of_transaction()?.transact(body)
    }
}

impl Session {
    /// Runs `body` in a transaction with snapshot isolation, commits, and gives what `body` gave.
    /// Durable when it returns. After a conflict ([`Error::is_retryable`]) the transaction is
    /// rolled back and `body` runs again in a new one: twice almost at once, then after random
    /// pauses of up to 50 us that grow to 12.8 ms. So `body` must have no effect but through its
    /// transaction. An error of `body`, or its panic, rolls back.
    ///
    /// ```
    /// # use wattle::{Engine, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// # let tree = engine.tree("t")?;
    /// # engine.session()?.put(&tree, b"hits", &[0; 8])?;
    /// std::thread::scope(|scope| {
    ///     for _ in 0..4 {
    ///         scope.spawn(|| {
    ///             let session = engine.session()?;
    ///             session.transact(|txn| {
    ///                 let hits = txn.get(&tree, b"hits")?.expect("8 bytes");
    ///                 let hits = u64::from_be_bytes(hits.try_into().expect("8 bytes"));
    ///                 txn.put(&tree, b"hits", &(hits + 1).to_be_bytes())
    ///             })
    ///         });
    ///     }
    /// });
    /// let hits = engine.session()?.get(&tree, b"hits")?;
    /// assert_eq!(hits.as_deref(), Some(&4_u64.to_be_bytes()[..]));
    /// # Ok::<(), wattle::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `body`; those of [`Session::begin`], [`Transaction::commit`] and
    /// [`Transaction::abort`]. The last conflict, when they have gone on for longer than
    /// [`crate::Options::stall_timeout`] (or [`crate::Options::conflict_wait`], if that is longer).
    pub fn transact<T>(&self, body: impl FnMut(&mut Transaction<'_>) -> Result<T>) -> Result<T> {
        transact(self, TxnOptions::default(), body, Error::is_retryable)
    }

    /// As [`Session::transact`], with options, and with an error of the caller. Such an error does
    /// not end the attempts when the transaction has met a conflict, because `body` may have made
    /// it from that.
    ///
    /// ```
    /// # use wattle::{Engine, IoKind, Isolation, Options, TxnOptions};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// # let tree = engine.tree("t")?;
    /// # let session = engine.session()?;
    /// #[derive(Debug, PartialEq)]
    /// enum Refused { Poor, Engine(String) }
    /// impl From<wattle::Error> for Refused {
    ///     fn from(error: wattle::Error) -> Refused { Refused::Engine(error.to_string()) }
    /// }
    /// let options = TxnOptions { isolation: Isolation::Serializable, ..TxnOptions::default() };
    /// let paid: Result<u8, Refused> = session.transact_with(options, |txn| {
    ///     let balance = txn.get(&tree, b"alice")?.map_or(0, |value| value[0]);
    ///     let rest = balance.checked_sub(5).ok_or(Refused::Poor)?;
    ///     txn.put(&tree, b"alice", &[rest])?;
    ///     Ok(rest)
    /// });
    /// assert_eq!(paid, Err(Refused::Poor));
    /// # Ok::<(), wattle::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::transact`].
    pub fn transact_with<T, E: From<Error>>(
        &self,
        options: TxnOptions,
        body: impl FnMut(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        transact(self, options, body, |_| false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IoKind, Options, session::resolve::Environment};

    #[test]
    fn pauses_grow_to_their_bound_and_end() {
        let options = Options::default().io(IoKind::Memory).pool_bytes(8 << 20);
        let engine = Engine::open("pauses", options).expect("open");
        let session = engine.session().expect("session");
        let mut back_off = BackOff::new();
        let mut longest = Duration::ZERO;
        for attempt in 0..200 {
            let pause = back_off.next(session.core()).expect("not too long yet");
            let slow = u32::saturating_sub(attempt, AT_ONCE).min(DOUBLINGS);
            assert!(pause < FIRST_PAUSE * (1 << slow), "{pause:?} of attempt {attempt}");
            longest = longest.max(pause);
        }
        assert!(longest > Duration::from_millis(6), "{longest:?}");
        let long_ago = Instant::now().checked_sub(Duration::from_secs(3600));
        back_off.since = Some(long_ago.expect("the clock has run for an hour"));
        assert_eq!(back_off.next(session.core()), None);
    }
}
