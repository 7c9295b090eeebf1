//! The page table: from page id to frame, for a pool without swizzling
//! ([`PoolOptions::swizzling`](crate::PoolOptions)). With swizzling there is none.
//!
//! Swizzling can be switched off to measure what it saves ("Bottlenecks Uncovered", section 2.4.1;
//! "LeanStore", section 3.1). **Nothing else differs.** States, latches, replacement, the counts of
//! hot children and the in-flight table are the same. A child still becomes hot, and stops being
//! hot, under the exclusive latch of its parent, which then gets a new version. Only the answer to
//! "which frame has this child?" comes from another place:
//!
//! | | with swizzling | without |
//! |---|---|---|
//! | the swip of a hot child | names its frame | names its page id, as on storage |
//! | a hop from parent to child | one test of the swip | one look-up in this table |
//! | load, evict, renumber | change the swip | change the entry here, and perhaps the swip |
//!
//! # Structure
//!
//! A chained hash table. A bucket is a number, its first frame; each frame has one entry: its page
//! id and the next frame of the chain. There are 2 to 4 buckets for each frame, so most chains have
//! one entry. Entries of all frames exist from the start, so nothing is allocated later. Writers
//! take one of [`STRIPES`] locks; a look-up that finds the page takes none and stores nothing.
//!
//! # Why a look-up gives the right frame
//!
//! The entry for page P changes at three times: when P is created, before any swip names it; when P
//! is freed, after the last swip that names it; and otherwise under the exclusive latch of P's
//! parent, which changes the version of the parent. The entries are in effect a part of the parent,
//! and the sequence lock of the parent covers them:
//!
//! 1. The operation has a version of the parent, and a swip that names P, when it looks P up. If it
//!    validates the parent after it took the version of the child, P's entry was the same
//!    throughout.
//! 2. *Found.* The entry of frame F names P exactly from the insertion of P into F to its removal.
//!    So if the parent validates, the page in F was P. Walking may go astray, because an entry on
//!    the way moves to another chain; that changes neither this argument nor P's own entry.
//! 3. *Not found.* A walk that went astray may miss P. So a miss is confirmed under the lock of the
//!    stripe, where P's chain is stable. A page that is not found there is not in memory, as with
//!    an evicted swip: the fault that follows validates the parent under the lock of the in-flight
//!    table, so `in_flight.rs` keeps its argument that no page gets two frames.
//!
//! A step of a walk goes to any frame, so a walk is limited to [`MAX_WALK`] steps before it counts
//! as a miss. The locks of stripes are the last in the order of latches: a thread that holds one
//! waits for nothing.

use crate::{
    ids::{FrameId, PageId},
    sync::{AtomicU32, AtomicU64, Mutex, Ordering},
};

/// Locks for writers; a power of two.
const STRIPES: usize = if cfg!(shuttle) { 2 } else { 256 };

/// Longest walk without a lock. Chains of more than 8 entries are rare at this load.
const MAX_WALK: usize = 16;

/// The page of an entry that is in no chain.
const NO_PAGE: u64 = u64::MAX;
const _: () = assert!(PageId::MAX.0 < NO_PAGE);

/// End of a chain; a link is the number of a frame plus one.
const END: u32 = 0;

/// The entry of one frame.
struct TableEntry {
    page: AtomicU64,
    next: AtomicU32,
}

/// See the module documentation.
pub(crate) struct PageTable {
    buckets: Box<[AtomicU32]>,
    entries: Box<[TableEntry]>,
    stripes: Box<[Mutex<()>]>,
    /// 64 minus the number of bits of a bucket's number.
    shift: u32,
}

impl PageTable {
    /// An empty table for that many frames.
    pub(crate) fn new(frames: usize) -> PageTable {
        let bits = usize::BITS - (2 * frames.max(STRIPES) - 1).leading_zeros();
        let entry = || TableEntry { page: AtomicU64::new(NO_PAGE), next: AtomicU32::new(END) };
        PageTable {
            buckets: (0..1usize << bits).map(|_| AtomicU32::new(END)).collect(),
            entries: (0..frames).map(|_| entry()).collect(),
            stripes: (0..STRIPES).map(|_| Mutex::new(())).collect(),
            shift: u64::BITS - bits,
        }
    }

    /// Number of the bucket of a page: Fibonacci hashing, so neighbours do not share a cache line.
    #[inline(always)]
    pub(crate) fn bucket(&self, page: PageId) -> usize {
        (page.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    fn stripe(&self, bucket: usize) -> &Mutex<()> {
        &self.stripes[bucket % STRIPES]
    }

    /// The frame of a page that is in memory. Right if the caller then validates the parent, see
    /// the module documentation.
    #[inline]
    pub(crate) fn find(&self, page: PageId) -> Option<FrameId> {
        // Partner: the release in `insert`. An entry that is reached has its page.
        let mut link = self.buckets[self.bucket(page)].load(Ordering::Acquire);
        for _ in 0..MAX_WALK {
            if link == END {
                break;
            }
            let entry = &self.entries[link as usize - 1];
            if entry.page.load(Ordering::Relaxed) == page.0 {
                return Some(FrameId(link - 1));
            }
            link = entry.next.load(Ordering::Acquire);
        }
        self.find_in_stable_chain(page)
    }

    /// As [`PageTable::find`], under the lock of the stripe.
    #[cold]
    fn find_in_stable_chain(&self, page: PageId) -> Option<FrameId> {
        let bucket = self.bucket(page);
        let _stripe = self.stripe(bucket).lock();
        let mut link = self.buckets[bucket].load(Ordering::Relaxed);
        while link != END {
            let entry = &self.entries[link as usize - 1];
            if entry.page.load(Ordering::Relaxed) == page.0 {
                return Some(FrameId(link - 1));
            }
            link = entry.next.load(Ordering::Relaxed);
        }
        None
    }

    /// Enters a page that is now in `frame`.
    ///
    /// # Panics
    /// If the frame has an entry already.
    pub(crate) fn insert(&self, page: PageId, frame: FrameId) {
        let bucket = self.bucket(page);
        let entry = &self.entries[frame.0 as usize];
        let _stripe = self.stripe(bucket).lock();
        let before = entry.page.load(Ordering::Relaxed);
        assert!(before == NO_PAGE, "frame {} of page {page} still has {before}", frame.0);
        entry.page.store(page.0, Ordering::Relaxed);
        let first = self.buckets[bucket].load(Ordering::Relaxed);
        // A reader may still stand at this entry, from an older chain. It goes on in this one.
        entry.next.store(first, Ordering::Release);
        self.buckets[bucket].store(frame.0 + 1, Ordering::Release);
    }

    /// Removes the entry of a page that leaves `frame`.
    ///
    /// # Panics
    /// If the page is not in that frame.
    pub(crate) fn remove(&self, page: PageId, frame: FrameId) {
        let bucket = self.bucket(page);
        let _stripe = self.stripe(bucket).lock();
        let mut place = &self.buckets[bucket];
        loop {
            let link = place.load(Ordering::Relaxed);
            assert!(link != END, "page {page} is not in the page table");
            let entry = &self.entries[link as usize - 1];
            if link == frame.0 + 1 {
                assert_eq!(entry.page.load(Ordering::Relaxed), page.0, "page in frame {}", frame.0);
                place.store(entry.next.load(Ordering::Relaxed), Ordering::Release);
                entry.page.store(NO_PAGE, Ordering::Relaxed);
                return;
            }
            place = &entry.next;
        }
    }

    /// Number of entries.
    #[cfg(any(shuttle, test))]
    pub(crate) fn len(&self) -> usize {
        let in_chain = |entry: &&TableEntry| entry.page.load(Ordering::Relaxed) != NO_PAGE;
        self.entries.iter().filter(in_chain).count()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use std::{
        collections::HashMap,
        sync::atomic::{AtomicBool, AtomicU64 as Counter},
    };

    /// SplitMix64.
    fn next(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    #[test]
    fn the_table_agrees_with_a_hash_map() {
        for seed in 1..20 {
            let (mut state, frames) = (seed, 40);
            let table = PageTable::new(frames);
            let mut model: HashMap<u64, u32> = HashMap::new();
            let mut free: Vec<u32> = (0..frames as u32).collect();
            for _ in 0..4_000 {
                // Pages that are far apart, and some that are neighbours.
                let page = next(&mut state) % 60 * (1 + 0x10_0000 * (next(&mut state) % 2));
                match model.get(&page).copied() {
                    Some(frame) if next(&mut state).is_multiple_of(2) => {
                        table.remove(PageId(page), FrameId(frame));
                        model.remove(&page);
                        free.push(frame);
                    }
                    None if !free.is_empty() => {
                        let at = next(&mut state) as usize % free.len();
                        let frame = free.swap_remove(at);
                        table.insert(PageId(page), FrameId(frame));
                        model.insert(page, frame);
                    }
                    known => {
                        let found = table.find(PageId(page)).map(|frame| frame.0);
                        assert_eq!(found, known, "page {page}, seed {seed}");
                    }
                }
            }
            assert_eq!(table.len(), model.len(), "seed {seed}");
        }
    }

    /// The chains of a full table are so short that a walk without the lock ends.
    #[test]
    fn chains_are_shorter_than_a_walk() {
        for stride in [1, 2, 8, 64, 4096, 32_256] {
            let frames = 20_000;
            let table = PageTable::new(frames);
            let mut lengths = vec![0; table.buckets.len()];
            for frame in 0..frames as u64 {
                lengths[table.bucket(PageId(4 + frame * stride))] += 1;
            }
            let longest = lengths.iter().max().expect("buckets");
            assert!(*longest <= MAX_WALK / 2, "{longest} entries with pages {stride} apart");
        }
    }

    /// Frames move from page to page under readers. Pages that stay are always found.
    #[test]
    fn pages_that_stay_are_found_while_others_come_and_go() {
        let table = PageTable::new(64);
        for frame in 0..32 {
            table.insert(PageId(1000 + u64::from(frame)), FrameId(frame));
        }
        let (stop, looks) = (AtomicBool::new(false), Counter::new(0));
        std::thread::scope(|scope| {
            for reader in 0..2 {
                let (table, stop, looks) = (&table, &stop, &looks);
                scope.spawn(move || {
                    let mut state = reader;
                    while !stop.load(Ordering::Relaxed) {
                        let frame = (next(&mut state) % 32) as u32;
                        let found = table.find(PageId(1000 + u64::from(frame)));
                        assert_eq!(found, Some(FrameId(frame)));
                        looks.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let (mut state, mut round) = (7, 0);
            while round < 20_000 || looks.load(Ordering::Relaxed) < 20_000 {
                let frame = FrameId(32 + (next(&mut state) % 32) as u32);
                let page = PageId(next(&mut state) % 500);
                table.insert(page, frame);
                assert!(table.find(page).is_some());
                table.remove(page, frame);
                round += 1;
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(table.len(), 32);
    }
}
