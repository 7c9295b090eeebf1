//! Checkpoints bound the log and the time of recovery. They are fuzzy: no operation stops for them.
//!
//! One checkpoint:
//! 1. The log begins a new epoch E, durably. From now on the first change of a page logs it whole:
//!    at once for the pages of one class, and from a later epoch on for each other class, because
//!    the log would grow many times as fast if all pages became due together. See
//!    `docs/recovery.md` for why recovery may begin at E all the same.
//! 2. Every dirty page with a change before the epoch of its class is written, at a pace that
//!    leaves the device to other work. A page that is changed before its turn is left out, because
//!    the log then has the whole page.
//! 3. All pages written so far are made durable, and so is the log. Both syncs are needed: a merge
//!    or a drop may have freed a page with changes before E, which then was not written and whose
//!    replacement is only in the log; and a transaction that ended between E and the look at active
//!    transactions in step 1 counts as ended only by its record in the log.
//! 4. The bitmaps of pages in use, at a durable epoch that is E or later, go to their spare copies.
//! 5. The superblock says that recovery begins at E; it makes the new copies the valid ones.
//! 6. Segments of the log below E are removed, except those that hold changes of transactions that
//!    had not ended.
//!
//! A crash in between leaves the previous checkpoint valid: recovery from it accepts newer pages
//! (the log has their changes, beginning with whole images) and does not read the new bitmaps.
//!
//! A failed sync of the pages is never repeated: after a failure the kernel may count lost pages as
//! written, so that the next sync succeeds and proves nothing. The engine stops, and the store is
//! recovered from the previous checkpoint.
//!
//! A checkpoint begins when the log has grown by half of its limit since the previous one began.
//! Its pages are written evenly over the last part of the expected time until the next checkpoint;
//! faster when the log grows faster, so that it stays within its limit. They are not written at
//! once, because many are evicted meanwhile and need no other write, or are changed again and need
//! none: a page that is changed all the time goes to storage only when it is evicted. An idle store
//! is checkpointed once after a while, so that it does not keep a log. When the device has no room
//! for more log before that, a checkpoint begins at once and runs without pauses: changes wait for
//! it, and are refused when it does not end within the stall timeout, or could not make room. The
//! limit of the log then shrinks to the room that there was, and grows by a quarter after each
//! checkpoint that found enough. When the device has no room for more pages, all free room of the
//! log goes back to it, and the limit shrinks by a quarter. A checkpoint that a caller waits for
//! runs without pauses too.

use super::pace::{LOOK, Pace};
use crate::{
    core::Core,
    store::{ClassEpochs, StoreState, Superblock, bitmap_groups},
};
use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};
use wattle_buffer::{BITMAP_GROUP, Error, Gsn, PageId, Result};
use wattle_wal::{CLASSES, Classes, GSN_COUNTER_BITS, Log, LogEnd, class_of};

/// The background threads of the pool have stopped.
const FINAL: u8 = 1;
/// Epochs that a log leaves out after the store was used without one. Meanwhile the numbers of
/// pages rose by one for each change.
const UNLOGGED_EPOCHS: u64 = 1 << 20;

impl Core {
    /// Makes a checkpoint now; does nothing without a log.
    pub fn checkpoint_now(&self) -> Result<()> {
        if self.log.is_none() {
            return Ok(());
        }
        self.check_alive()?;
        self.checkpoint(None, 0).map(|_| ())
    }

    /// As [`Core::checkpoint_now`], for callers that do not need it: a checkpoint writes to the
    /// log, and one that cannot shorten a full log would use up room that is reserved for
    /// rollbacks.
    pub fn checkpoint_asked(&self) -> Result<()> {
        match &self.log {
            Some(log) if log.is_full() && !self.checkpoint_shortens(log) => {
                let what = "make a checkpoint while the log cannot grow and an open transaction \
                            needs all of it";
                // If there is room by now, lack of room was the reason.
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
    pub(super) fn checkpoint_shortens(&self, log: &Log) -> bool {
        let epoch = log.epoch();
        if log.is_unbegun() {
            // A checkpoint begins with a flush.
            return false;
        }
        let active = self.txns.snapshots.collect(&self.txns.clock, &self.txns.ids);
        let needed = active.oldest_first_epoch.map_or(epoch, |first| first.min(epoch));
        self.checkpoints.keep(log.segment_of(needed)) > log.oldest_segment()
    }

    /// One checkpoint, see the module documentation.
    pub(super) fn checkpoint(&self, pace: Option<Pace>, flags: u8) -> Result<u64> {
        let log = self.log.as_ref().expect("only with a log");
        let mut state = self.checkpoints.lock();
        // The previous checkpoint may have poisoned the engine.
        self.check_alive()?;
        self.check_files().inspect_err(|error| self.txns.liveness.poison(&error.to_string()))?;
        let (begun, grown_from) = (Instant::now(), log.bytes_written());
        let _span = tracing::debug_span!("checkpoint").entered();
        // 1. A new epoch. Nothing that a transaction logged from here on is older.
        log.wait_begun()?;
        let in_turn = pace.filter(|_| log.has_page_images());
        let first = if in_turn.is_some() { 1 } else { CLASSES };
        let epoch = log.begin_checkpoint_of(Classes::range(0, first))?;
        let active = self.txns.snapshots.collect(&self.txns.clock, &self.txns.ids);
        let undo_epoch = active.oldest_first_epoch.map_or(epoch, |first| first.min(epoch));
        let mut due = [epoch; CLASSES];
        if let Some(pace) = in_turn {
            self.begin_classes(log, pace, (grown_from, begun), &mut due)?;
        }
        // 2. Pages.
        let written = match flags {
            FINAL => self.pool.flush()?,
            _ => self.write_pages(pace, (grown_from, begun), &due)?,
        };
        // 3. Durable. Room that is reserved later is not durable, so it is not counted. Pages there
        //    come into use by records after E.
        let capacity = self.pool.allocator().counts().0;
        self.sync_pages()?;
        log.flush_now()?;
        // 4. Bitmaps.
        let durable = log.durable_epoch();
        let groups = self.pool.allocator().take_changed_groups(durable);
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
            class_epochs: ClassEpochs::new(&due),
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
            // Whether the superblock is on the device is not known, so nothing may overwrite the
            // copies that it names.
            let why = format!("a superblock could not be written: {error}");
            self.distrust_lost();
            self.txns.liveness.poison(&why);
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

    /// Begins a checkpoint for one class of pages after the other, and stores their epochs in
    /// `due`, which has that of the first one. As soon as somebody waits, it begins for all that
    /// are left at once.
    fn begin_classes(
        &self,
        log: &Log,
        pace: Pace,
        (bytes, begun): (u64, Instant),
        due: &mut [u64; CLASSES],
    ) -> Result<()> {
        let mut class = 1;
        while class < CLASSES {
            if self.checkpoints.thread.is_stopping() {
                return Err(Error::Closed);
            }
            let (wait, classes) = pace.due(class, begun.elapsed(), log.bytes_written() - bytes);
            let end = if self.must_hurry(log) { CLASSES } else { classes };
            if end > class {
                due[class..end].fill(log.begin_checkpoint_of(Classes::range(class, end))?);
                class = end;
            } else {
                self.pool.allocator().settle(log.durable_epoch());
                if !self.checkpoints.thread.sleep(wait.clamp(Duration::from_millis(1), LOOK)) {
                    return Err(Error::Closed);
                }
            }
        }
        Ok(())
    }

    /// Writes the pages that a checkpoint needs, which began for their classes with the epochs
    /// `due`. Gives their number.
    fn write_pages(
        &self,
        pace: Option<Pace>,
        start: (u64, Instant),
        due: &[u64; CLASSES],
    ) -> Result<u64> {
        let limit = |page: PageId| Gsn(due[class_of(page)] << GSN_COUNTER_BITS);
        self.pool.write_older(limit, &mut |passed, total| match pace {
            Some(pace) => self.pace(pace, start, (passed, total)),
            None => Ok(()),
        })
    }

    /// Whether changes, or another thread, wait for the end of the checkpoint.
    fn must_hurry(&self, log: &Log) -> bool {
        let wanted = self.barrier.room_wanted.load(Ordering::Relaxed);
        log.is_full() || wanted || self.checkpoints.waiting.load(Ordering::Relaxed) > 0
    }

    /// Makes all written pages durable. A failure poisons the engine.
    pub fn sync_pages(&self) -> Result<()> {
        self.after_sync(self.file.sync())
    }

    /// As [`Core::sync_pages`], for pages whose writes have ended ([`StoreFile::sync_shared`]).
    pub fn sync_written_pages(&self) -> Result<()> {
        self.after_sync(self.file.sync_shared())
    }

    fn after_sync(&self, synced: Result<()>) -> Result<()> {
        if synced.is_err() {
            self.distrust_lost();
        }
        synced
    }

    /// After a failed sync every page that was written since the previous successful sync may be
    /// lost, including pages written by evictors.
    fn distrust_lost(&self) {
        if let Some(why) = self.file.lost() {
            self.pool.distrust_storage(&why);
            self.txns.liveness.poison(&why);
        }
    }

    /// Sleeps until the next page is due. `bytes`, `begun`: size of the log and time when the
    /// checkpoint began.
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
            let wait = pace.wait(pages, begun.elapsed(), log.bytes_written() - bytes);
            if self.must_hurry(log) || wait < Duration::from_millis(1) {
                return Ok(());
            }
            if !checkpoints.thread.sleep(wait.min(LOOK)) {
                return Err(Error::Closed);
            }
        }
    }

    /// Writes superblock and bitmaps of a store that was used without a log. All pages are written.
    pub fn store_unlogged(&self) -> Result<()> {
        let mut state = self.checkpoints.lock();
        let (words, capacity, _) = self.pool.allocator().snapshot();
        let sequence = state.block.sequence + 2;
        let groups = bitmap_groups(&words);
        self.file.write_bitmap(&groups, sequence, &state.copies)?;
        self.file.sync()?;
        let copies = state.copies.with(&groups, sequence);
        // Changes were numbered from the end of the log on. A later log goes on far above.
        let epoch = state.end.epoch + UNLOGGED_EPOCHS;
        let block = Superblock {
            sequence,
            state: StoreState::Closed,
            capacity,
            catalog_root: self.catalog.root_page(),
            next_tree: self.catalog.next_tree(),
            redo_epoch: epoch,
            class_epochs: ClassEpochs::default(),
            undo_epoch: epoch,
            segment: state.end.segment + 1,
            bitmaps: copies.fingerprint(),
            log_end: LogEnd { epoch, ..state.end },
            ..state.block
        };
        self.file.write_superblock(&block)?;
        (state.block, state.copies) = (block, copies);
        Ok(())
    }
}
