//! The memory of the pool: one anonymous mapping with two parallel arrays, pages and frame headers,
//! with huge pages advised. One of the files meant for `unsafe`.
//!
//! The kernel provides the memory zeroed and on first touch. So opening a large pool costs nothing,
//! and zero must be a valid state of every header field.

use crate::{
    error::{Error, Result},
    frame::FrameHeader,
    ids::{FrameId, PageId},
    io::{ReadTarget, TargetOwner},
    latch::Version,
    page::{PAGE_SIZE, PageImage, PageMut, PageRef, Restart},
    racy::{self, For},
    tuning,
};
use std::{
    io,
    ops::{Deref, DerefMut, Range},
    ptr::NonNull,
    sync::Arc,
};

/// Bytes of a huge page.
pub(crate) const HUGE_PAGE: usize = 2 << 20;
/// Smaller mappings, in bytes, use no huge pages: rounding up to whole ones would exceed the
/// budget.
pub(crate) const HUGE_PAGES_MIN: usize =
    if tuning::HUGE_PAGES { 8 * HUGE_PAGE } else { usize::MAX };

/// Advice to the kernel about memory; none changes contents.
#[derive(Clone, Copy)]
enum Advice {
    /// Huge pages are wanted, for memory that comes later.
    Huge,
    /// Small pages are wanted.
    Small,
    /// Small pages become huge ones now; Linux 6.1.
    Join,
    /// Memory is wanted now instead of on first touch; Linux 5.14.
    Populate,
}

impl Advice {
    fn code(self) -> libc::c_int {
        match self {
            Advice::Huge => libc::MADV_HUGEPAGE,
            Advice::Small => libc::MADV_NOHUGEPAGE,
            // `MADV_COLLAPSE`, which libc has not for all systems.
            Advice::Join => 25,
            Advice::Populate => libc::MADV_POPULATE_WRITE,
        }
    }
}

/// Anonymous zeroed memory, which the kernel provides on first touch.
struct Mapping {
    base: NonNull<u8>,
    mapped: usize,
    /// Start of the usable part, aligned to a page at least.
    start: NonNull<u8>,
}

impl Mapping {
    /// Maps `bytes`, with huge pages if it is large enough. `what` names the use in the error.
    fn new(bytes: usize, what: std::fmt::Arguments<'_>) -> Result<Mapping> {
        let mapped = bytes + HUGE_PAGE; // room to align
        // SAFETY: an anonymous mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            return Err(Error::io(format_args!("map {mapped} bytes for {what}"), error));
        }
        let base = NonNull::new(base.cast::<u8>()).expect("a mapping is not at zero");
        let align = if bytes >= HUGE_PAGES_MIN { HUGE_PAGE } else { PAGE_SIZE };
        // SAFETY: the padding is less than a huge page, which was mapped on top of `bytes`.
        let start = unsafe { base.add(base.align_offset(align)) };
        let mapping = Mapping { base, mapped, start };
        if align == HUGE_PAGE {
            // Failure only costs speed.
            let advised = mapping.advise(0..bytes / HUGE_PAGE * HUGE_PAGE, Advice::Huge);
            if let Err(error) = advised {
                tracing::debug!(%error, "huge pages not available");
            }
        }
        Ok(mapping)
    }

    /// Advises the kernel about bytes of the usable part and of the padding after it.
    fn advise(&self, part: Range<usize>, advice: Advice) -> io::Result<()> {
        let before = self.start.as_ptr().addr() - self.base.as_ptr().addr();
        assert!(part.start <= part.end && before + part.end <= self.mapped);
        // SAFETY: inside the mapping.
        let start = unsafe { self.start.add(part.start) };
        // SAFETY: inside the mapping, whose contents the advice does not change.
        match unsafe { libc::madvise(start.as_ptr().cast(), part.len(), advice.code()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and every user of it borrows or owns this value.
        let done = unsafe { libc::munmap(self.base.as_ptr().cast(), self.mapped) };
        debug_assert_eq!(done, 0);
    }
}

/// Many zeroed pages in private memory, which the kernel provides on first touch.
pub struct ImageMemory {
    mapping: Mapping,
    pages: usize,
}

// SAFETY: plain bytes, owned by this value alone.
unsafe impl Send for ImageMemory {}
// SAFETY: as above; shared references only read.
unsafe impl Sync for ImageMemory {}

impl ImageMemory {
    /// Maps memory for `pages` pages.
    ///
    /// # Errors
    /// The process has no address space left.
    pub fn map(pages: usize) -> Result<ImageMemory> {
        let mapping =
            Mapping::new(pages * PAGE_SIZE, format_args!("{pages} pages in private memory"))?;
        Ok(ImageMemory { mapping, pages })
    }
}

impl Deref for ImageMemory {
    type Target = [PageImage];
    #[inline(always)]
    fn deref(&self) -> &[PageImage] {
        // SAFETY: mapped for `pages` pages, aligned to a page, and any bytes are an image.
        unsafe { std::slice::from_raw_parts(self.mapping.start.as_ptr().cast(), self.pages) }
    }
}

impl DerefMut for ImageMemory {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [PageImage] {
        // SAFETY: as above, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.start.as_ptr().cast(), self.pages) }
    }
}

/// A frame whose exclusive latch is held: the proof that [`FrameMemory::page_mut`] asks for. Only
/// [`FrameMemory`] makes one, after it has entered the latch of that frame. The guard that owns it
/// leaves the latch.
pub(crate) struct LatchedFrame(FrameId);

impl LatchedFrame {
    /// The frame.
    #[inline(always)]
    pub fn frame(&self) -> FrameId {
        self.0
    }
}

/// Frames and their headers. See the module documentation.
pub struct FrameMemory {
    mapping: Mapping,
    pages: NonNull<u8>,
    headers: NonNull<FrameHeader>,
    frames: usize,
}

// SAFETY: the memory is plain bytes and atomics, and the latch protocol decides which thread
// accesses which of them.
unsafe impl Send for FrameMemory {}
// SAFETY: as above.
unsafe impl Sync for FrameMemory {}

impl FrameMemory {
    /// Bytes of the budget that one frame takes.
    pub const FRAME_BYTES: usize = PAGE_SIZE + size_of::<FrameHeader>();

    /// Maps memory for `frames` frames.
    pub fn map(frames: usize) -> Result<FrameMemory> {
        let bytes = frames * Self::FRAME_BYTES;
        let mapping = Mapping::new(bytes, format_args!("a pool of {frames} frames"))?;
        let pages = mapping.start;
        // Most stores that are opened and closed again use a few frames, and the kernel zeroes a
        // huge page in a quarter of a millisecond.
        for part in Self::first_parts(frames) {
            if let Err(error) = mapping.advise(part, Advice::Small) {
                tracing::debug!(%error, "the first frames are in huge pages");
            }
        }
        // SAFETY: the headers follow the pages inside the mapping.
        let headers = unsafe { pages.add(frames * PAGE_SIZE) }.cast::<FrameHeader>();
        #[cfg(shuttle)]
        for frame in 0..frames {
            // SAFETY: `frame` is in range.
            let header = unsafe { headers.add(frame) };
            // SAFETY: mapped, aligned and not yet in use; shuttle's atomics are not valid as
            // zeroes.
            unsafe { header.write(FrameHeader::default()) };
        }
        Ok(FrameMemory { mapping, pages, headers, frames })
    }

    /// The huge pages of the first frames and of their headers, as bytes of the mapping; none where
    /// frames get no memory ahead of use.
    fn first_parts(frames: usize) -> impl Iterator<Item = Range<usize>> {
        let headers = frames * PAGE_SIZE / HUGE_PAGE * HUGE_PAGE;
        let whole = frames * Self::FRAME_BYTES / HUGE_PAGE * HUGE_PAGE;
        let starts = [0, headers].into_iter().filter(move |start| {
            tuning::POPULATE && frames * PAGE_SIZE >= HUGE_PAGES_MIN && *start < whole
        });
        starts.map(|start| start..start + HUGE_PAGE)
    }

    /// Makes huge pages of those parts that began with small ones, for a pool that uses more than
    /// the first frames. Contents stay.
    ///
    /// # Errors
    /// No huge page, a page that is in use for I/O, or a kernel before Linux 6.1. The kernel joins
    /// the pages later, or the first frames stay in small ones.
    pub fn join_first(&self) -> io::Result<()> {
        // For all parts first, so that the kernel may join later what cannot be joined now.
        Self::first_parts(self.frames)
            .try_for_each(|part| self.mapping.advise(part, Advice::Huge))?;
        // The kernel moves contents as when it swaps a page; a thread that comes to them meanwhile
        // waits for it.
        let joined = Self::first_parts(self.frames)
            .map(|part| self.mapping.advise(part, Advice::Join))
            .collect::<Vec<_>>();
        joined.into_iter().collect()
    }

    /// Number of frames.
    #[inline(always)]
    pub fn frames(&self) -> usize {
        self.frames
    }

    /// All headers.
    #[inline(always)]
    pub fn headers(&self) -> &[FrameHeader] {
        // SAFETY: mapped, initialised (zero is valid) and only accessed through atomics.
        unsafe { std::slice::from_raw_parts(self.headers.as_ptr(), self.frames) }
    }

    /// The frame that has this header, which is one of [`FrameMemory::headers`].
    pub fn frame_of(&self, header: &FrameHeader) -> FrameId {
        let start = self.headers.as_ptr() as usize;
        FrameId(((std::ptr::from_ref(header) as usize - start) / size_of::<FrameHeader>()) as u32)
    }

    /// Start of the page of a frame.
    ///
    /// # Panics
    /// If the frame is outside the pool.
    #[inline(always)]
    pub fn page(&self, frame: FrameId) -> NonNull<u8> {
        assert!((frame.0 as usize) < self.frames);
        // SAFETY: inside the mapping.
        unsafe { self.pages.add(frame.0 as usize * PAGE_SIZE) }
    }

    /// Racy view of the page of a frame.
    #[inline(always)]
    pub fn page_ref(&self, frame: FrameId) -> PageRef<'_> {
        // SAFETY: the frame is mapped and page aligned; writers go through `PageMut` or a read
        // into a frame that no validated reader can reach.
        unsafe { PageRef::new(self.page(frame).as_ptr()) }
    }

    /// Latches a frame exclusively, waiting for other holders. Also returns the version before.
    ///
    /// # Panics
    /// If the frame is outside the pool.
    #[inline]
    pub fn latch(&self, frame: FrameId) -> (LatchedFrame, &FrameHeader, Version) {
        let header = &self.headers()[frame.0 as usize];
        let version = header.latch.exclusive();
        (LatchedFrame(frame), header, version)
    }

    /// Latches a frame exclusively if no holder is inside. Any id is allowed.
    #[inline]
    pub fn try_latch(&self, frame: FrameId) -> Option<(LatchedFrame, &FrameHeader, Version)> {
        let header = self.headers().get(frame.0 as usize)?;
        let version = header.latch.try_exclusive()?;
        Some((LatchedFrame(frame), header, version))
    }

    /// Upgrades to the exclusive latch of `frame`, whose header is `header`, if nothing changed
    /// since `version`.
    #[inline(always)]
    pub fn upgrade(
        &self,
        frame: FrameId,
        header: &FrameHeader,
        version: Version,
    ) -> Result<LatchedFrame, Restart> {
        debug_assert!(std::ptr::eq(header, &self.headers()[frame.0 as usize]));
        header.latch.upgrade(version)?;
        Ok(LatchedFrame(frame))
    }

    /// Exclusive view of the page of a latched frame.
    #[inline(always)]
    pub fn page_mut<'a>(&self, latched: &'a mut LatchedFrame) -> PageMut<'a> {
        // SAFETY: mapped and page aligned; `latched` is the exclusive latch, so its holder is the
        // only writer while the view borrows it.
        unsafe { PageMut::new(self.page(latched.0).as_ptr()) }
    }

    /// Plain view of the page of a latched frame.
    #[inline(always)]
    pub fn page_bytes<'a>(&self, latched: &'a LatchedFrame) -> &'a [u8; PAGE_SIZE] {
        // SAFETY: mapped; the latch is borrowed, so no thread writes while the view lives.
        unsafe { &*self.page(latched.0).as_ptr().cast::<[u8; PAGE_SIZE]>() }
    }

    /// Lends a frame in state `Reading` to a read.
    pub fn read_target(
        &self,
        frame: FrameId,
        page: PageId,
        owner: Arc<dyn TargetOwner>,
    ) -> ReadTarget {
        // SAFETY: mapped and page aligned as long as the pool lives, which `owner` is; a frame in
        // state `Reading` has this one writer.
        unsafe { ReadTarget::new(self.page(frame), frame, page, owner) }
    }

    /// Prefetches the header and the first lines of the page of a frame. Any id is allowed.
    #[inline(always)]
    pub fn prefetch(&self, frame: FrameId) {
        let header = self.headers.as_ptr().wrapping_add(frame.0 as usize).cast::<u8>();
        racy::prefetch(header);
        let page = self.pages.as_ptr().wrapping_add(frame.0 as usize * PAGE_SIZE);
        racy::prefetch(page);
        racy::prefetch(page.wrapping_add(64));
    }

    /// Prefetches both header lines and the first `lines` cache lines of the page of a frame. Lines
    /// of the page after the first are prefetched for reading, because most changes leave most of
    /// them alone. Any id is allowed.
    #[inline(always)]
    pub fn prefetch_lines(&self, frame: FrameId, lines: usize, what: For) {
        self.prefetch_header(frame, what);
        let page = self.pages.as_ptr().wrapping_add(frame.0 as usize * PAGE_SIZE);
        what.prefetch(page);
        for line in 1..lines {
            racy::prefetch(page.wrapping_add(64 * line));
        }
    }

    /// Prefetches both lines of the header of a frame. Any id is allowed.
    #[inline(always)]
    pub fn prefetch_header(&self, frame: FrameId, what: For) {
        let header = self.headers.as_ptr().wrapping_add(frame.0 as usize).cast::<u8>();
        what.prefetch(header);
        what.prefetch(header.wrapping_add(64));
    }

    /// Has the kernel provide memory for these frames and their headers now instead of on first
    /// touch. Contents stay.
    ///
    /// # Errors
    /// No memory, or a kernel before Linux 5.14.
    ///
    /// # Panics
    /// If a frame is outside the pool.
    pub fn populate(&self, frames: Range<u32>) -> io::Result<()> {
        assert!(frames.start <= frames.end && frames.end as usize <= self.frames);
        let (start, count) = (frames.start as usize, frames.len());
        let headers_at = self.frames * PAGE_SIZE;
        let header = |frame: usize| headers_at + frame * size_of::<FrameHeader>();
        let (first, last) = (header(start), header(start + count));
        let parts = [
            start * PAGE_SIZE..(start + count) * PAGE_SIZE,
            first / PAGE_SIZE * PAGE_SIZE..last.next_multiple_of(PAGE_SIZE),
        ];
        // Whole pages of the mapping, which extends past the last header by a huge page minus the
        // alignment. The kernel provides memory as a write would, so concurrent reads and writes
        // are not affected.
        parts.into_iter().try_for_each(|part| self.mapping.advise(part, Advice::Populate))
    }

    /// How many of these frames have memory for their pages.
    #[cfg(test)]
    pub fn populated(&self, frames: Range<u32>) -> usize {
        assert!(frames.start <= frames.end && frames.end as usize <= self.frames);
        let mut resident = vec![0; frames.len()];
        // SAFETY: inside of the mapping.
        let start = unsafe { self.pages.add(frames.start as usize * PAGE_SIZE) };
        // SAFETY: whole pages of the mapping, and a byte for each in the vector.
        let done = unsafe {
            libc::mincore(start.as_ptr().cast(), frames.len() * PAGE_SIZE, resident.as_mut_ptr())
        };
        assert_eq!(done, 0, "mincore: {}", io::Error::last_os_error());
        resident.iter().filter(|byte| **byte & 1 != 0).count()
    }

    /// Makes the whole pool read-only or writable again, for the test that resident look-ups store
    /// nothing.
    #[doc(hidden)]
    pub fn protect(&self, read_only: bool) -> Result<()> {
        let protection =
            if read_only { libc::PROT_READ } else { libc::PROT_READ | libc::PROT_WRITE };
        let (base, mapped) = (self.mapping.base, self.mapping.mapped);
        // SAFETY: changes the protection of our own mapping; a store while it is read-only is the
        // fault that the test looks for.
        let done = unsafe { libc::mprotect(base.as_ptr().cast(), mapped, protection) };
        if done == 0 {
            return Ok(());
        }
        Err(Error::io("change the protection of the pool", io::Error::last_os_error()))
    }
}

#[cfg(shuttle)]
impl Drop for FrameMemory {
    fn drop(&mut self) {
        for frame in 0..self.frames {
            // SAFETY: `frame` is in range.
            let header = unsafe { self.headers.add(frame) };
            // SAFETY: initialised in `map` and dropped once.
            unsafe { header.drop_in_place() };
        }
    }
}
