//! [`TxnSystem`], shared by all transactions of one engine: clocks, snapshots, versions, log and
//! garbage. It does not know the catalog, checkpoints or sessions.

use super::{Durability, NameTimes, Reads, TreeHandles};
use crate::{
    catalog::OpenTree,
    garbage::GarbageQueue,
    keeper::Keeper,
    liveness::Liveness,
    mvcc::{Clock, Snapshots, UndoBuffer, Versions},
    waits::Waits,
};
use parking_lot::Mutex;
use std::sync::Arc;
use wattle_btree::{Context, Journal, PageImages};
use wattle_buffer::{Error, Pool, Result, Worker, io::Directory};
use wattle_wal::Log;

/// Later than every commit.
const FOREVER: u64 = u64::MAX >> 2;

/// See the module documentation.
pub(crate) struct TxnSystem {
    pub pool: Arc<Pool>,
    /// None: nothing is logged.
    pub log: Option<Arc<Log>>,
    /// The form of page images in the log.
    pub page_images: PageImages,
    /// Commit times.
    pub clock: Arc<Clock>,
    /// Ids of transactions that change something.
    pub ids: Arc<Clock>,
    pub snapshots: Snapshots,
    pub versions: Versions,
    pub keeper: Keeper,
    /// Garbage that commits leave in the pages.
    pub garbage: GarbageQueue,
    /// Handles of trees that sessions keep from one transaction to the next.
    pub handles: TreeHandles,
    /// When names of trees were changed.
    pub names: NameTimes,
    pub liveness: Liveness,
    pub durability: Durability,
    pub reads: Reads,
    /// Limit of the memory of versions, and of replaced large values, bytes.
    pub version_bytes: u64,
    /// How long operations and commits waited.
    pub waits: Arc<Waits>,
    /// Held by a serializable transaction while it validates and commits.
    pub validation: Mutex<()>,
    /// Where large undo buffers are written.
    pub undo_directory: Option<Arc<Directory>>,
}

impl TxnSystem {
    /// A context for one session.
    pub fn context(&self) -> Context {
        self.context_of(self.pool.worker())
    }

    /// A context for a session of the user.
    ///
    /// # Errors
    /// [`Error::Limit`] when the pool is too small for another session.
    pub fn session_context(&self) -> Result<Context> {
        Ok(self.context_of(self.pool.session_worker()?))
    }

    fn context_of(&self, worker: Worker) -> Context {
        Context::new(worker, Journal::new(self.log.as_ref())).with_page_images(self.page_images)
    }

    /// All commits up to this time are durable, or the engine does not wait for durability.
    ///
    /// Times are drawn, and noted, inside of sections of the log; see [`Log::durable_mark`].
    #[inline(always)]
    pub fn durable(&self) -> u64 {
        match &self.log {
            Some(log) if self.durability != Durability::None => log.durable_mark().max(1),
            _ => FOREVER,
        }
    }

    /// Auto-committed reads and read-only transactions see the commits up to this time.
    #[inline(always)]
    pub fn visible(&self) -> u64 {
        match self.reads {
            Reads::Durable => self.durable(),
            Reads::Newest => FOREVER,
        }
    }

    /// The reason why the engine or its log no longer takes changes; `None` while both do.
    pub fn failure(&self) -> Option<String> {
        let log = self.log.as_ref().and_then(|log| log.is_poisoned());
        let refusal = self.liveness.check().err();
        let error = refusal.filter(|error| !matches!(error, Error::ReadOnly));
        error.map(|error| error.to_string()).or(log)
    }

    /// Raises the horizon to the oldest snapshot and gives it: no snapshot needs a version or ghost
    /// that a commit up to this time has replaced.
    pub fn raise_horizon(&self) -> u64 {
        // In this order, as in a look of the keeper.
        let visible = self.visible();
        let active = self.snapshots.collect(&self.clock, &self.ids);
        self.versions.raise_horizon(active.oldest.min(visible))
    }

    /// The name of a tree was changed by an operation without a transaction, just now. The caller
    /// has the lock of the catalog: a snapshot at the time that is drawn here or later finds the
    /// change.
    pub fn note_name(&self, name: &str) {
        self.names.note([name].into_iter(), self.clock.draw(), self.versions.horizon());
    }

    /// Whether no snapshot needs the ghost of a record. A ghost without a version may belong to a
    /// transaction that owns the tree, or owned it.
    pub fn may_purge(&self, open: &OpenTree, key: &[u8]) -> bool {
        // First the owner, then the versions: it stored versions until it closed the tree.
        open.closed.is_over(self.versions.horizon())
            && !self.versions.is_needed(open.tree.id(), key)
    }

    /// The error of a snapshot that was cancelled.
    pub fn too_old(&self) -> Error {
        let limit = self.version_bytes;
        Error::SnapshotTooOld(format!(
            "versions of records took more than the limit of {limit} bytes, and the oldest \
             snapshot was cancelled"
        ))
    }

    /// All transactions up to this id have ended, as the keeper last saw it.
    #[inline]
    pub fn oldest_writer(&self) -> u64 {
        self.keeper.oldest_writer()
    }

    /// Bytes of versions of one transaction above which it becomes the owner of the trees that it
    /// changes.
    #[inline]
    pub fn large_txn_bytes(&self) -> u64 {
        self.keeper.large_txn_bytes()
    }

    /// An undo buffer, which goes to a file beside the store when it gets large.
    pub fn undo_buffer(&self) -> UndoBuffer {
        UndoBuffer::new(self.undo_directory.clone())
    }
}
