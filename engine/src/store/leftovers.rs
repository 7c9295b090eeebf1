//! Finds and removes the log that an interrupted creation or opening left, and no other log.
//!
//! A creation writes in this order: the data file, all zeroes; the first segments of the log, and
//! in them one record, which makes the catalog; the pages of the catalog; the superblocks. It
//! returns when these are durable, and changes are possible only after that. So as long as there is
//! no superblock the log begins with segment 1 and has at most that one record. A log with more, or
//! one that begins later, belongs to a store whose superblocks were removed: it may be all that is
//! left of commits.
//!
//! A store that was closed without a log is opened with one in this order: the first segments,
//! without any record; the superblock that names them. So a record in segments that the superblock
//! does not name comes from elsewhere.
//!
//! A log that cannot be read is not removed either.

use super::{file::StoreFile, tree_ids::CATALOG};
use std::sync::Arc;
use wattle_buffer::{Error, PageId, PageImage, Result, io::LogStorage};
use wattle_wal::{AUTO, Kind, LogEnd, LogReader, record::Record, store_of};

/// Pages that a creation has reserved at most: the first ones, and one step of growth.
const CREATION_PAGES: u64 = 264;
/// Segments that a creation has made at most when it writes the first superblock.
const CREATION_SEGMENTS: u64 = 3;

/// Whether there is no store yet. An interrupted creation leaves no superblock, at most the first
/// pages, and at most one record in the log.
///
/// # Errors
/// [`Error::WrongLog`] for a log that has more: it belongs to a store whose superblocks are gone.
pub(crate) fn is_new(file: &StoreFile) -> Result<bool> {
    let capacity = file.storage.capacity_pages();
    if capacity > CREATION_PAGES {
        return Ok(false);
    }
    for page in (0..2.min(capacity)).map(PageId) {
        let mut image = PageImage::zeroed();
        file.read(page, &mut image)?;
        if image.0.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    check_of_creation(file)?;
    Ok(true)
}

/// Removes the log of an interrupted creation ([`is_new`]). The next attempt has another store id.
pub(crate) fn clear_new_log(file: &StoreFile) -> Result<()> {
    let log = file.open_log(false)?;
    remove_segments(&log, 1)
}

/// Removes the segments of a store that was closed without a log which an interrupted opening
/// left: nothing was changed then.
///
/// # Errors
/// [`Error::WrongLog`] for a log that has changes.
pub(crate) fn clear_log_behind(file: &StoreFile, end: &LogEnd) -> Result<()> {
    check_of_opening(file, end.segment + 1)?;
    let log = file.open_log(false)?;
    remove_segments(&log, end.segment + 1)
}

/// The last one first, so that there is never a gap.
fn remove_segments(log: &Arc<dyn LogStorage>, from: u64) -> Result<()> {
    let segments = log.segments().map_err(|error| Error::io("list the log", error))?;
    for (segment, _) in segments.into_iter().rev().filter(|(segment, _)| *segment >= from) {
        let removed = log.remove(segment);
        removed.map_err(|e| Error::io(format_args!("remove log segment {segment}"), e))?;
    }
    Ok(())
}

/// Refuses the log of a store without superblocks, unless an interrupted creation left it.
///
/// # Errors
/// [`Error::WrongLog`]; a log that cannot be read.
fn check_of_creation(file: &StoreFile) -> Result<()> {
    let Some(log) = file.existing_log()? else { return Ok(()) };
    let why = match records(&log, 1, CREATION_SEGMENTS, |record| !makes_the_catalog(record)) {
        Ok(None) => return Ok(()),
        Ok(Some(what)) => what,
        Err(error) => error.to_string(),
    };
    let why = format!(
        "the data file has no superblock, but there is a log that is not of a new store ({why}). \
         The data file was cut or overwritten. To make a new store here, move its log away first"
    );
    Err(Error::WrongLog { path: file.path.clone(), why })
}

/// Refuses segments of the log from `from` on that a store does not know which was closed without a
/// log, unless an interrupted opening left them.
///
/// # Errors
/// As [`check_of_creation`].
fn check_of_opening(file: &StoreFile, from: u64) -> Result<()> {
    let Some(log) = file.existing_log()? else { return Ok(()) };
    let why = match records(&log, from, from + CREATION_SEGMENTS - 1, |_| true) {
        Ok(None) => return Ok(()),
        Ok(Some(what)) => what,
        Err(error) => error.to_string(),
    };
    let why = format!(
        "the superblock says that the store was closed without a log, but there is a log ({why}). \
         The data file is older than the log, or the log belongs to another store: move it away to \
         do without it"
    );
    Err(Error::WrongLog { path: file.path.clone(), why })
}

/// Describes the first record of the segments `from..=to` that `counts`, or a segment after them.
fn records(
    log: &Arc<dyn LogStorage>,
    from: u64,
    to: u64,
    counts: impl Fn(&Record<'_>) -> bool,
) -> Result<Option<String>> {
    let segments = log.segments().map_err(|error| Error::io("list the log", error))?;
    let segments: Vec<_> = segments.into_iter().filter(|(number, _)| *number >= from).collect();
    if let Some((number, _)) = segments.iter().find(|(number, _)| *number > to) {
        return Ok(Some(format!("it has segment {number}, in {number:016}.log")));
    }
    let Some((store_id, first)) = store_of(&**log, &segments)? else { return Ok(None) };
    if first != from {
        return Ok(Some(format!("it begins with segment {first}")));
    }
    let mut reader = LogReader::open(log.clone(), store_id, from)?;
    let mut seen = 0u64;
    while let Some(flush) = reader.next_flush()? {
        for chunk in &flush.chunks {
            for record in chunk.records() {
                let record = record.map_err(|what| Error::LogCorruption {
                    segment: reader.position().0,
                    offset: reader.position().1,
                    what,
                })?;
                seen += 1;
                if seen > 1 || counts(&record) {
                    return Ok(Some(format!("flush {} holds changes", flush.flush_number)));
                }
            }
        }
    }
    Ok(None)
}

/// The one record that a creation writes.
fn makes_the_catalog(record: &Record<'_>) -> bool {
    record.kind == Kind::Change
        && record.flags & AUTO != 0
        && record.ops().all(|op| op.tree == CATALOG)
}
