//! Opens data files and logs with the back end that is asked for.

use super::{
    directory::{Directory, split},
    file::PageCache,
    log::{LogStorage, MemoryLog},
    log_file::FileLog,
    memory::MemoryStorage,
    ring,
    storage::Storage,
    threads::ThreadStorage,
    timed::{DeviceModel, TimedStorage},
};
use std::{io, path::Path, sync::Arc};

/// The back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum IoKind {
    /// io_uring with O_DIRECT; falls back to `Threads` with a warning where the system refuses
    /// io_uring. A build without the feature `async` refuses it ([`IoKind::check`]). With the
    /// feature this is the default.
    #[cfg_attr(feature = "async", default)]
    Uring,
    /// `pread` and `pwrite`, with O_DIRECT where possible. The default of a build without the
    /// feature `async`.
    #[cfg_attr(not(feature = "async"), default)]
    Threads,
    /// As `Uring`, and as `Threads` where there is no io_uring, but pages go through the page cache
    /// of the system; the log does not. For a pool that is smaller than the data, on a machine with
    /// memory that nothing else needs: a miss in the pool is then often a copy from memory. Pages
    /// that are in the pool may be in memory twice, writes are copied once more, and a write that
    /// the device refuses becomes known at the next sync only, after which the store must be opened
    /// again.
    Buffered,
    /// Memory only; the data end with the engine.
    Memory,
    /// As `Memory`, with the service times of a device. For experiments.
    Sim(DeviceModel),
}

impl IoKind {
    /// Whether pages and log are kept in memory only.
    pub fn is_volatile(self) -> bool {
        matches!(self, IoKind::Memory | IoKind::Sim(_))
    }

    /// Whether this build has the back end.
    ///
    /// ```
    /// use wattle_buffer::io::IoKind;
    /// assert!(IoKind::Threads.check().is_ok());
    /// assert_eq!(IoKind::Uring.check().is_ok(), cfg!(feature = "async"));
    /// ```
    ///
    /// # Errors
    /// `ErrorKind::Unsupported` for `Uring` in a build without the feature `async`.
    pub fn check(self) -> io::Result<()> {
        if self != IoKind::Uring || cfg!(feature = "async") {
            return Ok(());
        }
        let what = "IoKind::Uring needs the feature `async` of the crate wattle, which this build \
                    lacks; IoKind::Threads does not need it";
        Err(io::Error::new(io::ErrorKind::Unsupported, what))
    }

    fn page_cache(self) -> PageCache {
        match self {
            IoKind::Buffered => PageCache::Used,
            _ => PageCache::Bypassed,
        }
    }
}

/// Opens or creates the data file at `path` with the given back end, or with `threads` where
/// io_uring is refused. `Memory` and `Sim` use no path. Fails as [`IoKind::check`] does.
pub fn open(kind: IoKind, path: &Path) -> io::Result<Arc<dyn Storage>> {
    match kind {
        IoKind::Memory => return Ok(Arc::new(MemoryStorage::new())),
        IoKind::Sim(model) => return Ok(Arc::new(TimedStorage::new(model))),
        IoKind::Uring | IoKind::Threads | IoKind::Buffered => {}
    }
    let (directory, name) = split(path)?;
    open_in(kind, &directory, name)
}

/// As [`open`], for the file `name` in an open directory, which stays open.
pub fn open_in(
    kind: IoKind,
    directory: &Arc<Directory>,
    name: &Path,
) -> io::Result<Arc<dyn Storage>> {
    let cache = kind.page_cache();
    let storage: Arc<dyn Storage> = match allowed(kind)? {
        IoKind::Memory => Arc::new(MemoryStorage::new()),
        IoKind::Sim(model) => Arc::new(TimedStorage::new(model)),
        IoKind::Threads => Arc::new(ThreadStorage::open_in(directory, name, cache)?),
        IoKind::Uring | IoKind::Buffered => ring::open(directory, name, cache)?,
    };
    let path = directory.path_of(name);
    tracing::info!(back_end = storage.name(), path = %path.display(), "opened the data file");
    Ok(storage)
}

/// As [`open_in`], for an existing data file and for reading only. Writes need an
/// [`super::Overlay`].
pub fn open_read_only_in(
    kind: IoKind,
    directory: &Arc<Directory>,
    name: &Path,
) -> io::Result<Arc<dyn Storage>> {
    let cache = kind.page_cache();
    let storage: Arc<dyn Storage> = match allowed(kind)? {
        IoKind::Memory => Arc::new(MemoryStorage::new()),
        IoKind::Sim(model) => Arc::new(TimedStorage::new(model)),
        IoKind::Threads => Arc::new(ThreadStorage::open_read_only(directory, name, cache)?),
        IoKind::Uring | IoKind::Buffered => ring::open_read_only(directory, name, cache)?,
    };
    let (back_end, path) = (storage.name(), directory.path_of(name));
    tracing::info!(back_end, path = %path.display(), "opened the data file read-only");
    Ok(storage)
}

/// The given back end, or `threads` where io_uring is refused.
fn allowed(kind: IoKind) -> io::Result<IoKind> {
    kind.check()?;
    if !matches!(kind, IoKind::Uring | IoKind::Buffered) {
        return Ok(kind);
    }
    if cfg!(not(feature = "async")) {
        return Ok(IoKind::Threads);
    }
    match ring::probe() {
        Ok(()) => Ok(kind),
        Err(error) => {
            tracing::warn!(%error, "io_uring is refused: falling back to I/O threads");
            Ok(IoKind::Threads)
        }
    }
}

/// Opens the log in `directory`, and creates the directory durably if it is absent. `Memory` uses
/// no directory; `Uring` and `Buffered` fall back to `Threads` where io_uring is refused. Fails as
/// [`IoKind::check`] does.
pub fn open_log(kind: IoKind, directory: &Path) -> io::Result<Arc<dyn LogStorage>> {
    match kind {
        IoKind::Memory | IoKind::Sim(_) => Ok(Arc::new(MemoryLog::default())),
        _ => open_log_in(kind, Directory::open_or_create(directory)?.into()),
    }
}

/// As [`open_log`], in an open directory, which stays open.
pub fn open_log_in(kind: IoKind, directory: Arc<Directory>) -> io::Result<Arc<dyn LogStorage>> {
    kind.check()?;
    Ok(match kind {
        IoKind::Memory | IoKind::Sim(_) => Arc::new(MemoryLog::default()),
        IoKind::Threads => Arc::new(FileLog::open(directory, false)?),
        IoKind::Uring | IoKind::Buffered => {
            Arc::new(FileLog::open(directory, ring::probe().is_ok())?)
        }
    })
}
