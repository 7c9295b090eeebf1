//! The part of the warm start that other threads see.

use crate::background::BackgroundThread;
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Instant,
};
use wattle_buffer::TreeId;

/// After so many failed reads, one after the other, the device or the file is broken: each more
/// would only be an error in the log of the program.
const MOST_FAILED: u64 = 16;

/// See the module documentation.
pub(crate) struct WarmStart {
    /// Lists are written and read.
    pub is_on: bool,
    pub thread: BackgroundThread,
    /// Pages that are to be read, and those that were.
    pub(super) listed: AtomicU64,
    pub(super) read: AtomicU64,
    /// Pages of the list in the file, once it was read or written; until then 0.
    pub(super) on_file: AtomicU64,
    pub(super) opened: Instant,
    /// When the pages in memory were last looked at for a list; when the store was opened if never.
    pub(super) looked: Mutex<Instant>,
    /// Nothing is left to read, or no frame is left for it.
    is_over: AtomicBool,
    /// Reads that failed one after the other, without one between that did not.
    pub(super) failed: AtomicU64,
    /// Trees that are left out from now on. Held while the thread has a handle of a tree.
    left_out: Mutex<BTreeSet<TreeId>>,
}

impl WarmStart {
    pub fn new(is_on: bool) -> WarmStart {
        WarmStart {
            is_on,
            thread: BackgroundThread::new("warm"),
            listed: AtomicU64::new(0),
            read: AtomicU64::new(0),
            on_file: AtomicU64::new(0),
            opened: Instant::now(),
            looked: Mutex::new(Instant::now()),
            is_over: AtomicBool::new(true),
            failed: AtomicU64::new(0),
            left_out: Mutex::default(),
        }
    }

    /// Makes the thread leave these trees out and release its handles of them.
    pub fn leave_out(&self, trees: impl IntoIterator<Item = TreeId>) {
        self.left_out.lock().extend(trees);
    }

    /// The trees to leave out. While the guard lives, the thread may have a handle.
    pub(super) fn left_out(&self) -> MutexGuard<'_, BTreeSet<TreeId>> {
        self.left_out.lock()
    }

    /// The thread begins.
    pub fn begin(&self) {
        self.is_over.store(false, Ordering::Release);
    }

    /// The thread has come to its end, or could not be started.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// Whether so many reads failed that the rest of the list is not worth a try.
    pub(super) fn is_given_up(&self) -> bool {
        self.failed.load(Ordering::Relaxed) >= MOST_FAILED
    }

    /// Whether the pages in memory are a better list than the one that was read.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Pages to read, and pages that were read so far.
    pub fn progress(&self) -> (u64, u64) {
        (self.listed.load(Ordering::Relaxed), self.read.load(Ordering::Relaxed))
    }
}
