//! Page faults: at most one read for each page, however many operations want it, and at most one
//! frame for each page, ever.
//!
//! A tree operation that meets an evicted swip asks [`Pool::fault`]. The answer is one of
//! - the page is loaded already: it is swizzled and the descent goes on;
//! - `Fault::Read`: the operation owns the read. It returns to its session without any latch, the
//!   session finds a frame, reads, verifies, and runs the operation again;
//! - `Fault::Wait`: another operation owns the read; wait for it and run again.
//!
//! **Why no page gets two frames.** The in-flight table is the only way from evicted to hot:
//! 1. An entry for page P is made under the lock of its shard, and *under that lock* the parent
//!    guard that showed the evicted swip is validated. So at that moment P is evicted and had no
//!    entry.
//! 2. A swip becomes hot only while its parent is latched exclusively and P's entry, in state
//!    `Loaded`, is removed from the table in the same step.
//!
//! Hence between making and removing the entry P stays evicted. Without the validation inside the
//! lock, an operation that read the swip long ago could start a second read of a page that was
//! swizzled, changed, written and evicted since, and find its own stale frame later: the classic
//! way to lose a record in this design.
//!
//! A `Loaded` frame that nobody came for (its operation was cancelled or took another way) is
//! reclaimed by the evictor under the shard's lock.

use crate::{
    error::{Error, Result},
    frame::FrameState,
    guard::{Exclusive, Optimistic},
    ids::{FrameId, Gsn, PageId, TreeId},
    io::{ReadTarget, TargetOwner},
    page::{self, PageRef, Restart, header},
    pool::Pool,
    swip::{Swip, Target},
    sync::{AtomicUsize, Mutex, Ordering},
    worker::Worker,
};
use std::{
    collections::{HashMap, hash_map},
    future::poll_fn,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Instant,
};

const SHARDS: usize = 64;

/// Why a tree operation cannot go on. It holds no latch.
#[derive(Debug)]
pub enum Fault {
    /// A page must be read, and this operation is the one to read it.
    Read(ReadTicket),
    /// A page is being read by another operation.
    Wait(PageId),
    /// This many new pages are needed ([`Worker::has_reserve`]).
    Pages(usize),
}

enum Entry {
    /// Being read, or about to be. Who waits is woken at the end, whatever it is.
    Reading(Vec<Waker>),
    /// In this frame, verified, not yet swizzled.
    Loaded(FrameId),
}

/// The in-flight table.
pub(crate) struct InFlight {
    shards: Vec<Mutex<HashMap<PageId, Entry>>>,
}

impl InFlight {
    pub(crate) fn new() -> Self {
        InFlight { shards: (0..SHARDS).map(|_| Mutex::new(HashMap::new())).collect() }
    }

    fn shard(&self, page: PageId) -> &Mutex<HashMap<PageId, Entry>> {
        &self.shards[page.0 as usize % SHARDS]
    }

    /// Removes the entry of a page whose read ended without success, and wakes those who wait.
    fn cancel(&self, page: PageId) {
        let entry = self.shard(page).lock().remove(&page);
        match entry {
            Some(Entry::Reading(waiters)) => waiters.into_iter().for_each(Waker::wake),
            _ => panic!("the read of page {page} ended without being in flight"),
        }
    }

    /// Entries of all shards.
    #[cfg(shuttle)]
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    fn loaded(&self, page: PageId, frame: FrameId) {
        let entry = self.shard(page).lock().insert(page, Entry::Loaded(frame));
        match entry {
            Some(Entry::Reading(waiters)) => waiters.into_iter().for_each(Waker::wake),
            _ => panic!("page {page} was loaded without being in flight"),
        }
    }

    fn is_loaded(&self, page: PageId) -> bool {
        matches!(self.shard(page).lock().get(&page), Some(Entry::Loaded(_)))
    }

    /// Registers a waiter; false when the page is no longer being read.
    fn wait(&self, page: PageId, waker: &Waker) -> bool {
        match self.shard(page).lock().get_mut(&page) {
            Some(Entry::Reading(waiters)) => {
                waiters.push(waker.clone());
                true
            }
            _ => false,
        }
    }

    /// Removes what is left of reads of a page that is being freed: `Some(Some(frame))` gives a
    /// loaded frame back, `Some(None)` says that a read is still in progress.
    pub(crate) fn discard(&self, page: PageId) -> Option<Option<FrameId>> {
        match self.shard(page).lock().entry(page) {
            hash_map::Entry::Vacant(_) => None,
            hash_map::Entry::Occupied(entry) => match *entry.get() {
                Entry::Loaded(frame) => {
                    entry.remove();
                    Some(Some(frame))
                }
                Entry::Reading(_) => Some(None),
            },
        }
    }

    /// Takes a loaded page that nobody swizzled. False when it is not in `frame` any more.
    pub(crate) fn reclaim(&self, page: PageId, frame: FrameId) -> bool {
        let mut shard = self.shard(page).lock();
        match shard.entry(page) {
            hash_map::Entry::Occupied(entry) if matches!(entry.get(), Entry::Loaded(f) if *f == frame) =>
            {
                entry.remove();
                true
            }
            _ => false,
        }
    }
}

/// The right and duty to read one page. Dropping it unused wakes those who wait for the page, and
/// one of them reads.
pub struct ReadTicket {
    pool: Arc<Pool>,
    page: PageId,
    tree: TreeId,
    /// The entry in the table is ours to remove.
    armed: bool,
}

impl std::fmt::Debug for ReadTicket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReadTicket(page {} of tree {})", self.page, self.tree)
    }
}

impl ReadTicket {
    /// The page to read.
    pub fn page(&self) -> PageId {
        self.page
    }

    /// Binds a free frame to the read. From here the [`ReadTarget`] owns frame and entry: if it is
    /// dropped, both are given up.
    fn start(mut self, frame: FrameId) -> (ReadTarget, TreeId) {
        self.armed = false;
        let header = self.pool.header(frame);
        header.assign(self.page, self.tree);
        header.change_state(FrameState::Free, FrameState::Reading);
        let owner: Arc<dyn TargetOwner> = self.pool.clone();
        (self.pool.read_target(frame, self.page, owner), self.tree)
    }
}

impl Drop for ReadTicket {
    fn drop(&mut self) {
        if self.armed {
            self.pool.in_flight.cancel(self.page);
        }
    }
}

impl TargetOwner for Pool {
    fn abandoned(&self, frame: FrameId, page: PageId) {
        self.header(frame).change_state(FrameState::Reading, FrameState::Free);
        self.give_frames(&[frame]);
        self.in_flight.cancel(page);
    }
}

impl Pool {
    /// Goes on from the evicted swip at byte `offset` (child `position`) of the node under
    /// `parent`: swizzles the child and gives new guards of parent and child, or says what to wait
    /// for.
    ///
    /// # Errors
    /// [`Restart`] when the parent changed.
    #[cold]
    pub fn fault<'p>(
        self: &'p Arc<Self>,
        parent: Optimistic<'p>,
        offset: usize,
        position: usize,
        page: PageId,
    ) -> Result<Result<(Optimistic<'p>, Optimistic<'p>), Fault>, Restart> {
        let tree = parent.header().tree_id();
        let frame = {
            let mut shard = self.in_flight.shard(page).lock();
            // Inside the lock: see the module documentation.
            parent.validate()?;
            match shard.entry(page) {
                hash_map::Entry::Vacant(entry) => {
                    entry.insert(Entry::Reading(Vec::new()));
                    let ticket = ReadTicket { pool: self.clone(), page, tree, armed: true };
                    return Ok(Err(Fault::Read(ticket)));
                }
                hash_map::Entry::Occupied(entry) => match entry.get() {
                    Entry::Reading(_) => return Ok(Err(Fault::Wait(page))),
                    Entry::Loaded(frame) => *frame,
                },
            }
        };
        let mut parent = parent.upgrade()?;
        // The latch excludes another swizzle of this swip, but not a reclaim by the evictor.
        if !self.in_flight.reclaim(page, frame) {
            return Err(Restart);
        }
        self.swizzle(&mut parent, offset, position, page, frame);
        // Under the latch of the parent nobody can take the child away, but an evictor may look at
        // it and want the parent: never wait here.
        let child = self.try_optimistic(frame)?;
        Ok(Ok((parent.downgrade(), child)))
    }

    /// Makes the swip at `offset` hot. The caller took `frame` out of the in-flight table.
    fn swizzle(
        &self,
        parent: &mut Exclusive<'_>,
        offset: usize,
        position: usize,
        page: PageId,
        frame: FrameId,
    ) {
        let swip = Swip(parent.page().u64_at(offset));
        assert_eq!(swip.target(), Target::Evicted(page), "swip of page {page} changed");
        let child = self.header(frame);
        child.set_parent_hint(parent.frame(), position);
        child.change_state(FrameState::Loaded, FrameState::Hot);
        parent.set_swip(offset, Swip::hot(frame));
        parent.header().child_heated();
        // The fault is the one access of an inner node that replacement must know of: while it has
        // hot children it cannot be evicted.
        self.policy.on_access(&parent.header().tracker, self.epoch());
    }

    /// Verifies what was read and hands the page to whoever wants it.
    fn finish_read(&self, target: ReadTarget, tree: TreeId) -> Result<()> {
        let (page, frame) = (target.page(), target.frame());
        if let Some(why) = self.distrusted.get() {
            return Err(Error::Poisoned(format!("page {page} is not read: {why}")));
        }
        // On failure the target is dropped, which gives the frame and the entry back.
        let gsn = Gsn(PageRef::u64_at(self.page_ref(frame), header::GSN));
        page::verify(target.bytes(), page, tree)
            .and_then(|()| {
                let (pages, _) = self.allocator.counts();
                self.owner()
                    .check(target.bytes(), pages)
                    .and_then(|()| self.barrier.check_read(gsn))
                    .map_err(|what| Error::corruption(page, what))
            })
            .inspect_err(
                |error| tracing::error!(page = page.0, tree = tree.0, %error, "corruption"),
            )?;
        let frame = target.finish();
        let state = self.header(frame);
        state.set_clean_at(gsn);
        state.set_version_hint(self.owner().load_hint());
        state.set_link(self.elapsed_ms());
        self.policy.on_load(&state.tracker, self.epoch());
        state.change_state(FrameState::Reading, FrameState::Loaded);
        self.in_flight.loaded(page, frame);
        Ok(())
    }

    fn read_failed(&self, page: PageId, error: std::io::Error) -> Error {
        tracing::error!(page = page.0, %error, "read failed");
        Error::io(format_args!("read page {page}"), error)
    }
}

/// Threads that have several reads under way at once, each: with more of them the device is busy, and
/// the threads that read for them only take processor time.
const MAX_TOGETHER: usize = 4;

/// Counts one less when it is dropped.
struct Leave<'a>(&'a AtomicUsize);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Who reads.
#[derive(Clone, Copy)]
enum Reader {
    /// The runtime that the calling task is in.
    Runtime,
    /// Others, while the calling thread waits.
    Beside,
}

/// One wait for a frame, or for a page that another finds a frame for.
struct Wait {
    since: Instant,
    failures: u64,
}

impl Wait {
    /// Waiting was declared hopeless meanwhile, for those who had waited for long. Who came late waits
    /// again: no frame came free for a time of which it has seen the end only.
    fn is_hopeless(&self, pool: &Pool) -> bool {
        pool.frame_failures() != self.failures
            && (self.since.elapsed() >= pool.options.stall_timeout / 2
                || pool.free.failed_for_ever().is_some())
    }
}

impl Worker {
    /// Reads a page that no swip names, the root of a tree, into a frame of its own and pins it
    /// there. The caller makes sure that this happens once for each root.
    ///
    /// # Errors
    /// As [`Worker::resolve`].
    pub fn load_root(&self, page: PageId, tree: TreeId) -> Result<FrameId> {
        self.begin_waiting();
        let frame = loop {
            let previous =
                self.pool().in_flight.shard(page).lock().insert(page, Entry::Reading(Vec::new()));
            assert!(previous.is_none(), "root page {page} is in flight");
            let ticket = ReadTicket { pool: self.pool().clone(), page, tree, armed: true };
            let frame = self.wait_frame()?;
            let (mut target, tree) = ticket.start(frame);
            self.counters().pages_read.add(1);
            let read = self.pool().storage.read_page(&mut target);
            read.map_err(|error| self.pool().read_failed(page, error))?;
            self.pool().finish_read(target, tree)?;
            // A thread that slept for the whole grace period finds that the evictor took it back.
            if self.pool().in_flight.reclaim(page, frame) {
                break frame;
            }
        };
        let header = self.pool().header(frame);
        header.set_pinned(true);
        header.change_state(FrameState::Loaded, FrameState::Hot);
        Ok(frame)
    }

    /// Does what an operation needs to go on, blocking the thread.
    ///
    /// # Errors
    /// A failed read, a corrupt page, a full device, a pool without a frame to free. The operation
    /// has changed nothing.
    pub fn resolve(&self, fault: Fault) -> Result<()> {
        match fault {
            Fault::Read(ticket) => {
                self.counters().faults.add(1);
                let frame = self.wait_frame()?;
                let page = ticket.page();
                let (mut target, tree) = ticket.start(frame);
                self.counters().pages_read.add(1);
                let read = self.pool().storage.read_page(&mut target);
                read.map_err(|error| self.pool().read_failed(page, error))?;
                self.pool().finish_read(target, tree)
            }
            Fault::Wait(page) => {
                self.counters().faults.add(1);
                let wait = self.begin_wait();
                if self.pool().in_flight.wait(page, self.waker()) {
                    self.park();
                }
                self.ended_wait(page, wait)
            }
            Fault::Pages(count) => {
                let mut since = None;
                while !self.reserve(count)? {
                    self.wait_free(count, &mut since)?;
                }
                Ok(())
            }
        }
    }

    /// As [`Worker::resolve`] of each, with all reads under way at once, unless so many threads wait for
    /// pages that the device has enough to do. The others go on when one fails.
    ///
    /// # Errors
    /// As [`Worker::resolve`]; the first one.
    pub fn resolve_all(&self, mut faults: Vec<Fault>) -> Result<()> {
        if faults.len() < 2 {
            return faults.pop().map_or(Ok(()), |fault| self.resolve(fault));
        }
        let pool = self.pool();
        let others = pool.reading_together.fetch_add(1, Ordering::Relaxed);
        let _here = Leave(&pool.reading_together);
        if others >= MAX_TOGETHER {
            // Its own reads first: others may wait for them.
            faults.sort_by_key(|fault| !matches!(fault, Fault::Read(_)));
            let resolve = |outcome: Result<()>, fault| outcome.and(self.resolve(fault));
            return faults.into_iter().fold(Ok(()), resolve);
        }
        let mut all = pin!(self.resolve_each(faults, Reader::Beside));
        let mut context = Context::from_waker(self.waker());
        loop {
            match all.as_mut().poll(&mut context) {
                Poll::Ready(outcome) => return outcome,
                Poll::Pending => self.park(),
            }
        }
    }

    /// As [`Worker::resolve_all`], awaiting instead of blocking. May be cancelled at any point.
    ///
    /// # Errors
    /// As [`Worker::resolve_all`].
    pub async fn resolve_all_async(&self, faults: Vec<Fault>) -> Result<()> {
        self.resolve_each(faults, Reader::Runtime).await
    }

    async fn resolve_each(&self, faults: Vec<Fault>, reader: Reader) -> Result<()> {
        let resolve = |fault| Box::pin(self.resolve_by(fault, reader));
        let mut reads: Vec<_> = faults.into_iter().map(resolve).collect();
        let mut outcome = Ok(());
        poll_fn(|context| {
            reads.retain_mut(|read| match read.as_mut().poll(context) {
                Poll::Pending => true,
                Poll::Ready(read) => {
                    if outcome.is_ok() {
                        outcome = read;
                    }
                    false
                }
            });
            if reads.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        outcome
    }

    /// As [`Worker::resolve`], awaiting instead of blocking. May be cancelled at any point.
    ///
    /// # Errors
    /// As [`Worker::resolve`].
    pub async fn resolve_async(&self, fault: Fault) -> Result<()> {
        self.resolve_by(fault, Reader::Runtime).await
    }

    async fn resolve_by(&self, fault: Fault, reader: Reader) -> Result<()> {
        match fault {
            Fault::Read(ticket) => {
                self.counters().faults.add(1);
                let mut since = None;
                let frame = loop {
                    match self.take_frame() {
                        Some(frame) => break frame,
                        None => self.wait_free_async(1, &mut since).await?,
                    }
                };
                let page = ticket.page();
                let (target, tree) = ticket.start(frame);
                self.counters().pages_read.add(1);
                let storage = self.pool().storage.clone();
                let (target, read) = match reader {
                    Reader::Runtime => storage.read_page_async(target).await,
                    Reader::Beside => storage.read_page_beside(target).await,
                };
                read.map_err(|error| self.pool().read_failed(page, error))?;
                self.pool().finish_read(target, tree)
            }
            Fault::Wait(page) => {
                self.counters().faults.add(1);
                let wait = self.begin_wait();
                let mut registered = false;
                poll_fn(|context| {
                    // Woken once, or not registered any more: the operation looks again.
                    if registered || !self.pool().in_flight.wait(page, context.waker()) {
                        return Poll::Ready(());
                    }
                    registered = true;
                    Poll::Pending
                })
                .await;
                self.ended_wait(page, wait)
            }
            Fault::Pages(count) => {
                let mut since = None;
                while !self.reserve(count)? {
                    self.wait_free_async(count, &mut since).await?;
                }
                Ok(())
            }
        }
    }

    fn begin_wait(&self) -> Wait {
        self.note_wait();
        Wait { since: Instant::now(), failures: self.pool().frame_failures() }
    }

    /// The wait for a page that another reads has ended. When that one found no frame, we would not
    /// find one either, and whoever waits for us neither.
    fn ended_wait(&self, page: PageId, wait: Wait) -> Result<()> {
        let pool = self.pool();
        if wait.is_hopeless(pool) && !pool.in_flight.is_loaded(page) {
            return Err(self.exhausted());
        }
        Ok(())
    }

    fn wait_frame(&self) -> Result<FrameId> {
        let mut since = None;
        loop {
            match self.take_frame() {
                Some(frame) => return Ok(frame),
                None => self.wait_free(1, &mut since)?,
            }
        }
    }

    /// Sleeps until `count` frames may be free. They are lacking `since` the first sleep.
    fn wait_free(&self, count: usize, since: &mut Option<Instant>) -> Result<()> {
        let since = *since.get_or_insert_with(Instant::now);
        let (waiting, failures) = self.pool().wait_for_frames(self.waker(), count);
        if waiting {
            self.counters().frame_waits.add(1);
            self.note_wait();
            if self.pool().frame_failures() == failures {
                self.park();
            }
            if (Wait { since, failures }).is_hopeless(self.pool()) || self.waited_too_long() {
                return Err(self.exhausted());
            }
        }
        Ok(())
    }

    async fn wait_free_async(&self, count: usize, since: &mut Option<Instant>) -> Result<()> {
        let since = *since.get_or_insert_with(Instant::now);
        let mut failures = None;
        poll_fn(|context| {
            if failures.is_some() {
                return Poll::Ready(());
            }
            let (waiting, seen) = self.pool().wait_for_frames(context.waker(), count);
            failures = Some(seen);
            if waiting && self.pool().frame_failures() == seen {
                self.counters().frame_waits.add(1);
                self.note_wait();
                Poll::Pending
            } else {
                Poll::Ready(())
            }
        })
        .await;
        let failures = failures.expect("the wait has begun");
        if (Wait { since, failures }).is_hopeless(self.pool()) || self.waited_too_long() {
            return Err(self.exhausted());
        }
        Ok(())
    }
}
