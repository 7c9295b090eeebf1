//! Options of an engine. Each has a unit, a default and limits; checked when the engine is opened.

use std::time::Duration;
use wattle_buffer::{PoolOptions, io::IoKind};

/// How to open an engine. Build it from [`Options::default`].
///
/// ```
/// use wattle::{IoKind, Options};
/// let options = Options::default().pool_bytes(64 << 20).policy("random").io(IoKind::Memory);
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    pub(crate) pool_bytes: u64,
    pub(crate) policy: String,
    pub(crate) evictors: Option<usize>,
    pub(crate) write_concurrency: usize,
    pub(crate) io: IoKind,
    pub(crate) stall_timeout: Duration,
    pub(crate) create: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            pool_bytes: 256 << 20,
            policy: "watt".to_string(),
            evictors: None,
            write_concurrency: 64,
            io: IoKind::Uring,
            stall_timeout: Duration::from_secs(10),
            create: true,
        }
    }
}

impl Options {
    /// Budget of the buffer pool for pages and frame headers, bytes. Default 256 MiB, at least
    /// [`crate::MIN_POOL_BYTES`]. Everything else that the engine uses stays below 64 MiB.
    pub fn pool_bytes(mut self, bytes: u64) -> Self {
        self.pool_bytes = bytes;
        self
    }

    /// Replacement policy: `watt` (default) or `random`, with parameters as
    /// `watt:epochs=4,write_weight=4`.
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
    /// Default 64.
    pub fn write_concurrency(mut self, pages: usize) -> Self {
        self.write_concurrency = pages;
        self
    }

    /// Storage back end. Default [`IoKind::Uring`].
    pub fn io(mut self, kind: IoKind) -> Self {
        self.io = kind;
        self
    }

    /// How long an operation may wait for a frame without any progress before it fails with
    /// [`crate::Error::PoolExhausted`]. Default 10 s.
    pub fn stall_timeout(mut self, limit: Duration) -> Self {
        self.stall_timeout = limit;
        self
    }

    /// Whether to create the store when there is none. Default true.
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    pub(crate) fn pool_options(&self) -> PoolOptions {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        PoolOptions {
            pool_bytes: self.pool_bytes,
            policy: self.policy.clone(),
            evictors: self.evictors.unwrap_or((cores / 8).max(1)),
            write_concurrency: self.write_concurrency,
            stall_timeout: self.stall_timeout,
        }
    }
}
