//! Back end `uring`: O_DIRECT and tokio-uring.
//!
//! - Blocking reads are one `pread`: the cheapest way for a thread that waits for one page. Several that it
//!   waits for at once go to a few threads, as those of the back end `threads`: a ring of its own would have
//!   to end with each thread that ever read.
//! - Asynchronous reads go through the ring of the calling thread's session runtime
//!   ([`super::start_runtime`]), straight into the target. Outside of one they block.
//! - A batch of writes is put into the ring of a runtime that the writing thread owns, and waited
//!   for. Inside any other runtime, which must not be blocked by a second one, the batch is written
//!   page by page with `pwrite`. Callers are dedicated writer threads, which are outside.
//!
//! Memory: a target belongs to its operation until the kernel is done ([`Slot`]); images are
//! borrowed, and a runtime that is dropped, also by a panic, first waits for its operations.

use super::{
    Directory, PageWrite, ReadFuture, ReadTarget, Storage,
    directory::lacks_descriptors,
    file::{PageFile, offset_of, refuse_all, whole_read, whole_write},
    runtime::{self, FileCache, Phase, Session},
    split,
    threads::Pool,
};
use crate::{
    ids::PageId,
    page::{PAGE_SIZE, PageImage},
};
use std::{
    cell::RefCell,
    collections::VecDeque,
    future::Future,
    io,
    path::Path,
    pin::Pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};
use tokio_uring::{
    Runtime,
    buf::{IoBuf, IoBufMut},
};

/// Writes of one thread in flight, the size of its ring.
pub const WRITES_IN_FLIGHT: u32 = 256;

/// A data file behind io_uring.
pub struct UringStorage {
    file: Arc<PageFile>,
    warned: AtomicBool,
    /// Reads of threads that have no runtime.
    readers: Pool,
}

impl UringStorage {
    /// Opens or creates the data file at `path`. Fails when io_uring is refused.
    pub fn open(path: &Path) -> io::Result<UringStorage> {
        let (directory, name) = split(path)?;
        UringStorage::open_in(&directory, name)
    }

    /// As [`UringStorage::open`], of the file `name` in an open directory.
    pub fn open_in(directory: &Arc<Directory>, name: &Path) -> io::Result<UringStorage> {
        runtime::probe()?;
        Ok(UringStorage::on(PageFile::open_in(directory, name)?))
    }

    /// Opens the data file `name` in an open directory, which must be there, for reading only. Fails when
    /// io_uring is refused.
    pub fn open_read_only(directory: &Arc<Directory>, name: &Path) -> io::Result<UringStorage> {
        runtime::probe()?;
        Ok(UringStorage::on(PageFile::open_read_only(directory, name)?))
    }

    fn on(file: PageFile) -> UringStorage {
        let file = Arc::new(file);
        let readers = Pool::new(Arc::clone(&file));
        UringStorage { file, warned: AtomicBool::new(false), readers }
    }

    /// Whether transfers go past the kernel's page cache.
    pub fn is_direct(&self) -> bool {
        self.file.is_direct()
    }

    /// The runtime of this thread for writes, unless one cannot be had or must not be used.
    fn take_writer(&self, batch: &[PageWrite<'_>]) -> Option<Writer> {
        // One write gains nothing from a ring.
        if batch.len() < 2 || runtime::inside_runtime() {
            return None;
        }
        if let Some(writer) = WRITER.try_with(|writer| writer.take()).ok().flatten() {
            return Some(writer);
        }
        match runtime::new_runtime(WRITES_IN_FLIGHT) {
            Ok(runtime) => Some(Writer { runtime, files: FileCache::default() }),
            Err(error) => {
                if !self.warned.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "no ring for writes: they go one after the other");
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

    fn read_page_async(self: Arc<Self>, target: ReadTarget) -> ReadFuture {
        Box::pin(UringRead { file: Arc::clone(&self.file), state: State::Start(target) })
    }

    fn read_page_beside(self: Arc<Self>, target: ReadTarget) -> ReadFuture {
        Box::pin(self.readers.read(target))
    }

    fn read_image(&self, page: PageId, image: &mut PageImage) -> io::Result<()> {
        self.file.read_image(page, image)
    }

    fn write_pages(&self, batch: &[PageWrite<'_>], results: &mut Vec<io::Result<()>>) {
        if let Err(error) = self.file.check_length() {
            return refuse_all(&error, batch.len(), results);
        }
        let Some(writer) = self.take_writer(batch) else {
            results.extend(batch.iter().map(|write| self.file.write(write.page, write.image)));
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
        // While the thread ends, its runtime ends here instead.
        let _ = WRITER.try_with(|slot| slot.replace(Some(writer)));
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
    /// The runtime of a thread that writes, made by its first batch. Taken out while in use.
    static WRITER: RefCell<Option<Writer>> = const { RefCell::new(None) };
}

struct Writer {
    runtime: Runtime,
    files: FileCache,
}

/// Keeps as many writes of `batch` in flight as the ring holds, so that it is never full.
async fn write_all(
    file: &PageFile,
    handle: &tokio_uring::fs::File,
    batch: &[PageWrite<'_>],
    results: &mut Vec<io::Result<()>>,
) {
    let mut in_flight = VecDeque::with_capacity(batch.len().min(WRITES_IN_FLIGHT as usize));
    let mut to_submit = batch.iter();
    loop {
        if in_flight.len() < WRITES_IN_FLIGHT as usize
            && let Some(write) = to_submit.next()
        {
            let submitted = offset_of(write.page)
                .map(|offset| handle.write_at(Image(&raw const *write.image), offset).submit());
            in_flight.push_back((write, submitted));
            continue;
        }
        // The oldest first: results have an order, and the others complete meanwhile.
        let Some((write, submitted)) = in_flight.pop_front() else { return };
        results.push(match submitted {
            Ok(operation) => match operation.await {
                (Ok(done), _) => {
                    whole_write(write.page, done).inspect(|()| file.note_written(write.page))
                }
                (Err(error), _) if is_transient(&error) => file.write(write.page, write.image),
                (Err(error), _) => Err(error),
            },
            Err(error) => Err(error),
        });
    }
}

/// An image that the caller of `write_pages` borrows until all writes have completed.
struct Image(*const PageImage);

// SAFETY: the image neither moves nor changes during `write_pages`, which outlives the operation.
unsafe impl IoBuf for Image {
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

/// An asynchronous read.
struct UringRead {
    file: Arc<PageFile>,
    state: State,
}

enum State {
    /// Not polled yet.
    Start(ReadTarget),
    /// All places of the session are taken.
    Queued(ReadTarget, Rc<Session>, u64),
    /// The kernel has the target.
    Reading(Reading),
    Done,
}

struct Reading {
    operation: Pin<Box<dyn Future<Output = io::Result<usize>>>>,
    slot: Rc<Slot>,
}

impl UringRead {
    /// Starts the read when it is its turn; without a session runtime it is read at once.
    fn start(
        &mut self,
        target: ReadTarget,
        queued: Option<(Rc<Session>, u64)>,
        cx: &mut Context<'_>,
    ) -> Poll<(ReadTarget, io::Result<()>)> {
        let (session, mut ticket) = match queued {
            Some((session, ticket)) if session.phase() == Phase::Running => {
                (Some(session), Some(ticket))
            }
            _ => (Session::current(), None),
        };
        let Some(session) = session else {
            let mut target = target;
            let result = self.file.read_target(&mut target);
            return Poll::Ready((target, result));
        };
        let offset_and_handle =
            offset_of(target.page()).and_then(|at| Ok((at, session.files.get(&self.file)?)));
        let (offset, handle) = match offset_and_handle {
            Ok(found) => found,
            Err(error) => {
                if let Some(ticket) = ticket {
                    session.leave_queue(ticket);
                }
                // Without another descriptor the thread waits for the read.
                let mut target = target;
                let result = match lacks_descriptors(&error) {
                    true => self.file.read_target(&mut target),
                    false => Err(error),
                };
                return Poll::Ready((target, result));
            }
        };
        if !session.admit(&mut ticket, cx.waker()) {
            let ticket = ticket.expect("whoever is not admitted has a ticket");
            self.state = State::Queued(target, session, ticket);
            return Poll::Pending;
        }
        let slot = Rc::new(Slot {
            ptr: target.as_ptr(),
            target: RefCell::new(Some(target)),
            session: Rc::clone(&session),
        });
        let buffer = TargetBuffer(Rc::clone(&slot));
        let operation = Box::pin(async move { handle.read_at(buffer, offset).await.0 });
        self.advance(Reading { operation, slot }, cx)
    }

    fn advance(
        &mut self,
        mut reading: Reading,
        cx: &mut Context<'_>,
    ) -> Poll<(ReadTarget, io::Result<()>)> {
        if reading.slot.session.phase() != Phase::Running {
            // The future was carried out of its runtime, which waited for the kernel and dropped
            // the result.
            let target = reading.into_target();
            let error = io::Error::other("the runtime of this read has ended");
            return Poll::Ready((target, Err(error)));
        }
        let Poll::Ready(result) = reading.operation.as_mut().poll(cx) else {
            self.state = State::Reading(reading);
            return Poll::Pending;
        };
        let mut target = reading.slot.take();
        let result = match result {
            Ok(done) => whole_read(target.page(), done),
            Err(error) if is_transient(&error) => self.file.read_target(&mut target),
            Err(error) => Err(error),
        };
        Poll::Ready((target, result))
    }
}

impl Future for UringRead {
    type Output = (ReadTarget, io::Result<()>);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        match std::mem::replace(&mut this.state, State::Done) {
            State::Start(target) => this.start(target, None, cx),
            State::Queued(target, session, ticket) => {
                this.start(target, Some((session, ticket)), cx)
            }
            State::Reading(reading) => this.advance(reading, cx),
            State::Done => panic!("a read was polled after it had completed"),
        }
    }
}

impl Drop for UringRead {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.state, State::Done) {
            State::Queued(target, session, ticket) => {
                session.leave_queue(ticket);
                drop(target);
            }
            State::Reading(reading) if reading.slot.session.phase() == Phase::Ended => {
                drop(reading.into_target());
            }
            // tokio-uring keeps the buffer, and with it the slot, until the kernel is done.
            State::Reading(reading) => drop(reading),
            State::Start(_) | State::Done => {}
        }
    }
}

impl Reading {
    /// The target of a read that outlived its runtime.
    fn into_target(self) -> ReadTarget {
        // An operation of tokio-uring panics when it is dropped after its runtime, so its few
        // bytes are leaked. Nothing refers to them: the runtime is gone.
        std::mem::forget(self.operation);
        self.slot.take()
    }
}

/// Shares the target between the future and the operation; the last of them gives it up.
struct Slot {
    ptr: *mut u8,
    target: RefCell<Option<ReadTarget>>,
    session: Rc<Session>,
}

impl Slot {
    fn take(&self) -> ReadTarget {
        self.target.borrow_mut().take().expect("taken once, by the future")
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(target) = self.target.take() {
            self.session.abandon(target);
        }
    }
}

/// The operation's share of a slot, held by tokio-uring until the kernel has completed the read.
struct TargetBuffer(Rc<Slot>);

impl Drop for TargetBuffer {
    fn drop(&mut self) {
        self.0.session.release();
    }
}

// SAFETY: the frame does not move, and the target keeps it reserved while the slot lives, which
// `self` shares.
unsafe impl IoBuf for TargetBuffer {
    fn stable_ptr(&self) -> *const u8 {
        self.0.ptr
    }
    fn bytes_init(&self) -> usize {
        PAGE_SIZE
    }
    fn bytes_total(&self) -> usize {
        PAGE_SIZE
    }
}

// SAFETY: as above; nobody else writes to the frame during the read.
unsafe impl IoBufMut for TargetBuffer {
    fn stable_mut_ptr(&mut self) -> *mut u8 {
        self.0.ptr
    }
    unsafe fn set_init(&mut self, _pos: usize) {}
}

/// The kernel gave the operation up without trying: it is done by a plain system call instead.
pub(super) fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}
