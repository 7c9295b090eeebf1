//! Creating and freeing pages, in frames and on storage.

use crate::{
    error::{Error, Result},
    frame::FrameState,
    guard::Exclusive,
    ids::{FrameId, Gsn, PageId, TreeId},
    page_map::GROW_MIN,
    pool::Pool,
    replacement::{Leave, Visit},
    worker::Worker,
};

impl Pool {
    /// Creates a page of `tree` in a frame of the worker's reserve and latches it. The frame still
    /// holds old bytes: the caller must write a whole image.
    ///
    /// # Panics
    /// If the reserve was not checked before ([`Worker::has_reserve`]).
    pub fn new_page(&self, worker: &Worker, tree: TreeId) -> (Exclusive<'_>, PageId) {
        let (frame, page) = worker.take_reserved();
        // Waits at most for an evictor that sampled the frame and checks its state.
        let mut guard = self.exclusive(frame);
        let header = guard.header();
        header.assign(page, tree);
        header.set_clean_at(Gsn(0));
        header.change_state(FrameState::Free, FrameState::Hot);
        // The frame has the bytes of another page.
        self.policy.on_load(Visit { page: None, ..self.visit(frame, header) }, page);
        self.enter_page(page, frame);
        guard.mark_changed();
        (guard, page)
    }

    /// Frees the page under `guard` and its frame. No swip may name the page.
    pub fn free_page(&self, mut guard: Exclusive<'_>) {
        let (header, frame) = (guard.header(), guard.frame());
        assert_eq!(header.hot_children(), 0, "page {} is freed above a child", header.page_id());
        guard.mark_changed();
        let page = header.page_id();
        self.policy.on_leave(self.visit(frame, header), page, Leave::Dropped);
        self.leave_page(page, frame);
        if header.is_writing() {
            // The writer still holds an image. The page id must not be reused before that write has
            // ended.
            header.change_state(FrameState::Hot, FrameState::Zombie);
            return;
        }
        header.change_state(FrameState::Hot, FrameState::Free);
        drop(guard);
        self.allocator.free(page);
        self.give_frames(&[frame]);
    }

    /// Pins the root of a tree that is opened, or unpins the root of one that is closed. Counts as
    /// an access for replacement, which does not count other accesses of inner nodes. The caller
    /// ensures that no evictor takes the frame meanwhile ([`crate::PageOwner::release_root`]).
    pub fn pin_root(&self, frame: FrameId, pinned: bool) {
        let header = self.header(frame);
        self.policy.on_access(self.visit(frame, header));
        header.set_pinned(pinned);
    }

    /// Whether a page that is not in a tree's memory is being read, or was read and waits to be put
    /// there. Without an entry none appears while the caller holds the latch of the page's parent.
    pub fn is_in_flight(&self, page: PageId) -> bool {
        self.in_flight.contains(page)
    }

    /// Frees a page that has no frame and that no swip names: of a tree whose operations have all
    /// ended, where a read of the page may have been abandoned before its end; or of a parent that
    /// is still latched, when the page is not in flight ([`Pool::is_in_flight`]).
    pub fn free_evicted_page(&self, page: PageId) {
        // An abandoned read that has not ended finds its entry removed.
        if let Some(frame) = self.in_flight.discard(page) {
            let header = self.header(frame);
            self.policy.on_leave(self.visit(frame, header), page, Leave::Dropped);
            header.change_state(FrameState::Loaded, FrameState::Free);
            self.give_frames(&[frame]);
        }
        self.allocator.free(page);
    }

    /// Allocates a page of the store without a frame, for contents that are written to storage
    /// directly.
    ///
    /// # Errors
    /// [`Error::DiskFull`] if the device has no room.
    pub fn allocate_page(&self) -> Result<PageId> {
        let mut least = GROW_MIN;
        loop {
            match self.allocator.allocate(&*self.storage, least) {
                // Other threads may take the room, and the log may give back more meanwhile. Asking
                // for a single page is the last resort, because it takes as long as asking for
                // many.
                Err(Error::DiskFull { .. }) if self.barrier.give_room_back() => {}
                Err(Error::DiskFull { .. }) if least > 1 => least = 1,
                other => return other,
            }
        }
    }

    /// Frees a page id that no page uses.
    pub fn free_page_id(&self, page: PageId) {
        self.allocator.free(page);
    }
}
