//! Where a child is: by its swip, or by the page table of a pool without swizzling.

use crate::{
    guard::Optimistic,
    ids::{FrameId, PageId},
    page::Restart,
    pool::Pool,
    racy::For,
    swip::{Swip, Target},
};

/// Lines of a child that a hop prefetches: those of a search in a leaf.
const FIRST_LINES: usize = 6;

impl Pool {
    /// Whether swips name frames; otherwise every hop looks in the page table.
    pub fn is_swizzling(&self) -> bool {
        self.table.is_none()
    }

    /// Where the child is that a swip names: in a frame, or on storage. The caller validates the
    /// parent after it took the version of the child, as with a hot swip.
    #[inline]
    pub fn locate(&self, swip: Swip) -> Target {
        match swip.target() {
            Target::Hot(frame) => Target::Hot(frame),
            Target::Evicted(page) => self.locate_page(page),
        }
    }

    /// As [`Pool::locate`], for the page id of an evicted swip.
    fn locate_page(&self, page: PageId) -> Target {
        let frame = self.table.as_ref().and_then(|table| table.find(page));
        frame.map_or(Target::Evicted(page), Target::Hot)
    }

    /// A hop from `parent` to the child that has this page, if a page table has it.
    ///
    /// # Errors
    /// [`Restart`] if the parent changed.
    #[inline(never)]
    pub(crate) fn child_in_table(
        &self,
        parent: &Optimistic<'_>,
        page: PageId,
    ) -> Result<Option<Optimistic<'_>>, Restart> {
        let Some(frame) = self.table.as_ref().and_then(|table| table.find(page)) else {
            return Ok(None);
        };
        // As a descent does at a hot swip, except that the level of the child is not known here.
        self.prefetch_lines(frame, FIRST_LINES, For::Read);
        let child = self.optimistic(frame)?;
        parent.validate()?;
        Ok(Some(child))
    }

    /// The swip by which its parent names the page in a frame. The caller holds the latch of the
    /// frame or of the parent.
    #[inline]
    pub fn swip_to(&self, frame: FrameId) -> Swip {
        match &self.table {
            None => Swip::hot(frame),
            Some(_) => Swip::evicted(self.header(frame).page_id()),
        }
    }

    /// Notes that a frame has a page from now on, unless the swip in its parent says so.
    pub(crate) fn enter_page(&self, page: PageId, frame: FrameId) {
        if let Some(table) = &self.table {
            table.insert(page, frame);
        }
    }

    /// Notes that a page leaves its frame.
    pub(crate) fn leave_page(&self, page: PageId, frame: FrameId) {
        if let Some(table) = &self.table {
            table.remove(page, frame);
        }
    }
}
