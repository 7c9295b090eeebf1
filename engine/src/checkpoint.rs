//! Checkpoints: what bounds the log and the time of recovery. They are fuzzy: nobody stops for them.
//!
//! One checkpoint:
//! 1. The log begins a new epoch E, durably. From now on the first change of a page logs it whole.
//! 2. Every page with a change before E that is not on storage is written, at a pace that leaves the
//!    device to others; unless it is changed before its turn comes, because the log then has all of it.
//! 3. All pages written so far are made durable, and so is the log. Pages with changes before E that
//!    a merge or a drop freed meanwhile were not written; what took their place is in the log. And
//!    transactions that ended before step 1 looked at those that had not, but behind E, count as ended
//!    only with the record that says so.
//! 4. The bitmaps of pages in use, as of a durable epoch at or after E, go to their spare copies.
//! 5. The superblock says that recovery begins at E; it makes the new copies the valid ones.
//! 6. Segments of the log below E are removed, except those that hold changes of transactions that
//!    had not ended.
//!
//! A crash in between leaves the checkpoint before valid: it reads neither the pages' new contents
//! as wrong (their changes are in the log, from whole images on) nor the new bitmaps at all.
//!
//! A sync of the pages that fails is not tried again, by this or another checkpoint: the kernel may
//! regard what it was to write as written, so that the next one succeeds and proves nothing. The engine
//! stops, and the store is recovered from the checkpoint before.
//!
//! A checkpoint begins when the log has grown by half of its limit since the last one began. Its pages
//! are written evenly over the last part of the time until the next one begins, if that takes as long as the
//! last time; faster when the log grows faster, so that it does not grow beyond its limit. They are not
//! written at once, because many will be evicted meanwhile and need no other write, or changed again and
//! need none: a page that is changed all the time goes to storage when it is evicted, and only then.
//! An idle store is checkpointed once after a while, so that it does not keep a log. When the device has
//! no room for more log before that, a checkpoint that makes room comes at once: changes wait for it, and are
//! refused when it has not come after the stall timeout, or could not make room. From then on the log has
//! what there was room for as its limit, and a quarter more after each checkpoint for which there was enough.
//! The same when there is no room for more pages, except that all of it goes back to the device then, and the
//! limit is a quarter less.
//! Nor does a checkpoint that somebody waits for take its time.

use crate::{
    background::BackgroundThread,
    engine::Core,
    ops::Resolve,
    options::Options,
    store::{BitmapCopies, StoreState, Superblock, bitmap_groups},
};
use parking_lot::{Mutex, MutexGuard};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use wattle_buffer::{BITMAP_GROUP, Error, Gsn, LogBarrier, Result};
use wattle_wal::{GSN_COUNTER_BITS, Log, LogEnd};

/// How often the growth of the log is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// A store with changes is checkpointed at least this often.
const INTERVAL: Duration = Duration::from_secs(300);
/// A checkpoint takes this time at most.
const LONGEST: Duration = Duration::from_secs(60);
/// Of the time, or the log, until the next one begins: what passes before pages are written, and until all
/// of them are.
const FROM: f64 = 0.6;
const TO: f64 = 0.95;

/// When the pages of a checkpoint are written.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// Until the next one begins, if that takes as long as last time.
    time: Duration,
    /// The log grows by so much until then.
    bytes: u64,
}

impl Pace {
    /// How long to wait when so many pages of all are dealt with, after some time in which the log has
    /// grown by some bytes.
    fn wait(self, (passed, total): (usize, usize), elapsed: Duration, grown: u64) -> Duration {
        let due = FROM + (TO - FROM) * passed as f64 / total.max(1) as f64;
        if grown as f64 >= self.bytes as f64 * due {
            return Duration::ZERO;
        }
        self.time.mul_f64(due).saturating_sub(elapsed)
    }
}

/// The checkpoints of an engine.
pub(crate) struct Checkpoints {
    /// Held while one is made.
    state: Mutex<State>,
    /// Threads that wait for that.
    waiting: AtomicUsize,
    limit: u64,
    /// Least limit when the device has room for less.
    least: u64,
    room: Room,
    /// Segments that backups need the log from.
    pins: Mutex<Vec<u64>>,
    /// The segment that the last superblock begins with.
    begins: AtomicU64,
    count: AtomicU64,
    thread: BackgroundThread,
}

/// What operations wait for that find no room for pages on the device: room that the log gives back.
struct Room {
    /// How long they wait.
    patience: Duration,
    /// How often it was looked for since the store was opened, and how often there was some; stored in the
    /// opposite order.
    rounds: AtomicU64,
    found: AtomicU64,
}

/// See [`Checkpoints::pin`].
pub(crate) struct Pin<'c> {
    checkpoints: &'c Checkpoints,
    log: &'c Log,
    segment: u64,
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        let mut pins = self.checkpoints.pins.lock();
        if let Some(at) = pins.iter().position(|segment| *segment == self.segment) {
            pins.swap_remove(at);
        }
        drop(pins);
        // What was kept for this goes now: a later checkpoint may itself wait for that room.
        let begins = self.checkpoints.begins.load(Ordering::Acquire);
        self.log.truncate_before(self.checkpoints.keep(begins));
    }
}

struct State {
    block: Superblock,
    copies: BitmapCopies,
    /// Where the log ended when the store was opened.
    end: LogEnd,
}

impl Checkpoints {
    /// `segment_bytes`: of the log.
    pub fn new(
        block: Superblock,
        copies: BitmapCopies,
        end: LogEnd,
        segment_bytes: u64,
        options: &Options,
    ) -> Self {
        Checkpoints {
            state: Mutex::new(State { block, copies, end }),
            waiting: AtomicUsize::new(0),
            limit: options.log_limit(),
            least: 4 * segment_bytes,
            room: Room {
                patience: options.stall_timeout,
                rounds: AtomicU64::new(0),
                found: AtomicU64::new(0),
            },
            pins: Mutex::default(),
            begins: AtomicU64::new(0),
            count: AtomicU64::new(0),
            thread: BackgroundThread::new("checkpoints"),
        }
    }

    /// Checkpoints made so far.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Starts the thread, if there is a log.
    pub fn start(core: &Arc<Core>) -> Result<()> {
        if core.log.is_none() {
            return Ok(());
        }
        let ours = core.clone();
        core.checkpoints.thread.start(move || work(&ours))
    }

    /// Stops the thread; a checkpoint that is under way is given up.
    pub fn stop(&self) {
        self.thread.stop();
    }

    /// What the log does not need goes back to the device, for those who wait for room. `shortened`: it needs
    /// less than before, so there is some.
    fn give_room_back(&self, log: &Log, shortened: bool) {
        let begun = Instant::now();
        while !log.is_truncated() && begun.elapsed() < self.room.patience {
            if !self.thread.sleep(Duration::from_millis(1)) {
                return;
            }
        }
        if log.give_room_back() || shortened {
            self.room.found.fetch_add(1, Ordering::Release);
        }
        self.room.rounds.fetch_add(1, Ordering::Release);
    }

    /// Waits for a checkpoint that is under way, which hurries.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let state = self.state.lock();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        state
    }

    /// Waits for the checkpoint that is being made, if one is.
    pub fn wait(&self) {
        drop(self.lock());
    }

    /// The last superblock.
    pub fn block(&self) -> Superblock {
        self.lock().block
    }

    /// The superblock with which the store was opened, and where its log ended, if there was no checkpoint since.
    pub fn opened(&self) -> (Superblock, LogEnd) {
        let state = self.lock();
        (state.block, state.end)
    }

    /// Looks at the last superblock while no checkpoint replaces it.
    pub fn look<T>(&self, look: impl FnOnce(&Superblock) -> T) -> T {
        look(&self.lock().block)
    }

    /// Keeps the log from where recovery begins now on, until the pin is dropped.
    pub fn pin<'c>(&'c self, log: &'c Log) -> Pin<'c> {
        let state = self.lock();
        let mut pins = self.pins.lock();
        pins.push(state.block.segment);
        Pin { checkpoints: self, log, segment: state.block.segment }
    }

    /// The first segment that is needed when recovery begins with this one.
    fn keep(&self, segment: u64) -> u64 {
        self.pins.lock().iter().copied().fold(segment, u64::min)
    }

    /// The superblock and bitmaps of a store that was used without a log; all pages are written.
    pub fn store_unlogged(&self, core: &Core) -> Result<()> {
        let mut state = self.lock();
        let (words, capacity, _) = core.pool.allocator().snapshot();
        let sequence = state.block.sequence + 2;
        let groups = bitmap_groups(&words);
        core.file.write_bitmap(&groups, sequence, &state.copies)?;
        core.file.sync()?;
        let copies = state.copies.with(&groups, sequence);
        // Pages were numbered from where the log had ended: a later log goes on far above.
        let epoch = state.end.epoch + UNLOGGED_EPOCHS;
        let block = Superblock {
            sequence,
            state: StoreState::Closed,
            capacity,
            catalog_root: core.catalog.root_page(),
            next_tree: core.catalog.next_tree(),
            redo_epoch: epoch,
            undo_epoch: epoch,
            segment: state.end.segment + 1,
            bitmaps: copies.fingerprint(),
            log_end: LogEnd { epoch, ..state.end },
            ..state.block
        };
        core.file.write_superblock(&block)?;
        (state.block, state.copies) = (block, copies);
        Ok(())
    }
}

/// By how many epochs the log goes on after the store was used without it: numbers of pages rose by
/// one for each change meanwhile.
const UNLOGGED_EPOCHS: u64 = 1 << 20;

fn work(core: &Core) {
    let checkpoints = &core.checkpoints;
    let Some(log) = &core.log else { return };
    let mut last = (0u64, Instant::now());
    // What the device has room for, as far as that is known.
    let mut limit = checkpoints.limit;
    while checkpoints.thread.sleep(LOOK) {
        let bytes = log.bytes_written();
        let grown = bytes - last.0;
        let due = grown >= limit / 2;
        let idle = grown > 0 && last.1.elapsed() > INTERVAL;
        // In this order: a log that is found full in between is not one that no checkpoint can help.
        let stuck = log.is_stuck();
        let is_full = log.is_full();
        let full = is_full && core.checkpoint_shortens(log);
        if stuck && !full {
            log.refuse_changes();
        }
        let wanted = core.barrier.room_wanted.swap(false, Ordering::Relaxed);
        let mut room = wanted && core.checkpoint_shortens(log);
        // One that cannot shorten a full log takes of its last room.
        let wanted_by_age = (due || idle) && !is_full;
        if (wanted_by_age || full || room) && core.failure().is_none() {
            let pace = Pace { time: last.1.elapsed().min(LONGEST), bytes: limit / 2 };
            limit = match (full, room) {
                (_, true) => (log.bytes_kept() / 4 * 3).clamp(checkpoints.least.min(limit), limit),
                (true, false) => log.bytes_kept().min(limit),
                _ => limit.saturating_add(limit / 4).min(checkpoints.limit),
            };
            last = (bytes, Instant::now());
            if let Err(error) = core.checkpoint((!full && !room).then_some(pace), 0) {
                room = false;
                if checkpoints.thread.is_stopping() {
                    return;
                }
                tracing::error!(%error, "a checkpoint failed; the log is kept");
                // Again before long, but not in a loop.
                last.0 = bytes.saturating_sub(limit / 2);
                if !checkpoints.thread.sleep(Duration::from_secs(1)) {
                    return;
                }
            }
        }
        if wanted {
            checkpoints.give_room_back(log, room);
        }
        core.pool.allocator().settle(log.durable_epoch());
    }
}

impl Core {
    /// The device has no room for pages, says an operation that has changed nothing. Waits until the log has
    /// given back what it can, at most for the stall timeout `since` the first time, and gives whether it is
    /// worth to try again.
    pub async fn wait_for_room<R: Resolve>(
        &self,
        session: &R,
        since: &mut Option<Instant>,
    ) -> bool {
        let (checkpoints, room) = (&self.checkpoints, &self.checkpoints.room);
        if self.log.as_ref().is_none_or(|log| log.refuses_changes()) {
            return false;
        }
        let since = *since.get_or_insert_with(Instant::now);
        // In this order, the opposite of that of a round: what one finds meanwhile counts as found.
        let found = room.found.load(Ordering::Acquire);
        let rounds = room.rounds.load(Ordering::Acquire);
        self.barrier.room_wanted.store(true, Ordering::Relaxed);
        let mut turn = 0u32;
        while room.rounds.load(Ordering::Acquire) == rounds {
            let late = since.elapsed() > room.patience;
            if late || self.failure().is_some() || checkpoints.thread.is_stopping() {
                return false;
            }
            session.pause(turn).await;
            turn = turn.saturating_add(1);
        }
        room.found.load(Ordering::Relaxed) != found
    }

    /// Makes a checkpoint at once; nothing without a log.
    pub fn checkpoint_now(&self) -> Result<()> {
        if self.log.is_none() {
            return Ok(());
        }
        self.check_alive()?;
        self.checkpoint(None, 0).map(|_| ())
    }

    /// As [`Core::checkpoint_now`] for a caller who can do without: every checkpoint writes to the log, and one
    /// that cannot shorten a full log leaves less of its reserve to the roll-backs that may.
    pub fn checkpoint_asked(&self) -> Result<()> {
        match &self.log {
            Some(log) if log.is_full() && !self.checkpoint_shortens(log) => {
                let what = "make a checkpoint while the log cannot grow and a transaction that is open needs \
                            all of it";
                // There may be room by now, and then it was that.
                let why = log.why_full().unwrap_or(std::io::ErrorKind::StorageFull.into());
                Err(Error::io(what, why))
            }
            _ => self.checkpoint_now(),
        }
    }

    /// The last checkpoint, with the background threads stopped.
    pub fn final_checkpoint(&self) -> Result<()> {
        let written = self.checkpoint(None, FINAL)?;
        tracing::info!(path = %self.file.path.display(), pages_written = written, "closed");
        Ok(())
    }

    /// Whether segments of the log could go if a checkpoint began now.
    fn checkpoint_shortens(&self, log: &Log) -> bool {
        let epoch = log.epoch();
        let active = self.snapshots.collect(&self.clock, &self.ids);
        let needed = active.oldest_first_epoch.map_or(epoch, |first| first.min(epoch));
        self.checkpoints.keep(log.segment_of(needed)) > log.oldest_segment()
    }

    /// One checkpoint, see the module documentation.
    fn checkpoint(&self, pace: Option<Pace>, flags: u8) -> Result<u64> {
        let log = self.log.as_ref().expect("only with a log");
        let mut state = self.checkpoints.lock();
        // The one before may have failed in a way that cannot be undone.
        self.check_alive()?;
        self.check_files().inspect_err(|error| self.poison(&error.to_string()))?;
        let begun = Instant::now();
        // 1. A new epoch. Nothing that a transaction logged from here on is older.
        let epoch = log.begin_checkpoint()?;
        let active = self.snapshots.collect(&self.clock, &self.ids);
        let undo_epoch = active.oldest_first_epoch.map_or(epoch, |first| first.min(epoch));
        // 2. Pages.
        let limit = Gsn(epoch << GSN_COUNTER_BITS);
        let written = match flags {
            FINAL => self.pool.flush()?,
            _ => {
                let start = (log.bytes_written(), begun);
                self.pool.write_older(limit, &mut |passed, total| match pace {
                    Some(pace) => self.pace(pace, start, (passed, total)),
                    None => Ok(()),
                })?
            }
        };
        // 3. Durable. Room that is reserved from here on is not, so it is not counted. Pages there come
        //    into use by records behind E.
        let capacity = self.pool.allocator().counts().0;
        self.sync_pages()?;
        log.flush_now()?;
        // 4. Bitmaps.
        let settled = log.durable_epoch();
        let groups = self.pool.allocator().take_changed_groups(settled);
        let known = |group: &(u64, Vec<u64>)| group.0 < capacity.div_ceil(BITMAP_GROUP);
        let (groups, later): (Vec<_>, Vec<_>) = groups.into_iter().partition(known);
        self.pool.allocator().keep_changed_groups(later.into_iter().map(|(group, _)| group));
        let sequence = state.block.sequence + 1;
        let copies =
            state.copies.with(&groups, sequence).of_groups(capacity.div_ceil(BITMAP_GROUP));
        let block = Superblock {
            sequence,
            state: StoreState::Logged,
            capacity,
            catalog_root: self.catalog.root_page(),
            next_tree: self.catalog.next_tree(),
            redo_epoch: epoch,
            undo_epoch,
            segment: log.segment_of(undo_epoch),
            bitmaps: copies.fingerprint(),
            durable_flush: log.durable_flush(),
            ..state.block
        };
        let stored = (|| {
            self.check_files()?;
            self.file.write_bitmap(&groups, sequence, &state.copies)?;
            if !groups.is_empty() {
                self.file.sync()?;
            }
            // 5. The superblock.
            self.file.write_superblock(&block)
        })();
        if let Err(error) = stored {
            self.pool.allocator().keep_changed_groups(groups.into_iter().map(|(group, _)| group));
            // Whether the superblock is on the device is not known: the numbers go on from it, and
            // the copies that it may name are not overwritten before the next one is known to be.
            let why = format!("a superblock could not be written: {error}");
            self.distrust_lost();
            self.poison(&why);
            return Err(error);
        }
        (state.block, state.copies) = (block, copies);
        // 6. The log.
        self.pool.allocator().forget_freed_before(epoch);
        self.checkpoints.begins.store(block.segment, Ordering::Release);
        log.truncate_before(self.checkpoints.keep(block.segment));
        self.checkpoints.count.fetch_add(1, Ordering::Relaxed);
        let took = begun.elapsed().as_millis() as u64;
        tracing::debug!(epoch, undo_epoch, written, took_ms = took, "checkpoint");
        Ok(written)
    }

    /// Makes all pages durable that were written. When that fails, nothing may be changed any more.
    pub fn sync_pages(&self) -> Result<()> {
        let synced = self.file.sync();
        if synced.is_err() {
            self.distrust_lost();
        }
        synced
    }

    /// After a failure: if one of a sync, then any page written since the one before may be lost, those
    /// of evictors too, whatever it was to make durable.
    fn distrust_lost(&self) {
        if let Some(why) = self.file.lost() {
            self.pool.distrust_storage(&why);
            self.poison(&why);
        }
    }

    /// Sleeps until it is time for more pages. The checkpoint began when the log had some bytes.
    fn pace(
        &self,
        pace: Pace,
        (bytes, begun): (u64, Instant),
        pages: (usize, usize),
    ) -> Result<()> {
        let checkpoints = &self.checkpoints;
        let Some(log) = &self.log else { return Ok(()) };
        loop {
            if checkpoints.thread.is_stopping() {
                return Err(Error::Closed);
            }
            self.pool.allocator().settle(log.durable_epoch());
            // Changes wait until it has ended, or somebody else does.
            let wanted = self.barrier.room_wanted.load(Ordering::Relaxed);
            let waiting = checkpoints.waiting.load(Ordering::Relaxed) > 0;
            let hurry = log.is_full() || wanted || waiting;
            let wait = pace.wait(pages, begun.elapsed(), log.bytes_written() - bytes);
            if hurry || wait < Duration::from_millis(1) {
                return Ok(());
            }
            if !checkpoints.thread.sleep(wait.min(LOOK)) {
                return Err(Error::Closed);
            }
        }
    }
}

/// The background threads of the pool have stopped.
const FINAL: u8 = 1;

#[cfg(test)]
mod tests {
    use super::Pace;
    use std::time::Duration;

    #[test]
    fn pages_are_written_evenly_but_before_the_log_has_no_room() {
        let pace = Pace { time: Duration::from_secs(100), bytes: 1000 };
        let wait = |pages, seconds, grown| {
            let wait = pace.wait(pages, Duration::from_secs(seconds), grown);
            (wait.as_secs_f64() * 10.0).round() / 10.0
        };
        // Nothing is written first.
        assert_eq!(wait((0, 100), 0, 0), 60.0);
        assert_eq!(wait((0, 0), 0, 0), 60.0);
        assert_eq!(wait((50, 100), 40, 100), 37.5);
        assert_eq!(wait((50, 100), 78, 100), 0.0);
        // The log grows faster than it did.
        assert_eq!(wait((50, 100), 40, 776), 0.0);
        assert_eq!(wait((100, 100), 40, 940), 55.0);
    }
}
