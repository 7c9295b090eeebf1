//! Opens a store, in four steps:
//! 1. read superblock and bitmaps: every check that can refuse the store comes before the first
//!    write;
//! 2. redo: the pages get the changes of the log that they lack;
//! 3. the log is continued in a new segment;
//! 4. undo: transactions that had not ended are rolled back, and interrupted drops are finished.
//!
//! After a crash in any step, the next opening recovers as after any other crash.

use crate::{
    barrier::Barrier,
    catalog::Catalog,
    checkpoint::{self, Checkpoints},
    close::close,
    core::Core,
    epochs::{self, Epochs},
    finish_recovery::{adopt_ghosts, finish_recovery},
    garbage::GarbageQueue,
    janitor::{self, Janitor},
    keeper::{self, Keeper},
    kept_readers::KeptReaders,
    liveness::Liveness,
    mvcc::{Clock, Snapshots, Versions},
    opening::Opening,
    options::Options,
    recover::{self, FoundGhosts, Loser},
    store::{
        BitmapCopies, CATALOG, ClassEpochs, StoreFile, StoreState, Superblock, UnloggedMark,
        WARM_FILE, leftovers,
    },
    store_info::StoreInfo,
    txn::{NameTimes, TreeHandles, TxnSystem},
    unlogged_pages::UnloggedPages,
    waits::Waits,
    warm::{self, WarmStart},
};
use parking_lot::Mutex;
use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::AtomicU64},
};
use wattle_btree::{self as btree, Context, Forest, Journal};
use wattle_buffer::{Background, PageAllocator, Pool, PoolOptions, Result, io::LogStorage};
use wattle_wal::{Log, LogEnd, LogOptions, LogStart};

/// Opens the store in `file` with options that were checked. When it fails, others can open the
/// store at once.
pub(crate) fn open(file: StoreFile, options: &Options) -> Result<Arc<Core>> {
    let file = Arc::new(file);
    let _span = tracing::info_span!("open", path = %file.path.display()).entered();
    let opened = open_files(&file, options);
    if opened.is_err() {
        file.release();
    }
    opened
}

fn open_files(file: &Arc<StoreFile>, options: &Options) -> Result<Arc<Core>> {
    // 1. Superblock and bitmaps.
    let mut stored = Stored::read(file, options)?;
    let forest = Forest::new();
    forest.set_redistribution(options.redistribution);
    let barrier = Arc::<Barrier>::default();
    let device = file.probed();
    let pool = open_pool(file, options.pool_options_on(device), &forest, &barrier)?;
    // 2. Redo.
    let redone = redo(file, options, &mut stored)?;
    let is_late = redone.is_as_closed(&stored);
    prepare_files(file, options, &stored)?;
    let allocator = pool.allocator();
    allocator.reset(redone.in_use, &stored.words, file.storage.capacity_pages());
    allocator.keep_changed_groups(redone.changed_groups);
    allocator.keep_changed_groups(stored.copies.to_be_written());
    // 3. The log goes on.
    let (clock, ids) = (Arc::new(Clock::new()), Arc::new(Clock::new()));
    // A store that was closed is opened without a write.
    let late = is_late.then_some(redone.unsynced);
    let files = (file, &pool);
    let (log_storage, log) = continue_log(files, options, &mut stored, (redone.end, late), &clock)?;
    let mut opening = Opening::new(&forest, log.as_ref());
    set_barrier(&barrier, file, &stored, redone.end, log.as_ref())?;
    let (newest, drawn) = (ids.clone(), ids.clone());
    forest.set_clock(move || newest.now(), move || drawn.draw());
    opening.started(Background::start(&pool)?);
    let context = || {
        let cx = Context::new(pool.worker(), Journal::new(log.as_ref()));
        cx.with_page_images(options.page_images)
    };
    let (cx, merges) = (context(), context());
    forest.merge_in(Some(merges));
    let tree = match stored.new {
        true => btree::Tree::create(&cx, &forest, CATALOG)?,
        false => btree::Tree::open(&cx, &forest, CATALOG, stored.block.catalog_root)?,
    };
    report_opened(file, &pool, &stored, log.is_some());
    stored.block.catalog_root = tree.root_page();
    let Stored { new, block, copies, .. } = stored;
    let segment_bytes = log.as_ref().map_or(options.segment_bytes(), |log| log.segment_bytes());
    let core = Arc::new(Core {
        txns: txn_system(file, options, &pool, &log, (clock, ids)),
        pool,
        log,
        catalog: Catalog::new(forest.clone(), tree, block.next_tree),
        forest,
        janitor: Janitor::new(),
        checkpoints: Checkpoints::new(block, copies, redone.end, segment_bytes, options),
        info: redone.info,
        warm: WarmStart::new(options.warm_start),
        read_only: options.read_only,
        conflict_wait: options.conflict_wait,
        stall_timeout: options.stall_timeout,
        unlogged_pages: UnloggedPages::new(options),
        compacting: Mutex::new(()),
        sessions: AtomicU64::new(1),
        idle: Mutex::default(),
        readers: KeptReaders::default(),
        file: file.clone(),
        device_rates: device.and_then(|device| device.rates),
        log_storage,
        barrier,
        background: Mutex::new(opening.done()),
        #[cfg(feature = "async")]
        tasks: Default::default(),
        closed: Mutex::new(false),
    });
    // 4. Undo. From here on the engine is closed as a whole.
    let finished = finish_recovery(&core, &cx, options, new, redone.changed, redone.losers);
    if let Err(error) = finished.and_then(|()| adopt_ghosts(&core, &cx, redone.ghosts)) {
        // An incomplete recovery must not be closed as if it were complete.
        core.txns.liveness.poison(&format!("the store could not be opened: {error}"));
        let _poisoned = close(&core);
        return Err(error);
    }
    start(&core)?;
    Ok(core)
}

/// The pool of a store, which does not know yet which pages are in use.
fn open_pool(
    file: &StoreFile,
    options: PoolOptions,
    forest: &Arc<Forest>,
    barrier: &Arc<Barrier>,
) -> Result<Arc<Pool>> {
    let allocator = PageAllocator::new(Vec::new(), 0);
    Pool::open(options, file.storage.clone(), allocator, forest.clone(), barrier.clone())
}

/// Starts the background threads of an engine that is recovered.
fn start(core: &Arc<Core>) -> Result<()> {
    if let Some(log) = &core.log {
        log.set_opening(false);
    }
    core.txns.liveness.seal();
    if let Err(error) = start_threads(core) {
        close(core)?;
        return Err(error);
    }
    Ok(())
}

fn report_opened(file: &StoreFile, pool: &Pool, stored: &Stored, log: bool) {
    tracing::info!(
        path = %file.path.display(),
        back_end = file.storage.name(),
        frames = pool.frames(),
        policy = pool.policy_name(),
        new = stored.new,
        log,
        "opened"
    );
}

/// The store as its superblock describes it.
struct Stored {
    /// There is no store yet.
    new: bool,
    block: Superblock,
    /// The bitmaps of pages in use.
    words: Vec<u64>,
    copies: BitmapCopies,
}

impl Stored {
    fn read(file: &StoreFile, options: &Options) -> Result<Stored> {
        let new = !options.read_only && leftovers::is_new(file)?;
        let block = if new { Superblock::first() } else { file.read_superblock()? };
        let (words, copies) = file.read_bitmap(&block)?;
        Ok(Stored { new, block, words, copies })
    }
}

/// The store after redo.
struct Redone {
    /// Where the log ends.
    end: LogEnd,
    /// The log held changes.
    changed: bool,
    in_use: Vec<u64>,
    changed_groups: BTreeSet<u64>,
    losers: Vec<Loser>,
    ghosts: FoundGhosts,
    /// Segments of the log to be synced before it goes on, see [`recover::Recovered::unsynced`].
    unsynced: Vec<u64>,
    info: StoreInfo,
}

impl Redone {
    /// The store is as an engine that closed it left it, with its log.
    fn is_as_closed(&self, stored: &Stored) -> bool {
        let is_logged = !stored.new && stored.block.state == StoreState::Logged;
        is_logged && !self.changed && self.losers.is_empty()
    }
}

/// Brings the pages to the state of the end of the log. A store that was closed without a log needs
/// nothing.
fn redo(file: &StoreFile, options: &Options, stored: &mut Stored) -> Result<Redone> {
    let Stored { new, block, words, copies } = stored;
    if *new || block.state != StoreState::Logged {
        return Ok(Redone {
            end: block.log_end,
            changed: false,
            in_use: words.clone(),
            changed_groups: BTreeSet::new(),
            losers: Vec::new(),
            ghosts: FoundGhosts::default(),
            unsynced: Vec::new(),
            info: StoreInfo::without_log(block),
        });
    }
    let log = file.open_log(true)?;
    let mut recovered = recover::redo(file, &log, block, words.clone(), options)?;
    let info = StoreInfo::with_log(block, &log, &recovered)?;
    if !options.logs() {
        recovered.make_durable(file, &*log)?;
    } else if recover::release(file, &log, block, copies, &mut recovered)? {
        words.clone_from(&recovered.in_use);
    }
    let changed = recovered.records > 0;
    block.next_tree = block.next_tree.max(recovered.next_tree);
    block.gaps = recovered.gaps;
    Ok(Redone {
        end: recovered.end,
        changed,
        in_use: recovered.in_use,
        changed_groups: recovered.changed_groups,
        losers: recovered.losers,
        ghosts: recovered.ghosts,
        unsynced: recovered.unsynced.unwrap_or_default(),
        info,
    })
}

/// Makes the files of a new store, and removes what an interrupted creation or opening left of a
/// log.
fn prepare_files(file: &StoreFile, options: &Options, stored: &Stored) -> Result<()> {
    if stored.new {
        file.create()?;
    }
    match stored.block.state {
        _ if !options.logs() => Ok(()),
        _ if stored.new => leftovers::clear_new_log(file),
        StoreState::Closed => leftovers::clear_log_behind(file, &stored.block.log_end),
        _ => Ok(()),
    }
}

/// Where the log is read back from, and the log that goes on.
type ContinuedLog = (Option<Arc<dyn LogStorage>>, Option<Arc<Log>>);

/// Starts the log after `end`, if changes are logged. `late`: without a segment, until there is a
/// change; first the data file and these segments are made durable.
fn continue_log(
    (file, pool): (&Arc<StoreFile>, &Arc<Pool>),
    options: &Options,
    stored: &mut Stored,
    (end, late): (LogEnd, Option<Vec<u64>>),
    clock: &Arc<Clock>,
) -> Result<ContinuedLog> {
    let block = &mut stored.block;
    if !options.logs() {
        // Verification and backups of a store that is only read look at its log.
        let is_read = options.read_only && block.state == StoreState::Logged;
        let storage = if is_read { Some(file.open_log(true)?) } else { None };
        return Ok((storage, None));
    }
    let storage = file.open_log(false)?;
    // The log has images of all pages that were changed since the checkpoint began, if it began for
    // all of them at once. Otherwise all pages are due again.
    let at_once = block.class_epochs == ClassEpochs::default();
    let image_epoch = if at_once { block.redo_epoch } else { end.epoch + 1 };
    let start = epochs::start_after(end, image_epoch);
    let is_late = late.is_some();
    let log = start_log((file, pool, storage.clone()), options, start, late, clock)?;
    log.set_opening(true);
    if is_late {
        // Segments that an interrupted end left.
        log.truncate_before(block.segment);
    }
    block.gaps.add(end.epoch, log.epoch());
    Ok((Some(storage), Some(log)))
}

/// Starts the log where it goes on.
fn start_log(
    (file, pool, storage): (&Arc<StoreFile>, &Arc<Pool>, Arc<dyn LogStorage>),
    options: &Options,
    start: LogStart,
    late: Option<Vec<u64>>,
    clock: &Arc<Clock>,
) -> Result<Arc<Log>> {
    let log_options = LogOptions {
        segment_bytes: options.segment_bytes(),
        late_first_segment: late.is_some(),
        // Images of whole pages are for devices that may tear one.
        page_images: !options.atomic_pages,
        // A checkpoint can give room back.
        room_timeout: options.stall_timeout,
        policy: options.log_policy,
        ..LogOptions::default()
    };
    let clock = clock.clone();
    let (file, before) = (file.clone(), storage.clone());
    // The pool has a barrier, which has the log, whose thread has this.
    let pool = Arc::downgrade(pool);
    // From the first change on, what it follows must survive a power cut.
    let before_first = move || {
        let Some(segments) = &late else { return Ok(()) };
        recover::make_durable(&file, &*before, segments).inspect_err(|_| {
            // As after any failed sync of the pages.
            if let (Some(why), Some(pool)) = (file.lost(), pool.upgrade()) {
                pool.distrust_storage(&why);
            }
        })
    };
    let clock = Box::new(move || clock.now());
    Log::start_after(storage, log_options, start, clock, Box::new(before_first))
}

/// The barrier before a page is written: its log records must be durable, or, without a log, the
/// mark in the superblock that says so.
fn set_barrier(
    barrier: &Barrier,
    file: &Arc<StoreFile>,
    stored: &Stored,
    end: LogEnd,
    log: Option<&Arc<Log>>,
) -> Result<()> {
    let epochs = Epochs::new(stored.block.gaps, end.epoch, log);
    assert!(barrier.epochs.set(epochs).is_ok(), "set once");
    if let Some(log) = log {
        assert!(barrier.log.set(log.clone()).is_ok(), "set once");
        return Ok(());
    }
    let block = Superblock {
        sequence: stored.block.sequence + 1,
        state: StoreState::Unlogged,
        ..stored.block
    };
    let mark = barrier.unlogged.get_or_init(|| UnloggedMark::new(file.clone(), block));
    if stored.new { mark.mark() } else { Ok(()) }
}

/// The transactions of an engine that has none yet. `clocks`: of commit times, and of transaction
/// ids.
fn txn_system(
    file: &StoreFile,
    options: &Options,
    pool: &Arc<Pool>,
    log: &Option<Arc<Log>>,
    (clock, ids): (Arc<Clock>, Arc<Clock>),
) -> TxnSystem {
    TxnSystem {
        pool: pool.clone(),
        log: log.clone(),
        page_images: options.page_images,
        clock,
        ids,
        snapshots: Snapshots::new(),
        versions: Versions::new(),
        keeper: Keeper::new(options.version_bytes),
        garbage: GarbageQueue::default(),
        handles: TreeHandles::default(),
        names: NameTimes::default(),
        liveness: Liveness::new(options.read_only, pool.process()),
        durability: options.durability,
        reads: options.reads,
        version_bytes: options.version_bytes,
        waits: Arc::new(Waits::new(options.slow_operation)),
        validation: Mutex::new(()),
        undo_directory: file.directory(),
    }
}

fn start_threads(core: &Arc<Core>) -> Result<()> {
    let (ours, cx) = (core.clone(), core.context());
    core.janitor.thread.start(move || janitor::work(&ours, &cx))?;
    let ours = core.clone();
    core.txns.keeper.thread.start(move || keeper::work(&ours.txns))?;
    if core.log.is_some() {
        let ours = core.clone();
        core.checkpoints.thread.start(move || checkpoint::work(&ours))?;
    }
    if core.warm.is_on && core.file.has(WARM_FILE) {
        let (ours, cx) = (core.clone(), Context::new(core.pool.extra_worker(), Journal::Off));
        core.warm.begin();
        if let Err(error) = core.warm.thread.start(move || warm::work(&ours, &cx)) {
            core.warm.end();
            tracing::warn!(%error, "there is no warm start");
        }
    }
    Ok(())
}
