//! The public face of the log: starting, closing, requests, waiting, checkpoints, statistics.

use crate::{
    append::Appender,
    block::{BLOCK_ALIGN, MAX_BLOCK},
    classes::Classes,
    core::LogCore,
    error::wrong_log,
    flusher::Flusher,
    gsn::epoch_of,
    options::{Clock, LAST_SEGMENT_BYTES, LogOptions, Urgency},
    position::LogStart,
    segment::{files, maker::SegmentMaker, prepare},
    stats::LogStats,
};
use parking_lot::Mutex;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    thread::{self, JoinHandle},
};
use wattle_buffer::{Error, Gsn, LogBarrier, Result, ScopePart, io::LogStorage, scope};

/// The write-ahead log of one store. See the crate's page.
pub struct Log {
    core: Arc<LogCore>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Log {
    /// Starts a log on `storage`. `clock` gives the newest time that was drawn, see
    /// [`Log::durable_mark`].
    pub fn start(
        storage: Arc<dyn LogStorage>,
        options: LogOptions,
        start: LogStart,
        clock: Clock,
    ) -> Result<Arc<Log>> {
        Log::start_after(storage, options, start, clock, Box::new(|| Ok(())))
    }

    /// As [`Log::start`]. A first segment that is left for later
    /// ([`LogOptions::late_first_segment`]) is made after `before_first`, which makes durable what
    /// the log goes on after. A thread of the log calls it, once. If that fails the log has failed.
    pub fn start_after(
        storage: Arc<dyn LogStorage>,
        options: LogOptions,
        start: LogStart,
        clock: Clock,
        before_first: Box<dyn Fn() -> Result<()> + Send>,
    ) -> Result<Arc<Log>> {
        options.check()?;
        let least = [start.segment, start.sequence, start.flush, start.epoch];
        assert!(!least.contains(&0), "numbers of the log begin with 1: {start:?}");
        let (store, first) = (start.store_id, start.segment);
        let late = options.late_first_segment;
        let segments = prepare::prepare(&*storage, store, first, options.segment_bytes, late)?;
        let core = Arc::new(LogCore::new(storage, options, &start, segments, clock));
        if late {
            core.gate.wait_for_first();
        }
        let log = Log { core: Arc::clone(&core), threads: Mutex::default() };
        let helper = Arc::clone(&core);
        log.spawn("log-segments", move || {
            let maker = SegmentMaker {
                segments: &helper.segments,
                storage: &*helper.storage,
                gate: &helper.gate,
                waits: &helper.waits,
                room_timeout: helper.options.room_timeout,
                zeroes: &|| helper.zeroes(),
                before_first: &before_first,
            };
            let result = catch_unwind(AssertUnwindSafe(|| maker.run()));
            helper.segments.helper_ended();
            match result {
                Ok(Ok(())) => {}
                Ok(Err(error)) => helper.poison(error.to_string()),
                Err(panic) => {
                    let why = panic_message(&*panic);
                    helper.poison(format!("making segments of the log panicked: {why}"));
                }
            }
        })?;
        let flusher = Flusher::new(Arc::clone(&core), &start);
        log.spawn("log-flusher", move || {
            let result = catch_unwind(AssertUnwindSafe(|| flusher.run()));
            let why = match result {
                Ok(Ok(())) => return,
                Ok(Err(why)) => why,
                Err(panic) => {
                    format!("the flusher of the log panicked: {}", panic_message(&*panic))
                }
            };
            core.poison(why);
        })?;
        Ok(Arc::new(log))
    }

    fn spawn(&self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = thread::Builder::new().name(name.into()).spawn(body);
        let thread = thread.map_err(|error| Error::io("start a thread of the log", error))?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// An appender for a new worker.
    pub fn appender(self: &Arc<Self>) -> Appender {
        Appender::new(Arc::clone(&self.core))
    }

    /// The current epoch: new records get this one or a later one.
    pub fn epoch(&self) -> u64 {
        self.core.epochs.current()
    }

    /// All records of this epoch and of the epochs before are durable.
    pub fn durable_epoch(&self) -> u64 {
        self.core.epochs.durable()
    }

    /// Number of the last durable flush, at least that of the records of every durable epoch; 0
    /// before the first flush of a new store. A log that ends before it has lost records.
    pub fn durable_flush(&self) -> u64 {
        self.core.epochs.durable_flush()
    }

    /// All sections that noted a time up to this one ([`crate::Section::note_time`]) are durable; 0
    /// before the first flush. A time that was noted in a durable epoch is below the mark, or will
    /// be after the next flush.
    pub fn durable_mark(&self) -> u64 {
        self.core.epochs.durable_mark()
    }

    /// Requests a flush that makes `epoch` durable. Does not wait.
    pub fn request(&self, epoch: u64, urgency: Urgency) {
        self.core.request(epoch, urgency);
    }

    /// Makes all records durable that were appended before the call. Gives their last epoch.
    pub fn flush_now(&self) -> Result<u64> {
        let epoch = self.epoch();
        self.request(epoch, Urgency::Now);
        self.wait_durable(epoch)?;
        Ok(epoch)
    }

    /// Blocks until all records of `epoch` are durable. A [`Log::request`] must have asked for that
    /// epoch.
    ///
    /// Fails with `CommitUnknown` if the log fails, or failed after records of that epoch were
    /// appended, or if no flush ends for too long; with `Poisoned` if it failed before, and no
    /// record of that epoch is durable.
    pub fn wait_durable(&self, epoch: u64) -> Result<()> {
        let _scope = scope(ScopePart::CommitWait);
        self.core.wait_durable(epoch)
    }

    /// The same for a task: `waker` is called when it should poll again.
    pub fn poll_durable(&self, epoch: u64, waker: &Waker) -> Poll<Result<()>> {
        self.core.poll_durable(epoch, waker)
    }

    /// How often the flusher has taken the buffers, for [`Log::poll_flush`].
    pub fn buffers_taken(&self) -> u64 {
        self.core.waits.taken()
    }

    /// Requests a flush, and blocks until it has taken the buffers and the log is not full; or
    /// changes are refused.
    pub fn wait_flush(&self) -> Result<()> {
        let _scope = scope(ScopePart::LogRoomWait);
        self.core.wait_flush()
    }

    /// The same for a task: ready when the buffers were taken more often than `seen`, which is
    /// [`Log::buffers_taken`] from before the first call, and the log is not full; or changes are
    /// refused. The task that has waited longest is woken first: `since` is [`Log::buffers_taken`]
    /// from when it first found no room.
    pub fn poll_flush(&self, seen: u64, since: u64, waker: &Waker) -> Poll<Result<()>> {
        self.core.poll_flush(seen, since, waker)
    }

    /// A future of [`Log::poll_flush`]. A task that still finds no room afterwards passes the same
    /// `since` again, which is `None` at first.
    pub fn next_flush(self: &Arc<Self>, since: &mut Option<u64>) -> NextFlush {
        let seen = self.buffers_taken();
        NextFlush { log: Arc::clone(self), seen, since: *since.get_or_insert(seen) }
    }

    /// Ready when `appender` has room for another operation.
    pub fn poll_room(&self, appender: &Appender, waker: &Waker) -> Poll<Result<()>> {
        loop {
            let seen = self.buffers_taken();
            if appender.check_room()? {
                return Poll::Ready(Ok(()));
            }
            match self.poll_flush(seen, seen, waker) {
                Poll::Ready(Ok(())) => {}
                other => return other,
            }
        }
    }

    /// Begins a checkpoint: waits for a cut, and gives the first epoch after it. From that epoch
    /// on, the first change of a page that was last changed before needs its image in the log.
    pub fn begin_checkpoint(&self) -> Result<u64> {
        self.begin_checkpoint_of(Classes::ALL)
    }

    /// Whether changes log images, see [`crate::LogOptions::page_images`].
    pub fn has_page_images(&self) -> bool {
        self.core.epochs.has_images()
    }

    /// As [`Log::begin_checkpoint`], for the pages of some classes, at least one. The others are
    /// asked for images as before.
    pub fn begin_checkpoint_of(&self, classes: Classes) -> Result<u64> {
        assert!(!classes.is_empty(), "a checkpoint of no page has no cut");
        self.core.begin_checkpoint(classes)
    }

    /// The segment in which reading must begin to see all records of `epoch` and later ones.
    pub fn segment_of(&self, epoch: u64) -> u64 {
        self.core.segments.segment_of(epoch)
    }

    /// Records of epochs below `keep_epoch` are no longer needed: the log soon retires the segments
    /// that hold only such records.
    pub fn truncate(&self, keep_epoch: u64) {
        self.truncate_before(self.segment_of(keep_epoch));
    }

    /// The log soon retires the segments below this one. For a caller that has durably stored where
    /// reading begins: later, [`Log::segment_of`] may give a later segment for the same epoch.
    pub fn truncate_before(&self, segment: u64) {
        self.core.segments.truncate_before(segment);
    }

    /// Whether the device has no room for another segment, so that new changes wait or are refused
    /// ([`Appender::check_room`]).
    pub fn is_full(&self) -> bool {
        self.core.gate.is_full()
    }

    /// The reason why the next segment cannot be made, mostly that the device has no room; `None`
    /// while it can.
    pub fn why_full(&self) -> Option<std::io::Error> {
        self.core.segments.shortage_error()
    }

    /// Whether the log has retired all segments that it need not keep.
    pub fn is_truncated(&self) -> bool {
        self.core.segments.is_truncated()
    }

    /// Whether the log is full although it has retired all segments that it may.
    pub fn is_stuck(&self) -> bool {
        self.core.segments.is_stuck()
    }

    /// Whether the log is full and changes are refused.
    pub fn refuses_changes(&self) -> bool {
        self.core.gate.refuses()
    }

    /// Refuses changes while the log is full, without the room timeout: for a caller that knows
    /// that no room will come.
    pub fn refuse_changes(&self) {
        self.core.refuse_changes();
    }

    /// Bytes of a segment: as [`LogOptions::segment_bytes`] says, or less where the device has
    /// little room.
    pub fn segment_bytes(&self) -> u64 {
        self.core.segments.segment_bytes()
    }

    /// The oldest segment that is kept; 0 before the first flush.
    pub fn oldest_segment(&self) -> u64 {
        self.core.segments.oldest()
    }

    /// Checks that the segments that are needed are there and whole ([`LogStorage::check`]).
    pub fn check_segments(&self) -> std::io::Result<()> {
        self.core.segments.check(&*self.core.storage)
    }

    /// Bytes of all segments that are kept.
    pub fn bytes_kept(&self) -> u64 {
        self.core.segments.bytes_kept()
    }

    /// Counters since the log was started.
    pub fn stats(&self) -> LogStats {
        self.core.counters.stats(self.core.segments.count())
    }

    /// Bytes written to the device so far, as in [`Log::stats`].
    pub fn bytes_written(&self) -> u64 {
        self.core.counters.bytes_written()
    }

    /// Why the log failed, if it did.
    pub fn is_poisoned(&self) -> Option<String> {
        self.core.waits.poisoned()
    }

    /// From now on a flush that finds no room fails, and the log with it, and changes are refused,
    /// instead of waiting for room. For a caller that is about to wait for operations that may wait
    /// for that flush, and to close the log.
    pub fn stop_waiting(&self) {
        self.core.stop_waiting();
    }

    /// While a store is being opened, a flush that finds no room waits as long as changes do. Then
    /// it fails, and the log with it, because no checkpoint can make room yet.
    pub fn set_opening(&self, opening: bool) {
        self.core.segments.set_opening(opening);
    }

    /// The next checkpoint begins in a new segment, the last one, which takes little room. For a
    /// caller that appends nothing from now on, and closes the log after that checkpoint. If that
    /// segment cannot be made, the checkpoint goes into the current one.
    ///
    /// # Errors
    /// The log failed.
    pub fn end_in_small_segment(&self) -> Result<()> {
        // Empty cuts use up the rest of a segment in which the last flush may not fit.
        for _ in 0..=MAX_BLOCK / BLOCK_ALIGN {
            if self.is_full() || self.core.segments.rest() >= MAX_BLOCK as u64 {
                break;
            }
            self.begin_checkpoint()?;
        }
        self.core.segments.make_last(LAST_SEGMENT_BYTES);
        Ok(())
    }

    /// Waits until the log has a segment, for a caller that needs a flush without a change.
    ///
    /// # Errors
    /// The segment cannot be made, or the log failed.
    pub fn wait_begun(&self) -> Result<()> {
        while self.core.gate.is_unbegun() {
            if !self.core.check_gate()? {
                self.wait_flush()?;
            }
        }
        Ok(())
    }

    /// Whether the log has no segment yet ([`LogOptions::late_first_segment`]).
    pub fn is_unbegun(&self) -> bool {
        self.core.gate.is_unbegun()
    }

    /// Whether a flush has written anything since the log was started.
    pub fn has_written(&self) -> bool {
        self.core.counters.bytes_written() > 0
    }

    /// Flushes all records and ends the threads. Fails if the log is poisoned, by this or before.
    /// No appender may append afterwards; closing twice is fine.
    pub fn close(&self) -> Result<()> {
        self.core.request_close();
        let mut threads = self.threads.lock();
        // The flusher first: it may still need a segment.
        while let Some(thread) = threads.pop() {
            if threads.is_empty() {
                self.core.segments.end_helper();
            }
            // A waker that owned the last handle may be dropped on one of these threads.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
        match self.is_poisoned() {
            Some(why) => Err(Error::Poisoned(why)),
            None => Ok(()),
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "the log was not closed in order");
        }
    }
}

impl LogBarrier for Log {
    fn give_room_back(&self) -> bool {
        files::give_back(&*self.core.storage, true)
    }

    fn ensure_durable(&self, gsn: Gsn) -> Result<()> {
        let epoch = epoch_of(gsn);
        if self.durable_epoch() >= epoch {
            return Ok(());
        }
        let current = self.epoch();
        if epoch > current + 1 {
            let why = format!("a page of epoch {epoch} is ahead of the log, at epoch {current}");
            return Err(wrong_log(why));
        }
        self.request(epoch, Urgency::Now);
        self.wait_durable(epoch).map_err(|error| match error {
            Error::CommitUnknown(why) => Error::Poisoned(why),
            other => other,
        })
    }
}

/// Completes when the next flush has taken the buffers and the log is not full, or changes are
/// refused.
pub struct NextFlush {
    log: Arc<Log>,
    seen: u64,
    since: u64,
}

impl Future for NextFlush {
    type Output = Result<()>;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.log.poll_flush(self.seen, self.since, cx.waker())
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}
