//! The last checkpoint, pins of the log, and room that the log gives back to the device.

use crate::{
    background::BackgroundThread,
    options::Options,
    store::{BitmapCopies, Superblock},
};
use parking_lot::{Mutex, MutexGuard};
use std::{
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::{Duration, Instant},
};
use wattle_buffer::LogBarrier;
use wattle_wal::{Log, LogEnd};

/// The checkpoints of an engine.
pub(crate) struct Checkpoints {
    /// Held while a checkpoint is made.
    state: Mutex<LastCheckpoint>,
    /// Threads that wait for it.
    pub(super) waiting: AtomicUsize,
    pub(super) limit: u64,
    /// Least limit when the device has room for less.
    pub(super) least: u64,
    pub room: PageRoom,
    /// Segments that backups need the log from.
    pins: Mutex<Vec<u64>>,
    /// The segment that the last superblock begins with.
    pub(super) begins: AtomicU64,
    pub(super) count: AtomicU64,
    pub thread: BackgroundThread,
}

/// Room that the log gives back to the device, for operations that found no room for pages.
pub(crate) struct PageRoom {
    /// How long these operations wait.
    pub timeout: Duration,
    /// Rounds that looked for room since the store was opened, and rounds that found some. `found`
    /// is stored first, and loaded first by waiting operations.
    pub rounds: AtomicU64,
    pub found: AtomicU64,
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
        // Remove the segments that this pin kept: a later checkpoint may wait for that room.
        let begins = self.checkpoints.begins.load(Ordering::Acquire);
        self.log.truncate_before(self.checkpoints.keep(begins));
    }
}

pub(super) struct LastCheckpoint {
    pub block: Superblock,
    pub copies: BitmapCopies,
    /// Where the log ended when the store was opened.
    pub end: LogEnd,
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
            state: Mutex::new(LastCheckpoint { block, copies, end }),
            waiting: AtomicUsize::new(0),
            limit: options.log_limit(),
            least: 4 * segment_bytes,
            room: PageRoom {
                timeout: options.stall_timeout,
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

    /// Gives free room of the log back to the device, for operations that wait for room.
    /// `shortened`: a checkpoint has just made some.
    pub(super) fn give_room_back(&self, log: &Log, shortened: bool) {
        let begun = Instant::now();
        while !log.is_truncated() && begun.elapsed() < self.room.timeout {
            if !self.thread.sleep(Duration::from_millis(1)) {
                return;
            }
        }
        if log.give_room_back() || shortened {
            self.room.found.fetch_add(1, Ordering::Release);
        }
        self.room.rounds.fetch_add(1, Ordering::Release);
    }

    /// Waits for a checkpoint that is under way, which then runs without pauses.
    pub(super) fn lock(&self) -> MutexGuard<'_, LastCheckpoint> {
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

    /// The superblock with which the store was opened, and where its log ended, if there was no
    /// checkpoint since.
    pub fn opened(&self) -> (Superblock, LogEnd) {
        let state = self.lock();
        (state.block, state.end)
    }

    /// Calls `look` with the last superblock, while no checkpoint can replace it.
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

    /// The first segment to keep when recovery begins with `segment`.
    pub(super) fn keep(&self, segment: u64) -> u64 {
        self.pins.lock().iter().copied().fold(segment, u64::min)
    }
}
