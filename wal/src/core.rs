//! The parts of a log that its threads share, and the operations that need several of these parts.
//!
//! Order of locks: the list of buffers, a buffer, the state of the segments; the waiters, the
//! signal of the flush requests, the statistics. No thread holds one of the first three together
//! with one of the others. Wakers are called with no lock held.

use crate::{
    classes::Classes,
    epochs::{Cut, Epochs},
    gate::Gate,
    gsn::epoch_of,
    options::{Clock, LogOptions, Urgency, longest_stall},
    pacing::Observed,
    position::LogStart,
    requests::FlushRequests,
    segment::segments::Segments,
    slot::AppendSlot,
    slots::{AppendSlots, MAX_BUFFER, Taken},
    stats::LogCounters,
    waits::{RoomWait, Waits},
};
use std::{
    sync::Arc,
    task::{Poll, Waker},
};
use wattle_buffer::{
    Error, Gsn, Result,
    io::{LogStorage, Zeroes},
    processors,
};

/// See the module documentation. Each part changes its own fields.
pub(crate) struct LogCore {
    pub epochs: Epochs,
    pub gate: Gate,
    pub requests: FlushRequests,
    pub waits: Waits,
    pub slots: AppendSlots,
    pub segments: Segments,
    pub counters: LogCounters,
    pub storage: Arc<dyn LogStorage>,
    pub options: LogOptions,
    clock: Clock,
    processors: usize,
}

impl LogCore {
    pub(crate) fn new(
        storage: Arc<dyn LogStorage>,
        options: LogOptions,
        start: &LogStart,
        segments: Segments,
        clock: Clock,
    ) -> LogCore {
        LogCore {
            epochs: Epochs::new(start, options.page_images),
            gate: Gate::new(MAX_BUFFER),
            requests: FlushRequests::new(),
            waits: Waits::new(start.image_epoch, 2 * longest_stall(options.room_timeout)),
            slots: AppendSlots::default(),
            segments,
            counters: LogCounters::default(),
            storage,
            options,
            clock,
            processors: processors(),
        }
    }

    /// Registers the buffer of a new appender.
    pub(crate) fn new_slot(&self) -> Arc<AppendSlot> {
        self.slots.add(&self.gate, &self.segments)
    }

    /// The check of a new change when the gate is not open. Gives whether there is room, as far as
    /// the gate knows.
    #[cold]
    pub(crate) fn check_gate(&self) -> Result<bool> {
        if let Some(why) = self.waits.poisoned() {
            return Err(Error::Poisoned(why));
        }
        if self.gate.is_closed() {
            return Err(Error::Closed);
        }
        if self.gate.refuses()
            && let Some(error) = self.segments.shortage()
        {
            return Err(error);
        }
        if self.gate.is_unbegun() {
            self.segments.request_first();
        }
        Ok(!self.gate.makes_wait())
    }

    /// Requests a flush that makes `epoch` durable.
    pub(crate) fn request(&self, epoch: u64, urgency: Urgency) {
        // A counter that ran over asks for one epoch ahead; later ones mean nothing.
        let epoch = epoch.min(self.epochs.current_relaxed() + 1);
        if !self.epochs.is_durable(epoch) {
            let delay = || self.options.policy.delay(self.options.group_delay, &self.observed());
            self.requests.request(epoch, urgency, &self.epochs, delay);
        }
    }

    fn observed(&self) -> Observed {
        Observed {
            sync_median: self.counters.sync_median(),
            appending: self.slots.appending(),
            processors: self.processors,
            waited: self.waits.last_group(),
        }
    }

    /// Requests a flush, because a buffer is half full.
    #[cold]
    pub(crate) fn buffer_is_half_full(&self, epoch: u64) {
        self.request(epoch, Urgency::Now);
    }

    /// The counter of a GSN has used half of its bits: the next cut skips an epoch, so that it
    /// cannot run into one that is used.
    #[cold]
    pub(crate) fn counter_runs_over(&self, gsn: Gsn) {
        self.epochs.skip_one_after(gsn);
        self.request(epoch_of(gsn), Urgency::Now);
    }

    /// Requests a checkpoint of some classes of pages, and waits for its cut.
    pub(crate) fn begin_checkpoint(&self, classes: Classes) -> Result<u64> {
        let before = self.requests.request_checkpoint(&self.epochs, classes);
        self.waits.wait_checkpoint(before)
    }

    /// Requests the last flush.
    pub(crate) fn request_close(&self) {
        self.gate.close();
        self.requests.request_close();
        self.stop_waiting();
    }

    /// From now on no flush and no change waits for room.
    pub(crate) fn stop_waiting(&self) {
        self.segments.stop_waiting();
        self.refuse_changes();
    }

    /// Refuses changes while the log is full.
    pub(crate) fn refuse_changes(&self) {
        if self.segments.refuse_changes(&self.gate) {
            self.waits.room_changed();
        }
    }

    /// How the helper makes the zeroes of the next segment.
    pub(crate) fn zeroes(&self) -> Zeroes {
        match self.options.policy.reserves_zeroes(&self.observed()) {
            true => Zeroes::Reserved,
            false => Zeroes::Written,
        }
    }

    /// The flusher sleeps until there is a reason to flush. Gives whether it is the last flush.
    pub(crate) fn wait_for_reason(&self) -> bool {
        // The mark also moves when the last flush took the records of a time drawn since it asked
        // the clock.
        let is_unflushed = || self.slots.any_filled() || self.epochs.is_mark_before((self.clock)());
        self.requests.wait_for_reason(&self.epochs, is_unflushed)
    }

    /// Delays a flush that committers wait for: the committers that the last flush woke mostly come
    /// back soon, and can share this flush.
    pub(crate) fn wait_for_group(&self) {
        let (waiting, before) = (self.waits.group(), self.waits.last_group());
        let median = self.counters.sync_median();
        if let Some((enough, longest)) = self.options.policy.group(waiting, before, median) {
            self.requests.wait_for_group(enough, longest);
        }
    }

    /// Begins a flush: advances the epoch. `None`: the log failed.
    pub(crate) fn cut(&self) -> Option<Cut> {
        self.requests.cut(&self.epochs, &self.gate)
    }

    /// Takes the records of a cut out of the buffers, and gives its mark.
    pub(crate) fn take_buffers(
        &self,
        cut: &Cut,
        spares: &mut Vec<Vec<u8>>,
        taken: &mut Vec<Taken>,
    ) -> u64 {
        let limits = (&self.gate, &self.segments);
        let counts = self.slots.take(cut.epoch, spares, taken, limits);
        let bytes = taken.iter().map(|part| part.records.len() as u64).sum();
        self.counters.took(bytes, counts);
        let now = (self.clock)();
        let mark = self.slots.mark_of(cut.epoch, now);
        self.waits.buffers_taken();
        mark
    }

    /// Publishes that everything up to the cut is durable, and wakes the waiters.
    pub(crate) fn publish(&self, cut: &Cut, mark: u64) {
        self.epochs.raise_mark(mark);
        self.waits.publish(cut, &self.epochs);
    }

    /// A write or a sync of the log failed, or one of its threads: no record becomes durable from
    /// now on.
    pub(crate) fn poison(&self, why: String) {
        tracing::error!(why, "the log is poisoned");
        // Records that were appended before now may be durable or not; later ones are not, because
        // no cut comes.
        let unknown = self.requests.end(&self.epochs, &self.gate);
        self.waits.poison(why, unknown);
    }

    /// Blocks until all records of `epoch` are durable.
    pub(crate) fn wait_durable(&self, epoch: u64) -> Result<()> {
        if self.epochs.durable() >= epoch {
            return Ok(());
        }
        self.waits.wait_durable(epoch, &self.epochs, &self.requests)
    }

    /// The same for a task.
    pub(crate) fn poll_durable(&self, epoch: u64, waker: &Waker) -> Poll<Result<()>> {
        if self.epochs.durable() >= epoch {
            return Poll::Ready(Ok(()));
        }
        self.waits.poll_durable(epoch, waker, &self.epochs, &self.requests)
    }

    /// Requests a flush, and blocks until it has taken the buffers, and while the log is full; or
    /// changes are refused.
    pub(crate) fn wait_flush(&self) -> Result<()> {
        self.waits.check_process()?;
        let seen = self.waits.taken();
        self.request(self.epochs.current(), Urgency::Now);
        self.waits.wait_room(seen, &self.gate)
    }

    /// The same for a task.
    pub(crate) fn poll_flush(&self, seen: u64, since: u64, waker: &Waker) -> Poll<Result<()>> {
        match self.waits.poll_room(seen, since, waker, &self.gate) {
            Ok(RoomWait::Over) => return Poll::Ready(Ok(())),
            Err(error) => return Poll::Ready(Err(error)),
            // Each flush wakes the waiters: in a full log they would request flushes without end.
            // They are woken as well when the log gets room again.
            Ok(RoomWait::ForFlush) if !self.gate.makes_wait() => {
                self.request(self.epochs.current(), Urgency::Now);
            }
            Ok(RoomWait::ForFlush | RoomWait::ForRoom) => {}
        }
        Poll::Pending
    }
}
