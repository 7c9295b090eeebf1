//! Readers that snapshots keep for their next reads. Each has the room of a session, and gives it
//! to a session that finds no other.

use crate::{session::state::SessionState, txn::BoxedTxn};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};

/// The state of a session, and a transaction that uses the slot of the snapshot.
pub(crate) struct Reader {
    pub state: Box<SessionState>,
    pub txn: BoxedTxn,
}

/// The readers of a snapshot that no thread uses.
#[derive(Default)]
pub(crate) struct Kept(pub Mutex<OwnReaders>);

#[derive(Default)]
pub(crate) struct OwnReaders {
    pub readers: Vec<Reader>,
    /// The snapshot is in [`KeptReaders`], or will be there soon.
    pub is_listed: bool,
}

/// All readers that no thread uses, by their snapshots.
#[derive(Default)]
pub(crate) struct KeptReaders {
    /// Taken before the locks of the snapshots.
    snapshots: Mutex<Vec<Weak<Kept>>>,
}

impl KeptReaders {
    pub fn list(&self, kept: &Arc<Kept>) {
        let mut snapshots = self.snapshots.lock();
        if snapshots.len() == snapshots.capacity() {
            // Dropped snapshots make room, so the list grows no longer than twice the number of
            // those with readers.
            snapshots.retain(|kept| kept.strong_count() > 0);
        }
        snapshots.push(Arc::downgrade(kept));
    }

    /// Takes a reader away from its snapshot; gives the state, as the reader left it.
    pub fn take(&self) -> Option<Box<SessionState>> {
        let mut snapshots = self.snapshots.lock();
        while let Some(last) = snapshots.last() {
            let Some(kept) = last.upgrade() else {
                snapshots.pop();
                continue;
            };
            let mut own = kept.0.lock();
            let taken = own.readers.pop();
            if own.readers.is_empty() {
                own.is_listed = false;
                snapshots.pop();
            }
            drop(own);
            if let Some(Reader { state, txn }) = taken {
                drop(snapshots);
                drop(txn);
                return Some(state);
            }
        }
        None
    }
}
