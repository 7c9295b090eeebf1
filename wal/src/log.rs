//! The public face of the log: starting, closing, requests, checkpoints, statistics. Waiting is in
//! `wait`; what the threads share is in `shared`.

use crate::{
    append::{Appender, epoch_of},
    flusher::Flusher,
    segment::{self, Segments},
    shared::{Clock, Shared},
    stats::LogStats,
};
use parking_lot::Mutex;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering},
    thread::{self, JoinHandle},
    time::Duration,
};
use wattle_buffer::{Error, Gsn, LogBarrier, Result, ask_for_short_turns, io::LogStorage};

/// Smallest size of a segment.
pub const MIN_SEGMENT_BYTES: u64 = 128 << 10;
/// Largest size of a segment: its places fit 32 bits of pages many times over, and making one ahead
/// should not take long.
pub const MAX_SEGMENT_BYTES: u64 = 1 << 30;
/// How the log works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// Bytes of a segment: a multiple of 4096, from 128 KiB to 1 GiB. Default 16 MiB. Segments are smaller where
    /// the device has little room.
    pub segment_bytes: u64,
    /// Longest time that [`Urgency::Soon`] lets a request wait for company; five times as long while nobody
    /// waits for flushes and no processors are to spare. Default 1 ms.
    pub group_delay: Duration,
    /// Pages are logged in full at their first change after a checkpoint
    /// ([`crate::Section::needs_image`]), against devices that may tear them. Default true.
    pub page_images: bool,
    /// How long changes wait for room, while the device has none for another segment, before they are
    /// refused. Default: not at all.
    pub patience: Duration,
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions {
            segment_bytes: 16 << 20,
            group_delay: Duration::from_millis(1),
            page_images: true,
            patience: Duration::ZERO,
        }
    }
}

/// Where the log goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogStart {
    /// Number of the store, in every block: a log is not taken for another one's.
    pub store_id: u64,
    /// First segment to make; higher ones that were prepared are removed.
    pub segment: u64,
    /// Sequence of the next block.
    pub sequence: u64,
    /// Number of the next flush.
    pub flush: u64,
    /// Epoch of the first new records, at least 1 and above that of every record there is.
    pub epoch: u64,
    /// Epoch of the last checkpoint, see [`crate::Section::needs_image`].
    pub image_epoch: u64,
}

impl Default for LogStart {
    /// A new store.
    fn default() -> Self {
        LogStart { store_id: 0, segment: 1, sequence: 1, flush: 1, epoch: 1, image_epoch: 1 }
    }
}

/// How soon a request wants its flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// As soon as the device is free.
    Now,
    /// After a short while, so that others come along.
    Soon,
}

/// The write-ahead log of one store. See the crate's page.
pub struct Log {
    shared: Arc<Shared>,
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
        let bytes = options.segment_bytes;
        let limits = MIN_SEGMENT_BYTES..=MAX_SEGMENT_BYTES;
        if !limits.contains(&bytes) || !bytes.is_multiple_of(crate::block::BLOCK_ALIGN as u64) {
            let what = format!(
                "a log segment has {MIN_SEGMENT_BYTES} to {MAX_SEGMENT_BYTES} bytes, \
                 a multiple of 4096, not {bytes}"
            );
            return Err(Error::InvalidOption(what));
        }
        let least = [start.segment, start.sequence, start.flush, start.epoch];
        assert!(!least.contains(&0), "numbers of the log begin with 1: {start:?}");
        let (segments, segment_bytes) =
            Segments::prepare(&*storage, start.store_id, start.segment, bytes)?;
        let options = LogOptions { segment_bytes, ..options };
        let shared = Arc::new(Shared::new(storage, options, &start, segments, clock));
        let log = Log { shared: Arc::clone(&shared), threads: Mutex::default() };
        let helper = Arc::clone(&shared);
        log.spawn("log-segments", move || {
            let result = catch_unwind(AssertUnwindSafe(|| segment::run(&helper)));
            helper.segments.helper_ended();
            if let Err(panic) = result {
                helper.poison(format!("making segments of the log panicked: {}", said(&*panic)));
            }
        })?;
        let flusher = Flusher::new(Arc::clone(&shared), &start);
        log.spawn("log-flusher", move || {
            // All who commit wait for it, and it sleeps while the device works.
            ask_for_short_turns();
            let result = catch_unwind(AssertUnwindSafe(|| flusher.run()));
            let why = match result {
                Ok(Ok(())) => return,
                Ok(Err(why)) => why,
                Err(panic) => format!("the flusher of the log panicked: {}", said(&*panic)),
            };
            shared.poison(why);
        })?;
        Ok(Arc::new(log))
    }

    fn spawn(&self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = thread::Builder::new().name(name.into()).spawn(body);
        let thread = thread.map_err(|error| Error::io("start a thread of the log", error))?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// A new worker's end of the log.
    pub fn appender(self: &Arc<Self>) -> Appender {
        let slot = self.shared.new_slot();
        Appender::new(Arc::clone(&self.shared), slot)
    }

    /// The current epoch: new records get this one or a later one.
    pub fn epoch(&self) -> u64 {
        self.shared.epoch.load(Ordering::Acquire)
    }

    /// All records of this epoch and of those before it are durable.
    pub fn durable_epoch(&self) -> u64 {
        self.shared.durable_epoch.load(Ordering::Acquire)
    }

    /// Number of the last flush that is durable, at least that of the records of every durable epoch;
    /// 0 before the first one of a new store. A log that ends before it has lost something.
    pub fn durable_flush(&self) -> u64 {
        self.shared.durable_flush.load(Ordering::Acquire)
    }

    /// Everything that was noted with a time up to this one ([`crate::Section::note_time`]) is
    /// durable; 0 before the first flush. A time that is noted in a durable epoch is below the mark
    /// then, or after the next flush.
    pub fn durable_mark(&self) -> u64 {
        self.shared.durable_mark.load(Ordering::Acquire)
    }

    /// Asks for a flush that makes `epoch` durable. Does not wait.
    pub fn request(&self, epoch: u64, urgency: Urgency) {
        self.shared.request(epoch, urgency);
    }

    /// Makes everything durable that was appended before the call; gives the last epoch of it.
    pub fn flush_now(&self) -> Result<u64> {
        let epoch = self.epoch();
        self.request(epoch, Urgency::Now);
        self.wait_durable(epoch)?;
        Ok(epoch)
    }

    /// Begins a checkpoint: waits for a cut, and gives the first epoch behind it. From that epoch
    /// on, the first change of a page that was last changed before needs its image in the log.
    pub fn begin_checkpoint(&self) -> Result<u64> {
        let before = self.shared.ask_for_checkpoint();
        self.shared.waits.for_checkpoint(before)
    }

    /// The segment in which reading must begin to see all records of `epoch` and later ones.
    pub fn segment_of(&self, epoch: u64) -> u64 {
        self.shared.segments.segment_of(epoch)
    }

    /// Records of epochs below `keep_epoch` are not needed any more: the segments that hold nothing
    /// else are removed soon.
    pub fn truncate(&self, keep_epoch: u64) {
        self.truncate_before(self.segment_of(keep_epoch));
    }

    /// Segments below this one are not needed any more, and are removed soon. For whoever has noted
    /// durably where reading begins: later, [`Log::segment_of`] may give a later segment for the same
    /// epoch.
    pub fn truncate_before(&self, segment: u64) {
        self.shared.segments.truncate_before(segment);
    }

    /// Whether there is no room on the device for another segment just now, so that new changes wait or are
    /// refused ([`Appender::check_room`]).
    pub fn is_full(&self) -> bool {
        self.shared.is_full()
    }

    /// Why another segment cannot be made just now, if that is so: mostly there is no room on the device.
    pub fn why_full(&self) -> Option<std::io::Error> {
        self.shared.segments.refusal()
    }

    /// Whether all segments are given up that need not be kept.
    pub fn is_truncated(&self) -> bool {
        self.shared.segments.is_truncated()
    }

    /// Whether the log is full, and was found so after all segments were given up that it was told to.
    pub fn is_stuck(&self) -> bool {
        self.shared.segments.is_stuck()
    }

    /// Whether the log is full and changes are refused.
    pub fn refuses_changes(&self) -> bool {
        self.shared.refuses_changes()
    }

    /// Refuses changes while the log is full, whatever the patience: for who knows that there will be no room.
    pub fn refuse_changes(&self) {
        self.shared.refuse_changes();
    }

    /// Bytes of a segment: as [`LogOptions::segment_bytes`] says, or less where the device has little room.
    pub fn segment_bytes(&self) -> u64 {
        self.shared.options.segment_bytes
    }

    /// The oldest segment that is kept; 0 before the first flush.
    pub fn oldest_segment(&self) -> u64 {
        self.shared.segments.oldest()
    }

    /// Looks whether the segments that are needed are there, and whole ([`LogStorage::check`]).
    pub fn check_segments(&self) -> std::io::Result<()> {
        self.shared.segments.check(&*self.shared.storage)
    }

    /// Bytes of all segments that are kept.
    pub fn bytes_kept(&self) -> u64 {
        self.shared.segments.count() * self.shared.options.segment_bytes
    }

    /// What the log has done so far.
    pub fn stats(&self) -> LogStats {
        let segments = self.shared.segments.count();
        let stats = self.shared.stats.lock();
        LogStats {
            segments,
            sync_min_ns: stats.1.min_ns(),
            sync_median_ns: stats.1.median_ns(),
            ..stats.0
        }
    }

    /// Bytes written to the device so far, as in [`Log::stats`].
    pub fn bytes_written(&self) -> u64 {
        self.shared.stats.lock().0.bytes_written
    }

    /// Why the log takes nothing any more, if it failed.
    pub fn is_poisoned(&self) -> Option<String> {
        self.shared.waits.poisoned()
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// From now on a flush that finds no room fails, and the log with it, and changes are refused, instead of
    /// waiting for room:
    /// for whoever is about to wait for others that may wait for that flush, and to close the log.
    pub fn stop_waiting(&self) {
        self.shared.stop_waiting();
    }

    /// While a store is being opened, a flush that finds no room waits for it as long as changes do, and then
    /// fails, and the log with it: nobody is there yet who could make room.
    pub fn set_opening(&self, opening: bool) {
        self.shared.segments.set_opening(opening);
    }

    /// Flushes everything and ends the threads. Fails if the log was poisoned before, or is by
    /// this. Nothing may be appended any more; closing twice is fine.
    pub fn close(&self) -> Result<()> {
        self.shared.ask_to_close();
        let mut threads = self.threads.lock();
        // The flusher goes first: it may still need a segment.
        while let Some(thread) = threads.pop() {
            if threads.is_empty() {
                self.shared.segments.end_helper();
            }
            // A waker that owned the last handle may be dropped on one of the threads.
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
        segment::give_back(&*self.shared.storage, true)
    }

    fn ensure_durable(&self, gsn: Gsn) -> Result<()> {
        let epoch = epoch_of(gsn);
        if self.durable_epoch() >= epoch {
            return Ok(());
        }
        let current = self.epoch();
        if epoch > current + 1 {
            let why = format!("a page of epoch {epoch} is ahead of the log, at epoch {current}");
            return Err(crate::reader::wrong_log(why));
        }
        self.request(epoch, Urgency::Now);
        self.wait_durable(epoch).map_err(|error| match error {
            Error::CommitUnknown(why) => Error::Poisoned(why),
            other => other,
        })
    }
}

fn said(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}
