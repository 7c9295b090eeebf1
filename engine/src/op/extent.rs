//! Estimates of how much a range has.

use super::range::KeyBounds;
use crate::{
    session::{resolve::Resolve, step::run},
    tree::Tree,
};
use wattle_buffer::{PAGE_SIZE, Result};

/// About how much a range of keys has: from [`crate::Session::approximate_range`], which says how
/// good it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RangeEstimate {
    /// Records, with those that were removed and are not cleared away yet. `None` if nothing is
    /// known about the leaves of the tree: none of those that were looked for is in memory, and
    /// none has been read, split or loaded since the tree was opened.
    pub records: Option<u64>,
    /// Bytes of leaf pages: of keys, values and free room. Chunks of large values are not counted.
    pub bytes: u64,
}

/// Estimates how much lies between two bounds.
pub(crate) async fn approximate_range<R: Resolve>(
    session: &R,
    tree: &Tree,
    (low, high): KeyBounds<'_>,
) -> Result<RangeEstimate> {
    session.core().check_tree(tree)?;
    let extent = run(session, |_| tree.open.tree.extent_step(low, high)).await?;
    Ok(RangeEstimate {
        records: extent.records.map(|records| records.round() as u64),
        bytes: (extent.leaves * PAGE_SIZE as f64).round() as u64,
    })
}
