//! The snapshot that openraft reads and writes.

use std::{
    fs,
    io::{self, SeekFrom},
    path::{Path, PathBuf},
    pin::Pin,
    task::{Context, Poll},
};
use tokio::io::{AsyncRead, AsyncSeek, AsyncWrite, AsyncWriteExt, ReadBuf};

/// A file under a temporary name, which is removed with this.
#[derive(Debug)]
pub struct Part(Option<PathBuf>);

impl Part {
    pub fn new(path: PathBuf) -> Self {
        Part(Some(path))
    }

    /// Its name. None after [`Part::rename`].
    pub fn path(&self) -> Option<&Path> {
        self.0.as_deref()
    }

    /// Gives the file its name.
    pub fn rename(&mut self, to: &Path) -> io::Result<()> {
        if let Some(from) = &self.0 {
            fs::rename(from, to)?;
            self.0 = None;
        }
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.0.as_ref().map(fs::remove_file) {
            tracing::warn!("cannot remove {:?} (the next open does): {error}", self.0);
        }
    }
}

/// A snapshot as a file: `SnapshotData` of openraft. One that is received is removed if it is not
/// installed.
#[derive(Debug)]
pub struct SnapshotFile {
    file: tokio::fs::File,
    part: Option<Part>,
}

impl SnapshotFile {
    pub(crate) fn new(file: fs::File, part: Option<Part>) -> Self {
        SnapshotFile { file: file.into(), part }
    }

    /// The file when all that was written has reached it.
    pub(crate) async fn into_file(mut self) -> io::Result<(fs::File, Option<Part>)> {
        self.file.flush().await?;
        Ok((self.file.into_std().await, self.part))
    }
}

impl AsyncRead for SnapshotFile {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.file).poll_read(context, into)
    }
}

impl AsyncWrite for SnapshotFile {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.file).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.file).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.file).poll_shutdown(context)
    }
}

impl AsyncSeek for SnapshotFile {
    fn start_seek(mut self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
        Pin::new(&mut self.file).start_seek(to)
    }

    fn poll_complete(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<u64>> {
        Pin::new(&mut self.file).poll_complete(context)
    }
}
