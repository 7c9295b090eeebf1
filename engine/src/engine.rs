//! The public engine: it opens stores, and hands out trees, sessions and transactions.

use crate::{
    backup::{self, BackupReport},
    catalog::OpenFor,
    close,
    compact::CompactReport,
    handle::{Grip, User},
    open::open,
    options::Options,
    session::blocking::Session,
    stats::{Stats, TreeStat},
    store::StoreFile,
    store_info::StoreInfo,
    transaction::Transaction,
    tree::Tree,
    txn::TxnOptions,
    verify::{self, VerifyReport},
};
use std::{
    fmt,
    path::Path,
    sync::{Arc, atomic::AtomicBool},
};
use wattle_buffer::{
    Error, Inside, Pool, Result,
    io::{LogStorage, Storage},
};

/// An open store. Cheap to clone; all clones and sessions share it. It is `Send` and `Sync`.
///
/// When the last of engines and sessions is dropped the store is closed, too; but only
/// [`Engine::close`] can report a failure.
///
/// ```
/// # use wattle::{Engine, IoKind, Options};
/// # let options = Options::default().pool_bytes(8 << 20).io(IoKind::Threads);
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("store");
/// let engine = Engine::open(&path, options.clone())?;
/// let orders = engine.create_tree("orders")?;         // fails if there is one
/// engine.session()?.put(&orders, b"o-1", b"new")?;
/// engine.sync()?;                                     // all commits so far are durable
/// engine.checkpoint()?;                               // recovery would be short
/// assert_eq!(engine.trees()?, ["orders"]);
/// assert_eq!(engine.tree_stats()?[0].records, 1);
/// assert!(engine.stats().checkpoints > 0 && engine.has_log());
/// assert_eq!(engine.back_end(), "threads");
/// engine.abandon()?;                                  // as a crash
/// assert_eq!(Engine::open(&path, options)?.trees()?, ["orders"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Engine {
    core: Grip,
}

impl Clone for Engine {
    fn clone(&self) -> Engine {
        Engine { core: self.core.share(User::Engine) }
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Engine({:?})", self.core.file.path)
    }
}

impl Engine {
    /// Opens the store in the directory `path`, creating it if there is none. One process, and in
    /// it one engine, can have a store open at a time. With [`crate::IoKind::Memory`] nothing is
    /// stored and `path` is only a name.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// use wattle::{Engine, Options};
    /// let options = Options::default().pool_bytes(8 << 20);
    /// let engine = Engine::open(dir.path().join("store"), options)?;
    /// engine.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A path that is not a store or a store of another version, already open, damaged or not
    /// closed cleanly; options out of their limits; failed I/O; [`Error::Interrupted`]. After an
    /// error the store on disk is unchanged, except for steps that the next opening would repeat.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Engine> {
        options.check()?;
        let (path, io) = (path.as_ref(), options.io);
        let file = match options.read_only {
            true => StoreFile::open_read_only(path, io, options.overlay_pages())?,
            false => StoreFile::open(path, io, options.create)?,
        };
        Ok(Engine { core: Grip::first(open(file, &options)?) })
    }

    /// Opens a store on storages that the caller made, for its pages and for its log; for tests
    /// with simulated devices.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use wattle::{Engine, Options, io::{MemoryLog, MemoryStorage}};
    /// let (pages, log) = (MemoryStorage::new(), MemoryLog::default());
    /// let options = Options::default().pool_bytes(8 << 20);
    /// let engine = Engine::open_on(Arc::new(pages), Arc::new(log), options)?;
    /// engine.tree("in memory")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub fn open_on(
        storage: Arc<dyn Storage>,
        log: Arc<dyn LogStorage>,
        options: Options,
    ) -> Result<Engine> {
        options.check()?;
        let file = StoreFile::on(storage, log);
        let file = if options.read_only { file.read_only(options.overlay_pages()) } else { file };
        Ok(Engine { core: Grip::first(open(file, &options)?) })
    }

    /// Opens the tree `name` (1 to 255 bytes), creating it if there is none.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// let orders = engine.tree("orders")?;
    /// assert_eq!(orders.name(), "orders");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A bad name, a full device, failed I/O. [`Error::Limit`] when handles and open transactions
    /// hold as many trees as the pool can keep open ([`Options::min_pool_bytes`]). A tree without
    /// handles does not count: it is closed when room is needed.
    pub fn tree(&self, name: &str) -> Result<Tree> {
        self.core.check_caller(&[])?;
        let cx = self.core.context();
        if let Some(open) = self.core.catalog.open(&self.core.txns, &cx, name, OpenFor::User)? {
            return Ok(Tree { open });
        }
        self.core.check_alive()?;
        let open = self.core.catalog.open_or_create(&self.core.txns, &cx, name)?;
        self.core.sync_catalog()?;
        Ok(Tree { open })
    }

    /// Opens the tree `name`, if there is one.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// assert!(engine.open_tree("orders")?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Engine::tree`].
    pub fn open_tree(&self, name: &str) -> Result<Option<Tree>> {
        self.core.check_caller(&[])?;
        Ok(self
            .core
            .catalog
            .open(&self.core.txns, &self.core.context(), name, OpenFor::User)?
            .map(|open| Tree { open }))
    }

    /// Creates the tree `name`.
    ///
    /// # Errors
    /// [`Error::TreeExists`], and as [`Engine::tree`].
    pub fn create_tree(&self, name: &str) -> Result<Tree> {
        self.core.check_caller(&[])?;
        self.core.check_alive()?;
        let open = self.core.catalog.create(&self.core.txns, &self.core.context(), name)?;
        self.core.sync_catalog()?;
        Ok(Tree { open })
    }

    /// Drops a tree with everything in it and gives its pages back. `tree` must be the only handle,
    /// and no transaction that changed it may be open.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// let orders = engine.tree("orders")?;
    /// engine.drop_tree(orders)?;
    /// assert!(engine.trees()?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::TreeInUse`], [`Error::ForeignTree`], failed I/O: the rest of the tree is dropped
    /// when its name is used next, by [`Engine::verify`], or when the store is opened again.
    pub fn drop_tree(&self, tree: Tree) -> Result<()> {
        self.core.check_caller(&[Inside::Verify])?;
        self.core.check_tree(&tree)?;
        self.core.check_alive()?;
        self.core.drop_tree(tree)
    }

    /// Gives a tree another name. `tree` must be the only handle; the new one is returned.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// let orders = engine.rename_tree(engine.tree("new")?, "orders")?;
    /// assert_eq!(engine.trees()?, ["orders"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::TreeInUse`], [`Error::TreeExists`], [`Error::InvalidTreeName`],
    /// [`Error::ForeignTree`], failed I/O.
    pub fn rename_tree(&self, tree: Tree, name: &str) -> Result<Tree> {
        self.core.check_caller(&[Inside::Verify])?;
        self.core.check_tree(&tree)?;
        self.core.check_alive()?;
        self.core.rename_tree(tree, name)
    }

    /// Names of all trees, sorted.
    ///
    /// # Errors
    /// Failed I/O.
    pub fn trees(&self) -> Result<Vec<String>> {
        self.core.check_caller(&[])?;
        self.core.catalog.names(&self.core.context())
    }

    /// Begins a transaction with snapshot isolation, in a session of its own.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// # let tree = engine.tree("tree")?;
    /// let mut txn = engine.begin()?;
    /// txn.put(&tree, b"key", b"value")?;
    /// txn.commit()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Limit`] when the pool is too small for another session; [`Error::Poisoned`].
    pub fn begin(&self) -> Result<Transaction<'static>> {
        self.begin_with(TxnOptions::default())
    }

    /// Begins a transaction, in a session of its own.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// # let tree = engine.tree("tree")?;
    /// use wattle::{Durability, TxnOptions};
    /// let options = TxnOptions { durability: Some(Durability::None), ..Default::default() };
    /// let mut txn = engine.begin_with(options)?;
    /// txn.put(&tree, b"key", b"value")?;
    /// txn.commit()?;                  // returns at once
    /// engine.sync()?;                 // durable
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Engine::begin`].
    pub fn begin_with(&self, options: TxnOptions) -> Result<Transaction<'static>> {
        Transaction::owned(self.session_of_transaction()?, options)
    }

    pub(crate) fn grip(&self) -> &Grip {
        &self.core
    }

    /// A session for one transaction.
    pub(crate) fn session_of_transaction(&self) -> Result<Session> {
        Session::open(&self.core, User::Transaction)
    }

    /// A session whose operations block the calling thread. One for each thread.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// # let tree = engine.tree("tree")?;
    /// let session = engine.session()?;   // one for each thread
    /// session.put(&tree, b"key", b"value")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Limit`] when the pool is too small for another session.
    pub fn session(&self) -> Result<Session> {
        Session::open(&self.core, User::Session)
    }

    /// Makes all commits so far durable, also those with [`crate::Durability::None`]. Does nothing
    /// before the first change of a store that was closed: if its files are a copy, the program
    /// that made the copy has to sync them, or the first change does.
    ///
    /// # Errors
    /// [`Error::CommitUnknown`], [`Error::Poisoned`].
    pub fn sync(&self) -> Result<()> {
        self.core.check_caller(&[])?;
        self.core.sync_log()
    }

    /// Writes all pages that are dirty now, so that recovery would begin here. Without a log this
    /// does nothing.
    ///
    /// # Errors
    /// Failed I/O; [`Error::DiskFull`] when the log has no room and an open transaction needs all
    /// of it.
    pub fn checkpoint(&self) -> Result<()> {
        self.core.check_caller(&[Inside::Verify])?;
        if self.core.read_only {
            return Err(Error::ReadOnly);
        }
        self.core.checkpoint_asked()
    }

    /// All counters, cumulative since the store was opened.
    pub fn stats(&self) -> Stats {
        Stats::of(self.core.core())
    }

    /// Sets the metrics of this engine in the recorder that the program has installed for the crate
    /// `metrics`, as Prometheus needs them before a scrape: each field of [`Stats`] as
    /// `wattle_NAME_total` or, for current values, `wattle_NAME`; and the times that operations and
    /// commits waited as `wattle_wait_seconds`, with the labels `what` and `quantile`, since the
    /// store was opened. `name` becomes the label `engine`.
    ///
    /// Needs the feature `metrics`, with which each wait also costs two looks at the clock and a
    /// short lock. Operations that do not wait are not measured.
    ///
    /// ```
    /// # use wattle::{Engine, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// engine.publish_metrics("orders");
    /// # Ok::<(), wattle::Error>(())
    /// ```
    #[cfg(feature = "metrics")]
    pub fn publish_metrics(&self, name: &str) {
        crate::publish::publish(name, &self.stats(), &self.core.txns.waits);
    }

    /// How the store was left before this engine opened it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// let engine = wattle::Engine::open(dir.path(), wattle::Options::default())?;
    /// engine.tree("tree")?;
    /// engine.abandon()?;                                  // as a crash would leave it
    /// let engine = wattle::Engine::open(dir.path(), wattle::Options::default().read_only(true))?;
    /// assert!(!engine.store_info().closed && engine.store_info().replay_records > 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn store_info(&self) -> StoreInfo {
        self.core.info
    }

    /// Whether changes are logged: [`Options::log`](crate::Options::log).
    pub fn has_log(&self) -> bool {
        self.core.log.is_some()
    }

    /// The storage back end in use: `uring`, `threads`, `memory` or `sim`. `threads` may stand in
    /// for `uring` where io_uring is refused.
    pub fn back_end(&self) -> &'static str {
        self.core.file.storage.name()
    }

    /// Copies the running store into the directory `path`, which must not exist or be empty. The
    /// copy has everything that was committed when the call began, and nothing that is not
    /// committed when it ends. It is opened like any store.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// let report = engine.backup(dir.path().join("copy"))?;
    /// let copy = wattle::Engine::open(dir.path().join("copy"), wattle::Options::default())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A directory that is not empty, an engine without a log, a full device (that of the store or
    /// that of the backup), failed I/O; [`Error::FilesChanged`] when the directory was moved or
    /// removed meanwhile; [`Error::Corruption`] of a damaged page of which the log has no image;
    /// [`Error::Limit`] when a bulk load does not end within the stall timeout.
    pub fn backup(&self, path: impl AsRef<Path>) -> Result<BackupReport> {
        self.core.check_caller(&[Inside::Verify, Inside::Load])?;
        backup::backup(&self.core, path.as_ref())
    }

    /// As [`Engine::backup`], to storages that the caller made; for tests with simulated devices.
    ///
    /// # Errors
    /// As [`Engine::backup`].
    pub fn backup_on(
        &self,
        storage: Arc<dyn Storage>,
        log: Arc<dyn LogStorage>,
    ) -> Result<BackupReport> {
        self.core.check_caller(&[Inside::Verify, Inside::Load])?;
        backup::backup_on(&self.core, storage, log)
    }

    /// Gives room of the data file back to the file system: pages at its end move to free pages at
    /// lower ids, and the file is shortened to the last page in use. Reads and changes go on
    /// meanwhile; backups and bulk loads wait for its end, and it waits for theirs. It logs each
    /// page that it moves, and ends with a checkpoint. [`Stats::compact_bytes`] says how much it
    /// would give back.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// let report = engine.compact()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// An engine without a log, a full device, failed I/O; [`Error::Limit`] when a bulk load, a
    /// backup or a verification does not end within the stall timeout. Pages that were moved by
    /// then stay moved.
    pub fn compact(&self) -> Result<CompactReport> {
        self.compact_until(&AtomicBool::new(false))
    }

    /// As [`Engine::compact`], until `stop` is set.
    ///
    /// # Errors
    /// As [`Engine::compact`], and [`Error::Interrupted`]: the file keeps its length then.
    pub fn compact_until(&self, stop: &AtomicBool) -> Result<CompactReport> {
        self.core.check_caller(&[Inside::Verify, Inside::Load])?;
        self.core.compact(stop)
    }

    /// Sizes of every tree. Reads all pages. While a tree is being changed its sizes are not from
    /// one consistent snapshot.
    ///
    /// # Errors
    /// Failed I/O, or [`Error::Corruption`] of the first damage met.
    pub fn tree_stats(&self) -> Result<Vec<TreeStat>> {
        self.tree_stats_until(&AtomicBool::new(false))
    }

    /// As [`Engine::tree_stats`], until `stop` is set.
    ///
    /// # Errors
    /// Failed I/O, or [`Error::Interrupted`].
    pub fn tree_stats_until(&self, stop: &AtomicBool) -> Result<Vec<TreeStat>> {
        self.core.check_caller(&[])?;
        verify::tree_stats(&self.core, stop)
    }

    /// Checks every page and every invariant of the store. No thread may change it meanwhile.
    /// `progress` is called from time to time with the number of records checked so far; the
    /// crate's documentation says which calls are allowed in it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// let report = engine.verify(&mut |_records| {})?;
    /// assert!(report.problems.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Failed I/O. Damage is reported in the result.
    pub fn verify(&self, progress: &mut dyn FnMut(u64)) -> Result<VerifyReport> {
        self.verify_until(&AtomicBool::new(false), progress)
    }

    /// As [`Engine::verify`], until `stop` is set, which is checked before each page.
    ///
    /// # Errors
    /// Failed I/O, or [`Error::Interrupted`]: the result of the pages checked so far is lost.
    pub fn verify_until(
        &self,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<VerifyReport> {
        self.core.check_caller(&[Inside::Verify])?;
        verify::verify(&self.core, stop, progress)
    }

    /// Writes everything out and closes the store. It is unlocked when this returns, unless the
    /// error is [`Error::StillInUse`].
    ///
    /// # Errors
    /// [`Error::StillInUse`] while clones of the engine, sessions, or transactions of
    /// [`Engine::begin`] are alive; it says how many. Nothing was done then:
    /// [`CloseError::into_engine`] gives the engine back, to close it later or to
    /// [`Engine::abandon`] it. If the error is dropped, as `?` does, the store stays open until the
    /// last of these handles is dropped.
    ///
    /// [`Error::Poisoned`] after a failure, or when a transaction that has changed something was
    /// leaked (`std::mem::forget`), and failed I/O: the engine has ended and the store is as after
    /// a crash. [`Error::FilesChanged`] when files of the store were removed, replaced or cut from
    /// outside: it is left as after a crash; or when its directory was moved or removed.
    ///
    /// ```
    /// # use wattle::{Engine, Error, IoKind, Options};
    /// let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// let session = engine.session()?;
    /// let refused = engine.close().expect_err("a session is alive");
    /// assert!(matches!(refused.error(), Error::StillInUse(what) if what == "1 session"));
    /// let engine = refused.into_engine().expect("not closed");
    /// drop(session);
    /// engine.close()?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn close(self) -> Result<(), CloseError> {
        if let Err(error) = self.core.check_caller(&[]) {
            return Err(CloseError { error, engine: Some(self) });
        }
        if let Some(alive) = self.core.others() {
            return Err(CloseError { error: Error::StillInUse(alive), engine: Some(self) });
        }
        close::close(&self.core).map_err(|error| CloseError { error, engine: None })
    }

    /// Ends the engine as a crash would, with all commits so far, although sessions or transactions
    /// of it are alive or were leaked. The store is unlocked when this returns. The next opening
    /// recovers it and rolls uncommitted changes back. Drop the handles that are alive: changes and
    /// commits through them fail ([`Error::Poisoned`]), and reads of pages that are not in memory
    /// may fail.
    ///
    /// Without a log ([`Options::log`]) the store cannot be opened afterwards
    /// ([`Error::NotClosed`]).
    ///
    /// # Errors
    /// The log could not be flushed: commits that were not durable by then may be lost.
    /// [`Error::StillInUse`] when a bulk load, a backup or a compaction is under way and does not
    /// end within 5 s: the store stays locked, until the last handle is dropped.
    pub fn abandon(self) -> Result<()> {
        self.core.check_caller(&[Inside::Verify])?;
        close::abandon(&self.core)
    }

    /// The pool, for tests and experiments.
    #[doc(hidden)]
    pub fn pool(&self) -> &Arc<Pool> {
        &self.core.pool
    }
}

/// Why [`Engine::close`] failed. Becomes its [`Error`] with `?`, which drops the engine.
pub struct CloseError {
    pub(crate) error: Error,
    pub(crate) engine: Option<Engine>,
}

impl CloseError {
    /// Why.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// The engine, as usable as before, if it was not closed because handles of it are alive
    /// ([`Error::StillInUse`]); `None` after any other error, because the engine has ended then.
    pub fn into_engine(self) -> Option<Engine> {
        self.engine
    }
}

impl From<CloseError> for Error {
    fn from(error: CloseError) -> Error {
        error.error
    }
}

impl fmt::Debug for CloseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let engine = if self.engine.is_some() { "open" } else { "ended" };
        f.debug_struct("CloseError").field("error", &self.error).field("engine", &engine).finish()
    }
}

impl fmt::Display for CloseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for CloseError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}
