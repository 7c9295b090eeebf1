//! Chunks of the large values of one tree.

use std::{
    ops::Bound,
    sync::atomic::{AtomicU64, Ordering},
};
use wattle_btree::{self as btree, Context, Cursor, Direction, Newest, chunk_id, run};
use wattle_buffer::Result;

/// See the module documentation.
pub(crate) struct LargeStore {
    pub tree: btree::Tree,
    pub(super) next_id: AtomicU64,
}

impl LargeStore {
    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Opens the tree; the next id is above `used`, and above all that are in it.
    pub(super) fn open(cx: &Context, tree: btree::Tree, used: u64) -> Result<LargeStore> {
        let last = last_id(cx, &tree)?;
        let next = last.map_or(1, |id| id.saturating_add(1)).max(used + 1);
        Ok(LargeStore { tree, next_id: AtomicU64::new(next) })
    }
}

/// The largest id in a tree of large values.
fn last_id(cx: &Context, tree: &btree::Tree) -> Result<Option<u64>> {
    let mut cursor = Cursor::new(Bound::Unbounded, Bound::Unbounded, Direction::Backward);
    while cursor.is_loaded() || !cursor.is_at_end() {
        if !cursor.is_loaded() {
            run(cx, |_| cursor.load_step(tree, &mut Newest))?;
        } else if cursor.take()?.is_some() {
            return Ok(chunk_id(cursor.key()));
        }
    }
    Ok(None)
}
