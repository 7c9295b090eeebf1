//! The engine: one open store with its pool, its log, its background threads and its catalog.
//!
//! Handles ([`Engine`], sessions) share one [`Core`]; see `handle.rs`.

use crate::{
    async_session::AsyncSession,
    catalog::{Catalog, OpenTree, Room},
    checkpoint::Checkpoints,
    compact::CompactReport,
    epochs::{self, Epochs, Gaps},
    handle::{CloseError, Grip, User},
    janitor::{Janitor, OwnedVersion},
    keeper::{HOLD, Keeper},
    mvcc::{Clock, Snapshots, UndoBuffer, Versions},
    opening::Opening,
    ops::Resolve,
    options::Options,
    recover,
    session::{Session, SessionState},
    stats::{Stats, TreeStat},
    store::{CATALOG, FIRST_TREE, StoreFile, StoreState, Superblock, UnloggedMark, leftovers},
    transaction::Transaction,
    txn::{Durability, Reads, Registry, TxnOptions},
    verify::{self, VerifyReport},
};
use parking_lot::{Mutex, RecursiveRwLock};
use std::{
    collections::BTreeSet,
    path::Path,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    time::Duration,
};
use wattle_btree::{self as btree, Context, Forest, Journal};
use wattle_buffer::{
    Background, Error, Gsn, Inside, LogBarrier, PageAllocator, PageId, Pool, Result,
    io::{Directory, LogStorage, Storage},
};
use wattle_wal::{Log, LogEnd, LogOptions, LogStart};

/// What all handles of an open store share.
pub(crate) struct Core {
    pub pool: Arc<Pool>,
    pub forest: Arc<Forest>,
    pub catalog: Catalog,
    pub log: Option<Arc<Log>>,
    /// Where the log is, for reading it back.
    pub log_storage: Option<Arc<dyn LogStorage>>,
    pub clock: Arc<Clock>,
    /// Numbers of transactions that change something.
    pub ids: Arc<Clock>,
    pub snapshots: Snapshots,
    pub versions: Versions,
    pub janitor: Janitor,
    pub keeper: Keeper,
    pub checkpoints: Checkpoints,
    pub durability: Durability,
    pub reads: Reads,
    /// Limit of the memory of versions and of replaced large values, bytes.
    pub version_bytes: u64,
    /// Nothing can be changed, see [`Options::read_only`].
    pub read_only: bool,
    /// How long an auto-committed change waits for a transaction that holds its record.
    pub conflict_wait: Duration,
    /// How long an operation waits for something that may never come.
    pub stall_timeout: Duration,
    /// Held by a serializable transaction while it validates and commits.
    pub validation: Mutex<()>,
    /// Held, shared, while pages are written that the log does not know; exclusively by a backup or a
    /// compaction.
    pub unlogged_pages: RecursiveRwLock<()>,
    /// Held during a compaction, and while each page must be found where it was.
    pub compacting: Mutex<()>,
    /// The number of the next blocking session.
    pub sessions: AtomicU64,
    /// What sessions that ended left for the next ones.
    #[expect(clippy::vec_box, reason = "sessions hold them in boxes")]
    pub idle: Mutex<Vec<Box<SessionState>>>,
    pub file: Arc<StoreFile>,
    pub barrier: Arc<Barrier>,
    pub handles: Registry,
    undo_directory: Option<Arc<Directory>>,
    /// Whether the engine may be changed, see [`POISONED`].
    state: AtomicU8,
    why_poisoned: Mutex<Option<String>>,
    background: Mutex<Option<Background>>,
    closed: Mutex<bool>,
}

/// What comes before a page is written: the log, or the mark that there is none.
pub(crate) struct Barrier {
    /// There was no room for pages: the checkpoint thread looks at it.
    pub room_wanted: AtomicBool,
    pub log: OnceLock<Arc<Log>>,
    pub in_use: OnceLock<UnloggedMark>,
    pub epochs: OnceLock<Epochs>,
}

impl LogBarrier for Barrier {
    fn ensure_durable(&self, gsn: Gsn) -> Result<()> {
        if let Some(log) = self.log.get() {
            return log.ensure_durable(gsn);
        }
        if let Some(epochs) = self.epochs.get() {
            epochs.written(gsn);
        }
        self.in_use.get().map_or(Ok(()), |in_use| in_use.ensure_durable(gsn))
    }

    fn check_read(&self, gsn: Gsn) -> Result<(), String> {
        self.epochs.get().map_or(Ok(()), |epochs| epochs.check(gsn))
    }

    fn is_log(&self) -> bool {
        self.log.get().is_some()
    }

    fn give_room_back(&self) -> bool {
        self.room_wanted.store(true, Ordering::Relaxed);
        self.log.get().is_some_and(|log| log.give_room_back())
    }
}

/// How long an engine that is abandoned waits for bulk loads and backups.
const ABANDON_WAIT: Duration = Duration::from_secs(5);

// The state of an engine:
// | bits 7..1 | bit 0 | meaning                                                       |
// |-----------|-------|---------------------------------------------------------------|
// | 0         | 0     | may be changed                                                |
// | level     | 0     | may be changed, and changes wait: versions are above the limit |
// | any       | 1     | may not be changed                                            |
const POISONED: u8 = 1;
const THROTTLE_SHIFT: u32 = 1;

const _: () = assert!(HOLD < u8::MAX >> THROTTLE_SHIFT);

/// Sessions that are kept for the next ones.
const MAX_IDLE: usize = 16;

impl Core {
    /// A context for a session.
    pub fn context(&self) -> Context {
        Context::new(self.pool.worker(), Journal::new(self.log.as_ref()))
    }

    /// The tree belongs to this engine.
    #[inline(always)]
    pub fn check_tree(&self, tree: &Tree) -> Result<()> {
        if Arc::ptr_eq(tree.open.tree.pool(), &self.pool) {
            return Ok(());
        }
        Err(Error::ForeignTree(tree.name().to_string()))
    }

    /// With these options a transaction may begin; it is read-only where nothing can be changed.
    pub fn check_begin(&self, mut options: TxnOptions) -> Result<TxnOptions> {
        options.read_only |= self.read_only;
        if options.read_only {
            self.pool.process().check()?;
        } else {
            self.check_alive()?;
        }
        Ok(options)
    }

    /// Changes are possible: nothing has failed that cannot be undone, the store is not only read, and this is
    /// the process that opened the engine.
    #[inline]
    pub fn check_alive(&self) -> Result<()> {
        match self.state.load(Ordering::Relaxed) & POISONED {
            0 if !self.pool.process().is_other() => Ok(()),
            _ => Err(self.poison_error()),
        }
    }

    /// Before a change that is a transaction of its own: the tree belongs to this engine and may be changed.
    /// Waits while versions take more than their limit.
    #[inline(always)]
    pub async fn admit<R: Resolve>(&self, session: &R, tree: &Tree) -> Result<()> {
        self.check_tree(tree)?;
        if self.state.load(Ordering::Relaxed) == 0 && !self.pool.process().is_other() {
            return Ok(());
        }
        self.admit_late(session).await
    }

    #[cold]
    async fn admit_late<R: Resolve>(&self, session: &R) -> Result<()> {
        self.wait_throttled(session).await;
        self.check_alive()
    }

    /// How long changes wait, see [`Keeper`]; 0: not at all.
    #[inline]
    pub fn throttle(&self) -> u8 {
        self.state.load(Ordering::Relaxed) >> THROTTLE_SHIFT
    }

    /// From here on changes wait as this level says, 0 to [`HOLD`].
    pub fn set_throttle(&self, level: u8) {
        if self.throttle() != level {
            let level = |state: u8| Some(state & POISONED | level << THROTTLE_SHIFT);
            let _was = self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, level);
        }
    }

    /// The caller may wait for the engine as a whole, and is not inside of code that others wait for: see the
    /// table in the crate's documentation.
    pub fn check_caller(&self, refused: &[Inside]) -> Result<()> {
        self.pool.check_may_wait()?;
        refused.iter().try_for_each(|inside| inside.refuse())
    }

    #[cold]
    fn poison_error(&self) -> Error {
        if self.pool.process().is_other() {
            return Error::Forked;
        }
        match self.why_poisoned.lock().clone() {
            None if self.read_only => Error::ReadOnly,
            why => Error::Poisoned(why.unwrap_or_default()),
        }
    }

    /// From now on changes are refused, if the store is only read.
    fn seal(&self) {
        if self.read_only {
            self.state.fetch_or(POISONED, Ordering::Relaxed);
        }
    }

    /// Nothing may be changed any more.
    pub fn poison(&self, why: &str) {
        tracing::error!(why, "the engine is poisoned");
        self.why_poisoned.lock().get_or_insert_with(|| why.to_string());
        self.state.fetch_or(POISONED, Ordering::Relaxed);
    }

    /// Why the engine or its log takes no changes any more.
    pub fn failure(&self) -> Option<String> {
        let log = self.log.as_ref().and_then(|log| log.is_poisoned());
        let error = self.check_alive().err().filter(|error| !matches!(error, Error::ReadOnly));
        error.map(|error| error.to_string()).or(log)
    }

    /// All commits up to this time are durable, or need not be.
    ///
    /// Times are drawn, and noted, inside of sections of the log; see [`Log::durable_mark`].
    #[inline(always)]
    pub fn durable(&self) -> u64 {
        match &self.log {
            Some(log) if self.durability != Durability::None => log.durable_mark().max(1),
            _ => u64::MAX >> 2,
        }
    }

    /// Auto-committed reads and read-only transactions see the commits up to this time.
    #[inline(always)]
    pub fn visible(&self) -> u64 {
        match self.reads {
            Reads::Durable => self.durable(),
            Reads::Newest => u64::MAX >> 2,
        }
    }

    /// The error of a snapshot whose versions were given up.
    pub fn too_old(&self) -> Error {
        crate::txn::too_old(self)
    }

    /// An undo buffer, which goes to a file beside the store when it gets large.
    pub fn undo_buffer(&self) -> UndoBuffer {
        UndoBuffer::new(self.undo_directory.clone())
    }

    /// Keeps what a session owned for the next one.
    pub fn keep_idle(&self, state: Box<SessionState>) {
        if self.pool.process().is_other() {
            // It belongs to the parent, whose locks may be held here for ever.
            return std::mem::forget(state);
        }
        state.cx.worker.release();
        state.forget_own(self);
        state.trim(self);
        // In the order of `close`, which holds the one and takes the other.
        let closed = self.closed.lock();
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE && !*closed {
            idle.push(state);
        } else {
            drop((idle, closed));
            state.retire(self);
        }
    }

    /// Writes everything out and leaves the store so that opening it has nothing to do. Only without
    /// other users. Others can open the store then, whatever came of it.
    pub fn close(&self) -> Result<()> {
        self.pool.process().check()?;
        let mut closed = self.closed.lock();
        if std::mem::replace(&mut *closed, true) {
            return Ok(());
        }
        let outcome = match self.read_only {
            true => self.write_out(),
            false => self.file.in_place(self.write_out()),
        };
        self.file.release();
        outcome
    }

    fn write_out(&self) -> Result<()> {
        // 1. Nothing changes any more. A checkpoint may wait for a flush that waits for room.
        if let Some(log) = &self.log {
            log.stop_waiting();
        }
        self.checkpoints.stop();
        self.janitor.stop();
        self.keeper.stop();
        self.idle.lock().drain(..).for_each(|state| state.retire(self));
        if let Some(why) = self.failure() {
            // A checkpoint may have found what somebody did to the files.
            let files = self.check_files();
            let abandoned = self.abandon(why);
            return files.and(abandoned);
        }
        if self.read_only {
            self.forest.merge_in(None);
            drop(self.background.lock().take());
            self.janitor.forget();
            tracing::info!(path = %self.file.path.display(), "closed, after it was only read");
            return Ok(());
        }
        {
            // Twice: what the first round rolls back or removes, the second clears away.
            let cx = self.context();
            self.janitor_round(&cx);
            if let Some(log) = &self.log
                && let Err(error) = log.flush_now()
            {
                return self.abandon(error.to_string());
            }
            self.janitor_round(&cx);
        }
        if self.janitor.is_stuck() {
            return self.abandon("a transaction could not be rolled back".to_string());
        }
        if let Err(error) = self.check_files() {
            let _poisoned = self.abandon(error.to_string());
            return Err(error);
        }
        if self.snapshots.any_writing() {
            // Its changes are in the pages, and only recovery takes them back.
            return self.abandon("a transaction that has changed something was leaked".to_string());
        }
        self.forest.merge_in(None);
        if let Some(background) = self.background.lock().take()
            && let Err(error) = background.stop()
        {
            return self.abandon(error.to_string());
        }
        // 2. Every page, the bitmaps, and a superblock that says so.
        let outcome = match &self.log {
            Some(_) => self.final_checkpoint(),
            None => self.close_unlogged(),
        };
        self.janitor.forget();
        let log = self.log.as_ref().map_or(Ok(()), |log| log.close());
        outcome.and(log)
    }

    /// Data file and log are there, and whole. A superblock that says so would make a store useless that can
    /// be recovered, or whose log can be saved.
    pub fn check_files(&self) -> Result<()> {
        self.file.check_files()?;
        let log = self.log.as_ref().map_or(Ok(()), |log| log.check_segments());
        log.map_err(|error| self.file.changed(error))
    }

    /// Leaves the store as a crash would.
    fn abandon(&self, why: String) -> Result<()> {
        self.forest.merge_in(None);
        drop(self.background.lock().take());
        self.janitor.forget();
        if let Some(log) = &self.log {
            let _ = log.close();
        }
        Err(Error::Poisoned(why))
    }

    /// Leaves the store as a crash would, with all commits so far, although others use it.
    ///
    /// Nothing may write to its files after it is unlocked. From step 1 on no change, checkpoint, bulk load or
    /// backup begins; those under way end in steps 2 and 3. A closed log refuses the records of operations
    /// that are still under way. Only background threads write pages otherwise, and they end in step 4.
    fn abandon_in_use(&self) -> Result<()> {
        let mut closed = self.closed.lock();
        if *closed {
            return Ok(());
        }
        // 1. As after a failure.
        self.why_poisoned.lock().get_or_insert_with(|| "the engine was abandoned".to_string());
        self.state.fetch_or(POISONED, Ordering::SeqCst);
        // 2. Bulk loads, backups and compactions write pages, truncate the log, and cut the data file off.
        let Some(_no_other) = self.unlogged_pages.try_write_for(ABANDON_WAIT) else {
            let what = "a bulk load, a backup or a compaction";
            return Err(Error::StillInUse(what.to_string()));
        };
        *closed = true;
        // 3. Commits so far are durable, and no checkpoint is under way.
        let flushed = self.sync_log();
        if let Some(log) = &self.log {
            log.stop_waiting();
        }
        self.checkpoints.stop();
        self.checkpoints.wait();
        self.janitor.stop();
        self.keeper.stop();
        self.idle.lock().drain(..).for_each(|state| state.retire(self));
        // 4. It only says why.
        let _always = self.abandon(String::new());
        self.file.release();
        flushed
    }

    /// The end of a store that was used without a log.
    fn close_unlogged(&self) -> Result<()> {
        let written = self.pool.flush()?;
        let in_use = self.barrier.in_use.get().expect("set when it was opened");
        if !in_use.is_marked() {
            tracing::info!(path = %self.file.path.display(), "closed unchanged");
            return Ok(());
        }
        self.checkpoints.store_unlogged(self)?;
        tracing::info!(path = %self.file.path.display(), pages_written = written, "closed");
        Ok(())
    }
}

/// An open store. Cheap to clone; all clones and sessions share it. It is `Send` and `Sync`.
///
/// When the last of engines and sessions is dropped the store is closed, too; but only
/// [`Engine::close`] can report a failure.
pub struct Engine {
    core: Grip,
}

impl Clone for Engine {
    fn clone(&self) -> Engine {
        Engine { core: self.core.share(User::Engine) }
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Engine({:?})", self.core.file.path)
    }
}

/// A tree of an engine: an ordered map from keys to values. Cheap to clone. It is `Send` and `Sync`, and
/// does not keep the store open: once that is closed it only holds memory.
#[derive(Clone)]
pub struct Tree {
    pub(crate) open: Arc<OpenTree>,
}

impl Tree {
    /// The name it was created with.
    pub fn name(&self) -> &str {
        self.open.name()
    }
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tree({:?})", self.name())
    }
}

impl Engine {
    /// Opens the store in the directory `path`, creating it if there is none. One process, and in
    /// it one engine, can have a store open at a time. With [`crate::IoKind::Memory`] nothing is
    /// stored and `path` is only a name.
    ///
    /// # Errors
    /// A path that is not a store or a store of another version, already open, damaged or not
    /// closed cleanly; options out of their limits; failed I/O; [`Error::Interrupted`]. Nothing on disk is
    /// changed then, beyond what the next opening would change first.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Engine> {
        options.check()?;
        let (path, io) = (path.as_ref(), options.io);
        let file = match options.read_only {
            true => StoreFile::open_read_only(path, io, options.overlay_pages())?,
            false => StoreFile::open(path, io, options.create)?,
        };
        Self::open_file(file, &options)
    }

    /// Opens a store on storages that the caller made, for its pages and for its log; for tests with
    /// simulated devices.
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
        Self::open_file(file, &options)
    }

    /// With options that were checked. When it fails, others can open the store at once.
    fn open_file(file: StoreFile, options: &Options) -> Result<Engine> {
        let file = Arc::new(file);
        let opened = Engine::open_files(file.clone(), options);
        if opened.is_err() {
            file.release();
        }
        opened
    }

    fn open_files(file: Arc<StoreFile>, options: &Options) -> Result<Engine> {
        // 1. Everything that can be refused is, before the first write.
        let new = !options.read_only && leftovers::is_new(&file)?;
        let mut block = if new { Superblock::first() } else { file.read_superblock()? };
        let (mut words, mut copies) = file.read_bitmap(&block)?;
        let forest = Forest::new();
        let barrier = Arc::new(Barrier {
            room_wanted: AtomicBool::new(false),
            log: OnceLock::new(),
            in_use: OnceLock::new(),
            epochs: OnceLock::new(),
        });
        let pool = Pool::open(
            options.pool_options(),
            file.storage.clone(),
            PageAllocator::new(Vec::new(), 0),
            forest.clone(),
            barrier.clone(),
        )?;
        // 2. What the pages lack, from the log.
        let recovered = match block.state {
            StoreState::Logged if !new => {
                let log = file.open_log(true)?;
                let mut recovered = recover::redo(&file, &log, &block, words.clone(), options)?;
                if options.logs()
                    && recover::release(&file, &log, &mut block, &mut copies, &mut recovered)?
                {
                    words.clone_from(&recovered.in_use);
                }
                Some(recovered)
            }
            _ => None,
        };
        let mut end = block.log_end;
        let redone = recovered.as_ref().is_some_and(|recovered| recovered.end != block.log_end);
        let (mut in_use, mut losers) = (words.clone(), Vec::new());
        let mut ghosts = recover::FoundGhosts::default();
        let mut changed_groups = BTreeSet::new();
        if let Some(recovered) = recovered {
            block.next_tree = block.next_tree.max(recovered.next_tree);
            (end, in_use, losers) = (recovered.end, recovered.in_use, recovered.losers);
            changed_groups = recovered.changed_groups;
            block.gaps = recovered.gaps;
            ghosts = recovered.ghosts;
        }
        if new {
            file.create()?;
        }
        match block.state {
            _ if !options.logs() => {}
            _ if new => leftovers::clear_new_log(&file)?,
            StoreState::Closed => leftovers::clear_log_behind(&file, &block.log_end)?,
            _ => {}
        }
        pool.allocator().reset(in_use, &words, file.storage.capacity_pages());
        pool.allocator().keep_changed_groups(changed_groups);
        pool.allocator().keep_changed_groups(copies.to_be_written());
        // 3. The log goes on.
        let (clock, ids) = (Arc::new(Clock::new()), Arc::new(Clock::new()));
        let log_storage = match options.logs() {
            true => Some(file.open_log(false)?),
            // For who looks at the log.
            false if options.read_only && block.state == StoreState::Logged => {
                Some(file.open_log(true)?)
            }
            false => None,
        };
        let log = match &log_storage {
            Some(storage) if options.logs() => {
                let start = epochs::start_after(end, block.redo_epoch);
                Some(start_log(storage.clone(), options, start, &clock)?)
            }
            _ => None,
        };
        if let Some(log) = &log {
            log.set_opening(true);
            block.gaps.add(end.epoch, log.epoch());
        }
        let epochs = Epochs::new(block.gaps, end.epoch, log.as_ref());
        assert!(barrier.epochs.set(epochs).is_ok(), "set once");
        let mut opening = Opening::new(&forest, log.as_ref());
        match &log {
            Some(log) => assert!(barrier.log.set(log.clone()).is_ok(), "set once"),
            None => {
                let block = Superblock {
                    sequence: block.sequence + 1,
                    state: StoreState::Unlogged,
                    ..block
                };
                let mark = UnloggedMark::new(file.clone(), block);
                assert!(barrier.in_use.set(mark).is_ok(), "set once");
            }
        }
        if new && log.is_none() {
            barrier.in_use.get().expect("just set").mark()?;
        }
        let newest = ids.clone();
        forest.set_clock(move || newest.now());
        opening.started(Background::start(&pool)?);
        let cx = Context::new(pool.worker(), Journal::new(log.as_ref()));
        let merges = Context::new(pool.worker(), Journal::new(log.as_ref()));
        forest.merge_in(Some(merges));
        let tree = match new {
            true => btree::Tree::create(&cx, &forest, CATALOG)?,
            false => btree::Tree::open(&cx, &forest, CATALOG, block.catalog_root)?,
        };
        tracing::info!(
            path = %file.path.display(),
            back_end = file.storage.name(),
            frames = pool.frames(),
            policy = pool.policy_name(),
            new,
            log = log.is_some(),
            "opened"
        );
        block.catalog_root = tree.root_page();
        let catalog = Catalog::new(forest.clone(), tree, block.next_tree);
        let segment_bytes = log.as_ref().map_or(options.segment_bytes(), |log| log.segment_bytes());
        let core = Arc::new(Core {
            pool,
            forest,
            catalog,
            log,
            log_storage,
            clock,
            ids,
            snapshots: Snapshots::new(),
            versions: Versions::new(),
            janitor: Janitor::default(),
            keeper: Keeper::new(options.version_bytes),
            checkpoints: Checkpoints::new(block, copies, end, segment_bytes, options),
            durability: options.durability,
            reads: options.reads,
            version_bytes: options.version_bytes,
            read_only: options.read_only,
            conflict_wait: options.conflict_wait,
            stall_timeout: options.stall_timeout,
            validation: Mutex::new(()),
            unlogged_pages: RecursiveRwLock::new(()),
            compacting: Mutex::new(()),
            sessions: AtomicU64::new(1),
            idle: Mutex::default(),
            undo_directory: file.directory(),
            file,
            barrier,
            handles: Registry::default(),
            state: AtomicU8::new(0),
            why_poisoned: Mutex::default(),
            background: Mutex::new(opening.done()),
            closed: Mutex::new(false),
        });
        // 4. Transactions that had not ended, and drops.
        let settled = core.settle(&cx, options, new, redone, losers);
        if let Err(error) = settled.and_then(|()| core.adopt_ghosts(&cx, ghosts)) {
            // What was read is not closed as if it were whole.
            core.poison(&format!("the store could not be opened: {error}"));
            let _poisoned = core.close();
            return Err(error);
        }
        if let Some(log) = &core.log {
            log.set_opening(false);
        }
        core.seal();
        let started = Janitor::start(&core).and_then(|()| Keeper::start(&core));
        if let Err(error) = started.and_then(|()| Checkpoints::start(&core)) {
            core.close()?;
            return Err(error);
        }
        Ok(Engine { core: Grip::first(core) })
    }

    /// Opens the tree `name` (1 to 255 bytes), creating it if there is none.
    ///
    /// # Errors
    /// A bad name, a full device, failed I/O. [`Error::Limit`] when handles and open transactions hold as
    /// many trees as the pool can keep open ([`Options::min_pool_bytes`]). A tree without handles does not
    /// count: it is closed when there is no room for others.
    pub fn tree(&self, name: &str) -> Result<Tree> {
        self.core.check_caller(&[])?;
        let cx = self.core.context();
        if let Some(open) = self.core.catalog.open(&self.core, &cx, name, Room::User)? {
            return Ok(Tree { open });
        }
        self.core.check_alive()?;
        let open = self.core.catalog.open_or_create(&self.core, &cx, name)?;
        self.core.sync_catalog()?;
        Ok(Tree { open })
    }

    /// Opens the tree `name`, if there is one.
    ///
    /// # Errors
    /// As [`Engine::tree`].
    pub fn open_tree(&self, name: &str) -> Result<Option<Tree>> {
        self.core.check_caller(&[])?;
        Ok(self
            .core
            .catalog
            .open(&self.core, &self.core.context(), name, Room::User)?
            .map(|open| Tree { open }))
    }

    /// Creates the tree `name`.
    ///
    /// # Errors
    /// [`Error::TreeExists`], and as [`Engine::tree`].
    pub fn create_tree(&self, name: &str) -> Result<Tree> {
        self.core.check_caller(&[])?;
        self.core.check_alive()?;
        let open = self.core.catalog.create(&self.core, &self.core.context(), name)?;
        self.core.sync_catalog()?;
        Ok(Tree { open })
    }

    /// Drops a tree with everything in it and gives its pages back. `tree` must be the only handle,
    /// and no transaction that changed it may be open.
    ///
    /// # Errors
    /// [`Error::TreeInUse`], [`Error::ForeignTree`], failed I/O: what is left of the tree is dropped
    /// when its name is used next, by [`Engine::verify`], or when the store is opened again.
    pub fn drop_tree(&self, tree: Tree) -> Result<()> {
        self.core.check_caller(&[Inside::Verify])?;
        self.core.check_tree(&tree)?;
        self.core.check_alive()?;
        let cx = self.core.context();
        let (tag, garbage) = (tree.open.tag.clone(), self.core.let_go(&cx, &tree.open));
        if let Err(error) = self.core.catalog.drop_tree(&cx, tree.open) {
            self.core.janitor.give_back(&tag, garbage);
            return Err(error);
        }
        self.core.sync_catalog()
    }

    /// Gives a tree another name. `tree` must be the only handle; the new one is returned.
    ///
    /// # Errors
    /// [`Error::TreeInUse`], [`Error::TreeExists`], [`Error::InvalidTreeName`],
    /// [`Error::ForeignTree`], failed I/O.
    pub fn rename_tree(&self, tree: Tree, name: &str) -> Result<Tree> {
        self.core.check_caller(&[Inside::Verify])?;
        self.core.check_tree(&tree)?;
        self.core.check_alive()?;
        let cx = self.core.context();
        let (tag, garbage) = (tree.open.tag.clone(), self.core.let_go(&cx, &tree.open));
        let renamed = self.core.catalog.rename(&self.core, &cx, tree.open, name);
        let tag = renamed.as_ref().map_or(&tag, |open| &open.tag);
        self.core.janitor.give_back(tag, garbage);
        renamed.map(|open| Tree { open })
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
    /// # Errors
    /// [`Error::Limit`] when the pool is too small for another session; [`Error::Poisoned`].
    pub fn begin(&self) -> Result<Transaction<'static>> {
        self.begin_with(TxnOptions::default())
    }

    /// Begins a transaction, in a session of its own.
    ///
    /// # Errors
    /// As [`Engine::begin`].
    pub fn begin_with(&self, options: TxnOptions) -> Result<Transaction<'static>> {
        Transaction::owned(Session::open(&self.core, User::Transaction)?, options)
    }

    /// A session whose operations block the calling thread. One for each thread.
    ///
    /// # Errors
    /// [`Error::Limit`] when the pool is too small for another session.
    pub fn session(&self) -> Result<Session> {
        Session::open(&self.core, User::Session)
    }

    /// A session whose operations are awaited; clones of it serve the tasks of one thread.
    ///
    /// # Errors
    /// [`Error::Limit`] when the pool is too small for another session.
    pub fn async_session(&self) -> Result<AsyncSession> {
        self.core.check_caller(&[])?;
        if self.core.idle.lock().is_empty() {
            self.core.pool.check_workers()?;
        }
        Ok(AsyncSession::new(self.core.share(User::AsyncSession)))
    }

    /// Makes everything durable that was committed so far, whatever the durability.
    ///
    /// # Errors
    /// [`Error::CommitUnknown`], [`Error::Poisoned`].
    pub fn sync(&self) -> Result<()> {
        self.core.check_caller(&[])?;
        self.core.sync_log()
    }

    /// Writes all pages that are older than this moment, so that recovery would begin here. Without
    /// a log this does nothing.
    ///
    /// # Errors
    /// Failed I/O; [`Error::DiskFull`] when the log has no more room and is needed, all of it, by a transaction that
    /// is open.
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

    /// The storage back end in use: `uring`, `threads`, `memory` or `sim`. `threads` may stand in
    /// for `uring` where io_uring is refused.
    pub fn back_end(&self) -> &'static str {
        self.core.file.storage.name()
    }

    /// Gives room of the data file back to the file system: pages at its end move to free pages before
    /// them, and the file is cut off behind the last page in use. Others read and change the store
    /// meanwhile; backups and bulk loads wait until it has ended, and it waits for them. It writes each
    /// page that it moves to the log, and ends with a checkpoint. [`Stats::compact_bytes`] says how much
    /// it would give back.
    ///
    /// # Errors
    /// An engine without a log, a full device, failed I/O; [`Error::Limit`] when a bulk load, a backup or a
    /// verification does not end within the stall timeout. What was moved by then is moved.
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

    /// Sizes of every tree. Reads all pages. While others change a tree, what it tells of that is
    /// not of one moment.
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

    /// Checks every page and every invariant of the store. Nothing may change it meanwhile.
    /// `progress` is called now and then with the number of records checked so far; see the crate's
    /// documentation for what it may call.
    ///
    /// # Errors
    /// Failed I/O. Damage is reported in the result.
    pub fn verify(&self, progress: &mut dyn FnMut(u64)) -> Result<VerifyReport> {
        self.verify_until(&AtomicBool::new(false), progress)
    }

    /// As [`Engine::verify`], until `stop` is set, which is looked at before each page.
    ///
    /// # Errors
    /// Failed I/O, or [`Error::Interrupted`]: nothing is said about what was checked by then.
    pub fn verify_until(
        &self,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<VerifyReport> {
        self.core.check_caller(&[Inside::Verify])?;
        verify::verify(&self.core, stop, progress)
    }

    /// Writes everything out and closes the store. It is unlocked when this returns, unless the error is
    /// [`Error::StillInUse`].
    ///
    /// # Errors
    /// [`Error::StillInUse`] while clones of the engine, sessions, or transactions of [`Engine::begin`] are
    /// alive, of which it says how many. Nothing was done then: [`CloseError::into_engine`] gives the engine
    /// back, to close it later or to [`Engine::abandon`] it. If that is dropped, as `?` does, the store stays
    /// open until the last of the others is dropped.
    ///
    /// [`Error::Poisoned`] after a failure, or when a transaction that has changed something was leaked
    /// (`std::mem::forget`), and failed I/O: the engine has ended and the store is as after a crash.
    /// [`Error::FilesChanged`] when somebody removed, replaced or cut files of the store: it is left as after a
    /// crash; or moved or removed its directory.
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
        self.core.close().map_err(|error| CloseError { error, engine: None })
    }

    /// Ends the engine as a crash would, with everything that was committed so far, although sessions or
    /// transactions of it are alive or were leaked. The store is unlocked when this returns; opening it
    /// recovers it, and takes back what was not committed. Whatever is alive should be dropped: changes
    /// and commits through it fail ([`Error::Poisoned`]), and reads of what is not in memory may.
    ///
    /// Without a log ([`Options::log`]) the store cannot be opened afterwards ([`Error::NotClosed`]).
    ///
    /// # Errors
    /// The log could not be flushed: commits that were not durable by then may be lost.
    /// [`Error::StillInUse`] when a bulk load, a backup or a compaction is under way and does not end within
    /// 5 s: the store stays locked, until the last handle is dropped.
    pub fn abandon(self) -> Result<()> {
        self.core.check_caller(&[Inside::Verify])?;
        self.core.abandon_in_use()
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// The pool, for tests and experiments.
    #[doc(hidden)]
    pub fn pool(&self) -> &Arc<Pool> {
        &self.core.pool
    }
}

/// Starts the log where it goes on.
fn start_log(
    storage: Arc<dyn LogStorage>,
    options: &Options,
    start: LogStart,
    clock: &Arc<Clock>,
) -> Result<Arc<Log>> {
    let log_options = LogOptions {
        segment_bytes: options.segment_bytes(),
        // Images of whole pages are for devices that may tear one.
        page_images: !options.atomic_pages,
        // A checkpoint can give room back.
        room_timeout: options.stall_timeout,
        ..LogOptions::default()
    };
    let clock = clock.clone();
    Log::start(storage, log_options, start, Box::new(move || clock.now()))
}

impl Superblock {
    /// That of a store that is being created. Its number comes from the hasher of the standard
    /// library, which is seeded by the system.
    fn first() -> Superblock {
        use std::hash::{BuildHasher, RandomState};
        let store_id = RandomState::new().hash_one(std::time::SystemTime::now()) | 1;
        Superblock {
            sequence: 0,
            state: StoreState::Logged,
            capacity: 0,
            catalog_root: PageId(0),
            next_tree: FIRST_TREE,
            store_id,
            redo_epoch: 1,
            undo_epoch: 1,
            segment: 1,
            bitmaps: 0,
            durable_flush: 0,
            log_end: LogEnd { store_id, ..LogEnd::default() },
            gaps: Gaps::default(),
        }
    }
}

impl Core {
    /// Makes everything durable that is in the log.
    pub fn sync_log(&self) -> Result<()> {
        match &self.log {
            Some(log) => log.flush_now().map(|_| ()),
            None => Ok(()),
        }
    }

    /// A change of the catalog is durable when it returns, unless nothing is.
    fn sync_catalog(&self) -> Result<()> {
        match self.durability {
            Durability::None => Ok(()),
            _ => self.sync_log(),
        }
    }

    /// Before a tree is dropped or renamed: neither janitor nor sessions must hold on to it. Gives what
    /// the janitor is to clear away in the tree.
    fn let_go(&self, cx: &Context, tree: &Arc<OpenTree>) -> OwnedVersion {
        if self.janitor.is_stuck() {
            // Perhaps with a transaction that changed the tree.
            self.janitor_round(cx);
        } else {
            // The last round may still hold on to what it took from the list.
            drop(self.janitor.pause());
        }
        self.handles.release(tree);
        self.janitor.take_of(tree)
    }
}
