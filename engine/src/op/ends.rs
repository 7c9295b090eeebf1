//! The first and the last record of a tree, read or taken out.

use super::{range::RangeReader, write::remove_in};
use crate::{
    session::{conflict_wait::persist_at, resolve::Resolve},
    tree::Tree,
    txn::{Begun, Ticket, Txn, TxnOptions},
};
use std::ops::Bound;
use wattle_btree::Direction;
use wattle_buffer::{Error, Result};

/// A key and its value.
pub(crate) type Record = (Vec<u8>, Vec<u8>);

const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);

/// The record at an end of a tree, in a transaction: the first one in this direction.
pub(crate) async fn end_in<R: Resolve>(
    session: &R,
    txn: &Txn,
    tree: &Tree,
    direction: Direction,
) -> Result<Option<Record>> {
    end_of(RangeReader::in_txn(session, txn, tree, ALL, direction)?).await
}

/// As [`end_in`], auto-committed.
pub(crate) async fn end_auto<R: Resolve>(
    session: &R,
    tree: &Tree,
    direction: Direction,
) -> Result<Option<Record>> {
    end_of(RangeReader::auto(session, tree, ALL, direction).await?).await
}

async fn end_of<R: Resolve>(mut range: RangeReader<'_, R>) -> Result<Option<Record>> {
    range.expect(1);
    let taken = range.next_loaded()?;
    let entry = range.load(taken).await?;
    Ok(entry.map(|entry| {
        let (key, value) = range.pair(entry);
        (key.to_vec(), value.to_vec())
    }))
}

/// Takes out the record at an end of a tree, in a transaction.
pub(crate) async fn pop_in<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    direction: Direction,
) -> Result<Option<Record>> {
    txn.check_write()?;
    let Some(record) = end_in(session, txn, tree, direction).await? else { return Ok(None) };
    remove_in(session, txn, tree, &record.0).await?;
    Ok(Some(record))
}

/// As [`pop_in`], as a transaction of its own. Other threads may take records from the same end:
/// each attempt has a record of its own, and waits only for a transaction that holds that.
pub(crate) async fn pop_auto<R: Resolve>(
    session: &R,
    tree: &Tree,
    direction: Direction,
) -> Result<(Option<Record>, Ticket)> {
    session.core().admit(session, tree).await?;
    persist_at(session, tree, async || pop_once(session, tree, direction).await).await
}

/// One attempt of [`pop_auto`]; an error comes with the key of the record.
async fn pop_once<R: Resolve>(
    session: &R,
    tree: &Tree,
    direction: Direction,
) -> Result<(Option<Record>, Ticket), (Vec<u8>, Error)> {
    let unknown = |error| (Vec::new(), error);
    let mut txn = Begun::new(session, TxnOptions::default()).map_err(unknown)?;
    let record = end_in(session, txn.get(), tree, direction).await.map_err(unknown)?;
    let Some((key, value)) = record else {
        return Ok((None, txn.commit().await.map_err(unknown)?));
    };
    match remove_in(session, txn.txn(), tree, &key).await {
        Ok(_) => match txn.commit().await {
            Ok(ticket) => Ok((Some((key, value)), ticket)),
            Err(error) => Err((key, error)),
        },
        Err(error) => {
            txn.abort().await.map_err(unknown)?;
            Err((key, error))
        }
    }
}
