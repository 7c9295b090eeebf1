//! Scans: the next entry of a range.

use super::{chunks::read_kept, read::begin_reading};
use crate::{
    session::{resolve::Resolve, step::run_again},
    tree::Tree,
    txn::{Begun, Txn},
};
use std::time::Instant;
use wattle_btree::{Cursor, Taken};
use wattle_buffer::{Error, Result};

/// For the time slice of a task, the load of a leaf counts as so many operations on a record.
const LOAD: usize = 4;

/// Takes the next entry of a scan from the part of a leaf that its cursor holds; `None` when that
/// is used up.
#[inline]
pub(crate) fn next_loaded(cursor: &mut Cursor) -> Result<Option<Taken>> {
    while cursor.is_loaded() {
        if let Some(taken) = cursor.take()? {
            return Ok(Some(taken));
        }
    }
    Ok(None)
}

/// An entry that was taken and whose value is not read yet. If it is dropped before
/// [`Unread::end`], by an error or because a future was dropped, the scan takes the entry again;
/// otherwise it would go on after it.
pub(crate) struct Unread<'c>(Option<&'c mut Cursor>);

impl<'c> Unread<'c> {
    pub(crate) fn begin(cursor: &'c mut Cursor) -> Unread<'c> {
        Unread(Some(cursor))
    }

    pub(crate) fn end(mut self) {
        self.0 = None;
    }
}

impl Drop for Unread<'_> {
    fn drop(&mut self) {
        if let Some(cursor) = self.0.take() {
            cursor.take_again();
        }
    }
}

/// Goes on with a scan after [`next_loaded`], which gave `taken`: reads a large value, or loads
/// leaves up to the next entry. Key and value are then in the cursor, or the value in `whole` when
/// it is large; `None` at the end. Without `values` large ones are not read.
pub(crate) async fn next_entry<R: Resolve>(
    session: &R,
    txn: &Txn,
    tree: &Tree,
    cursor: &mut Cursor,
    whole: &mut Vec<u8>,
    mut taken: Option<Taken>,
    values: bool,
) -> Result<Option<Entry>> {
    loop {
        match taken {
            Some(Taken::Inline) => return Ok(Some(Entry::Inline)),
            Some(Taken::Large(_)) if !values => return Ok(Some(Entry::Inline)),
            Some(Taken::Large(large)) => {
                whole.clear();
                let unread = Unread::begin(cursor);
                read_kept(session, txn, tree, large, 0..large.len, whole).await?;
                unread.end();
                return Ok(Some(Entry::Whole));
            }
            None if cursor.is_at_end() => return Ok(None),
            None => {}
        }
        let mut view = txn.view(session.system(), &tree.open);
        let faults = session.cx().worker.counters().faults.get();
        match cursor.load_step(&tree.open.tree, &mut view) {
            Ok(()) => session.cx().worker.counters().hits.add(1),
            Err(stop) => {
                let beside = cursor.reads_beside(&tree.open.tree, &stop);
                if !beside.is_empty() {
                    session.read_ahead(beside);
                }
                run_again(session, stop, |_| cursor.load_step(&tree.open.tree, &mut view)).await?;
            }
        }
        let waited = session.cx().worker.counters().faults.get() != faults;
        let ahead = cursor.reads_ahead(&tree.open.tree, waited);
        if !ahead.is_empty() {
            session.read_ahead(ahead);
        }
        session.next_turn(LOAD).await;
        taken = next_loaded(cursor)?;
    }
}

/// After an error of [`next_entry`] in an auto-committed scan: if its snapshot was cancelled, the
/// scan takes a new one and continues at the same place. `since`: the time of the first renewal
/// without progress.
///
/// Such a scan gives a sequence of pieces, each from one snapshot, with ascending snapshots. The
/// cursor continues after the last key that it has looked at, even if the snapshot had no record
/// there, so keys ascend (or descend) and none comes twice. A record that exists during the whole
/// scan is in every snapshot, so the piece that passes its key contains it.
///
/// # Errors
/// `error`, if a new snapshot cannot help.
#[cold]
pub(crate) async fn next_piece<R: Resolve>(
    begun: &mut Begun<'_, R>,
    tree: &Tree,
    error: Error,
    since: &mut Option<Instant>,
) -> Result<()> {
    if !matches!(error, Error::SnapshotTooOld(_)) || !begun.may_renew(tree, since) {
        return Err(error);
    }
    let fresh = begin_reading(begun.session(), tree).await?;
    drop(std::mem::replace(begun, fresh));
    Ok(())
}

/// Where the value of a scanned entry is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// In the cursor.
    Inline,
    /// In the buffer for large values.
    Whole,
}
