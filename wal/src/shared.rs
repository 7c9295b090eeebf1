//! What appenders, flusher, helper and those who wait share.
//!
//! Order of locks: `slots`, the buffer of an appender, `signal`, `stats`; `waits` by itself, the state of
//! the segments by itself or under `slots`. Wakers are called with nothing locked.
//!
//! Invariants: only the flusher advances the epoch (poisoning does, when it is done for), and
//! under `signal`; `durable_epoch` is below `epoch`, ascends, and is stored after the mark that
//! belongs to it.

use crate::{
    append::{Slot, epoch_of},
    log::{LogOptions, LogStart, Urgency},
    record::Base,
    segment::{Segments, standstill},
    stats::{LogStats, SyncTimes},
    wait::Waits,
};
use parking_lot::{Condvar, Mutex};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use wattle_buffer::{
    Error, Gsn, Result,
    io::{LogStorage, Zeroes},
};

/// Nothing stays in a buffer for longer, even if nobody asks.
pub const IDLE_FLUSH: Duration = Duration::from_millis(100);
/// Least time that a request for `Soon` waits for company, unless the option says less: a flush takes
/// some 25 us of a core, whatever the device takes.
const LEAST_DELAY: Duration = Duration::from_micros(150);
/// The same when at least as many append as there are processors, divided by their number: that time is taken
/// from theirs.
const BUSY_DELAY: Duration = Duration::from_millis(2);
/// Both that and the option are so many times as long, if nobody stands still meanwhile: what a flush costs is then
/// all that counts.
const UNWAITED: u32 = 5;
/// A flush does not wait for fewer than this to come back.
const LEAST_COMPANY: usize = 4;
/// Nor for longer than this, or a sync.
const COMPANY_DELAY: Duration = Duration::from_micros(200);
/// Bytes of all buffers together before appenders are told to wait, or a quarter of a segment if that is less;
/// as far as [`MIN_BUFFER`] and [`MAX_BUFFER`] for each allow it.
pub const BUFFER_BYTES: usize = 4 << 20;
/// Least soft limit of one buffer, or a sixteenth of a segment if that is less.
pub const MIN_BUFFER: usize = 32 << 10;
/// Largest soft limit of one buffer.
pub const MAX_BUFFER: usize = 2 << 20;
/// An operation that begins just below the soft limit mostly takes no more than this: a split with the images
/// of its pages.
const OVERSHOOT: usize = 16 << 10;
/// Most segments that are kept in reserve.
const MAX_RESERVE: usize = 8;
/// A buffer with so much in it, or half of what it may have, asks for a flush.
pub(crate) const FULL_ENOUGH: usize = 256 << 10;

/// Bits of the status word, which is 0 as long as everything is well.
pub(crate) mod status {
    pub const POISONED: u32 = 1;
    /// There is no room for the next segment: changes wait.
    pub const FULL: u32 = 2;
    pub const CLOSED: u32 = 4;
    /// Together with `FULL`: they are refused.
    pub const REFUSED: u32 = 8;
}

pub(crate) type Clock = Box<dyn Fn() -> u64 + Send + Sync>;

/// Everything that several threads of the log use.
pub(crate) struct Shared {
    pub epoch: AtomicU64,
    pub image_epoch: AtomicU64,
    /// The epoch that the last checkpoint began, with images or without.
    checkpoint_epoch: AtomicU64,
    pub status: AtomicU32,
    pub durable_epoch: AtomicU64,
    /// The last flush that is durable; stored before the epochs that it makes durable.
    pub durable_flush: AtomicU64,
    pub durable_mark: AtomicU64,
    soft_limit: AtomicUsize,
    /// How many buffers the last cut found something in.
    appending: AtomicUsize,
    processors: usize,
    /// A GSN whose counter is about to run into the epoch.
    running_over: AtomicU64,
    requested_now: AtomicU64,
    requested_soon: AtomicU64,
    /// The flusher waits until so many wait for it; 0: it does not.
    enough: AtomicUsize,
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

/// What a flush takes out of one buffer.
pub(crate) struct Taken {
    pub worker: u32,
    pub base: Base,
    pub records: Vec<u8>,
}

impl Shared {
    pub(crate) fn new(
        storage: Arc<dyn LogStorage>,
        options: LogOptions,
        start: &LogStart,
        segments: Segments,
        clock: Clock,
    ) -> Shared {
        Shared {
            epoch: AtomicU64::new(start.epoch),
            image_epoch: AtomicU64::new(if options.page_images { start.image_epoch } else { 0 }),
            checkpoint_epoch: AtomicU64::new(start.image_epoch),
            status: AtomicU32::new(0),
            durable_epoch: AtomicU64::new(start.epoch - 1),
            durable_flush: AtomicU64::new(start.flush - 1),
            durable_mark: AtomicU64::new(0),
            soft_limit: AtomicUsize::new(MAX_BUFFER),
            appending: AtomicUsize::new(0),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            running_over: AtomicU64::new(0),
            requested_now: AtomicU64::new(0),
            requested_soon: AtomicU64::new(0),
            enough: AtomicUsize::new(0),
            signal: Mutex::default(),
            wake: Condvar::new(),
            waits: Waits::new(start.image_epoch, 2 * standstill(options.patience)),
            slots: Mutex::default(),
            next_worker: AtomicU32::new(0),
            segments,
            stats: Mutex::default(),
            storage,
            options,
            clock,
        }
    }

    /// Registers a new appender's buffer.
    pub(crate) fn new_slot(&self) -> Arc<Slot> {
        let slot = Arc::new(Slot {
            worker: self.next_worker.fetch_add(1, Ordering::Relaxed),
            buffer: Default::default(),
            filled: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        });
        let mut slots = self.slots.lock();
        slots.push(Arc::clone(&slot));
        self.limit_for(slots.len());
        slot
    }

    /// Asks for a checkpoint; gives the epoch of the one before.
    pub(crate) fn ask_for_checkpoint(&self) -> u64 {
        let mut signal = self.signal.lock();
        signal.checkpoint = true;
        self.wake.notify_one();
        self.checkpoint_epoch.load(Ordering::Relaxed)
    }

    /// Asks for the last flush.
    pub(crate) fn ask_to_close(&self) {
        self.set_status(status::CLOSED);
        self.signal.lock().closing = true;
        self.wake.notify_one();
        self.stop_waiting();
    }

    /// Nobody waits for room of the device any more.
    pub(crate) fn stop_waiting(&self) {
        self.segments.no_more_waiting();
        self.refuse_changes();
    }

    /// While the log is full, changes are refused.
    pub(crate) fn refuse_changes(&self) {
        if self.segments.while_full(|| self.set_status(status::REFUSED)) {
            self.waits.room_changed();
        }
    }

    pub(crate) fn soft_limit(&self) -> usize {
        self.soft_limit.load(Ordering::Relaxed)
    }

    /// Sets what depends on the number of appenders; the lock of `slots` is held.
    fn limit_for(&self, appenders: usize) {
        // While a sync takes milliseconds a thread appends more than a megabyte.
        let (appenders, segment) = (appenders.max(1), self.options.segment_bytes as usize);
        let all = BUFFER_BYTES.min(segment / 4);
        let limit = (all / appenders).clamp(MIN_BUFFER.min(segment / 16), MAX_BUFFER);
        self.soft_limit.store(limit, Ordering::Relaxed);
        // When the log is found full, a flush may be under way, and the buffers full again; and a checkpoint
        // begins behind both.
        let reserve = (2 * appenders * (limit + OVERSHOOT)).div_ceil(segment);
        self.segments.keep_reserve(reserve.min(MAX_RESERVE));
    }

    pub(crate) fn set_status(&self, bit: u32) {
        self.status.fetch_or(bit, Ordering::Relaxed);
    }

    pub(crate) fn clear_status(&self, bit: u32) {
        self.status.fetch_and(!bit, Ordering::Relaxed);
    }

    /// What a status that is not 0 means to new changes: whether there is room, as far as it is concerned.
    #[cold]
    pub(crate) fn check_status(&self) -> Result<bool> {
        if let Some(why) = self.waits.poisoned() {
            return Err(Error::Poisoned(why));
        }
        let status = self.status.load(Ordering::Relaxed);
        if status & status::CLOSED != 0 {
            return Err(Error::Closed);
        }
        if status & status::REFUSED != 0
            && let Some(error) = self.segments.error()
        {
            return Err(error);
        }
        Ok(status & status::FULL == 0)
    }

    /// Whether there is no room for the next segment.
    pub(crate) fn is_full(&self) -> bool {
        self.status.load(Ordering::Relaxed) & status::FULL != 0
    }

    /// Whether there is none and changes are refused.
    pub(crate) fn refuses_changes(&self) -> bool {
        self.status.load(Ordering::Relaxed) & status::REFUSED != 0
    }

    /// Whether whoever waits for room need not wait: a flush has taken the buffers and the log is not full, or
    /// it is and changes are refused.
    pub(crate) fn goes_on(&self, taken: bool) -> bool {
        match self.status.load(Ordering::Relaxed) & (status::FULL | status::REFUSED) {
            0 => taken,
            full => full & status::REFUSED != 0,
        }
    }

    pub(crate) fn request(&self, epoch: u64, urgency: Urgency) {
        // One epoch ahead is what a counter that ran over asks for; nothing else is meaningful.
        let epoch = epoch.min(self.epoch.load(Ordering::Relaxed) + 1);
        if self.durable_epoch.load(Ordering::Relaxed) >= epoch {
            return;
        }
        let requested = match urgency {
            Urgency::Now => &self.requested_now,
            Urgency::Soon => &self.requested_soon,
        };
        // Mostly another one has asked already: a look leaves the cache line where it is.
        if requested.load(Ordering::Relaxed) >= epoch {
            return;
        }
        if self.waits.process().is_other() {
            // There is no flusher to wake, as who waits for it is told.
            return;
        }
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

    /// Waiting for company for longer than a sync takes is never worth it, except that a flush also
    /// takes processor time from those who commit.
    fn group_delay(&self) -> Duration {
        let median = Duration::from_nanos(self.stats.lock().1.median_ns());
        if median.is_zero() {
            self.options.group_delay
        } else {
            let busy = if self.is_busy() { BUSY_DELAY } else { Duration::ZERO };
            let times = if self.is_unwaited() { UNWAITED } else { 1 };
            let least = (times * busy / self.processors as u32).max(LEAST_DELAY);
            (times * self.options.group_delay).min(median.max(least))
        }
    }

    /// Whether threads of the log take their time from those who append.
    fn is_busy(&self) -> bool {
        self.appending.load(Ordering::Relaxed) >= self.processors
    }

    /// The same, and none of them waited for the last flush: their commits are pipelined.
    fn is_unwaited(&self) -> bool {
        self.is_busy() && self.waits.waited() == 0
    }

    /// Where the zeroes of the next segment come from. To write them takes as much time of the device, and of
    /// whoever moves the bytes there, as the log; that they were not written makes a sync take longer. So they are
    /// not written when that time is taken from those who append, unless some of them wait for syncs.
    pub(crate) fn zeroes(&self) -> Zeroes {
        if self.is_unwaited() { Zeroes::Reserved } else { Zeroes::Written }
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

    /// Before a flush that somebody waits for: those whom the last flush let go will mostly be back in a
    /// moment, and can share this one. Waits until three quarters of them are, at most as long as a
    /// sync takes.
    pub(crate) fn wait_for_company(&self) {
        let (waiting, before) = self.waits.company();
        let enough = before - before / 4;
        if before < LEAST_COMPANY || waiting >= enough {
            return;
        }
        let median = Duration::from_nanos(self.stats.lock().1.median_ns());
        let until = Instant::now() + median.min(COMPANY_DELAY);
        let mut signal = self.signal.lock();
        self.enough.store(enough, Ordering::Relaxed);
        while !signal.closing
            && !signal.checkpoint
            && self.enough.load(Ordering::Relaxed) != 0
            && !self.wake.wait_until(&mut signal, until).timed_out()
        {}
        self.enough.store(0, Ordering::Relaxed);
    }

    /// So many wait for a durable epoch now.
    pub(crate) fn came(&self, waiting: usize) {
        let enough = self.enough.load(Ordering::Relaxed);
        if enough != 0 && waiting >= enough && self.enough.swap(0, Ordering::Relaxed) != 0 {
            // The flusher either sleeps or looks before it does.
            drop(self.signal.lock());
            self.wake.notify_one();
        }
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
                // The mark also moves when the last flush took the records of a time drawn since it
                // looked at the clock.
                let behind = || self.durable_mark.load(Ordering::Relaxed) < (self.clock)();
                if self.anything_buffered() || behind() {
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

    /// Advances the epoch; whoever begins a section from now on is behind the cut. None when the log
    /// was poisoned: of what was appended since, nothing may become durable.
    pub(crate) fn cut(&self) -> Option<Cut> {
        let mut signal = self.signal.lock();
        if self.status.load(Ordering::Relaxed) & status::POISONED != 0 {
            return None;
        }
        signal.soon = None;
        let checkpoint = std::mem::take(&mut signal.checkpoint);
        let current = self.epoch.load(Ordering::Relaxed);
        let over = self.running_over.swap(0, Ordering::Relaxed);
        let next = if over == 0 { current + 1 } else { (epoch_of(Gsn(over)) + 2).max(current + 1) };
        if checkpoint {
            self.checkpoint_epoch.store(next, Ordering::Relaxed);
            if self.options.page_images {
                // Before the epoch: whoever reads that one reads this.
                self.image_epoch.store(next, Ordering::Relaxed);
            }
        }
        self.epoch.store(next, Ordering::Release);
        Some(Cut { epoch: next - 1, checkpoint })
    }

    /// Takes the records of all epochs up to `cut` out of all buffers, and forgets appenders that
    /// are gone.
    pub(crate) fn take_buffers(&self, cut: u64, spares: &mut Vec<Vec<u8>>, taken: &mut Vec<Taken>) {
        let mut slots = self.slots.lock();
        let before = slots.len();
        let (mut bytes, mut commits, mut images) = (0, 0, 0);
        slots.retain(|slot| {
            let closed = slot.closed.load(Ordering::Acquire);
            let mut buffer = slot.buffer.lock();
            let (base, records) = buffer.take(cut, spares.pop().unwrap_or_default());
            slot.filled.store(buffer.bytes.len(), Ordering::Relaxed);
            let counts = std::mem::take(&mut buffer.counts);
            let empty = buffer.bytes.is_empty();
            drop(buffer);
            (commits, images) = (commits + counts.commits, images + counts.image_bytes);
            bytes += records.len() as u64;
            if records.is_empty() {
                spares.push(records);
            } else {
                taken.push(Taken { worker: slot.worker, base, records });
            }
            !(closed && empty)
        });
        if slots.len() != before {
            self.limit_for(slots.len());
        }
        drop(slots);
        self.appending.store(taken.len(), Ordering::Relaxed);
        let stats = &mut self.stats.lock().0;
        stats.record_bytes += bytes;
        stats.commits += commits;
        stats.image_bytes += images;
    }

    /// The largest time up to which all times were noted before the cut. The clock is asked first: a
    /// time that a section behind the cut notes is either above that answer, or was given before it,
    /// and then that section is over, or is waited for, when its buffer is looked at.
    pub(crate) fn mark_of(&self, cut: u64) -> u64 {
        let now = (self.clock)();
        let slots = self.slots.lock();
        let behind = slots.iter().filter_map(|slot| slot.buffer.lock().first_time_behind(cut));
        behind.fold(now, |mark, first| mark.min(first.saturating_sub(1)))
    }

    /// A write or a sync of the log failed, or one of its threads did: nothing will be durable any
    /// more.
    pub(crate) fn poison(&self, why: String) {
        tracing::error!(why, "the log is poisoned");
        // What was appended before now may be durable or not; what comes later is not, because there is
        // no cut behind this one.
        let unknown = {
            let _signal = self.signal.lock();
            self.set_status(status::POISONED);
            self.epoch.fetch_add(1, Ordering::Release)
        };
        self.waits.poison(why, unknown);
    }

    /// Everything up to the cut is durable.
    pub(crate) fn publish(&self, cut: &Cut, mark: u64) {
        // Never back: a time that lies behind one cut can lie before the next.
        self.durable_mark.fetch_max(mark, Ordering::AcqRel);
        self.waits.publish(cut, &self.durable_epoch);
    }
}
