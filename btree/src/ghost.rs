//! Special values, which a record holds instead of its bytes: the descriptor of a large value, or a
//! ghost. A ghost marks a deleted record, whose key stays until no snapshot needs an older version.

use crate::{large_value::LargeValue, node::NodeView};
use wattle_buffer::{PAGE_SIZE, PageId, Result};

/// The value of a ghost.
pub const GHOST: &[u8] = &[2];

/// A special value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// The bytes are stored elsewhere.
    Large(LargeValue),
    /// The record was deleted.
    Ghost,
}

impl Special {
    /// Reads a special value of a record of `page`.
    ///
    /// # Errors
    /// [`wattle_buffer::Error::Corruption`] if the bytes are no special value.
    pub fn decode(bytes: &[u8], page: PageId) -> Result<Special> {
        if bytes == GHOST {
            return Ok(Special::Ghost);
        }
        LargeValue::decode(bytes, page).map(Special::Large)
    }
}

/// True if a record with this value and special flag is a ghost.
#[inline(always)]
pub fn is_ghost(value: (&[u8], bool)) -> bool {
    value.1 && value.0 == GHOST
}

/// Calls `ghost` with the key of each ghost of a node, whose structure was checked.
pub fn ghosts(image: &[u8; PAGE_SIZE], ghost: &mut dyn FnMut(&[u8])) {
    let view = NodeView::from(image);
    if view.is_inner() {
        return;
    }
    let mut key = Vec::new();
    for position in (0..view.count()).filter(|at| is_ghost(view.value(*at))) {
        key.clear();
        view.key_to(position, &mut key);
        ghost(&key);
    }
}
