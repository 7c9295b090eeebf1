//! The log in files: one file for each segment, O_DIRECT where the file system allows it, written
//! with `pwrite` or through the ring of the thread that writes.
//!
//! A segment is filled with zeroes under another name, synced, and only then renamed: a file with
//! the name of a segment always has its full length. Overwriting zeroes is what makes a sync cheap
//! later: neither blocks nor extents of the file change. But to write them costs as much as the log itself; so
//! they can also be reserved ([`Zeroes`]): extents that the file system regards as unwritten, and reads as zeroes.
//! Of a file whose bytes were passed on only the first page is overwritten.
//!
//! Files of segments that were given up become the next ones. Removing them would have the device
//! discard their blocks: a gigabyte at the end of a checkpoint makes everybody's reads and writes wait
//! for a second.
//!
//! Memory: pieces are borrowed for the call, and a runtime that is dropped, also by a panic, first
//! waits for its operations.

use super::{
    file::{accepts_direct_reads, allocate},
    log::{LogBuffer, LogStorage, Zeroes, absent, assert_whole_pages, exists, range_within},
    runtime,
    uring::is_transient,
};
use crate::page::PAGE_SIZE;
use parking_lot::Mutex;
use std::{
    cell::RefCell,
    fs::{self, File},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    rc::Rc,
    sync::{Arc, Weak},
};
use tokio_uring::{Runtime, buf::IoBuf};

/// Pieces in flight in the ring of a thread.
const RING_ENTRIES: u32 = 64;
/// Bytes that one write fills with zeroes: when nobody else wants the device, and beside others, at least
/// and at most.
const ZERO_BYTES: usize = 1 << 20;
const ZERO_BYTES_BESIDE: [usize; 2] = [64 << 10, 256 << 10];
/// Segments kept open: the current one, those made ahead, and those being read.
const MAX_OPEN: usize = 12;
/// Ending of a file that is no segment, or not yet: its bytes mean nothing.
const UNFINISHED: &str = "new";
/// Of the files that no segment needed for a while, one in so many is removed at a time.
const SURPLUS: usize = 8;

/// A directory of segment files.
pub(super) struct FileLog {
    directory: PathBuf,
    ring: bool,
    /// Most recently used last.
    open: Mutex<Vec<(u64, Arc<SegmentFile>)>>,
    spares: Mutex<Spares>,
}

/// Files to make segments of: their names are durably not those of segments.
struct Spares {
    files: Vec<Spare>,
    /// The least number of them since some were given back.
    least: usize,
}

struct Spare {
    path: PathBuf,
    /// Its bytes may be those of the next segment.
    passed_on: bool,
}

struct SegmentFile {
    file: File,
    direct: bool,
    bytes: u64,
}

impl FileLog {
    /// Opens or creates the directory; `ring`: write and sync with tokio-uring.
    pub(super) fn open(directory: &Path, ring: bool) -> io::Result<FileLog> {
        if !directory.is_dir() {
            fs::create_dir(directory)?;
            sync_directory(directory.parent().unwrap_or(directory))?;
        }
        let mut files = Vec::new();
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.extension().is_some_and(|ending| ending == UNFINISHED) {
                files.push(Spare { path, passed_on: false });
            }
        }
        if !files.is_empty() {
            // A process that was killed may have renamed one and not made that durable.
            sync_directory(directory)?;
        }
        let spares = Mutex::new(Spares { least: files.len(), files });
        let (directory, open) = (directory.to_path_buf(), Mutex::new(Vec::new()));
        Ok(FileLog { directory, ring, open, spares })
    }

    fn path(&self, segment: u64) -> PathBuf {
        self.directory.join(format!("{segment:016}.log"))
    }

    fn segment(&self, segment: u64) -> io::Result<Arc<SegmentFile>> {
        let mut open = self.open.lock();
        if let Some(at) = open.iter().position(|(number, _)| *number == segment) {
            let found = open.remove(at);
            open.push(found);
        } else {
            let path = self.path(segment);
            let file = fs::OpenOptions::new().read(true).write(true).open(&path);
            let file = file.map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => absent(segment),
                _ => error,
            })?;
            let bytes = file.metadata()?.len();
            let (file, direct) = direct_or(&path, file)?;
            if open.len() == MAX_OPEN {
                open.remove(0);
            }
            open.push((segment, Arc::new(SegmentFile { file, direct, bytes })));
        }
        Ok(Arc::clone(&open[open.len() - 1].1))
    }

    /// A file `path` of `bytes` out of one that is to spare, and whether its bytes were passed on: otherwise they
    /// are anything.
    fn reuse(&self, path: &Path, bytes: u64) -> io::Result<Option<(File, bool)>> {
        loop {
            let mut spares = self.spares.lock();
            let same = spares.files.iter().position(|spare| spare.path == path);
            let Some(at) = same.or(spares.files.len().checked_sub(1)) else { return Ok(None) };
            let Spare { path: spare, passed_on } = spares.files.swap_remove(at);
            spares.least = spares.least.min(spares.files.len());
            drop(spares);
            // Whatever somebody did to it: there is always another way to make the segment.
            let Ok(metadata) = fs::symlink_metadata(&spare) else { continue };
            if !metadata.is_file() || metadata.len() != bytes {
                fs::remove_file(&spare)?;
                continue;
            }
            fs::rename(&spare, path)?;
            let file = fs::OpenOptions::new().write(true).open(path)?;
            return Ok(Some((file, passed_on)));
        }
    }

    /// Fills and syncs a file that has no segment's name yet; `beside` others, what was passed on may stay.
    fn fill(
        &self,
        path: &Path,
        bytes: u64,
        (beside, zeroes): (bool, Zeroes),
        pace: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> io::Result<()> {
        let (file, zeroed) = match self.reuse(path, bytes)? {
            Some((file, passed_on)) => {
                (file, if passed_on && beside { PAGE_SIZE as u64 } else { bytes })
            }
            None => {
                let file = File::create(path)?;
                let reserved = zeroes == Zeroes::Reserved && allocate(&file, 0, bytes)?;
                (file, if reserved { 0 } else { bytes })
            }
        };
        let (file, _) = direct_or(path, file)?;
        let most = if beside { ZERO_BYTES_BESIDE[1] } else { ZERO_BYTES };
        let zeroes = LogBuffer::new(most.min(zeroed as usize));
        let least = ZERO_BYTES_BESIDE[0] as u64;
        let mut at = 0;
        while at < zeroed {
            let given_up =
                || io::Error::new(io::ErrorKind::Interrupted, "the segment is not needed");
            let piece = pace(at).ok_or_else(given_up)?.max(least) / least * least;
            let piece = piece.min(zeroed - at).min(zeroes.len() as u64) as usize;
            file.write_all_at(&zeroes[..piece], at)?;
            at += piece as u64;
        }
        file.sync_all()?;
        let found = file.metadata()?.len();
        if found != bytes {
            let what = format!("{} has {found} bytes, not {bytes}", path.display());
            return Err(io::Error::other(what));
        }
        Ok(())
    }

    fn make(
        &self,
        segment: u64,
        bytes: u64,
        how: (bool, Zeroes),
        pace: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> io::Result<()> {
        assert_whole_pages(0, bytes as usize);
        let path = self.path(segment);
        if path.exists() {
            return Err(exists(segment));
        }
        let unfinished = path.with_extension(UNFINISHED);
        let filled = self.fill(&unfinished, bytes, how, pace);
        if let Err(error) = filled.and_then(|()| fs::rename(&unfinished, &path)) {
            // A full device needs the room back.
            let _ = fs::remove_file(&unfinished);
            return Err(error);
        }
        sync_directory(&self.directory)?;
        // Opened now, when that may fail, and not by the first write.
        self.segment(segment).map(drop)
    }

    /// Takes a name away. Nobody who reads meanwhile opens the file once more, to be taken for that of a
    /// segment which gets the number later.
    fn forget(&self, segment: u64, gone: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut open = self.open.lock();
        open.retain(|(number, _)| *number != segment);
        gone()
    }

    /// Keeps the file of a segment that is no more.
    fn spare(&self, segment: u64, passed_on: bool) -> io::Result<()> {
        let path = self.path(segment);
        let spare = path.with_extension(UNFINISHED);
        self.forget(segment, || fs::rename(path, &spare))?;
        // Before it is overwritten: a power cut must not bring the segment back with other bytes.
        sync_directory(&self.directory)?;
        self.spares.lock().files.push(Spare { path: spare, passed_on });
        Ok(())
    }
}

impl LogStorage for FileLog {
    fn segments(&self) -> io::Result<Vec<(u64, u64)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".log"));
            let Some(number) = number.filter(|digits| digits.len() == 16) else { continue };
            let Ok(number) = number.parse() else { continue };
            match entry.metadata() {
                Ok(metadata) => found.push((number, metadata.len())),
                // The log may be shortened while it is listed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    fn create(&self, segment: u64, bytes: u64) -> io::Result<()> {
        self.make(segment, bytes, (false, Zeroes::Written), &mut |_| Some(u64::MAX))
    }

    fn create_beside(
        &self,
        segment: u64,
        bytes: u64,
        zeroes: Zeroes,
        pace: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> io::Result<()> {
        self.make(segment, bytes, (true, zeroes), pace)
    }

    fn remove(&self, segment: u64) -> io::Result<()> {
        self.forget(segment, || fs::remove_file(self.path(segment)))?;
        sync_directory(&self.directory)
    }

    fn retire(&self, segment: u64) -> io::Result<()> {
        self.spare(segment, false)
    }

    fn pass_on(&self, segment: u64) -> io::Result<()> {
        self.spare(segment, true)
    }

    fn give_back(&self, all: bool) -> io::Result<bool> {
        let mut spares = self.spares.lock();
        let surplus = if all { spares.files.len() } else { spares.least.div_ceil(SURPLUS) };
        let kept = spares.files.len() - surplus;
        let gone = spares.files.split_off(kept);
        spares.least = kept;
        // Under the lock: afterwards such a name may be that of a file which becomes a segment.
        for spare in &gone {
            match fs::remove_file(&spare.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        drop(spares);
        if !gone.is_empty() {
            // Only then others can have the blocks.
            sync_directory(&self.directory)?;
        }
        Ok(!gone.is_empty())
    }

    fn read(&self, segment: u64, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let open = self.segment(segment)?;
        range_within(segment, offset, into.len(), open.bytes)?;
        let page = PAGE_SIZE as u64;
        let aligned = offset.is_multiple_of(page)
            && into.len().is_multiple_of(PAGE_SIZE)
            && into.as_ptr().addr().is_multiple_of(PAGE_SIZE);
        if aligned || !open.direct {
            return open.file.read_exact_at(into, offset);
        }
        let start = offset / page * page;
        let skip = (offset - start) as usize;
        let mut bounce = LogBuffer::new(skip + into.len());
        // The last page of a file that was cut may be there in part only.
        let there = (bounce.len() as u64).min(open.bytes - start) as usize;
        open.file.read_exact_at(&mut bounce[..there], start)?;
        into.copy_from_slice(&bounce[skip..skip + into.len()]);
        Ok(())
    }

    fn write(&self, segment: u64, writes: &[(u64, &[u8])]) -> io::Result<()> {
        let open = self.segment(segment)?;
        for &(offset, piece) in writes {
            assert_whole_pages(offset, piece.len());
            range_within(segment, offset, piece.len(), open.bytes)?;
        }
        let aligned = |piece: &[u8]| piece.as_ptr().addr().is_multiple_of(PAGE_SIZE);
        // One piece by itself has nothing to overlap with.
        if self.ring && writes.len() > 1 && writes.iter().all(|(_, piece)| aligned(piece)) {
            let through_ring = with_ring(&open, async |handle| {
                let mut in_flight = Vec::with_capacity(writes.len());
                let mut result = Ok(());
                for group in writes.chunks(RING_ENTRIES as usize) {
                    for &(offset, piece) in group {
                        let operation = handle.write_at(Piece(piece), offset).submit();
                        in_flight.push((offset, piece, operation));
                    }
                    // All of them are waited for, whatever becomes of the first.
                    for (offset, piece, operation) in in_flight.drain(..) {
                        let (done, _) = operation.await;
                        result = result.and(finish_write(&open.file, offset, piece, done));
                    }
                }
                result
            });
            if let Some(result) = through_ring {
                return result;
            }
        }
        for &(offset, piece) in writes {
            if open.direct && !aligned(piece) {
                let mut bounce = LogBuffer::new(piece.len());
                bounce.copy_from_slice(piece);
                open.file.write_all_at(&bounce, offset)?;
            } else {
                open.file.write_all_at(piece, offset)?;
            }
        }
        Ok(())
    }

    fn sync(&self, segment: u64) -> io::Result<()> {
        // Not through the ring, which would hand it to another thread of the kernel: the flusher has
        // nothing else to do meanwhile.
        self.segment(segment)?.file.sync_data()
    }
}

/// Another handle of the same file that goes past the page cache, or the one given.
fn direct_or(path: &Path, file: File) -> io::Result<(File, bool)> {
    // Only what is there: somebody may have taken the name away.
    match fs::OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path) {
        // An empty file, as one that is being made, accepts the read of nothing.
        Ok(direct) if accepts_direct_reads(&direct)? => Ok((direct, true)),
        Ok(_) => Ok((file, false)),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok((file, false)),
        Err(error) => Err(error),
    }
}

fn sync_directory(directory: &Path) -> io::Result<()> {
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    File::open(directory)?.sync_all()
}

/// The rest of a write that the kernel ended early or gave up without trying.
fn finish_write(file: &File, at: u64, piece: &[u8], done: io::Result<usize>) -> io::Result<()> {
    match done {
        Ok(done) if done == piece.len() => Ok(()),
        Ok(0) => Err(io::Error::new(io::ErrorKind::WriteZero, "the log takes no more bytes")),
        Ok(done) => file.write_all_at(&piece[done..], at + done as u64),
        Err(error) if is_transient(&error) => file.write_all_at(piece, at),
        Err(error) => Err(error),
    }
}

thread_local! {
    /// The runtime of the thread that writes, made by its first write. Taken out while in use.
    static RING: RefCell<Option<Ring>> = const { RefCell::new(None) };
}

struct Ring {
    runtime: Runtime,
    files: Vec<(Weak<SegmentFile>, Rc<tokio_uring::fs::File>)>,
}

/// Runs `work` on this thread's ring with its handle of `segment`; `None` where there is no ring.
fn with_ring<T>(
    segment: &Arc<SegmentFile>,
    work: impl AsyncFnOnce(&tokio_uring::fs::File) -> io::Result<T>,
) -> Option<io::Result<T>> {
    if runtime::inside_runtime() {
        return None;
    }
    let kept = RING.try_with(|ring| ring.take()).ok()?;
    let mut ring = match kept {
        Some(ring) => ring,
        None => Ring { runtime: runtime::new_runtime(RING_ENTRIES).ok()?, files: Vec::new() },
    };
    let known = ring.files.iter().find(|(weak, _)| weak.as_ptr() == Arc::as_ptr(segment));
    let handle = match known {
        Some((_, handle)) => Rc::clone(handle),
        None => {
            ring.files.retain(|(weak, _)| weak.strong_count() > 0);
            let handle = Rc::new(tokio_uring::fs::File::from_std(segment.file.try_clone().ok()?));
            ring.files.push((Arc::downgrade(segment), Rc::clone(&handle)));
            handle
        }
    };
    // A panic in here drops the runtime, which waits for the kernel before the pieces can end.
    let result = ring.runtime.block_on(work(&handle));
    drop(handle);
    // While the thread ends, its runtime ends here instead.
    let _ = RING.try_with(|slot| slot.replace(Some(ring)));
    Some(result)
}

/// Bytes that the caller of `write` lends until all writes have completed.
struct Piece(*const [u8]);

// SAFETY: the bytes neither move nor change during `write`, which outlives the operation.
unsafe impl IoBuf for Piece {
    fn stable_ptr(&self) -> *const u8 {
        self.0.cast()
    }
    fn bytes_init(&self) -> usize {
        self.0.len()
    }
    fn bytes_total(&self) -> usize {
        self.0.len()
    }
}
