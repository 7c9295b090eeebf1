//! The log: what appenders, flusher, helper and those who wait share, and the public face of it.
//!
//! Order of locks: `slots`, the buffer of an appender, `signal`, `stats`; `waits` and the state of
//! the segments by themselves. Wakers are called with nothing locked.
//!
//! Invariants: only the flusher advances the epoch (poisoning does, when it is done for), and
//! under `signal`; `durable_epoch` is below `epoch`, ascends, and is stored after the mark that
//! belongs to it.

use crate::{
    append::{Appender, Slot, epoch_of},
    flusher::Flusher,
    segment::{self, Segments},
    stats::{LogStats, SyncTimes},
    wait::Waits,
};
use parking_lot::{Condvar, Mutex};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use wattle_buffer::{Error, Gsn, LogBarrier, Result, io::LogStorage};

/// Smallest size of a segment.
pub const MIN_SEGMENT_BYTES: u64 = 128 << 10;
/// Largest size of a segment: its places fit 32 bits of pages many times over, and making one ahead
/// should not take long.
pub const MAX_SEGMENT_BYTES: u64 = 1 << 30;
/// Nothing stays in a buffer for longer, even if nobody asks.
pub const IDLE_FLUSH: Duration = Duration::from_millis(100);
/// Bytes of all buffers together before appenders are told to wait, as far as
/// [`MIN_BUFFER`] and [`MAX_BUFFER`] for each allow it.
pub const BUFFER_BYTES: usize = 8 << 20;
/// Least soft limit of one buffer.
pub const MIN_BUFFER: usize = 32 << 10;
/// Largest soft limit of one buffer.
pub const MAX_BUFFER: usize = 1 << 20;

/// Bits of the status word, which is 0 as long as everything is well.
pub(crate) mod status {
    pub const POISONED: u32 = 1;
    pub const FULL: u32 = 2;
    pub const CLOSED: u32 = 4;
}

/// How the log works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// Bytes of a segment: a multiple of 4096, from 128 KiB to 1 GiB. Default 16 MiB.
    pub segment_bytes: u64,
    /// Longest time that [`Urgency::Soon`] lets a request wait for company. Default 1 ms.
    pub group_delay: Duration,
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions { segment_bytes: 16 << 20, group_delay: Duration::from_millis(1) }
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

type Clock = Box<dyn Fn() -> u64 + Send + Sync>;

/// Everything that several threads of the log use.
pub(crate) struct Shared {
    pub epoch: AtomicU64,
    pub image_epoch: AtomicU64,
    pub status: AtomicU32,
    pub durable_epoch: AtomicU64,
    pub durable_mark: AtomicU64,
    soft_limit: AtomicUsize,
    /// A GSN whose counter is about to run into the epoch.
    running_over: AtomicU64,
    requested_now: AtomicU64,
    requested_soon: AtomicU64,
    signal: Mutex<Signal>,
    wake: Condvar,
    pub waits: Waits,
    slots: Mutex<Vec<Arc<Slot>>>,
    next_worker: AtomicU32,
    pub segments: Segments,
    pub stats: Mutex<(LogStats, SyncTimes)>,
    pub storage: Arc<dyn LogStorage>,
    pub options: LogOptions,
    pub clock: Clock,
}

/// What the flusher sleeps on.
#[derive(Default)]
struct Signal {
    closing: bool,
    checkpoint: bool,
    /// When the first of those who asked for `Soon` must have their flush.
    soon: Option<Instant>,
}

/// What a cut begins with.
pub(crate) struct Cut {
    /// Records of this epoch and of those before it are in.
    pub epoch: u64,
    /// A checkpoint begins behind it.
    pub checkpoint: bool,
}

/// The write-ahead log of one store. See the crate's page.
pub struct Log {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Log {
    /// Starts a log on `storage`. `clock` is asked before each cut; [`Log::durable_mark`] gives the
    /// answer once the cut is durable.
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
        let segments = Segments::prepare(&*storage, start.store_id, start.segment, bytes)?;
        let shared = Arc::new(Shared {
            epoch: AtomicU64::new(start.epoch),
            image_epoch: AtomicU64::new(start.image_epoch),
            status: AtomicU32::new(0),
            durable_epoch: AtomicU64::new(start.epoch - 1),
            durable_mark: AtomicU64::new(0),
            soft_limit: AtomicUsize::new(MAX_BUFFER),
            running_over: AtomicU64::new(0),
            requested_now: AtomicU64::new(0),
            requested_soon: AtomicU64::new(0),
            signal: Mutex::default(),
            wake: Condvar::new(),
            waits: Waits::new(start.image_epoch),
            slots: Mutex::default(),
            next_worker: AtomicU32::new(0),
            segments,
            stats: Mutex::default(),
            storage,
            options,
            clock,
        });
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
        let slot = Arc::new(Slot {
            worker: self.shared.next_worker.fetch_add(1, Ordering::Relaxed),
            buffer: Mutex::default(),
            filled: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        });
        let mut slots = self.shared.slots.lock();
        slots.push(Arc::clone(&slot));
        self.shared.limit_for(slots.len());
        drop(slots);
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

    /// What the clock said before the cut of the last durable flush began; 0 before the first.
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
        let before = {
            let mut signal = self.shared.signal.lock();
            signal.checkpoint = true;
            self.shared.wake.notify_one();
            self.shared.image_epoch.load(Ordering::Relaxed)
        };
        self.shared.waits.for_checkpoint(before)
    }

    /// The segment in which reading must begin to see all records of `epoch` and later ones.
    pub fn segment_of(&self, epoch: u64) -> u64 {
        self.shared.segments.segment_of(epoch)
    }

    /// Records of epochs below `keep_epoch` are not needed any more: the segments that hold nothing
    /// else are removed soon.
    pub fn truncate(&self, keep_epoch: u64) {
        self.shared.segments.truncate(keep_epoch);
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

    /// Why the log takes nothing any more, if it failed.
    pub fn is_poisoned(&self) -> Option<String> {
        self.shared.waits.poisoned()
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Flushes everything and ends the threads. Fails if the log was poisoned before, or is by
    /// this. Nothing may be appended any more; closing twice is fine.
    pub fn close(&self) -> Result<()> {
        self.shared.set_status(status::CLOSED);
        self.shared.signal.lock().closing = true;
        self.shared.wake.notify_one();
        self.shared.segments.no_more_waiting();
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

impl Shared {
    pub(crate) fn soft_limit(&self) -> usize {
        self.soft_limit.load(Ordering::Relaxed)
    }

    fn limit_for(&self, appenders: usize) {
        let limit = (BUFFER_BYTES / appenders.max(1)).clamp(MIN_BUFFER, MAX_BUFFER);
        self.soft_limit.store(limit, Ordering::Relaxed);
    }

    pub(crate) fn set_status(&self, bit: u32) {
        self.status.fetch_or(bit, Ordering::Relaxed);
    }

    pub(crate) fn clear_status(&self, bit: u32) {
        self.status.fetch_and(!bit, Ordering::Relaxed);
    }

    /// What a status that is not 0 means to new changes.
    #[cold]
    pub(crate) fn check_status(&self) -> Result<()> {
        if let Some(why) = self.waits.poisoned() {
            return Err(Error::Poisoned(why));
        }
        if self.status.load(Ordering::Relaxed) & status::CLOSED != 0 {
            return Err(Error::Closed);
        }
        self.segments.error().map_or(Ok(()), Err)
    }

    pub(crate) fn request(&self, epoch: u64, urgency: Urgency) {
        if self.durable_epoch.load(Ordering::Relaxed) >= epoch {
            return;
        }
        let requested = match urgency {
            Urgency::Now => &self.requested_now,
            Urgency::Soon => &self.requested_soon,
        };
        // Whoever raised it to this epoch wakes the flusher. Ordered by `signal` with its look.
        if requested.fetch_max(epoch, Ordering::Relaxed) >= epoch {
            return;
        }
        let mut signal = self.signal.lock();
        if self.epoch.load(Ordering::Relaxed) > epoch {
            // The cut that takes it is under way.
            return;
        }
        if urgency == Urgency::Soon {
            if signal.soon.is_some() {
                return;
            }
            signal.soon = Some(Instant::now() + self.group_delay());
        }
        drop(signal);
        self.wake.notify_one();
    }

    /// Waiting for company for longer than a sync takes is never worth it.
    fn group_delay(&self) -> Duration {
        let median = Duration::from_nanos(self.stats.lock().1.median_ns());
        if median.is_zero() {
            self.options.group_delay
        } else {
            self.options.group_delay.min(median)
        }
    }

    /// A buffer is half full.
    #[cold]
    pub(crate) fn wake_for(&self, epoch: u64) {
        self.request(epoch, Urgency::Now);
    }

    /// The counter of a GSN has used half of its bits: the next cut leaves an epoch out, so that it
    /// cannot run into one that is used.
    #[cold]
    pub(crate) fn counter_runs_over(&self, gsn: Gsn) {
        self.running_over.fetch_max(gsn.0, Ordering::Relaxed);
        self.request(epoch_of(gsn), Urgency::Now);
    }

    /// The flusher sleeps until there is a reason to flush. Gives whether it is the last flush.
    pub(crate) fn wait_for_reason(&self) -> bool {
        let mut tick = Instant::now() + IDLE_FLUSH;
        let mut signal = self.signal.lock();
        loop {
            if signal.closing {
                return true;
            }
            let epoch = self.epoch.load(Ordering::Relaxed);
            if signal.checkpoint || self.requested_now.load(Ordering::Relaxed) >= epoch {
                return false;
            }
            let now = Instant::now();
            if signal.soon.is_some_and(|soon| soon <= now) {
                return false;
            }
            if tick <= now {
                tick = now + IDLE_FLUSH;
                // No appender holds its buffer and waits for `signal` and `slots` at once.
                drop(signal);
                if self.anything_buffered() {
                    return false;
                }
                signal = self.signal.lock();
                continue;
            }
            let until = signal.soon.map_or(tick, |soon| soon.min(tick));
            self.wake.wait_until(&mut signal, until);
        }
    }

    fn anything_buffered(&self) -> bool {
        let slots = self.slots.lock();
        slots.iter().any(|slot| slot.filled.load(Ordering::Relaxed) > 0)
    }

    /// Advances the epoch; whoever begins a section from now on is behind the cut.
    pub(crate) fn cut(&self) -> Cut {
        let mut signal = self.signal.lock();
        signal.soon = None;
        let checkpoint = std::mem::take(&mut signal.checkpoint);
        let current = self.epoch.load(Ordering::Relaxed);
        let over = self.running_over.swap(0, Ordering::Relaxed);
        let next = if over == 0 { current + 1 } else { (epoch_of(Gsn(over)) + 2).max(current + 1) };
        if checkpoint {
            // Before the epoch: whoever reads that one reads this.
            self.image_epoch.store(next, Ordering::Relaxed);
        }
        self.epoch.store(next, Ordering::Release);
        Cut { epoch: next - 1, checkpoint }
    }

    /// Takes the records of all epochs up to `cut` out of all buffers, and forgets appenders that
    /// are gone.
    pub(crate) fn take_buffers(
        &self,
        cut: u64,
        spares: &mut Vec<Vec<u8>>,
        taken: &mut Vec<(u32, Vec<u8>)>,
    ) {
        let mut slots = self.slots.lock();
        let (mut bytes, mut commits, mut images) = (0, 0, 0);
        slots.retain(|slot| {
            let closed = slot.closed.load(Ordering::Acquire);
            let mut buffer = slot.buffer.lock();
            let records = buffer.take(cut, spares.pop().unwrap_or_default());
            slot.filled.store(buffer.bytes.len(), Ordering::Relaxed);
            let counts = std::mem::take(&mut buffer.counts);
            let empty = buffer.bytes.is_empty();
            drop(buffer);
            (commits, images) = (commits + counts.commits, images + counts.image_bytes);
            bytes += records.len() as u64;
            if records.is_empty() {
                spares.push(records);
            } else {
                taken.push((slot.worker, records));
            }
            !(closed && empty)
        });
        self.limit_for(slots.len());
        drop(slots);
        let stats = &mut self.stats.lock().0;
        stats.record_bytes += bytes;
        stats.commits += commits;
        stats.image_bytes += images;
    }

    /// A write or a sync of the log failed, or one of its threads did: nothing will be durable any
    /// more.
    pub(crate) fn poison(&self, why: String) {
        tracing::error!(why, "the log is poisoned");
        self.set_status(status::POISONED);
        // What was appended before now may be durable or not; what comes later is not.
        let unknown = {
            let _signal = self.signal.lock();
            self.epoch.fetch_add(1, Ordering::Release)
        };
        self.waits.poison(why, unknown);
    }

    /// Everything up to the cut is durable.
    pub(crate) fn publish(&self, cut: &Cut, mark: u64) {
        self.durable_mark.store(mark, Ordering::Release);
        self.waits.publish(cut, &self.durable_epoch);
    }
}

fn said(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}
