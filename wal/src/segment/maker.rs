//! The helper thread: makes the next segments ahead, and retires old ones.

use super::{
    files,
    reserve::MadeSegment,
    segments::{HelperState, LastSegment, LogPhase, SegmentDemand, SegmentState, Segments},
    table::KnownSegment,
};
use crate::{block::MAX_BLOCK, gate::Gate, room::is_of_room, waits::Waits};
use parking_lot::MutexGuard;
use std::{
    io,
    time::{Duration, Instant},
};
use wattle_buffer::{
    Result,
    io::{LogStorage, Zeroes},
};

/// How often the helper tries again to make a segment.
const RETRY: Duration = Duration::from_millis(100);
/// How often it looks for tasks that have waited too long.
const LOOK: Duration = Duration::from_secs(1);

/// See the module documentation.
pub(crate) struct SegmentMaker<'l> {
    pub segments: &'l Segments,
    pub storage: &'l dyn LogStorage,
    pub gate: &'l Gate,
    pub waits: &'l Waits,
    /// How long changes wait for room before they are refused.
    pub room_timeout: Duration,
    /// Whether the zeroes of the next segment are written or only reserved.
    pub zeroes: &'l dyn Fn() -> Zeroes,
    /// Makes durable all that comes before a first segment that was left for later.
    pub before_first: &'l dyn Fn() -> Result<()>,
}

type Guard<'l> = MutexGuard<'l, SegmentState>;

impl SegmentMaker<'_> {
    /// Body of the thread.
    ///
    /// # Errors
    /// The files before the first segment could not be made durable. It is not tried again.
    pub(crate) fn run(&self) -> Result<()> {
        let mut retired = false;
        // A failure that is no lack of room is logged once until a segment is made.
        let mut logged = false;
        let mut is_late = self.gate.is_unbegun();
        let mut state = self.segments.state.lock();
        while state.helper == HelperState::Running {
            // 1. Old segments first: they may be the room for the next one.
            if let Some(old) = state.table.unneeded() {
                retired |= self.retire(&mut state, old);
                continue;
            }
            if std::mem::take(&mut retired) {
                MutexGuard::unlocked(&mut state, || files::give_back(self.storage, false));
                continue;
            }
            // 2. The next one is there: perhaps because the reserve shrank.
            if self.recover(&mut state) {
                continue;
            }
            if let LastSegment::Wanted(bytes) = state.last {
                state.last = match self.make_last(&mut state, bytes) {
                    true => LastSegment::Made,
                    false => LastSegment::Current,
                };
                self.segments.changed.notify_all();
                continue;
            }
            // 3. Not yet.
            if !state.is_wanted() {
                if self.segments.changed.wait_for(&mut state, LOOK).timed_out() {
                    MutexGuard::unlocked(&mut state, || self.waits.wake_stalled());
                }
                continue;
            }
            // 4. Now.
            let number = state.reserve.next();
            if std::mem::take(&mut is_late) {
                MutexGuard::unlocked(&mut state, self.before_first)?;
            }
            match MutexGuard::unlocked(&mut state, || self.make(number)) {
                Ok(made) => {
                    logged = false;
                    state.reserve.made(made);
                    self.segments.changed.notify_all();
                    if self.gate.begin() {
                        MutexGuard::unlocked(&mut state, || self.waits.room_changed());
                    }
                    if self.recover(&mut state) {
                        tracing::info!(segment = number, "the log has room again");
                    }
                }
                Err(error) => self.failed(&mut state, error, &mut logged),
            }
        }
        // Segments that the last truncation made unneeded.
        while let Some(old) = state.table.unneeded() {
            self.retire(&mut state, old);
        }
        self.remove_unused(state);
        files::give_back(self.storage, true);
        Ok(())
    }

    /// Retires a segment. Gives whether that is done.
    fn retire(&self, state: &mut Guard<'_>, old: KnownSegment) -> bool {
        let number = old.number;
        let removed = MutexGuard::unlocked(state, || {
            let removed = match old.passes_on {
                true => self.storage.pass_on(number),
                false => self.storage.retire(number),
            };
            files::removed(number, removed)
        });
        match removed {
            Ok(()) => {
                state.table.retired(number);
                true
            }
            Err(error) => {
                tracing::warn!(%error, "an old segment of the log stays for now");
                state.table.keep_all();
                false
            }
        }
    }

    /// Ends a shortage if the next segment is there. Gives whether there was one.
    fn recover(&self, state: &mut Guard<'_>) -> bool {
        let recovered = state.reserve.next_is_ready() && state.room.recover(self.gate);
        if recovered {
            MutexGuard::unlocked(state, || self.waits.room_changed());
        }
        recovered
    }

    fn make(&self, number: u64) -> io::Result<MadeSegment> {
        let mut pace = |done| self.segments.pace(done);
        let bytes = self.segments.segment_bytes();
        let made = self.storage.create_beside(number, bytes, (self.zeroes)(), &mut pace);
        if made.is_err()
            && let Err(error) = files::remove(self.storage, number)
        {
            tracing::warn!(%error, "a segment that could not be made is in the way");
        }
        made.map(|()| MadeSegment { number, bytes })
    }

    /// Makes the last segment in place of those in reserve. Gives whether it did.
    fn make_last(&self, state: &mut Guard<'_>, bytes: u64) -> bool {
        if state.room.is_short() || !state.reserve.is_begun() || state.demand > SegmentDemand::Due {
            return false;
        }
        // If the small segment cannot be made, there is no reserve: the last flush, which is empty,
        // must fit the current segment.
        if self.segments.rest() < MAX_BLOCK as u64 {
            return false;
        }
        // The flusher may take one of them meanwhile, and waits for the small one if there is none.
        while let Some(number) = state.reserve.take_last() {
            let removed = MutexGuard::unlocked(state, || files::remove(self.storage, number));
            if let Err(error) = removed {
                tracing::warn!(%error, "the log ends in a large segment");
                return false;
            }
        }
        let number = state.reserve.next();
        let made = MutexGuard::unlocked(state, || self.storage.create(number, bytes));
        match made {
            Ok(()) => {
                state.reserve.made(MadeSegment { number, bytes });
                true
            }
            Err(error) => {
                tracing::warn!(%error, "the log ends in a large segment");
                let removed = MutexGuard::unlocked(state, || files::remove(self.storage, number));
                if let Err(error) = removed {
                    tracing::warn!(%error, "a segment that could not be made is in the way");
                }
                false
            }
        }
    }

    /// The next segment could not be made. Returns when it is time for another try.
    fn failed(&self, state: &mut Guard<'_>, error: io::Error, logged: &mut bool) {
        let segment = state.reserve.next();
        if state.phase == LogPhase::Closing && error.kind() == io::ErrorKind::Interrupted {
            // `pace` cancelled it.
            return;
        }
        if !is_of_room(&error) && state.can_wait() {
            if !std::mem::replace(logged, true) {
                tracing::warn!(%error, segment, "the log gets no further segment for now");
            }
            let until = Instant::now() + RETRY;
            while state.can_wait() && !self.segments.changed.wait_until(state, until).timed_out() {}
            return;
        }
        if !state.room.is_short() {
            tracing::warn!(%error, segment, "the log is full");
        }
        let helpless = state.table.unneeded().is_none();
        state.room.fail(error, helpless, self.gate);
        self.segments.changed.notify_all();
        let timeout = match state.phase {
            LogPhase::Closing => Duration::ZERO,
            LogPhase::Opening | LogPhase::Running => self.room_timeout,
        };
        if state.room.refuse_after(timeout, self.gate) {
            // Without a wait: a notification may have come while the lock was released.
            MutexGuard::unlocked(state, || self.waits.room_changed());
            return;
        }
        // A truncation ends this wait.
        self.segments.changed.wait_for(state, RETRY);
    }

    /// Removes segments that were made and not used, the last one first, so that a crash in between
    /// leaves no gap. A log that never flushed keeps its first one.
    fn remove_unused(&self, mut state: Guard<'_>) {
        while (state.reserve.is_begun() || state.table.len() > 0)
            && let Some(number) = state.reserve.take_last()
        {
            let removed = MutexGuard::unlocked(&mut state, || files::remove(self.storage, number));
            if let Err(error) = removed {
                tracing::warn!(%error, "a segment of the log that is not needed stays");
                break;
            }
        }
    }
}
