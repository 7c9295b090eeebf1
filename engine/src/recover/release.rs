//! Releases the log that redo has read, before the log goes on.
//!
//! The log goes on in a new segment. On a full device the room for it is that of segments that are
//! no longer needed. After redo all pages are durable and up to date. So a new superblock says that
//! redo begins after the end of the log, and undo with the first record of an unfinished
//! transaction. Superblock and bitmaps have fixed places in the data file, so they need no room.
//! Then the earlier segments are removed.
//!
//! A crash in between is one more crash to recover from: with the previous superblock redo is
//! repeated; with the new one there is nothing to redo, and the same to undo.

use super::Recovered;
use crate::store::{
    BitmapCopies, ClassEpochs, StoreFile, StoreState, Superblock, bitmaps::GROUP_WORDS,
};
use std::sync::Arc;
use wattle_buffer::{BITMAP_GROUP, Error, Result, io::LogStorage};
use wattle_wal::segment_for;

/// See the module documentation. Does nothing, and says so, when no segment would go.
pub(crate) fn release(
    file: &StoreFile,
    log: &Arc<dyn LogStorage>,
    block: &mut Superblock,
    copies: &mut BitmapCopies,
    recovered: &mut Recovered,
) -> Result<bool> {
    let end = &recovered.end;
    let segment = segment_for(&**log, end, block.segment, recovered.undo_epoch)?;
    if segment <= block.segment {
        return Ok(false);
    }
    recovered.make_durable(file, &**log)?;
    let end = &recovered.end;
    // 1. The bitmaps, into their spare copies.
    let capacity = file.storage.capacity_pages();
    let all = capacity.div_ceil(BITMAP_GROUP);
    let changed = recovered.changed_groups.iter().copied().chain(copies.to_be_written());
    // The file may be longer than the superblock says: copies there are those of an earlier time.
    let unknown = block.capacity.div_ceil(BITMAP_GROUP)..all;
    let mut groups: Vec<u64> = changed.filter(|group| *group < all).chain(unknown).collect();
    groups.sort_unstable();
    groups.dedup();
    let words_of = |group: u64| {
        let words = recovered.in_use.iter().skip(group as usize * GROUP_WORDS);
        let mut words: Vec<u64> = words.take(GROUP_WORDS).copied().collect();
        words.resize(GROUP_WORDS, 0);
        (group, words)
    };
    let groups: Vec<_> = groups.into_iter().map(words_of).collect();
    let sequence = block.sequence + 1;
    file.write_bitmap(&groups, sequence, copies)?;
    file.sync()?;
    // 2. The superblock.
    let written = copies.with(&groups, sequence).of_groups(all);
    let behind = Superblock {
        sequence,
        state: StoreState::Logged,
        capacity,
        next_tree: block.next_tree.max(recovered.next_tree),
        redo_epoch: end.epoch + 1,
        class_epochs: ClassEpochs::default(),
        undo_epoch: recovered.undo_epoch,
        segment,
        bitmaps: written.fingerprint(),
        durable_flush: end.flush,
        gaps: recovered.gaps,
        ..*block
    };
    file.write_superblock(&behind)?;
    (*block, *copies) = (behind, written);
    recovered.changed_groups.clear();
    // 3. The log before, the oldest segment first, so that there is never a gap.
    let segments = log.segments().map_err(|error| Error::io("list the log", error))?;
    for (number, _) in segments.into_iter().filter(|(number, _)| *number < segment) {
        let action = || format!("remove log segment {number}");
        log.retire(number).map_err(|error| Error::io(action(), error))?;
    }
    Ok(true)
}
