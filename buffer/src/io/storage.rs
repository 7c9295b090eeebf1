//! The trait of a device of pages, and the memory that its reads fill.

use crate::{
    ids::{FrameId, PageId},
    page::{PAGE_SIZE, PageImage},
    racy,
};
use std::{io, ptr::NonNull, sync::Arc};

/// The lender of the memory that a read fills. Called from inside back ends, on any thread: must neither
/// block nor start I/O. Waking is fine.
pub trait TargetOwner: Send + Sync {
    /// The read into `frame` was dropped before [`ReadTarget::finish`]; the kernel no longer uses
    /// the memory.
    fn abandoned(&self, frame: FrameId, page: PageId);

    /// A read that [`Storage::start_read`] began has ended.
    fn ended(&self, target: ReadTarget, result: io::Result<()>);
}

/// The frame that one read fills: [`PAGE_SIZE`] bytes, page aligned, owned by the operation until
/// it completes. Dropping it unfinished gives the frame back to its owner.
pub struct ReadTarget {
    ptr: NonNull<u8>,
    frame: FrameId,
    page: PageId,
    owner: Option<Arc<dyn TargetOwner>>,
}

// SAFETY: the memory is reserved for this operation alone, whichever thread runs it; the owner is
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

    /// The bytes read. Other threads may only read them at the same time.
    pub fn bytes(&self) -> &[u8; PAGE_SIZE] {
        // SAFETY: valid and not written while `self` is borrowed, see `new`.
        unsafe { &*self.ptr.as_ptr().cast::<[u8; PAGE_SIZE]>() }
    }

    /// Tells the owner that the read has ended.
    pub fn end(self, result: io::Result<()>) {
        let owner = self.owner.clone().expect("a target that was not finished");
        owner.ended(self, result);
    }

    /// Ends the loan without telling the owner, which takes the frame back itself.
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

/// One page of a batch of writes. The image is sealed.
pub struct PageWrite<'a> {
    /// Where it goes.
    pub page: PageId,
    /// What is written.
    pub image: &'a PageImage,
}

/// A device of pages. All methods may be called from any thread at once.
///
/// A page is valid for reads once a write of it has completed. A short read or write is an error,
/// never a shorter success. Errors keep their `io::ErrorKind`, in particular `StorageFull`.
pub trait Storage: Send + Sync + 'static {
    /// Name for messages and statistics: `uring`, `threads`, `memory`, `sim`.
    fn name(&self) -> &'static str;

    /// Reads one page and blocks until it is there.
    fn read_page(&self, target: &mut ReadTarget) -> io::Result<()>;

    /// Begins to read one page, without blocking the calling thread where the back end can, and ends it with
    /// [`ReadTarget::end`], whatever becomes of the caller. A task calls this, inside the runtime that it
    /// runs in. The default reads at once.
    fn start_read(self: Arc<Self>, mut target: ReadTarget) {
        let result = self.read_page(&mut target);
        target.end(result);
    }

    /// As [`Storage::start_read`], for a thread without a runtime that waits for several reads at
    /// once: they are under way together as far as the back end can.
    fn start_read_beside(self: Arc<Self>, target: ReadTarget) {
        self.start_read(target);
    }

    /// Reads one page into private memory and blocks until it is there.
    fn read_image(&self, page: PageId, image: &mut PageImage) -> io::Result<()>;

    /// Writes a batch, all of its pages in flight at once as far as the back end can, and blocks
    /// until every one has completed. Pushes one result for each, in order.
    fn write_pages(&self, batch: &[PageWrite<'_>], results: &mut Vec<io::Result<()>>);

    /// Makes every completed write durable.
    fn sync(&self) -> io::Result<()>;

    /// Looks whether the device still is the one that was opened, and as large as it was: an error if its
    /// file was removed, replaced or cut. The caller asks before it writes down that pages are valid.
    fn check(&self) -> io::Result<()> {
        Ok(())
    }

    /// Pages that the device has room reserved for.
    fn capacity_pages(&self) -> u64;

    /// Reserves room for at least `pages` in total, so that later writes below cannot run out of
    /// space. Never shrinks.
    fn reserve(&self, pages: u64) -> io::Result<()>;

    /// Gives the room of all pages from `pages` on back: nobody reads or writes them any more, and
    /// nobody reserves room meanwhile. When it is reserved again, they read as zeroes. A power cut
    /// before the next sync may take this back. A back end of a fixed size keeps its room; so does one
    /// that does not implement this.
    fn shrink(&self, _pages: u64) -> io::Result<()> {
        Ok(())
    }
}
