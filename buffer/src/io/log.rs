//! Storage of the log: numbered segments of a fixed size, written in whole pages and synced one by
//! one. It has a trait of its own beside [`super::Storage`], because one thread writes a log from
//! front to back and makes it durable in steps, while pages are written anywhere.
//!
//! Invariants: a segment that [`LogStorage::segments`] lists has its full size and survives a power
//! cut. A new segment is zero, or holds the bytes of a segment that the caller passed on. A
//! transfer is complete or an error.
//!
//! Only `wattle-wal` uses it: its flusher thread writes, its helper thread calls `create` and
//! `remove`, and opening a store calls `read`.

use crate::{
    memory::ImageMemory,
    page::{PAGE_SIZE, PageImage},
};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    fmt, io,
    ops::{Deref, DerefMut},
};

/// Where the zeroes of a new segment come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeroes {
    /// They are written, so that syncing later writes there is cheap.
    Written,
    /// The file system provides them without writing, if it can. Each sync of a later write there
    /// takes longer, because the file system has to record which extents are written.
    Reserved,
}

/// Segments of a log. All methods may be called from any thread at once.
pub trait LogStorage: Send + Sync + 'static {
    /// Numbers and sizes in bytes of all segments, ascending.
    fn segments(&self) -> io::Result<Vec<(u64, u64)>>;

    /// Creates a segment of `bytes` zeroes, durable with its directory entry. Fails if the segment
    /// exists. After another error the segment may exist, and a power cut may remove it: it must be
    /// removed before it is created again.
    fn create(&self, segment: u64, bytes: u64) -> io::Result<()>;

    /// As [`LogStorage::create`], while others use the device. Where zeroes have to be written,
    /// they are written in small pieces. `pace` is called before each piece with the bytes written
    /// so far; it may sleep. It returns how many more bytes may be written now, or `None` if the
    /// segment is no longer needed; then no segment is created and the error is
    /// [`io::ErrorKind::Interrupted`]. `pace` is not called for reserved zeroes.
    ///
    /// After its first page, which is zero, the segment may durably hold the bytes of a segment
    /// that was passed on.
    fn create_beside(
        &self,
        segment: u64,
        bytes: u64,
        zeroes: Zeroes,
        pace: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> io::Result<()> {
        let _ = (zeroes, pace);
        self.create(segment, bytes)
    }

    /// Removes a segment durably. Fails if it does not exist.
    fn remove(&self, segment: u64) -> io::Result<()>;

    /// Ends a segment durably, as [`LogStorage::remove`] does, but may keep its room for later
    /// segments.
    fn retire(&self, segment: u64) -> io::Result<()> {
        self.remove(segment)
    }

    /// As [`LogStorage::retire`], for a segment that is completely durable. A segment created later
    /// by [`LogStorage::create_beside`] may hold its bytes at the same offsets, so that they need
    /// not be overwritten. Ends when the log is opened again.
    fn pass_on(&self, segment: u64) -> io::Result<()> {
        self.retire(segment)
    }

    /// Gives room that [`LogStorage::retire`] kept back to the device: all of it, or a part of the
    /// room that no segment needed since the last call. Returns whether there was any.
    fn give_back(&self, all: bool) -> io::Result<bool> {
        let _ = all;
        Ok(false)
    }

    /// Bytes that the device has for further segments, if known: free space and room kept for
    /// segments.
    fn room(&self) -> Option<u64> {
        None
    }

    /// Fills `into` with the bytes from `offset` on. Fails if the range passes the end.
    fn read(&self, segment: u64, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes all pieces, each at its offset. Offsets and lengths are multiples of [`PAGE_SIZE`]
    /// inside the segment. Nothing is durable before [`LogStorage::sync`].
    fn write(&self, segment: u64, writes: &[(u64, &[u8])]) -> io::Result<()>;

    /// Makes all completed writes to the segment durable.
    ///
    /// After an error the kernel may regard the lost bytes as clean. A second call that succeeds
    /// proves nothing, so the caller must stop.
    fn sync(&self, segment: u64) -> io::Result<()>;

    /// Checks that these segments exist in full length. Fails if one was removed, replaced or cut.
    /// Called before the caller records that the log has something.
    fn check(&self, segments: &[u64]) -> io::Result<()> {
        let _ = segments;
        Ok(())
    }
}

/// Bytes at an address that O_DIRECT accepts, initially zero.
pub struct LogBuffer(BufferPages);

enum BufferPages {
    Few(Vec<PageImage>),
    /// Memory that the kernel provides on first touch.
    Many(ImageMemory),
}

/// From this many pages on, a mapping costs less than zeroing.
const MANY_PAGES: usize = 64;

impl LogBuffer {
    /// A buffer of at least `bytes`, rounded up to whole pages.
    pub fn new(bytes: usize) -> LogBuffer {
        let pages = bytes.div_ceil(PAGE_SIZE);
        let many = if pages < MANY_PAGES { None } else { ImageMemory::map(pages).ok() };
        LogBuffer(many.map_or_else(
            || BufferPages::Few(vec![PageImage([0; PAGE_SIZE]); pages]),
            BufferPages::Many,
        ))
    }

    fn pages(&self) -> &[PageImage] {
        match &self.0 {
            BufferPages::Few(pages) => pages,
            BufferPages::Many(pages) => pages,
        }
    }
}

impl Deref for LogBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        let pages = self.pages();
        // SAFETY: the pages, PAGE_SIZE bytes each without padding, lie side by side.
        unsafe { std::slice::from_raw_parts(pages.as_ptr().cast(), size_of_val(pages)) }
    }
}

impl DerefMut for LogBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let pages: &mut [PageImage] = match &mut self.0 {
            BufferPages::Few(pages) => pages,
            BufferPages::Many(pages) => pages,
        };
        let bytes = size_of_val(pages);
        // SAFETY: as above, and borrowed exclusively; any bytes are a page.
        unsafe { std::slice::from_raw_parts_mut(pages.as_mut_ptr().cast(), bytes) }
    }
}

impl fmt::Debug for LogBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogBuffer({} bytes)", self.len())
    }
}

/// A log in memory, which ends with the engine.
#[derive(Default)]
pub struct MemoryLog {
    segments: Mutex<BTreeMap<u64, Vec<u8>>>,
}

impl LogStorage for MemoryLog {
    fn segments(&self) -> io::Result<Vec<(u64, u64)>> {
        let segments = self.segments.lock();
        Ok(segments.iter().map(|(&number, bytes)| (number, bytes.len() as u64)).collect())
    }

    fn create(&self, segment: u64, bytes: u64) -> io::Result<()> {
        let mut segments = self.segments.lock();
        if segments.contains_key(&segment) {
            return Err(exists(segment));
        }
        let len = usize::try_from(bytes).map_err(io::Error::other)?;
        let mut zeroes = Vec::new();
        zeroes.try_reserve_exact(len).map_err(|error| {
            let what = format!("no memory for a log segment of {bytes} bytes: {error}");
            io::Error::new(io::ErrorKind::StorageFull, what)
        })?;
        zeroes.resize(len, 0);
        segments.insert(segment, zeroes);
        Ok(())
    }

    fn remove(&self, segment: u64) -> io::Result<()> {
        self.segments.lock().remove(&segment).map(drop).ok_or_else(|| absent(segment))
    }

    fn read(&self, segment: u64, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let segments = self.segments.lock();
        let bytes = segments.get(&segment).ok_or_else(|| absent(segment))?;
        let range = range_within(segment, offset, into.len(), bytes.len() as u64)?;
        into.copy_from_slice(&bytes[range]);
        Ok(())
    }

    fn write(&self, segment: u64, writes: &[(u64, &[u8])]) -> io::Result<()> {
        let mut segments = self.segments.lock();
        let bytes = segments.get_mut(&segment).ok_or_else(|| absent(segment))?;
        for &(offset, piece) in writes {
            assert_whole_pages(offset, piece.len());
            let range = range_within(segment, offset, piece.len(), bytes.len() as u64)?;
            bytes[range].copy_from_slice(piece);
        }
        Ok(())
    }

    fn sync(&self, segment: u64) -> io::Result<()> {
        let segments = self.segments.lock();
        segments.contains_key(&segment).then_some(()).ok_or_else(|| absent(segment))
    }
}

/// The part of a segment of `bytes` that a transfer touches, or the error of one that passes the
/// end.
pub(super) fn range_within(
    segment: u64,
    offset: u64,
    len: usize,
    bytes: u64,
) -> io::Result<std::ops::Range<usize>> {
    match offset.checked_add(len as u64) {
        Some(end) if end <= bytes => Ok(offset as usize..end as usize),
        _ => {
            let what = format!(
                "log segment {segment} ends at byte {bytes}, before the {len} bytes at {offset}"
            );
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, what))
        }
    }
}

/// Checks that a write of the log is whole pages. Anything else is an error of the caller.
pub(super) fn assert_whole_pages(offset: u64, len: usize) {
    let whole = offset.is_multiple_of(PAGE_SIZE as u64) && len.is_multiple_of(PAGE_SIZE);
    assert!(whole, "a log write of {len} bytes at {offset} is not whole pages");
}

pub(super) fn exists(segment: u64) -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, format!("log segment {segment} exists already"))
}

pub(super) fn absent(segment: u64) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("there is no log segment {segment}"))
}
