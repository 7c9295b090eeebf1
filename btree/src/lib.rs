#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod author;
mod bulk;
mod descend;
mod drop;
mod ghost;
mod hint;
mod journal;
mod large_value;
mod lookup;
mod merge;
pub mod node;
mod owner;
pub mod record;
mod renumber;
mod scan;
mod split;
mod tree;
mod undo;
mod verify;
mod view;
mod write;

pub use author::{Author, System};
pub use bulk::{BulkLoad, BulkValue, FILL_PERCENT};
pub use ghost::{GHOST, Special, ghosts, is_ghost};
pub use hint::Hint;
pub use journal::{Attachment, Context, Journal};
pub use large_value::{CHUNK, CHUNK_KEY, LargeValue, MAX_VALUE, chunk_id, chunk_key};
pub use lookup::{Found, MULTI_GET};
pub use node::{MAX_KEY, fits_inline};
pub use owner::Forest;
pub use renumber::Renumbered;
pub use scan::{Cursor, Direction, Taken, prefix_range};
pub use tree::{Step, Stop, Tree, restarted, run};
pub use undo::{Before, Undo};
pub use verify::{EntryVisitor, TreeReport};
pub use view::{Newest, Seen, View};
pub use write::{Mode, Progress, Value, Written};
