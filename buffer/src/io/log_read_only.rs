//! The log in files, for reading only. Nothing in the directory changes, not even the access time
//! of a file where the system allows that.

use super::{
    directory::Directory,
    log::{LogStorage, absent, range_within},
    log_file::{segment_name, segments_in},
    overlay::FrozenLog,
};
use parking_lot::Mutex;
use std::{fs::File, io, os::unix::fs::FileExt, sync::Arc};

/// Opens the log in an open directory, for reading only.
pub fn open_log_read_only_in(directory: Arc<Directory>) -> Arc<dyn LogStorage> {
    Arc::new(FrozenLog(Arc::new(ReadOnlyLog { directory, last: Mutex::default() })))
}

/// Segments that are read through the page cache, one after the other.
struct ReadOnlyLog {
    directory: Arc<Directory>,
    /// The segment that was read last, its length, and its file.
    last: Mutex<Option<(u64, u64, Arc<File>)>>,
}

impl ReadOnlyLog {
    fn segment(&self, segment: u64) -> io::Result<(u64, Arc<File>)> {
        let mut last = self.last.lock();
        if let Some((number, bytes, file)) = &*last
            && *number == segment
        {
            return Ok((*bytes, file.clone()));
        }
        let file = self.directory.open_to_read(segment_name(segment));
        let file = Arc::new(file.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => absent(segment),
            _ => error,
        })?);
        let bytes = file.metadata()?.len();
        *last = Some((segment, bytes, file.clone()));
        Ok((bytes, file))
    }
}

impl LogStorage for ReadOnlyLog {
    fn segments(&self) -> io::Result<Vec<(u64, u64)>> {
        segments_in(&self.directory)
    }

    fn create(&self, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn remove(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn read(&self, segment: u64, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let (bytes, file) = self.segment(segment)?;
        range_within(segment, offset, into.len(), bytes)?;
        file.read_exact_at(into, offset)
    }

    fn write(&self, _: u64, _: &[(u64, &[u8])]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
}
