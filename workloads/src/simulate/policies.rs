//! The policies, one file each, named after them.

mod clock;
mod fifo;
mod lru;
mod opt;
mod random;

use super::registry::Entry;

/// All policies, in the order of `--list-policies`.
pub const ALL: &[Entry] = &[random::ENTRY, fifo::ENTRY, lru::ENTRY, clock::ENTRY, opt::ENTRY];
