//! The data file: opening it, transfers of whole pages, reserving room, syncing.
//!
//! Shared by the back ends `uring` and `threads`. Every call blocks the calling thread.
//!
//! Invariants: a transfer is one whole page or an error. Every page below
//! [`PageFile::capacity_pages`] lies inside the file, with its blocks allocated where the file
//! system can promise that.
//!
//! Another program may cut the file. A write past the new end would extend the file again, with
//! zeroes for the lost pages. So the length is checked before each batch of writes and before each
//! sync. Once the file was found too short, no write and no sync succeeds.

use super::{
    directory::{Directory, FileId, look_at},
    storage::{PageWrite, ReadTarget},
};
use crate::{
    ids::PageId,
    page::{PAGE_SIZE, PageImage},
};
use parking_lot::Mutex;
use rustix::fs::OFlags;
use std::{
    fs::File,
    io::{self, IoSlice, Seek, SeekFrom},
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, FileTypeExt},
    },
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// Pages of zeroes per write, where the file system cannot allocate without writing.
const ZERO_PAGES: u64 = 64;

/// Whether transfers go through the page cache of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageCache {
    /// They do.
    Used,
    /// They bypass it where the file system allows that (O_DIRECT).
    Bypassed,
}

/// An open data file, or a whole block device.
pub(super) struct PageFile {
    file: File,
    direct: bool,
    /// A block device, whose size does not change.
    fixed_size: bool,
    /// Number of whole pages inside the file. A hint that orders nothing, hence relaxed.
    capacity: AtomicU64,
    /// Serialises changes of the length, so that each range is allocated once.
    growth: Mutex<()>,
    /// The directory of its name.
    directory: Arc<Directory>,
    name: PathBuf,
    id: FileId,
    /// Required and actual length in bytes, once the file was found to have been cut.
    cut: OnceLock<(u64, u64)>,
}

impl PageFile {
    /// Opens or creates the file `name`.
    ///
    /// Takes no lock; the owner of the store keeps a second handle for that.
    pub(super) fn open_in(
        directory: &Arc<Directory>,
        name: &Path,
        cache: PageCache,
    ) -> io::Result<PageFile> {
        let access = OFlags::RDWR | OFlags::CREATE;
        let opened = match cache {
            PageCache::Used => (directory.open_cached(name, access)?, false),
            PageCache::Bypassed => warned(directory.open_direct(name, access)?, directory, name),
        };
        PageFile::of(opened, directory, name)
    }

    /// Opens the existing file `name` for reading only.
    pub(super) fn open_read_only(
        directory: &Arc<Directory>,
        name: &Path,
        cache: PageCache,
    ) -> io::Result<PageFile> {
        let opened = match cache {
            PageCache::Used => (directory.open_to_read(name)?, false),
            PageCache::Bypassed => warned(directory.open_direct_to_read(name)?, directory, name),
        };
        PageFile::of(opened, directory, name)
    }

    fn of(
        (mut file, direct): (File, bool),
        directory: &Arc<Directory>,
        name: &Path,
    ) -> io::Result<PageFile> {
        let path = directory.path_of(name);
        let kind = file.metadata()?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            let what = format!("{} is neither a file nor a block device", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        // The metadata of a block device does not hold its end.
        let bytes = file.seek(SeekFrom::End(0))?;
        Ok(PageFile {
            id: look_at(&file)?.id,
            file,
            direct,
            fixed_size: kind.is_block_device(),
            capacity: AtomicU64::new(bytes / PAGE_SIZE as u64),
            growth: Mutex::new(()),
            directory: directory.clone(),
            name: name.to_path_buf(),
            cut: OnceLock::new(),
        })
    }

    /// Checks that the file is as long as it must be.
    pub(super) fn check_length(&self) -> io::Result<()> {
        // Read the capacity first: the file grows before the capacity does.
        let mut needed = self.capacity_pages() * PAGE_SIZE as u64;
        if self.cut.get().is_none() {
            if self.fixed_size {
                return Ok(());
            }
            if look_at(&self.file)?.bytes >= needed {
                return Ok(());
            }
            // The file may have been shrunk after the capacity was read.
            let _growth = self.growth.lock();
            needed = self.capacity_pages() * PAGE_SIZE as u64;
            let bytes = look_at(&self.file)?.bytes;
            if bytes >= needed {
                return Ok(());
            }
            // Another thread may have found it just now.
            let _first = self.cut.set((needed, bytes));
        }
        let (needed, bytes) = self.cut.get().copied().unwrap_or((needed, 0));
        let path = self.directory.path_of(&self.name);
        let what = format!(
            "{} was cut to {bytes} bytes while it was in use; it had {needed}",
            path.display()
        );
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, what))
    }

    /// Checks that the file still has its name and its length.
    pub(super) fn check(&self) -> io::Result<()> {
        self.check_length()?;
        self.directory.check_file(&self.name, self.id)
    }

    /// Whether transfers bypass the kernel's page cache.
    pub(super) fn is_direct(&self) -> bool {
        self.direct
    }

    /// Duplicates the descriptor for an owner that closes its own.
    #[cfg(feature = "async")]
    pub(super) fn duplicate(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Fills `target` with its page.
    pub(super) fn read_target(&self, target: &mut ReadTarget) -> io::Result<()> {
        // SAFETY: the target owns PAGE_SIZE writable bytes, aligned to a page, until it ends.
        unsafe { self.read(target.page(), target.as_ptr()) }
    }

    /// Fills targets whose pages are neighbours in the file, ascending, with one call. Gives how
    /// many pages it filled whole: all of them, unless something is wrong with a later one.
    ///
    /// # Panics
    /// If the pages are not neighbours, or none.
    pub(super) fn read_run(&self, targets: &mut [ReadTarget]) -> io::Result<usize> {
        let first = targets[0].page();
        let ascend = targets.iter().enumerate().all(|(at, t)| t.page().0 == first.0 + at as u64);
        assert!(ascend, "pages that are not neighbours are not read with one call");
        let parts: Vec<libc::iovec> = targets
            .iter()
            .map(|target| libc::iovec { iov_base: target.as_ptr().cast(), iov_len: PAGE_SIZE })
            .collect();
        let offset = offset_of(first)?;
        loop {
            // SAFETY: each target owns PAGE_SIZE writable bytes, aligned to a page, until it ends,
            // and all are borrowed for the call; the descriptor is open.
            let done = unsafe {
                libc::preadv(
                    self.file.as_raw_fd(),
                    parts.as_ptr(),
                    parts.len() as libc::c_int,
                    offset as libc::off_t,
                )
            };
            match usize::try_from(done) {
                Ok(done) => return Ok(done / PAGE_SIZE),
                Err(_) => retry_if_interrupted(io::Error::last_os_error())?,
            }
        }
    }

    /// Fills `image` with `page`.
    pub(super) fn read_image(&self, page: PageId, image: &mut PageImage) -> io::Result<()> {
        // SAFETY: the image has PAGE_SIZE bytes, aligned to a page, borrowed for the call.
        unsafe { self.read(page, image.0.as_mut_ptr()) }
    }

    /// # Safety
    /// `to` must be valid for writes of [`PAGE_SIZE`] bytes that nothing else writes, and page
    /// aligned.
    unsafe fn read(&self, page: PageId, to: *mut u8) -> io::Result<()> {
        let offset = offset_of(page)?;
        loop {
            // SAFETY: `to` has PAGE_SIZE writable bytes, see above; the descriptor is open.
            let done = unsafe {
                libc::pread(self.file.as_raw_fd(), to.cast(), PAGE_SIZE, offset as libc::off_t)
            };
            match usize::try_from(done) {
                Ok(done) => return whole_read(page, done),
                Err(_) => retry_if_interrupted(io::Error::last_os_error())?,
            }
        }
    }

    /// Writes `image` as `page`.
    pub(super) fn write(&self, page: PageId, image: &PageImage) -> io::Result<()> {
        let offset = offset_of(page)?;
        loop {
            // SAFETY: the image has PAGE_SIZE bytes, borrowed for the call; the descriptor is open.
            let done = unsafe {
                libc::pwrite(
                    self.file.as_raw_fd(),
                    image.0.as_ptr().cast(),
                    PAGE_SIZE,
                    offset as libc::off_t,
                )
            };
            match usize::try_from(done) {
                Ok(done) => {
                    whole_write(page, done)?;
                    self.note_written(page);
                    return Ok(());
                }
                Err(_) => retry_if_interrupted(io::Error::last_os_error())?,
            }
        }
    }

    /// Writes pages that lie side by side with one call.
    pub(super) fn write_neighbours(&self, first: PageId, images: &[&PageImage]) -> io::Result<()> {
        let whole = self.write_some(first, images)?;
        // A call may write less than all, for example at a limit of the number of pieces.
        let pages = (first.0..).map(PageId).zip(images).skip(whole);
        pages.into_iter().try_for_each(|(page, image)| self.write(page, image))
    }

    /// Writes neighbours of a batch; gives the outcome of each to `note`, in order.
    pub(super) fn write_batch_run(
        &self,
        run: &[PageWrite<'_>],
        mut note: impl FnMut(io::Result<()>),
    ) {
        let whole = match run {
            [] | [_] => 0,
            [first, ..] => {
                let images: Vec<_> = run.iter().map(|write| write.image).collect();
                self.write_some(first.page, &images).unwrap_or(0)
            }
        };
        self.write_rest(run, whole, &mut note);
    }

    /// As [`PageFile::write_batch_run`], if one call has written the first `whole` pages.
    pub(super) fn write_rest(
        &self,
        run: &[PageWrite<'_>],
        whole: usize,
        note: &mut dyn FnMut(io::Result<()>),
    ) {
        if let Some(last) = whole.checked_sub(1) {
            self.note_written(run[last].page);
        }
        run[..whole].iter().for_each(|_| note(Ok(())));
        // A page that the call did not write is written for itself, and has its own outcome.
        run[whole..].iter().for_each(|write| note(self.write(write.page, write.image)));
    }

    /// Writes neighbours with one call, which may end early: the number of whole pages.
    fn write_some(&self, first: PageId, images: &[&PageImage]) -> io::Result<usize> {
        self.check_length()?;
        let offset = offset_of(first)?;
        let slices: Vec<_> = images.iter().map(|image| IoSlice::new(&image.0)).collect();
        let done = loop {
            match rustix::io::pwritev(&self.file, &slices, offset) {
                Ok(done) => break done,
                Err(error) => retry_if_interrupted(error.into())?,
            }
        };
        let whole = done / PAGE_SIZE;
        if let Some(last) = whole.checked_sub(1) {
            self.note_written(PageId(first.0 + last as u64));
        }
        Ok(whole)
    }

    /// Updates the capacity after a write past the reserved end, which extended the file.
    pub(super) fn note_written(&self, page: PageId) {
        if page.0 >= self.capacity.load(Ordering::Relaxed) {
            self.capacity.fetch_max(page.0 + 1, Ordering::Relaxed);
        }
    }

    /// Makes completed writes durable, and the length of the file as far as they need it.
    ///
    /// After an error the kernel may regard the lost pages as clean. A second call that succeeds
    /// proves nothing, so the caller must stop.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.check_length()?;
        self.file.sync_data()
    }

    /// Pages inside the file.
    pub(super) fn capacity_pages(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Extends the file to exactly `pages`, with the missing blocks allocated.
    ///
    /// After an error the file keeps the blocks that were allocated, and the next call uses them.
    pub(super) fn reserve(&self, pages: u64) -> io::Result<()> {
        if pages <= self.capacity_pages() {
            return Ok(());
        }
        let end = offset_of(PageId(pages))?;
        let _growth = self.growth.lock();
        let have = self.capacity_pages();
        if pages <= have {
            return Ok(());
        }
        if self.fixed_size {
            let what = format!("the block device has {have} pages, {pages} are needed");
            return Err(io::Error::new(io::ErrorKind::StorageFull, what));
        }
        // Allocating past a cut would hide it.
        self.check_length()?;
        let start = have * PAGE_SIZE as u64;
        if !allocate(&self.file, start, end - start)? {
            tracing::warn!(
                from_page = have,
                to_page = pages,
                "the file system has no fallocate: room is reserved by writing zeroes, \
                 which a copy-on-write file system does not honour"
            );
            self.write_zeroes(have, pages)?;
        }
        self.capacity.fetch_max(pages, Ordering::Relaxed);
        Ok(())
    }

    /// Cuts the file after `pages`. A block device stays as it is.
    pub(super) fn shrink(&self, pages: u64) -> io::Result<()> {
        let end = offset_of(PageId(pages))?;
        let _growth = self.growth.lock();
        if self.fixed_size || pages >= self.capacity_pages() {
            return Ok(());
        }
        self.file.set_len(end)?;
        self.capacity.store(pages, Ordering::Relaxed);
        Ok(())
    }

    /// Writes consecutive images, starting at page `first`.
    pub(super) fn write_run(&self, first: PageId, images: &[PageImage]) -> io::Result<()> {
        let start = images.as_ptr().cast::<u8>();
        // SAFETY: the images, PAGE_SIZE bytes each without padding, are contiguous.
        let bytes = unsafe { std::slice::from_raw_parts(start, size_of_val(images)) };
        self.file.write_all_at(bytes, offset_of(first)?)
    }

    /// Writes zeroes over pages `from..to`, all of them past the end of the file.
    fn write_zeroes(&self, from: u64, to: u64) -> io::Result<()> {
        let mut zeroes = Vec::new();
        zeroes
            .try_reserve_exact(ZERO_PAGES as usize)
            .map_err(|error| io::Error::new(io::ErrorKind::OutOfMemory, error))?;
        zeroes.resize(ZERO_PAGES as usize, PageImage([0; PAGE_SIZE]));
        let mut page = from;
        while page < to {
            let count = (to - page).min(ZERO_PAGES) as usize;
            self.write_run(PageId(page), &zeroes[..count])?;
            page += count as u64;
        }
        Ok(())
    }
}

/// The same error for each page of a batch of `pages`.
pub(super) fn refuse_all(error: &io::Error, pages: usize, results: &mut Vec<io::Result<()>>) {
    let copy = || match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    };
    results.extend((0..pages).map(|_| Err(copy())));
}

/// Allocates `len` bytes at `start` with `fallocate`, which extends the file; unwritten parts read
/// as zeroes. Returns false if the file system does not support it.
pub(super) fn allocate(file: &File, start: u64, len: u64) -> io::Result<bool> {
    loop {
        // SAFETY: no memory is involved; the descriptor is open.
        let failed = unsafe {
            libc::fallocate(file.as_raw_fd(), 0, start as libc::off_t, len as libc::off_t)
        };
        if failed == 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() == Some(libc::EOPNOTSUPP) {
            return Ok(false);
        }
        retry_if_interrupted(error)?;
    }
}

/// Says so if the page cache cannot be bypassed.
fn warned(opened: (File, bool), directory: &Directory, name: &Path) -> (File, bool) {
    if !opened.1 {
        tracing::warn!(
            path = %directory.path_of(name).display(),
            "the file system refuses O_DIRECT: pages will be cached twice, once by the kernel"
        );
    }
    opened
}

/// Byte offset of `page`, or an error if no file can have that page.
pub(super) fn offset_of(page: PageId) -> io::Result<u64> {
    if page > PageId::MAX {
        let what = format!("page {page} is above the limit of {}", PageId::MAX);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(page.offset())
}

/// Turns a read of `done` bytes into an error unless that is a page.
pub(super) fn whole_read(page: PageId, done: usize) -> io::Result<()> {
    if done == PAGE_SIZE {
        return Ok(());
    }
    let what = format!("the file ends {done} bytes into page {page}");
    Err(io::Error::new(io::ErrorKind::UnexpectedEof, what))
}

/// Turns a write of `done` bytes into an error unless that is a page.
pub(super) fn whole_write(page: PageId, done: usize) -> io::Result<()> {
    if done == PAGE_SIZE {
        return Ok(());
    }
    let what = format!("only {done} of {PAGE_SIZE} bytes of page {page} were written");
    Err(io::Error::new(io::ErrorKind::WriteZero, what))
}

fn retry_if_interrupted(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{directory::split, threads::ThreadStorage},
        *,
    };

    #[test]
    fn room_can_be_reserved_by_writing_zeroes() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("data");
        let open = |path: &Path| {
            let (directory, name) = split(path)?;
            PageFile::open_in(&directory, name, PageCache::Bypassed)
        };
        let file = open(&path).expect("a file");
        file.write_zeroes(0, 3 * ZERO_PAGES + 1).expect("room");
        assert_eq!(open(&path).expect("a file").capacity_pages(), 3 * ZERO_PAGES + 1);
    }

    #[test]
    fn a_file_that_shrinks_is_not_taken_for_one_that_was_cut() {
        let dir = tempfile::tempdir().expect("a directory");
        let (directory, name) =
            split(&dir.path().join("data")).map(|(d, n)| (d, n.to_owned())).expect("a place");
        let file = PageFile::open_in(&directory, &name, PageCache::Bypassed).expect("a file");
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    file.check().expect("whole");
                }
            });
            for _ in 0..3000 {
                file.reserve(64).expect("room");
                file.shrink(8).expect("shrunk");
            }
            stop.store(true, Ordering::Relaxed);
        });
        file.check().expect("whole");
    }

    #[test]
    fn files_that_cannot_hold_pages_are_refused() {
        let kind = |path: &Path| ThreadStorage::open(path).err().expect("no file").kind();
        assert_eq!(kind(Path::new("/dev/null")), io::ErrorKind::InvalidInput);
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(kind(dir.path()), io::ErrorKind::IsADirectory);
        assert_eq!(kind(&dir.path().join("missing/data")), io::ErrorKind::NotFound);
    }
}
