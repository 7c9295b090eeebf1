//! Back end `uring`: O_DIRECT and tokio-uring.
//!
//! - A blocking read is one `pread`, the cheapest way for a thread that waits for one page. If it
//!   waits for several at once, they go to a few threads, as in the back end `threads`: a ring of
//!   its own would have to end with each thread that ever read.
//! - Asynchronous reads go through the ring of the calling thread's session runtime
//!   ([`super::start_runtime`]), straight into the target, each in a task of that runtime. Outside
//!   of such a runtime they block.
//! - A batch of writes goes into the ring of a runtime that the writing thread owns, which waits
//!   for it. Inside any other runtime, which a second one must not block, the batch is written page
//!   by page with `pwrite`. The callers are dedicated writer threads outside of runtimes.
//!
//! Memory: a target belongs to its operation until the kernel has finished with it
//! ([`TargetBuffer`]). Images are borrowed; a runtime that is dropped, even by a panic, first waits
//! for its operations.

use super::{
    directory::{Directory, lacks_descriptors, split},
    file::{PageCache, PageFile, offset_of, refuse_all, whole_read, whole_write},
    runtime::{self, FileCache, RingSession},
    storage::{PageWrite, ReadTarget, Storage, runs},
    threads::IoThreads,
};
use crate::{
    ids::PageId,
    page::{PAGE_SIZE, PageImage},
};
use std::{
    cell::RefCell,
    collections::VecDeque,
    future::poll_fn,
    io,
    path::Path,
    pin::Pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
};
use tokio_uring::{
    Runtime,
    buf::{IoBuf, IoBufMut},
};

/// Writes of one thread in flight: the size of its ring.
pub const WRITES_IN_FLIGHT: u32 = 256;

/// A data file accessed through io_uring.
pub struct UringStorage {
    file: Arc<PageFile>,
    warned: AtomicBool,
    /// For reads of threads without a runtime.
    readers: IoThreads,
}

impl UringStorage {
    /// Opens or creates the data file at `path`. Fails if io_uring is refused.
    pub fn open(path: &Path) -> io::Result<UringStorage> {
        let (directory, name) = split(path)?;
        UringStorage::open_in(&directory, name, PageCache::Bypassed)
    }

    /// As [`UringStorage::open`], of the file `name` in an open directory.
    pub(super) fn open_in(
        directory: &Arc<Directory>,
        name: &Path,
        cache: PageCache,
    ) -> io::Result<UringStorage> {
        runtime::probe()?;
        Ok(UringStorage::on(PageFile::open_in(directory, name, cache)?))
    }

    /// As [`UringStorage::open_in`], for an existing data file and for reading only. Fails if
    /// io_uring is refused.
    pub(super) fn open_read_only(
        directory: &Arc<Directory>,
        name: &Path,
        cache: PageCache,
    ) -> io::Result<UringStorage> {
        runtime::probe()?;
        Ok(UringStorage::on(PageFile::open_read_only(directory, name, cache)?))
    }

    fn on(file: PageFile) -> UringStorage {
        let file = Arc::new(file);
        let readers = IoThreads::new(Arc::clone(&file));
        UringStorage { file, warned: AtomicBool::new(false), readers }
    }

    /// Whether transfers bypass the kernel's page cache.
    pub fn is_direct(&self) -> bool {
        self.file.is_direct()
    }

    /// Takes this thread's runtime for writes; `None` if there is none or it must not be used.
    fn take_writer(&self, batch: &[PageWrite<'_>]) -> Option<RingWriter> {
        // A single write gains nothing from a ring.
        if batch.len() < 2 || runtime::inside_runtime() {
            return None;
        }
        if let Some(writer) = WRITER.try_with(|writer| writer.take()).ok().flatten() {
            return Some(writer);
        }
        match runtime::new_runtime(WRITES_IN_FLIGHT) {
            Ok(runtime) => Some(RingWriter { runtime, files: FileCache::default() }),
            Err(error) => {
                if !self.warned.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "no ring for writes: they are written one at a time");
                }
                None
            }
        }
    }
}

impl Storage for UringStorage {
    fn name(&self) -> &'static str {
        "uring"
    }

    fn read_page(&self, target: &mut ReadTarget) -> io::Result<()> {
        self.file.read_target(target)
    }

    fn start_read(self: Arc<Self>, mut target: ReadTarget) {
        let Some(session) = RingSession::current() else {
            let result = self.file.read_target(&mut target);
            return target.end(result);
        };
        let (file, began) = (Arc::clone(&self.file), session.begin_read());
        // In a task of its own, because the task that wants the page may not be polled for a long
        // time.
        tokio_uring::spawn(async move {
            let (target, result) = read_on_ring(file, session, target).await;
            drop(began);
            target.end(result);
        });
    }

    fn start_read_beside(self: Arc<Self>, target: ReadTarget) {
        self.readers.read(target);
    }

    fn start_reads_beside(self: Arc<Self>, targets: Vec<ReadTarget>) {
        self.readers.read_all(targets);
    }

    fn read_image(&self, page: PageId, image: &mut PageImage) -> io::Result<()> {
        self.file.read_image(page, image)
    }

    fn write_pages(&self, batch: &[PageWrite<'_>], results: &mut Vec<io::Result<()>>) {
        if let Err(error) = self.file.check_length() {
            return refuse_all(&error, batch.len(), results);
        }
        let Some(writer) = self.take_writer(batch) else {
            runs(batch).for_each(|run| self.file.write_batch_run(run, |done| results.push(done)));
            return;
        };
        // A panic in here drops the runtime, which waits for the kernel before `batch` can end.
        match writer.files.get(&self.file) {
            Ok(handle) => {
                writer.runtime.block_on(write_all(&self.file, &handle, batch, results));
            }
            // Without another descriptor it takes longer.
            Err(error) => {
                tracing::debug!(%error, "no handle for the ring: pages are written one by one");
                results.extend(batch.iter().map(|write| self.file.write(write.page, write.image)));
            }
        }
        // If the thread is ending, its runtime ends here.
        let _ = WRITER.try_with(|slot| slot.replace(Some(writer)));
    }

    fn write_neighbours(&self, first: PageId, images: &[&PageImage]) -> io::Result<()> {
        self.file.write_neighbours(first, images)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn check(&self) -> io::Result<()> {
        self.file.check()
    }

    fn capacity_pages(&self) -> u64 {
        self.file.capacity_pages()
    }

    fn reserve(&self, pages: u64) -> io::Result<()> {
        self.file.reserve(pages)
    }

    fn shrink(&self, pages: u64) -> io::Result<()> {
        self.file.shrink(pages)
    }
}

thread_local! {
    /// The runtime of a writing thread, created by its first batch. Taken out while in use.
    static WRITER: RefCell<Option<RingWriter>> = const { RefCell::new(None) };
}

struct RingWriter {
    runtime: Runtime,
    files: FileCache,
}

/// Keeps as many writes of `batch` in flight as the ring holds, so that it is never overfull.
async fn write_all(
    file: &PageFile,
    handle: &tokio_uring::fs::File,
    batch: &[PageWrite<'_>],
    results: &mut Vec<io::Result<()>>,
) {
    let mut in_flight = VecDeque::with_capacity(batch.len().min(WRITES_IN_FLIGHT as usize));
    let mut to_submit = runs(batch);
    loop {
        if in_flight.len() < WRITES_IN_FLIGHT as usize
            && let Some(run) = to_submit.next()
        {
            let image = |write: &PageWrite<'_>| ImageBuffer(&raw const *write.image);
            let operation = match (offset_of(run[0].page), run) {
                (Err(error), _) => RunWrite::Ended(Err(error)),
                (Ok(offset), [write]) => {
                    RunWrite::Page(handle.write_at(image(write), offset).submit())
                }
                (Ok(offset), _) => {
                    let images = run.iter().map(image).collect();
                    let whole = async move { handle.writev_at(images, offset).await.0 };
                    RunWrite::begin(Box::pin(whole)).await
                }
            };
            in_flight.push_back((run, operation));
            continue;
        }
        // Wait for the oldest first: results have an order, and the others complete meanwhile.
        let Some((run, operation)) = in_flight.pop_front() else { return };
        let outcome = match operation {
            RunWrite::Page(operation) => operation.await.0,
            RunWrite::Pages(operation) => operation.await,
            RunWrite::Ended(outcome) => outcome,
        };
        match (outcome, run) {
            (Ok(done), [write]) => results
                .push(whole_write(write.page, done).inspect(|()| file.note_written(write.page))),
            (Err(error), [_]) if !is_transient(&error) => results.push(Err(error)),
            (outcome, _) => {
                // Pages are at most as many as were submitted, whatever the kernel says.
                let whole = outcome.map_or(0, |done| done / PAGE_SIZE).min(run.len());
                file.write_rest(run, whole, &mut |done| results.push(done));
            }
        }
    }
}

/// A write of neighbours, which is on its way or has ended.
enum RunWrite<'f, P> {
    /// One page.
    Page(P),
    /// Several.
    Pages(Pin<Box<dyn Future<Output = io::Result<usize>> + 'f>>),
    Ended(io::Result<usize>),
}

impl<'f, P> RunWrite<'f, P> {
    /// Polls a write once, which submits it.
    async fn begin(mut write: Pin<Box<dyn Future<Output = io::Result<usize>> + 'f>>) -> Self {
        match poll_fn(|context| Poll::Ready(write.as_mut().poll(context))).await {
            Poll::Ready(outcome) => RunWrite::Ended(outcome),
            Poll::Pending => RunWrite::Pages(write),
        }
    }
}

/// An image that the caller of `write_pages` borrows until all writes have completed.
struct ImageBuffer(*const PageImage);

// SAFETY: the image neither moves nor changes during `write_pages`, which outlives the operation.
unsafe impl IoBuf for ImageBuffer {
    fn stable_ptr(&self) -> *const u8 {
        self.0.cast()
    }
    fn bytes_init(&self) -> usize {
        PAGE_SIZE
    }
    fn bytes_total(&self) -> usize {
        PAGE_SIZE
    }
}

/// Reads on the ring of a session's runtime, in a task of that runtime.
async fn read_on_ring(
    file: Arc<PageFile>,
    session: Rc<RingSession>,
    mut target: ReadTarget,
) -> (ReadTarget, io::Result<()>) {
    let page = target.page();
    let found = offset_of(page).and_then(|offset| Ok((offset, session.files.get(&file)?)));
    let (offset, handle) = match found {
        Ok(found) => found,
        // Without another descriptor the thread blocks for the read.
        Err(error) if lacks_descriptors(&error) => {
            let result = file.read_target(&mut target);
            return (target, result);
        }
        Err(error) => return (target, Err(error)),
    };
    session.admit().await;
    let buffer = TargetBuffer { target: Some(target), session };
    let (result, mut buffer) = handle.read_at(buffer, offset).await;
    target = buffer.target.take().expect("taken once");
    drop(buffer);
    let result = match result {
        Ok(done) => whole_read(page, done),
        Err(error) if is_transient(&error) => file.read_target(&mut target),
        Err(error) => Err(error),
    };
    (target, result)
}

/// A target that the kernel uses, and its place in the ring. tokio-uring keeps it until the kernel
/// has completed the read, even if the reading task was dropped.
struct TargetBuffer {
    target: Option<ReadTarget>,
    session: Rc<RingSession>,
}

impl TargetBuffer {
    fn ptr(&self) -> *mut u8 {
        self.target.as_ref().expect("taken when the read has ended").as_ptr()
    }
}

impl Drop for TargetBuffer {
    fn drop(&mut self) {
        self.session.release();
        if let Some(target) = self.target.take() {
            self.session.abandon(target);
        }
    }
}

// SAFETY: the frame does not move, and the target keeps it reserved while `self` has it.
unsafe impl IoBuf for TargetBuffer {
    fn stable_ptr(&self) -> *const u8 {
        self.ptr()
    }
    fn bytes_init(&self) -> usize {
        PAGE_SIZE
    }
    fn bytes_total(&self) -> usize {
        PAGE_SIZE
    }
}

// SAFETY: as above; nothing else writes to the frame during the read.
unsafe impl IoBufMut for TargetBuffer {
    fn stable_mut_ptr(&mut self) -> *mut u8 {
        self.ptr()
    }
    unsafe fn set_init(&mut self, _pos: usize) {}
}

/// The kernel gave up the operation without trying it; the caller repeats it with a plain system
/// call.
pub(super) fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}
