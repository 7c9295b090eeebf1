//! Online backup: a copy of a running store that opens like one after a crash.
//!
//! 1. Make a checkpoint, pin the log, so that later ones no longer shorten it, and take the superblock
//!    and the bitmaps.
//! 2. Copy the pages that were in use then, as they are on storage, while they go on changing. What
//!    changed since the checkpoint is in the log, each page as a whole first, so it does not matter
//!    which version of a page is copied, or whether half of one. (Where the device writes pages whole,
//!    the log has no whole pages; then halves are read again.)
//! 3. Make the log durable: the backup holds everything that was committed before this moment.
//! 4. Copy the log, from its end to its beginning: whoever finds a flush in a later place finds all
//!    flushes before it, because each is written after the one before is durable.
//! 5. Write the superblock, last: a backup that was interrupted is not a store.
//!
//! Bulk loads write pages that the log does not know, so they wait for a backup and it for them.

use crate::{
    engine::{Core, Engine},
    store::{BitmapCopies, StoreFile, Superblock},
};
use std::{path::Path, sync::Arc};
use wattle_buffer::{
    Error, PAGE_SIZE, PageId, PageImage, Result,
    io::{IoKind, LogBuffer, LogStorage, PageWrite, Storage},
    is_reserved_page,
};
use wattle_wal::LogReader;

/// Pages copied at once.
const BATCH: usize = 64;
/// Bytes of the log copied at once.
const CHUNK: usize = 1 << 20;
/// A copy of a page, or of the log, that was caught in the middle of a write is made again this often.
const ATTEMPTS: usize = 5;

/// What a backup consists of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackupReport {
    /// Pages copied.
    pub pages: u64,
    /// Bytes of log copied.
    pub log_bytes: u64,
}

impl Engine {
    /// Copies the running store into the directory `path`, which must not exist or be empty. The copy
    /// has everything that was committed when the call began, and nothing that is not committed when
    /// it ends. It is opened like any store.
    ///
    /// # Errors
    /// A directory that is not empty, an engine without a log, a full device, failed I/O.
    pub fn backup(&self, path: impl AsRef<Path>) -> Result<BackupReport> {
        let target = StoreFile::open(path.as_ref(), IoKind::Threads, true)?;
        if !target.is_new()? {
            let why = "it exists already, and a backup needs a new one".to_string();
            return Err(Error::NotAStore { path: path.as_ref().to_path_buf(), why });
        }
        let log = target.open_log(false)?;
        self.core().backup(&target, &log)
    }

    /// As [`Engine::backup`], to storages that the caller made; for tests with simulated devices.
    ///
    /// # Errors
    /// As [`Engine::backup`].
    pub fn backup_on(
        &self,
        storage: Arc<dyn Storage>,
        log: Arc<dyn LogStorage>,
    ) -> Result<BackupReport> {
        self.core().backup(&StoreFile::on(storage, log.clone()), &log)
    }
}

impl Core {
    fn backup(&self, target: &StoreFile, target_log: &Arc<dyn LogStorage>) -> Result<BackupReport> {
        let (Some(log), Some(source_log)) = (&self.log, &self.log_storage) else {
            let what = "a store that is used without a log cannot be backed up while it is open";
            return Err(Error::Limit(what.to_string()));
        };
        let _no_bulk_load = self.unlogged_pages.write();
        // 1. Behind all bulk loads, and pinned before the superblock is looked at.
        self.checkpoint_now()?;
        let _pin = self.checkpoints.pin();
        let (block, words) = self
            .checkpoints
            .look(|block| self.file.read_bitmap(block).map(|(words, _)| (*block, words)))?;
        // 2. Pages.
        let capacity = block.capacity;
        let reserved = target.storage.reserve(capacity);
        reserved
            .map_err(|e| Error::io(format_args!("reserve {capacity} pages for a backup"), e))?;
        let pages = self.copy_pages(target, &words)?;
        target.sync()?;
        // 3. The end.
        log.flush_now()?;
        // 4. The log.
        let log_bytes = copy_log(source_log, target_log, &block)?;
        // 5. Bitmaps and superblock.
        let groups: Vec<_> = words
            .chunks(GROUP_WORDS)
            .enumerate()
            .map(|(group, words)| {
                let mut words = words.to_vec();
                words.resize(GROUP_WORDS, 0);
                (group as u64, words)
            })
            .collect();
        let none = BitmapCopies::default();
        target.write_bitmap(&groups, block.sequence, &none)?;
        target.sync()?;
        let bitmaps = none.with(&groups, block.sequence).fingerprint();
        target.write_superblock(&Superblock { bitmaps, ..block })?;
        Ok(BackupReport { pages, log_bytes })
    }

    /// Copies all pages in use.
    fn copy_pages(&self, target: &StoreFile, words: &[u64]) -> Result<u64> {
        let in_use = |page: &PageId| {
            words[page.0 as usize / 64] >> (page.0 % 64) & 1 == 1 && !is_reserved_page(*page)
        };
        let mut pages = (0..words.len() as u64 * 64).map(PageId).filter(in_use);
        let mut images: Vec<_> = (0..BATCH).map(|_| PageImage::zeroed()).collect();
        let mut copied = 0;
        loop {
            let batch: Vec<PageId> = pages.by_ref().take(BATCH).collect();
            if batch.is_empty() {
                return Ok(copied);
            }
            for (page, image) in batch.iter().zip(&mut images) {
                // One that is being written is caught as a whole the next time. One that never is was
                // given up meanwhile, or the log has it.
                for _ in 0..ATTEMPTS {
                    let read = self.file.storage.read_image(*page, image);
                    read.map_err(|e| Error::io(format_args!("read page {page} for a backup"), e))?;
                    if image.verify_of_any_tree(*page).is_ok() {
                        break;
                    }
                }
            }
            let writes: Vec<_> = batch
                .iter()
                .zip(&images)
                .map(|(page, image)| PageWrite { page: *page, image })
                .collect();
            let mut results = Vec::with_capacity(writes.len());
            target.storage.write_pages(&writes, &mut results);
            for (page, result) in batch.iter().zip(results) {
                result.map_err(|e| Error::io(format_args!("write page {page} of a backup"), e))?;
            }
            copied += batch.len() as u64;
        }
    }
}

/// Words of the bitmap of a group of pages.
const GROUP_WORDS: usize = (wattle_buffer::BITMAP_GROUP / 64) as usize;
const _: () = assert!(GROUP_WORDS * 8 + 64 == PAGE_SIZE);

/// Copies the log from the segment where recovery begins, until the copy reads well.
fn copy_log(
    source: &Arc<dyn LogStorage>,
    target: &Arc<dyn LogStorage>,
    block: &Superblock,
) -> Result<u64> {
    let failed =
        |what: &'static str| move |error| Error::io(format_args!("{what} a backup"), error);
    let mut attempt = 0;
    loop {
        attempt += 1;
        for (segment, _) in target.segments().map_err(failed("list the log of"))? {
            target.remove(segment).map_err(failed("remove a segment of"))?;
        }
        let mut bytes_copied = 0;
        let segments = source.segments().map_err(failed("list the log for"))?;
        for (segment, bytes) in segments.into_iter().rev().filter(|(n, _)| *n >= block.segment) {
            target.create(segment, bytes).map_err(failed("make a segment of"))?;
            let mut buffer = LogBuffer::new(CHUNK);
            let mut end = bytes;
            while end > 0 {
                let start = (end - 1) / CHUNK as u64 * CHUNK as u64;
                let piece = &mut buffer[..(end - start) as usize];
                source.read(segment, start, piece).map_err(failed("read the log for"))?;
                if piece.iter().any(|byte| *byte != 0) {
                    bytes_copied += piece.len() as u64;
                    let write = target.write(segment, &[(start, piece)]);
                    write.map_err(failed("write the log of"))?;
                }
                end = start;
            }
            target.sync(segment).map_err(failed("sync the log of"))?;
        }
        match read_through(target, block) {
            Ok(()) => return Ok(bytes_copied),
            Err(error) if attempt == ATTEMPTS => return Err(error),
            Err(error) => tracing::debug!(%error, "the log is copied once more"),
        }
    }
}

fn read_through(log: &Arc<dyn LogStorage>, block: &Superblock) -> Result<()> {
    let mut reader = LogReader::open(log.clone(), block.store_id, block.segment)?;
    while reader.next_flush()?.is_some() {}
    reader.end().map(|_| ())
}
