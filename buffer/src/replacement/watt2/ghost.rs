//! The memory of evicted pages of watt2: a table of 4-byte entries in sets of four, without page
//! ids.
//!
//! | bits | meaning |
//! |---|---|
//! | 0-14 | tag: a hash of the page, never 0 in an entry that is used |
//! | 15-24 | tick of the last use, modulo 1024 |
//! | 25-28 | 0: one use so far; else 1 + octave of the distance of the last two uses, up to 10 |
//! | 29-31 | octave of the recent uses; after uses in one tick only, 1 if there were several |
//!
//! An entry is a word that single atomic operations can read, write and take, and a set has 16
//! bytes. A wrong tag or a lost entry only costs a little accuracy. `at` visits the table all the
//! time, and drops entries long before their stamps wrap.

use crate::{ids::PageId, random::mix};

const TAG_BITS: u32 = 15;
const STAMP_BITS: u32 = 10;
const STAMPS: u32 = 1 << STAMP_BITS;
const WAYS: usize = 4;
/// Age from which on `at` drops an entry.
const TOO_OLD: u32 = STAMPS * 3 / 4;
/// Largest octave of a distance.
pub const OCTAVES: u32 = 10;

/// Least number of entries, so that small pools learn too; 4 KiB.
const FEWEST: usize = 1024;

/// The memory of a page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ghost {
    /// Tick of the last use.
    pub last: u32,
    /// Octave of the distance of the last two uses.
    pub octave: Option<u32>,
    /// Octave of the recent uses; without a distance, 1 if there was more than one.
    pub frequency: u32,
}

/// The table.
#[derive(Debug)]
pub struct Ghosts {
    entries: Vec<u32>,
}

impl Ghosts {
    /// An empty table for `wanted` pages, for 1024 if that is less, or for none.
    pub fn for_pool(wanted: usize) -> Self {
        Self::new(if wanted == 0 { 0 } else { wanted.max(FEWEST) })
    }

    /// An empty table for at least `entries` pages.
    fn new(entries: usize) -> Self {
        Self { entries: vec![0; entries.div_ceil(WAYS) * WAYS] }
    }

    /// Number of pages that are remembered.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.entries.iter().filter(|entry| **entry != 0).count()
    }

    fn place(&self, page: PageId) -> (std::ops::Range<usize>, u32) {
        let hash = mix(page.0 ^ 0x5F3C_6A11);
        let sets = (self.entries.len() / WAYS) as u64;
        let set = ((u128::from(hash) * u128::from(sets)) >> 64) as usize;
        let tag = (hash as u32 & ((1 << TAG_BITS) - 1)).max(1);
        (set * WAYS..(set + 1) * WAYS, tag)
    }

    fn age(entry: u32, now: u32) -> u32 {
        now.wrapping_sub(entry >> TAG_BITS) & (STAMPS - 1)
    }

    fn unpack(entry: u32, now: u32) -> Ghost {
        let octave = (entry >> (TAG_BITS + STAMP_BITS)) & 15;
        Ghost {
            last: now.wrapping_sub(Self::age(entry, now)),
            octave: octave.checked_sub(1),
            frequency: entry >> 29,
        }
    }

    /// Remembers `page` in place of the oldest of its set.
    pub fn insert(&mut self, page: PageId, ghost: Ghost, now: u32) {
        if self.entries.is_empty() {
            return;
        }
        let (set, tag) = self.place(page);
        let stamp = ghost.last & (STAMPS - 1);
        let octave = ghost.octave.map_or(0, |octave| octave.min(OCTAVES - 1) + 1);
        let entry = tag
            | stamp << TAG_BITS
            | octave << (TAG_BITS + STAMP_BITS)
            | ghost.frequency.min(7) << 29;
        let set = &mut self.entries[set];
        let rank = |other: u32| match other {
            0 => u32::MAX,
            other if other & ((1 << TAG_BITS) - 1) == tag => STAMPS,
            other => Self::age(other, now),
        };
        if let Some(slot) = set.iter_mut().max_by_key(|other| rank(**other)) {
            *slot = entry;
        }
    }

    /// Removes and returns the memory of `page`.
    pub fn take(&mut self, page: PageId, now: u32) -> Option<Ghost> {
        if self.entries.is_empty() {
            return None;
        }
        let (set, tag) = self.place(page);
        let same = |entry: &&mut u32| **entry & ((1 << TAG_BITS) - 1) == tag;
        let slot = self.entries[set].iter_mut().find(same)?;
        Some(Self::unpack(std::mem::take(slot), now))
    }

    /// The memory of a page by its place, below the capacity; `None` if that is empty. Drops it if
    /// it is too old.
    pub fn at(&mut self, slot: usize, now: u32) -> Option<Ghost> {
        let entry = self.entries.get_mut(slot).filter(|entry| **entry != 0)?;
        if Self::age(*entry, now) >= TOO_OLD {
            *entry = 0;
            return None;
        }
        Some(Self::unpack(*entry, now))
    }

    /// Number of entries that there is room for.
    pub fn capacity(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_comes_back_as_it_left_across_wrapping_stamps() {
        let mut ghosts = Ghosts::new(64);
        for now in [5u32, 1020, 1030, 100_000, u32::MAX - 3] {
            let ghost = Ghost { last: now, octave: Some(9), frequency: 5 };
            ghosts.insert(PageId(7), ghost, now);
            let later = now.wrapping_add(700);
            assert_eq!(ghosts.take(PageId(7), later), Some(ghost));
            assert_eq!(ghosts.take(PageId(7), later), None);
        }
        let once = Ghost { last: 3, octave: None, frequency: 0 };
        ghosts.insert(PageId(1), once, 3);
        assert_eq!((ghosts.len(), ghosts.take(PageId(1), 3)), (1, Some(once)));
    }

    #[test]
    fn a_full_set_forgets_its_oldest_page() {
        let mut ghosts = Ghosts::new(4);
        for page in 0..5 {
            ghosts.insert(
                PageId(u64::from(page)),
                Ghost { last: page, octave: None, frequency: 0 },
                page,
            );
        }
        assert_eq!(ghosts.len(), 4);
        assert!(ghosts.take(PageId(0), 5).is_none() && ghosts.take(PageId(1), 5).is_some());
    }

    #[test]
    fn too_old_entries_are_dropped_before_their_stamps_wrap() {
        let mut ghosts = Ghosts::new(4);
        ghosts.insert(PageId(0), Ghost { last: 0, octave: None, frequency: 0 }, 0);
        (0..4).for_each(|slot| {
            assert!(ghosts.at(slot, TOO_OLD - 1).is_none_or(|ghost| ghost.last == 0))
        });
        assert_eq!(ghosts.len(), 1);
        (0..4).for_each(|slot| assert!(ghosts.at(slot, TOO_OLD).is_none()));
        assert_eq!(ghosts.len(), 0);
    }
}
