//! The versions of one record: what it was before each of its recent changes, newest change first.
//!
//! The page holds the record after the newest change. The value before a change is the value after
//! the next older one. To find what a snapshot sees, walk from the newest change: one that is
//! visible ends the walk, one that is not replaces the candidate by the value before it.
//!
//! Invariants, under the lock of the shard:
//! - only the newest version can be of a transaction that is not committed, because the write
//!   check lets nobody change a record over an undecided one;
//! - commit times fall from the newest version to the oldest;
//! - a transaction has one version per record, with the value before its first change;
//! - every version starts with the key, so that a chain of one version needs one buffer at most;
//! - a version of a change that left most bytes of a value alone has only the bytes that it changed: a
//!   *patch*. The value after such a change is a plain one of the same length, and is known: it is the value
//!   before the next newer change, or what the page holds. So whoever looks starts from the page and
//!   applies patches on the way. A transaction that changes a record again makes a patch of its own whole
//!   before, from the value that the record has then ([`Chain::make_whole`]).

use super::version::Version;
use crate::limits::limit;
use wattle_buffer::{TreeId, prefetch_write};

/// A chain that is longer is pruned by whoever makes it so.
pub(super) const PRUNE_ABOVE: usize = limit(8, 2);

/// Memory that a chain takes: itself, its place in the table, which is two thirds full on average,
/// and its item in a queue, bytes.
pub(super) const CHAIN_BYTES: usize = size_of::<Chain>() + 16 * 3 / 2 + 16;

/// Brings a chain near that was at a place ([`Chain::place`]), whatever is there now.
#[inline]
pub(super) fn approach(place: usize) {
    prefetch_write(std::ptr::without_provenance::<u8>(place));
}

/// All versions of one record, in a cache line if there is one version only.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Chain {
    pub tree: TreeId,
    pub key_len: u16,
    /// The shard has an item for the chain in its list of young ones.
    pub young: bool,
    pub newest: Version,
    pub long: Option<Box<Long>>,
}

/// What a chain has besides, once it is longer or passes have looked at it.
#[derive(Debug)]
pub(super) struct Long {
    /// The versions but the newest, newest last.
    pub older: Vec<Version>,
    /// Memory of their buffers: a hot record has many, and each push wants to know.
    pub older_bytes: u32,
    /// Length above which a push prunes.
    pub prune_above: u32,
    /// Number of the last pass that left the chain young.
    pub pass: u32,
    /// Time under which the shard has the chain in its heap, 0 if it has not.
    pub due: u64,
}

impl Default for Long {
    fn default() -> Long {
        let (older, prune_above) = (Vec::new(), PRUNE_ABOVE as u32);
        Long { older, older_bytes: 0, prune_above, pass: 0, due: 0 }
    }
}

const _: () = assert!(size_of::<Chain>() == 64);

impl Chain {
    /// Where it lies, for [`approach`].
    #[inline]
    pub fn place(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    #[inline]
    pub fn is_of(&self, tree: TreeId, key: &[u8]) -> bool {
        self.tree == tree && usize::from(self.key_len) == key.len() && self.key() == key
    }

    /// The key of the record.
    #[inline]
    pub fn key(&self) -> &[u8] {
        &self.newest.bytes.as_slice()[..usize::from(self.key_len)]
    }

    pub fn len(&self) -> usize {
        1 + self.older().len()
    }

    /// Nobody needs any of it: its newest change is visible to every snapshot.
    #[inline]
    pub fn is_old(&self, horizon: u64) -> bool {
        self.newest.writer.committed_ts().is_some_and(|ts| ts <= horizon)
    }

    /// The versions but the newest, newest last.
    #[inline]
    pub fn older(&self) -> &[Version] {
        self.long.as_ref().map_or(&[], |long| &long.older)
    }

    /// Number of the last pass that left it young; 0: none did.
    pub fn pass(&self) -> u32 {
        self.long.as_ref().map_or(0, |long| long.pass)
    }

    /// Time under which the shard has the chain in its heap, 0 if it has not.
    pub fn due(&self) -> u64 {
        self.long.as_ref().map_or(0, |long| long.due)
    }

    /// Memory that it takes.
    #[inline]
    pub fn bytes(&self) -> u64 {
        let long = self.long.as_ref().map_or(0, |long| long.bytes());
        (CHAIN_BYTES + self.newest.bytes.heap_bytes() + long) as u64
    }

    /// The version at a place of the walk: the newest is at 0.
    #[inline]
    pub fn version(&self, at: usize) -> &Version {
        match at {
            0 => &self.newest,
            _ => &self.older()[self.older().len() - at],
        }
    }

    /// Commit time of the oldest version, if it is committed.
    pub fn oldest_ts(&self) -> Option<u64> {
        self.older().first().unwrap_or(&self.newest).writer.committed_ts()
    }
}

impl Long {
    fn bytes(&self) -> usize {
        debug_assert_eq!(self.older_bytes as usize, self.sum_older());
        let list = self.older.capacity() * size_of::<Version>();
        size_of::<Long>() + self.older_bytes as usize + list
    }

    pub fn sum_older(&self) -> usize {
        self.older.iter().map(|version| version.bytes.heap_bytes()).sum()
    }
}
