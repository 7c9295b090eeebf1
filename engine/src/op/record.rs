//! Changes one record of a leaf in a transaction: the step of which all other changes consist.

use super::check::noted;
use crate::{
    catalog::OpenTree,
    session::{resolve::Resolve, step::run_again},
    txn::{Txn, TxnAuthor},
};
use std::sync::Arc;
use wattle_btree::{Mode, Step, Stop, Value, Written};
use wattle_buffer::Result;

pub(super) async fn record_in<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Arc<OpenTree>,
    key: &[u8],
    value: Value<'_>,
    mode: Mode,
) -> Result<Written> {
    match record_once(session, txn, tree, key, value, mode) {
        Ok(written) => Ok(written),
        Err(stop) => record_on(session, txn, tree, key, value, mode, stop).await,
    }
}

#[inline]
pub(super) fn record_once<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Arc<OpenTree>,
    key: &[u8],
    value: Value<'_>,
    mode: Mode,
) -> Step<Written> {
    let (core, cx) = (session.core(), session.cx());
    let mut author = TxnAuthor::new(&core.txns, txn, tree, key);
    let written = tree.tree.write_step(cx, key, value, mode, &mut author, 0)?;
    cx.worker.counters().hits.add(1);
    Ok(written)
}

/// The rest of [`record_in`], after a first step that stopped.
#[cold]
pub(super) async fn record_on<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Arc<OpenTree>,
    key: &[u8],
    value: Value<'_>,
    mode: Mode,
    stop: Stop,
) -> Result<Written> {
    let cx = session.cx();
    change_on(session, txn, tree, key, stop, |author, restarts| {
        tree.tree.write_step(cx, key, value, mode, author, restarts)
    })
    .await
}

/// A transaction in the middle of an operation that takes its undo entry back when it is dropped.
struct HalfDone<'t> {
    txn: &'t mut Txn,
    was: bool,
}

impl<'t> HalfDone<'t> {
    fn begin(txn: &'t mut Txn) -> HalfDone<'t> {
        let was = std::mem::replace(&mut txn.half_done, true);
        HalfDone { txn, was }
    }
}

impl Drop for HalfDone<'_> {
    fn drop(&mut self) {
        self.txn.half_done = self.was;
    }
}

/// Continues a change of one record whose first step stopped.
pub(super) async fn change_on<R: Resolve, T>(
    session: &R,
    txn: &mut Txn,
    tree: &Arc<OpenTree>,
    key: &[u8],
    stop: Stop,
    mut step: impl FnMut(&mut TxnAuthor<'_>, u32) -> Step<T>,
) -> Result<T> {
    let outcome = match stop {
        Stop::Error(error) => Err(error),
        stop => {
            // A future that is leaked here may leave the undo entry of a change that it has not
            // made.
            let open = HalfDone::begin(txn);
            let mut author = TxnAuthor::new(session.system(), open.txn, tree, key);
            let outcome = run_again(session, stop, |restarts| step(&mut author, restarts)).await;
            author.finish().and(outcome)
        }
    };
    noted(txn, outcome)
}
