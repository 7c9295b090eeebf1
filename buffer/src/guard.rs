//! Guards: the ways in which a tree operation holds a frame. An [`Optimistic`] guard is only a
//! version; an [`Exclusive`] guard is the latch and knows whether the page was changed.

use crate::{
    frame::FrameHeader,
    ids::{FrameId, Gsn},
    latch::Version,
    page::{PAGE_SIZE, PageImage, PageMut, PageRef, Restart, header},
    pool::Pool,
    swip::Swip,
};

/// An optimistic hold of a frame: reads are racy until [`Optimistic::validate`] succeeds.
#[derive(Clone, Copy)]
pub struct Optimistic<'p> {
    pub(crate) pool: &'p Pool,
    pub(crate) header: &'p FrameHeader,
    pub(crate) page: PageRef<'p>,
    pub(crate) frame: FrameId,
    pub(crate) version: Version,
}

impl<'p> Optimistic<'p> {
    /// The frame.
    #[inline(always)]
    pub fn frame(&self) -> FrameId {
        self.frame
    }

    /// The header of the frame.
    #[inline(always)]
    pub fn header(&self) -> &'p FrameHeader {
        self.header
    }

    /// The racy bytes of the page.
    #[inline(always)]
    pub fn page(&self) -> PageRef<'p> {
        self.page
    }

    /// Everything read since the guard was taken was consistent.
    #[inline(always)]
    pub fn validate(&self) -> Result<(), Restart> {
        self.header.latch.validate(self.version)
    }

    /// Becomes exclusive if nothing changed since the guard was taken.
    #[inline(always)]
    pub fn upgrade(self) -> Result<Exclusive<'p>, Restart> {
        self.header.latch.upgrade(self.version)?;
        Ok(Exclusive {
            pool: self.pool,
            header: self.header,
            frame: self.frame,
            version: self.version,
            changed: false,
            dirtied: false,
        })
    }

    /// Reports a read of the page to the replacement policy.
    #[inline(always)]
    pub fn track(&self) {
        self.pool.policy.on_access(&self.header.tracker, self.pool.epoch());
    }
}

/// The exclusive latch of a frame. Released when dropped.
pub struct Exclusive<'p> {
    pub(crate) pool: &'p Pool,
    pub(crate) header: &'p FrameHeader,
    pub(crate) frame: FrameId,
    pub(crate) version: Version,
    pub(crate) changed: bool,
    pub(crate) dirtied: bool,
}

impl<'p> Exclusive<'p> {
    /// The frame.
    #[inline(always)]
    pub fn frame(&self) -> FrameId {
        self.frame
    }

    /// The header of the frame.
    #[inline(always)]
    pub fn header(&self) -> &'p FrameHeader {
        self.header
    }

    /// The pool of the frame.
    pub fn pool(&self) -> &'p Pool {
        self.pool
    }

    /// The bytes, stable while the guard lives.
    #[inline(always)]
    pub fn page(&self) -> PageRef<'p> {
        self.pool.page_ref(self.frame)
    }

    /// The bytes for a change of contents: the page becomes dirty, gets the next change number and
    /// the change is reported to the replacement policy.
    #[inline(always)]
    pub fn page_mut(&mut self) -> PageMut<'_> {
        if !self.dirtied {
            self.record_change();
        }
        self.pool.page_mut(self)
    }

    /// The bytes for plain reads.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8; PAGE_SIZE] {
        self.pool.page_bytes(self)
    }

    /// Replaces the whole page by `image`, which gets the next change number.
    pub fn write_image(&mut self, image: &mut PageImage) {
        if !self.dirtied {
            self.record_change();
        }
        image.set_u64(header::GSN, self.header.gsn().0);
        self.page_mut().write_image(image);
    }

    #[inline(always)]
    fn record_change(&mut self) {
        (self.changed, self.dirtied) = (true, true);
        let gsn = Gsn(self.header.gsn().0 + 1);
        self.header.record_change(gsn);
        self.pool.policy.on_write(&self.header.tracker, self.pool.epoch());
        self.pool.page_mut(self).set_u64(header::GSN, gsn.0);
    }

    /// Replaces a swip. The page does not become dirty, because its image on storage names page
    /// ids either way, but optimistic readers must notice.
    pub(crate) fn set_swip(&mut self, offset: usize, swip: Swip) {
        self.changed = true;
        self.pool.page_mut(self).set_u64(offset, swip.0);
    }

    /// Optimistic readers must notice, although the bytes stay.
    pub(crate) fn mark_changed(&mut self) {
        self.changed = true;
    }

    /// Releases the latch and goes on optimistically from this moment.
    pub fn downgrade(self) -> Optimistic<'p> {
        let (pool, frame) = (self.pool, self.frame);
        let after = self.version.next(self.changed);
        let header = self.header;
        drop(self);
        Optimistic { pool, header, page: pool.page_ref(frame), frame, version: after }
    }
}

impl Drop for Exclusive<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.header.latch.release(self.version, self.changed);
    }
}

/// The shared latch of a frame: the page is stable and others may read it. Released when dropped.
pub struct Shared<'p> {
    pub(crate) pool: &'p Pool,
    pub(crate) header: &'p FrameHeader,
    pub(crate) frame: FrameId,
}

impl<'p> Shared<'p> {
    /// The header of the frame.
    pub fn header(&self) -> &'p FrameHeader {
        self.header
    }

    /// The bytes, stable while the guard lives.
    pub fn page(&self) -> PageRef<'p> {
        self.pool.page_ref(self.frame)
    }
}

impl Drop for Shared<'_> {
    fn drop(&mut self) {
        self.header.latch.release_shared();
    }
}
