//! Compaction, as far as it concerns the allocator: low pages are given out first, and the end of the
//! file is cut off.
//!
//! **Why nothing in use is cut off.** [`PageAllocator::cut`] lowers the capacity, under the lock, to
//! behind the last page in use; a page in use is one that is in a tree, or held in reserve, or freed
//! with a write of it still in flight. So nobody reads or writes pages behind the new capacity, and
//! none is given out there without [`Storage::reserve`]. The file is cut off later
//! ([`PageAllocator::shrink_storage`]), when a superblock with the lower capacity is durable, and
//! again under the lock, to the capacity of that moment: it may have grown meanwhile.

use super::{GROW_MIN, PageAllocator, PageMap, bitmap_page, is_reserved_page};
use crate::{ids::PageId, io::Storage};

/// That of a store that is being compacted.
pub(super) struct Compaction {
    /// Pages below this are given out first.
    below: u64,
    /// No word before this has a free page.
    pub low: usize,
}

impl PageAllocator {
    /// From now on pages below the result are given out before all others: those in use would all have
    /// room there. None: they lie so already. Begun again, it gives a result for the pages in use by then.
    pub fn begin_compaction(&self) -> Option<PageId> {
        let mut map = self.pages.lock();
        let below = map.least_capacity();
        if map.end_of_used() <= below {
            return None;
        }
        map.compaction = Some(Compaction { below, low: 0 });
        Some(PageId(below))
    }

    /// The end of the compaction: pages are given out as before.
    pub fn end_compaction(&self) {
        self.pages.lock().compaction = None;
    }

    /// Takes a page that is given out first; none when all of them are in use.
    pub fn allocate_low(&self) -> Option<PageId> {
        self.pages.lock().take_low()
    }

    /// Pages that compaction could give back.
    pub fn surplus(&self) -> u64 {
        let map = self.pages.lock();
        map.capacity - map.least_capacity().min(map.capacity)
    }

    /// Gives up the pages behind the last one in use. Gives the new capacity.
    pub fn cut(&self) -> u64 {
        let mut map = self.pages.lock();
        let end = map.end_of_used().max(GROW_MIN).min(map.capacity);
        map.capacity = end;
        map.words.truncate(end.div_ceil(64) as usize);
        let bits = map.words.iter().map(|word| u64::from(word.count_ones()));
        map.used = bits.sum();
        map.cursor = 0;
        end
    }

    /// Gives the room of pages back that are not below the capacity, nor below `least`.
    ///
    /// # Errors
    /// Those of the storage.
    pub fn shrink_storage(&self, storage: &dyn Storage, least: u64) -> std::io::Result<()> {
        let map = self.pages.lock();
        storage.shrink(map.capacity.max(least))
    }
}

impl PageMap {
    /// Takes a free page that is given out first.
    pub(super) fn take_low(&mut self) -> Option<PageId> {
        let compaction = self.compaction.as_mut()?;
        while let Some(word) = self.words.get_mut(compaction.low) {
            let page = compaction.low as u64 * 64 + u64::from(word.trailing_ones());
            if *word != u64::MAX && page < compaction.below {
                *word |= 1 << (page % 64);
                self.used += 1;
                return Some(PageId(page));
            }
            if compaction.low as u64 * 64 >= compaction.below {
                return None;
            }
            compaction.low += 1;
        }
        None
    }

    /// The smallest capacity in which all pages in use would have room.
    fn least_capacity(&self) -> u64 {
        let data = self.used - reserved_below(self.capacity);
        let mut capacity = data;
        // Each turn finds the reserved pages among those that the turn before has added.
        while capacity - reserved_below(capacity) < data {
            capacity = data + reserved_below(capacity);
        }
        capacity.max(GROW_MIN)
    }

    /// Behind the last page in use that is not reserved.
    fn end_of_used(&self) -> u64 {
        let mut end = 0;
        for (at, word) in self.words.iter().enumerate().rev() {
            let mut word = *word;
            while word != 0 {
                let bit = u64::from(63 - word.leading_zeros());
                let page = at as u64 * 64 + bit;
                if !is_reserved_page(PageId(page)) {
                    end = page + 1;
                    break;
                }
                word &= !(1 << bit);
            }
            if end > 0 {
                break;
            }
        }
        end
    }
}

/// Reserved pages below a capacity.
fn reserved_below(capacity: u64) -> u64 {
    let last = capacity / super::BITMAP_GROUP;
    let full = last * 2 + if last > 0 { 2 } else { 0 };
    // Those of the last group that has begun, one by one.
    let begun = (0..2).filter(|copy| bitmap_page(last, *copy).0 < capacity).count() as u64;
    match last {
        0 => capacity.min(4),
        _ => full + begun,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{allocate::BITMAP_GROUP, io::MemoryStorage};

    #[test]
    fn reserved_pages_are_counted_as_they_are() {
        let group = BITMAP_GROUP;
        for capacity in [0, 1, 3, 4, 5, 256, group, group + 1, group + 2, 5 * group + 7] {
            let counted = (0..capacity).filter(|page| is_reserved_page(PageId(*page))).count();
            assert_eq!(reserved_below(capacity), counted as u64, "below {capacity}");
        }
    }

    #[test]
    fn low_pages_go_first_and_the_rest_is_cut_off() {
        let storage = MemoryStorage::new();
        let allocator = PageAllocator::new(Vec::new(), 0);
        let pages: Vec<PageId> =
            (0..70_000).map(|_| allocator.allocate(&storage, GROW_MIN).expect("room")).collect();
        assert_eq!(allocator.begin_compaction(), None, "all are in use");
        for page in pages.iter().filter(|page| page.0 % 7 != 0) {
            allocator.free(*page);
        }
        let left: Vec<PageId> = pages.into_iter().filter(|page| page.0 % 7 == 0).collect();
        let surplus = allocator.surplus();
        let (before, _) = allocator.counts();
        let below = allocator.begin_compaction().expect("most are free");
        assert_eq!(below.0, before - surplus);
        for page in left.iter().filter(|page| **page >= below) {
            assert!(allocator.allocate_low().expect("room for all") < below);
            allocator.free(*page);
        }
        assert_eq!(allocator.allocate_low(), None, "not one too many");
        assert!(allocator.allocate(&storage, GROW_MIN).expect("others") >= below);
        allocator.end_compaction();
        let end = allocator.cut();
        assert!(end > below.0, "there is that other page");
        storage.reserve(end + 1000).expect("room");
        allocator.shrink_storage(&storage, end + 500).expect("cut");
        assert_eq!(storage.capacity_pages(), end + 500);
        allocator.shrink_storage(&storage, 0).expect("cut");
        assert_eq!(storage.capacity_pages(), end);
        // It grows again, and no page is given out twice.
        let mut seen: Vec<PageId> = left.iter().filter(|page| **page < below).copied().collect();
        seen.extend((0..40_000).map(|_| allocator.allocate(&storage, 1).expect("room")));
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count);
    }
}
