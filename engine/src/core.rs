//! [`Core`], shared by all handles of one open store: its pool, its transactions, its catalog, its
//! background threads and its files.
//!
//! Order of locks: `closed` before `idle`; `compacting` before `unlogged_pages`; the locks of
//! `tasks` before those of `readers` and `idle`. The thread that flushes the log may take `idle`
//! and those of `readers`, and never `closed`: [`crate::close`] waits for its end.

use crate::{
    barrier::Barrier,
    catalog::Catalog,
    checkpoint::Checkpoints,
    janitor::Janitor,
    kept_readers::KeptReaders,
    session::{idle::IdleStates, state::SessionState},
    store::StoreFile,
    store_info::StoreInfo,
    tree::Tree,
    txn::{Durability, TxnOptions, TxnSystem},
    unlogged_pages::{BulkLoad, NoBulkLoad, UnloggedPages},
    warm::WarmStart,
};
use parking_lot::Mutex;
use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};
use wattle_btree::{Context, Forest};
use wattle_buffer::{
    Background, Error, Inside, Pool, Result,
    io::{DeviceRates, LogStorage},
};
use wattle_wal::Log;

/// See the module documentation.
pub(crate) struct Core {
    pub pool: Arc<Pool>,
    /// None: nothing is logged.
    pub log: Option<Arc<Log>>,
    pub txns: TxnSystem,
    pub forest: Arc<Forest>,
    pub catalog: Catalog,
    pub janitor: Janitor,
    pub checkpoints: Checkpoints,
    /// How the store was left before.
    pub info: StoreInfo,
    pub warm: WarmStart,
    /// The store was opened read-only, see [`crate::Options::read_only`].
    pub read_only: bool,
    /// How long an auto-committed change waits for a transaction that holds its record.
    pub conflict_wait: Duration,
    /// Upper bound on the wait of an operation for another operation.
    pub stall_timeout: Duration,
    /// Bulk loads and direct values against backups and compactions.
    pub unlogged_pages: UnloggedPages,
    /// Held by a compaction, and by a verification, during which pages must not move.
    pub compacting: Mutex<()>,
    /// The number of the next blocking session.
    pub sessions: AtomicU64,
    /// States of ended sessions, which new sessions use again.
    pub idle: Mutex<IdleStates>,
    /// Readers that snapshots keep, which new sessions use when there is no other room.
    pub readers: KeptReaders,
    pub file: Arc<StoreFile>,
    /// The highest rates of the device, if it was probed.
    pub device_rates: Option<DeviceRates>,
    /// The storage of the log, for reading it back.
    pub log_storage: Option<Arc<dyn LogStorage>>,
    pub barrier: Arc<Barrier>,
    /// The threads of the pool.
    pub background: Mutex<Option<Background>>,
    /// The threads of `Engine::spawn`.
    #[cfg(feature = "async")]
    pub tasks: crate::task_threads::TaskThreads,
    pub closed: Mutex<bool>,
}

impl Core {
    /// A context for a session.
    pub fn context(&self) -> Context {
        self.txns.context()
    }

    /// Fails for a tree of another engine.
    #[inline(always)]
    pub fn check_tree(&self, tree: &Tree) -> Result<()> {
        if Arc::ptr_eq(tree.open.tree.pool(), &self.pool) {
            return Ok(());
        }
        Err(Error::ForeignTree(tree.name().to_string()))
    }

    /// Checks that a transaction may begin, and gives its options: read-only in a read-only store.
    pub fn check_begin(&self, mut options: TxnOptions) -> Result<TxnOptions> {
        options.read_only |= self.read_only;
        if options.read_only {
            self.pool.process().check()?;
        } else {
            self.check_alive()?;
        }
        Ok(options)
    }

    /// Changes are taken, see [`Liveness::check`](crate::liveness::Liveness::check).
    #[inline]
    pub fn check_alive(&self) -> Result<()> {
        self.txns.liveness.check()
    }

    /// Fails in a closure that the engine calls, where this call could wait for itself: see the
    /// table in the crate's documentation.
    pub fn check_caller(&self, refused: &[Inside]) -> Result<()> {
        self.pool.check_may_wait()?;
        refused.iter().try_for_each(|inside| inside.refuse())
    }

    /// The state for a session that begins: that of an ended session, or a new one, or that of a
    /// reader that a snapshot keeps and does not use.
    ///
    /// # Errors
    /// [`Error::Limit`] when the pool is too small for another session.
    pub fn session_state(&self) -> Result<Box<SessionState>> {
        let idle = self.idle.lock().pop();
        if let Some(state) = idle {
            return Ok(state);
        }
        let refused = match SessionState::new(&self.txns) {
            Ok(state) => return Ok(Box::new(state)),
            Err(error) => error,
        };
        let state = self.readers.take().ok_or(refused)?;
        self.clean(&state);
        Ok(state)
    }

    /// Makes the state of a session that ended one for any other session.
    pub fn clean(&self, state: &SessionState) {
        state.cx.worker.release();
        state.forget_own(&self.txns);
        state.trim(&self.txns);
    }

    /// Keeps the state of a session that ended for the next one. This may be the thread that
    /// flushes the log, see [`crate::Ticket::on_durable`].
    pub fn keep_idle(&self, state: Box<SessionState>) {
        if self.pool.process().is_other() {
            // It belongs to the parent process. Its locks may have been held at the fork.
            return std::mem::forget(state);
        }
        self.clean(&state);
        let left = self.idle.lock().keep(state);
        if let Some(state) = left {
            state.retire(&self.txns);
        }
    }

    /// Makes everything durable that is in the log.
    pub fn sync_log(&self) -> Result<()> {
        match &self.log {
            Some(log) => log.flush_now().map(|_| ()),
            None => Ok(()),
        }
    }

    /// Makes a change of the catalog durable, unless the engine's durability is `None`.
    pub fn sync_catalog(&self) -> Result<()> {
        match self.txns.durability {
            Durability::None => Ok(()),
            _ => self.sync_log(),
        }
    }

    /// Checks that data file and log are there, and whole. A superblock written without them would
    /// make a store unusable that could still be recovered.
    pub fn check_files(&self) -> Result<()> {
        self.file.check_files()?;
        let log = self.log.as_ref().map_or(Ok(()), |log| log.check_segments());
        log.map_err(|error| self.file.changed(error))
    }

    /// Blocks backups and compactions for a bulk load.
    pub fn bulk_loads(&self) -> Result<BulkLoad<'_>> {
        let guard = self.unlogged_pages.load(self.pool.stall_timeout());
        guard.ok_or_else(|| waited_for(self, "a backup or a compaction", "a bulk load"))
    }

    /// Blocks bulk loads for `ours`.
    pub fn no_bulk_loads(&self, ours: &str) -> Result<NoBulkLoad<'_>> {
        let guard = self.unlogged_pages.read(self.pool.stall_timeout());
        guard.ok_or_else(|| waited_for(self, "a bulk load, a backup or a compaction", ours))
    }
}

fn waited_for(core: &Core, other: &str, ours: &str) -> Error {
    let ms = core.pool.stall_timeout().as_millis();
    Error::Limit(format!(
        "{other} has not ended for {ms} ms, and {ours} cannot begin before it has"
    ))
}
