//! The part of a [`crate::Snapshot`] that its clones and ranges share, and how they read.
//!
//! It holds one slot of [`crate::mvcc::Snapshots`], so the versions that it sees are kept. Each
//! read borrows a *reader*: the state of a session, and a transaction that uses that slot, and its
//! time, instead of a slot of its own. So when the engine cancels the slot, each reader finds that
//! out after its next read of a version, as the owner of the slot would.
//!
//! A snapshot keeps the readers that no thread uses. Each takes the room of a session, and gives it
//! to a session that finds no other room ([`crate::kept_readers`]).

use crate::{
    core::Core,
    handle::{Grip, User},
    kept_readers::{Kept, Reader},
    mvcc::SnapshotSlot,
    session::{
        resolve::{OwnsState, Resolve},
        state::SessionState,
    },
    txn::Txn,
};
use std::sync::Arc;
use wattle_buffer::Result;

/// See the module documentation.
pub(crate) struct SharedSnapshot {
    pub core: Grip,
    slot: Arc<SnapshotSlot>,
    pub time: u64,
    kept: Arc<Kept>,
}

/// Readers that a snapshot keeps, at most.
const MAX_READERS: usize = 16;

/// A reader at work, as an environment of operations. It goes back to its snapshot.
pub(crate) struct Lease {
    shared: Arc<SharedSnapshot>,
    reader: Option<Reader>,
}

impl Lease {
    pub fn txn(&self) -> &Txn {
        &self.reader().txn
    }

    fn reader(&self) -> &Reader {
        self.reader.as_ref().expect("given back when it is dropped")
    }
}

impl OwnsState for Lease {
    fn engine(&self) -> &Core {
        &self.shared.core
    }
    fn state(&self) -> &SessionState {
        &self.reader().state
    }
}

impl Resolve for Lease {}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(reader) = self.reader.take() else { return };
        let shared = &self.shared;
        if shared.core.pool.process().is_other() {
            // It belongs to the parent process. Its locks may have been held at the fork.
            return std::mem::forget(reader);
        }
        let mut own = shared.kept.0.lock();
        if own.readers.len() < MAX_READERS {
            own.readers.push(reader);
            let is_new = !std::mem::replace(&mut own.is_listed, true);
            drop(own);
            if is_new {
                shared.core.readers.list(&shared.kept);
            }
            return;
        }
        drop(own);
        shared.core.keep_idle(reader.state);
    }
}

impl Drop for SharedSnapshot {
    fn drop(&mut self) {
        if self.core.pool.process().is_other() {
            return std::mem::forget(Arc::clone(&self.kept));
        }
        let readers = std::mem::take(&mut self.kept.0.lock().readers);
        for reader in readers {
            drop(reader.txn);
            self.core.keep_idle(reader.state);
        }
        self.slot.close();
        self.core.txns.snapshots.retire(self.slot.clone());
    }
}

impl SharedSnapshot {
    /// A snapshot of this moment that includes the commits up to `own`.
    pub fn open(core: &Grip, own: u64) -> Result<Arc<SharedSnapshot>> {
        core.pool.process().check()?;
        let core = core.share(User::Snapshot);
        let (slot, system) = (core.txns.snapshots.acquire(), &core.txns);
        let time = slot.open_at(|| system.visible().min(system.clock.now()).max(own));
        Ok(Arc::new(SharedSnapshot { core, slot, time, kept: Arc::default() }))
    }

    /// A reader for the calling thread.
    pub fn lease(self: &Arc<Self>) -> Result<Lease> {
        self.core.pool.process().check()?;
        let kept = self.kept.0.lock().readers.pop();
        let reader = match kept {
            Some(reader) => reader,
            None => {
                self.core.check_caller(&[])?;
                let state = self.core.session_state()?;
                Reader { state, txn: Txn::at(&self.core.txns, self.slot.clone(), self.time) }
            }
        };
        Ok(Lease { shared: Arc::clone(self), reader: Some(reader) })
    }
}
