//! Storage that is never written: an engine that only reads keeps its changes in memory above it.
//!
//! Recovery changes pages, and so does the rollback of unfinished transactions. With an [`Overlay`]
//! both work as usual, and the engine reads the store as recovery would leave it, without changing
//! a byte of it. The log of such a store is a [`FrozenLog`].
//!
//! Invariants: nothing is written, synced or reserved below. Memory is that of the changed pages,
//! up to the limit, beyond which writes fail.

use super::{
    log::{LogBuffer, LogStorage},
    storage::{PageWrite, ReadTarget, Storage},
};
use crate::{
    ids::PageId,
    page::{PAGE_SIZE, PageImage},
};
use parking_lot::RwLock;
use std::{
    collections::HashMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Pages in memory above a storage that does not change.
pub struct Overlay {
    base: Arc<dyn Storage>,
    pages: RwLock<HashMap<PageId, Box<[u8; PAGE_SIZE]>>>,
    /// Upper bound on the number of pages in memory.
    limit: usize,
    /// Capacity of the base and of the room reserved here. It only grows and orders nothing, hence
    /// relaxed.
    capacity: AtomicU64,
}

impl Overlay {
    /// An overlay above `base`, with up to `limit` pages in memory.
    pub fn new(base: Arc<dyn Storage>, limit: usize) -> Overlay {
        let capacity = AtomicU64::new(base.capacity_pages());
        Overlay { base, pages: RwLock::default(), limit, capacity }
    }

    /// Copies a page that differs from the base; `None` if the page must be read from the base.
    fn find<T>(&self, page: PageId, copy: impl FnOnce(&[u8; PAGE_SIZE]) -> T) -> Option<T> {
        if let Some(bytes) = self.pages.read().get(&page) {
            return Some(copy(bytes));
        }
        // Room that was reserved here reads as zeroes.
        (page.0 >= self.base.capacity_pages() && page.0 < self.capacity_pages())
            .then(|| copy(&[0; PAGE_SIZE]))
    }

    fn write(&self, page: PageId, image: &PageImage) -> io::Result<()> {
        let mut pages = self.pages.write();
        if pages.len() >= self.limit && !pages.contains_key(&page) {
            let bytes = self.limit * PAGE_SIZE;
            let what = format!(
                "recovery of a store that is opened read-only keeps its changes in memory, and \
                 they exceed the limit of {bytes} bytes, the size of the pool: open the store for \
                 writing once, or with a larger pool"
            );
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, what));
        }
        pages.insert(page, Box::new(image.0));
        self.capacity.fetch_max(page.0.saturating_add(1), Ordering::Relaxed);
        Ok(())
    }

    fn filled(&self, target: &mut ReadTarget) -> bool {
        self.find(target.page(), |bytes| target.fill(bytes)).is_some()
    }
}

impl Storage for Overlay {
    fn name(&self) -> &'static str {
        self.base.name()
    }

    fn read_page(&self, target: &mut ReadTarget) -> io::Result<()> {
        if self.filled(target) { Ok(()) } else { self.base.read_page(target) }
    }

    fn start_read(self: Arc<Self>, mut target: ReadTarget) {
        if self.filled(&mut target) {
            return target.end(Ok(()));
        }
        self.base.clone().start_read(target);
    }

    fn start_read_beside(self: Arc<Self>, mut target: ReadTarget) {
        if self.filled(&mut target) {
            return target.end(Ok(()));
        }
        self.base.clone().start_read_beside(target);
    }

    fn read_image(&self, page: PageId, image: &mut PageImage) -> io::Result<()> {
        match self.find(page, |bytes| image.0 = *bytes) {
            Some(()) => Ok(()),
            None => self.base.read_image(page, image),
        }
    }

    fn write_pages(&self, batch: &[PageWrite<'_>], results: &mut Vec<io::Result<()>>) {
        results.extend(batch.iter().map(|write| self.write(write.page, write.image)));
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn check(&self) -> io::Result<()> {
        self.base.check()
    }

    fn capacity_pages(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    fn reserve(&self, pages: u64) -> io::Result<()> {
        if pages > PageId::MAX.0 {
            let what = format!("page {pages} is above the limit of {}", PageId::MAX);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        self.capacity.fetch_max(pages, Ordering::Relaxed);
        Ok(())
    }
}

/// A log that is read and never written. Recovery writes some records again to make them durable;
/// such writes must equal the bytes that are there.
pub struct FrozenLog(pub Arc<dyn LogStorage>);

impl LogStorage for FrozenLog {
    fn segments(&self) -> io::Result<Vec<(u64, u64)>> {
        self.0.segments()
    }

    fn create(&self, segment: u64, _: u64) -> io::Result<()> {
        Err(refused("made", segment))
    }

    fn remove(&self, segment: u64) -> io::Result<()> {
        Err(refused("removed", segment))
    }

    fn read(&self, segment: u64, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read(segment, offset, into)
    }

    fn write(&self, segment: u64, writes: &[(u64, &[u8])]) -> io::Result<()> {
        for &(offset, piece) in writes {
            let mut there = LogBuffer::new(piece.len());
            self.0.read(segment, offset, &mut there[..piece.len()])?;
            if there[..piece.len()] != *piece {
                return Err(refused("written", segment));
            }
        }
        Ok(())
    }

    fn sync(&self, _: u64) -> io::Result<()> {
        Ok(())
    }
}

fn refused(what: &str, segment: u64) -> io::Error {
    let what = format!("log segment {segment} is not {what}: the store is open read-only");
    io::Error::new(io::ErrorKind::ReadOnlyFilesystem, what)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{MemoryLog, MemoryStorage},
        *,
    };

    fn image(byte: u8) -> PageImage {
        PageImage([byte; PAGE_SIZE])
    }

    fn write(storage: &dyn Storage, page: u64, image: &PageImage) -> io::Result<()> {
        let mut results = Vec::new();
        storage.write_pages(&[PageWrite { page: PageId(page), image }], &mut results);
        results.pop().expect("one result")
    }

    fn read(storage: &dyn Storage, page: u64) -> u8 {
        let mut image = PageImage::zeroed();
        storage.read_image(PageId(page), &mut image).expect("read");
        image.0[PAGE_SIZE - 1]
    }

    #[test]
    fn writes_stay_above_up_to_the_limit() {
        let base = Arc::new(MemoryStorage::with_limit(4));
        base.reserve(4).expect("room");
        write(&*base, 1, &image(1)).expect("written");
        let overlay = Overlay::new(base.clone(), 3);
        assert_eq!((overlay.capacity_pages(), read(&overlay, 1)), (4, 1));
        overlay.reserve(100).expect("room that is none below");
        for page in [1, 99, 200] {
            write(&overlay, page, &image(7)).expect("in memory");
            assert_eq!(read(&overlay, page), 7);
        }
        assert_eq!((overlay.capacity_pages(), read(&overlay, 50)), (201, 0));
        write(&overlay, 99, &image(8)).expect("once more");
        let error = write(&overlay, 2, &image(7)).expect_err("a fourth page");
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        overlay.sync().expect("nothing to do");
        assert_eq!((base.capacity_pages(), read(&*base, 1), read(&*base, 2)), (4, 1, 0));
        assert_eq!(read(&overlay, 99), 8);
    }

    #[test]
    fn a_frozen_log_takes_only_bytes_that_are_there() {
        let base = Arc::new(MemoryLog::default());
        base.create(1, 8192).expect("a segment");
        base.write(1, &[(4096, &[5; 4096])]).expect("written");
        let log = FrozenLog(base);
        log.write(1, &[(0, &[0; 4096]), (4096, &[5; 4096])]).expect("the same");
        log.sync(1).expect("nothing to do");
        let kind = |result: io::Result<()>| result.expect_err("refused").kind();
        let refused = io::ErrorKind::ReadOnlyFilesystem;
        assert_eq!(kind(log.write(1, &[(4096, &[6; 4096])])), refused);
        assert_eq!((kind(log.create(2, 8192)), kind(log.remove(1))), (refused, refused));
        let mut bytes = [0; 10];
        log.read(1, 5000, &mut bytes).expect("read");
        assert_eq!((bytes, log.segments().expect("list")), ([5; 10], vec![(1, 8192)]));
    }
}
