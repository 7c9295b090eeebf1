//! Storage of the log: numbered segments of a fixed size, written in whole pages and synced one by
//! one. A trait of its own beside [`super::Storage`], because a log is written from front to back by
//! one thread and must be durable in steps, while pages are written anywhere.
//!
//! Invariants: a segment that [`LogStorage::segments`] names has its full size and is there after a power cut;
//! it was zero when it was created, or held what the caller had passed on; a transfer is whole or an error.
//!
//! Called by `wattle-wal` alone: writes by its flusher thread, `create` and `remove` by its helper
//! thread, `read` while a store is opened.

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
    /// They are written: what is written over them later is cheap to sync.
    Written,
    /// The file system says that they are there, if it can: nothing is written, but each sync of what is
    /// written there later takes longer, because it has to note where that is.
    Reserved,
}

/// Segments of a log. All methods may be called from any thread at once.
pub trait LogStorage: Send + Sync + 'static {
    /// Numbers and sizes in bytes of all segments, ascending.
    fn segments(&self) -> io::Result<Vec<(u64, u64)>>;

    /// Makes a segment of `bytes` zeroes, durable with its directory entry. A segment that exists
    /// is an error. After another error it may exist, and a power cut may take it: it must be removed
    /// before it is made again.
    fn create(&self, segment: u64, bytes: u64) -> io::Result<()>;

    /// As [`LogStorage::create`], beside others who want the device: where zeroes have to be written,
    /// it is in small pieces, and `pace` is called before each with the bytes written so far. It may
    /// sleep, and says how many more may be written now; or that none are wanted any more, and then there is
    /// no segment, and the error is [`io::ErrorKind::Interrupted`]. Of `zeroes` that are reserved it is not asked.
    ///
    /// Behind its first page, which is zero, the segment may durably hold what another one held that was passed on.
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

    /// Removes a segment, durably. One that does not exist is an error.
    fn remove(&self, segment: u64) -> io::Result<()>;

    /// Gives up a segment, durably, as [`LogStorage::remove`] does; its room may be kept for segments
    /// that are made later.
    fn retire(&self, segment: u64) -> io::Result<()> {
        self.remove(segment)
    }

    /// As [`LogStorage::retire`]. All of the segment is durable, and a segment that
    /// [`LogStorage::create_beside`] makes may hold its bytes, at the same places: they need not be overwritten.
    /// Only until the log is opened again.
    fn pass_on(&self, segment: u64) -> io::Result<()> {
        self.retire(segment)
    }

    /// Gives room back to the device that [`LogStorage::retire`] kept: all of it, or some of what no
    /// segment needed since the last call. Says whether there was any.
    fn give_back(&self, all: bool) -> io::Result<bool> {
        let _ = all;
        Ok(false)
    }

    /// Bytes that the device has room for beside the segments, as far as that is known: those that nobody uses and
    /// those that are kept for segments.
    fn room(&self) -> Option<u64> {
        None
    }

    /// Fills `into` with the bytes from `offset` on. Bytes beyond the end are an error.
    fn read(&self, segment: u64, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes all pieces, each at its offset. Offsets and lengths are multiples of [`PAGE_SIZE`]
    /// inside the segment. Nothing is durable before [`LogStorage::sync`].
    fn write(&self, segment: u64, writes: &[(u64, &[u8])]) -> io::Result<()>;

    /// Makes all completed writes to the segment durable.
    ///
    /// After an error the kernel may regard the lost bytes as clean, so a second call that succeeds
    /// proves nothing: the caller must stop.
    fn sync(&self, segment: u64) -> io::Result<()>;

    /// Looks whether these segments are there, as large as they were made: an error if one was removed,
    /// replaced or cut. The caller asks before it writes down that the log has something.
    fn check(&self, segments: &[u64]) -> io::Result<()> {
        let _ = segments;
        Ok(())
    }
}

/// Bytes at an address that O_DIRECT accepts. Zero at first.
pub struct LogBuffer(BufferPages);

enum BufferPages {
    Few(Vec<PageImage>),
    /// Takes no time and no memory before it is touched.
    Many(ImageMemory),
}

/// From so many pages on a mapping of its own costs less than zeroes.
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

/// A log in memory, gone with the engine.
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

/// The part of a segment of `bytes` that a transfer touches, or the error of one that leaves it.
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

/// Writes of the log are whole pages: anything else is a mistake of the caller.
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
