#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

// The support of the tests names this crate.
#[cfg(all(test, not(shuttle)))]
extern crate self as wattle_btree;

mod adopt;
mod author;
mod bulk;
mod bulk_writer;
mod chunks;
pub mod code;
mod contention;
mod descend;
mod difference;
mod drop;
mod estimate;
mod ghost;
mod hint;
mod image;
mod journal;
mod large_value;
mod leaf_edit;
mod leaf_records;
mod lookup;
mod merge;
mod modify;
pub mod node;
mod owner;
mod read_ahead;
pub mod record;
mod redistribute;
mod remove;
mod remove_chunks;
mod renumber;
mod restore;
mod run;
mod scan;
mod scan_place;
mod split;
mod step;
#[cfg(all(test, not(shuttle)))]
#[path = "../tests/support/mod.rs"]
mod support;
mod trace;
mod tree;
mod undo;
mod verify;
mod view;
mod warm;
mod write;
mod x_merge;

pub use adopt::ReadyLeaves;
pub use author::{Attachment, Author, System};
pub use bulk::{BulkLoad, BulkValue, FILL_PERCENT};
pub use chunks::ChunkReader;
pub use descend::Direction;
pub use estimate::RangeExtent;
pub use ghost::{GHOST, Special, ghosts, is_ghost};
pub use hint::Hint;
pub use image::PageImages;
pub use journal::{Context, Journal};
pub use large_value::{CHUNK, CHUNK_KEY, LargeValue, MAX_VALUE, chunk_id, chunk_key};
pub use lookup::{Found, MULTI_GET};
pub use modify::Progress;
pub use node::{MAX_KEY, fits_inline};
pub use owner::Forest;
pub use remove_chunks::Removed;
pub use renumber::Renumbered;
pub use run::{restarted, run};
pub use scan::{Cursor, Taken};
pub use scan_place::prefix_range;
pub use step::{Step, Stop};
pub use tree::Tree;
pub use undo::{Before, Undo};
pub use verify::{EntryVisitor, TreeReport};
pub use view::{Newest, Seen, View};
pub use warm::NodePlace;
pub use write::{Mode, Value, Written};
