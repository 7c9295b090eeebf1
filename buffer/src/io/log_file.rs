//! The log in files: one file per segment, O_DIRECT where the file system allows it, written with
//! `pwrite` or through the ring of the writing thread.
//!
//! A segment is filled with zeroes under another name, synced, and only then renamed, so a file
//! with the name of a segment always has its full length. Overwriting zeroes makes later syncs
//! cheap, because neither blocks nor extents of the file change. Writing them costs as much as
//! writing the log itself, so they can also be reserved ([`Zeroes`]): the file system then has
//! extents that it knows to be unwritten and reads as zeroes. In a file whose bytes were passed on,
//! only the first page is overwritten.
//!
//! All names are relative to the directory that was opened ([`Directory`]), even if its path later
//! leads elsewhere. The log only looks at names that a log creates: 16 digits with an ending. It
//! ignores other names. If something with such a name is not a file, it is in the way, and an error
//! says so.
//!
//! Files of ended segments become new segments. Removing them would make the device discard their
//! blocks; a gigabyte of that at the end of a checkpoint delays all reads and writes by a second.

use super::{
    directory::{Directory, lacks_descriptors, look_at},
    file::allocate,
    log::{LogBuffer, LogStorage, Zeroes, absent, assert_whole_pages, exists, range_within},
    ring,
    segment_file::{SEGMENT, SegmentFile, UNFINISHED, name, number},
};
use crate::page::PAGE_SIZE;
use parking_lot::Mutex;
use rustix::fs::OFlags;
use std::{
    io,
    os::unix::fs::FileExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Bytes of zeroes in one write: without other users of the device; and, beside them, at least and
/// at most.
const ZERO_BYTES: usize = 1 << 20;
const ZERO_BYTES_BESIDE: [usize; 2] = [64 << 10, 256 << 10];
/// Number of segments that are kept open: the current one, those created ahead, and those being
/// read.
const MAX_OPEN: usize = 12;
/// Of the files that no segment needed for a while, one in this many is removed at a time.
const SURPLUS: usize = 8;

type OpenFiles = Vec<(u64, Arc<SegmentFile>)>;

/// A directory of segment files.
pub(super) struct FileLog {
    directory: Arc<Directory>,
    ring: bool,
    /// Most recently used last.
    open: Mutex<OpenFiles>,
    /// The last segment that was written. Earlier ones are only read. Orders nothing, hence
    /// relaxed.
    written: AtomicU64,
    spares: Mutex<Spares>,
}

/// Spare files for new segments. It is durable that their names are not those of segments.
struct Spares {
    files: Vec<Spare>,
    /// Lowest number of spare files since some were last given back.
    least: usize,
}

struct Spare {
    /// Number in the name, which ends with [`UNFINISHED`].
    number: u64,
    /// The next segment may keep its bytes.
    passed_on: bool,
}

impl FileLog {
    /// Opens the log in the files of `directory`; `ring`: write with io_uring.
    pub(super) fn open(directory: Arc<Directory>, ring: bool) -> io::Result<FileLog> {
        let mut files = Vec::new();
        for entry in directory.names()? {
            if let Some(number) = number(&entry, UNFINISHED)
                && directory.find_entry(&entry)?.is_some_and(|found| found.is_file())
            {
                files.push(Spare { number, passed_on: false });
            }
        }
        if !files.is_empty() {
            // A process that was killed may have renamed a file without making that durable.
            directory.sync()?;
        }
        let spares = Mutex::new(Spares { least: files.len(), files });
        let (open, written) = (Mutex::default(), AtomicU64::new(0));
        Ok(FileLog { directory, ring, open, written, spares })
    }

    fn in_the_way(&self, name: &str, kind: &str) -> io::Error {
        in_the_way(&self.directory, name, kind)
    }

    fn segment(&self, segment: u64) -> io::Result<Arc<SegmentFile>> {
        let mut open = self.open.lock();
        if let Some(at) = open.iter().position(|(number, _)| *number == segment) {
            let found = open.remove(at);
            open.push(found);
        } else {
            let name = name(segment, SEGMENT);
            let opened = || self.directory.open_direct(Path::new(&name), OFlags::RDWR);
            let opened = match opened() {
                Err(error) if lacks_descriptors(&error) && self.close_old(&mut open) => opened(),
                opened => opened,
            };
            let opened = opened.map_err(|error| match error.kind() {
                io::ErrorKind::NotFound if !self.directory.is_removed() => absent(segment),
                io::ErrorKind::IsADirectory => self.in_the_way(&name, "a directory"),
                _ => error,
            })?;
            self.keep_open(&mut open, segment, SegmentFile::new(opened, false)?);
        }
        Ok(Arc::clone(&open[open.len() - 1].1))
    }

    fn keep_open(&self, open: &mut OpenFiles, segment: u64, file: SegmentFile) {
        if open.len() == MAX_OPEN {
            // Rather close a segment that is only read than one that will be written.
            let old = open.iter().position(|file| self.is_old(file));
            open.remove(old.unwrap_or(0));
        }
        open.push((segment, Arc::new(file)));
    }

    /// Whether the segment will not be written: it is before the current one, or existed before.
    fn is_old(&self, (number, file): &(u64, Arc<SegmentFile>)) -> bool {
        let written = self.written.load(Ordering::Relaxed);
        *number < written || (!file.made && *number != written)
    }

    /// Closes segments that are only read, because their descriptors may be needed. Returns whether
    /// there were any.
    fn close_old(&self, open: &mut OpenFiles) -> bool {
        let before = open.len();
        open.retain(|file| !self.is_old(file));
        open.len() < before
    }

    /// Ensures that there is a descriptor for another segment, if segments can be closed for that.
    /// Otherwise the log goes on with the descriptors that it has.
    fn free_descriptor(&self) {
        if let Err(error) = self.directory.open_itself()
            && lacks_descriptors(&error)
        {
            self.close_old(&mut self.open.lock());
        }
    }

    /// Turns a spare file into an unfinished file of `bytes` for `segment`. Returns whether its
    /// bytes were passed on; otherwise they may be anything. `None` if there is no spare file.
    fn reuse(&self, segment: u64, bytes: u64) -> io::Result<Option<bool>> {
        loop {
            let mut spares = self.spares.lock();
            let same = spares.files.iter().position(|spare| spare.number == segment);
            let Some(at) = same.or(spares.files.len().checked_sub(1)) else { return Ok(None) };
            let Spare { number, passed_on } = spares.files.swap_remove(at);
            spares.least = spares.least.min(spares.files.len());
            drop(spares);
            let spare = name(number, UNFINISHED);
            // Another program may have changed the file. There is always another way to create the
            // segment.
            let found = match self.directory.find_entry(&spare)? {
                Some(found) if found.is_file() => found,
                _ => continue,
            };
            if found.bytes != bytes {
                self.directory.remove(&spare)?;
                continue;
            }
            if number != segment {
                let unfinished = name(segment, UNFINISHED);
                self.room_for(&unfinished)?;
                self.directory.rename(&spare, &unfinished)?;
            }
            return Ok(Some(passed_on));
        }
    }

    /// Makes the name of an unfinished file available: removes the file of a failed attempt.
    fn room_for(&self, unfinished: &str) -> io::Result<()> {
        match self.directory.find_entry(unfinished)? {
            None => Ok(()),
            Some(found) if found.is_file() => self.directory.remove(unfinished),
            Some(found) => Err(self.in_the_way(unfinished, found.kind())),
        }
    }

    /// Fills and syncs an unfinished file, and returns it. `beside`: bytes that were passed on may
    /// stay.
    fn fill(
        &self,
        segment: u64,
        bytes: u64,
        (beside, zeroes): (bool, Zeroes),
        pace: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> io::Result<SegmentFile> {
        let unfinished = name(segment, UNFINISHED);
        let zeroed = match self.reuse(segment, bytes)? {
            Some(passed_on) => {
                if passed_on && beside {
                    PAGE_SIZE as u64
                } else {
                    bytes
                }
            }
            None => {
                self.room_for(&unfinished)?;
                let file = self.directory.create_file(&unfinished)?;
                let reserved = zeroes == Zeroes::Reserved && allocate(&file, 0, bytes)?;
                if reserved { 0 } else { bytes }
            }
        };
        // Do not create the file: another program may have removed the name.
        let (file, direct) = self.directory.open_direct(Path::new(&unfinished), OFlags::RDWR)?;
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
        let file = SegmentFile::new((file, direct), true)?;
        if file.bytes != bytes {
            let path = self.directory.path_of(&unfinished);
            let what = format!("{} has {} bytes, not {bytes}", path.display(), file.bytes);
            return Err(io::Error::other(what));
        }
        Ok(file)
    }

    fn make(
        &self,
        segment: u64,
        bytes: u64,
        how: (bool, Zeroes),
        pace: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> io::Result<()> {
        assert_whole_pages(0, bytes as usize);
        let finished = name(segment, SEGMENT);
        match self.directory.find_entry(&finished)? {
            None => {}
            Some(found) if found.is_file() => return Err(exists(segment)),
            Some(found) => return Err(self.in_the_way(&finished, found.kind())),
        }
        let unfinished = name(segment, UNFINISHED);
        self.free_descriptor();
        let filled = self.fill(segment, bytes, how, pace);
        let renamed = filled.and_then(|file| {
            self.directory.rename(&unfinished, &finished)?;
            Ok(file)
        });
        let file = renamed.map_err(|error| {
            // A full device needs the room back. If the file stays, the next attempt removes it.
            let _ = self.directory.remove(&unfinished);
            self.directory.explained(error)
        })?;
        self.directory.sync()?;
        let mut open = self.open.lock();
        self.close_old(&mut open);
        // Keep it open: there may be no descriptor for the first write.
        self.keep_open(&mut open, segment, file);
        Ok(())
    }

    /// Another program may cut a segment. A write would then extend it again, with zeroes for the
    /// lost part.
    fn check_length(&self, segment: u64, open: &SegmentFile) -> io::Result<()> {
        let found = look_at(&open.file)?.bytes;
        if found >= open.bytes {
            return Ok(());
        }
        let path = self.directory.path_of(name(segment, SEGMENT));
        let (path, bytes) = (path.display(), open.bytes);
        let what = format!("{path} was cut to {found} bytes while it was in use; it had {bytes}");
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, what))
    }

    /// Takes a name away. Under the lock, so that no reader opens the file again and takes it for a
    /// later segment with the same number.
    fn forget(&self, segment: u64, gone: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut open = self.open.lock();
        open.retain(|(number, _)| *number != segment);
        gone()
    }

    /// Keeps the file of a segment that has ended as a spare file.
    fn spare(&self, segment: u64, passed_on: bool) -> io::Result<()> {
        let spare = name(segment, UNFINISHED);
        let rename = || self.directory.rename(name(segment, SEGMENT), spare);
        self.forget(segment, rename)?;
        // Sync before it is overwritten: a power cut must not bring the segment back with other
        // bytes.
        self.directory.sync()?;
        self.spares.lock().files.push(Spare { number: segment, passed_on });
        Ok(())
    }
}

/// The error for something that is in the way of a file.
fn in_the_way(directory: &Directory, name: &str, kind: &str) -> io::Error {
    let what = format!(
        "{} is {kind} where a file of the log has its place: move it out of the directory",
        directory.path_of(name).display()
    );
    io::Error::new(io::ErrorKind::AlreadyExists, what)
}

/// The name of the file of a segment.
pub(super) fn segment_name(segment: u64) -> String {
    name(segment, SEGMENT)
}

/// Numbers and sizes of the segments in a directory, ascending.
pub(super) fn segments_in(directory: &Directory) -> io::Result<Vec<(u64, u64)>> {
    let mut found = Vec::new();
    for entry in directory.names()? {
        let Some(number) = number(&entry, SEGMENT) else { continue };
        match directory.find(&entry)? {
            Some(file) if file.is_file() => found.push((number, file.bytes)),
            Some(file) => return Err(in_the_way(directory, &segment_name(number), file.kind())),
            // The log may remove segments while they are listed.
            None => {}
        }
    }
    found.sort_unstable();
    Ok(found)
}

impl LogStorage for FileLog {
    fn segments(&self) -> io::Result<Vec<(u64, u64)>> {
        segments_in(&self.directory)
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
        self.forget(segment, || self.directory.remove(name(segment, SEGMENT)))?;
        self.directory.sync()
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
        // Under the lock, because later such a name may be that of a file that becomes a segment.
        for spare in &gone {
            match self.directory.remove(name(spare.number, UNFINISHED)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        drop(spares);
        if !gone.is_empty() {
            // Only then can the device reuse the blocks.
            self.directory.sync()?;
        }
        Ok(!gone.is_empty())
    }

    fn room(&self) -> Option<u64> {
        let device = rustix::fs::fstatvfs(&*self.directory).ok()?;
        let spares = self.spares.lock();
        let kept = spares.files.iter().filter_map(|spare| {
            Some(self.directory.find_entry(name(spare.number, UNFINISHED)).ok()??.bytes)
        });
        Some(device.f_bavail.saturating_mul(device.f_frsize).saturating_add(kept.sum()))
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
        // The file may have been cut within its last page.
        let there = (bounce.len() as u64).min(open.bytes - start) as usize;
        open.file.read_exact_at(&mut bounce[..there], start)?;
        into.copy_from_slice(&bounce[skip..skip + into.len()]);
        Ok(())
    }

    fn write(&self, segment: u64, writes: &[(u64, &[u8])]) -> io::Result<()> {
        let open = self.segment(segment)?;
        self.written.fetch_max(segment, Ordering::Relaxed);
        self.check_length(segment, &open)?;
        for &(offset, piece) in writes {
            assert_whole_pages(offset, piece.len());
            range_within(segment, offset, piece.len(), open.bytes)?;
        }
        let aligned = |piece: &[u8]| piece.as_ptr().addr().is_multiple_of(PAGE_SIZE);
        // A single piece has nothing to overlap with.
        if self.ring
            && writes.len() > 1
            && writes.iter().all(|(_, piece)| aligned(piece))
            && let Some(result) = ring::write_pieces(&open, writes)
        {
            return result;
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
        // Not through the ring, which would hand it to another kernel thread; the flusher has
        // nothing else to do.
        self.segment(segment)?.file.sync_data()
    }

    fn check(&self, segments: &[u64]) -> io::Result<()> {
        for &segment in segments {
            let name = name(segment, SEGMENT);
            let open = self.open.lock().iter().find(|(number, _)| *number == segment).cloned();
            match open {
                Some((_, open)) => {
                    self.check_length(segment, &open)?;
                    self.directory.check_file(&name, open.id)?;
                }
                None if self.directory.find(&name)?.is_some_and(|found| found.is_file()) => {}
                None => {
                    let path = self.directory.path_of(name);
                    let what = format!("{} was removed while it was in use", path.display());
                    return Err(io::Error::new(io::ErrorKind::NotFound, what));
                }
            }
        }
        Ok(())
    }
}
