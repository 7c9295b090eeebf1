//! Opens data files and logs with the back end that is asked for.

use super::{
    directory::{Directory, split},
    log::{LogStorage, MemoryLog},
    log_file::FileLog,
    memory::MemoryStorage,
    runtime,
    storage::Storage,
    threads::ThreadStorage,
    timed::{DeviceModel, TimedStorage},
    uring::UringStorage,
};
use std::{io, path::Path, sync::Arc};

/// The back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum IoKind {
    /// tokio-uring with O_DIRECT; falls back to `Threads` with a warning where io_uring is refused.
    #[default]
    Uring,
    /// `pread` and `pwrite`.
    Threads,
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
}

/// Opens or creates the data file at `path` with the given back end, or with `threads` where
/// io_uring is refused. `Memory` and `Sim` use no path.
pub fn open(kind: IoKind, path: &Path) -> io::Result<Arc<dyn Storage>> {
    match kind {
        IoKind::Memory => return Ok(Arc::new(MemoryStorage::new())),
        IoKind::Sim(model) => return Ok(Arc::new(TimedStorage::new(model))),
        IoKind::Uring | IoKind::Threads => {}
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
    let storage: Arc<dyn Storage> = match allowed(kind) {
        IoKind::Memory => Arc::new(MemoryStorage::new()),
        IoKind::Sim(model) => Arc::new(TimedStorage::new(model)),
        IoKind::Threads => Arc::new(ThreadStorage::open_in(directory, name)?),
        IoKind::Uring => Arc::new(UringStorage::open_in(directory, name)?),
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
    let storage: Arc<dyn Storage> = match allowed(kind) {
        IoKind::Memory => Arc::new(MemoryStorage::new()),
        IoKind::Sim(model) => Arc::new(TimedStorage::new(model)),
        IoKind::Threads => Arc::new(ThreadStorage::open_read_only(directory, name)?),
        IoKind::Uring => Arc::new(UringStorage::open_read_only(directory, name)?),
    };
    let (back_end, path) = (storage.name(), directory.path_of(name));
    tracing::info!(back_end, path = %path.display(), "opened the data file read-only");
    Ok(storage)
}

/// The given back end, or `threads` where io_uring is refused.
fn allowed(kind: IoKind) -> IoKind {
    if kind != IoKind::Uring {
        return kind;
    }
    match runtime::probe() {
        Ok(()) => kind,
        Err(error) => {
            tracing::warn!(%error, "io_uring is refused: falling back to I/O threads");
            IoKind::Threads
        }
    }
}

/// Opens the log in `directory`, and creates the directory durably if it is absent. `Memory` uses
/// no directory; `Uring` falls back to `Threads` where io_uring is refused.
pub fn open_log(kind: IoKind, directory: &Path) -> io::Result<Arc<dyn LogStorage>> {
    match kind {
        IoKind::Memory | IoKind::Sim(_) => Ok(Arc::new(MemoryLog::default())),
        _ => open_log_in(kind, Directory::open_or_create(directory)?.into()),
    }
}

/// As [`open_log`], in an open directory, which stays open.
pub fn open_log_in(kind: IoKind, directory: Arc<Directory>) -> io::Result<Arc<dyn LogStorage>> {
    Ok(match kind {
        IoKind::Memory | IoKind::Sim(_) => Arc::new(MemoryLog::default()),
        IoKind::Threads => Arc::new(FileLog::open(directory, false)?),
        IoKind::Uring => Arc::new(FileLog::open(directory, runtime::probe().is_ok())?),
    })
}
