//! [`FreshPages`]: pages for contents that are written to storage directly and are not in the log.
//!
//! Recovery redoes the log over the pages on storage. So the log that it would read must not have
//! changes of such a page from before it was freed: these would go over the new contents. A page
//! is *fresh* when it was freed before the last checkpoint, or never used. Pages that were freed
//! since stay free, for contents that are logged.
//!
//! Until their owner takes the pages for its tree they count as reserved, and dropping the rest
//! frees them.

#[cfg(doc)]
use crate::error::Error;
use crate::{error::Result, ids::PageId, page_map::GROW_MIN, pool::Pool};
use std::sync::Arc;

/// Fresh pages that are in no tree, in rows that are as long as possible.
pub struct FreshPages {
    pool: Arc<Pool>,
    /// First page and count of each row.
    rows: Vec<(u64, u64)>,
}

impl FreshPages {
    /// All of them, in the order in which they are taken.
    pub fn iter(&self) -> impl Iterator<Item = PageId> {
        self.rows.iter().flat_map(|&(first, count)| (first..first + count).map(PageId))
    }

    /// Takes the first `count` pages for a tree, whose log record names them: first page and count
    /// of each row.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn take(&mut self, count: u64) -> Vec<(u64, u64)> {
        let (mut taken, mut left) = (Vec::new(), count);
        let mut whole = 0;
        for (first, len) in &mut self.rows {
            let part = left.min(*len);
            if part == 0 {
                break;
            }
            taken.push((*first, part));
            (*first, *len, left) = (*first + part, *len - part, left - part);
            whole += usize::from(*len == 0);
        }
        assert_eq!(left, 0, "more than all fresh pages are taken");
        self.rows.drain(..whole);
        self.pool.reserves.count_taken(count as usize);
        taken
    }
}

impl Drop for FreshPages {
    fn drop(&mut self) {
        let mut freed = 0;
        for page in self.iter() {
            self.pool.allocator.free(page);
            freed += 1;
        }
        self.pool.reserves.count_taken(freed);
    }
}

impl Pool {
    /// Allocates fresh pages.
    ///
    /// # Errors
    /// [`Error::DiskFull`] if the device has no room for them beside the pages that were freed
    /// since the last checkpoint.
    pub fn fresh_pages(self: &Arc<Self>, count: usize) -> Result<FreshPages> {
        // Logged contents find room for a single page more, and the room of the log.
        let rows = self.allocator.allocate_rows(&*self.storage, count as u64, GROW_MIN)?;
        self.reserves.count_added(count);
        Ok(FreshPages { pool: self.clone(), rows })
    }
}
