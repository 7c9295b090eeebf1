//! Handles of trees that transactions hold while they run, so that nobody drops or renames a tree
//! that has changes of theirs. To clone one is a store to a line that all sessions share, twice for
//! each transaction; so a session keeps those of its last transactions for the next ones.
//!
//! OwnedVersion handles belong to no transaction. To drop or rename a tree, its handles are taken out of all
//! sessions first ([`Registry::release`]); what is left then is in use. So are all of them when trees
//! must be closed to make room for others ([`Registry::release_all`]).

use crate::{catalog::OpenTree, limits::limit};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};

/// Handles that a session keeps at most.
const MAX_KEPT: usize = limit(16, 2);

/// The handles that the transactions of a session take and give back, one after the other. Alone on its
/// cache lines.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Handles {
    kept: Mutex<Vec<Arc<OpenTree>>>,
}

impl Handles {
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
pub(crate) struct Registry {
    all: Mutex<Vec<Weak<Handles>>>,
}

impl Registry {
    /// Those of one more session, or of another transaction at once of the same.
    pub fn register(&self) -> Arc<Handles> {
        let handles = Arc::new(Handles::default());
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
