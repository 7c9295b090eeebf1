//! io_uring, as the back ends in files use it. In a build without the feature `async` the module
//! `no_ring` takes its place.

pub(crate) use super::runtime::reads_on_this_thread;
use super::{directory::Directory, file::PageCache, storage::Storage, uring::UringStorage};
pub(super) use super::{log_ring::write_pieces, probe_ring::run_load, runtime::probe};
use std::{io, path::Path, sync::Arc};

/// Opens or creates a data file. Fails if io_uring is refused.
pub(super) fn open(
    directory: &Arc<Directory>,
    name: &Path,
    cache: PageCache,
) -> io::Result<Arc<dyn Storage>> {
    Ok(Arc::new(UringStorage::open_in(directory, name, cache)?))
}

/// Opens an existing data file for reading. Fails if io_uring is refused.
pub(super) fn open_read_only(
    directory: &Arc<Directory>,
    name: &Path,
    cache: PageCache,
) -> io::Result<Arc<dyn Storage>> {
    Ok(Arc::new(UringStorage::open_read_only(directory, name, cache)?))
}
