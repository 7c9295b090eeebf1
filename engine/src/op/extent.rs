//! Estimates of how much a range has.

use super::range::KeyBounds;
use crate::{
    session::{resolve::Resolve, step::run},
    tree::Tree,
};
use wattle_buffer::{PAGE_SIZE, Result};

/// About how many bytes the leaves of a range take.
pub(crate) async fn approximate_bytes<R: Resolve>(
    session: &R,
    tree: &Tree,
    (low, high): KeyBounds<'_>,
) -> Result<u64> {
    session.core().check_tree(tree)?;
    let leaves = run(session, |_| tree.open.tree.leaves_between_step(low, high)).await?;
    Ok(leaves * PAGE_SIZE as u64)
}
