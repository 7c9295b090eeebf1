//! Removal of many records in pieces.

use std::ops::{Bound, ControlFlow};
use wattle::{Direction, Result, Transaction, Tree};

/// Records that are removed at a time.
const PIECE: usize = 4096;

/// Removes the first records between two keys in this direction; false when none are left.
pub fn remove_some(
    txn: &mut Transaction<'_>,
    tree: &Tree,
    bounds: (Bound<&[u8]>, Bound<&[u8]>),
    direction: Direction,
) -> Result<bool> {
    let mut keys = Vec::new();
    txn.visit(tree, bounds, direction, |key, _| {
        keys.push(key.to_vec());
        match keys.len() < PIECE {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    txn.remove_many(tree, &keys)?;
    Ok(keys.len() == PIECE)
}
