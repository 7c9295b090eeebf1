//! How sessions resolve a fault of an operation: they get it a page, a frame or new pages.
//!
//! Every wait ends. An operation that waits for the read of another one joins as a reader after a
//! while (`in_flight.rs`). A wait for a frame fails if no frame came free for the stall timeout of
//! the pool, or if frames came free for four times that long and this operation got none of them. A
//! thread watches the clock itself. Tasks are woken by evictors and by the thread that watches the
//! in-flight table.
//!
//! A wake-up may be lost, because it may go to a future that was dropped or is no longer polled. So
//! a wake-up carries nothing with it: a thread polls again after a while, and evictors wake all
//! waiters while frames are free.

use crate::{
    error::Result,
    fault::{Fault, PageRead, ReadTicket},
    frame::FrameState,
    ids::{FrameId, PageId, TreeId},
    in_flight::{TAKE_OVER, WaitOutcome, WaiterKind},
    io::{self, ReadTarget},
    pool::Pool,
    scope::{ScopePart, scope},
    sync::{AtomicUsize, Ordering},
    tuning,
    worker::Worker,
};
use std::{
    future::poll_fn,
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

/// How long a thread sleeps before it checks the free frames without a wake-up.
const LOOK: Duration = Duration::from_millis(100);

/// Number of threads that may have several reads in flight each. With more of them the device is
/// busy anyway, and the threads that read for them only cost processor time.
const MAX_TOGETHER: usize = if tuning::LIMIT_READERS { 4 } else { usize::MAX };

/// Decrements the counter when it is dropped.
struct CountGuard<'a>(&'a AtomicUsize);

impl Drop for CountGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Where a read is carried out.
#[derive(Clone, Copy)]
enum Reader {
    /// In the runtime of the calling task.
    Runtime,
    /// On other threads, while the calling thread waits.
    Beside,
}

/// A wait for a frame, or for a page whose reader waits for a frame.
struct PageWait {
    since: Instant,
    failures: u64,
}

impl PageWait {
    /// Whether the wait was ended with a failure. A waiter that arrived late retries: it has not
    /// waited for the full stall timeout itself.
    fn is_hopeless(&self, pool: &Pool) -> bool {
        pool.frame_failures() != self.failures
            && (self.since.elapsed() >= pool.options.stall_timeout / 2
                || pool.free.failed_for_ever().is_some())
    }
}

impl Worker {
    /// Reads the root of a tree, a page that no swip names, into a frame and pins it. The caller
    /// ensures that this happens once for each root.
    ///
    /// # Errors
    /// As [`Worker::resolve`].
    pub fn load_root(&self, page: PageId, tree: TreeId) -> Result<FrameId> {
        self.begin_waiting();
        let frame = loop {
            let number = self.pool().in_flight.begin_root(page, tree);
            let ticket = ReadTicket::new(self.pool(), page, tree, number);
            let frame = self.read(ticket)?;
            // If this thread slept for the whole grace period, an evictor has reclaimed the page.
            if let Some(frame) = frame.filter(|frame| self.pool().in_flight.reclaim(page, *frame)) {
                break frame;
            }
        };
        let header = self.pool().header(frame);
        header.set_pinned(true);
        header.change_state(FrameState::Loaded, FrameState::Hot);
        self.pool().enter_page(page, frame);
        Ok(frame)
    }

    /// Gets the page or the new pages that an operation lacks, blocking the thread.
    ///
    /// # Errors
    /// A failed read, a corrupt page, a full device, or a pool that cannot free a frame. The
    /// operation has changed nothing.
    pub fn resolve(&self, fault: Fault) -> Result<()> {
        let _scope = scope(ScopePart::PageFaults);
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
                        WaitOutcome::Registered(left) => {
                            let _scope = scope(ScopePart::PageWait);
                            _ = self.park_for(left);
                        }
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

    /// Reads a page on the calling thread. Returns its frame, or `None` if another reader was
    /// first.
    fn read(&self, mut ticket: ReadTicket) -> Result<Option<FrameId>> {
        let mut since = None;
        let frame = loop {
            match self.take_frame() {
                Some(frame) => break frame,
                None => self.wait_free(1, &mut since)?,
            }
            // Another reader may have published the page meanwhile.
            if !ticket.is_current() {
                return Ok(None);
            }
        };
        let mut target = ticket.lend(frame, self.pool().clone());
        self.counters().pages_read.add(1);
        let result = {
            let _scope = scope(ScopePart::PageWait);
            self.pool().storage.read_page(&mut target)
        };
        ticket.publish(target, result).map(|()| Some(frame))
    }

    /// Does [`Worker::resolve`] for each fault, with all reads in flight at once unless enough
    /// other threads do the same. If one fails, the others still run to their end.
    ///
    /// # Errors
    /// As [`Worker::resolve`]; the first error.
    pub fn resolve_all(&self, mut faults: Vec<Fault>) -> Result<()> {
        if faults.len() < 2 {
            return faults.pop().map_or(Ok(()), |fault| self.resolve(fault));
        }
        let _scope = scope(ScopePart::PageFaults);
        let pool = self.pool();
        let others = pool.in_flight.reading_together.fetch_add(1, Ordering::Relaxed);
        let _here = CountGuard(&pool.in_flight.reading_together);
        if others >= MAX_TOGETHER {
            // Read first: other operations may wait for these pages.
            faults.sort_by_key(|fault| !matches!(fault, Fault::Read(_)));
            let resolve = |outcome: Result<()>, fault| outcome.and(self.resolve(fault));
            return faults.into_iter().fold(Ok(()), resolve);
        }
        let mut all = pin!(self.resolve_each(faults, Reader::Beside));
        let mut context = Context::from_waker(self.waker());
        loop {
            match all.as_mut().poll(&mut context) {
                Poll::Ready(outcome) => return outcome,
                // With a limit, because the wait may be for a frame or for the read of another
                // operation.
                Poll::Pending => {
                    let _scope = scope(ScopePart::PageWait);
                    _ = self.park_for(TAKE_OVER);
                }
            }
        }
    }

    /// As [`Worker::resolve_all`], but awaits instead of blocking. May be cancelled at any point.
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

    /// As [`Worker::resolve`], but awaits instead of blocking. May be cancelled at any point.
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

    /// Reads a page; the back end carries out the transfer and publishes the page.
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
        self.start(target, reader);
        poll_fn(|context| read.poll(context)).await
    }

    /// Starts the reads among `faults` on other threads, neighbours in the file with one call, and
    /// does not wait for them. Starts fewer when frames are lacking: this is optional work.
    pub fn read_ahead(&self, faults: Vec<Fault>) {
        let (_reads, targets) = self.lend_for_reads(faults);
        self.counters().pages_read_ahead.add(targets.len() as u64);
        // The back end keeps each read until it ends, and publishes the page.
        self.pool().storage.clone().start_reads_beside(targets);
    }

    /// As [`Worker::read_ahead`], for a task: pages without neighbours among them are read in its
    /// runtime, which takes less processor time.
    pub fn read_ahead_in_runtime(&self, faults: Vec<Fault>) {
        let (_reads, targets) = self.lend_for_reads(faults);
        self.counters().pages_read_ahead.add(targets.len() as u64);
        let (neighbours, single) = part_neighbours(targets, |target| target.page().0);
        self.pool().storage.clone().start_reads_beside(neighbours);
        single.into_iter().for_each(|target| self.start(target, Reader::Runtime));
    }

    /// Lends a free frame to each read among `faults`, and counts it as read. If frames are
    /// lacking, the first faults get them. In the order of pages the frames ascend: neighbours in
    /// the file that are also neighbours in memory are one transfer for the device, not one for
    /// each page.
    pub(crate) fn lend_for_reads(
        &self,
        faults: Vec<Fault>,
    ) -> (Vec<Arc<PageRead>>, Vec<ReadTarget>) {
        // Another operation reads the others.
        let of_read = |fault| if let Fault::Read(ticket) = fault { Some(ticket) } else { None };
        let mut tickets: Vec<_> = faults.into_iter().filter_map(of_read).collect();
        let mut frames: Vec<_> = tickets.iter().map_while(|_| self.take_frame()).collect();
        tickets.truncate(frames.len());
        tickets.sort_unstable_by_key(|ticket| ticket.page());
        frames.sort_unstable_by_key(|frame| frame.0);
        self.counters().pages_read.add(frames.len() as u64);
        tickets.into_iter().zip(frames).map(|(ticket, frame)| PageRead::new(ticket, frame)).unzip()
    }

    fn start(&self, target: ReadTarget, reader: Reader) {
        let storage = self.pool().storage.clone();
        match reader {
            Reader::Runtime => storage.start_read(target),
            Reader::Beside => storage.start_read_beside(target),
        }
    }

    fn begin_wait(&self) -> PageWait {
        self.note_wait();
        PageWait { since: Instant::now(), failures: self.pool().frame_failures() }
    }

    /// Ends the wait for a page that another operation reads. If that one found no frame, this one
    /// would not find one either.
    fn ended_wait(&self, page: PageId, wait: PageWait) -> Result<()> {
        let pool = self.pool();
        if wait.is_hopeless(pool) && !pool.in_flight.is_loaded(page) {
            return Err(self.exhausted());
        }
        Ok(())
    }

    /// Sleeps until `count` frames may be free. `since` is the time of the first such sleep.
    fn wait_free(&self, count: usize, since: &mut Option<Instant>) -> Result<()> {
        let since = *since.get_or_insert_with(Instant::now);
        let (waiting, failures) = self.pool().wait_for_frames(self.waker(), count);
        if waiting {
            self.counters().frame_waits.add(1);
            self.note_wait();
            let _scope = scope(ScopePart::FrameWait);
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

    /// As [`Worker::wait_free`], but awaits instead of blocking.
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

/// Parts `items` into those whose page has a neighbour among them, and the others.
fn part_neighbours<T>(mut items: Vec<T>, page: impl Fn(&T) -> u64) -> (Vec<T>, Vec<T>) {
    items.sort_unstable_by_key(&page);
    let pages: Vec<u64> = items.iter().map(page).collect();
    let follows = |at: usize| at > 0 && pages.get(at).is_some_and(|page| page - pages[at - 1] == 1);
    let mut at = 0;
    items.into_iter().partition(|_| {
        at += 1;
        follows(at - 1) || follows(at)
    })
}

/// How the calling thread must wait for a page that another operation reads. Inside a runtime the
/// thread keeps that runtime's tasks, and the reads that they began, from making progress.
fn thread_waiter() -> WaiterKind {
    if io::reads_on_this_thread() { WaiterKind::Eager } else { WaiterKind::Timed }
}

#[cfg(test)]
mod tests {
    use super::part_neighbours;

    #[test]
    fn pages_with_neighbours_are_parted_from_the_others() {
        let part = |pages: &[u64]| part_neighbours(pages.to_vec(), |page| *page);
        assert_eq!(part(&[]), (vec![], vec![]));
        assert_eq!(part(&[7]), (vec![], vec![7]));
        assert_eq!(part(&[9, 3, 8, 1]), (vec![8, 9], vec![1, 3]));
        assert_eq!(part(&[5, 4, 6, 20, 0]), (vec![4, 5, 6], vec![0, 20]));
        // The same page twice is no pair of neighbours.
        assert_eq!(part(&[2, 2, 9]), (vec![], vec![2, 2, 9]));
        assert_eq!(part(&[2, 2, 3]), (vec![2, 3], vec![2]));
    }
}
