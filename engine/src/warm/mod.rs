//! Warm start: the pages that were in memory when a store was closed come back soon after it is
//! opened.
//!
//! `list` is the file that names these pages, `save` writes it, `state` is what other threads see,
//! and `work` is the thread that reads the pages.
//!
//! The list is a hint, and nothing depends on it. It is written when a store is closed and after
//! checkpoints, beside the store, and replaced by renaming. It names pages by tree and number. The
//! thread looks each page up by a descent through its tree, as an operation would, so a list that
//! is old, or whose store has changed, costs at most reads in vain. It reads only into frames that
//! are free: nothing is evicted for it.

mod list;
mod save;
mod state;
mod work;

pub(crate) use save::{save, save_meanwhile};
pub(crate) use state::WarmStart;
pub(crate) use work::work;
