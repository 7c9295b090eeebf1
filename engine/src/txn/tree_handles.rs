//! A running transaction holds a handle of each tree that it has changed, so that the tree is not
//! dropped or renamed. Cloning and dropping a handle for each transaction would be two stores to a
//! cache line that all sessions share; so a session keeps the handles of its last transactions for
//! the next ones.
//!
//! Kept handles belong to no transaction. Before a tree is dropped or renamed, its kept handles are
//! taken out of all sessions ([`TreeHandles::release`]). A handle that still exists then means that
//! the tree is in use. Before trees are closed to make room, all kept handles are taken out
//! ([`TreeHandles::release_all`]).

use crate::{catalog::OpenTree, limits::limit};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};

/// How many handles a session keeps at most.
const MAX_KEPT: usize = limit(16, 2);

/// The handles that the transactions of a session take and give back, one after the other. Alone on
/// its cache lines.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct SessionHandles {
    kept: Mutex<Vec<Arc<OpenTree>>>,
}

impl SessionHandles {
    /// A handle of `tree` for a transaction.
    pub fn take(&self, tree: &Arc<OpenTree>) -> Arc<OpenTree> {
        let mut kept = self.kept.lock();
        match kept.iter().position(|open| Arc::ptr_eq(open, tree)) {
            Some(at) => kept.swap_remove(at),
            None => tree.clone(),
        }
    }

    /// Keeps the handles of a transaction that has ended. Leaves `handles` empty.
    pub fn give(&self, handles: &mut Vec<Arc<OpenTree>>) {
        if handles.is_empty() {
            return;
        }
        {
            let mut kept = self.kept.lock();
            while kept.len() < MAX_KEPT
                && let Some(handle) = handles.pop()
            {
                kept.push(handle);
            }
        }
        handles.clear();
    }
}

/// The handles of all sessions.
#[derive(Default)]
pub(crate) struct TreeHandles {
    all: Mutex<Vec<Weak<SessionHandles>>>,
}

impl TreeHandles {
    /// Adds the kept handles of a new session, or of a second transaction of a session at the same
    /// time.
    pub fn register(&self) -> Arc<SessionHandles> {
        let handles = Arc::new(SessionHandles::default());
        let mut all = self.all.lock();
        if all.len() == all.capacity() {
            all.retain(|handles| handles.strong_count() > 0);
        }
        all.push(Arc::downgrade(&handles));
        handles
    }

    /// Drops all kept handles.
    pub fn release_all(&self) {
        for handles in self.all.lock().iter().filter_map(Weak::upgrade) {
            handles.kept.lock().clear();
        }
    }

    /// Drops all kept handles of `tree`.
    pub fn release(&self, tree: &Arc<OpenTree>) {
        for handles in self.all.lock().iter().filter_map(Weak::upgrade) {
            handles.kept.lock().retain(|open| !Arc::ptr_eq(open, tree));
        }
    }
}
