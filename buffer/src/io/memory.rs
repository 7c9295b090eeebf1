//! Back end `memory`: pages on the heap, which end with the engine.
//!
//! For data without a device: tests, and measurements of everything but I/O.
//!
//! Invariants: a chunk is allocated when it is reserved or first written, has a lock of its own,
//! and stays until the storage is dropped. A page that was never written reads as zeroes, which no
//! verification accepts. Finding a chunk takes no lock: the directory is an array of buckets of
//! doubling size, each created once.

use super::storage::{PageWrite, ReadTarget, Storage};
use crate::{
    ids::PageId,
    page::{PAGE_SIZE, PageImage},
};
use parking_lot::RwLock;
use std::{
    io,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// Pages of a chunk, the unit of allocation and of locking: 256 KiB.
const CHUNK_PAGES: u64 = 64;
/// Maximum number of pages of a memory device, for 1 TiB. So a wild page id costs at most the chunk
/// that holds it and a directory of 128 MiB.
pub const MAX_MEMORY_PAGES: u64 = 1 << 28;
/// Bucket `b` holds 2^b chunks, so this many hold them all.
const BUCKETS: usize = (MAX_MEMORY_PAGES / CHUNK_PAGES).ilog2() as usize + 1;

/// Empty until it is allocated, then [`CHUNK_PAGES`] pages.
type Chunk = RwLock<Vec<[u8; PAGE_SIZE]>>;

/// Pages in memory.
pub struct MemoryStorage {
    buckets: [OnceLock<Vec<Chunk>>; BUCKETS],
    /// Orders nothing, hence relaxed.
    capacity: AtomicU64,
    limit: u64,
}

impl MemoryStorage {
    /// An empty device that grows up to [`MAX_MEMORY_PAGES`].
    pub fn new() -> MemoryStorage {
        MemoryStorage::with_limit(MAX_MEMORY_PAGES)
    }

    /// An empty device of at most `pages` (and at most [`MAX_MEMORY_PAGES`]).
    pub fn with_limit(pages: u64) -> MemoryStorage {
        MemoryStorage {
            buckets: [const { OnceLock::new() }; BUCKETS],
            capacity: AtomicU64::new(0),
            limit: pages.min(MAX_MEMORY_PAGES),
        }
    }

    /// The chunk of `page`, if its bucket exists, and the index of the page in it.
    fn chunk(&self, page: PageId) -> Option<(&Chunk, usize)> {
        let (bucket, index) = place(page.0 / CHUNK_PAGES);
        let chunk = self.buckets.get(bucket)?.get()?.get(index)?;
        Some((chunk, (page.0 % CHUNK_PAGES) as usize))
    }

    /// Allocates the chunk of `page`, which is below the limit.
    fn create(&self, page: u64) -> io::Result<&Chunk> {
        let (bucket, index) = place(page / CHUNK_PAGES);
        let slot = &self.buckets[bucket];
        if slot.get().is_none() {
            let mut chunks = try_vec::<Chunk>(1 << bucket)?;
            chunks.resize_with(1 << bucket, Chunk::default);
            // If another thread was faster, this empty bucket is dropped.
            let _ = slot.set(chunks);
        }
        let chunk = &slot.get().expect("just set")[index];
        if chunk.read().is_empty() {
            let mut pages = chunk.write();
            if pages.is_empty() {
                *pages = try_vec(CHUNK_PAGES as usize)?;
                pages.resize(CHUNK_PAGES as usize, [0; PAGE_SIZE]);
            }
        }
        Ok(chunk)
    }

    fn full(&self, pages: u64) -> io::Error {
        let what = format!("the memory device has a limit of {} pages, {pages} needed", self.limit);
        io::Error::new(io::ErrorKind::StorageFull, what)
    }

    fn read(&self, page: PageId, copy: impl FnOnce(&[u8; PAGE_SIZE])) {
        if let Some((chunk, index)) = self.chunk(page)
            && let Some(bytes) = chunk.read().get(index)
        {
            return copy(bytes);
        }
        copy(&[0; PAGE_SIZE]);
    }

    fn write(&self, page: PageId, image: &PageImage) -> io::Result<()> {
        if page.0 >= self.limit {
            return Err(self.full(page.0.saturating_add(1)));
        }
        self.create(page.0)?.write()[(page.0 % CHUNK_PAGES) as usize] = image.0;
        if page.0 >= self.capacity.load(Ordering::Relaxed) {
            self.capacity.fetch_max(page.0 + 1, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Default for MemoryStorage {
    fn default() -> Self {
        MemoryStorage::new()
    }
}

/// Bucket of a chunk and its index there: chunk `n` is number `n + 1 - 2^b` of bucket
/// `b = log2(n + 1)`.
fn place(chunk: u64) -> (usize, usize) {
    let bucket = (chunk + 1).ilog2();
    (bucket as usize, (chunk + 1 - (1 << bucket)) as usize)
}

fn try_vec<T>(len: usize) -> io::Result<Vec<T>> {
    let mut vec = Vec::new();
    vec.try_reserve_exact(len).map_err(|error| {
        let what = format!("no memory for {len} times {} bytes: {error}", size_of::<T>());
        io::Error::new(io::ErrorKind::StorageFull, what)
    })?;
    Ok(vec)
}

impl Storage for MemoryStorage {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn read_page(&self, target: &mut ReadTarget) -> io::Result<()> {
        self.read(target.page(), |bytes| target.fill(bytes));
        Ok(())
    }

    fn read_image(&self, page: PageId, image: &mut PageImage) -> io::Result<()> {
        self.read(page, |bytes| image.0 = *bytes);
        Ok(())
    }

    fn write_pages(&self, batch: &[PageWrite<'_>], results: &mut Vec<io::Result<()>>) {
        results.extend(batch.iter().map(|write| self.write(write.page, write.image)));
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn capacity_pages(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    fn reserve(&self, pages: u64) -> io::Result<()> {
        if pages > self.limit {
            return Err(self.full(pages));
        }
        let mut page = self.capacity_pages() / CHUNK_PAGES * CHUNK_PAGES;
        while page < pages {
            self.create(page)?;
            page += CHUNK_PAGES;
        }
        self.capacity.fetch_max(pages, Ordering::Relaxed);
        Ok(())
    }

    fn shrink(&self, pages: u64) -> io::Result<()> {
        let old = self.capacity_pages();
        let mut page = pages;
        while page < old {
            if let Some((chunk, index)) = self.chunk(PageId(page)) {
                let mut chunk = chunk.write();
                match index {
                    0 => *chunk = Vec::new(),
                    _ => chunk.iter_mut().skip(index).for_each(|page| *page = [0; PAGE_SIZE]),
                }
            }
            page = (page / CHUNK_PAGES + 1) * CHUNK_PAGES;
        }
        self.capacity.fetch_min(pages, Ordering::Relaxed);
        Ok(())
    }
}
