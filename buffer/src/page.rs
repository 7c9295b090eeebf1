//! Pages: their common header on disk, images in private memory, and the two views of the bytes of
//! a frame: [`PageRef`] (racy, for optimistic readers) and [`PageMut`] (exclusive).
//!
//! Every offset is checked or masked here, so no bytes on disk and no torn optimistic read can lead
//! to an access outside the page. Used by `btree`, the fault path and write-back.

use crate::{
    error::{Error, Result},
    ids::{PageId, TreeId},
    racy::{self, For},
};
use crc_fast::crc32_iscsi;
use std::{cmp::Ordering, marker::PhantomData, ops::Range};

/// Bytes of a page: 4 KiB, the unit of I/O and of the buffer pool.
pub const PAGE_SIZE: usize = 4096;

/// Bytes of a cache line.
pub const LINE: usize = 64;

/// Version of the page format. Stored in every page.
pub const FORMAT_VERSION: u8 = 1;

impl PageId {
    /// Byte offset of the page in the data file.
    pub fn offset(self) -> u64 {
        self.0 * PAGE_SIZE as u64
    }
}

/// An optimistic read met a concurrent change: the operation must restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restart;

/// Byte offsets of the header fields that all pages share. All fields are little-endian.
pub mod header {
    /// CRC-32C of bytes 4..4096, u32.
    pub const CHECKSUM: usize = 0;
    /// [`super::FORMAT_VERSION`], u8.
    pub const VERSION: usize = 4;
    /// [`super::PageKind`], u8.
    pub const KIND: usize = 5;
    /// Height of the node above the leaves, u8; 0 for leaves and for pages that are not nodes.
    pub const LEVEL: usize = 6;
    /// Flags of the kind, u8.
    pub const FLAGS: usize = 7;
    /// Id of the page, u64.
    pub const PAGE_ID: usize = 8;
    /// Sequence number of the last change, u64.
    pub const GSN: usize = 16;
    /// Tree that the page belongs to, u32.
    pub const TREE_ID: usize = 24;
    /// First byte that belongs to the page kind.
    pub const END: usize = 28;
}

/// The kind of contents of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PageKind {
    /// Store header, pages 0 and 1.
    Superblock = 1,
    /// B+-tree node with records.
    Leaf = 2,
    /// B+-tree node with separators and swips.
    Inner = 3,
    /// Part of the bitmap of allocated pages.
    Bitmap = 4,
}

impl PageKind {
    /// The kind with this number.
    pub fn from_u8(kind: u8) -> Option<PageKind> {
        Some(match kind {
            1 => PageKind::Superblock,
            2 => PageKind::Leaf,
            3 => PageKind::Inner,
            4 => PageKind::Bitmap,
            _ => return None,
        })
    }
}

/// A page in private memory, aligned for O_DIRECT.
#[repr(C, align(4096))]
#[derive(Clone)]
pub struct PageImage(pub [u8; PAGE_SIZE]);

impl PageImage {
    /// A page of zeroes, on the heap.
    pub fn zeroed() -> Box<PageImage> {
        Box::new(PageImage([0; PAGE_SIZE]))
    }

    /// Little-endian u16 at `at`. Panics outside the page.
    pub fn u16_at(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.0[at..at + 2].try_into().expect("2 bytes"))
    }
    /// Little-endian u32 at `at`. Panics outside the page.
    pub fn u32_at(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.0[at..at + 4].try_into().expect("4 bytes"))
    }
    /// Little-endian u64 at `at`. Panics outside the page.
    pub fn u64_at(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.0[at..at + 8].try_into().expect("8 bytes"))
    }
    /// Writes little-endian. Panics outside the page.
    pub fn set_u16(&mut self, at: usize, value: u16) {
        self.0[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }
    /// Writes little-endian. Panics outside the page.
    pub fn set_u32(&mut self, at: usize, value: u32) {
        self.0[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    /// Writes little-endian. Panics outside the page.
    pub fn set_u64(&mut self, at: usize, value: u64) {
        self.0[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    /// Fills the common header of a new page; other bytes stay.
    pub fn format(&mut self, kind: PageKind, level: u8, page: PageId, tree: TreeId) {
        self.0[header::VERSION] = FORMAT_VERSION;
        self.0[header::KIND] = kind as u8;
        self.0[header::LEVEL] = level;
        self.0[header::FLAGS] = 0;
        self.set_u64(header::PAGE_ID, page.0);
        self.set_u64(header::GSN, 0);
        self.set_u32(header::TREE_ID, tree.0);
    }

    /// Sets the checksum. This must be the last step before a write.
    pub fn seal(&mut self) {
        let checksum = crc32_iscsi(&self.0[4..]);
        self.set_u32(header::CHECKSUM, checksum);
    }

    /// Checks checksum, page id, format version and tree id of a page that was read.
    pub fn verify(&self, page: PageId, tree: TreeId) -> Result<()> {
        verify(&self.0, page, tree)
    }

    /// As [`PageImage::verify`], for a page of any tree.
    pub fn verify_of_any_tree(&self, page: PageId) -> Result<()> {
        self.verify(page, TreeId(self.u32_at(header::TREE_ID)))
    }
}

/// Checks checksum, page id, format version and tree id of the bytes read for `page`.
pub fn verify(bytes: &[u8; PAGE_SIZE], page: PageId, tree: TreeId) -> Result<()> {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    let (stored, computed) = (word(header::CHECKSUM), crc32_iscsi(&bytes[4..]));
    if stored != computed {
        return Err(Error::corruption(
            page,
            format_args!("its checksum is {computed:08x}, the stored one is {stored:08x}"),
        ));
    }
    if bytes[header::VERSION] != FORMAT_VERSION {
        return Err(Error::corruption(
            page,
            format_args!("format version {} instead of {FORMAT_VERSION}", bytes[header::VERSION]),
        ));
    }
    let id = u64::from_le_bytes(
        bytes[header::PAGE_ID..header::PAGE_ID + 8].try_into().expect("8 bytes"),
    );
    if id != page.0 {
        return Err(Error::corruption(page, format_args!("it says that it is page {id}")));
    }
    let found = word(header::TREE_ID);
    if found != tree.0 {
        return Err(Error::corruption(
            page,
            format_args!("it belongs to tree {found}, not to tree {tree}"),
        ));
    }
    Ok(())
}

/// Racy view of the bytes of a frame. A value read through it means nothing until the latch version
/// from before the read validates after it.
#[derive(Clone, Copy)]
pub struct PageRef<'p> {
    ptr: *const u8,
    _pool: PhantomData<&'p ()>,
}

impl<'p> PageRef<'p> {
    /// Views the frame at `ptr`.
    ///
    /// # Safety
    /// `ptr` must be page aligned and valid for reads of [`PAGE_SIZE`] bytes during `'p`, and all
    /// concurrent writes must go through [`PageMut`] or a completed read into a frame that no
    /// validated reader can reach.
    #[inline(always)]
    pub unsafe fn new(ptr: *const u8) -> Self {
        PageRef { ptr, _pool: PhantomData }
    }

    /// View of a private image, for code that works on both.
    #[inline]
    pub fn of_image(image: &'p PageImage) -> Self {
        PageRef { ptr: image.0.as_ptr(), _pool: PhantomData }
    }

    /// Byte at `at` modulo the page size.
    #[inline(always)]
    pub fn u8_at(self, at: usize) -> u8 {
        // SAFETY: the mask keeps the byte inside the page.
        let ptr = unsafe { self.ptr.add(at & (PAGE_SIZE - 1)) };
        // SAFETY: a byte of the page, see `new`.
        unsafe { racy::load_u8(ptr) }
    }
    /// Little-endian u16 at the even offset `at`, masked into the page.
    #[inline(always)]
    pub fn u16_at(self, at: usize) -> u16 {
        // SAFETY: the mask keeps two aligned bytes inside the page.
        let ptr = unsafe { self.ptr.add(at & (PAGE_SIZE - 2)) };
        // SAFETY: aligned bytes of the page, see `new`.
        u16::from_le(unsafe { racy::load_u16(ptr) })
    }
    /// Little-endian u32 at the offset `at`, a multiple of 4, masked into the page.
    #[inline(always)]
    pub fn u32_at(self, at: usize) -> u32 {
        // SAFETY: the mask keeps four aligned bytes inside the page.
        let ptr = unsafe { self.ptr.add(at & (PAGE_SIZE - 4)) };
        // SAFETY: aligned bytes of the page, see `new`.
        u32::from_le(unsafe { racy::load_u32(ptr) })
    }
    /// Little-endian u64 at the offset `at`, a multiple of 8, masked into the page.
    #[inline(always)]
    pub fn u64_at(self, at: usize) -> u64 {
        // SAFETY: the mask keeps eight aligned bytes inside the page.
        let ptr = unsafe { self.ptr.add(at & (PAGE_SIZE - 8)) };
        // SAFETY: aligned bytes of the page, see `new`.
        u64::from_le(unsafe { racy::load_u64(ptr) })
    }

    /// Copies `into.len()` bytes from `at`. Fails if the range leaves the page.
    #[inline(always)]
    pub fn copy_to(self, at: usize, into: &mut [u8]) -> Result<(), Restart> {
        if at.checked_add(into.len()).is_none_or(|end| end > PAGE_SIZE) {
            return Err(Restart);
        }
        // SAFETY: the range was checked.
        let from = unsafe { self.ptr.add(at) };
        // SAFETY: `into` is private and as long; page bytes are readable, see `new`.
        unsafe { racy::copy_out(from, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Appends `len` bytes from `at` to `into`. Fails if the range leaves the page.
    #[inline(always)]
    pub fn append_to(self, at: usize, len: usize, into: &mut Vec<u8>) -> Result<(), Restart> {
        if at.checked_add(len).is_none_or(|end| end > PAGE_SIZE) {
            return Err(Restart);
        }
        into.reserve(len);
        let old = into.len();
        // SAFETY: the range was checked.
        let from = unsafe { self.ptr.add(at) };
        // SAFETY: old <= capacity.
        let to = unsafe { into.as_mut_ptr().add(old) };
        // SAFETY: `reserve` made room for `len` bytes, which are private.
        unsafe { racy::copy_out(from, to, len) };
        // SAFETY: the copy initialised them.
        unsafe { into.set_len(old + len) };
        Ok(())
    }

    /// Compares the `key.len()` bytes at `at` with `key`. Fails if the range leaves the page.
    #[inline(always)]
    pub fn compare(self, at: usize, key: &[u8]) -> Result<Ordering, Restart> {
        if at.checked_add(key.len()).is_none_or(|end| end > PAGE_SIZE) {
            return Err(Restart);
        }
        // SAFETY: the range was checked.
        let from = unsafe { self.ptr.add(at) };
        // SAFETY: page bytes are readable, see `new`.
        Ok(unsafe { racy::compare(from, key) })
    }

    /// Bit `i` is set if the `i`-th u32 from `at` is below `bound`, for 16 of them. `at` is masked
    /// to a multiple of 4, and lowered if fewer than 64 bytes of the page follow it.
    #[inline(always)]
    pub fn below_16(self, at: usize, bound: u32) -> u32 {
        let at = (at & (PAGE_SIZE - 4)).min(PAGE_SIZE - 64);
        // SAFETY: at + 64 <= PAGE_SIZE.
        let ptr = unsafe { self.ptr.add(at) };
        // SAFETY: 64 readable bytes aligned to 4, see `new`.
        unsafe { racy::below_16(ptr, bound) }
    }

    /// Prefetches the cache line at `at` for reading.
    #[inline(always)]
    pub fn prefetch(self, at: usize) {
        self.prefetch_for(at, For::Read);
    }

    /// Prefetches the cache line at `at`.
    #[inline(always)]
    pub fn prefetch_for(self, at: usize, what: For) {
        what.prefetch(self.ptr.wrapping_add(at & (PAGE_SIZE - 1)));
    }

    /// Copies some cache lines of the page, and prefetches the same lines of `beside`, which will
    /// be copied next: its cache misses overlap this copy.
    ///
    /// # Panics
    /// If there are no such lines.
    #[inline]
    pub fn copy_lines(self, lines: Range<usize>, image: &mut PageImage, beside: PageRef<'_>) {
        let into = &mut image.0.as_chunks_mut::<LINE>().0[lines.clone()];
        if cfg!(shuttle) {
            // One copy has fewer places where the model checker may switch threads.
            let into = into.as_flattened_mut();
            return self.copy_to(LINE * lines.start, into).expect("lines of the page");
        }
        for (line, into) in lines.zip(into) {
            beside.prefetch(LINE * line);
            // SAFETY: an image has as many lines as a page, and the slice above has this one.
            let from = unsafe { self.ptr.add(LINE * line) };
            // SAFETY: a line of the page, see `new`; `into` is private.
            unsafe { racy::copy_out(from, into.as_mut_ptr(), LINE) };
        }
    }

    /// Copies the whole page.
    #[inline]
    pub fn copy_image(self, image: &mut PageImage) {
        // SAFETY: both sides have PAGE_SIZE bytes; the image is private.
        unsafe { racy::copy_out(self.ptr, image.0.as_mut_ptr(), PAGE_SIZE) };
    }
}

/// Exclusive view of the bytes of a frame: the holder of the exclusive latch reads plainly, and
/// writes in a way that optimistic readers may race with.
///
/// Offsets outside the page panic: the page was checked when it was loaded.
pub struct PageMut<'p> {
    ptr: *mut u8,
    _pool: PhantomData<&'p mut ()>,
}

impl<'p> PageMut<'p> {
    /// Views the frame at `ptr`.
    ///
    /// # Safety
    /// As for [`PageRef::new`], and the caller must be the only writer while the view lives.
    #[inline(always)]
    pub unsafe fn new(ptr: *mut u8) -> Self {
        PageMut { ptr, _pool: PhantomData }
    }

    /// View of a private image, for code that works on both.
    #[inline]
    pub fn of_image(image: &'p mut PageImage) -> Self {
        PageMut { ptr: image.0.as_mut_ptr(), _pool: PhantomData }
    }

    /// The racy view, for search code that works on both.
    #[inline(always)]
    pub fn as_ref(&self) -> PageRef<'_> {
        PageRef { ptr: self.ptr, _pool: PhantomData }
    }

    /// All bytes. Other threads only read while this view is exclusive, so a shared reference is
    /// sound.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8; PAGE_SIZE] {
        // SAFETY: valid for reads, see `new`; no writer while `self` is borrowed.
        unsafe { &*self.ptr.cast::<[u8; PAGE_SIZE]>() }
    }

    /// Writes one byte.
    #[inline(always)]
    pub fn set_u8(&mut self, at: usize, value: u8) {
        assert!(at < PAGE_SIZE);
        // SAFETY: inside the page.
        let ptr = unsafe { self.ptr.add(at) };
        // SAFETY: the only writer, see `new`.
        unsafe { racy::store_u8(ptr, value) };
    }
    /// Writes little-endian at an even offset.
    #[inline(always)]
    pub fn set_u16(&mut self, at: usize, value: u16) {
        assert!(at + 2 <= PAGE_SIZE && at.is_multiple_of(2));
        // SAFETY: inside the page.
        let ptr = unsafe { self.ptr.add(at) };
        // SAFETY: the only writer, aligned, see `new`.
        unsafe { racy::store_u16(ptr, value.to_le()) };
    }
    /// Writes little-endian at an offset that is a multiple of 4.
    #[inline(always)]
    pub fn set_u32(&mut self, at: usize, value: u32) {
        assert!(at + 4 <= PAGE_SIZE && at.is_multiple_of(4));
        // SAFETY: inside the page.
        let ptr = unsafe { self.ptr.add(at) };
        // SAFETY: the only writer, aligned, see `new`.
        unsafe { racy::store_u32(ptr, value.to_le()) };
    }
    /// Writes little-endian at an offset that is a multiple of 8.
    #[inline(always)]
    pub fn set_u64(&mut self, at: usize, value: u64) {
        assert!(at + 8 <= PAGE_SIZE && at.is_multiple_of(8));
        // SAFETY: inside the page.
        let ptr = unsafe { self.ptr.add(at) };
        // SAFETY: the only writer, aligned, see `new`.
        unsafe { racy::store_u64(ptr, value.to_le()) };
    }

    /// Writes `bytes` at `at`.
    #[inline(always)]
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        assert!(at <= PAGE_SIZE && bytes.len() <= PAGE_SIZE - at);
        // SAFETY: inside the page.
        let to = unsafe { self.ptr.add(at) };
        // SAFETY: the range was checked; `bytes` cannot alias the page, which nothing borrows
        // while `self` is borrowed mutably.
        unsafe { racy::copy_in(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Moves `len` bytes inside the page; the ranges may overlap.
    #[inline]
    pub fn move_within(&mut self, from: usize, to: usize, len: usize) {
        assert!(from <= PAGE_SIZE && len <= PAGE_SIZE - from);
        assert!(to <= PAGE_SIZE && len <= PAGE_SIZE - to);
        let mut buffer = std::mem::MaybeUninit::<[u8; PAGE_SIZE]>::uninit();
        let buffer: *mut u8 = buffer.as_mut_ptr().cast();
        // SAFETY: the range was checked.
        let source = unsafe { self.ptr.add(from) };
        // SAFETY: the buffer is private and large enough.
        unsafe { racy::copy_out(source, buffer, len) };
        // SAFETY: the range was checked.
        let target = unsafe { self.ptr.add(to) };
        // SAFETY: the first `len` bytes of the buffer are initialised; the only writer.
        unsafe { racy::copy_in(buffer, target, len) };
    }

    /// Replaces the whole page.
    #[inline]
    pub fn write_image(&mut self, image: &PageImage) {
        self.write(0, &image.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The format requires CRC-32C, whichever implementation computes it.
    #[test]
    fn the_checksum_equals_that_of_another_implementation_of_crc_32c() {
        assert_eq!(crc_fast::crc32_iscsi(b"123456789"), 0xe306_9283);
        let mut image = PageImage::zeroed();
        for round in 0..64_usize {
            for (at, byte) in image.0.iter_mut().enumerate() {
                *byte = (at.wrapping_mul(2 * round + 1) >> (round % 8)) as u8;
            }
            image.seal();
            let stored = u32::from_le_bytes(image.0[..4].try_into().expect("4 bytes"));
            assert_eq!(stored, crc32c::crc32c(&image.0[4..]), "page {round}");
            let part = &image.0[round..round + 67 * round % 4000];
            assert_eq!(crc_fast::crc32_iscsi(part), crc32c::crc32c(part), "{} bytes", part.len());
        }
    }

    #[test]
    fn a_copy_of_lines_leaves_the_other_bytes_alone() {
        let mut page = PageImage::zeroed();
        for (at, byte) in page.0.iter_mut().enumerate() {
            *byte = (at % 255) as u8 + 1;
        }
        let view = PageRef::of_image(&page);
        for lines in [0..0, 0..1, 0..64, 5..9, 63..64, 64..64] {
            let mut copy = PageImage::zeroed();
            view.copy_lines(lines.clone(), &mut copy, view);
            let copied = LINE * lines.start..LINE * lines.end;
            assert_eq!(copy.0[copied.clone()], page.0[copied.clone()], "{lines:?}");
            let others = copy.0.iter().enumerate().filter(|(at, _)| !copied.contains(at));
            assert!(others.into_iter().all(|(_, byte)| *byte == 0), "{lines:?}");
        }
    }
}
