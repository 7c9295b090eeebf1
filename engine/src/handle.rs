//! Handles of an open store. Engines and sessions hold one each; background threads hold the core
//! alone. The store is closed by [`crate::Engine::close`], or when its last handle goes.
//!
//! Handles are counted by kind, so that an engine that cannot be closed can say why.

use crate::{close::close, core::Core};
use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use wattle_buffer::Inside;

/// See the module documentation.
pub(crate) struct Handle {
    core: Arc<Core>,
    users: [AtomicUsize; User::ALL.len()],
}

/// The kind of object that has a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    Engine,
    Session,
    AsyncSession,
    /// A transaction with a session of its own.
    Transaction,
    Snapshot,
}

impl User {
    const ALL: [User; 5] =
        [User::Engine, User::Session, User::AsyncSession, User::Transaction, User::Snapshot];

    fn name(self) -> &'static str {
        match self {
            User::Engine => "clone of the engine",
            User::Session => "session",
            User::AsyncSession => "asynchronous session",
            User::Transaction => "transaction",
            User::Snapshot => "snapshot",
        }
    }
}

/// A counted handle.
pub(crate) struct Grip {
    handle: Arc<Handle>,
    user: User,
}

impl Grip {
    /// The first handle of a store, that of its engine.
    pub fn first(core: Arc<Core>) -> Grip {
        let handle = Arc::new(Handle { core, users: Default::default() });
        Grip::new(&handle, User::Engine)
    }

    fn new(handle: &Arc<Handle>, user: User) -> Grip {
        handle.users[user as usize].fetch_add(1, Ordering::Relaxed);
        Grip { handle: handle.clone(), user }
    }

    /// One more handle.
    pub fn share(&self, user: User) -> Grip {
        Grip::new(&self.handle, user)
    }

    pub fn core(&self) -> &Arc<Core> {
        &self.handle.core
    }

    /// The other handles, in words; `None` if there are none. Only a handle can make another one.
    pub fn others(&self) -> Option<String> {
        let count = |user: User| {
            // Partner: the release in `drop`.
            let all = self.handle.users[user as usize].load(Ordering::Acquire);
            (user, all - usize::from(user == self.user))
        };
        let alive = User::ALL.map(count).into_iter().filter(|(_, count)| *count > 0);
        let names: Vec<String> = alive
            .map(|(user, count)| match (user, count) {
                (user, 1) => format!("1 {}", user.name()),
                (User::Engine, count) => format!("{count} clones of the engine"),
                (user, count) => format!("{count} {}s", user.name()),
            })
            .collect();
        match names.as_slice() {
            [] => None,
            [one] => Some(one.clone()),
            [first @ .., last] => Some(format!("{} and {last}", first.join(", "))),
        }
    }
}

impl Drop for Grip {
    fn drop(&mut self) {
        self.handle.users[self.user as usize].fetch_sub(1, Ordering::Release);
    }
}

impl Deref for Grip {
    type Target = Core;
    #[inline(always)]
    fn deref(&self) -> &Core {
        &self.handle.core
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.core.pool.process().is_other() {
            // The parent has the threads and writes the files. This copy of the memory goes with
            // the process.
            return std::mem::forget(Arc::clone(&self.core));
        }
        if !Inside::Durable.is_here() {
            return close_dropped(&self.core);
        }
        // This thread flushes the log, for which closing waits.
        let core = Arc::clone(&self.core);
        let closing = std::thread::Builder::new().name("close".to_string());
        if let Err(error) = closing.spawn(move || close_dropped(&core)) {
            tracing::error!(%error, "the store was not closed: there is no thread for it");
        }
    }
}

fn close_dropped(core: &Core) {
    if let Err(error) = close(core) {
        let path = core.file.path.display();
        tracing::error!(%path, %error, "the store was not closed");
    }
}
