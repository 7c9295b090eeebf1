//! The store on disk: a directory with the data file, its two superblocks, the bitmaps of pages in
//! use, and the log.
//!
//! | file | content |
//! |---|---|
//! | `tree_ids` | tree ids with a fixed meaning |
//! | `superblock` | fields of a superblock, and their encoding |
//! | `bitmaps` | which copy of each bitmap is valid |
//! | `directory` | the open directory, its locks, its log |
//! | `file` | [`StoreFile`]: reads and writes pages, superblocks and bitmaps |
//! | `unlogged` | the mark of a store that is used without a log |
//! | `leftovers` | removes what an interrupted creation or opening left of a log |

pub(crate) mod bitmaps;
pub(crate) mod directory;
pub(crate) mod file;
pub(crate) mod leftovers;
pub(crate) mod superblock;
pub(crate) mod tree_ids;
pub(crate) mod unlogged;

pub(crate) use bitmaps::{BitmapCopies, bitmap_groups};
pub(crate) use directory::NEW_WARM_FILE;
pub use directory::{DATA_FILE, LOG_DIRECTORY, WARM_FILE};
pub(crate) use file::StoreFile;
pub use superblock::STORE_VERSION;
pub(crate) use superblock::{ClassEpochs, StoreState, Superblock};
pub(crate) use tree_ids::CATALOG;
pub(crate) use unlogged::UnloggedMark;
