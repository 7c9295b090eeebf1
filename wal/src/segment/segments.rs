//! The state of the segments, which flusher and helper share under one lock.

use super::{
    reserve::{MadeSegment, SegmentReserve},
    table::SegmentTable,
};
use crate::{
    gate::Gate,
    options::longest_stall,
    room::{Room, is_of_room},
};
use parking_lot::{Condvar, Mutex};
use std::{
    io,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};
use wattle_buffer::{Error, Result, io::LogStorage};

/// The helper begins the next segment when this part of the current one is in use.
const DUE: u64 = 16;
/// Shortest and longest sleep of the helper between two looks at the current segment.
const NAPS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(16)];
/// Where no flush sets the pace, the helper pauses after so many bytes, so that other I/O gets the
/// device.
const UNPACED_BYTES: u64 = 256 << 10;

/// How much the flusher needs the next segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SegmentDemand {
    /// Not yet.
    None,
    /// A part of the current segment is in use: it is time to make the next one.
    Due,
    /// It waits for it.
    Waiting,
}

/// Whether a flush waits for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogPhase {
    /// The store is being opened: as long as changes do.
    Opening,
    /// For [`longest_stall`].
    Running,
    /// The log is being closed: not at all.
    Closing,
}

/// The helper thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HelperState {
    Running,
    /// It has to end.
    Ending,
    /// It has ended, or was never started.
    Ended,
}

/// See the module documentation.
pub(crate) struct SegmentState {
    pub table: SegmentTable,
    pub reserve: SegmentReserve,
    pub room: Room,
    pub demand: SegmentDemand,
    pub phase: LogPhase,
    pub helper: HelperState,
    pub last: LastSegment,
}

/// The segment that a log ends in. It is small: a log that was closed takes little room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastSegment {
    /// The log ends in the current one.
    Current,
    /// The helper shall make it, of so many bytes, instead of those in reserve.
    Wanted(u64),
    /// It is made, and the only one that is.
    Made,
}

/// The segments of a log.
pub(crate) struct Segments {
    pub state: Mutex<SegmentState>,
    pub changed: Condvar,
    /// Bytes of the current segment that are in use, and all its bytes.
    used: AtomicU64,
    current: AtomicU64,
    /// Bytes of all segments but the last one of a process.
    bytes: AtomicU64,
}

impl Segments {
    /// The segment `first` is the next one to make; `table` has those before.
    pub(crate) fn new(table: SegmentTable, first: u64, bytes: u64) -> Segments {
        let state = SegmentState {
            table,
            reserve: SegmentReserve::new(first),
            room: Room::default(),
            demand: SegmentDemand::None,
            phase: LogPhase::Running,
            helper: HelperState::Running,
            last: LastSegment::Current,
        };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let (used, current) = (AtomicU64::new(0), AtomicU64::new(bytes));
        Segments { state, changed, used, current, bytes: AtomicU64::new(bytes) }
    }

    /// Bytes of a segment that is not the last one of a process.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Segments have so many bytes, because there is little room.
    pub(crate) fn shrink(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Bytes of the current segment that are not in use.
    pub(crate) fn rest(&self) -> u64 {
        let current = self.current.load(Ordering::Relaxed);
        current.saturating_sub(self.used.load(Ordering::Relaxed))
    }

    /// A change waits for the first segment.
    pub(crate) fn request_first(&self) {
        let mut state = self.state.lock();
        if !state.reserve.is_begun() && state.demand != SegmentDemand::Waiting {
            state.demand = SegmentDemand::Waiting;
            self.changed.notify_all();
        }
    }

    /// Makes the segment that the log is about to end in, of `bytes`: the next flush begins it. If
    /// that is not possible the log ends in the current one.
    pub(crate) fn make_last(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.last = LastSegment::Wanted(bytes);
        self.changed.notify_all();
        while matches!(state.last, LastSegment::Wanted(_)) {
            if state.helper != HelperState::Running {
                state.last = LastSegment::Current;
                return;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Whether the last segment is made, and not begun.
    pub(crate) fn is_last_made(&self) -> bool {
        self.state.lock().last == LastSegment::Made
    }

    /// From now on so many segments are kept in reserve.
    pub(crate) fn keep_reserve(&self, segments: usize) {
        if self.state.lock().reserve.resize(segments) {
            self.changed.notify_all();
        }
    }

    /// The flusher takes the next segment, and waits for it if it must. No cut comes while it
    /// waits, so it needs room on the device, or the end of a checkpoint that has had its cut.
    pub(crate) fn take_ready(&self, room_timeout: Duration) -> Result<MadeSegment, String> {
        let (began, longest) = (Instant::now(), longest_stall(room_timeout));
        let mut state = self.state.lock();
        loop {
            let last = state.last == LastSegment::Made;
            if (state.reserve.next_is_ready() || state.room.is_short() || last)
                && let Some(made) = state.reserve.take()
            {
                state.last = LastSegment::Current;
                state.table.enter(made);
                state.demand = SegmentDemand::None;
                self.used(0);
                self.current.store(made.bytes, Ordering::Relaxed);
                return Ok(made);
            }
            if state.helper == HelperState::Ended {
                return Err("the thread that makes segments of the log has ended".into());
            }
            // The helper wakes the flusher after each try.
            if let Some(shortage) = state.room.shortage()
                && match state.phase {
                    LogPhase::Closing => true,
                    LogPhase::Opening if shortage.since.elapsed() >= room_timeout => true,
                    LogPhase::Opening | LogPhase::Running => began.elapsed() >= longest,
                }
                && state.table.unneeded().is_none()
            {
                let (next, error) = (state.reserve.next(), &shortage.error);
                return Err(match is_of_room(error) {
                    true => format!("there was no room for log segment {next}: {error}"),
                    false => format!("log segment {next} could not be made: {error}"),
                });
            }
            if std::mem::replace(&mut state.demand, SegmentDemand::Waiting)
                != SegmentDemand::Waiting
            {
                self.changed.notify_all();
            }
            self.changed.wait(&mut state);
        }
    }

    /// Whether the next segment is made. Unless the reserve grows, it stays so until the flusher
    /// takes it.
    pub(crate) fn is_ready(&self) -> bool {
        self.state.lock().reserve.next_is_ready()
    }

    /// So much of the current segment is in use.
    pub(crate) fn used(&self, bytes: u64) {
        self.used.store(bytes, Ordering::Relaxed);
    }

    /// A flush is durable, and so much of the current segment is in use. Gives whether the next one
    /// is being made.
    pub(crate) fn flushed(&self, used: u64) -> bool {
        let due = used >= self.current.load(Ordering::Relaxed) / DUE;
        let mut state = self.state.lock();
        let first = state.reserve.flushed();
        if due {
            state.demand = state.demand.max(SegmentDemand::Due);
        }
        if due || first {
            self.changed.notify_all();
        }
        due
    }

    /// Sleeps while `done` bytes of the segment that is being made are enough. Gives how many more
    /// may follow then. `None`: the segment is no longer needed.
    ///
    /// Zeroes at the full speed of the device make the syncs of commits wait for milliseconds. So
    /// the next segment grows with the current one, twice as fast in parts of their bytes: it is
    /// ready when that is a little more than half full.
    pub(crate) fn pace(&self, done: u64) -> Option<u64> {
        let mut nap = NAPS[0];
        let mut state = self.state.lock();
        loop {
            if state.demand == SegmentDemand::Waiting || state.room.is_short() {
                return Some(u64::MAX);
            }
            if state.phase == LogPhase::Closing {
                return None;
            }
            // A change that waits for the room of old segments does not write, and the helper makes
            // this segment before it retires them.
            if state.reserve.is_short() || state.table.unneeded().is_some() {
                if done > 0 {
                    self.changed.wait_for(&mut state, NAPS[0]);
                }
                return Some(UNPACED_BYTES);
            }
            let used = self.used.load(Ordering::Relaxed);
            let current = self.current.load(Ordering::Relaxed);
            let larger = (self.segment_bytes() / current).max(1);
            let wanted = 2 * larger * used.saturating_sub(current / DUE);
            if done < wanted {
                return Some(wanted - done);
            }
            self.changed.wait_for(&mut state, nap);
            nap = (nap * 2).min(NAPS[1]);
        }
    }

    /// The head of a segment is durable.
    pub(crate) fn entered(&self, number: u64, epoch_before: u64) {
        self.state.lock().table.entered(number, epoch_before);
    }

    /// The segment in which reading must begin to see all records of `epoch` and later ones.
    pub(crate) fn segment_of(&self, epoch: u64) -> u64 {
        let state = self.state.lock();
        state.table.first_for(epoch).unwrap_or_else(|| state.reserve.first())
    }

    /// Segments below `segment` are no longer needed.
    pub(crate) fn truncate_before(&self, segment: u64) {
        let mut state = self.state.lock();
        state.table.keep_from(segment);
        if state.table.unneeded().is_some() {
            state.room.may_come();
        }
        self.changed.notify_all();
    }

    /// The oldest segment in use; 0 before the first flush.
    pub(crate) fn oldest(&self) -> u64 {
        self.state.lock().table.oldest().unwrap_or(0)
    }

    /// Bytes of the segments in use.
    pub(crate) fn bytes_kept(&self) -> u64 {
        self.state.lock().table.bytes()
    }

    /// Number of segments in use.
    pub(crate) fn count(&self) -> u64 {
        self.state.lock().table.len() as u64
    }

    /// Checks that all segments that are needed are there and whole.
    pub(crate) fn check(&self, storage: &dyn LogStorage) -> io::Result<()> {
        let needed = || self.state.lock().table.needed();
        for segment in needed() {
            if let Err(error) = storage.check(&[segment])
                // The helper may have retired it meanwhile.
                && needed().contains(&segment)
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Why the log is full, if it is.
    pub(crate) fn shortage(&self) -> Option<Error> {
        let state = self.state.lock();
        let error = state.room.shortage()?.copy();
        Some(Error::io(format_args!("make log segment {}", state.reserve.next()), error))
    }

    /// The same, as the error of the system.
    pub(crate) fn shortage_error(&self) -> Option<io::Error> {
        self.state.lock().room.shortage().map(|shortage| shortage.copy())
    }

    /// Whether no segment is left to retire.
    pub(crate) fn is_truncated(&self) -> bool {
        self.state.lock().table.unneeded().is_none()
    }

    /// Whether the log is full although it has retired all segments that it may.
    pub(crate) fn is_stuck(&self) -> bool {
        self.state.lock().room.is_stuck()
    }

    /// Refuses changes while the log is full. Gives whether it is.
    pub(crate) fn refuse_changes(&self, gate: &Gate) -> bool {
        self.state.lock().room.refuse(gate)
    }

    /// The store is being opened, or has been.
    pub(crate) fn set_opening(&self, opening: bool) {
        let mut state = self.state.lock();
        if state.phase != LogPhase::Closing {
            state.phase = if opening { LogPhase::Opening } else { LogPhase::Running };
        }
    }

    /// The log is being closed: from now on no flush waits for room.
    pub(crate) fn stop_waiting(&self) {
        self.state.lock().phase = LogPhase::Closing;
        self.changed.notify_all();
    }

    /// The helper has to end.
    pub(crate) fn end_helper(&self) {
        let mut state = self.state.lock();
        if state.helper == HelperState::Running {
            state.helper = HelperState::Ending;
        }
        self.changed.notify_all();
    }

    /// The helper has ended.
    pub(crate) fn helper_ended(&self) {
        self.state.lock().helper = HelperState::Ended;
        self.changed.notify_all();
    }
}

impl SegmentState {
    /// Whether the next segment is not needed yet, and the reserve has room for the buffers, so
    /// that there is time to try again.
    pub(crate) fn can_wait(&self) -> bool {
        self.demand != SegmentDemand::Waiting
            && self.phase != LogPhase::Closing
            && self.helper == HelperState::Running
            && !self.room.is_short()
            && self.reserve.is_whole()
    }

    /// Whether a segment should be made now.
    pub(crate) fn is_wanted(&self) -> bool {
        let next_is_ready = self.reserve.next_is_ready();
        if self.phase == LogPhase::Closing {
            return self.demand == SegmentDemand::Waiting && !next_is_ready;
        }
        let wanted = self.demand != SegmentDemand::None || self.room.is_short();
        self.reserve.is_due() || wanted && !next_is_ready
    }
}
