//! Ranges that are visited: a closure sees each record and says when it has seen enough. The cursor, with
//! its copy of a page, is the session's and is used again, so that a scan of a few records costs little
//! more than looking them up.

use super::{
    read,
    scan::{self, Entry},
};
use crate::{
    session::resolve::Resolve,
    tree::Tree,
    txn::{Begun, ReadSet, Txn},
};
use std::{
    cell::RefCell,
    ops::{Bound, ControlFlow},
};
use wattle_btree::{Cursor, Direction, Taken};
use wattle_buffer::Result;

/// Visits the records between two bounds in a transaction.
pub(crate) async fn visit_in<R: Resolve>(
    session: &R,
    txn: &Txn,
    tree: &Tree,
    bounds: (Bound<&[u8]>, Bound<&[u8]>),
    direction: Direction,
    visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> Result<()> {
    session.core().check_tree(tree)?;
    txn.check()?;
    visit_by(session, Source::Txn(txn), tree, bounds, direction, visit).await
}

/// The same without a transaction of the caller's: see [`scan::next_piece`].
pub(crate) async fn visit_alone<R: Resolve>(
    session: &R,
    tree: &Tree,
    bounds: (Bound<&[u8]>, Bound<&[u8]>),
    direction: Direction,
    visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> Result<()> {
    let begun = read::begin_reading(session, tree).await?;
    visit_by(session, Source::Own(begun), tree, bounds, direction, visit).await
}

/// Where a visit reads.
enum Source<'t, 's, R: Resolve> {
    /// In a transaction.
    Txn(&'t Txn),
    /// In a snapshot of its own, and in newer ones when that is cancelled.
    Own(Begun<'s, R>),
}

async fn visit_by<R: Resolve>(
    session: &R,
    mut source: Source<'_, '_, R>,
    tree: &Tree,
    (low, high): (Bound<&[u8]>, Bound<&[u8]>),
    direction: Direction,
    mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> Result<()> {
    let reads = match source {
        Source::Txn(txn) => txn.reads.as_ref(),
        Source::Own(_) => None,
    };
    let cursor = match session.take_cursor() {
        Some(mut cursor) => {
            cursor.restart(low, high, direction);
            cursor
        }
        None => Cursor::new(low.map(<[u8]>::to_vec), high.map(<[u8]>::to_vec), direction),
    };
    // All of the range counts as read for now: a future that is leaked does not say how much was.
    let noted = reads.map(|reads| {
        let (low, high) = (low.map(<[u8]>::to_vec), high.map(<[u8]>::to_vec));
        reads.borrow_mut().range(&tree.open, low, high)
    });
    let mut scan = Visit { session, reads, cursor: Some(cursor), ended: false, noted };
    let mut whole = Vec::new();
    let mut since = None;
    loop {
        let cursor = scan.cursor.as_mut().expect("given back when the visit is dropped");
        let entry = match scan::next_loaded(cursor)? {
            Some(Taken::Inline) => Some(Entry::Inline),
            taken => {
                let txn = match &source {
                    Source::Txn(txn) => txn,
                    Source::Own(begun) => begun.get(),
                };
                match scan::next_entry(session, txn, tree, cursor, &mut whole, taken).await {
                    Ok(entry) => entry,
                    Err(error) => {
                        let Source::Own(begun) = &mut source else { return Err(error) };
                        // Boxed: it is rare, and would be room in the future of every visit.
                        Box::pin(scan::next_piece(begun, tree, error, &mut since)).await?;
                        continue;
                    }
                }
            }
        };
        since = None;
        let flow = match entry {
            None => {
                scan.ended = true;
                return Ok(());
            }
            Some(Entry::Inline) => visit(cursor.key(), cursor.value()),
            Some(Entry::Whole) => visit(cursor.key(), &whole),
        };
        if flow.is_break() {
            return Ok(());
        }
    }
}

/// A visit. When it ends, serializability learns how much was read, and the session gets its cursor back.
struct Visit<'t, R: Resolve> {
    session: &'t R,
    reads: Option<&'t RefCell<ReadSet>>,
    cursor: Option<Cursor>,
    ended: bool,
    /// Where it is among the reads of a serializable transaction.
    noted: Option<usize>,
}

impl<R: Resolve> Drop for Visit<'_, R> {
    fn drop(&mut self) {
        let Some(cursor) = self.cursor.take() else { return };
        if let (Some(reads), Some(at), false) = (self.reads, self.noted, self.ended) {
            reads.borrow_mut().narrow(at, cursor.direction(), cursor.key());
        }
        self.session.give_cursor(cursor);
    }
}
