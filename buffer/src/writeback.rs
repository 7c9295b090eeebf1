//! Write-back: dirty pages go to storage in batches, up to k_w images in flight, while their frames
//! stay readable and writable (ACE: eviction and write-back are two decisions).
//!
//! Evictors claim dirty pages and queue them. Writer threads copy each image under a shared latch,
//! unswizzle it, make the log durable up to it, seal it and write it. The page is clean afterwards
//! only if its change number is still that of the image. The `WRITING` flag of the header allows
//! one write of a page at a time. So writes of a page cannot overtake each other, and a freed page
//! id is not reused before its last write has ended.

use crate::{
    counters::{Counters, Refusal},
    error::{Error, Result},
    evict::evict,
    frame::FrameState,
    ids::{FrameId, Gsn, PageId},
    io::PageWrite,
    page::{PAGE_SIZE, PageImage, header},
    pool::Pool,
    scope::{ScopePart, scope},
    swip::{Swip, Target},
    sync::{AtomicUsize, Builder, Ordering},
    thread::cpu_time_ns,
    write_queue::{Claim, TakenBatch},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Pages after which a checkpoint calls its pace function.
const CHECKPOINT_STEP: usize = 32;

/// Claims a dirty page for the writers, unless its state changed or the queue is full.
pub(crate) fn queue_write(
    pool: &Pool,
    frame: FrameId,
    threshold: f32,
) -> std::result::Result<(), Refusal> {
    if pool.writes.is_full() {
        return Err(Refusal::QueueFull);
    }
    claim_write(pool, frame)?;
    pool.writes.push(frame, threshold);
    Ok(())
}

/// Claims the write of a dirty page for the caller, which queues it, unless its state changed.
pub(crate) fn claim_write(pool: &Pool, frame: FrameId) -> std::result::Result<(), Refusal> {
    // Claim under the latch, so that only hot pages are claimed: a claimed page is freed by its
    // writer only.
    let guard = pool.try_exclusive(frame).ok_or(Refusal::Latched)?;
    let header = guard.header();
    if header.state() != FrameState::Hot || !header.is_dirty() || !header.claim_write() {
        return Err(Refusal::Changed);
    }
    Ok(())
}

/// Pages that one thread of a flush writes together: a MiB.
const FLUSH_BATCH: usize = 256;

/// Frames that a flush puts into the order of the file together, so that it takes at most 16 MiB of
/// memory for that: those of 4 GiB.
const SORTED_TOGETHER: usize = 1 << 20;

/// An image on its way to storage.
struct PendingWrite {
    claim: Claim,
    page: PageId,
    gsn: Gsn,
}

/// Buffers of one writer, reserved once.
pub(crate) struct Writer {
    pool: Arc<Pool>,
    counters: Arc<Counters>,
    images: Vec<Box<PageImage>>,
    batch: Vec<PendingWrite>,
    failures: Failures,
}

/// Rate limit for logging failed writes: a failing device may fail thousands a second.
#[derive(Default)]
struct Failures {
    told: Option<Instant>,
    /// Failures since the last log line.
    untold: u64,
}

impl Failures {
    /// Minimum interval between log lines.
    const PAUSE: Duration = Duration::from_secs(1);

    fn tell(&mut self, page: PageId, error: &Error) {
        if self.told.is_some_and(|told| told.elapsed() < Failures::PAUSE) {
            self.untold += 1;
            return;
        }
        let others = std::mem::take(&mut self.untold);
        tracing::error!(page = page.0, %error, others, "write-back failed");
        self.told = Some(Instant::now());
    }
}

impl Writer {
    pub(crate) fn new(pool: Arc<Pool>, batch: usize) -> Writer {
        let counters = pool.register_counters();
        Writer {
            images: (0..batch).map(|_| PageImage::zeroed()).collect(),
            batch: Vec::with_capacity(batch),
            failures: Failures::default(),
            counters,
            pool,
        }
    }

    /// Body of a writer thread: writes the pages that evictors queue, until stopped and empty.
    pub(crate) fn run(mut self) {
        let mut claims = Vec::with_capacity(self.images.len());
        loop {
            let pool = self.pool.clone();
            let batch = {
                let _scope = scope(ScopePart::Idle);
                pool.writes.take(self.images.len(), &mut claims)
            };
            let Some(batch) = batch else { break };
            self.write_out(&batch);
            self.counters.evictor_cpu_ns.set(cpu_time_ns());
            pool.evict_signal.progress();
        }
        self.pool.unregister_counters(&self.counters);
    }

    /// Merges leaves around claimed pages, then writes the pages that are left.
    pub(crate) fn write_out(&mut self, batch: &TakenBatch) {
        let _scope = scope(ScopePart::WriteBack);
        let pool = self.pool.clone();
        // An X-merge saves a page where neighbours are underfull.
        pool.merges.enter();
        for claim in batch.claims {
            if pool.merges.is_open() && pool.owner().before_write(&pool, claim.frame) {
                self.counters.x_merges.add(1);
            }
        }
        pool.merges.leave();
        let outcome = self.write(batch.claims);
        pool.writes.ended(batch);
        pool.writes.note(&outcome);
        if outcome.is_err() {
            // The pages stay dirty and will be sampled again. Do not retry a device that refuses
            // writes in a tight loop.
            crate::sync::sleep(Duration::from_millis(5));
        }
    }

    /// Writes one batch of claimed pages.
    fn write(&mut self, claims: &[Claim]) -> Result<()> {
        let pool = self.pool.clone();
        // 1. Copy the images. Skip pages that were freed or are clean by now.
        self.batch.clear();
        for claim in claims {
            self.copy_image(*claim);
        }
        // 2. Make the log durable first: no image may be durable before its changes are.
        let last = self.batch.iter().map(|image| image.gsn).max();
        let durable = last.map_or(Ok(()), |gsn| pool.barrier.ensure_durable(gsn));
        // 3. Write all images at once.
        let mut results = Vec::with_capacity(self.batch.len());
        if durable.is_ok() {
            let writes: Vec<_> = (self.batch.iter().zip(&self.images))
                .map(|(image, bytes)| PageWrite { page: image.page, image: bytes })
                .collect();
            if !writes.is_empty() {
                let _scope = scope(ScopePart::WriteWait);
                pool.storage.write_pages(&writes, &mut results);
                assert_eq!(results.len(), writes.len(), "one result for each write");
            }
        }
        // 4. Mark pages that did not change as clean, and evict those that are still cold.
        let mut outcome = durable;
        let mut freed = Vec::new();
        for (i, image) in std::mem::take(&mut self.batch).iter().enumerate() {
            let written = match results.get_mut(i) {
                Some(result) => std::mem::replace(result, Ok(()))
                    .map_err(|error| Error::io(format_args!("write page {}", image.page), error)),
                None => Err(outcome.clone().expect_err("no results without a log error")),
            };
            if let Err(error) = &written {
                self.failures.tell(image.page, error);
                outcome = Err(error.clone());
            } else {
                self.counters.pages_written.add(1);
            }
            self.finish(image, written.is_ok(), &mut freed);
        }
        if !freed.is_empty() {
            self.counters.evictions.add(freed.len() as u64);
            self.counters.evictions_dirty.add(freed.len() as u64);
            pool.count_evictions(freed.len() as u64);
            pool.give_frames(&freed);
        }
        outcome
    }

    /// Copies the image of a claimed page into the next buffer of the batch.
    fn copy_image(&mut self, claim: Claim) {
        let pool = self.pool.clone();
        let header = pool.header(claim.frame);
        let shared = loop {
            match pool.try_shared(claim.frame) {
                Some(shared) => break shared,
                // An exclusive holder never waits for a writer, so it leaves soon.
                None => crate::sync::yield_now(),
            }
        };
        if header.state() == FrameState::Zombie {
            drop(shared);
            return self.bury(claim.frame);
        }
        assert_eq!(header.state(), FrameState::Hot, "page {} was claimed", header.page_id());
        if !header.is_dirty() {
            // Before the latch is released: a thread that frees the page checks the flag.
            header.release_write();
            return;
        }
        let image = &mut self.images[self.batch.len()];
        let (page, gsn) = (header.page_id(), header.gsn());
        shared.page().copy_image(image);
        pool.unswizzle(image);
        drop(shared);
        image.seal();
        assert_eq!(image.u64_at(header::PAGE_ID), page.0, "image of another page");
        assert_eq!(image.u64_at(header::GSN), gsn.0, "image of another version of page {page}");
        self.batch.push(PendingWrite { claim, page, gsn });
    }

    /// Ends the write of one page.
    fn finish(&self, image: &PendingWrite, written: bool, freed: &mut Vec<FrameId>) {
        let pool = &self.pool;
        let frame = image.claim.frame;
        let guard = pool.exclusive(frame);
        let header = guard.header();
        if header.state() == FrameState::Zombie {
            drop(guard);
            return self.bury(frame);
        }
        if written {
            header.record_written(image.gsn);
        }
        header.release_write();
        drop(guard);
        if written && evict(pool, &self.counters, frame, image.claim.threshold) {
            freed.push(frame);
        }
    }

    /// Frees a page that the tree freed while its image was held here. The frame stays a zombie
    /// until then, and [`Pool::quiet`] waits for zombies.
    fn bury(&self, frame: FrameId) {
        let header = self.pool.header(frame);
        header.release_write();
        self.pool.free_page_id(header.page_id());
        header.change_state(FrameState::Zombie, FrameState::Free);
        self.pool.give_frames(&[frame]);
    }
}

impl Pool {
    /// Replaces the hot swips of an image by page ids. The caller holds a latch of the page, so its
    /// children stay in their frames.
    pub(crate) fn unswizzle(&self, image: &mut PageImage) {
        self.owner().map_swips(image, &mut |raw| match Swip(raw).target() {
            Target::Hot(child) => Swip::evicted(self.header(child).page_id()).0,
            Target::Evicted(_) => raw,
        });
    }

    /// Writes every page with a change numbered below its `limit` that is neither on storage nor
    /// covered by a record of the whole page from there on ([`crate::Exclusive::logged_whole`]).
    /// Such records may not be durable yet. Uses the background writers, while all other work goes
    /// on. Calls `pace` now and then with the number of pages done and the total; it may sleep, and
    /// may stop the work with an error.
    ///
    /// # Errors
    /// The failure of the writers if no page can be written, or the error of `pace`.
    pub fn write_older(
        &self,
        limit: impl Fn(PageId) -> Gsn,
        pace: &mut dyn FnMut(usize, usize) -> Result<()>,
    ) -> Result<u64> {
        // Relaxed loads suffice. A change below the limit was stamped before its log buffer was
        // released, and the flusher emptied that buffer and reported it since: the lock of the
        // buffer orders the stamp before these loads.
        let is_older = |frame: FrameId| {
            let header = self.header(frame);
            // If another page gets into the frame, it changes later than all limits.
            let is_below = |gsn| gsn < limit(header.page_id());
            header.state() == FrameState::Hot && header.first_gsn().is_some_and(is_below)
        };
        let mut left: Vec<FrameId> = self.used_frames().filter(|frame| is_older(*frame)).collect();
        let total = left.len();
        let (mut queued, mut passed) = (0, 0);
        // Time since which no page could be written, not counting calls of `pace`.
        let mut idle_since = None;
        // Pages that become dirty later have later changes, so the list only shrinks.
        while !left.is_empty() {
            let before = left.len();
            let mut since_pace = 0;
            for frame in &left {
                while !self.writes.has_room_for_checkpoint() {
                    pace(passed, total)?;
                    crate::sync::sleep(Duration::from_micros(200));
                }
                passed = total.min(passed + 1);
                // A page that is being written already, or is latched, stays in the list.
                if is_older(*frame) && queue_write(self, *frame, f32::NEG_INFINITY).is_ok() {
                    queued += 1;
                    since_pace += 1;
                    if since_pace == CHECKPOINT_STEP {
                        since_pace = 0;
                        pace(passed, total)?;
                    }
                }
            }
            pace(passed, total)?;
            left.retain(|frame| is_older(*frame));
            if left.len() < before {
                idle_since = None;
                continue;
            }
            let since = *idle_since.get_or_insert_with(std::time::Instant::now);
            if self.is_stalled(since) {
                let stalled = "pages could not be written for a checkpoint".to_string();
                return Err(self.writes.last_error().unwrap_or(Error::Limit(stalled)));
            }
            crate::sync::sleep(Duration::from_micros(500));
        }
        Ok(queued)
    }

    /// Writes every dirty page and waits for it; returns the number of pages written. Background
    /// threads must have been stopped, and no operation may run. Merges nothing, because a merge
    /// would make pages dirty again that were written already.
    ///
    /// The pages go out in the order of the file, neighbours with one call.
    ///
    /// # Errors
    /// The first failure. Every page that could be written was; the others stay dirty.
    pub fn flush(self: &Arc<Self>) -> Result<u64> {
        let is_dirty = |frame: &FrameId| {
            let header = self.header(*frame);
            header.state() == FrameState::Hot && header.is_dirty()
        };
        let mut frames: Vec<FrameId> = self.used_frames().filter(is_dirty).collect();
        for window in frames.chunks_mut(SORTED_TOGETHER) {
            window.sort_by_cached_key(|frame| self.header(*frame).page_id());
        }
        let size = FLUSH_BATCH.min(frames.len());
        let flush = Arc::new(Flush { pool: self.clone(), frames, size, next: AtomicUsize::new(0) });
        // While one thread writes, the other one copies the next images.
        let helper = (flush.frames.len() > size)
            .then(|| {
                let flush = flush.clone();
                let helper = Builder::new().name("wattle-flush".into());
                helper.spawn(move || flush.work())
            })
            .and_then(|helper| {
                helper.inspect_err(|error| tracing::debug!(%error, "one thread flushes")).ok()
            });
        let (mut written, mut outcome) = flush.work();
        if let Some(helper) = helper {
            let (more, other) =
                helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            written += more;
            outcome = outcome.and(other);
        }
        outcome.map(|()| written)
    }
}

/// The pages of [`Pool::flush`], which its threads divide among them.
struct Flush {
    pool: Arc<Pool>,
    frames: Vec<FrameId>,
    /// Pages of a batch.
    size: usize,
    /// Index of the first frame of the next batch.
    next: AtomicUsize,
}

impl Flush {
    /// Writes batches until none is left: the number of pages, and the first failure.
    fn work(&self) -> (u64, Result<()>) {
        let (mut written, mut outcome) = (0, Ok(()));
        if self.frames.is_empty() {
            return (written, outcome);
        }
        let mut writer = Writer::new(self.pool.clone(), self.size);
        let mut claims = Vec::with_capacity(self.size);
        loop {
            let start = self.next.fetch_add(self.size, Ordering::Relaxed).min(self.frames.len());
            let end = self.frames.len().min(start + self.size);
            if start == end {
                break;
            }
            claims.clear();
            for frame in &self.frames[start..end] {
                assert!(self.pool.header(*frame).claim_write(), "a writer is still running");
                claims.push(Claim { frame: *frame, threshold: f32::NEG_INFINITY });
            }
            match writer.write(&claims) {
                Ok(()) => written += claims.len() as u64,
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        self.pool.unregister_counters(&writer.counters);
        (written, outcome)
    }
}

const _: () = assert!(PAGE_SIZE == size_of::<PageImage>());
