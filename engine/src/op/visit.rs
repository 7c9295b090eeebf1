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
        let entry = match range.next_loaded()? {
            Some(Taken::Inline) => Some(Entry::Inline),
            taken => range.load(taken).await?,
        };
        let Some(entry) = entry else { return Ok(()) };
        let (key, value) = range.pair(entry);
        if visit(key, value).is_break() {
            return Ok(());
        }
    }
}
