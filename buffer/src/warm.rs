//! Reads pages that no operation waits for yet, many at once, and lists the pages that are in
//! memory: the two halves of a warm start.
//!
//! The engine lists the resident pages when it closes a store ([`Pool::resident`]). After the next
//! opening it asks for them again: a descent gives the faults, [`Worker::start_beside`] starts
//! their reads, neighbours in the file with one call, and after [`Worker::wait_beside`] another
//! descent swizzles them.

use crate::{
    fault::{Fault, PageRead},
    frame::FrameState,
    ids::{PageId, TreeId},
    in_flight::TAKE_OVER,
    pool::Pool,
    replacement::{Replacement, with_policy},
    worker::Worker,
};
use std::{
    sync::Arc,
    task::{Context, Poll},
};

/// A page in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resident {
    /// Its tree.
    pub tree: TreeId,
    /// Its number.
    pub page: PageId,
    /// Its value for the replacement policy; comparable within one pool.
    pub value: f32,
    /// Children of it are in memory, so it cannot be evicted.
    pub is_parent: bool,
}

/// Reads that were started, see [`Worker::start_beside`]. Dropping them cancels nothing.
#[must_use = "without a wait, no thread learns when they end"]
pub struct ReadsBeside(Vec<Arc<PageRead>>);

impl ReadsBeside {
    /// How many reads were started.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

impl Pool {
    /// The pages of trees that are in memory now, without the roots of open trees, in the order of
    /// frames. Takes no latch: a page that moves meanwhile may be missing, or have the tree of
    /// another page.
    pub fn resident(&self) -> impl Iterator<Item = Resident> {
        let epoch = self.epoch();
        self.used_frames().filter_map(move |frame| {
            let header = self.header(frame);
            if header.state() != FrameState::Hot || header.is_pinned() {
                return None;
            }
            Some(Resident {
                tree: header.tree_id(),
                page: header.page_id(),
                value: with_policy!(&self.policy, policy => policy.value(&header.tracker, epoch)),
                is_parent: header.hot_children() > 0,
            })
        })
    }

    /// Free frames beyond those that evictors keep free: so many pages can be read and none has to
    /// leave.
    pub fn spare_frames(&self) -> usize {
        self.free.len().saturating_sub(self.free.high_water())
    }
}

impl Worker {
    /// Starts the reads among `faults` on other threads, all of them together. Starts fewer when
    /// frames are lacking: this is optional work.
    pub fn start_beside(&self, faults: Vec<Fault>) -> ReadsBeside {
        let (reads, targets) = self.lend_for_reads(faults);
        self.pool().storage.clone().start_reads_beside(targets);
        ReadsBeside(reads)
    }

    /// Waits until all of these reads have ended. Gives how many pages came. An operation that
    /// needs one of the others reads it itself, and gets the error.
    pub fn wait_beside(&self, reads: ReadsBeside) -> usize {
        let (ReadsBeside(mut reads), mut came) = (reads, 0);
        let context = Context::from_waker(self.waker());
        loop {
            reads.retain(|read| match read.poll(&context) {
                Poll::Ready(outcome) => {
                    came += usize::from(outcome.is_ok());
                    false
                }
                Poll::Pending => true,
            });
            if reads.is_empty() {
                return came;
            }
            self.park_for(TAKE_OVER);
        }
    }
}
