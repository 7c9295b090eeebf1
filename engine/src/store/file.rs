//! The files of an open store: reads and writes pages, superblocks and bitmaps.
//!
//! A superblock says where recovery begins. It lies in the first 512 bytes of its page, so a torn
//! write leaves the old one or the new one; both copies are written, one after the other, each made
//! durable. A store that is used without a log is marked so before its first page is overwritten,
//! and refused if its process ends before it is closed.
//!
//! Each group of pages has two copies of its bitmap. A checkpoint overwrites the copy that is not
//! the valid one: valid is the one with the largest sequence up to that of the superblock.

use super::{
    bitmaps::{BitmapCopies, bitmap_sequence},
    directory::Files,
    superblock::{StoreState, Superblock, at, is_superblock},
    tree_ids::NO_TREE,
};
use parking_lot::Mutex;
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use wattle_buffer::{
    BITMAP_GROUP, Error, PageId, PageImage, PageKind, Result, bitmap_page,
    io::{
        DEVICE_FILE, DeviceRecord, Directory, FrozenLog, IoKind, LogStorage, MemoryLog, Overlay,
        PageWrite, Storage,
    },
    page::header,
};

/// Pages of a new store: superblocks, bitmaps and some room.
const FIRST_PAGES: u64 = 8;

/// Where the log is.
enum LogPlace {
    /// In a directory of the store's.
    Files(Files),
    /// On a storage that the caller made.
    Storage(Arc<dyn LogStorage>),
}

/// An open store, locked against a second opening.
pub struct StoreFile {
    /// The directory as the caller named it, or a name; for messages.
    pub path: PathBuf,
    /// The pages.
    pub storage: Arc<dyn Storage>,
    /// The pages on the device, of a store that is opened read-only.
    below: Option<Arc<dyn Storage>>,
    /// Syncs that have begun.
    syncs: AtomicU64,
    /// Held during a sync.
    synced: Mutex<Synced>,
    log: LogPlace,
}

/// The outcomes of the syncs so far.
#[derive(Default)]
struct Synced {
    /// The first failure: pages can no longer be made durable.
    failed: Option<Error>,
    /// Number of the last sync, all of which have succeeded.
    last: u64,
}

impl StoreFile {
    /// Opens or creates the files of a store. Nothing that exists is changed.
    pub fn open(path: &Path, io: IoKind, create: bool) -> Result<StoreFile> {
        if io.is_volatile() {
            let storage = wattle_buffer::io::open(io, path);
            let storage = storage.map_err(|error| Error::io("reserve memory", error))?;
            let log = LogPlace::Storage(Arc::new(MemoryLog::default()));
            return Ok(StoreFile::new(path.into(), storage, log));
        }
        let (files, storage) = Files::open(path, io, create)?;
        Ok(StoreFile::new(path.into(), storage, LogPlace::Files(files)))
    }

    fn new(path: PathBuf, storage: Arc<dyn Storage>, log: LogPlace) -> Self {
        let (syncs, synced) = (AtomicU64::new(0), Mutex::default());
        StoreFile { path, storage, below: None, syncs, synced, log }
    }

    /// The files of a store that is there, to be read only. Writes to pages stay in memory, up to
    /// `limit` pages. Several can be open at a time, but not beside one that is not read-only.
    pub fn open_read_only(path: &Path, io: IoKind, limit: usize) -> Result<StoreFile> {
        if io.is_volatile() {
            let what = "a store in memory cannot be opened read-only: there is none before";
            return Err(Error::InvalidOption(what.to_string()));
        }
        let (files, storage) = Files::open_read_only(path, io)?;
        Ok(StoreFile::new(path.into(), storage, LogPlace::Files(files)).read_only(limit))
    }

    /// From now on nothing is written to the storage: pages stay in memory, up to `limit`.
    pub fn read_only(self, limit: usize) -> StoreFile {
        let below = self.storage;
        let storage = Arc::new(Overlay::new(below.clone(), limit));
        StoreFile { storage, below: Some(below), ..self }
    }

    /// The pages as they are on the device.
    pub fn device(&self) -> &Arc<dyn Storage> {
        self.below.as_ref().unwrap_or(&self.storage)
    }

    /// A store on storages that the caller made, for tests.
    pub fn on(storage: Arc<dyn Storage>, log: Arc<dyn LogStorage>) -> StoreFile {
        let path = PathBuf::from(format!("({} storage)", storage.name()));
        StoreFile::new(path, storage, LogPlace::Storage(log))
    }

    /// Opens the log, once. `exists`: it must be there already.
    pub fn open_log(&self, exists: bool) -> Result<Arc<dyn LogStorage>> {
        match &self.log {
            LogPlace::Storage(log) if self.below.is_some() => Ok(Arc::new(FrozenLog(log.clone()))),
            LogPlace::Storage(log) => Ok(log.clone()),
            LogPlace::Files(files) => files.open_log(&self.path, exists),
        }
    }

    /// The log, if there is a place for it. Makes none.
    pub fn existing_log(&self) -> Result<Option<Arc<dyn LogStorage>>> {
        match &self.log {
            LogPlace::Files(files) if !files.has_log()? => Ok(None),
            _ => self.open_log(true).map(Some),
        }
    }

    /// The directory of the store, where it has one in which files can be made.
    pub fn directory(&self) -> Option<Arc<Directory>> {
        match &self.log {
            LogPlace::Files(_) if self.below.is_some() => None,
            LogPlace::Files(files) => Some(files.directory.clone()),
            LogPlace::Storage(_) => None,
        }
    }

    /// The directory of the store, if it is in files; also of one that is only read.
    pub fn home(&self) -> Option<&Arc<Directory>> {
        match &self.log {
            LogPlace::Files(files) => Some(&files.directory),
            LogPlace::Storage(_) => None,
        }
    }

    /// Whether there is a file of this name in the directory of the store. One that cannot be
    /// looked at is not there.
    pub fn has(&self, name: &str) -> bool {
        self.home().is_some_and(|home| home.find(name).is_ok_and(|found| found.is_some()))
    }

    /// The figures of the device, if it was probed for this store. Figures that cannot be used are
    /// reported.
    pub fn probed(&self) -> Option<DeviceRecord> {
        let directory = self.home()?;
        DeviceRecord::read(directory).unwrap_or_else(|error| {
            let path = directory.path_of(DEVICE_FILE);
            tracing::warn!(path = %path.display(), %error, "figures of the device are not used");
            None
        })
    }

    /// The pages are where they were, and all of them. Asked before a superblock says so.
    ///
    /// # Errors
    /// [`Error::FilesChanged`].
    pub fn check_files(&self) -> Result<()> {
        self.storage.check().map_err(|error| self.changed(error))
    }

    /// The error of files that were changed from outside.
    pub fn changed(&self, error: std::io::Error) -> Error {
        Error::FilesChanged { path: self.path.clone(), what: error.to_string() }
    }

    /// The `outcome` of the work on the store, or an error if the directory is no longer where it
    /// was opened.
    ///
    /// # Errors
    /// [`Error::FilesChanged`] says where it is now, or that it is gone.
    pub fn in_place(&self, outcome: Result<()>) -> Result<()> {
        let displaced = match &self.log {
            LogPlace::Files(files) => files.displaced(),
            LogPlace::Storage(_) => None,
        };
        match displaced {
            None => outcome,
            Some(displaced) => Err(Error::FilesChanged {
                path: self.path.clone(),
                what: displaced.explain(&outcome),
            }),
        }
    }

    /// Unlocks the store. Nothing is written after this.
    pub fn release(&self) {
        if let LogPlace::Files(files) = &self.log {
            files.release();
        }
    }

    /// Reserves the first pages of a new store.
    pub fn create(&self) -> Result<()> {
        let action = || format!("reserve the first {FIRST_PAGES} pages of {}", self.path.display());
        self.storage.reserve(FIRST_PAGES).map_err(|error| Error::io(action(), error))
    }

    /// Reads the newest superblock.
    ///
    /// # Errors
    /// [`Error::NotAStore`], [`Error::WrongVersion`], [`Error::NotClosed`] or
    /// [`Error::Corruption`].
    pub fn read_superblock(&self) -> Result<Superblock> {
        let mut newest: Option<Superblock> = None;
        let mut damage = None;
        let mut known = false;
        for page in [PageId(0), PageId(1)] {
            if page.0 >= self.storage.capacity_pages() {
                break;
            }
            let mut image = PageImage::zeroed();
            self.read(page, &mut image)?;
            if is_superblock(&image) {
                known = true;
            }
            match Superblock::decode(page, &image, &self.path, self.storage.capacity_pages()) {
                Ok(block) if newest.is_none_or(|n| n.sequence < block.sequence) => {
                    newest = Some(block);
                }
                Ok(_) => {}
                Err(error @ Error::WrongVersion { .. }) => return Err(error),
                Err(error) => damage = Some(error),
            }
        }
        match (newest, damage) {
            (Some(block), damage) => {
                if let Some(error) = damage {
                    tracing::warn!(%error, "one of two superblocks is damaged");
                }
                if block.state == StoreState::Unlogged {
                    return Err(Error::NotClosed { path: self.path.clone() });
                }
                Ok(block)
            }
            (None, Some(error)) if known => Err(error),
            _ => Err(Error::NotAStore {
                path: self.path.clone(),
                why: "the data file does not begin with a superblock".to_string(),
            }),
        }
    }

    /// Writes both superblocks, one after the other, each made durable.
    pub fn write_superblock(&self, block: &Superblock) -> Result<()> {
        for page in [PageId(0), PageId(1)] {
            let image = block.encode(page);
            self.write(&[PageWrite { page, image: &image }])?;
            self.sync()?;
        }
        Ok(())
    }

    /// Reads the bitmaps of a store with this superblock, and for each group which of its copies is
    /// the valid one.
    ///
    /// A checkpoint that did not come to its end may have left copies with the number of the next
    /// superblock. The next checkpoint must overwrite them, changed or not: they would be taken for
    /// its own.
    pub fn read_bitmap(&self, block: &Superblock) -> Result<(Vec<u64>, BitmapCopies)> {
        let mut words = Vec::with_capacity(block.capacity.div_ceil(64) as usize);
        let (mut copies, mut damage) = (BitmapCopies::default(), None);
        let mut image = PageImage::zeroed();
        for group in 0..block.capacity.div_ceil(BITMAP_GROUP) {
            let mut valid: Option<(u64, u64)> = None;
            for copy in 0..2 {
                let page = bitmap_page(group, copy);
                if page.0 >= block.capacity {
                    continue;
                }
                self.read(page, &mut image)?;
                match bitmap_sequence(page, &image) {
                    Ok(Some(sequence)) if sequence > block.sequence => copies.left.push(group),
                    Ok(Some(sequence)) if valid.is_none_or(|(newest, _)| newest < sequence) => {
                        valid = Some((sequence, copy));
                    }
                    Ok(_) => {}
                    // A crash may have interrupted the checkpoint that wrote this copy. It counts
                    // only if no other copy is valid.
                    Err(error) => damage = Some(error),
                }
            }
            let start = words.len();
            words.resize(start + BITMAP_GROUP as usize / 64, 0);
            let (sequence, copy) = valid.unwrap_or((0, 1));
            copies.valid.push((copy as u8, sequence));
            if valid.is_some() {
                self.read(bitmap_page(group, copy), &mut image)?;
                for (at, word) in words[start..].iter_mut().enumerate() {
                    *word = image.u64_at(at::BITMAP + 8 * at);
                }
            }
        }
        if copies.fingerprint() != block.bitmaps {
            let page = bitmap_page(0, 0);
            let what = "the bitmaps of pages in use are not those of the last checkpoint";
            return Err(damage.unwrap_or_else(|| Error::corruption(page, what)));
        }
        words.truncate(block.capacity.div_ceil(64) as usize);
        Ok((words, copies))
    }

    /// Writes bitmaps for the superblock with number `sequence`, which follows once they are
    /// durable. The valid copies stay.
    pub fn write_bitmap(
        &self,
        groups: &[(u64, Vec<u64>)],
        sequence: u64,
        copies: &BitmapCopies,
    ) -> Result<()> {
        let mut image = PageImage::zeroed();
        for (group, words) in groups {
            // Another attempt after a failure overwrites its own copy.
            let page = bitmap_page(*group, copies.spare(*group));
            image.0.fill(0);
            image.format(PageKind::Bitmap, 0, page, NO_TREE);
            image.set_u64(header::GSN, sequence);
            for (i, word) in words.iter().enumerate() {
                image.set_u64(at::BITMAP + 8 * i, *word);
            }
            image.seal();
            self.write(&[PageWrite { page, image: &image }])?;
        }
        Ok(())
    }

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// After the first failure it always fails: the kernel may count the lost pages as written, so
    /// that another sync succeeds and proves nothing. One sync at a time, because the kernel may
    /// report a failure to only one of two callers.
    pub fn sync(&self) -> Result<()> {
        self.sync_once_more(None)
    }

    /// As [`StoreFile::sync`], for pages whose writes have ended: a sync for another caller counts
    /// that begins after this call. So callers that wait for each other share one.
    ///
    /// # Errors
    /// As there.
    pub fn sync_shared(&self) -> Result<()> {
        // A sync that has a larger number begins after the writes of the caller.
        self.sync_once_more(Some(self.syncs.load(Ordering::SeqCst)))
    }

    /// Syncs, unless one with a number above `enough` has ended.
    fn sync_once_more(&self, enough: Option<u64>) -> Result<()> {
        let mut synced = self.synced.lock();
        if let Some(error) = &synced.failed {
            return Err(Error::Poisoned(may_be_lost(error)));
        }
        if enough.is_some_and(|number| synced.last > number) {
            return Ok(());
        }
        let number = self.syncs.fetch_add(1, Ordering::SeqCst) + 1;
        self.storage.sync().map_err(|error| {
            let error = Error::io(format_args!("sync {}", self.path.display()), error);
            synced.failed.insert(error).clone()
        })?;
        synced.last = number;
        Ok(())
    }

    /// Why written pages may be lost, if a sync has failed.
    pub fn lost(&self) -> Option<String> {
        self.synced.lock().failed.as_ref().map(may_be_lost)
    }

    /// Reads a page as it is.
    pub fn read(&self, page: PageId, image: &mut PageImage) -> Result<()> {
        let action = || format!("read page {page} of {}", self.path.display());
        self.storage.read_image(page, image).map_err(|error| Error::io(action(), error))
    }

    /// Writes sealed pages.
    pub fn write(&self, batch: &[PageWrite<'_>]) -> Result<()> {
        let mut results = Vec::with_capacity(batch.len());
        self.storage.write_pages(batch, &mut results);
        for (write, result) in batch.iter().zip(results) {
            let action = || format!("write page {} of {}", write.page, self.path.display());
            result.map_err(|error| Error::io(action(), error))?;
        }
        Ok(())
    }

    /// Writes sealed pages that lie side by side, from `first` on.
    pub fn write_neighbours(&self, first: PageId, images: &[&PageImage]) -> Result<()> {
        let action = || {
            let (pages, path) = (images.len(), self.path.display());
            format!("write {pages} pages from {first} on of {path}")
        };
        self.storage.write_neighbours(first, images).map_err(|error| Error::io(action(), error))
    }
}

fn may_be_lost(error: &Error) -> String {
    format!("what was written may be lost: {error}")
}
