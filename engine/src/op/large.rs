//! Large values. A value that does not fit a leaf is written as chunks under a new id; then the
//! record with its descriptor is written. The same transaction lists the chunks of the previous
//! value in the catalog, and the janitor removes them when no snapshot can see them.

use super::{
    check::noted,
    direct::write_directly,
    read::look_up,
    record::{change_in, write_step},
    whole::whole,
    write_chunks::write_chunks,
};
use crate::{
    catalog::OpenTree,
    garbage::Garbage,
    session::{
        conflict_wait::Waits,
        resolve::Resolve,
        step::{run, run_again},
    },
    tree::Tree,
    txn::{SystemAuthor, Txn, check_record},
};
use std::sync::Arc;
use wattle_btree::{self as btree, LargeValue, Mode, Value, Written};
use wattle_buffer::{Error, Result};

/// Writes a record whose value does not fit a leaf. `alone`: the transaction has no other change,
/// and the value does not depend on its reads; the waits of the operation so far.
pub(super) async fn write_large_in<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    key: &[u8],
    value: &[u8],
    mode: Mode,
    alone: Option<&Waits<'_>>,
) -> Result<bool> {
    let mark = txn.savepoint();
    let write =
        async |txn: &mut Txn| write_large_steps(session, txn, tree, key, value, mode, alone).await;
    whole(session, txn, mark, write).await
}

/// Whether a transaction without other changes tries a change again after this outcome: it has
/// waited for a conflicting transaction, and has a later snapshot.
async fn may_try_again<R: Resolve, T>(
    session: &R,
    txn: &mut Txn,
    outcome: &Result<T>,
    alone: Option<&Waits<'_>>,
) -> bool {
    let again = matches!(outcome, Err(Error::Conflict(_) | Error::SnapshotTooOld(_)))
        && match alone {
            Some(waits) => waits.wait(session).await,
            None => false,
        };
    if again {
        txn.must_abort = None;
        txn.renew_snapshot(session.system());
    }
    again
}

/// Fails if the write of the record would be a conflict now: before its chunks are written for
/// nothing.
async fn check_record_in<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Arc<OpenTree>,
    key: &[u8],
    alone: Option<&Waits<'_>>,
) -> Result<()> {
    loop {
        let check = |_| check_record(session.system(), txn, tree, key);
        let outcome = match check(0) {
            Ok(()) => return Ok(()),
            Err(stop) => run_again(session, stop, check).await,
        };
        let outcome = noted(txn, outcome);
        if !may_try_again(session, txn, &outcome, alone).await {
            return outcome;
        }
    }
}

/// Writes the record of a large value. A transaction without other changes waits here for a
/// conflicting transaction, and takes a later snapshot. If it repeated the whole operation, with
/// all chunks, other writers would always be faster.
async fn large_record_in<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Arc<OpenTree>,
    key: &[u8],
    value: Value<'_>,
    mode: Mode,
    alone: Option<&Waits<'_>>,
) -> Result<Written> {
    loop {
        let step = write_step(session, tree, key, value, mode);
        let outcome = change_in(session, txn, tree, key, step).await;
        if !may_try_again(session, txn, &outcome, alone).await {
            return outcome;
        }
    }
}

async fn write_large_steps<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    key: &[u8],
    value: &[u8],
    mut mode: Mode,
    alone: Option<&Waits<'_>>,
) -> Result<bool> {
    let mut known = None;
    // Before writing gigabytes for nothing.
    if mode != Mode::Put {
        let mut bytes = Vec::new();
        let found = look_up(session, &tree.open.tree, key, &mut btree::Newest, &mut bytes).await?;
        if found.is_some() == (mode == Mode::Insert) {
            // The leaf refuses the write, unless another transaction is about to change the record:
            // a small write finds out.
            let probe = Value::Inline(&[]);
            let written =
                large_record_in(session, txn, &tree.open, key, probe, mode, alone).await?;
            if mode == Mode::Update && !written.existed {
                return Ok(false);
            }
            discard_in(session, txn, tree, written.orphan).await?;
            known = Some(written.existed);
            mode = Mode::Put;
        }
    }
    check_record_in(session, txn, &tree.open, key, alone.filter(|_| known.is_none())).await?;
    session.core().make_room_for_large(session, &tree.open, alone.is_some()).await;
    let store = session.core().catalog.large(session.system(), session.cx(), &tree.open)?;
    let large = LargeValue { id: store.next_id(), len: value.len() as u64 };
    txn.start_writing(session.system(), &tree.open);
    if !write_directly(session, txn, tree, store, key, (large, value)).await? {
        write_chunks(session, Some(txn), store, (large, value), 0).await?;
    }
    let (new, alone) = (Value::Large(large), alone.filter(|_| known.is_none()));
    let written = large_record_in(session, txn, &tree.open, key, new, mode, alone).await?;
    if !written.existed && mode == Mode::Update {
        // The record was removed meanwhile, within the snapshot: no record will refer to the
        // chunks.
        match txn.adopted.pop_if(|adopted| adopted.large == large) {
            Some(adopted) => session.system().garbage.add_forsaken([adopted]),
            None => discard_in(session, txn, tree, Some(large)).await?,
        }
        return Ok(false);
    }
    discard_in(session, txn, tree, written.orphan).await?;
    Ok(known.unwrap_or(written.existed))
}

/// A large value that the transaction replaced is listed in the catalog, to be cleared away.
pub(super) async fn discard_in<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    orphan: Option<LargeValue>,
) -> Result<()> {
    let Some(large) = orphan else { return Ok(()) };
    let (core, cx) = (session.core(), session.cx());
    let (catalog, key) = core.catalog.garbage_key(&tree.open, large)?;
    let mut author = SystemAuthor::new(&core.txns, catalog.id(), Some(txn));
    let value = large.len.to_le_bytes();
    run(session, |restarts| {
        catalog.write_step(cx, &key, Value::Inline(&value), Mode::Put, &mut author, restarts)
    })
    .await?;
    drop(author);
    txn.garbage.push(Garbage::Large(tree.open.tag.clone(), large));
    Ok(())
}
