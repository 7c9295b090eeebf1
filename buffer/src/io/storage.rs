//! The trait of a device of pages, and the memory that its reads fill.

use crate::{
    ids::{FrameId, PageId},
    page::{PAGE_SIZE, PageImage},
    racy,
};
use std::{io, ptr::NonNull, sync::Arc};

/// Lends the memory that a read fills. Back ends call it on any thread; it must neither block nor
/// start I/O, but may wake tasks.
pub trait TargetOwner: Send + Sync {
    /// The read into `frame` was dropped before [`ReadTarget::finish`]. The kernel no longer uses
    /// the memory.
    fn abandoned(&self, frame: FrameId, page: PageId);

    /// A read started with [`Storage::start_read`] has ended.
    fn ended(&self, target: ReadTarget, result: io::Result<()>);
}

/// The frame that a read fills: [`PAGE_SIZE`] bytes, page aligned, owned by the operation until it
/// completes. Dropping it before [`ReadTarget::finish`] gives the frame back to its owner.
pub struct ReadTarget {
    ptr: NonNull<u8>,
    frame: FrameId,
    page: PageId,
    owner: Option<Arc<dyn TargetOwner>>,
}

// SAFETY: the memory is reserved for this operation alone, on whatever thread it runs; the owner is
// Send and Sync.
unsafe impl Send for ReadTarget {}

impl ReadTarget {
    /// Lends `frame` at `ptr` to a read of `page`.
    ///
    /// # Safety
    /// `ptr` must be page aligned and valid for writes of [`PAGE_SIZE`] bytes as long as `owner`
    /// lives, and nothing but this target may write there before it is finished or dropped.
    pub unsafe fn new(
        ptr: NonNull<u8>,
        frame: FrameId,
        page: PageId,
        owner: Arc<dyn TargetOwner>,
    ) -> Self {
        ReadTarget { ptr, frame, page, owner: Some(owner) }
    }

    /// The page to read.
    pub fn page(&self) -> PageId {
        self.page
    }

    /// The frame that is being filled.
    pub fn frame(&self) -> FrameId {
        self.frame
    }

    /// Start of the [`PAGE_SIZE`] bytes, for system calls.
    pub fn as_ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// Copies a page into the target.
    pub fn fill(&mut self, bytes: &[u8; PAGE_SIZE]) {
        // SAFETY: the target is PAGE_SIZE bytes that only this operation writes, see `new`.
        unsafe { racy::copy_in(bytes.as_ptr(), self.ptr.as_ptr(), PAGE_SIZE) };
    }

    /// The bytes that were read. Other threads may only read them meanwhile.
    pub fn bytes(&self) -> &[u8; PAGE_SIZE] {
        // SAFETY: valid and not written while `self` is borrowed, see `new`.
        unsafe { &*self.ptr.as_ptr().cast::<[u8; PAGE_SIZE]>() }
    }

    /// Tells the owner that the read has ended.
    pub fn end(self, result: io::Result<()>) {
        let owner = self.owner.clone().expect("a target that was not finished");
        owner.ended(self, result);
    }

    /// Ends the loan without a call to the owner, which takes the frame back itself.
    pub fn finish(mut self) -> FrameId {
        self.owner = None;
        self.frame
    }
}

impl Drop for ReadTarget {
    fn drop(&mut self) {
        if let Some(owner) = self.owner.take() {
            owner.abandoned(self.frame, self.page);
        }
    }
}

/// One page of a batch of writes. The image must be sealed.
pub struct PageWrite<'a> {
    /// The page to write.
    pub page: PageId,
    /// Its image.
    pub image: &'a PageImage,
}

/// Most pages that are read or written with one call: 256 KiB, from where on devices gain little.
pub(super) const MAX_RUN: usize = 64;

/// The parts of a batch that can be written with one call: neighbours in the file, ascending.
pub(super) fn runs<'b, 'a>(
    batch: &'b [PageWrite<'a>],
) -> impl Iterator<Item = &'b [PageWrite<'a>]> {
    let are_neighbours = |left: &PageWrite<'_>, right: &PageWrite<'_>| {
        left.page.0.checked_add(1) == Some(right.page.0)
    };
    batch.chunk_by(are_neighbours).flat_map(|run| run.chunks(MAX_RUN))
}

/// A device of pages. All methods may be called from any thread at once.
///
/// A page is valid for reads once a write of it has completed. A short read or write is an error,
/// never a shorter success. Errors keep their `io::ErrorKind`, in particular `StorageFull`.
pub trait Storage: Send + Sync + 'static {
    /// Name for messages and statistics: `uring`, `threads`, `memory`, `sim`.
    fn name(&self) -> &'static str;

    /// Reads one page, blocking until it is there.
    fn read_page(&self, target: &mut ReadTarget) -> io::Result<()>;

    /// Starts to read one page, without blocking the calling thread where the back end can, and
    /// ends it with [`ReadTarget::end`], whatever happens to the caller. Called by a task inside
    /// its runtime. The default implementation reads at once.
    fn start_read(self: Arc<Self>, mut target: ReadTarget) {
        let result = self.read_page(&mut target);
        target.end(result);
    }

    /// As [`Storage::start_read`], for a thread without a runtime that waits for several reads:
    /// they are in flight together as far as the back end can.
    fn start_read_beside(self: Arc<Self>, target: ReadTarget) {
        self.start_read(target);
    }

    /// [`Storage::start_read_beside`] for each target. A back end may read pages that are
    /// neighbours with one call; each read ends for itself all the same.
    fn start_reads_beside(self: Arc<Self>, targets: Vec<ReadTarget>) {
        targets.into_iter().for_each(|target| self.clone().start_read_beside(target));
    }

    /// Reads one page into private memory, blocking until it is there.
    fn read_image(&self, page: PageId, image: &mut PageImage) -> io::Result<()>;

    /// Writes a batch, with all of its pages in flight at once as far as the back end can, and
    /// blocks until all have completed. Pushes one result for each page, in order. A back end may
    /// write neighbours that follow each other in the batch with one call.
    fn write_pages(&self, batch: &[PageWrite<'_>], results: &mut Vec<io::Result<()>>);

    /// Writes pages that lie side by side, from `first` on. A back end may write them with one
    /// call, which takes little longer than one page does. If it fails, any of them may be written.
    fn write_neighbours(&self, first: PageId, images: &[&PageImage]) -> io::Result<()> {
        let pages = (first.0..).map(PageId);
        let batch: Vec<_> =
            pages.zip(images).map(|(page, image)| PageWrite { page, image }).collect();
        let mut results = Vec::with_capacity(batch.len());
        self.write_pages(&batch, &mut results);
        results.into_iter().collect()
    }

    /// Makes every completed write durable.
    fn sync(&self) -> io::Result<()>;

    /// Checks that the device is still the one that was opened and not shorter than it was. Fails
    /// if its file was removed, replaced or cut. Called before the caller records that pages are
    /// valid.
    fn check(&self) -> io::Result<()> {
        Ok(())
    }

    /// Number of pages for which the device has reserved room.
    fn capacity_pages(&self) -> u64;

    /// Reserves room for at least `pages` in total, so that later writes below that cannot run out
    /// of space. Never shrinks.
    fn reserve(&self, pages: u64) -> io::Result<()>;

    /// Gives back the room of all pages from `pages` on. No thread reads or writes them, or
    /// reserves room meanwhile. If room is reserved there again, it reads as zeroes. A power cut
    /// before the next sync may undo this. A back end of fixed size, or one without this method,
    /// keeps its room.
    fn shrink(&self, _pages: u64) -> io::Result<()> {
        Ok(())
    }
}
