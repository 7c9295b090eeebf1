//! A blocking session: it blocks its thread where an operation waits. Its operations are in the
//! parent module, above the transactions that it begins.

use super::{
    resolve::{Environment, OwnsState, Resolve},
    state::SessionState,
};
use crate::{
    core::Core,
    handle::{Grip, User},
    txn::Durability,
};
use std::sync::atomic::Ordering;
use wattle_btree::Journal;
use wattle_buffer::{Inside, Result};

/// A blocking session. Its operations are auto-committed; [`Session::begin`] begins a transaction
/// of several operations. It is `Send` and not `Sync`: it may move between threads while no
/// transaction and no range of it is alive. A session that is leaked counts as alive for
/// [`crate::Engine::close`].
///
/// Auto-committed reads see every commit that has returned, from every session, or only what is
/// durable and the session's own commits ([`crate::Options::reads`]); they never wait for a writer
/// or for the log.
///
/// ```
/// # use wattle::{Engine, IoKind, Options};
/// use std::ops::{Bound::Unbounded, ControlFlow};
/// use wattle::{Direction, TxnOptions};
/// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
/// # let tree = engine.tree("t")?;
/// let session = engine.session()?;
/// session.put_many(&tree, &[("a", "1"), ("b", "2"), ("c", "333")])?;
/// assert_eq!(session.get(&tree, b"a")?.as_deref(), Some(&b"1"[..]));
/// assert_eq!(session.value_len(&tree, b"c")?, Some(3));
/// assert_eq!(session.last(&tree)?, Some((b"c".to_vec(), b"333".to_vec())));
///
/// session.prefetch(&[(&tree, "a"), (&tree, "b")])?;      // reads their pages together
/// assert_eq!(session.remove_many(&tree, &["a", "b"])?, 2);
/// assert!(!session.contains(&tree, b"a")?);
///
/// let (mut keys, all) = (0, (Unbounded, Unbounded));
/// session.visit(&tree, all, Direction::Forward, |_key, _value| {
///     keys += 1;
///     ControlFlow::Continue(())
/// })?;
/// assert_eq!(keys, 1);
/// assert!(session.snapshot()?.contains(&tree, b"c")?);
/// let reading = session.begin_with(TxnOptions { read_only: true, ..TxnOptions::default() })?;
/// assert!(reading.contains(&tree, b"c")?);
/// # Ok::<(), wattle::Error>(())
/// ```
pub struct Session {
    state: Option<Box<SessionState>>,
    pub(super) core: Grip,
}

impl OwnsState for Session {
    #[inline(always)]
    fn engine(&self) -> &Core {
        &self.core
    }
    #[inline(always)]
    fn state(&self) -> &SessionState {
        self.state.as_deref().expect("kept until the session is dropped")
    }
}

impl Resolve for Session {}

impl Session {
    /// A session of an engine.
    ///
    /// # Errors
    /// [`Error::Limit`] when the pool is too small for another one.
    pub(crate) fn open(core: &Grip, user: User) -> Result<Session> {
        core.check_caller(&[])?;
        let state = core.session_state()?;
        state.number.set(core.sessions.fetch_add(1, Ordering::Relaxed));
        Ok(Session { state: Some(state), core: core.share(user) })
    }

    #[inline(always)]
    pub(crate) fn handle(&self) -> &Grip {
        &self.core
    }

    pub(crate) fn journal(&self) -> &Journal {
        &self.state().cx.journal
    }

    /// Refuses a change, before it changes anything, where its commit could not be waited for.
    #[inline]
    pub(crate) fn may_wait(&self) -> Result<()> {
        self.may_wait_by(self.core.txns.durability)
    }

    #[inline]
    pub(crate) fn may_wait_by(&self, durability: Durability) -> Result<()> {
        match (self.log(), durability.urgency()) {
            (Some(_), Some(_)) => Inside::Durable.refuse(),
            _ => Ok(()),
        }
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
