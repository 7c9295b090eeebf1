//! Changes of one record in a transaction.

use super::{
    check::{check_change_in, check_value},
    large::{discard_in, write_large_in},
    read::value_in,
    record::{change_on, record_in, record_on, record_once},
    whole::whole,
};
use crate::{
    mvcc::Savepoint,
    session::resolve::Resolve,
    tree::Tree,
    txn::{Txn, TxnAuthor},
};
use wattle_btree::{Mode, Step, Value, Written, fits_inline};
use wattle_buffer::Result;

/// Writes one record in a transaction; gives whether there was one before.
pub(crate) async fn write_in<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    key: &[u8],
    value: &[u8],
    mode: Mode,
) -> Result<bool> {
    match write_once(session, txn, tree, key, value, mode) {
        Ok(Once::Done(existed)) => Ok(existed),
        other => write_on(session, txn, tree, key, value, mode, other).await,
    }
}

/// The outcome of the first attempt of a change.
pub(crate) enum Once<T> {
    /// It is made.
    Done(bool),
    /// The rest takes more steps.
    Begun(T),
}

/// The first attempt of [`write_in`], nearly always the only one. Without a future, whose results
/// would be copied several times, it costs a blocking session less. [`write_on`] takes its outcome.
#[inline]
pub(crate) fn write_once<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    key: &[u8],
    value: &[u8],
    mode: Mode,
) -> Step<Once<Option<Orphaned>>> {
    check_change_in(session, txn, tree, key)?;
    if !fits_inline(key.len(), value.len()) {
        return Ok(Once::Begun(None));
    }
    let mark = txn.savepoint();
    let written = record_once(session, txn, &tree.open, key, Value::Inline(value), mode)?;
    Ok(match written.orphan {
        None => Once::Done(written.existed),
        Some(_) => Once::Begun(Some(Orphaned { mark, written })),
    })
}

/// A record was written over a large value, which is still to be discarded.
pub(crate) struct Orphaned {
    mark: (Savepoint, usize),
    written: Written,
}

/// The rest of a write.
#[cold]
pub(crate) async fn write_on<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    key: &[u8],
    value: &[u8],
    mode: Mode,
    first: Step<Once<Option<Orphaned>>>,
) -> Result<bool> {
    let Orphaned { mark, written } = match first {
        Ok(Once::Done(existed)) => return Ok(existed),
        Ok(Once::Begun(Some(orphaned))) => orphaned,
        Ok(Once::Begun(None)) => {
            check_value(value)?;
            return write_large_in(session, txn, tree, key, value, mode, None).await;
        }
        Err(stop) => {
            let (mark, value) = (txn.savepoint(), Value::Inline(value));
            let written = record_on(session, txn, &tree.open, key, value, mode, stop).await?;
            Orphaned { mark, written }
        }
    };
    if written.orphan.is_some() {
        let discard = async |txn: &mut Txn| discard_in(session, txn, tree, written.orphan).await;
        whole(session, txn, mark, discard).await?;
    }
    Ok(written.existed)
}

/// Removes one record in a transaction; gives whether there was one.
pub(crate) async fn remove_in<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    key: &[u8],
) -> Result<bool> {
    check_change_in(session, txn, tree, key)?;
    let mark = txn.savepoint();
    let written = record_in(session, txn, &tree.open, key, Value::Ghost, Mode::Update).await?;
    if written.existed {
        txn.add_ghost(&tree.open, key);
    }
    if written.orphan.is_some() {
        let discard = async |txn: &mut Txn| discard_in(session, txn, tree, written.orphan).await;
        whole(session, txn, mark, discard).await?;
    }
    Ok(written.existed)
}

/// Changes a value in place, in a transaction.
pub(crate) async fn modify_in<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    key: &[u8],
    buffer: &mut Vec<u8>,
    change: &mut dyn FnMut(usize, &mut [u8]),
) -> Result<bool> {
    match modify_once(session, txn, tree, key, buffer, change) {
        Ok(Once::Done(found)) => Ok(found),
        other => modify_on(session, txn, tree, key, buffer, change, other).await,
    }
}

/// The first attempt of [`modify_in`]; see [`write_once`]. It has begun when the value is large.
#[inline]
pub(crate) fn modify_once<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    key: &[u8],
    buffer: &mut Vec<u8>,
    change: &mut dyn FnMut(usize, &mut [u8]),
) -> Step<Once<()>> {
    check_change_in(session, txn, tree, key)?;
    let (core, cx) = (session.core(), session.cx());
    let mut author = TxnAuthor::new(&core.txns, txn, &tree.open, key);
    let modified = tree.open.tree.modify_step(cx, key, buffer, change, &mut author, 0)?;
    cx.worker.counters().hits.add(1);
    Ok(modified.map_or(Once::Begun(()), Once::Done))
}

/// The rest of a change in place.
#[cold]
pub(crate) async fn modify_on<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    key: &[u8],
    buffer: &mut Vec<u8>,
    change: &mut dyn FnMut(usize, &mut [u8]),
    first: Step<Once<()>>,
) -> Result<bool> {
    let cx = session.cx();
    let modified = match first {
        Ok(Once::Done(found)) => return Ok(found),
        Ok(Once::Begun(())) => None,
        Err(stop) => change_on(session, txn, &tree.open, key, stop, |author, restarts| {
            tree.open.tree.modify_step(cx, key, buffer, change, author, restarts)
        })
        .await?
        .ok(),
    };
    if let Some(found) = modified {
        return Ok(found);
    }
    buffer.clear();
    if !value_in(session, txn, tree, key, buffer).await? {
        return Ok(false);
    }
    change(0, buffer);
    let value = std::mem::take(buffer);
    write_large_in(session, txn, tree, key, &value, Mode::Update, None).await
}
