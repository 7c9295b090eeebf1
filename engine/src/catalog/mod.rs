//! The catalog: a tree that maps names of trees to their roots. One lock serialises all changes,
//! and opens and closes trees.
//!
//! | key | value | content |
//! |---|---|---|
//! | `t` name | tree u32, tree of chunks u32, root u64, root of chunks u64, state u8 | a tree; state 1: it is being dropped |
//! | `u` tree u32 (big-endian) | as above | a tree without a name: a transaction is creating it, or it is being dropped |
//! | `g` tree of chunks u32, id u64 (big-endian) | length u64, and perhaps the key of a record | a large value to be cleared away, unless that record refers to it |
//!
//! A tree and its entry come into being by one record of the log. A drop begins by marking the
//! entry and ends by one record that takes the entry and the last page; in between the tree
//! shrinks. So opening the store after a crash can finish every interrupted change. Creations,
//! drops and renames in a transaction change entries when it commits, with undo entries in the log.
//!
//! | file | content |
//! |---|---|
//! | `closed` | a tree that one transaction owns |
//! | `large_store` | chunks of the large values of one tree |
//! | `open_tree` | [`OpenTree`], and [`TreeTag`], which names a tree, open or not |
//! | `open_trees` | the open trees, and which of them can be closed |
//! | `record` | records of the catalog |
//! | `listed` | the list of large values to be cleared away |
//! | `authors` | changes of the catalog that happen together with something else |
//! | `locked` | changes under the lock |
//! | `trees` | [`Catalog`]: opens, creates and drops trees |
//! | `nameless` | trees without a name |
//! | `commit_trees` | the commit of a transaction that changes trees |
//! | `garbage_list` | large values to be cleared away |
//! | `rename` | rename of a tree, which takes a transaction |

mod authors;
mod closed;
mod commit_trees;
mod garbage_list;
mod large_store;
mod listed;
mod locked;
mod nameless;
mod open_tree;
mod open_trees;
mod record;
mod rename;
mod trees;

pub(crate) use closed::Closed;
pub(crate) use large_store::LargeStore;
pub(crate) use open_tree::{OpenTree, TreeTag};
pub(crate) use open_trees::OpenFor;
pub use record::MAX_TREE_NAME;
pub(crate) use record::check_name;
pub(crate) use rename::rename_tree;
pub(crate) use trees::Catalog;
