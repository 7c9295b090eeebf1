//! Page faults: how an operation that meets an evicted swip gets its page.
//!
//! The operation asks [`Pool::fault`], which in a pool without swizzling looks in the page table
//! first. There are three answers:
//! - The page is loaded already: it is swizzled, and the descent goes on.
//! - `Fault::Read`: this operation must read the page. It returns to its session without any latch;
//!   the session finds a frame, reads and verifies the page, and runs the operation again.
//! - `Fault::Wait`: another operation reads the page. The session waits for it, or after a while
//!   reads the page as well, and runs the operation again.
//!
//! The in-flight table decides whether the bytes of a read become the frame of the page (see
//! `in_flight.rs` for the argument). `resolve.rs` has the waits of sessions.
//!
//! **Who finishes a read.** A blocking thread reads and publishes itself. For a task, the back end
//! reads and publishes ([`TargetOwner::ended`]) and then wakes the task. So a future that is kept
//! but not polled holds no page, and holds a frame only until its transfer ends. A dropped future
//! leaves the page to other operations. Two things can remain stuck with a future that is not
//! polled: a ticket that has no frame yet, and a transfer on the ring of a thread that is blocked.
//! In both cases the waiters read the page themselves.
//!
//! If no operation swizzles a `Loaded` frame, because its operation was cancelled or took another
//! way, an evictor reclaims it under the lock of the shard.

use crate::{
    error::{Error, Result},
    frame::FrameState,
    guard::{Exclusive, Optimistic},
    ids::{FrameId, Gsn, PageId, TreeId},
    in_flight::LookOutcome,
    io::{ReadTarget, TargetOwner},
    page::{self, PageRef, Restart, header},
    pool::Pool,
    reader::Reader,
    replacement::Leave,
    scope::{ScopePart, scope},
    swip::{Swip, Target},
    sync::Mutex,
};
use std::{
    io,
    sync::Arc,
    task::{Context, Poll, Waker},
};

/// The reason why a tree operation cannot go on. The operation holds no latch.
#[derive(Debug)]
pub enum Fault {
    /// This operation must read a page.
    Read(ReadTicket),
    /// A page is being read by another operation.
    Wait(PageId),
    /// This many new pages are needed ([`crate::Worker::has_reserve`]).
    Pages(usize),
}

/// The right to read a page and to publish it. Several tickets for one page may exist. Dropping the
/// last one wakes the operations that wait for the page, and one of them reads it.
pub struct ReadTicket {
    pool: Arc<Pool>,
    page: PageId,
    tree: TreeId,
    /// Number of the entry in the in-flight table.
    number: u64,
    /// Whether the ticket still counts as a reader of the entry.
    armed: bool,
    /// No operation has asked for the page: it was predicted.
    predicted: bool,
}

impl std::fmt::Debug for ReadTicket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReadTicket(page {} of tree {})", self.page, self.tree)
    }
}

impl ReadTicket {
    pub(crate) fn new(pool: &Arc<Pool>, page: PageId, tree: TreeId, number: u64) -> ReadTicket {
        ReadTicket { pool: pool.clone(), page, tree, number, armed: true, predicted: false }
    }

    /// The page to read.
    pub fn page(&self) -> PageId {
        self.page
    }

    /// Whether the page still has to be read.
    pub(crate) fn is_current(&self) -> bool {
        self.pool.in_flight.is_current(self.page, self.number)
    }

    /// Lends a free frame to a transfer, which gives it back if it is dropped.
    pub(crate) fn lend(&self, frame: FrameId, owner: Arc<dyn TargetOwner>) -> ReadTarget {
        let header = self.pool.header(frame);
        header.assign(self.page, self.tree);
        header.change_state(FrameState::Free, FrameState::Reading);
        self.pool.read_target(frame, self.page, owner)
    }

    /// Verifies the bytes that were read and publishes the page. If another reader was first,
    /// returns `Ok`, whatever the transfer brought.
    pub(crate) fn publish(&mut self, target: ReadTarget, result: io::Result<()>) -> Result<()> {
        let (pool, page) = (&self.pool, self.page);
        let checked = result
            .map_err(|error| Error::io(format_args!("read page {page}"), error))
            .and_then(|()| pool.check_read(&target, self.tree));
        if let Err(error) = checked {
            // Dropping the target gives the frame back.
            drop(target);
            if !self.is_current() {
                return Ok(());
            }
            tracing::error!(page = page.0, tree = self.tree.0, %error, "a page could not be read");
            return Err(error);
        }
        let frame = target.finish();
        let state = pool.header(frame);
        state.set_clean_at(Gsn(PageRef::u64_at(pool.page_ref(frame), header::GSN)));
        state.set_version_hint(pool.owner().load_hint());
        state.set_link(pool.elapsed_ms());
        let visit = pool.visit(frame, state);
        pool.policy.on_load(visit, page);
        if self.predicted && pool.policy.order().is_none() {
            // The cold end: worth nothing until an operation comes.
            state.tracker.reset();
        }
        let load = || state.change_state(FrameState::Reading, FrameState::Loaded);
        if pool.in_flight.publish(page, self.number, frame, load) {
            self.armed = false;
        } else {
            pool.policy.on_leave(pool.visit(frame, state), page, Leave::Dropped);
            pool.give_read_frame(frame);
        }
        Ok(())
    }
}

impl Drop for ReadTicket {
    fn drop(&mut self) {
        if self.armed {
            self.pool.in_flight.leave(self.page, self.number);
        }
    }
}

/// Owner of the frame of a blocking read; the reading thread publishes the page itself.
impl TargetOwner for Pool {
    fn abandoned(&self, frame: FrameId, _: PageId) {
        self.give_read_frame(frame);
    }

    fn ended(&self, target: ReadTarget, _: io::Result<()>) {
        drop(target);
    }
}

/// A read that a back end finishes. A task or a blocked thread may wait for it.
pub(crate) struct PageRead {
    pool: Arc<Pool>,
    state: Mutex<ReadState>,
}

#[derive(Default)]
struct ReadState {
    /// Present until the read ends.
    ticket: Option<ReadTicket>,
    outcome: Option<Result<()>>,
    waker: Option<Waker>,
}

impl PageRead {
    /// Binds a free frame to the read.
    pub(crate) fn new(ticket: ReadTicket, frame: FrameId) -> (Arc<PageRead>, ReadTarget) {
        let state = ReadState::default();
        let read = Arc::new(PageRead { pool: ticket.pool.clone(), state: Mutex::new(state) });
        let target = ticket.lend(frame, read.clone());
        read.state.lock().ticket = Some(ticket);
        (read, target)
    }

    /// Waits for the end.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Result<()>> {
        let mut state = self.state.lock();
        if let Some(outcome) = state.outcome.take() {
            return Poll::Ready(outcome);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    fn take_ticket(&self) -> Option<ReadTicket> {
        self.state.lock().ticket.take()
    }

    fn end(&self, outcome: Result<()>) {
        let waker = {
            let mut state = self.state.lock();
            state.outcome = Some(outcome);
            state.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

impl TargetOwner for PageRead {
    fn abandoned(&self, frame: FrameId, page: PageId) {
        self.pool.give_read_frame(frame);
        // If the ticket is gone, the read has ended and that has dropped the target.
        if let Some(ticket) = self.take_ticket() {
            let error = io::Error::other("the runtime of this read has ended");
            drop(ticket);
            self.end(Err(Error::io(format_args!("read page {page}"), error)));
        }
    }

    fn ended(&self, target: ReadTarget, result: io::Result<()>) {
        let mut ticket = self.take_ticket().expect("a read ends once");
        let outcome = ticket.publish(target, result);
        drop(ticket);
        self.end(outcome);
    }
}

impl Pool {
    /// Reads a page that was predicted, on another thread, if a frame is free.
    pub fn read_predicted(&self, reader: &Reader, mut ticket: ReadTicket) {
        let mut frames = Vec::with_capacity(1);
        self.take_frames(1, &mut frames);
        let Some(frame) = frames.pop() else { return };
        ticket.predicted = true;
        let (_read, target) = PageRead::new(ticket, frame);
        reader.count_read();
        self.storage.clone().start_read_beside(target);
    }

    /// Resolves the evicted swip at byte `offset` (child `position`) of the node under `parent`.
    /// Swizzles the child and returns new guards of parent and child, or returns the fault to
    /// resolve.
    ///
    /// # Errors
    /// [`Restart`] if the parent changed.
    #[cold]
    pub fn fault<'p>(
        self: &'p Arc<Self>,
        parent: Optimistic<'p>,
        offset: usize,
        position: usize,
        page: PageId,
    ) -> Result<Result<(Optimistic<'p>, Optimistic<'p>), Fault>, Restart> {
        let _scope = scope(ScopePart::PageFaults);
        if self.process().is_other() {
            // A lock may never be released in this process. The operation is refused when it
            // restarts.
            return Err(Restart);
        }
        if let Some(child) = self.child_in_table(&parent, page)? {
            return Ok(Ok((parent, child)));
        }
        let tree = parent.header().tree_id();
        let frame = match self.in_flight.look(page, tree, || parent.validate())? {
            LookOutcome::Read(number) => {
                return Ok(Err(Fault::Read(ReadTicket::new(self, page, tree, number))));
            }
            LookOutcome::Reading => return Ok(Err(Fault::Wait(page))),
            LookOutcome::Loaded(frame) => frame,
        };
        let mut parent = parent.upgrade()?;
        // The latch excludes another swizzle of this swip, but not a reclaim by an evictor.
        if !self.in_flight.take_to_swizzle(page, frame) {
            return Err(Restart);
        }
        self.swizzle(&mut parent, offset, position, page, frame);
        // While the parent is latched the child cannot be evicted. An evictor may hold the child
        // and try for the parent, so this must not wait.
        let child = self.try_optimistic(frame)?;
        Ok(Ok((parent.downgrade(), child)))
    }

    /// Makes the child hot that the swip at `offset` names. The caller took `frame` out of the
    /// in-flight table.
    fn swizzle(
        &self,
        parent: &mut Exclusive<'_>,
        offset: usize,
        position: usize,
        page: PageId,
        frame: FrameId,
    ) {
        let _scope = scope(ScopePart::Swizzling);
        let swip = Swip(parent.page().u64_at(offset));
        assert_eq!(swip.target(), Target::Evicted(page), "swip of page {page} changed");
        let child = self.header(frame);
        child.set_parent_hint(parent.frame(), position);
        child.change_state(FrameState::Loaded, FrameState::Hot);
        if self.is_swizzling() {
            parent.set_swip(offset, Swip::hot(frame));
        } else {
            self.enter_page(page, frame);
            parent.mark_changed();
        }
        parent.header().child_heated();
        // Replacement counts only this access of an inner node. While the node has hot children it
        // cannot be evicted anyway.
        self.policy.on_access(self.visit(parent.frame(), parent.header()));
    }

    /// Verifies the bytes that were read.
    fn check_read(&self, target: &ReadTarget, tree: TreeId) -> Result<()> {
        let page = target.page();
        if let Some(why) = self.distrusted.get() {
            return Err(Error::Poisoned(format!("page {page} is not read: {why}")));
        }
        page::verify(target.bytes(), page, tree)?;
        let (pages, _) = self.allocator.counts();
        let gsn = Gsn(PageRef::u64_at(self.page_ref(target.frame()), header::GSN));
        let checked = self.owner().check(target.bytes(), pages);
        let checked = checked.and_then(|()| self.barrier.check_read(gsn));
        checked.map_err(|what| Error::corruption(page, what))
    }

    /// Gives back the frame of a transfer that has ended.
    fn give_read_frame(&self, frame: FrameId) {
        self.header(frame).change_state(FrameState::Reading, FrameState::Free);
        self.give_frames(&[frame]);
    }
}
