//! The store on disk: a directory with the data file, its two superblocks, the bitmaps of pages in
//! use, and the log.
//!
//! A superblock says where recovery begins. It lies in the first 512 bytes of its page, so a torn
//! write leaves the old one or the new one; both copies are written, one after the other, each made
//! durable. A store that is used without a log is marked so before its first page is overwritten,
//! and refused if its process ends before it is closed.
//!
//! Each group of pages has two copies of its bitmap. A checkpoint overwrites the copy that is not
//! the valid one: valid is the one with the largest sequence up to that of the superblock.

use crate::{catalog::FIRST_TREE, epochs::Gaps, files::Files, leftovers};
use parking_lot::Mutex;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};
use wattle_buffer::{
    BITMAP_GROUP, Error, Gsn, LogBarrier, PAGE_SIZE, PageId, PageImage, PageKind, Result, TreeId,
    bitmap_page,
    io::{Directory, FrozenLog, IoKind, LogStorage, MemoryLog, Overlay, PageWrite, Storage},
    page::header,
};
use wattle_wal::{LogEnd, MAX_EPOCH, MAX_NUMBER};

/// Name of the data file in the directory of a store.
pub const DATA_FILE: &str = "data";
/// Name of the directory of the log in the directory of a store.
pub const LOG_DIRECTORY: &str = "log";
/// Tree id of pages that belong to no tree.
const NO_TREE: TreeId = TreeId(u32::MAX);
/// Pages of a new store: superblocks, bitmaps and some room.
const FIRST_PAGES: u64 = 256;
/// Format version of a store.
pub const STORE_VERSION: u32 = 1;

/// Bytes that any store has at least.
pub(crate) const WHOLE_PAGE: u64 = PAGE_SIZE as u64;
const MAGIC: &[u8; 8] = b"WATTLEdb";
/// Offsets in a superblock; also listed in the format description.
pub(crate) mod at {
    pub const MAGIC: usize = 32;
    pub const VERSION: usize = 40;
    pub const STATE: usize = 44;
    pub const SEQUENCE: usize = 48;
    pub const CAPACITY: usize = 56;
    pub const CATALOG_ROOT: usize = 64;
    pub const NEXT_TREE: usize = 72;
    pub const STORE_ID: usize = 80;
    pub const REDO_EPOCH: usize = 88;
    pub const UNDO_EPOCH: usize = 96;
    pub const SEGMENT: usize = 104;
    pub const END_SEGMENT: usize = 112;
    pub const END_EPOCH: usize = 120;
    pub const END_FLUSH: usize = 128;
    pub const END_SEQUENCE: usize = 136;
    pub const BITMAPS: usize = 144;
    pub const DURABLE_FLUSH: usize = 152;
    pub const GAPS: usize = 160;
    pub const END: usize = GAPS + 16 * crate::epochs::KEPT;
    /// In a page of a bitmap: the words.
    pub const BITMAP: usize = 64;
}
const _: () = assert!(at::MAGIC >= header::END && at::END <= 512);
const _: () = assert!((PAGE_SIZE - at::BITMAP) * 8 == BITMAP_GROUP as usize);

/// How a store was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreState {
    /// In use without a log: the pages mean nothing until it is closed.
    Unlogged = 0,
    /// Closed without a log: the pages and bitmaps are all there is.
    Closed = 1,
    /// The log from the checkpoint on says what the pages lack, perhaps nothing.
    Logged = 2,
}

/// What a superblock says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    /// Rises with every change of the superblock.
    pub sequence: u64,
    /// How the store was left.
    pub state: StoreState,
    /// Pages of the data file.
    pub capacity: u64,
    /// Root page of the catalog.
    pub catalog_root: PageId,
    /// Next unused tree id.
    pub next_tree: TreeId,
    /// Random number that the log carries too.
    pub store_id: u64,
    /// Changes of this epoch and later ones may be missing in the pages.
    pub redo_epoch: u64,
    /// Transactions that had not ended at the checkpoint have no records before this epoch.
    pub undo_epoch: u64,
    /// Segment of the log to begin reading at.
    pub segment: u64,
    /// Which copies of the bitmaps are valid, see [`BitmapCopies::fingerprint`].
    pub bitmaps: u64,
    /// The last flush of the log that was durable by then: a log that ends before it has lost
    /// something. 0 where that was not written down yet.
    pub durable_flush: u64,
    /// Closed: where the log ended that a new one goes on after.
    pub log_end: LogEnd,
    /// Epochs that no page has.
    pub gaps: Gaps,
}

impl Superblock {
    /// Whether its numbers can belong together; the error says which do not. One that was not written like this
    /// must not make the log wait for an epoch that never comes, nor numbers run over.
    fn check(&self) -> Result<(), String> {
        if self.state == StoreState::Unlogged {
            // Nothing of it is used.
            return Ok(());
        }
        let Superblock { redo_epoch, undo_epoch, segment, log_end, .. } = self;
        let numbers = [
            ("sequence", self.sequence),
            ("segment", *segment),
            ("last segment", log_end.segment),
            ("last flush", self.durable_flush.max(log_end.flush)),
            ("last block", log_end.sequence),
        ];
        if let Some((name, number)) = numbers.iter().find(|(_, number)| *number > MAX_NUMBER) {
            return Err(format!("its {name} is {number}, which no store reaches"));
        }
        let epochs = 1..=MAX_EPOCH;
        if !epochs.contains(redo_epoch) || !epochs.contains(undo_epoch) || log_end.epoch > MAX_EPOCH
        {
            let end = log_end.epoch;
            return Err(format!("epochs {redo_epoch}, {undo_epoch} and {end} are none of a log"));
        }
        if *segment == 0 || !self.gaps.make_sense() || self.next_tree < FIRST_TREE {
            return Err("segment, epochs without pages or next tree make no sense".to_string());
        }
        let closed = (log_end.epoch, log_end.epoch, log_end.segment + 1);
        match self.state {
            StoreState::Closed if (*redo_epoch, *undo_epoch, *segment) != closed => Err(format!(
                "the store was closed without a log, which ended with epoch {} and segment {}, but redo begins with \
                 epoch {redo_epoch}, undo with {undo_epoch}, in segment {segment}",
                log_end.epoch, log_end.segment
            )),
            StoreState::Logged if undo_epoch > redo_epoch => Err(format!(
                "undo begins with epoch {undo_epoch}, after redo with epoch {redo_epoch}"
            )),
            _ => Ok(()),
        }
    }
}

/// Marks the store as in use without a log, durably, before the first page of it is overwritten. A
/// store that was only read stays closed, whatever becomes of the process.
pub struct InUse {
    file: Arc<StoreFile>,
    block: Superblock,
    marked: Mutex<bool>,
}

impl InUse {
    /// A guard of `file`, whose superblock is `block` while it is in use.
    pub fn new(file: Arc<StoreFile>, block: Superblock) -> InUse {
        InUse { file, block, marked: Mutex::new(false) }
    }

    /// Marks the store, if that was not done before.
    pub fn mark(&self) -> Result<()> {
        let mut marked = self.marked.lock();
        if !*marked {
            self.file.write_superblock(&self.block)?;
            *marked = true;
        }
        Ok(())
    }

    /// Whether pages may have been overwritten.
    pub fn is_marked(&self) -> bool {
        *self.marked.lock()
    }
}

impl LogBarrier for InUse {
    fn ensure_durable(&self, _: Gsn) -> Result<()> {
        // Without a log this is the one thing that must come before a page.
        self.mark()
    }
}

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
    /// The pages as they are on the device, if nothing is ever written there.
    below: Option<Arc<dyn Storage>>,
    /// Why pages cannot be made durable any more.
    sync_failed: Mutex<Option<Error>>,
    log: LogPlace,
}

impl StoreFile {
    /// Opens or creates the files of a store. Nothing that exists is changed.
    pub fn open(path: &Path, io: IoKind, create: bool) -> Result<StoreFile> {
        if io == IoKind::Memory {
            let storage = wattle_buffer::io::open(io, path);
            let storage = storage.map_err(|error| Error::io("reserve memory", error))?;
            let log = LogPlace::Storage(Arc::new(MemoryLog::default()));
            return Ok(StoreFile::new(path.into(), storage, log));
        }
        let (files, storage) = Files::open(path, io, create)?;
        Ok(StoreFile::new(path.into(), storage, LogPlace::Files(files)))
    }

    fn new(path: PathBuf, storage: Arc<dyn Storage>, log: LogPlace) -> Self {
        StoreFile { path, storage, below: None, sync_failed: Mutex::default(), log }
    }

    /// The files of a store that is there, to be read only. Writes to pages stay in memory, up to
    /// `limit` pages. Several can be open at a time, but not beside one that is not read-only.
    pub fn open_read_only(path: &Path, io: IoKind, limit: usize) -> Result<StoreFile> {
        if io == IoKind::Memory {
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

    /// The pages are where they were, and all of them. Asked before a superblock says so.
    ///
    /// # Errors
    /// [`Error::FilesChanged`].
    pub fn check_files(&self) -> Result<()> {
        self.storage.check().map_err(|error| self.changed(error))
    }

    /// The error of files that somebody changed.
    pub fn changed(&self, error: std::io::Error) -> Error {
        Error::FilesChanged { path: self.path.clone(), what: error.to_string() }
    }

    /// The `outcome` of the work on the store, unless it is not where it was any more.
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

    /// Lets others open the store. Nothing is written any more.
    pub fn release(&self) {
        if let LogPlace::Files(files) = &self.log {
            files.release();
        }
    }

    /// Whether there is nothing yet. A creation that was interrupted leaves no superblock, no
    /// more than the first pages, and next to nothing in the log.
    ///
    /// # Errors
    /// [`Error::WrongLog`] for a log that has more: it belongs to a store whose superblocks are gone.
    pub fn is_new(&self) -> Result<bool> {
        let capacity = self.storage.capacity_pages();
        if capacity > FIRST_PAGES {
            return Ok(false);
        }
        for page in (0..2.min(capacity)).map(PageId) {
            let mut image = PageImage::zeroed();
            self.read(page, &mut image)?;
            if image.0.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
        }
        leftovers::check_of_creation(self)?;
        Ok(true)
    }

    /// Reserves the first pages of a new store.
    pub fn create(&self) -> Result<()> {
        let action = || format!("reserve the first {FIRST_PAGES} pages of {}", self.path.display());
        self.storage.reserve(FIRST_PAGES).map_err(|error| Error::io(action(), error))
    }

    /// Removes what an interrupted creation left of a log ([`StoreFile::is_new`]). Its number of the store is
    /// not that of the next attempt.
    pub fn clear_new_log(&self) -> Result<()> {
        let log = self.open_log(false)?;
        self.remove_segments(&log, 1)
    }

    /// Removes the segments of a store that was closed without a log which an interrupted opening
    /// left: nothing was changed then.
    ///
    /// # Errors
    /// [`Error::WrongLog`] for a log that has changes.
    pub fn clear_log_behind(&self, end: &LogEnd) -> Result<()> {
        leftovers::check_of_opening(self, end.segment + 1)?;
        let log = self.open_log(false)?;
        self.remove_segments(&log, end.segment + 1)
    }

    /// The last one first, so that there is never a gap.
    fn remove_segments(&self, log: &Arc<dyn LogStorage>, from: u64) -> Result<()> {
        let segments = log.segments().map_err(|error| Error::io("list the log", error))?;
        for (segment, _) in segments.into_iter().rev().filter(|(segment, _)| *segment >= from) {
            let removed = log.remove(segment);
            removed.map_err(|e| Error::io(format_args!("remove log segment {segment}"), e))?;
        }
        Ok(())
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
            if &image.0[at::MAGIC..at::MAGIC + 8] == MAGIC {
                known = true;
            }
            match self.decode(page, &image) {
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

    fn decode(&self, page: PageId, image: &PageImage) -> Result<Superblock> {
        image.verify(page, NO_TREE)?;
        let version = image.u32_at(at::VERSION);
        if &image.0[at::MAGIC..at::MAGIC + 8] != MAGIC
            || PageKind::from_u8(image.0[header::KIND]) != Some(PageKind::Superblock)
        {
            return Err(Error::corruption(page, "it is not a superblock"));
        }
        if version != STORE_VERSION {
            return Err(Error::WrongVersion {
                path: self.path.clone(),
                found: version,
                expected: STORE_VERSION,
            });
        }
        let store_id = image.u64_at(at::STORE_ID);
        let block = Superblock {
            sequence: image.u64_at(at::SEQUENCE),
            state: match image.u32_at(at::STATE) {
                0 => StoreState::Unlogged,
                1 => StoreState::Closed,
                2 => StoreState::Logged,
                state => {
                    let what = format_args!("the store is in the unknown state {state}");
                    return Err(Error::corruption(page, what));
                }
            },
            capacity: image.u64_at(at::CAPACITY),
            catalog_root: PageId(image.u64_at(at::CATALOG_ROOT)),
            next_tree: TreeId(image.u32_at(at::NEXT_TREE)),
            store_id,
            redo_epoch: image.u64_at(at::REDO_EPOCH),
            undo_epoch: image.u64_at(at::UNDO_EPOCH),
            segment: image.u64_at(at::SEGMENT),
            bitmaps: image.u64_at(at::BITMAPS),
            durable_flush: image.u64_at(at::DURABLE_FLUSH),
            log_end: LogEnd {
                store_id,
                segment: image.u64_at(at::END_SEGMENT),
                epoch: image.u64_at(at::END_EPOCH),
                flush: image.u64_at(at::END_FLUSH),
                sequence: image.u64_at(at::END_SEQUENCE),
            },
            gaps: Gaps(std::array::from_fn(|index| {
                let at = at::GAPS + 16 * index;
                (image.u64_at(at), image.u64_at(at + 8))
            })),
        };
        block.check().map_err(|what| Error::corruption(page, what))?;
        if block.capacity > self.storage.capacity_pages() {
            return Err(Error::corruption(
                page,
                format_args!(
                    "the store has {} pages, the data file only {}",
                    block.capacity,
                    self.storage.capacity_pages()
                ),
            ));
        }
        Ok(block)
    }

    /// Writes both superblocks, one after the other, each made durable.
    pub fn write_superblock(&self, block: &Superblock) -> Result<()> {
        for page in [PageId(0), PageId(1)] {
            let mut image = PageImage::zeroed();
            image.format(PageKind::Superblock, 0, page, NO_TREE);
            image.0[at::MAGIC..at::MAGIC + 8].copy_from_slice(MAGIC);
            image.set_u32(at::VERSION, STORE_VERSION);
            image.set_u32(at::STATE, block.state as u32);
            image.set_u64(at::SEQUENCE, block.sequence);
            image.set_u64(at::CAPACITY, block.capacity);
            image.set_u64(at::CATALOG_ROOT, block.catalog_root.0);
            image.set_u32(at::NEXT_TREE, block.next_tree.0);
            image.set_u64(at::STORE_ID, block.store_id);
            image.set_u64(at::REDO_EPOCH, block.redo_epoch);
            image.set_u64(at::UNDO_EPOCH, block.undo_epoch);
            image.set_u64(at::SEGMENT, block.segment);
            image.set_u64(at::END_SEGMENT, block.log_end.segment);
            image.set_u64(at::END_EPOCH, block.log_end.epoch);
            image.set_u64(at::END_FLUSH, block.log_end.flush);
            image.set_u64(at::END_SEQUENCE, block.log_end.sequence);
            image.set_u64(at::BITMAPS, block.bitmaps);
            image.set_u64(at::DURABLE_FLUSH, block.durable_flush);
            for (index, (end, start)) in block.gaps.0.iter().enumerate() {
                image.set_u64(at::GAPS + 16 * index, *end);
                image.set_u64(at::GAPS + 16 * index + 8, *start);
            }
            image.seal();
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
                    // What a checkpoint left that a crash interrupted, unless it is the one that is
                    // missing in the end.
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
    /// Once it has failed it fails for ever: the kernel may regard what it was to write as written, so
    /// that another sync succeeds and proves nothing. One at a time, because only one of two may be
    /// told of a failure.
    pub fn sync(&self) -> Result<()> {
        let mut failed = self.sync_failed.lock();
        if let Some(error) = &*failed {
            return Err(Error::Poisoned(may_be_lost(error)));
        }
        self.storage.sync().map_err(|error| {
            let error = Error::io(format_args!("sync {}", self.path.display()), error);
            failed.insert(error).clone()
        })
    }

    /// Why what was written may be lost, if a sync has failed.
    pub fn lost(&self) -> Option<String> {
        self.sync_failed.lock().as_ref().map(may_be_lost)
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
}

fn may_be_lost(error: &Error) -> String {
    format!("what was written may be lost: {error}")
}

/// Which of the two copies of the bitmap of each group is the valid one, and its sequence.
#[derive(Clone, Debug, Default)]
pub struct BitmapCopies {
    valid: Vec<(u8, u64)>,
    /// Groups with a copy that a checkpoint left which did not come to its end.
    left: Vec<u64>,
}

impl BitmapCopies {
    /// Groups that the next checkpoint must write.
    pub fn to_be_written(&self) -> impl Iterator<Item = u64> {
        self.left.iter().copied()
    }

    /// The copy that may be overwritten.
    fn spare(&self, group: u64) -> u64 {
        self.valid.get(group as usize).map_or(0, |(copy, _)| 1 - u64::from(*copy))
    }

    /// What is valid once the bitmaps of these groups were written for superblock `sequence`.
    pub fn with(&self, groups: &[(u64, Vec<u64>)], sequence: u64) -> BitmapCopies {
        let mut valid = self.valid.clone();
        for (group, _) in groups {
            let index = *group as usize;
            if index >= valid.len() {
                valid.resize(index + 1, (1, 0));
            }
            valid[index] = (self.spare(*group) as u8, sequence);
        }
        BitmapCopies { valid, left: Vec::new() }
    }

    /// Those of a store that has so many groups; it may have had more.
    pub fn of_groups(mut self, groups: u64) -> BitmapCopies {
        self.valid.truncate(groups as usize);
        self
    }

    /// A number that tells this set of valid copies from others: a sum over all groups that have
    /// one, of the group and its sequence mixed.
    pub fn fingerprint(&self) -> u64 {
        let groups = self.valid.iter().enumerate().filter(|(_, (_, sequence))| *sequence != 0);
        groups.fold(0u64, |sum, (group, (_, sequence))| {
            // The finalizer of SplitMix64.
            let mut mixed = sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (group as u64 + 1);
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            sum.wrapping_add(mixed ^ (mixed >> 31))
        })
    }
}

/// Sequence of a page of a bitmap; `None` when it was never written.
fn bitmap_sequence(page: PageId, image: &PageImage) -> Result<Option<u64>> {
    if image.0.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    image.verify(page, NO_TREE)?;
    if PageKind::from_u8(image.0[header::KIND]) != Some(PageKind::Bitmap) {
        return Err(Error::corruption(page, "it is not a bitmap"));
    }
    Ok(Some(image.u64_at(header::GSN)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epochs::KEPT;

    const PAGE: &str = include_str!("../../buffer/FORMAT.md");

    #[test]
    fn the_format_page_has_the_numbers_of_the_code() {
        let says = |what: String| assert!(PAGE.contains(&what), "FORMAT.md lacks: {what}");
        says(format!("# Format of the data file, version {STORE_VERSION}"));
        says(format!("pages of {PAGE_SIZE} bytes"));
        says(format!("format version of pages, {}", wattle_buffer::page::FORMAT_VERSION));
        says(format!("format version of the store, {STORE_VERSION} "));
        says(format!("`{}`", str::from_utf8(MAGIC).expect("letters")));
        says(format!("{} for pages of no tree", NO_TREE.0));
        says(format!("n · {BITMAP_GROUP}, n · {BITMAP_GROUP} + 1"));
        says(format!("From byte {} on one bit for each of the {BITMAP_GROUP} pages", at::BITMAP));
        assert_eq!([bitmap_page(0, 0), bitmap_page(0, 1)], [PageId(2), PageId(3)]);
        for (offset, bytes, field) in [
            (header::CHECKSUM, 4, "CRC-32C of bytes 4"),
            (header::VERSION, 1, "format version of pages"),
            (header::KIND, 1, "kind"),
            (header::LEVEL, 1, "level"),
            (header::FLAGS, 1, "flags"),
            (header::PAGE_ID, 8, "page id"),
            (header::GSN, 8, "GSN"),
            (header::TREE_ID, 4, "tree id"),
            (at::MAGIC, 8, "magic"),
            (at::VERSION, 4, "format version of the store"),
            (at::STATE, 4, "state"),
            (at::SEQUENCE, 8, "sequence"),
            (at::CAPACITY, 8, "pages of the file"),
            (at::CATALOG_ROOT, 8, "root page of the catalog"),
            (at::NEXT_TREE, 4, "next unused tree id"),
            (at::STORE_ID, 8, "store id"),
            (at::REDO_EPOCH, 8, "redo epoch"),
            (at::UNDO_EPOCH, 8, "undo epoch"),
            (at::SEGMENT, 8, "segment of the log to begin"),
            (at::END_SEGMENT, 8, "closed without a log"),
            (at::END_EPOCH, 8, "and its last epoch"),
            (at::END_FLUSH, 8, "and its last flush"),
            (at::END_SEQUENCE, 8, "and its last block"),
            (at::BITMAPS, 8, "fingerprint"),
            (at::DURABLE_FLUSH, 8, "last flush of the log that was durable"),
            (at::GAPS, 16 * KEPT, "epochs that no page has"),
        ] {
            says(format!("| {offset} | {bytes} | {field}"));
        }
        assert_eq!(at::END, at::GAPS + 16 * KEPT);
    }
}
