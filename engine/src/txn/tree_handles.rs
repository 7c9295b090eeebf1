//! SessionHandles of trees that transactions hold while they run, so that nobody drops or renames a tree
//! that has changes of theirs. To clone one is a store to a line that all sessions share, twice for
//! each transaction; so a session keeps those of its last transactions for the next ones.
//!
//! Kept handles belong to no transaction. To drop or rename a tree, its handles are taken out of all
//! sessions first ([`TreeHandles::release`]); what is left then is in use. So are all of them when trees
//! must be closed to make room for others ([`TreeHandles::release_all`]).

use crate::{catalog::OpenTree, limits::limit};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};

/// SessionHandles that a session keeps at most.
const MAX_KEPT: usize = limit(16, 2);

/// The handles that the transactions of a session take and give back, one after the other. Alone on its
/// cache lines.
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

    /// The transaction has ended. Leaves `handles` empty.
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
    /// Those of one more session, or of another transaction at once of the same.
    pub fn register(&self) -> Arc<SessionHandles> {
        let handles = Arc::new(SessionHandles::default());
        let mut all = self.all.lock();
        if all.len() == all.capacity() {
            all.retain(|handles| handles.strong_count() > 0);
        }
        all.push(Arc::downgrade(&handles));
        handles
    }

    /// Lets go of all handles that no transaction uses.
    pub fn release_all(&self) {
        for handles in self.all.lock().iter().filter_map(Weak::upgrade) {
            handles.kept.lock().clear();
        }
    }

    /// Lets go of all handles of `tree` that no transaction uses.
    pub fn release(&self, tree: &Arc<OpenTree>) {
        for handles in self.all.lock().iter().filter_map(Weak::upgrade) {
            handles.kept.lock().retain(|open| !Arc::ptr_eq(open, tree));
        }
    }
}
