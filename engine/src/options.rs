//! Options of an engine. Each has a unit, a default and limits; checked when the engine is opened.

use crate::{
    limits::limit,
    memory,
    txn::{Durability, Reads},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use wattle_btree::PageImages;
use wattle_buffer::{
    Ace, Error, MIN_FRAMES, MIN_POOL_BYTES, PAGE_SIZE, PageTrace, PoolOptions, Result, WriteOrder,
    io::{DeviceRecord, IoKind},
    processors,
};
use wattle_wal::FlushPolicy;

/// Frames of a pool for each tree that is open.
pub(crate) const FRAMES_PER_TREE: usize = 4;

/// Least limit of the log, bytes.
pub const MIN_LOG_BYTES: u64 = 2 << 20;

/// Least limit of the memory of versions, bytes.
const MIN_VERSION_BYTES: u64 = limit(1 << 20, 1 << 10) as u64;

/// Longest time that a change waits for a transaction that is in its way.
const MAX_CONFLICT_WAIT: Duration = Duration::from_secs(60);

/// Limit of the log of an engine for which [`Options::pool_bytes`] was set and
/// [`Options::log_bytes`] was not: four times the pool, at least 1 GiB and at most 16 GiB.
///
/// After a checkpoint each page is logged whole when it is changed for the first time. If all of
/// the pool is, that is half of the log between two checkpoints; with a smaller log it would be
/// most of it, and every page would be written twice as often.
pub fn default_log_bytes(pool_bytes: u64) -> u64 {
    pool_bytes.saturating_mul(4).clamp(1 << 30, 16 << 30)
}

/// Limit of the log where neither it nor the pool is set. The default pool is large on a machine
/// with much memory, but a program that sets nothing should not find 16 GiB of log beside a small
/// store, nor wait for its recovery.
const UNSET_LOG_BYTES: u64 = 1 << 30;

/// The default pool is one part in so many of the memory that the process may use. The rest is for
/// the program, for other processes and for a second engine; read-only recovery takes up to as much
/// again.
const POOL_SHARE: u64 = 4;

/// The default pool where the memory is unknown.
const UNKNOWN_POOL_BYTES: u64 = 256 << 20;

/// The default pool of a process that may use `memory` bytes.
fn default_pool_bytes(memory: Option<u64>) -> u64 {
    memory.map_or(UNKNOWN_POOL_BYTES, |bytes| (bytes / POOL_SHARE).max(MIN_POOL_BYTES))
}

/// Page images in flight at once to a device that was not probed: fewer where they are a large part
/// of the frames.
fn default_writes(pool_bytes: u64) -> usize {
    (pool_bytes as usize / PAGE_SIZE / 128).clamp(16, 128)
}

/// Most page images in flight at once to a device that could take more.
fn most_writes(pool_bytes: u64) -> usize {
    (pool_bytes as usize / PAGE_SIZE / 16).clamp(1, 1024)
}

/// Pages that a scan reads ahead from a device that was not probed.
const DEFAULT_READ_AHEAD: usize = 32;

/// Workers of the pool that the engine uses itself: one for the janitor, one for merges.
const ENGINE_WORKERS: usize = 2;

/// How to open an engine. Build it from [`Options::default`].
///
/// ```
/// use std::{sync::{Arc, atomic::AtomicBool}, time::Duration};
/// use wattle::{Durability, IoKind, Options, PageTrace, Reads, WriteOrder};
///
/// let options = Options::default()
///     .pool_bytes(Options::min_pool_bytes(100).max(64 << 20))
///     .create(false)
///     .durability(Durability::Group)
///     .reads(Reads::Durable)
///     .conflict_wait(Duration::from_millis(50))
///     .stall_timeout(Duration::from_secs(5))
///     .slow_operation(Duration::from_millis(100))
///     .log_bytes(1 << 30)
///     .version_bytes(64 << 20)
///     .direct_value_bytes(256 << 10)
///     .atomic_page_writes(false)
///     .interrupted_by(Arc::new(AtomicBool::new(false)));
/// assert!(options.check().is_ok() && options.max_sessions() > 16);
///
/// let experiment = Options::default().io(IoKind::Memory).log(false).policy("random");
/// let experiment = experiment.evictors(2).write_order(WriteOrder::Clustered);
/// let experiment = experiment.write_concurrency(64).read_ahead(16).page_trace(PageTrace::new());
/// assert!(experiment.check().is_ok());
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    pub(crate) pool_bytes: u64,
    pool_is_default: bool,
    pub(crate) policy: String,
    pub(crate) evictors: Option<usize>,
    pub(crate) write_concurrency: Option<usize>,
    pub(crate) swizzling: bool,
    pub(crate) redistribution: bool,
    pub(crate) read_ahead: Option<usize>,
    pub(crate) ace: Ace,
    pub(crate) write_order: WriteOrder,
    pub(crate) io: IoKind,
    pub(crate) stall_timeout: Duration,
    pub(crate) create: bool,
    pub(crate) read_only: bool,
    pub(crate) log: bool,
    pub(crate) durability: Durability,
    pub(crate) reads: Reads,
    pub(crate) conflict_wait: Duration,
    pub(crate) log_bytes: Option<u64>,
    pub(crate) log_policy: FlushPolicy,
    pub(crate) version_bytes: u64,
    pub(crate) direct_value_bytes: u64,
    pub(crate) atomic_pages: bool,
    pub(crate) page_images: PageImages,
    pub(crate) warm_start: bool,
    pub(crate) page_trace: Option<PageTrace>,
    pub(crate) interrupt: Option<Arc<AtomicBool>>,
    pub(crate) slow_operation: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            pool_bytes: default_pool_bytes(memory::first_memory_limit()),
            pool_is_default: true,
            policy: "watt".to_string(),
            evictors: None,
            write_concurrency: None,
            swizzling: true,
            redistribution: true,
            read_ahead: None,
            ace: Ace::Off,
            write_order: WriteOrder::Value,
            io: IoKind::default(),
            stall_timeout: Duration::from_secs(10),
            create: true,
            read_only: false,
            log: true,
            durability: Durability::Sync,
            reads: Reads::Newest,
            conflict_wait: Duration::from_millis(10),
            log_bytes: None,
            log_policy: FlushPolicy::default(),
            version_bytes: 16 << 20,
            direct_value_bytes: 0,
            atomic_pages: false,
            page_images: PageImages::default(),
            warm_start: true,
            page_trace: None,
            interrupt: None,
            slow_operation: None,
        }
    }
}

impl Options {
    /// Budget of the buffer pool for pages and frame headers, bytes; at least
    /// [`crate::MIN_POOL_BYTES`]. Default: a quarter of the memory that the process may use
    /// ([`crate::memory_limit`], limits of control groups included, as the process first made
    /// options), or 256 MiB if that is unknown. Everything else that the engine uses stays below
    /// 64 MiB.
    ///
    /// Memory is taken as pages come in, so a pool that the store never fills costs only what it
    /// holds. A pool larger than memory is therefore not refused; the system may end a process that
    /// fills it.
    ///
    /// ```
    /// let options = wattle::Options::default().pool_bytes(64 << 20);
    /// assert!(options.max_sessions() > 100);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pool_bytes(mut self, bytes: u64) -> Self {
        self.pool_bytes = bytes;
        self.pool_is_default = false;
        self
    }

    /// Replacement policy, `watt` (default) or another one of [`policies`](crate::policies), with
    /// parameters as `watt:epochs=16,write_weight=4`.
    pub fn policy(mut self, policy: impl Into<String>) -> Self {
        self.policy = policy.into();
        self
    }

    /// Background evictor threads, 1 to 256. Default: one for each eight cores, at least one.
    pub fn evictors(mut self, threads: usize) -> Self {
        self.evictors = Some(threads);
        self
    }

    /// Page images in flight at once to storage (k_w of the device, see `wattle probe`), 1 to 1024.
    /// Default: as many as the device writes at once if it was probed for this store, otherwise
    /// 1/128 of the frames, at least 16 and at most 128 (so many from 64 MiB on).
    pub fn write_concurrency(mut self, pages: usize) -> Self {
        self.write_concurrency = Some(pages);
        self
    }

    /// Whether a page names the frames of its children that are in memory. Without, it names their
    /// page ids, and every hop from parent to child looks in a page table; all else is the same.
    /// That is for experiments (what swizzling saves), and takes 24 to 32 bytes for each page of
    /// the pool beside it. Default true.
    ///
    /// ```
    /// let options = wattle::Options::default().pool_bytes(64 << 20).swizzling(false);
    /// assert!(options.check().is_ok());
    /// ```
    pub fn swizzling(mut self, swizzling: bool) -> Self {
        self.swizzling = swizzling;
        self
    }

    /// Whether a full leaf gives records to a neighbour in memory that has room, before it is split
    /// for a record of at least an eighth of a page. Leaves of random inserts are then about a
    /// fifth fuller. Default true.
    ///
    /// ```
    /// let options = wattle::Options::default().pool_bytes(64 << 20).redistribution(false);
    /// assert!(options.check().is_ok());
    /// ```
    pub fn redistribution(mut self, redistribution: bool) -> Self {
        self.redistribution = redistribution;
        self
    }

    /// Pages that a scan reads ahead at most, 0 to 1024; 0 turns read-ahead off. Default: as many
    /// as the device reads at once if it was probed for this store, at least 8 and at most 128;
    /// otherwise 32. Also at most 1/32 of the pool.
    pub fn read_ahead(mut self, pages: usize) -> Self {
        self.read_ahead = Some(pages);
        self
    }

    /// Whether dirty victims are written in batches of [`Options::write_concurrency`] pages, as
    /// many as the device writes in the time of one (ACE, ICDE 2023). Needs a policy that orders
    /// pages; `random` does not. Default [`Ace::Off`].
    ///
    /// ```
    /// use wattle::{Ace, Options};
    /// assert!(Options::default().ace(Ace::Writer).check().is_ok());
    /// assert!(Options::default().ace(Ace::Writer).policy("random").check().is_err());
    /// ```
    pub fn ace(mut self, ace: Ace) -> Self {
        self.ace = ace;
        self
    }

    /// The order in which dirty victims are written. Default [`WriteOrder::Value`].
    pub fn write_order(mut self, order: WriteOrder) -> Self {
        self.write_order = order;
        self
    }

    /// Storage back end. Default [`IoKind::Uring`], and [`IoKind::Threads`] in a build without the
    /// feature `async`, which has no io_uring.
    pub fn io(mut self, kind: IoKind) -> Self {
        self.io = kind;
        self
    }

    /// Upper bound on waits for other operations and for room. An operation waits this long for a
    /// free frame, while no frame becomes free or pages cannot be written, and then fails with
    /// [`crate::Error::PoolExhausted`]; four times as long while frames become free and other
    /// threads take them, or while the device holds writes of pages and has not ended them. A
    /// change waits this long for room that a checkpoint makes on a full device, and then fails
    /// with [`crate::Error::DiskFull`]. Commits that cannot be flushed then, because rollbacks have
    /// used up the reserve of the log, wait six times as long (at least 5 s) before the log fails
    /// with [`crate::Error::CommitUnknown`]. A backup and a bulk load wait this long for each
    /// other; an operation that other threads keep from its pages waits four times as long:
    /// [`crate::Error::Limit`]. Default 10 s.
    pub fn stall_timeout(mut self, limit: Duration) -> Self {
        self.stall_timeout = limit;
        self
    }

    /// From which wait on an operation, or a commit that waits for the log, is reported: as a
    /// warning of `tracing` with the target `wattle::slow` and the time. Only waits for a page, for
    /// room, for another operation or for the log are measured. Default: none is reported.
    pub fn slow_operation(mut self, limit: Duration) -> Self {
        self.slow_operation = Some(limit);
        self
    }

    /// Whether to create the store when there is none, in a directory that exists and is empty or
    /// that is created; the directory above must exist. Default true.
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Whether the store is only read: nothing is written to its files, not even their times as far
    /// as the system allows that, so it may lie on a read-only or full device, or belong to another
    /// user. A store that needs recovery is recovered in memory, which takes up to
    /// [`Options::pool_bytes`] beside the pool; opening fails when it takes more. Several engines
    /// may read a store at a time, also of other processes, but not while one writes. Every change
    /// fails with [`crate::Error::ReadOnly`], and [`crate::Engine::begin`] gives read-only
    /// transactions. The store must exist, regardless of [`Options::create`]. Default false.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # wattle::Engine::open(dir.path().join("store"), wattle::Options::default())?.close()?;
    /// let options = wattle::Options::default().read_only(true);
    /// let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// assert!(matches!(engine.tree("new"), Err(wattle::Error::ReadOnly)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Whether changes are logged. Without a log nothing is durable before the store is closed, and
    /// a store whose process ends before that is lost. Default true.
    pub fn log(mut self, log: bool) -> Self {
        self.log = log;
        self
    }

    /// The durability that commits wait for. Default [`Durability::Sync`].
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Which commits auto-committed reads and read-only transactions see. Default
    /// [`Reads::Newest`]: every commit that has returned, from every session.
    pub fn reads(mut self, reads: Reads) -> Self {
        self.reads = reads;
        self
    }

    /// How long an auto-committed change waits for a transaction that has changed the same record
    /// and has not ended, before it fails with [`crate::Error::Conflict`]: 0 (it fails at once) to
    /// 60 s, default 10 ms. A transaction in memory takes 10 to 100 us, one that reads a few pages
    /// from a device 1 ms, and its records are free before its flush. A transaction that holds a
    /// record for longer waits for something else, perhaps for the caller. (RocksDB waits 1 s,
    /// LeanStore not at all.) An asynchronous session waits without its thread. A change of a
    /// record that an open transaction of the same [`crate::Session`] has changed fails at once.
    pub fn conflict_wait(mut self, limit: Duration) -> Self {
        self.conflict_wait = limit;
        self
    }

    /// Bytes of log that checkpoints keep it below, and so about the bytes that recovery reads: at
    /// least [`crate::MIN_LOG_BYTES`]. Default: 1 GiB, or [`default_log_bytes`] of the pool if
    /// [`Options::pool_bytes`] was set. A transaction that stays open
    /// keeps the log from its first change on beyond that. Where the device has less room, the
    /// engine stays below that; two segments, each a sixteenth of the limit and at most 16 MiB, are
    /// made ahead.
    pub fn log_bytes(mut self, bytes: u64) -> Self {
        self.log_bytes = Some(bytes);
        self
    }

    /// Tuned figures of the threads of the log, for experiments.
    #[doc(hidden)]
    pub fn log_policy(mut self, policy: FlushPolicy) -> Self {
        self.log_policy = policy;
        self
    }

    /// Limit of the memory for versions of records, and of the bytes of replaced large values, that
    /// open snapshots may need: at least 1 MiB, default 16 MiB. Near the limit the oldest snapshot
    /// is cancelled: its next read fails with [`crate::Error::SnapshotTooOld`]. The engine checks
    /// it every 2 to 100 ms, depending on how fast the memory grows. Changes between two checks may
    /// exceed it, and versions of open transactions, each by a quarter of the limit at most. Above
    /// the limit changes wait, up to 1 ms each; above twice the limit until the memory is below it,
    /// for [`Options::stall_timeout`] at most.
    ///
    /// Large values that were replaced take file space until they are cleared away. Above this
    /// limit a writer of a large value first clears replaced ones away.
    pub fn version_bytes(mut self, bytes: u64) -> Self {
        self.version_bytes = bytes;
        self
    }

    /// From how many bytes on a value goes to the data file at once and not through the log: it is
    /// written once, and the write waits for a sync of the data file, whatever the durability is.
    /// 0: never. Default 0. A value below 4 KiB goes through the log, as does one of an async
    /// session, one that is written beside a backup or a compaction, and one for which only pages
    /// have room that were freed since the last checkpoint.
    pub fn direct_value_bytes(mut self, bytes: u64) -> Self {
        self.direct_value_bytes = bytes;
        self
    }

    /// The device writes each block of 4 KiB as a whole or not at all, even when power fails, also
    /// where one command writes many blocks: pages need not be logged in full at their first change
    /// after a checkpoint. This is a promise of the caller, nothing checks it. Not with
    /// [`IoKind::Buffered`]. Default false.
    pub fn atomic_page_writes(mut self, atomic: bool) -> Self {
        self.atomic_pages = atomic;
        self
    }

    /// In which form the log has whole pages: those that were changed for the first time since a
    /// checkpoint, and those of splits. [`PageImages::Compressed`] takes 6 to 8 us for each page,
    /// and saves more than half of its bytes where values are text: for a log on a slow device.
    /// Random inserts take 1.4 times as many instructions with it, because of the images of splits.
    /// Where compression has not helped it is rarely tried, so values without order cost little. A
    /// store is opened with any setting. Default [`PageImages::Plain`].
    ///
    /// ```
    /// use wattle::{Options, PageImages};
    /// assert!(Options::default().page_images(PageImages::Compressed).check().is_ok());
    /// ```
    pub fn page_images(mut self, images: PageImages) -> Self {
        self.page_images = images;
        self
    }

    /// Whether the pages that were in memory when the store was closed, or at a checkpoint before a
    /// crash (a list is made every 5 minutes at most), are read again in the background after it is
    /// opened: into free frames only, in the order of the file, the most valuable ones if the pool
    /// is smaller now. Their list is the file [`WARM_FILE`](crate::WARM_FILE) beside the store, 1
    /// to 3 bytes a page as a rule; it may be removed at any time. [`crate::Stats::is_warming`]
    /// says when all is read. In the first hour the list is left as it is by a pool with fewer than
    /// three quarters as many frames as it has pages, and after reads that failed. Without, the
    /// list is neither read nor written. Default true.
    ///
    /// ```
    /// assert!(wattle::Options::default().warm_start(false).check().is_ok());
    /// ```
    pub fn warm_start(mut self, warm_start: bool) -> Self {
        self.warm_start = warm_start;
        self
    }

    /// Where page accesses are recorded, once the trace is started: see [`PageTrace`]. Default:
    /// nowhere, at no cost.
    pub fn page_trace(mut self, trace: PageTrace) -> Self {
        self.page_trace = Some(trace);
        self
    }

    /// Ends the opening of the store with [`crate::Error::Interrupted`] soon after the flag is set:
    /// recovery reads up to the limit of the log. The store is as after a crash then, and can be
    /// opened again. Once it is open the flag has no meaning. Default: none.
    pub fn interrupted_by(mut self, flag: Arc<AtomicBool>) -> Self {
        self.interrupt = Some(flag);
        self
    }

    /// Whether the opening is to end.
    pub(crate) fn check_interrupt(&self) -> Result<()> {
        match &self.interrupt {
            Some(flag) if flag.load(Ordering::Relaxed) => Err(Error::Interrupted),
            _ => Ok(()),
        }
    }

    /// The number of sessions that can be open at a time. Operations on the engine itself, such as
    /// [`crate::Engine::tree`], need one while they run.
    pub fn max_sessions(&self) -> usize {
        self.pool_options().max_workers().saturating_sub(ENGINE_WORKERS)
    }

    /// Least [`Options::pool_bytes`] with which so many trees can be open at a time: each of them,
    /// and the catalog, holds its root in memory, and three quarters of the pool are for everything
    /// else.
    pub fn min_pool_bytes(trees: usize) -> u64 {
        let frame_bytes = MIN_POOL_BYTES / MIN_FRAMES as u64;
        MIN_POOL_BYTES.max((trees as u64 + 1) * FRAMES_PER_TREE as u64 * frame_bytes)
    }

    /// Whether all are within their limits, as far as that can be said without the store.
    ///
    /// ```
    /// assert!(wattle::Options::default().check().is_ok());
    /// assert!(wattle::Options::default().pool_bytes(4096).check().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidOption`], as from [`crate::Engine::open`], which changes nothing then.
    pub fn check(&self) -> Result<()> {
        self.pool_options().check()?;
        self.io.check().map_err(|error| Error::InvalidOption(error.to_string()))?;
        if let Some(bytes) = self.log_bytes.filter(|bytes| *bytes < MIN_LOG_BYTES) {
            return Err(Error::InvalidOption(format!(
                "log_bytes is at least {MIN_LOG_BYTES}, not {bytes}"
            )));
        }
        if self.atomic_pages && self.io == IoKind::Buffered {
            // After a sync that failed, the cache has pages that the device lacks, and recovery
            // would take them for stored ones.
            return Err(Error::InvalidOption(
                "atomic_page_writes needs pages that bypass the page cache, so not \
                 IoKind::Buffered: recovery writes only what it has whole in the log"
                    .into(),
            ));
        }
        if self.conflict_wait > MAX_CONFLICT_WAIT {
            return Err(Error::InvalidOption(format!(
                "conflict_wait is at most {MAX_CONFLICT_WAIT:?}, not {:?}",
                self.conflict_wait
            )));
        }
        if self.version_bytes < MIN_VERSION_BYTES {
            return Err(Error::InvalidOption(format!(
                "version_bytes is at least {MIN_VERSION_BYTES}, not {}",
                self.version_bytes
            )));
        }
        Ok(())
    }

    /// Pages that an engine keeps in memory which only reads and has to recover, beside the pool.
    pub(crate) fn overlay_pages(&self) -> usize {
        self.pool_bytes as usize / PAGE_SIZE
    }

    /// Changes are logged.
    pub(crate) fn logs(&self) -> bool {
        self.log && !self.read_only
    }

    /// The limit of the log. One that is kept in memory takes no more of it than need be.
    pub(crate) fn log_limit(&self) -> u64 {
        let unset = || match self.pool_is_default {
            true => UNSET_LOG_BYTES,
            false => default_log_bytes(self.pool_bytes),
        };
        let bytes = self.log_bytes.unwrap_or_else(unset);
        match self.io {
            IoKind::Memory | IoKind::Sim(_) => bytes.min(64 << 20),
            _ => bytes,
        }
    }

    /// Bytes of a segment of the log: a sixteenth of the limit.
    pub(crate) fn segment_bytes(&self) -> u64 {
        (self.log_limit() / 16).clamp(128 << 10, 16 << 20) & !4095
    }

    /// The options of the pool of a store on a device with these figures, if it was probed.
    pub(crate) fn pool_options_on(&self, device: Option<DeviceRecord>) -> PoolOptions {
        let options = self.pool_options();
        let Some(device) = device else { return options };
        let writes = device.k_w.min(most_writes(self.pool_bytes));
        PoolOptions {
            write_concurrency: self.write_concurrency.unwrap_or(writes),
            read_ahead: self.read_ahead.unwrap_or(device.k_r.clamp(8, 128)),
            ..options
        }
    }

    pub(crate) fn pool_options(&self) -> PoolOptions {
        PoolOptions {
            pool_bytes: self.pool_bytes,
            policy: self.policy.clone(),
            evictors: self.evictors.unwrap_or((processors() / 8).max(1)),
            write_concurrency: self.write_concurrency.unwrap_or(default_writes(self.pool_bytes)),
            read_ahead: self.read_ahead.unwrap_or(DEFAULT_READ_AHEAD),
            ace: self.ace,
            write_order: self.write_order,
            stall_timeout: self.stall_timeout,
            swizzling: self.swizzling,
            trace: self.page_trace.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_pool_is_a_quarter_of_the_memory() {
        assert_eq!(default_pool_bytes(Some(8 << 30)), 2 << 30);
        assert_eq!(default_pool_bytes(Some(4096)), MIN_POOL_BYTES);
        assert_eq!(default_pool_bytes(None), 256 << 20);
    }

    #[test]
    fn the_default_log_does_not_grow_with_a_pool_that_nobody_chose() {
        let options = Options { pool_bytes: 64 << 30, ..Options::default() };
        assert_eq!(options.log_limit(), 1 << 30);
        assert_eq!(options.clone().pool_bytes(64 << 30).log_limit(), 16 << 30);
        assert_eq!(options.log_bytes(2 << 30).log_limit(), 2 << 30);
    }
}
