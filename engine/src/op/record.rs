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

/// Changes one record: the first attempt, and the rest if that stops.
pub(super) async fn change_in<R: Resolve, T>(
    session: &R,
    txn: &mut Txn,
    tree: &Arc<OpenTree>,
    key: &[u8],
    mut step: impl FnMut(&mut TxnAuthor<'_>, u32) -> Step<T>,
) -> Result<T> {
    match change_once(session, txn, tree, key, &mut step) {
        Ok(changed) => Ok(changed),
        Err(stop) => change_on(session, txn, tree, key, stop, step).await,
    }
}

/// The first attempt, nearly always the only one.
#[inline]
pub(super) fn change_once<R: Resolve, T>(
    session: &R,
    txn: &mut Txn,
    tree: &Arc<OpenTree>,
    key: &[u8],
    step: &mut impl FnMut(&mut TxnAuthor<'_>, u32) -> Step<T>,
) -> Step<T> {
    let mut author = TxnAuthor::new(&session.core().txns, txn, tree, key);
    let changed = step(&mut author, 0)?;
    session.cx().worker.counters().hits.add(1);
    Ok(changed)
}

/// The step that writes `value`.
#[inline]
pub(super) fn write_step<'s, R: Resolve>(
    session: &'s R,
    tree: &'s Arc<OpenTree>,
    key: &'s [u8],
    value: Value<'s>,
    mode: Mode,
) -> impl FnMut(&mut TxnAuthor<'_>, u32) -> Step<Written> + use<'s, R> {
    let cx = session.cx();
    move |author, restarts| tree.tree.write_step(cx, key, value, mode, author, restarts)
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

/// The rest of [`change_in`], after a first attempt that stopped.
#[cold]
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
