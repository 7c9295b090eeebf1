//! A device that has no room for a while: neither for more pages nor for another segment of the
//! log.

use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use wattle::{
    Engine, IoKind, LogStorage, Options, Result, Storage,
    io::{PageWrite, ReadTarget, Zeroes},
};
use wattle_buffer::{PageId, PageImage};
use wattle_tests::harness;

/// Files of a directory, on a device that may be full.
pub struct Device {
    files: harness::Device,
    full: Arc<AtomicBool>,
}

impl Device {
    pub fn open(io: IoKind, directory: &Path) -> Device {
        Device { files: harness::Device::files(io, directory), full: Arc::default() }
    }

    pub fn set_full(&self, full: bool) {
        self.full.store(full, Ordering::Relaxed);
    }

    pub fn start(&self, options: Options) -> Result<Engine> {
        let pages = FullPages { pages: self.files.pages.clone(), full: self.full.clone() };
        let log = FullLog { log: self.files.log.clone(), full: self.full.clone() };
        Engine::open_on(Arc::new(pages), Arc::new(log), options)
    }
}

fn check(full: &AtomicBool) -> io::Result<()> {
    match full.load(Ordering::Relaxed) {
        true => Err(io::ErrorKind::StorageFull.into()),
        false => Ok(()),
    }
}

struct FullPages {
    pages: Arc<dyn Storage>,
    full: Arc<AtomicBool>,
}

impl Storage for FullPages {
    fn name(&self) -> &'static str {
        self.pages.name()
    }

    fn read_page(&self, target: &mut ReadTarget) -> io::Result<()> {
        self.pages.read_page(target)
    }

    fn start_read(self: Arc<Self>, target: ReadTarget) {
        self.pages.clone().start_read(target);
    }

    fn start_read_beside(self: Arc<Self>, target: ReadTarget) {
        self.pages.clone().start_read_beside(target);
    }

    fn read_image(&self, page: PageId, image: &mut PageImage) -> io::Result<()> {
        self.pages.read_image(page, image)
    }

    fn write_pages(&self, batch: &[PageWrite<'_>], results: &mut Vec<io::Result<()>>) {
        self.pages.write_pages(batch, results);
    }

    fn sync(&self) -> io::Result<()> {
        self.pages.sync()
    }

    fn capacity_pages(&self) -> u64 {
        self.pages.capacity_pages()
    }

    fn reserve(&self, pages: u64) -> io::Result<()> {
        if pages > self.capacity_pages() {
            check(&self.full)?;
        }
        self.pages.reserve(pages)
    }

    fn check(&self) -> io::Result<()> {
        self.pages.check()
    }

    fn shrink(&self, pages: u64) -> io::Result<()> {
        self.pages.shrink(pages)
    }
}

struct FullLog {
    log: Arc<dyn LogStorage>,
    full: Arc<AtomicBool>,
}

impl LogStorage for FullLog {
    fn segments(&self) -> io::Result<Vec<(u64, u64)>> {
        self.log.segments()
    }

    fn create(&self, segment: u64, bytes: u64) -> io::Result<()> {
        check(&self.full)?;
        self.log.create(segment, bytes)
    }

    fn create_beside(
        &self,
        segment: u64,
        bytes: u64,
        zeroes: Zeroes,
        pace: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> io::Result<()> {
        check(&self.full)?;
        self.log.create_beside(segment, bytes, zeroes, pace)
    }

    fn remove(&self, segment: u64) -> io::Result<()> {
        self.log.remove(segment)
    }

    fn retire(&self, segment: u64) -> io::Result<()> {
        self.log.retire(segment)
    }

    fn pass_on(&self, segment: u64) -> io::Result<()> {
        self.log.pass_on(segment)
    }

    fn give_back(&self, all: bool) -> io::Result<bool> {
        self.log.give_back(all)
    }

    fn read(&self, segment: u64, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.log.read(segment, offset, into)
    }

    fn write(&self, segment: u64, writes: &[(u64, &[u8])]) -> io::Result<()> {
        self.log.write(segment, writes)
    }

    fn sync(&self, segment: u64) -> io::Result<()> {
        self.log.sync(segment)
    }

    fn room(&self) -> Option<u64> {
        match check(&self.full) {
            Ok(()) => self.log.room(),
            Err(_full) => Some(0),
        }
    }

    fn check(&self, segments: &[u64]) -> io::Result<()> {
        self.log.check(segments)
    }
}
