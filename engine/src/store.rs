//! The store on disk: a directory with the data file, its two superblocks and the bitmap of pages
//! in use.
//!
//! A superblock says whether the store was closed cleanly. Before the first page is overwritten,
//! "in use" is written to both copies; closing writes every page, then the bitmap, syncs, and only then
//! writes "clean" to one copy after the other. Until there is a log, a store in use by a process
//! that ended is refused.

use parking_lot::Mutex;
use std::{
    fs::{File, TryLockError},
    path::{Path, PathBuf},
    sync::Arc,
};
use wattle_buffer::{
    BITMAP_GROUP, Error, Gsn, LogBarrier, PAGE_SIZE, PageId, PageImage, PageKind, Result, TreeId,
    bitmap_page,
    io::{IoKind, PageWrite, Storage},
    page::header,
};

/// Name of the data file in the directory of a store.
pub const DATA_FILE: &str = "data";
/// Tree id of pages that belong to no tree.
const NO_TREE: TreeId = TreeId(u32::MAX);
/// Pages of a new store: superblocks, bitmap and some room.
const FIRST_PAGES: u64 = 256;
/// Format version of a store.
pub const STORE_VERSION: u32 = 1;

/// Bytes that any store has at least.
const FIRST_PAGE_END: u64 = PAGE_SIZE as u64;
const MAGIC: &[u8; 8] = b"WATTLEdb";
const MAGIC_AT: usize = 32;
const VERSION_AT: usize = 40;
const CLEAN_AT: usize = 44;
const SEQUENCE_AT: usize = 48;
const CAPACITY_AT: usize = 56;
const CATALOG_ROOT_AT: usize = 64;
const NEXT_TREE_AT: usize = 72;
const BITMAP_AT: usize = 64;
const _: () = assert!(MAGIC_AT >= header::END);
const _: () = assert!((PAGE_SIZE - BITMAP_AT) * 8 == BITMAP_GROUP as usize);

/// What a superblock says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    /// Rises with every change of the superblock.
    pub sequence: u64,
    /// Closed cleanly.
    pub clean: bool,
    /// Pages of the data file.
    pub capacity: u64,
    /// Root page of the catalog.
    pub catalog_root: PageId,
    /// Next unused tree id.
    pub next_tree: TreeId,
}

/// Marks the store as in use, durably, before the first page of it is overwritten. A store that was
/// only read stays cleanly closed, whatever becomes of the process.
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

    /// The superblock of the store while it is in use.
    pub fn block(&self) -> &Superblock {
        &self.block
    }
}

impl LogBarrier for InUse {
    fn ensure_durable(&self, _: Gsn) -> Result<()> {
        // There is no log yet: this is the one thing that must come before a page.
        self.mark()
    }
}

/// An open data file, locked against a second opening.
pub struct StoreFile {
    /// The directory, or a name for messages.
    pub path: PathBuf,
    /// The pages.
    pub storage: Arc<dyn Storage>,
    /// Held for its lock.
    _lock: Option<File>,
}

impl StoreFile {
    /// Opens or creates the files of a store. Nothing that exists is changed.
    pub fn open(path: &Path, io: IoKind, create: bool) -> Result<StoreFile> {
        let storage = |data: &Path| {
            wattle_buffer::io::open(io, data)
                .map_err(|error| Error::io(format_args!("open {}", data.display()), error))
        };
        if io == IoKind::Memory {
            return Ok(StoreFile { path: path.into(), storage: storage(path)?, _lock: None });
        }
        let not_a_store =
            |why: &str| Error::NotAStore { path: path.to_path_buf(), why: why.to_string() };
        let data = path.join(DATA_FILE);
        let failed =
            |what: &str, error| Error::io(format_args!("{what} {}", path.display()), error);
        match std::fs::metadata(path) {
            Ok(meta) if !meta.is_dir() => return Err(not_a_store("it is not a directory")),
            Ok(_) if data.is_file() => {}
            Ok(_) => {
                let mut entries = std::fs::read_dir(path).map_err(|e| failed("list", e))?;
                if entries.next().is_some() {
                    return Err(not_a_store("the directory has no data file but other contents"));
                }
                if !create {
                    return Err(not_a_store("the directory is empty"));
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                if !create {
                    return Err(not_a_store("there is no such directory"));
                }
                std::fs::create_dir_all(path).map_err(|e| failed("create the directory", e))?;
            }
            Err(error) => return Err(failed("look at", error)),
        }
        let lock = File::options()
            .read(true)
            .write(true)
            .create(create)
            .truncate(false)
            .open(&data)
            .map_err(|error| Error::io(format_args!("open {}", data.display()), error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::AlreadyOpen { path: path.to_path_buf() });
            }
            Err(TryLockError::Error(error)) => return Err(failed("lock", error)),
        }
        // An empty file is all that an interrupted creation leaves; anything else is not ours.
        match lock.metadata().map_err(|error| failed("look at the data file of", error))?.len() {
            0 if !create => return Err(not_a_store("the data file is empty")),
            len @ 1..FIRST_PAGE_END => {
                let why = format!("the data file of {len} bytes ends before the first page does");
                return Err(not_a_store(&why));
            }
            _ => {}
        }
        // The new directory entries must survive a power cut as well.
        for directory in [Some(path), path.parent().filter(|p| !p.as_os_str().is_empty())] {
            let Some(directory) = directory else { continue };
            File::open(directory)
                .and_then(|directory| directory.sync_all())
                .map_err(|error| Error::io(format_args!("sync {}", directory.display()), error))?;
        }
        Ok(StoreFile { path: path.into(), storage: storage(&data)?, _lock: Some(lock) })
    }

    /// A store on a storage that the caller made, for tests.
    pub fn on(storage: Arc<dyn Storage>) -> StoreFile {
        let path = PathBuf::from(format!("({} storage)", storage.name()));
        StoreFile { path, storage, _lock: None }
    }

    /// Whether there is nothing yet.
    pub fn is_new(&self) -> bool {
        self.storage.capacity_pages() == 0
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
            if &image.0[MAGIC_AT..MAGIC_AT + 8] == MAGIC {
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
                if !block.clean {
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
        let version = image.u32_at(VERSION_AT);
        if &image.0[MAGIC_AT..MAGIC_AT + 8] != MAGIC
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
        let block = Superblock {
            sequence: image.u64_at(SEQUENCE_AT),
            clean: image.u32_at(CLEAN_AT) == 1,
            capacity: image.u64_at(CAPACITY_AT),
            catalog_root: PageId(image.u64_at(CATALOG_ROOT_AT)),
            next_tree: TreeId(image.u32_at(NEXT_TREE_AT)),
        };
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
            image.0[MAGIC_AT..MAGIC_AT + 8].copy_from_slice(MAGIC);
            image.set_u32(VERSION_AT, STORE_VERSION);
            image.set_u32(CLEAN_AT, u32::from(block.clean));
            image.set_u64(SEQUENCE_AT, block.sequence);
            image.set_u64(CAPACITY_AT, block.capacity);
            image.set_u64(CATALOG_ROOT_AT, block.catalog_root.0);
            image.set_u32(NEXT_TREE_AT, block.next_tree.0);
            image.seal();
            self.write(&[PageWrite { page, image: &image }])?;
            self.sync()?;
        }
        Ok(())
    }

    /// Reads the bitmap of a store that was closed with this superblock.
    pub fn read_bitmap(&self, block: &Superblock) -> Result<Vec<u64>> {
        let mut words = Vec::with_capacity(block.capacity.div_ceil(64) as usize);
        let mut image = PageImage::zeroed();
        for group in 0..block.capacity.div_ceil(BITMAP_GROUP) {
            let page = bitmap_page(group);
            self.read(page, &mut image)?;
            image.verify(page, NO_TREE)?;
            let closed = image.u64_at(header::GSN);
            if closed != block.sequence
                || PageKind::from_u8(image.0[header::KIND]) != Some(PageKind::Bitmap)
            {
                return Err(Error::corruption(
                    page,
                    format_args!("it is not the bitmap of closing {}", block.sequence),
                ));
            }
            for word in 0..BITMAP_GROUP as usize / 64 {
                words.push(image.u64_at(BITMAP_AT + 8 * word));
            }
        }
        words.truncate(block.capacity.div_ceil(64) as usize);
        Ok(words)
    }

    /// Writes the bitmap for closing number `sequence`.
    pub fn write_bitmap(&self, words: &[u64], sequence: u64) -> Result<()> {
        let mut image = PageImage::zeroed();
        for (group, words) in words.chunks(BITMAP_GROUP as usize / 64).enumerate() {
            let page = bitmap_page(group as u64);
            image.0.fill(0);
            image.format(PageKind::Bitmap, 0, page, NO_TREE);
            image.set_u64(header::GSN, sequence);
            for (i, word) in words.iter().enumerate() {
                image.set_u64(BITMAP_AT + 8 * i, *word);
            }
            image.seal();
            self.write(&[PageWrite { page, image: &image }])?;
        }
        Ok(())
    }

    /// Makes everything written so far durable.
    pub fn sync(&self) -> Result<()> {
        let action = || format!("sync {}", self.path.display());
        self.storage.sync().map_err(|error| Error::io(action(), error))
    }

    fn read(&self, page: PageId, image: &mut PageImage) -> Result<()> {
        let action = || format!("read page {page} of {}", self.path.display());
        self.storage.read_image(page, image).map_err(|error| Error::io(action(), error))
    }

    fn write(&self, batch: &[PageWrite<'_>]) -> Result<()> {
        let mut results = Vec::with_capacity(batch.len());
        self.storage.write_pages(batch, &mut results);
        for (write, result) in batch.iter().zip(results) {
            let action = || format!("write page {} of {}", write.page, self.path.display());
            result.map_err(|error| Error::io(action(), error))?;
        }
        Ok(())
    }
}
