//! The pages of the store that may be allocated: a bitmap with one bit for each page, 32 KiB for
//! each GiB of data, however fragmented it is. Room on the device is reserved before a page id is
//! allocated. So a full device refuses new pages, but never a page that already has contents.

use crate::{
    error::{Error, Result},
    ids::PageId,
    io::Storage,
};

/// Pages in one group, whose bitmap fills one stored page. The first two pages of each group hold
/// two copies of that bitmap; in the first group they follow the two superblocks. Their places are
/// fixed, so that a full device always has room to store a bitmap.
pub const BITMAP_GROUP: u64 = 32_256;

/// The page that holds copy 0 or 1 of the bitmap of group `group`.
pub fn bitmap_page(group: u64, copy: u64) -> PageId {
    PageId(if group == 0 { 2 + copy } else { group * BITMAP_GROUP + copy })
}

/// Whether the page belongs to the store itself and is never allocated.
pub fn is_reserved_page(page: PageId) -> bool {
    page.0 <= 3 || page.0 % BITMAP_GROUP <= 1
}

/// Smallest and largest step in which room on the device is reserved, in pages.
pub(crate) const GROW_MIN: u64 = 256;
const GROW_MAX: u64 = 16 * 1024;

pub(crate) struct PageMap {
    /// Bit set: in use.
    words: Vec<u64>,
    /// Pages for which room is reserved on the device.
    capacity: u64,
    used: u64,
    /// Word at which the next search starts.
    cursor: usize,
    /// Word at which the next search for rows starts.
    row_cursor: usize,
    /// See [`PageMap::begin_compaction`].
    compaction: Option<Compaction>,
}

/// A running compaction.
struct Compaction {
    /// Pages below this are allocated first.
    below: u64,
    /// No word before this one has a free page.
    low: usize,
}

impl PageMap {
    /// A map in which the pages of `bitmap` (bit set: in use) and all reserved pages are used.
    pub(crate) fn new(bitmap: Vec<u64>, capacity: u64) -> PageMap {
        let mut words = bitmap;
        words.resize(capacity.div_ceil(64) as usize, 0);
        if let (Some(last), used @ 1..) = (words.last_mut(), capacity % 64) {
            // Bits past the end name no page; the bytes on disk may have them set.
            *last &= (1 << used) - 1;
        }
        let mut map =
            PageMap { words, capacity, used: 0, cursor: 0, row_cursor: 0, compaction: None };
        map.take_reserved(0);
        map.used = map.words.iter().map(|w| u64::from(w.count_ones())).sum();
        map
    }

    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    /// Pages for which room is reserved, used or free.
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Pages in use.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Takes the next free page. There must be one.
    pub(crate) fn take_next(&mut self) -> PageId {
        assert!(self.used < self.capacity, "all {} pages are in use", self.capacity);
        loop {
            let cursor = self.cursor;
            let word = self.words[cursor];
            if word != u64::MAX {
                let page = cursor as u64 * 64 + u64::from(word.trailing_ones());
                if page < self.capacity {
                    self.words[cursor] |= 1 << (page % 64);
                    self.used += 1;
                    return PageId(page);
                }
            }
            self.cursor = if cursor + 1 == self.words.len() { 0 } else { cursor + 1 };
        }
    }

    /// Takes up to `count` free pages for which `may_take` holds, from where the last call ended,
    /// and adds them to `rows`: first page and count. Gives how many; fewer if there are no more.
    pub(crate) fn take_rows(
        &mut self,
        count: u64,
        may_take: impl Fn(PageId) -> bool,
        rows: &mut Vec<(u64, u64)>,
    ) -> u64 {
        let words = self.words.len();
        let (start, mut taken) = (self.row_cursor % words.max(1), 0);
        for at in (start..words).chain(0..start) {
            self.row_cursor = at;
            let mut free = !self.words[at];
            while free != 0 {
                let bit = free.trailing_zeros();
                let page = at as u64 * 64 + u64::from(bit);
                if taken == count || page >= self.capacity {
                    break;
                }
                free &= free - 1;
                if !may_take(PageId(page)) {
                    continue;
                }
                self.words[at] |= 1 << bit;
                taken += 1;
                match rows.last_mut() {
                    Some((first, count)) if *first + *count == page => *count += 1,
                    _ => rows.push((page, 1)),
                }
            }
            if taken == count {
                break;
            }
        }
        self.used += taken;
        taken
    }

    /// Frees a page.
    ///
    /// # Panics
    /// If the page is free already: a page with two owners would be lost to both.
    pub(crate) fn give(&mut self, page: PageId) {
        let word = page.0 as usize / 64;
        let bit = 1 << (page.0 % 64);
        assert!(
            page.0 < self.capacity && self.words[word] & bit != 0,
            "page {page} was freed twice"
        );
        self.words[word] &= !bit;
        self.used -= 1;
        if let Some(compaction) = &mut self.compaction {
            compaction.low = compaction.low.min(word);
        }
        // Using low pages first keeps the store dense, but moving the cursor back only pays over a
        // distance.
        if word < self.cursor && self.cursor - word > 1024 {
            self.cursor = word;
        }
    }

    /// Marks the reserved pages from `start` on as used; returns how many of them were free.
    fn take_reserved(&mut self, start: u64) -> u64 {
        let groups = start / BITMAP_GROUP..self.capacity.div_ceil(BITMAP_GROUP);
        let copies = groups.flat_map(|group| [bitmap_page(group, 0), bitmap_page(group, 1)]);
        let pages = [PageId(0), PageId(1)].into_iter().chain(copies);
        let mut taken = 0;
        for page in pages.filter(|page| page.0 >= start && page.0 < self.capacity) {
            let word = &mut self.words[page.0 as usize / 64];
            taken += u64::from(*word >> (page.0 % 64) & 1 == 0);
            *word |= 1 << (page.0 % 64);
        }
        taken
    }

    pub(crate) fn grow(&mut self, storage: &dyn Storage, least: u64) -> Result<()> {
        let step = (self.capacity / 8).clamp(GROW_MIN, GROW_MAX);
        // A nearly full device may still have room for a smaller step.
        let wanted = [step, GROW_MIN, 1].into_iter().filter(|step| *step >= least);
        let mut wanted = wanted.map(|step| self.capacity + step);
        let capacity = loop {
            let Some(target) = wanted.next() else { unreachable!("the last step returns") };
            if target > PageId::MAX.0 {
                return Err(Error::Limit(format!("the store has its maximum of {target} pages")));
            }
            match storage.reserve(target) {
                Ok(()) => break target,
                Err(error) => {
                    let error = Error::io(format_args!("reserve room for {target} pages"), error);
                    if target == self.capacity + least || !matches!(error, Error::DiskFull { .. }) {
                        return Err(error);
                    }
                }
            }
        };
        self.set_capacity(capacity);
        tracing::debug!(pages = capacity, "reserved room on the device");
        Ok(())
    }

    pub(crate) fn set_capacity(&mut self, capacity: u64) {
        let old = std::mem::replace(&mut self.capacity, capacity);
        self.words.resize(capacity.div_ceil(64) as usize, 0);
        self.used += self.take_reserved(old);
        self.cursor = (old / 64) as usize % self.words.len().max(1);
    }

    /// See [`crate::PageAllocator::begin_compaction`].
    pub(crate) fn begin_compaction(&mut self) -> Option<PageId> {
        let below = self.least_capacity();
        if self.end_of_used() <= below {
            return None;
        }
        self.compaction = Some(Compaction { below, low: 0 });
        Some(PageId(below))
    }

    pub(crate) fn end_compaction(&mut self) {
        self.compaction = None;
    }

    /// Number of pages that compaction could give back to the device.
    pub(crate) fn surplus(&self) -> u64 {
        self.capacity - self.least_capacity().min(self.capacity)
    }

    /// Lowers the capacity to the end of the last page in use, and returns it.
    pub(crate) fn cut(&mut self) -> u64 {
        let end = self.end_of_used().max(GROW_MIN).min(self.capacity);
        self.capacity = end;
        self.words.truncate(end.div_ceil(64) as usize);
        let bits = self.words.iter().map(|word| u64::from(word.count_ones()));
        self.used = bits.sum();
        self.cursor = 0;
        end
    }

    /// Takes a free page below the bound of the compaction.
    pub(crate) fn take_low(&mut self) -> Option<PageId> {
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

    /// The smallest capacity that holds all pages in use.
    fn least_capacity(&self) -> u64 {
        let data = self.used - reserved_below(self.capacity);
        let mut capacity = data;
        // Each round counts the reserved pages among those that the previous round added.
        while capacity - reserved_below(capacity) < data {
            capacity = data + reserved_below(capacity);
        }
        capacity.max(GROW_MIN)
    }

    /// End of the last page in use that is not reserved.
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

/// Number of reserved pages below a capacity.
fn reserved_below(capacity: u64) -> u64 {
    let last = capacity / BITMAP_GROUP;
    let full = last * 2 + if last > 0 { 2 } else { 0 };
    // Count the reserved pages of the last, partial group.
    let begun = (0..2).filter(|copy| bitmap_page(last, *copy).0 < capacity).count() as u64;
    match last {
        0 => capacity.min(4),
        _ => full + begun,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_pages_are_counted_as_they_are() {
        let group = BITMAP_GROUP;
        for capacity in [0, 1, 3, 4, 5, 256, group, group + 1, group + 2, 5 * group + 7] {
            let counted = (0..capacity).filter(|page| is_reserved_page(PageId(*page))).count();
            assert_eq!(reserved_below(capacity), counted as u64, "below {capacity}");
        }
    }
}
