//! The header of a frame: 128 bytes in two adjacent cache lines, in an array parallel to the pages.
//! Line 0 has the latch, the identity and the dirty state; line 1 has the tracker of the policy.
//!
//! States and their named transitions (each asserts the state before it):
//!
//! | state | contents of the page | accessed by | next state |
//! |---|---|---|---|
//! | `Free` | none | the owner of the free frame | `Reading`, `Hot` (new page) |
//! | `Reading` | being filled | its one read | `Loaded`, `Free` (failed) |
//! | `Loaded` | clean and verified; no swip refers to it | no operation; the in-flight table refers to it | `Hot` (swizzled), `Free` (reclaimed) |
//! | `Hot` | live; one swip names it, or it is a root | all operations, through the latch | `Free` (evicted or page freed), `Zombie` |
//! | `Zombie` | page freed while its image was being written | the writer | `Free` |
//!
//! A frame becomes `Hot` and stops being `Hot` under its exclusive latch. At all other changes of
//! state one owner has the frame to itself.

use crate::{
    ids::{FrameId, Gsn, PageId, TreeId},
    latch::Latch,
    replacement::Tracker,
    sync::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering},
};

/// See the module documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameState {
    /// On the free list, or in the cache of a worker.
    Free = 0,
    /// A read fills it.
    Reading = 1,
    /// Read and verified, waiting to be swizzled.
    Loaded = 2,
    /// Part of a tree.
    Hot = 3,
    /// Freed while being written.
    Zombie = 4,
}

/// Bits of [`FrameHeader::flags`].
mod flags {
    /// Write-back holds a copy of the page that is not yet on storage.
    pub const WRITING: u8 = 1;
    /// The page is never evicted: it is the root of an open tree.
    pub const PINNED: u8 = 2;
}

/// Bits of [`FrameHeader::insert_run`] for the length; positions are below 1024.
const RUN_BITS: u32 = 6;

/// Header of one frame. See the module documentation.
#[repr(C, align(128))]
#[derive(Default)]
pub struct FrameHeader {
    pub(crate) latch: Latch,
    page_id: AtomicU64,
    /// Number of the last change.
    gsn: AtomicU64,
    /// Number of the last change in the durable image.
    written_gsn: AtomicU64,
    /// Number of the first change that storage lacks, or of a later change whose log record holds
    /// the whole page; 0 if the page is clean. The log must be kept from here on.
    first_gsn: AtomicU64,
    /// Word of the transaction layer: which snapshots see the page as it is.
    version_hint: AtomicU64,
    /// Frame of the parent in the high half, position of the swip in the low 16 bits.
    parent_hint: AtomicU64,
    tree_id: AtomicU32,
    hot_children: AtomicU16,
    state: AtomicU8,
    flags: AtomicU8,

    pub(crate) tracker: Tracker,
    /// Restarts of writers at this page since the last check, for contention split.
    contended: AtomicU16,
    /// Sampled writes since the last check.
    sampled: AtomicU16,
    /// Position of the last sampled write.
    last_position: AtomicU16,
    /// Position after the last insert, shifted by [`RUN_BITS`], and the length of the current run
    /// of inserts.
    run: AtomicU16,
    /// Free: the next free frame. Loaded: when it was loaded, in milliseconds since the pool was
    /// opened.
    link: AtomicU32,
}
#[cfg(not(shuttle))]
const _: () = assert!(size_of::<FrameHeader>() == 128);
#[cfg(not(shuttle))]
const _: () = assert!(std::mem::offset_of!(FrameHeader, tracker) == 64);

impl FrameHeader {
    /// Id of the page in the frame. Racy unless latched.
    #[inline(always)]
    pub fn page_id(&self) -> PageId {
        PageId(self.page_id.load(Ordering::Relaxed))
    }

    /// Replaces the id of the page; the caller holds the exclusive latch.
    pub(crate) fn set_page_id(&self, page: PageId) {
        self.page_id.store(page.0, Ordering::Relaxed);
    }

    /// Tree that the page belongs to.
    #[inline(always)]
    pub fn tree_id(&self) -> TreeId {
        TreeId(self.tree_id.load(Ordering::Relaxed))
    }

    /// State of the frame. Stable only for its owner or under the latch.
    #[inline(always)]
    pub fn state(&self) -> FrameState {
        match self.state.load(Ordering::Relaxed) {
            0 => FrameState::Free,
            1 => FrameState::Reading,
            2 => FrameState::Loaded,
            3 => FrameState::Hot,
            _ => FrameState::Zombie,
        }
    }

    /// Moves from one state to another.
    ///
    /// # Panics
    /// If the frame is not in state `from`: the protocol is broken.
    pub(crate) fn change_state(&self, from: FrameState, to: FrameState) {
        let old = self.state();
        assert!(old == from, "frame of page {} is {old:?}, not {from:?}", self.page_id());
        self.state.store(to as u8, Ordering::Relaxed);
    }

    /// Gives the frame its page. The caller owns the frame.
    pub(crate) fn assign(&self, page: PageId, tree: TreeId) {
        self.page_id.store(page.0, Ordering::Relaxed);
        self.tree_id.store(tree.0, Ordering::Relaxed);
        self.hot_children.store(0, Ordering::Relaxed);
        self.parent_hint.store(u64::MAX, Ordering::Relaxed);
        self.version_hint.store(0, Ordering::Relaxed);
        self.flags.store(0, Ordering::Relaxed);
        self.contended.store(0, Ordering::Relaxed);
        self.sampled.store(0, Ordering::Relaxed);
        self.run.store(0, Ordering::Relaxed);
    }

    /// Sets the dirty information of a page whose durable image has change number `gsn`.
    pub(crate) fn set_clean_at(&self, gsn: Gsn) {
        self.gsn.store(gsn.0, Ordering::Relaxed);
        self.written_gsn.store(gsn.0, Ordering::Relaxed);
        self.first_gsn.store(0, Ordering::Relaxed);
    }

    /// Number of the last change.
    #[inline(always)]
    pub fn gsn(&self) -> Gsn {
        Gsn(self.gsn.load(Ordering::Relaxed))
    }

    /// First change whose log record is still needed for the page: the first one that storage
    /// lacks, or a later one whose record holds the whole page. `None` if the page is clean.
    pub fn first_gsn(&self) -> Option<Gsn> {
        let first = self.first_gsn.load(Ordering::Relaxed);
        (first != 0).then_some(Gsn(first))
    }

    /// Records a change; the caller holds the exclusive latch.
    #[inline(always)]
    pub(crate) fn record_change(&self, gsn: Gsn) {
        self.gsn.store(gsn.0, Ordering::Relaxed);
        if self.first_gsn.load(Ordering::Relaxed) == 0 {
            self.first_gsn.store(gsn.0, Ordering::Relaxed);
        }
    }

    /// Records that the image with change number `gsn` is on storage; the caller holds the
    /// exclusive latch. The page stays dirty if it changed after the image was taken.
    pub(crate) fn record_written(&self, gsn: Gsn) {
        self.written_gsn.store(gsn.0, Ordering::Relaxed);
        // The first change is now one after the image. Its exact number is not known; the number
        // after the image is a safe bound. A later record may hold the whole page, hence the
        // maximum.
        let first = self.first_gsn.load(Ordering::Relaxed).max(gsn.0 + 1);
        self.first_gsn.store(if self.gsn() == gsn { 0 } else { first }, Ordering::Relaxed);
    }

    /// Records that the log holds the whole page as of the last change; the caller holds the
    /// exclusive latch.
    pub(crate) fn record_logged_whole(&self) {
        self.first_gsn.store(self.gsn().0, Ordering::Relaxed);
    }

    /// The page has changes that are not on storage.
    #[inline(always)]
    pub fn is_dirty(&self) -> bool {
        self.gsn.load(Ordering::Relaxed) != self.written_gsn.load(Ordering::Relaxed)
    }

    /// Number of children of an inner node that have a frame of their own.
    #[inline(always)]
    pub fn hot_children(&self) -> u16 {
        self.hot_children.load(Ordering::Relaxed)
    }

    /// Sets the count after a split or merge; the caller holds the exclusive latch.
    pub fn set_hot_children(&self, count: u16) {
        self.hot_children.store(count, Ordering::Relaxed);
    }

    /// Counts a child that became hot; the caller holds the exclusive latch.
    pub(crate) fn child_heated(&self) {
        self.hot_children.store(self.hot_children() + 1, Ordering::Relaxed);
    }

    /// Counts a child that is no longer hot; the caller holds the exclusive latch.
    pub(crate) fn child_cooled(&self) {
        let count = self.hot_children();
        assert!(count > 0, "page {} has no hot child to lose", self.page_id());
        self.hot_children.store(count - 1, Ordering::Relaxed);
    }

    /// The last known place of the parent: its frame and the position of the swip. It may be stale
    /// and must be validated.
    pub fn parent_hint(&self) -> (FrameId, usize) {
        let hint = self.parent_hint.load(Ordering::Relaxed);
        (FrameId((hint >> 32) as u32), (hint & 0xffff) as usize)
    }

    /// Remembers where the parent is.
    #[inline]
    pub fn set_parent_hint(&self, parent: FrameId, position: usize) {
        let hint = u64::from(parent.0) << 32 | (position as u64 & 0xffff);
        self.parent_hint.store(hint, Ordering::Relaxed);
    }

    /// Word of the transaction layer: which snapshots see the page as it is.
    #[inline(always)]
    pub fn version_hint(&self) -> u64 {
        self.version_hint.load(Ordering::Relaxed)
    }

    /// Sets the hint; the caller holds the exclusive latch or owns the frame.
    #[inline(always)]
    pub fn set_version_hint(&self, hint: u64) {
        self.version_hint.store(hint, Ordering::Relaxed);
    }

    /// Replaces the hint `old` by `new`, which must say the same or more; needs no latch. If
    /// another page came into the frame, either its hint differs from `old` or `new` is right for
    /// it too. Returns false if the hint is no longer `old`.
    pub fn resolve_version_hint(&self, old: u64, new: u64) -> bool {
        let (success, failure) = (Ordering::Release, Ordering::Relaxed);
        self.version_hint.compare_exchange(old, new, success, failure).is_ok()
    }

    /// A write of the page is in flight.
    #[inline(always)]
    pub(crate) fn is_writing(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & flags::WRITING != 0
    }

    /// Claims the write-back of the page; false when another holds it.
    pub(crate) fn claim_write(&self) -> bool {
        self.flags.fetch_or(flags::WRITING, Ordering::AcqRel) & flags::WRITING == 0
    }

    /// Ends the write-back of the page.
    pub(crate) fn release_write(&self) {
        let old = self.flags.fetch_and(!flags::WRITING, Ordering::AcqRel);
        assert!(old & flags::WRITING != 0, "page {} was not being written", self.page_id());
    }

    /// Whether the page is kept in memory.
    #[inline(always)]
    pub fn is_pinned(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & flags::PINNED != 0
    }

    /// Keeps the page in memory until it is freed or unpinned. The caller holds the exclusive
    /// latch, or excludes evictors in another way.
    pub fn set_pinned(&self, pinned: bool) {
        if pinned {
            self.flags.fetch_or(flags::PINNED, Ordering::Relaxed);
        } else {
            self.flags.fetch_and(!flags::PINNED, Ordering::Relaxed);
        }
    }

    /// Records a sampled write at `position`, and whether it was `contended`. Returns the position
    /// of the previous sample. For contention split.
    pub fn sample_write(&self, position: usize, contended: bool) -> usize {
        self.sampled.store(self.sampled.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        if contended {
            self.contended
                .store(self.contended.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        }
        let last = self.last_position.load(Ordering::Relaxed);
        self.last_position.store(position as u16, Ordering::Relaxed);
        usize::from(last)
    }

    /// Records an insert at `position`, at most 511, under the latch.
    #[inline]
    pub fn note_insert(&self, position: usize) {
        let length = self.insert_run(position);
        let length = (length + 1).min((1 << RUN_BITS) - 1);
        self.run.store(((position + 1) << RUN_BITS | length) as u16, Ordering::Relaxed);
    }

    /// Length of the run of inserts, each directly beside the previous one, that an insert at
    /// `position` would continue; 63 means 63 or more. The run is lost when the page is evicted.
    #[inline]
    pub fn insert_run(&self, position: usize) -> usize {
        let word = usize::from(self.run.load(Ordering::Relaxed));
        // An insert after the last one is at `position`, one before it at the last one's place.
        let beside = (word >> RUN_BITS).wrapping_sub(position) <= 1;
        if beside { word & ((1 << RUN_BITS) - 1) } else { 0 }
    }

    /// True if an insert at `position` would be directly before the last one.
    pub fn is_before_last_insert(&self, position: usize) -> bool {
        usize::from(self.run.load(Ordering::Relaxed)) >> RUN_BITS == position + 1
    }

    /// Ends the current run, because the records of the page have moved.
    pub fn end_insert_run(&self) {
        self.run.store(0, Ordering::Relaxed);
    }

    /// Takes and clears the counts of sampled writes: all, and those that met contention.
    pub fn take_write_samples(&self) -> (u16, u16) {
        let samples =
            (self.sampled.load(Ordering::Relaxed), self.contended.load(Ordering::Relaxed));
        self.sampled.store(0, Ordering::Relaxed);
        self.contended.store(0, Ordering::Relaxed);
        samples
    }

    /// Sampled writes since the counts were last taken.
    pub fn write_samples(&self) -> u16 {
        self.sampled.load(Ordering::Relaxed)
    }

    pub(crate) fn link(&self) -> u32 {
        self.link.load(Ordering::Relaxed)
    }

    pub(crate) fn set_link(&self, link: u32) {
        self.link.store(link, Ordering::Relaxed);
    }
}
