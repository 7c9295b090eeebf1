//! Savepoints of the public API.

use super::{
    Txn,
    lifecycle::{Mark, Place},
};
use wattle_buffer::{Error, Result};

/// A point to which a transaction can be rolled back. It is `Send` and `Sync`.
#[derive(Debug, Clone, Copy)]
pub struct Savepoint {
    pub(crate) txn: u64,
    pub(crate) place: Place,
    pub(crate) garbage: usize,
    pub(crate) adopted: usize,
    /// Number of the next roll-back when it was made.
    pub(crate) rollbacks: u64,
}

pub(crate) fn savepoint(txn: &Txn) -> Savepoint {
    let Mark { garbage, adopted, .. } = txn.savepoint();
    let rollbacks = txn.next_rollback();
    Savepoint { txn: txn.number, place: txn.place(), garbage, adopted, rollbacks }
}

/// Fails unless the savepoint belongs to this transaction and no rollback went further back.
pub(crate) fn check_savepoint(txn: &Txn, savepoint: &Savepoint) -> Result<()> {
    if savepoint.txn != txn.number || !txn.reaches(savepoint.place, savepoint.rollbacks) {
        let what =
            "the savepoint is of another transaction or an earlier rollback went further back";
        return Err(Error::Limit(what.to_string()));
    }
    Ok(())
}
