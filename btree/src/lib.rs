#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod bulk;
mod descend;
mod drop;
mod large_value;
mod lookup;
mod merge;
pub mod node;
mod owner;
mod scan;
mod split;
mod tree;
mod verify;
mod write;

pub use bulk::{BulkLoad, BulkValue, FILL_PERCENT};
pub use large_value::{CHUNK, CHUNK_KEY, LargeValue, MAX_VALUE, chunk_id, chunk_key};
pub use lookup::{Found, MULTI_GET};
pub use node::{MAX_KEY, fits_inline};
pub use owner::Forest;
pub use scan::{Cursor, Direction, prefix_range};
pub use tree::{Step, Stop, Tree, restarted, run};
pub use verify::{EntryVisitor, TreeReport};
pub use write::{Mode, Value, Written};
