//! The module `ring` of a build without the feature `async`: io_uring is refused, always.

use super::{
    directory::Directory,
    file::{PageCache, PageFile},
    probe_load::{Load, Samples},
    segment_file::SegmentFile,
    storage::Storage,
};
use std::{io, path::Path, sync::Arc};

fn refused() -> io::Error {
    let what = "this build has no io_uring: it lacks the feature `async` of the crate wattle";
    io::Error::new(io::ErrorKind::Unsupported, what)
}

/// No thread is in a runtime of tasks.
pub(crate) fn reads_on_this_thread() -> bool {
    false
}

/// Whether io_uring may be used.
pub(super) fn probe() -> io::Result<()> {
    Err(refused())
}

/// Does not open a data file.
pub(super) fn open(_: &Arc<Directory>, _name: &Path, _: PageCache) -> io::Result<Arc<dyn Storage>> {
    Err(refused())
}

/// Does not open a data file.
pub(super) fn open_read_only(
    _: &Arc<Directory>,
    _name: &Path,
    _: PageCache,
) -> io::Result<Arc<dyn Storage>> {
    Err(refused())
}

/// Runs no load.
pub(super) fn run_load(_: &Load, _: &Arc<PageFile>) -> io::Result<Samples> {
    Err(refused())
}

/// There is no ring for the pieces.
pub(super) fn write_pieces(_: &Arc<SegmentFile>, _: &[(u64, &[u8])]) -> Option<io::Result<()>> {
    None
}
