//! Ranges whose entries a closure visits, until it breaks.

use super::{
    range::{KeyBounds, RangeReader},
    scan::Entry,
};
use crate::{session::resolve::Resolve, tree::Tree, txn::Txn};
use std::ops::ControlFlow;
use wattle_btree::{Direction, Taken};
use wattle_buffer::Result;

/// Visits the entries between two bounds in a transaction.
pub(crate) async fn visit_in<R: Resolve>(
    session: &R,
    txn: &Txn,
    tree: &Tree,
    bounds: KeyBounds<'_>,
    direction: Direction,
    visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> Result<()> {
    visit_by(RangeReader::in_txn(session, txn, tree, bounds, direction)?, visit).await
}

/// Visits the entries between two bounds, auto-committed.
pub(crate) async fn visit_auto<R: Resolve>(
    session: &R,
    tree: &Tree,
    bounds: KeyBounds<'_>,
    direction: Direction,
    visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> Result<()> {
    visit_by(RangeReader::auto(session, tree, bounds, direction).await?, visit).await
}

async fn visit_by<R: Resolve>(
    mut range: RangeReader<'_, R>,
    mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> Result<()> {
    loop {
        let taken = match visit_loaded(&mut range, &mut visit)? {
            ControlFlow::Continue(taken) => taken,
            ControlFlow::Break(()) => return Ok(()),
        };
        let Some(entry) = range.load(taken).await? else { return Ok(()) };
        let (key, value) = range.pair(entry);
        if visit(key, value).is_break() {
            return Ok(());
        }
    }
}

/// Visits the entries that are loaded, until one needs [`RangeReader::load`]. Separate, because a
/// loop without an await keeps its state in registers.
#[inline]
fn visit_loaded<R: Resolve>(
    range: &mut RangeReader<'_, R>,
    visit: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> Result<ControlFlow<(), Option<Taken>>> {
    loop {
        match range.next_loaded()? {
            Some(Taken::Inline) => {
                let (key, value) = range.pair(Entry::Inline);
                if visit(key, value).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            taken => return Ok(ControlFlow::Continue(taken)),
        }
    }
}
