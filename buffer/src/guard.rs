//! Guards, with which a tree operation holds a frame. An [`Optimistic`] guard is only a version of
//! the latch; an [`Exclusive`] guard holds the latch, and knows whether the page was changed.
//!
//! A change of contents has two parts under one latch: the bytes ([`Exclusive::page_mut`]) and the
//! number that orders the change ([`Exclusive::stamp`]), which comes from its log record. A guard
//! that is released with a change but without a stamp panics, because the log would not have the
//! change.

use crate::{
    frame::FrameHeader,
    ids::{FrameId, Gsn, TreeId},
    latch::Version,
    memory::LatchedFrame,
    page::{PAGE_SIZE, PageImage, PageMut, PageRef, Restart, header},
    pool::Pool,
    swip::Swip,
    trace::{PageVisit, Way},
};

impl Pool {
    /// Starts an optimistic read of a frame, for a caller that holds a latch and must not wait. The
    /// id may be any racy number.
    ///
    /// # Errors
    /// [`Restart`] if there is no such frame, or another thread holds the latch exclusively.
    pub fn try_optimistic(&self, frame: FrameId) -> Result<Optimistic<'_>, Restart> {
        let header = self.memory.headers().get(frame.0 as usize).ok_or(Restart)?;
        let version = header.latch.try_optimistic().ok_or(Restart)?;
        Ok(Optimistic { pool: self, header, page: self.page_ref(frame), frame, version })
    }

    /// Starts an optimistic read of a frame, after waiting for an exclusive holder to leave. The
    /// caller holds no latch. The id may be any racy number.
    ///
    /// # Errors
    /// [`Restart`] if there is no such frame. If the holder stays for long, the guard never
    /// validates.
    #[inline(always)]
    pub fn optimistic(&self, frame: FrameId) -> Result<Optimistic<'_>, Restart> {
        let header = self.memory.headers().get(frame.0 as usize).ok_or(Restart)?;
        let version = header.latch.optimistic();
        Ok(Optimistic { pool: self, header, page: self.page_ref(frame), frame, version })
    }

    /// Resumes an optimistic read of a frame, if the frame was not changed since and no thread
    /// holds its latch exclusively.
    #[inline(always)]
    pub fn optimistic_since(&self, moment: Moment) -> Option<Optimistic<'_>> {
        let frame = moment.frame();
        let header = self.memory.headers().get(frame.0 as usize)?;
        let version = header.latch.try_optimistic()?;
        let guard = Optimistic { pool: self, header, page: self.page_ref(frame), frame, version };
        moment.is(&guard).then_some(guard)
    }

    /// Latches a frame exclusively, waiting for other holders. Only for a caller that holds no
    /// other latch, or that latches from parent to child or from left to right.
    pub fn exclusive(&self, frame: FrameId) -> Exclusive<'_> {
        Exclusive::new(self, self.memory.latch(frame))
    }

    /// Latches a frame exclusively if no thread holds its latch. Allowed in any order.
    #[inline]
    pub fn try_exclusive(&self, frame: FrameId) -> Option<Exclusive<'_>> {
        Some(Exclusive::new(self, self.memory.try_latch(frame)?))
    }

    /// Latches a frame shared if no thread holds its latch exclusively. Allowed in any order.
    #[inline]
    pub fn try_shared(&self, frame: FrameId) -> Option<Shared<'_>> {
        let header = self.memory.headers().get(frame.0 as usize)?;
        header.latch.try_shared().then(|| Shared { pool: self, header, frame })
    }
}

/// An optimistic hold of a frame: reads are racy until [`Optimistic::validate`] succeeds.
#[derive(Clone, Copy)]
pub struct Optimistic<'p> {
    pool: &'p Pool,
    header: &'p FrameHeader,
    page: PageRef<'p>,
    frame: FrameId,
    version: Version,
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

    /// The frame and the version of this guard. See [`Pool::optimistic_since`].
    #[inline(always)]
    pub fn moment(&self) -> Moment {
        Moment { frame: self.frame, version: self.version }
    }

    /// Succeeds if all bytes read since the guard was taken are consistent.
    #[inline(always)]
    pub fn validate(&self) -> Result<(), Restart> {
        self.header.latch.validate(self.version)
    }

    /// Upgrades to an exclusive guard if nothing changed since this guard was taken.
    #[inline(always)]
    pub fn upgrade(self) -> Result<Exclusive<'p>, Restart> {
        let latched = self.pool.memory.upgrade(self.frame, self.header, self.version)?;
        Ok(Exclusive::new(self.pool, (latched, self.header, self.version)))
    }

    /// Reports a read of the page to the replacement policy.
    #[inline(always)]
    pub fn track(&self) {
        self.pool.track(self.header);
    }

    /// Records a read of the page in the trace of the pool, after the inner pages that `lead`
    /// finds. If the page changed since the guard was taken, records nothing: the operation
    /// restarts.
    #[cold]
    pub fn record(&self, lead: impl FnOnce(&mut Way)) {
        let (page, bytes) = (self.header.page_id(), self.page);
        let tree = TreeId(bytes.u32_at(header::TREE_ID));
        let visit = PageVisit::read(page, tree, bytes.u8_at(header::LEVEL));
        if let (Some(trace), Ok(())) = (&self.pool.options.trace, self.validate()) {
            trace.record_read(lead, Some(visit));
        }
    }
}

/// A frame and a version of it. As long as the frame has that version, its contents are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    frame: FrameId,
    version: Version,
}

impl Moment {
    /// The frame.
    #[inline(always)]
    pub fn frame(&self) -> FrameId {
        self.frame
    }

    #[inline(always)]
    pub(crate) fn is(&self, guard: &Optimistic<'_>) -> bool {
        self.version == guard.version
    }
}

/// The exclusive latch of a frame. Released when dropped.
pub struct Exclusive<'p> {
    pool: &'p Pool,
    header: &'p FrameHeader,
    version: Version,
    latched: LatchedFrame,
    /// The release changes the version, so that optimistic readers restart.
    changed: bool,
    /// The contents changed.
    dirtied: bool,
    /// The change of the contents was stamped with its number.
    stamped: bool,
}

impl<'p> Exclusive<'p> {
    #[inline(always)]
    fn new(
        pool: &'p Pool,
        (latched, header, version): (LatchedFrame, &'p FrameHeader, Version),
    ) -> Exclusive<'p> {
        let (changed, dirtied, stamped) = (false, false, false);
        Exclusive { pool, header, version, latched, changed, dirtied, stamped }
    }

    /// The frame.
    #[inline(always)]
    pub fn frame(&self) -> FrameId {
        self.latched.frame()
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
        self.pool.page_ref(self.frame())
    }

    /// The bytes, to change the contents. Reports a write to the replacement policy.
    /// [`Exclusive::stamp`] must follow before the latch is released.
    #[inline(always)]
    pub fn page_mut(&mut self) -> PageMut<'_> {
        if !self.dirtied {
            (self.changed, self.dirtied) = (true, true);
            self.pool.track_write(self.header);
        }
        self.pool.memory.page_mut(&mut self.latched)
    }

    /// Withdraws a change that turned out to be impossible; every byte must be as it was before.
    pub fn unchanged(&mut self) {
        if !self.stamped {
            self.dirtied = false;
        }
    }

    /// Numbers the change. The number must be above all earlier numbers of the page, which becomes
    /// dirty.
    #[inline(always)]
    pub fn stamp(&mut self, gsn: Gsn) {
        debug_assert!(gsn > self.header.gsn(), "change numbers of a page ascend");
        (self.changed, self.dirtied, self.stamped) = (true, true, true);
        self.header.record_change(gsn);
        self.pool.memory.page_mut(&mut self.latched).set_u64(header::GSN, gsn.0);
    }

    /// Notes that the record of the stamped change holds the whole page and is the first one of
    /// this page since the last checkpoint began. That checkpoint need not write the page, see
    /// [`Pool::write_older`].
    pub fn logged_whole(&mut self) {
        debug_assert!(self.stamped, "a change without a number has no record");
        self.header.record_logged_whole();
    }

    /// Number of the last change of the page.
    #[inline(always)]
    pub fn gsn(&self) -> Gsn {
        self.header.gsn()
    }

    /// The bytes for plain reads.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8; PAGE_SIZE] {
        self.pool.memory.page_bytes(&self.latched)
    }

    /// Replaces the whole page by `image`, which gets the number of the last change.
    pub fn write_image(&mut self, image: &mut PageImage) {
        image.set_u64(header::GSN, self.header.gsn().0);
        self.page_mut().write_image(image);
    }

    /// Copies the page in its stored form: its swips name page ids.
    pub fn copy_image(&self, image: &mut PageImage) {
        image.0.copy_from_slice(self.bytes());
        self.pool.unswizzle(image);
    }

    /// Replaces a swip. The page does not become dirty, because its stored image has page ids in
    /// both cases. But the version changes, so optimistic readers restart.
    pub(crate) fn set_swip(&mut self, offset: usize, swip: Swip) {
        self.changed = true;
        self.pool.memory.page_mut(&mut self.latched).set_u64(offset, swip.0);
    }

    /// Makes the release change the version, although the bytes stay, so that optimistic readers
    /// restart.
    pub(crate) fn mark_changed(&mut self) {
        self.changed = true;
    }

    /// Numbers a change that has no log record.
    #[cold]
    fn stamp_unlogged(&mut self) {
        let logged = self.pool.barrier().is_log() && !std::thread::panicking();
        assert!(!logged, "a change of page {} was not logged", self.header.page_id());
        self.stamp(Gsn(self.header.gsn().0 + 1));
    }

    /// Releases the latch after a change, and records it in the trace of the pool.
    #[cold]
    fn release_traced(&self) {
        let bytes = self.bytes();
        let tree = bytes[header::TREE_ID..].first_chunk().map_or(0, |id| u32::from_le_bytes(*id));
        let level = bytes[header::LEVEL];
        let visit = PageVisit::write(self.header.page_id(), TreeId(tree), level);
        self.header.latch.release(self.version, self.changed);
        // Recording may wait for the trace, so it must not happen under the latch.
        if let Some(trace) = &self.pool.options.trace {
            trace.record(&[visit]);
        }
    }

    /// The version that the frame has once the latch is released, if nothing else changes before.
    /// See [`Pool::optimistic_since`].
    #[inline(always)]
    pub fn release_moment(&self) -> Moment {
        Moment { frame: self.frame(), version: self.version.next(self.changed) }
    }

    /// Releases the latch and continues with an optimistic guard of the new version.
    pub fn downgrade(self) -> Optimistic<'p> {
        let (pool, frame) = (self.pool, self.frame());
        let after = self.version.next(self.changed);
        let header = self.header();
        drop(self);
        Optimistic { pool, header, page: pool.page_ref(frame), frame, version: after }
    }
}

impl Drop for Exclusive<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.dirtied && !self.stamped {
            self.stamp_unlogged();
        }
        if self.dirtied && self.pool.is_traced() {
            return self.release_traced();
        }
        self.header.latch.release(self.version, self.changed);
    }
}

/// The shared latch of a frame: the page is stable, and other threads may read it too. Released
/// when dropped.
pub struct Shared<'p> {
    pool: &'p Pool,
    header: &'p FrameHeader,
    frame: FrameId,
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
