//! How sessions wait for what an operation lacks: a page, a frame, new pages. Blocking and awaiting.
//!
//! Every wait ends. A page that another reads is read by the one who waits after a while (`in_flight.rs`). A
//! wait for a frame ends with an error when no frame came free for the stall timeout of the pool, or when
//! this operation did not get one of those that did for four times that long. A thread looks at the time
//! itself; tasks are woken by the evictors and by the thread that watches the in-flight table.
//!
//! Wake-ups may be lost: they may go to a future that was dropped or is not polled any more. So nothing is
//! handed over with one. A thread looks again after a while, and evictors wake everybody who waits while
//! frames are free.

use crate::{
    error::Result,
    fault::{Fault, PageRead, ReadTicket},
    frame::FrameState,
    ids::{FrameId, PageId, TreeId},
    in_flight::{TAKE_OVER, WaitOutcome, WaiterKind},
    io,
    pool::Pool,
    sync::{AtomicUsize, Ordering},
    worker::Worker,
};
use std::{
    future::poll_fn,
    pin::pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

/// How long a thread sleeps before it looks at the frames again without being woken.
const LOOK: Duration = Duration::from_millis(100);

/// Threads that have several reads under way at once, each: with more of them the device is busy, and
/// the threads that read for them only take processor time.
const MAX_TOGETHER: usize = 4;

/// Counts one less when it is dropped.
struct CountGuard<'a>(&'a AtomicUsize);

impl Drop for CountGuard<'_> {
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
struct PageWait {
    since: Instant,
    failures: u64,
}

impl PageWait {
    /// Waiting was declared hopeless meanwhile, for those who had waited for long. A waiter that arrived late
    /// tries again: it has not waited for the whole stall timeout.
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
            let number = self.pool().in_flight.begin_root(page, tree);
            let ticket = ReadTicket::new(self.pool(), page, tree, number);
            let frame = self.read(ticket)?;
            // A thread that slept for the whole grace period finds that the evictor took it back.
            if let Some(frame) = frame.filter(|frame| self.pool().in_flight.reclaim(page, *frame)) {
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
                self.read(ticket).map(drop)
            }
            Fault::Wait(page) => {
                self.counters().faults.add(1);
                let (wait, mut number) = (self.begin_wait(), None);
                let waiter = thread_waiter();
                loop {
                    let in_flight = &self.pool().in_flight;
                    match in_flight.wait(page, &mut number, self.waker(), waiter) {
                        WaitOutcome::Over => return self.ended_wait(page, wait),
                        WaitOutcome::Registered(left) => _ = self.park_for(left),
                        WaitOutcome::Join(number, tree) => {
                            let ticket = ReadTicket::new(self.pool(), page, tree, number);
                            return self.read(ticket).map(drop);
                        }
                    }
                }
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

    /// Reads a page on the calling thread, and gives the frame that it read into, if it did.
    fn read(&self, mut ticket: ReadTicket) -> Result<Option<FrameId>> {
        let mut since = None;
        let frame = loop {
            match self.take_frame() {
                Some(frame) => break frame,
                None => self.wait_free(1, &mut since)?,
            }
            // Another may have read the page meanwhile.
            if !ticket.is_current() {
                return Ok(None);
            }
        };
        let mut target = ticket.lend(frame, self.pool().clone());
        self.counters().pages_read.add(1);
        let result = self.pool().storage.read_page(&mut target);
        ticket.publish(target, result).map(|()| Some(frame))
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
        let others = pool.in_flight.reading_together.fetch_add(1, Ordering::Relaxed);
        let _here = CountGuard(&pool.in_flight.reading_together);
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
                // Not for ever: a page that another reads, or a frame, may be waited for.
                Poll::Pending => _ = self.park_for(TAKE_OVER),
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
                self.read_by(ticket, reader).await
            }
            Fault::Wait(page) => {
                self.counters().faults.add(1);
                let (wait, mut number) = (self.begin_wait(), None);
                let waiter = match reader {
                    Reader::Beside if thread_waiter() == WaiterKind::Eager => WaiterKind::Eager,
                    _ => WaiterKind::Task,
                };
                let joined = poll_fn(|context| {
                    let in_flight = &self.pool().in_flight;
                    match in_flight.wait(page, &mut number, context.waker(), waiter) {
                        WaitOutcome::Over => Poll::Ready(None),
                        WaitOutcome::Registered(_) => Poll::Pending,
                        WaitOutcome::Join(number, tree) => {
                            Poll::Ready(Some(ReadTicket::new(self.pool(), page, tree, number)))
                        }
                    }
                });
                match joined.await {
                    Some(ticket) => self.read_by(ticket, reader).await,
                    None => self.ended_wait(page, wait),
                }
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

    /// Reads a page, leaving the transfer and its end to the back end.
    async fn read_by(&self, ticket: ReadTicket, reader: Reader) -> Result<()> {
        let mut since = None;
        let frame = loop {
            match self.take_frame() {
                Some(frame) => break frame,
                None => self.wait_free_async(1, &mut since).await?,
            }
            if !ticket.is_current() {
                return Ok(());
            }
        };
        let (read, target) = PageRead::new(ticket, frame);
        self.counters().pages_read.add(1);
        let storage = self.pool().storage.clone();
        match reader {
            Reader::Runtime => storage.start_read(target),
            Reader::Beside => storage.start_read_beside(target),
        }
        poll_fn(|context| read.poll(context)).await
    }

    fn begin_wait(&self) -> PageWait {
        self.note_wait();
        PageWait { since: Instant::now(), failures: self.pool().frame_failures() }
    }

    /// The wait for a page that another reads has ended. When that one found no frame, we would not
    /// find one either, nor would those that wait for us.
    fn ended_wait(&self, page: PageId, wait: PageWait) -> Result<()> {
        let pool = self.pool();
        if wait.is_hopeless(pool) && !pool.in_flight.is_loaded(page) {
            return Err(self.exhausted());
        }
        Ok(())
    }

    /// Sleeps until `count` frames may be free. They are lacking `since` the first sleep.
    fn wait_free(&self, count: usize, since: &mut Option<Instant>) -> Result<()> {
        let since = *since.get_or_insert_with(Instant::now);
        let (waiting, failures) = self.pool().wait_for_frames(self.waker(), count);
        if waiting {
            self.counters().frame_waits.add(1);
            self.note_wait();
            while self.pool().frame_failures() == failures
                && !self.park_for(LOOK)
                && self.pool().free_frames() < count
                && !self.waited_too_long()
            {}
            if (PageWait { since, failures }).is_hopeless(self.pool()) || self.waited_too_long() {
                return Err(self.exhausted());
            }
        }
        Ok(())
    }

    /// As [`Worker::wait_free`], awaiting.
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
        if (PageWait { since, failures }).is_hopeless(self.pool()) || self.waited_too_long() {
            return Err(self.exhausted());
        }
        Ok(())
    }
}

/// How the calling thread waits for a page that another reads. Inside a runtime it keeps the tasks of that from
/// running, and the reads that they began from ending.
fn thread_waiter() -> WaiterKind {
    if io::reads_on_this_thread() { WaiterKind::Eager } else { WaiterKind::Timed }
}
