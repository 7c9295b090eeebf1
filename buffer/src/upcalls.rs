//! The two traits that point up: calls from the pool to the layers above it.
//!
//! This file and `pool.rs` import each other, the one import circle of this crate. A pool keeps its
//! [`PageOwner`] and passes itself to it, because the owner needs the pool to look for a parent or
//! to merge leaves.

use crate::{
    error::Result,
    ids::{FrameId, Gsn, TreeId},
    page::{PAGE_SIZE, PageImage, PageRef},
    pool::Pool,
};

/// The write-ahead rule: a page image may go to storage only when every log record up to its last
/// change is durable. Implemented by the log.
pub trait LogBarrier: Send + Sync {
    /// Returns once all changes numbered up to `gsn` are durable in the log.
    fn ensure_durable(&self, gsn: Gsn) -> Result<()>;

    /// Checks that a page on storage can have this change number; the error says why it cannot. By
    /// the write-ahead rule no page is written before its log records are durable. Called for every
    /// page that is read.
    fn check_read(&self, gsn: Gsn) -> Result<(), String> {
        let _ = gsn;
        Ok(())
    }

    /// Whether there is a log, which must have a record of every change.
    fn is_log(&self) -> bool {
        false
    }

    /// Gives back room that the log keeps for later, because the device is full. Returns whether
    /// there was any.
    fn give_room_back(&self) -> bool {
        false
    }
}

/// No log: every page may be written at any time, and a crash may lose or mix changes.
pub struct NoLog;

impl LogBarrier for NoLog {
    fn ensure_durable(&self, _: Gsn) -> Result<()> {
        Ok(())
    }
}

/// Knows where swips are: the one that names a page, and those in a page. Implemented by the
/// B+-tree, because only the tree knows the layout of nodes.
pub trait PageOwner: Send + Sync {
    /// Finds the swip with the bits `raw` in the inner node `parent`: its byte offset and its
    /// position. `hint` is its last known position. The caller holds the latch of the parent.
    fn find_swip(&self, parent: PageRef<'_>, raw: u64, hint: usize) -> Option<(usize, usize)>;

    /// Finds the parent of a hot page by a descent with its fence key, without waiting for I/O. The
    /// result may be stale when it is used; `None` if the descent did not find it.
    fn find_parent(&self, pool: &Pool, child: FrameId) -> Option<FrameId>;

    /// Called by an evictor that holds the latch of a clean page without hot children and found no
    /// parent of it. Returns whether the page is the root of a closed tree. If so, the owner has
    /// forgotten its frame, and will read the root from storage when it needs it again.
    fn release_root(&self, tree: TreeId, frame: FrameId) -> bool;

    /// Replaces the bits of each swip of a node image by `replace(bits)`.
    fn map_swips(&self, image: &mut PageImage, replace: &mut dyn FnMut(u64) -> u64);

    /// Checks the structure of a page that was just read, so that code under its latch may rely on
    /// all offsets. `pages` is the number of pages of the store.
    fn check(&self, page: &[u8; PAGE_SIZE], pages: u64) -> Result<(), String>;

    /// Version hint for a page that was just read, whose last change is not known.
    fn load_hint(&self) -> u64 {
        0
    }

    /// Called before a dirty leaf is written, as a chance to save a page (X-merge). Only tries
    /// latches, never waits for one. Returns whether a page was saved.
    fn before_write(&self, pool: &Pool, frame: FrameId) -> bool;
}
