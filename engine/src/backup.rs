//! Online backup: a copy of a running store that opens like one after a crash.
//!
//! 1. Make a checkpoint, pin the log, so that later ones no longer shorten it, and take the
//!    superblock and the bitmaps.
//! 2. Copy the pages that were in use then, as they are on storage, while they go on changing. The
//!    log has every change since the checkpoint, beginning with the whole page, so it does not
//!    matter which version of a page is copied, or whether a page is copied half written. (Where
//!    the device writes pages whole, the log has no whole pages; then half written pages are read
//!    again.)
//! 3. Make the log durable: the backup holds everything that was committed before this moment. If
//!    the log has no room it may stall because of the pin: then the backup fails.
//! 4. Copy the log, from its end to its beginning: a copied flush implies that all earlier flushes
//!    are copied too, because each flush is written after the previous one is durable. A page that
//!    could not be read as it was written is damaged, unless the log has it whole or says that it
//!    is free.
//! 5. Write the superblock, last: a backup that was interrupted is not a store.
//!
//! A store that is opened read-only does not change: all of it is copied as it is on the device,
//! whether it was closed or has to be recovered, and so has the copy. That includes pages that the
//! log puts into a tree after the last checkpoint without their contents.
//!
//! Bulk loads write pages that the log does not know, so they wait for a backup and it for them,
//! each at most for the stall timeout.

use crate::{
    core::Core,
    recover::Located,
    store::{BitmapCopies, StoreFile, Superblock, bitmap_groups, leftovers},
};
use std::{
    collections::BTreeMap,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};
use wattle_btree::record::{needs_page, page_changes};
use wattle_buffer::{
    Error, Gsn, LogBarrier, PageId, PageImage, Result,
    io::{IoKind, LogBuffer, LogStorage, PageWrite, Storage},
    is_reserved_page,
    page::header,
};
use wattle_wal::{Log, LogReader, Urgency, epoch_of};

/// Pages copied at once.
const BATCH: usize = 64;
/// Bytes of the log copied at once.
const CHUNK: usize = 1 << 20;
/// Attempts to copy a page, or the log, that is being written.
const ATTEMPTS: usize = 5;
/// Time to the next attempt with a page, longer each time, and to the next look at the log.
const PAUSE: Duration = Duration::from_millis(1);
/// How long a log without room may stall before the backup fails.
const PATIENCE: Duration = Duration::from_secs(1);

/// Sizes of a backup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct BackupReport {
    /// Pages copied.
    pub pages: u64,
    /// Bytes of log copied.
    pub log_bytes: u64,
}

/// Copies the store into the directory `path`, which must not exist or be empty.
pub(crate) fn backup(core: &Core, path: &Path) -> Result<BackupReport> {
    let target = StoreFile::open(path, IoKind::Threads, true)?;
    if !leftovers::is_new(&target)? {
        let why = "it exists already, and a backup needs a new one".to_string();
        return Err(Error::NotAStore { path: path.to_path_buf(), why });
    }
    let log = target.open_log(false)?;
    let report = core.backup(&target, &log)?;
    target.in_place(Ok(())).map(|()| report)
}

/// Copies the store to storages that the caller made.
pub(crate) fn backup_on(
    core: &Core,
    storage: Arc<dyn Storage>,
    log: Arc<dyn LogStorage>,
) -> Result<BackupReport> {
    core.backup(&StoreFile::on(storage, log.clone()), &log)
}

impl Core {
    fn backup(&self, target: &StoreFile, target_log: &Arc<dyn LogStorage>) -> Result<BackupReport> {
        let _span = tracing::info_span!("backup", target = %target.path.display()).entered();
        if self.read_only {
            return self.backup_at_rest(target, target_log);
        }
        let (Some(log), Some(source_log)) = (&self.log, &self.log_storage) else {
            let what = "a store that is used without a log cannot be backed up while it is open";
            return Err(Error::Limit(what.to_string()));
        };
        let _no_bulk_load = self.no_bulk_loads("a backup")?;
        // 1. After all bulk loads, and pinned before the superblock is read.
        self.checkpoint_asked()?;
        let _pin = self.checkpoints.pin(log);
        let (block, words) = self
            .checkpoints
            .look(|block| self.file.read_bitmap(block).map(|(words, _)| (*block, words)))?;
        // 2. Pages.
        let (pages, damaged) = self.copy_pages(target, &block, &words)?;
        // 3. The end.
        wait_durable(log)?;
        // 4. The log. It has all that could not be read.
        let end = log.durable_flush();
        let path = &self.file.path;
        let (log_bytes, damaged) = copy_log(source_log, target_log, path, &block, end, damaged)?;
        if let Some(error) = damaged.into_values().next() {
            return Err(error);
        }
        // 5. Bitmaps and superblock.
        complete(target, &block, &words)?;
        Ok(BackupReport { pages, log_bytes })
    }

    /// Backs up a store that was opened read-only, as it is on the device.
    fn backup_at_rest(
        &self,
        target: &StoreFile,
        target_log: &Arc<dyn LogStorage>,
    ) -> Result<BackupReport> {
        let (block, end) = self.checkpoints.opened();
        let (words, _) = self.file.read_bitmap(&block)?;
        let mut copied = words.clone();
        if let Some(log) = &self.log_storage {
            add_adopted(log, &block, &mut copied)?;
        }
        let (pages, damaged) = self.copy_pages(target, &block, &copied)?;
        let (log_bytes, damaged) = match &self.log_storage {
            Some(log) => copy_log(log, target_log, &self.file.path, &block, end.flush, damaged)?,
            None => (0, damaged),
        };
        if let Some(error) = damaged.into_values().next() {
            return Err(error);
        }
        complete(target, &block, &words)?;
        Ok(BackupReport { pages, log_bytes })
    }

    /// Copies all pages in use, durably. Gives how many, and those that are not as they were
    /// written.
    fn copy_pages(
        &self,
        target: &StoreFile,
        block: &Superblock,
        words: &[u64],
    ) -> Result<(u64, Damaged)> {
        let capacity = block.capacity;
        let reserved = target.storage.reserve(capacity);
        reserved
            .map_err(|e| Error::io(format_args!("reserve {capacity} pages for a backup"), e))?;
        let in_use = |page: &PageId| {
            words[page.0 as usize / 64] >> (page.0 % 64) & 1 == 1 && !is_reserved_page(*page)
        };
        let mut pages = (0..words.len() as u64 * 64).map(PageId).filter(in_use);
        let mut images: Vec<_> = (0..BATCH).map(|_| PageImage::zeroed()).collect();
        let (mut copied, mut damaged) = (0, Damaged::new());
        loop {
            let batch: Vec<PageId> = pages.by_ref().take(BATCH).collect();
            if batch.is_empty() {
                target.sync()?;
                return Ok((copied, damaged));
            }
            for (page, image) in batch.iter().zip(&mut images) {
                // A page that is being written is read whole at the next attempt. A page that never
                // is has been freed meanwhile, or the log has it, or it is damaged.
                let mut attempt = 0;
                loop {
                    let read = self.file.device().read_image(*page, image);
                    read.map_err(|e| Error::io(format_args!("read page {page} for a backup"), e))?;
                    let Err(why) = image.verify_of_any_tree(*page) else {
                        let newer = self.barrier.check_read(Gsn(image.u64_at(header::GSN)));
                        newer.map_err(|what| Error::corruption(*page, what))?;
                        break;
                    };
                    attempt += 1;
                    if attempt == ATTEMPTS {
                        damaged.insert(*page, why);
                        break;
                    }
                    std::thread::sleep(PAUSE * attempt as u32);
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

/// Adds the pages to a bitmap that are on the device and that the log puts into a tree after the
/// checkpoint, without their contents.
fn add_adopted(log: &Arc<dyn LogStorage>, block: &Superblock, words: &mut Vec<u64>) -> Result<()> {
    let mut reader = LogReader::open(log.clone(), block.store_id, block.segment)?;
    while let Some(flush) = reader.next_flush()? {
        let flush = Located::new(flush, reader.position());
        for (_, record) in flush.records()? {
            if epoch_of(record.gsn) < block.redo_epoch {
                continue;
            }
            for op in record.ops().filter(|op| !needs_page(op.code).0) {
                let changes = page_changes(op.page, op.code, op.payload, &mut |page, used| {
                    let at = page.0 as usize / 64;
                    if used {
                        words.resize(words.len().max(at + 1), 0);
                        words[at] |= 1 << (page.0 % 64);
                    }
                });
                changes.map_err(|what| flush.damage(&what))?;
            }
        }
    }
    Ok(())
}

/// Writes bitmaps and superblock, which make a store of the pages and the log in `target`.
fn complete(target: &StoreFile, block: &Superblock, words: &[u64]) -> Result<()> {
    let groups = bitmap_groups(words);
    let none = BitmapCopies::default();
    target.write_bitmap(&groups, block.sequence, &none)?;
    target.sync()?;
    let bitmaps = none.with(&groups, block.sequence).fingerprint();
    target.write_superblock(&Superblock { bitmaps, ..*block })
}

/// Pages that are not as they were written, and why.
type Damaged = BTreeMap<PageId, Error>;

/// Makes everything durable that was appended by now.
///
/// # Errors
/// Also that a log without room stands still: it may wait for segments that only the backup keeps.
fn wait_durable(log: &Log) -> Result<()> {
    let epoch = log.epoch();
    log.request(epoch, Urgency::Now);
    let mut stuck = None;
    while log.durable_epoch() < epoch && log.is_poisoned().is_none() {
        let since = *stuck.get_or_insert_with(Instant::now);
        if !log.is_stuck() {
            stuck = None;
        } else if since.elapsed() > PATIENCE {
            let why = log.why_full().unwrap_or(std::io::ErrorKind::StorageFull.into());
            return Err(Error::io("make room for the log beside a backup", why));
        }
        std::thread::sleep(PAUSE);
    }
    log.wait_durable(epoch)
}

/// Copies the log from the segment where recovery begins, up to the flush `end` at least, until the
/// copy reads well. Gives its bytes, and the pages of `damaged` that it does not contain.
fn copy_log(
    source: &Arc<dyn LogStorage>,
    target: &Arc<dyn LogStorage>,
    path: &Path,
    block: &Superblock,
    end: u64,
    damaged: Damaged,
) -> Result<(u64, Damaged)> {
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
                // Blank out the remains of an earlier use of the segment.
                wattle_wal::blank(block.store_id, segment, start, piece);
                if piece.iter().any(|byte| *byte != 0) {
                    bytes_copied += piece.len() as u64;
                    let write = target.write(segment, &[(start, piece)]);
                    write.map_err(failed("write the log of"))?;
                }
                end = start;
            }
            target.sync(segment).map_err(failed("sync the log of"))?;
        }
        let mut left = damaged.clone();
        match read_through(target, path, block, end, &mut left) {
            Ok(()) => return Ok((bytes_copied, left)),
            Err(error) if attempt == ATTEMPTS => return Err(error),
            Err(error) => tracing::debug!(%error, "the log is copied once more"),
        }
    }
}

/// Reads a copy of the log as recovery would, and takes the pages from `damaged` that it does not
/// need: the log has them whole, or they are free.
fn read_through(
    log: &Arc<dyn LogStorage>,
    path: &Path,
    block: &Superblock,
    end: u64,
    damaged: &mut Damaged,
) -> Result<()> {
    let mut reader = LogReader::open(log.clone(), block.store_id, block.segment)?;
    while let Some(flush) = reader.next_flush()? {
        if damaged.is_empty() {
            continue;
        }
        let flush = Located::new(flush, reader.position());
        for (_, record) in flush.records()? {
            let epoch = epoch_of(record.gsn);
            if epoch < block.redo_epoch {
                continue;
            }
            for op in record.ops() {
                let is_applied = epoch >= block.redo_epoch_of(op.page);
                if is_applied && needs_page(op.code) == (true, false) {
                    damaged.remove(&op.page);
                }
                let changes = page_changes(op.page, op.code, op.payload, &mut |page, used| {
                    if !used {
                        damaged.remove(&page);
                    }
                });
                changes.map_err(|what| flush.damage(&what))?;
            }
        }
    }
    let found = reader.end()?.flush;
    if found < end {
        let why = format!("its copy for a backup ends with flush {found}, and {end} is durable");
        return Err(Error::WrongLog { path: path.to_path_buf(), why });
    }
    Ok(())
}
