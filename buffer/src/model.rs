//! Support for the interleaving tests, compiled for the model checker only: a storage that checks
//! the protocol of reads and writes, background work in single steps, and an audit of a pool at
//! rest.

use crate::{
    evict::evict,
    evictor::Evictor,
    frame::FrameState,
    ids::{FrameId, PageId},
    io::{MemoryStorage, PageWrite, ReadTarget, Storage},
    page::{PAGE_SIZE, PageImage, PageRef, header},
    pool::Pool,
    sync::{interleave, yield_now},
    writeback::{Writer, queue_write},
};
use shuttle::rand::Rng;
use std::{
    collections::{HashMap, HashSet},
    io,
    sync::{Arc, Mutex, MutexGuard, atomic::Ordering},
};

/// Memory that switches threads in the middle of reads and writes. It panics if a page is written
/// twice at once, or read while it is being written or read. The pool promises that neither happens
/// unless waiters take reads over ([`ModelStorage::allow_late_reads`]).
///
/// Each [`Storage::start_read`] runs on a thread of its own, which ends the read or drops it.
///
/// Its own state is under a real lock, which is never held at a scheduling point.
pub struct ModelStorage {
    memory: MemoryStorage,
    state: Mutex<ModelState>,
}

#[derive(Default)]
struct ModelState {
    reading: HashSet<PageId>,
    writing: HashSet<PageId>,
    reads: HashMap<PageId, u64>,
    /// Number of the next reads and writes that fail.
    failing_reads: u32,
    failing_writes: u32,
    late_reads: bool,
}

impl ModelStorage {
    /// Allows several reads of a page at once, and reads that come too late. A late read gets a
    /// mixture of the contents at its start and at its end.
    pub fn allow_late_reads(&self) {
        self.state().late_reads = true;
    }

    /// An empty device.
    pub fn new() -> Arc<ModelStorage> {
        Arc::new(ModelStorage { memory: MemoryStorage::new(), state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, ModelState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Fails the next `count` reads.
    pub fn fail_reads(&self, count: u32) {
        self.state().failing_reads = count;
    }

    /// Fails the next `count` writes.
    pub fn fail_writes(&self, count: u32) {
        self.state().failing_writes = count;
    }

    /// How often a page was read into a frame, failures included.
    pub fn reads(&self, page: PageId) -> u64 {
        self.state().reads.get(&page).copied().unwrap_or(0)
    }
}

fn take(count: &mut u32) -> io::Result<()> {
    match count.checked_sub(1) {
        Some(left) => {
            *count = left;
            Err(io::Error::other("a failure of the model"))
        }
        None => Ok(()),
    }
}

impl Storage for ModelStorage {
    fn name(&self) -> &'static str {
        "model"
    }

    fn read_page(&self, target: &mut ReadTarget) -> io::Result<()> {
        let page = target.page();
        let outcome = {
            let mut state = self.state();
            *state.reads.entry(page).or_default() += 1;
            if !state.late_reads {
                assert!(!state.writing.contains(&page), "page {page} is read while it is written");
                assert!(state.reading.insert(page), "page {page} is read twice at once");
            }
            take(&mut state.failing_reads)
        };
        let (mut image, mut later) = (PageImage::zeroed(), PageImage::zeroed());
        self.memory.read_image(page, &mut image)?;
        interleave();
        self.memory.read_image(page, &mut later)?;
        image.0[PAGE_SIZE / 2..].copy_from_slice(&later.0[PAGE_SIZE / 2..]);
        target.fill(&image.0);
        let mut state = self.state();
        assert!(state.late_reads || state.reading.remove(&page));
        outcome
    }

    fn start_read(self: Arc<Self>, mut target: ReadTarget) {
        shuttle::thread::spawn(move || {
            interleave();
            let result = self.read_page(&mut target);
            interleave();
            match shuttle::rand::thread_rng().gen_range(0..8) {
                0 => drop(target),
                _ => target.end(result),
            }
        });
    }

    fn read_image(&self, page: PageId, image: &mut PageImage) -> io::Result<()> {
        self.memory.read_image(page, image)
    }

    fn write_pages(&self, batch: &[PageWrite<'_>], results: &mut Vec<io::Result<()>>) {
        for write in batch {
            let mut state = self.state();
            let page = write.page;
            assert!(!state.reading.contains(&page), "page {page} is written while it is read");
            assert!(state.writing.insert(page), "page {page} is written twice at once");
        }
        for write in batch {
            interleave();
            let outcome = take(&mut self.state().failing_writes);
            let mut written = Vec::new();
            self.memory.write_pages(std::slice::from_ref(write), &mut written);
            results.push(outcome.and(written.remove(0)));
            interleave();
            assert!(self.state().writing.remove(&write.page));
        }
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn capacity_pages(&self) -> u64 {
        self.memory.capacity_pages()
    }

    fn reserve(&self, pages: u64) -> io::Result<()> {
        self.memory.reserve(pages)
    }

    fn shrink(&self, pages: u64) -> io::Result<()> {
        self.memory.shrink(pages)
    }
}

/// An evictor and a writer without threads of their own.
pub struct Stepper {
    pool: Arc<Pool>,
    evictor: Evictor,
    writer: Writer,
}

impl Stepper {
    /// One for `pool`.
    pub fn new(pool: &Arc<Pool>, seed: u64) -> Stepper {
        let (evictor, writer) = (Evictor::new(pool.clone(), seed), Writer::new(pool.clone(), 4));
        Stepper { pool: pool.clone(), evictor, writer }
    }

    /// One round of the evictor.
    pub fn round(&mut self) {
        self.evictor.round();
    }

    /// Evicts `frame` regardless of its value; queues it for write-back if it is dirty; reclaims it
    /// if it is loaded.
    pub fn evict(&mut self, frame: FrameId) {
        let header = self.pool.header(frame);
        match header.state() {
            FrameState::Hot if header.is_dirty() => {
                // A page that is latched or being written stays for the next step.
                let _refused = queue_write(&self.pool, frame, f32::INFINITY);
            }
            FrameState::Hot => {
                if evict(&self.pool, self.evictor.counters(), frame, f32::INFINITY) {
                    self.pool.give_frames(&[frame]);
                    self.pool.count_evictions(1);
                }
            }
            FrameState::Loaded => self.evictor.reclaim(frame),
            _ => {}
        }
        let freed = self.evictor.take_freed();
        self.pool.give_frames(&freed);
    }

    /// Writes one batch of queued pages.
    pub fn write(&mut self) {
        let mut claims = Vec::new();
        if let Some(batch) = self.pool.writes.take_now(4, &mut claims) {
            self.writer.write_out(&batch);
        }
    }
}

/// From now on a waiter for a page may join its readers at any time.
pub fn make_impatient(pool: &Pool) {
    pool.in_flight.impatient.store(true, Ordering::Relaxed);
}

/// The counts of an [`audit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Audit {
    /// Frames in trees.
    pub hot: usize,
    /// Pages in use, including those of the store itself.
    pub used_pages: u64,
}

/// Checks a pool at rest: there is no worker, and no background step is under way. Reclaims loaded
/// pages and writes dirty ones. Then every frame must be free or hot, every inner node must count
/// its hot children right, no page may have two frames, and every stored image must equal its
/// frame.
pub fn audit(pool: &Arc<Pool>) -> Audit {
    let mut stepper = Stepper::new(pool, 1);
    for frame in (0..pool.frames() as u32).map(FrameId) {
        // Wait for reads that were abandoned.
        while pool.header(frame).state() == FrameState::Reading {
            yield_now();
        }
        if pool.header(frame).state() == FrameState::Loaded {
            stepper.evict(frame);
        }
    }
    while !pool.writes.is_empty() {
        stepper.write();
    }
    assert_eq!(pool.in_flight.len(), 0, "reads are in flight in a pool at rest");
    pool.flush().expect("flush");
    let (mut pages, mut hot) = (HashSet::new(), 0);
    for frame in (0..pool.frames() as u32).map(FrameId) {
        let header = pool.header(frame);
        if header.state() == FrameState::Free {
            continue;
        }
        let page = header.page_id();
        assert_eq!(header.state(), FrameState::Hot, "page {page} in a pool at rest");
        assert!(!header.is_writing() && !header.is_dirty(), "page {page} after a flush");
        assert!(pages.insert(page), "page {page} has two frames");
        hot += 1;
        if let Some(table) = &pool.table {
            assert_eq!(table.find(page), Some(frame), "page {page} in the page table");
        }
        let mut image = PageImage::zeroed();
        pool.page_ref(frame).copy_image(&mut image);
        let mut children = 0;
        pool.owner().map_swips(&mut image, &mut |raw| {
            children += u16::from(matches!(pool.locate(crate::Swip(raw)), crate::Target::Hot(_)));
            raw
        });
        assert_eq!(header.hot_children(), children, "hot children of page {page}");
        pool.unswizzle(&mut image);
        image.seal();
        let mut stored = PageImage::zeroed();
        pool.storage.read_image(page, &mut stored).expect("read");
        // A parent whose children were swizzled or evicted since differs from its image only in
        // swips.
        let gsn = |image: &PageImage| PageRef::of_image(image).u64_at(header::GSN);
        assert_eq!(gsn(&image), gsn(&stored), "change number of page {page} on storage");
        assert!(image.0 == stored.0, "page {page} differs on storage");
    }
    let entries = pool.table.as_ref().map_or(hot, |table| table.len());
    assert_eq!(entries, hot, "entries of the page table");
    // A read that was abandoned makes its frame free before it gives the frame back.
    for _ in 0..1000 {
        if pool.free.len() + hot == pool.frames() {
            break;
        }
        yield_now();
    }
    assert_eq!(pool.free.len() + hot, pool.frames(), "frames got lost");
    let (_, used_pages) = pool.allocator.counts();
    Audit { hot, used_pages }
}
