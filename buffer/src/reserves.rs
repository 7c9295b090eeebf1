//! Page ids in the reserves of workers: allocated, but in no tree.

use crate::{
    allocate::PageAllocator,
    ids::PageId,
    sync::{AtomicUsize, Mutex, Ordering},
};
use std::sync::{Arc, Weak};

/// The page ids that a worker holds in reserve. The worker locks them briefly when it splits a
/// page; a compaction locks them to replace some.
pub(crate) type Reserve = Arc<Mutex<Vec<PageId>>>;

/// The reserves of all workers.
#[derive(Default)]
pub(crate) struct Reserves {
    /// Number of page ids in all reserves.
    pages: AtomicUsize,
    of_workers: Mutex<Vec<Weak<Mutex<Vec<PageId>>>>>,
}

impl Reserves {
    pub(crate) fn register(&self, reserve: &Reserve) {
        let mut reserves = self.of_workers.lock();
        if reserves.len() == reserves.capacity() {
            reserves.retain(|reserve| reserve.strong_count() > 0);
        }
        reserves.push(Arc::downgrade(reserve));
    }

    /// Number of page ids in all reserves.
    pub(crate) fn pages(&self) -> usize {
        self.pages.load(Ordering::Relaxed)
    }

    /// Counts page ids that are allocated and in no tree yet: added to a reserve, or fresh.
    pub(crate) fn count_added(&self, count: usize) {
        self.pages.fetch_add(count, Ordering::Relaxed);
    }

    /// Counts page ids of these that went into a tree or were freed.
    pub(crate) fn count_taken(&self, count: usize) {
        let pages = self.pages.fetch_sub(count, Ordering::Relaxed);
        assert!(pages >= count, "a page id was taken out of an empty reserve");
    }

    /// Replaces page ids at or above `from` by low ones, as far as there are any.
    pub(crate) fn lower(&self, from: PageId, allocator: &PageAllocator) {
        let reserves: Vec<_> = self.of_workers.lock().iter().filter_map(Weak::upgrade).collect();
        for reserve in reserves {
            for page in reserve.lock().iter_mut().filter(|page| **page >= from) {
                if let Some(low) = allocator.allocate_low() {
                    allocator.free(std::mem::replace(page, low));
                }
            }
        }
    }
}
