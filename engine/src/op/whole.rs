//! Operations of several steps that happen as a whole or not at all, and savepoints.

use crate::{
    session::resolve::Resolve,
    txn::{self, Mark, Txn, rollback},
};
use wattle_buffer::Result;

/// Runs the rest of an operation of several steps that began at `mark`. When it fails, the whole
/// operation is rolled back; when its future is dropped half-way, the transaction can only be
/// aborted. The operation may be part of another one.
pub(super) async fn whole<R: Resolve, T>(
    session: &R,
    txn: &mut Txn,
    mark: Mark,
    rest: impl AsyncFnOnce(&mut Txn) -> Result<T>,
) -> Result<T> {
    let was = std::mem::replace(&mut txn.half_done, true);
    let outcome = rest(txn).await;
    if outcome.is_err() && txn.must_abort.is_none() {
        txn.garbage.truncate(mark.garbage);
        // Report the error of the operation, not that of the rollback.
        if rollback(session, txn, Some(mark.undo)).await.is_err() {
            return outcome;
        }
        txn.forsake(session.system(), mark.adopted);
    }
    txn.half_done = was;
    outcome
}

/// Undoes every change after a savepoint.
pub(crate) async fn rollback_to<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    savepoint: &txn::Savepoint,
) -> Result<()> {
    txn::check_savepoint(txn, savepoint)?;
    let was = std::mem::replace(&mut txn.half_done, true);
    let (mark, trees) = savepoint.place;
    txn.rolled_back_to(savepoint.place);
    txn.garbage.truncate(savepoint.garbage);
    rollback(session, txn, Some(mark)).await?;
    txn.forsake(session.system(), savepoint.adopted);
    txn.take_back_trees(trees);
    txn.half_done = was;
    Ok(())
}
