//! Checks before an operation, and the reads and errors that a transaction remembers.

use crate::{session::resolve::Resolve, tree::Tree, txn::Txn};
use wattle_btree::{MAX_KEY, MAX_VALUE};
use wattle_buffer::{Error, Result};

pub(super) fn check_key(key: &[u8]) -> Result<()> {
    if key.len() <= MAX_KEY {
        return Ok(());
    }
    Err(Error::KeyTooLong { len: key.len(), max: MAX_KEY })
}

pub(super) fn check_value(value: &[u8]) -> Result<()> {
    if value.len() as u64 <= MAX_VALUE {
        return Ok(());
    }
    Err(Error::ValueTooLong { len: value.len() as u64, max: MAX_VALUE })
}

/// Notes a read: a write tells its caller whether the record existed.
pub(super) fn note_point(txn: &Txn, tree: &Tree, key: &[u8]) {
    if let Some(reads) = &txn.reads {
        reads.borrow_mut().point(&tree.open, key);
    }
}

/// Before a change in a transaction.
#[inline]
pub(super) fn check_change_in<R: Resolve>(
    session: &R,
    txn: &Txn,
    tree: &Tree,
    key: &[u8],
) -> Result<()> {
    session.core().check_tree(tree)?;
    txn.check_write()?;
    check_key(key)?;
    note_point(txn, tree, key);
    Ok(())
}

/// As [`check_change_in`], for a change of several keys.
pub(super) fn check_changes_in<R: Resolve, K: AsRef<[u8]>>(
    session: &R,
    txn: &Txn,
    tree: &Tree,
    keys: &[K],
) -> Result<()> {
    session.core().check_tree(tree)?;
    txn.check_write()?;
    for key in keys {
        check_key(key.as_ref())?;
        note_point(txn, tree, key.as_ref());
    }
    Ok(())
}

/// An error after which a transaction can only be aborted is remembered.
pub(super) fn noted<T>(txn: &mut Txn, outcome: Result<T>) -> Result<T> {
    if let Err(error @ (Error::Conflict(_) | Error::SnapshotTooOld(_))) = &outcome {
        txn.must_abort = Some(error.to_string());
    }
    outcome
}
