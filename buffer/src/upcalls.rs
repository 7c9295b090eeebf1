//! The two traits that point up: what the pool must ask of the layers above it.
//!
//! This file and `pool.rs` import each other: a pool keeps its [`PageOwner`], and calls it with itself as
//! argument, because the owner of pages needs the pool to look for a parent or to merge leaves. It is the one
//! import circle of this crate.

use crate::{
    error::Result,
    ids::{FrameId, Gsn, TreeId},
    page::{PAGE_SIZE, PageImage, PageRef},
    pool::Pool,
};

/// The write-ahead rule: a page image may go to storage only when every log record up to its last
/// change is durable. Implemented by the log.
pub trait LogBarrier: Send + Sync {
    /// Returns once every change numbered up to `gsn` is durable in the log.
    fn ensure_durable(&self, gsn: Gsn) -> Result<()>;

    /// Whether a page on storage can have this number. The error says why not: by the write-ahead rule it
    /// would not have been written. Asked of every page that is read.
    fn check_read(&self, gsn: Gsn) -> Result<(), String> {
        let _ = gsn;
        Ok(())
    }

    /// Whether there is a log that must know of every change.
    fn is_log(&self) -> bool {
        false
    }

    /// The device is full: gives room back that the log only keeps for later. Whether there was any.
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

/// Where is the swip that points to a page, and where are the swips in it. Implemented by the
/// B+-tree, which alone knows the layout of nodes.
pub trait PageOwner: Send + Sync {
    /// Finds the swip with the bits `raw` in the inner node `parent`: its byte offset and its
    /// position. `hint` is where it was last seen. The caller holds the latch of the parent.
    fn find_swip(&self, parent: PageRef<'_>, raw: u64, hint: usize) -> Option<(usize, usize)>;

    /// Finds the parent of a hot page by a descent with its fence key, without waiting for I/O. The
    /// answer may be stale by the time it is used; `None` when it could not be found just now.
    fn find_parent(&self, pool: &Pool, child: FrameId) -> Option<FrameId>;

    /// An evictor, which holds the latch of a clean page without children in memory, found no parent of
    /// it. Gives whether the page is the root of a closed tree; then the owner has forgotten its frame,
    /// and reads the root from storage when it needs it again.
    fn release_root(&self, tree: TreeId, frame: FrameId) -> bool;

    /// Replaces each swip of a node image by what `replace` makes of its bits.
    fn map_swips(&self, image: &mut PageImage, replace: &mut dyn FnMut(u64) -> u64);

    /// Checks the structure of a page that was just read, so that code that holds its latch may
    /// rely on all offsets. `pages` is the number of pages of the store.
    fn check(&self, page: &[u8; PAGE_SIZE], pages: u64) -> Result<(), String>;

    /// Version hint of a page that was just read: who changed it before is not known.
    fn load_hint(&self) -> u64 {
        0
    }

    /// A dirty leaf is about to be written: a chance to save space first (X-merge). Takes no latch
    /// that it would have to wait for. Gives whether a page was saved.
    fn before_write(&self, pool: &Pool, frame: FrameId) -> bool;
}
