//! The part of a [`crate::Snapshot`] that its clones and ranges share, and how they read.
//!
//! It holds one slot of [`crate::mvcc::Snapshots`], so the versions that it sees are kept. Each
//! read borrows a *reader*: the state of a session, and a transaction that uses that slot, and its
//! time, instead of a slot of its own. So when the engine cancels the slot, each reader finds that
//! out after its next read of a version, as the owner of the slot would.

use crate::{
    core::Core,
    handle::{Grip, User},
    mvcc::SnapshotSlot,
    session::{
        resolve::{OwnsState, Resolve},
        state::SessionState,
    },
    txn::{BoxedTxn, Txn},
};
use parking_lot::Mutex;
use std::sync::Arc;
use wattle_buffer::Result;

/// See the module documentation.
pub(crate) struct SharedSnapshot {
    pub core: Grip,
    slot: Arc<SnapshotSlot>,
    pub time: u64,
    /// Readers that no thread uses.
    readers: Mutex<Vec<Reader>>,
}

/// Readers that a snapshot keeps.
const MAX_READERS: usize = 16;

/// See the module documentation.
struct Reader {
    state: Box<SessionState>,
    txn: BoxedTxn,
}

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
        let mut readers = shared.readers.lock();
        if readers.len() < MAX_READERS {
            return readers.push(reader);
        }
        drop(readers);
        shared.core.keep_idle(reader.state);
    }
}

impl Drop for SharedSnapshot {
    fn drop(&mut self) {
        let readers = std::mem::take(self.readers.get_mut());
        if self.core.pool.process().is_other() {
            return std::mem::forget(readers);
        }
        for reader in readers {
            drop(reader.txn);
            self.core.keep_idle(reader.state);
        }
        self.slot.close();
        self.core.txns.snapshots.retire(self.slot.clone());
    }
}

/// The state of an ended session, or a new one.
fn idle_state(core: &Core) -> Result<Box<SessionState>> {
    core.check_caller(&[])?;
    let idle = core.idle.lock().pop();
    if let Some(state) = idle {
        return Ok(state);
    }
    core.pool.check_workers()?;
    Ok(Box::new(SessionState::new(&core.txns)))
}

impl SharedSnapshot {
    /// A snapshot of this moment that includes the commits up to `own`.
    pub fn open(core: &Grip, own: u64) -> Result<Arc<SharedSnapshot>> {
        core.pool.process().check()?;
        let core = core.share(User::Snapshot);
        let (slot, system) = (core.txns.snapshots.acquire(), &core.txns);
        let time = slot.open_at(|| system.visible().min(system.clock.now()).max(own));
        Ok(Arc::new(SharedSnapshot { core, slot, time, readers: Mutex::default() }))
    }

    /// A reader for the calling thread.
    pub fn lease(self: &Arc<Self>) -> Result<Lease> {
        self.core.pool.process().check()?;
        let kept = self.readers.lock().pop();
        let reader = match kept {
            Some(reader) => reader,
            None => {
                let state = idle_state(&self.core)?;
                Reader { state, txn: Txn::at(&self.core.txns, self.slot.clone(), self.time) }
            }
        };
        Ok(Lease { shared: Arc::clone(self), reader: Some(reader) })
    }
}
