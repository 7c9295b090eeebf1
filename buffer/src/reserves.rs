//! Page ids that workers hold in reserve: allocated, but in no tree.

use crate::{
    allocate::PageAllocator,
    ids::PageId,
    sync::{AtomicUsize, Mutex, Ordering},
};
use std::sync::{Arc, Weak};

/// Page ids that a worker holds in reserve. Locked by the worker for a moment, when it splits a page;
/// and by a compaction, which replaces some of them.
pub(crate) type Reserve = Arc<Mutex<Vec<PageId>>>;

/// The reserves of all workers.
#[derive(Default)]
pub(crate) struct Reserves {
    /// Page ids in all of them.
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

    /// Page ids in all reserves.
    pub(crate) fn pages(&self) -> usize {
        self.pages.load(Ordering::Relaxed)
    }

    /// A page id was put into a reserve.
    pub(crate) fn count_added(&self) {
        self.pages.fetch_add(1, Ordering::Relaxed);
    }

    /// A page id was taken out of a reserve.
    pub(crate) fn count_taken(&self) {
        self.pages.fetch_sub(1, Ordering::Relaxed);
    }

    /// Replaces page ids from `from` on by low ones, as far as there are any.
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
