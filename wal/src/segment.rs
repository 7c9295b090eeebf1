//! Segments: the next one is made ahead by a helper thread, old ones are given up by it.
//!
//! Making a segment means writing all of it, unless it is made of one that this process has written and given up
//! (see [`crate::block`]); so it must not happen while commits wait. When the
//! device has no room for another one the log is *full*: new changes wait, and are refused after a while,
//! when there is still a segment's rest for those that roll back.
//!
//! That rest can be too small for what is in the buffers, and a checkpoint, which gives room back, begins
//! behind it. So some segments are made ahead of the next one, and kept in *reserve*: the flusher takes one
//! only while the log is full. How many is for [`Segments::keep_reserve`].
//!
//! Nor must it happen at once: zeroes at the full speed of the device make the syncs of commits wait
//! for milliseconds, and a flush that begins a segment has enough to do. So the next segment is begun when
//! a part of the current one is in use, and grows with it, twice as fast: it is ready when that one is a
//! little more than half full.
//!
//! Where processors are short, and nobody waits for a flush, its zeroes are reserved and not written
//! ([`Shared::zeroes`]).
//!
//! It can fail for other reasons than room: the process has no file descriptor left, something else has the
//! name. Then the log is not full as long as the reserve is whole and the flusher does not need the segment. Until
//! then it is tried again, and changes go on in what the current segment has left.
//!
//! Making a segment can fail when it is there already, because its directory could not be synced. It must
//! not be used, a power cut might take it; so it is removed before it is made again.
//!
//! Where the device has little room, segments are smaller: a sixteenth of what there is for the log when it is
//! started, or the half, and again the half, of what cannot be made then. Each head says how long its segment is.
//!
//! Invariants: the segments that are ready follow upon the current one without gaps; unless the log is full,
//! the flusher leaves the reserve; the list holds exactly the segments whose head is durable, ascending;
//! the last of them is never removed.

use crate::{
    log::MIN_SEGMENT_BYTES,
    reader::{self, LogEnd},
    shared::{Shared, status},
};
use parking_lot::{Condvar, Mutex};
use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use wattle_buffer::{Error, PAGE_SIZE, Result, io::LogStorage};

/// How often a segment that could not be made is tried again.
const RETRY: Duration = Duration::from_millis(100);

/// How often it is looked whether somebody waits in vain.
const LOOK: Duration = Duration::from_secs(1);

/// The next segment is begun when this part of the current one is in use.
const DUE: u64 = 16;
/// How long making it sleeps between two looks at the current one: least and most.
const NAPS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(16)];
/// A segment is at most this part of the room that the device has for the log.
const PART_OF_ROOM: u64 = 16;
/// What waits for nobody who writes lets others have the device after so many bytes.
const UNPACED_BYTES: u64 = 256 << 10;

/// A segment with a head.
#[derive(Clone, Copy, Debug)]
struct Known {
    number: u64,
    /// All records in segments before it have this epoch or a smaller one.
    epoch_before: u64,
    /// It was written since the log was started: all its sectors are those of a segment of this version, and were
    /// synced.
    passes_on: bool,
}

/// How long a flush waits for room when the reserve is used up, before the log fails: so many times the patience
/// of changes, and at least so long.
const STANDSTILL: (u32, Duration) = (6, Duration::from_secs(5));

/// How long a flush waits for room at most, with this patience of changes.
pub(crate) fn standstill(patience: Duration) -> Duration {
    patience.saturating_mul(STANDSTILL.0).max(STANDSTILL.1)
}

#[derive(Default)]
struct State {
    list: Vec<Known>,
    /// Made and not yet in use, ascending.
    ready: VecDeque<u64>,
    /// How many of those the flusher leaves while there is room for more.
    reserve: usize,
    /// It has taken one since the log was started.
    begun: bool,
    /// A flush is durable since then: what is missing of the reserve can be made.
    flushed: bool,
    /// In use, and its head not known to be durable.
    taken: Option<u64>,
    /// Number of the next one to make.
    next: u64,
    /// Segments below are not needed any more.
    keep: u64,
    /// It is time to make it.
    due: bool,
    /// Why no segment can be made just now, and since when.
    error: Option<(Arc<io::Error>, Instant)>,
    /// None was given up since that was found.
    stuck: bool,
    /// The flusher waits for the segment that is being made.
    waited_for: bool,
    /// The log is being closed: nobody waits for room.
    last_flush: bool,
    /// The store is being opened: a flush waits for room as long as changes do.
    opening: bool,
    /// The helper has to end.
    ending: bool,
    /// The helper is gone.
    ended: bool,
}

/// The segments of a log, between flusher and helper.
pub(crate) struct Segments {
    state: Mutex<State>,
    changed: Condvar,
    /// Bytes of the current segment that are in use.
    used: AtomicU64,
}

impl Segments {
    /// Looks at what is there, removes what was prepared and never used, and makes the segment
    /// `first`. Gives the bytes of segments: `bytes`, or less where the device has little room.
    pub(crate) fn prepare(
        storage: &dyn LogStorage,
        store_id: u64,
        first: u64,
        bytes: u64,
    ) -> Result<(Segments, u64)> {
        let mut list = Vec::new();
        let found = storage.segments().map_err(|error| Error::io("list the log", error))?;
        let mut unused = Vec::new();
        for (number, len) in found {
            match reader::read_header(storage, store_id, number, len)? {
                Some(header) if number < first => {
                    let epoch_before = header.epoch_before;
                    list.push(Known { number, epoch_before, passes_on: false });
                }
                Some(_) => {
                    let why = format!("segment {number} is in use, but the log ends before it");
                    return Err(reader::wrong_log(why));
                }
                None => unused.push(number),
            }
        }
        // The last one first: a crash in between must not leave a gap in the numbers.
        unused.into_iter().rev().try_for_each(|number| remove(storage, number))?;
        let bytes = make_first(storage, first, bytes)?;
        let ready = VecDeque::from([first]);
        let state = State { list, ready, next: first + 1, ..State::default() };
        let state = Mutex::new(state);
        Ok((Segments { state, changed: Condvar::new(), used: AtomicU64::new(0) }, bytes))
    }

    /// So many segments are kept in reserve from now on.
    pub(crate) fn keep_reserve(&self, segments: usize) {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.reserve, segments) != segments {
            self.changed.notify_all();
        }
    }

    /// The flusher takes the next segment, and waits for it if it must; while the store is being opened, no
    /// longer than `patience`, and never longer than [`STANDSTILL`] says. No cut comes while it waits, so that
    /// what is needed is room on the device, or the end of a checkpoint that has had its cut.
    pub(crate) fn take_ready(&self, patience: Duration) -> Result<u64, String> {
        let (began, standstill) = (Instant::now(), standstill(patience));
        let mut state = self.state.lock();
        loop {
            if (state.next_is_ready() || state.error.is_some())
                && let Some(number) = state.ready.pop_front()
            {
                (state.taken, state.waited_for, state.due) = (Some(number), false, false);
                state.begun = true;
                self.used(0);
                return Ok(number);
            }
            if state.ended {
                return Err("the thread that makes segments of the log has ended".into());
            }
            // The helper says so whenever it has tried again.
            if let Some((error, since)) = &state.error
                && (state.last_flush
                    || state.opening && since.elapsed() >= patience
                    || began.elapsed() >= standstill)
                && state.doomed().is_none()
            {
                let next = state.next;
                return Err(match is_of_room(error) {
                    true => format!("there was no room for log segment {next}: {error}"),
                    false => format!("log segment {next} could not be made: {error}"),
                });
            }
            if !std::mem::replace(&mut state.waited_for, true) {
                self.changed.notify_all();
            }
            self.changed.wait(&mut state);
        }
    }

    /// Whether the next segment is made. Unless the reserve grows, it stays so until the flusher takes it.
    pub(crate) fn is_ready(&self) -> bool {
        self.state.lock().next_is_ready()
    }

    /// So much of the current segment is in use.
    pub(crate) fn used(&self, bytes: u64) {
        self.used.store(bytes, Ordering::Relaxed);
    }

    /// Everything of the current segment, of which so much is in use, is durable. Gives whether the next one
    /// is being made.
    pub(crate) fn flushed(&self, used: u64, bytes: u64) -> bool {
        let due = used >= bytes / DUE;
        let mut state = self.state.lock();
        let first = !std::mem::replace(&mut state.flushed, true);
        state.due |= due;
        if due || first {
            self.changed.notify_all();
        }
        due
    }

    /// Sleeps as long as `done` of the `bytes` of the segment that is made are enough for now; gives how many
    /// more it can have then. None: it is not needed any more.
    fn pace(&self, done: u64, bytes: u64) -> Option<u64> {
        let mut nap = NAPS[0];
        let mut state = self.state.lock();
        loop {
            if state.waited_for || state.error.is_some() {
                return Some(u64::MAX);
            }
            if state.last_flush {
                return None;
            }
            // Nor does who waits for the room of old segments write, and this is done before them.
            if state.ready.len() < state.reserve || state.doomed().is_some() {
                if done > 0 {
                    self.changed.wait_for(&mut state, NAPS[0]);
                }
                return Some(UNPACED_BYTES);
            }
            let used = self.used.load(Ordering::Relaxed);
            let wanted = 2 * used.saturating_sub(bytes / DUE);
            if done < wanted {
                return Some(wanted - done);
            }
            self.changed.wait_for(&mut state, nap);
            nap = (nap * 2).min(NAPS[1]);
        }
    }

    /// The head of a segment is durable.
    pub(crate) fn entered(&self, number: u64, epoch_before: u64) {
        let mut state = self.state.lock();
        state.taken = None;
        state.list.push(Known { number, epoch_before, passes_on: true });
    }

    /// The segment in which reading must begin to see all records of `epoch` and later ones.
    pub(crate) fn segment_of(&self, epoch: u64) -> u64 {
        let state = self.state.lock();
        let found = state.list.iter().rev().find(|known| known.epoch_before < epoch);
        let first = found.or(state.list.first()).map(|known| known.number);
        first.or(state.taken).or(state.ready.front().copied()).unwrap_or(state.next)
    }

    pub(crate) fn truncate_before(&self, segment: u64) {
        let mut state = self.state.lock();
        state.keep = state.keep.max(segment);
        state.stuck &= state.doomed().is_none();
        self.changed.notify_all();
    }

    pub(crate) fn oldest(&self) -> u64 {
        self.state.lock().list.first().map_or(0, |known| known.number)
    }

    pub(crate) fn count(&self) -> u64 {
        self.state.lock().list.len() as u64
    }

    /// Looks whether all segments that are needed are there and whole.
    pub(crate) fn check(&self, storage: &dyn LogStorage) -> io::Result<()> {
        let needed = |state: &State| {
            let numbers = state.list.iter().map(|known| known.number);
            numbers.filter(|number| *number >= state.keep).collect::<Vec<_>>()
        };
        let segments = needed(&self.state.lock());
        for segment in segments {
            if let Err(error) = storage.check(&[segment])
                // It may have been given up meanwhile.
                && needed(&self.state.lock()).contains(&segment)
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Why the log is full, if it is.
    pub(crate) fn error(&self) -> Option<Error> {
        let state = self.state.lock();
        let (error, _) = state.error.as_ref()?;
        Some(Error::io(format_args!("make log segment {}", state.next), copy_of(error)))
    }

    /// As [`Segments::error`], the error of the system.
    pub(crate) fn refusal(&self) -> Option<io::Error> {
        self.state.lock().error.as_ref().map(|(error, _)| copy_of(error))
    }

    /// Whether nothing is left to give up.
    pub(crate) fn is_truncated(&self) -> bool {
        self.state.lock().doomed().is_none()
    }

    /// Whether the log is full although all is given up that may be.
    pub(crate) fn is_stuck(&self) -> bool {
        let state = self.state.lock();
        state.error.is_some() && state.stuck
    }

    /// Does something unless the log gets room meanwhile; gives whether it did.
    pub(crate) fn while_full(&self, then: impl FnOnce()) -> bool {
        let state = self.state.lock();
        let full = state.error.is_some();
        if full {
            then();
        }
        full
    }

    /// Whether the store is being opened.
    pub(crate) fn set_opening(&self, opening: bool) {
        self.state.lock().opening = opening;
    }

    /// The flush that comes is the last one.
    pub(crate) fn no_more_waiting(&self) {
        self.state.lock().last_flush = true;
        self.changed.notify_all();
    }

    pub(crate) fn end_helper(&self) {
        self.state.lock().ending = true;
        self.changed.notify_all();
    }

    /// The helper has ended, or was never started.
    pub(crate) fn helper_ended(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
    }
}

impl State {
    /// The oldest segment, when nobody needs it any more. The last one always stays.
    fn doomed(&self) -> Option<Known> {
        let (first, _) = (self.list.first()?, self.list.get(1)?);
        (first.number < self.keep).then_some(*first)
    }

    /// Whether the flusher can have a segment although the log is not full: the first one there is, and later
    /// those beside the reserve.
    fn next_is_ready(&self) -> bool {
        self.ready.len() > if self.begun { self.reserve } else { 0 }
    }

    /// Whether nobody needs the next segment yet, and what is in the buffers has its place, so that there is time
    /// to try again.
    fn can_wait(&self) -> bool {
        let needed = self.waited_for || self.last_flush || self.ending || self.error.is_some();
        !needed && self.ready.len() >= self.reserve.max(1)
    }

    /// Whether a segment should be made now.
    fn is_wanted(&self) -> bool {
        if self.last_flush {
            return self.waited_for && !self.next_is_ready();
        }
        let reserve = self.flushed && self.ready.len() < self.reserve;
        reserve || (self.due || self.waited_for || self.error.is_some()) && !self.next_is_ready()
    }
}

/// Makes the first segment, of `bytes`, or of less where they are more than a part of the room for the log or
/// than there is. Gives its bytes. None is left when that fails.
fn make_first(storage: &dyn LogStorage, first: u64, wanted: u64) -> Result<u64> {
    let mut bytes = wanted;
    if let Some(room) = storage.room() {
        let segments = storage.segments().map_err(|error| Error::io("list the log", error))?;
        let used: u64 = segments.iter().map(|(_, bytes)| bytes).sum();
        // A power of two, so that files fit again when the store is opened the next time.
        let part = (room.saturating_add(used) / PART_OF_ROOM).checked_ilog2().map_or(0, |n| 1 << n);
        bytes = bytes.min(part).max(MIN_SEGMENT_BYTES.min(wanted));
    }
    while let Err(error) = storage.create(first, bytes) {
        let error = Error::io(format_args!("make log segment {first} of {bytes} bytes"), error);
        remove(storage, first)?;
        if !matches!(error, Error::DiskFull { .. }) || bytes <= MIN_SEGMENT_BYTES {
            return Err(error);
        }
        bytes = ((bytes / 2) & !(PAGE_SIZE as u64 - 1)).max(MIN_SEGMENT_BYTES);
    }
    if bytes < wanted {
        tracing::info!(
            bytes,
            wanted,
            "segments of the log are smaller, because there is little room"
        );
    }
    Ok(bytes)
}

/// The last segment from which on a log that ends with `end` has all records of `epoch` and later ones; not before
/// the segment `from`, which has.
///
/// # Errors
/// Failed I/O, damage.
pub fn segment_for(storage: &dyn LogStorage, end: &LogEnd, from: u64, epoch: u64) -> Result<u64> {
    let found = storage.segments().map_err(|error| Error::io("list the log", error))?;
    // A head that continues a flush which was torn, or whose blocks a later one takes back, is none to begin with.
    let mut next = end.sequence + 1;
    for (number, len) in found.into_iter().rev().filter(|(number, _)| *number > from) {
        let Some(head) = reader::read_header(storage, end.store_id, number, len)? else { continue };
        let counts = head.sequence < next || (head.sequence == next && !head.continues);
        if counts && head.epoch_before < epoch {
            return Ok(number);
        }
        next = next.min(head.sequence);
    }
    Ok(from)
}

/// Body of the helper thread.
pub(crate) fn run(shared: &Shared) {
    let (segments, storage) = (&shared.segments, &*shared.storage);
    let (mut retired, mut told) = (false, false);
    let mut state = segments.state.lock();
    while !state.ending {
        // 1. Old segments first: they may be the room for the next one.
        if let Some(Known { number, passes_on, .. }) = state.doomed() {
            let given_up = || match passes_on {
                true => gone(number, storage.pass_on(number)),
                false => gone(number, storage.retire(number)),
            };
            match parking_lot::MutexGuard::unlocked(&mut state, given_up) {
                Ok(()) => {
                    state.list.retain(|known| known.number != number);
                    retired = true;
                }
                Err(error) => {
                    tracing::warn!(%error, "an old segment of the log stays for now");
                    state.keep = 0;
                }
            }
            continue;
        }
        if std::mem::take(&mut retired) {
            parking_lot::MutexGuard::unlocked(&mut state, || give_back(storage, false));
            continue;
        }
        // 2. The next one, unless it is there or too early. It may be there because less is kept in reserve.
        if state.next_is_ready() && state.error.take().is_some() {
            shared.clear_status(status::FULL | status::REFUSED);
            parking_lot::MutexGuard::unlocked(&mut state, || shared.waits.room_changed());
            continue;
        }
        if !state.is_wanted() {
            if segments.changed.wait_for(&mut state, LOOK).timed_out() {
                parking_lot::MutexGuard::unlocked(&mut state, || shared.waits.look());
            }
            continue;
        }
        let number = state.next;
        let made = parking_lot::MutexGuard::unlocked(&mut state, || {
            let bytes = shared.options.segment_bytes;
            let zeroes = shared.zeroes();
            let mut pace = |done| segments.pace(done, bytes);
            let made = storage.create_beside(number, bytes, zeroes, &mut pace);
            if made.is_err()
                && let Err(error) = remove(storage, number)
            {
                tracing::warn!(%error, "a segment that could not be made is in the way");
            }
            made
        });
        match made {
            Ok(()) => {
                told = false;
                state.ready.push_back(number);
                state.next = number + 1;
                segments.changed.notify_all();
                if state.next_is_ready() && state.error.take().is_some() {
                    tracing::info!(segment = number, "the log has room again");
                    shared.clear_status(status::FULL | status::REFUSED);
                    parking_lot::MutexGuard::unlocked(&mut state, || shared.waits.room_changed());
                }
            }
            // It was given up, not needed any more when it was begun.
            Err(error) if state.last_flush && error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if !is_of_room(&error) && state.can_wait() => {
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!(%error, segment = number, "the log gets no further segment for now");
                }
                let until = Instant::now() + RETRY;
                while state.can_wait()
                    && !segments.changed.wait_until(&mut state, until).timed_out()
                {}
            }
            Err(error) => {
                let since = state.error.as_ref().map(|(_, since)| *since);
                if since.is_none() {
                    tracing::warn!(%error, segment = number, "the log is full");
                }
                let since = since.unwrap_or_else(Instant::now);
                // No room that the log gives back helps then.
                state.stuck = is_of_room(&error) && state.doomed().is_none();
                state.error = Some((Arc::new(error), since));
                shared.set_status(status::FULL);
                segments.changed.notify_all();
                if shared.status.load(Ordering::Relaxed) & status::REFUSED == 0
                    && (state.last_flush || since.elapsed() >= shared.options.patience)
                {
                    shared.set_status(status::REFUSED);
                    parking_lot::MutexGuard::unlocked(&mut state, || shared.waits.room_changed());
                    // What was said meanwhile was not heard.
                    continue;
                }
                // 3. A truncation wakes it earlier.
                segments.changed.wait_for(&mut state, RETRY);
            }
        }
    }
    // What was made and is not needed; the last one first, as above. A log in which nothing was ever flushed
    // keeps its first.
    while (state.begun || !state.list.is_empty())
        && let Some(number) = state.ready.pop_back()
    {
        let removed = parking_lot::MutexGuard::unlocked(&mut state, || remove(storage, number));
        if let Err(error) = removed {
            tracing::warn!(%error, "a segment of the log that is not needed stays");
            break;
        }
    }
    drop(state);
    give_back(storage, true);
}

/// Whether an error says that the device has no room. There are others, which no checkpoint can help.
fn is_of_room(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

fn copy_of(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

/// Gives room back that no segment needs. Whether there was any.
pub(crate) fn give_back(storage: &dyn LogStorage, all: bool) -> bool {
    storage.give_back(all).unwrap_or_else(|error| {
        tracing::warn!(%error, "room that the log does not need stays taken");
        false
    })
}

fn remove(storage: &dyn LogStorage, number: u64) -> Result<()> {
    gone(number, storage.remove(number))
}

/// What came of removing a segment that may be gone already: creating or removing it can have failed when
/// only its directory was still to be synced. Trying that again must not fail for ever. Old segments that
/// a power cut brings back are given up once more.
fn gone(number: u64, removed: io::Result<()>) -> Result<()> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io(format_args!("remove log segment {number}"), error))
        }
        _ => Ok(()),
    }
}
