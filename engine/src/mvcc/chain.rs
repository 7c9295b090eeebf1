//! The versions of one record: its state before each of its recent changes, newest change first.
//!
//! The page holds the record after the newest change. The value before a change is the value after
//! the previous change. To find the value that a snapshot sees, walk from the newest change: a
//! visible change ends the walk; an invisible one replaces the candidate by the value before it.
//!
//! Invariants, under the lock of the shard:
//! - only the newest version can be of an uncommitted transaction, because the write check refuses
//!   to change a record over an undecided change;
//! - commit times fall from the newest version to the oldest;
//! - a transaction has one version for each record, with the value before its first change;
//! - every version starts with the key, so a chain of one version needs at most one buffer;
//! - if a change altered few bytes of a value, its version is a *patch*: only these bytes. The
//!   value after such a change is a plain one of the same length, and it is known: it is the value
//!   before the next newer change, or the one in the page. So a reader starts with the page and
//!   applies patches on the way. If a transaction changes a record again, it first turns a patch of
//!   its own into a whole value, from the record's value at that time ([`Chain::make_whole`]).

use super::version::Version;
use crate::limits::limit;
use wattle_buffer::{TreeId, prefetch_write};

/// A push that makes a chain longer than this prunes it.
pub(super) const PRUNE_ABOVE: usize = limit(8, 2);

/// Memory of a chain, bytes: itself, its place in the table, which is two thirds full on average,
/// and its item in a queue.
pub(super) const CHAIN_BYTES: usize = size_of::<Chain>() + 16 * 3 / 2 + 16;

/// Prefetches a chain by its address at an earlier time ([`Chain::place`]); it may be gone now.
#[inline]
pub(super) fn prefetch(place: usize) {
    prefetch_write(std::ptr::without_provenance::<u8>(place));
}

/// All versions of one record, in a cache line if there is one version only.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Chain {
    pub tree: TreeId,
    pub key_len: u16,
    /// The shard has an item for the chain in its list of undecided ones.
    pub undecided: bool,
    pub newest: Version,
    pub long: Option<Box<Long>>,
}

/// Further fields of a chain that is longer, or that passes have looked at.
#[derive(Debug)]
pub(super) struct Long {
    /// All versions but the newest; the newest of them is last.
    pub older: Vec<Version>,
    /// Memory of their buffers. A sum would take too long: a hot record has many, and each push
    /// asks.
    pub older_bytes: u32,
    /// Length above which a push prunes.
    pub prune_above: u32,
    /// Number of the last pass that left the chain undecided.
    pub pass: u32,
    /// Key of the chain in the shard's heap, a time; 0 if it is not there.
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
    /// Its address, for [`prefetch`].
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

    /// True if no snapshot needs any of its versions: its newest change is visible to all of them.
    #[inline]
    pub fn is_old(&self, horizon: u64) -> bool {
        self.newest.writer.committed_ts().is_some_and(|ts| ts <= horizon)
    }

    /// All versions but the newest; the newest of them is last.
    #[inline]
    pub fn older(&self) -> &[Version] {
        self.long.as_ref().map_or(&[], |long| &long.older)
    }

    /// Number of the last pass that left it undecided; 0: none did.
    pub fn pass(&self) -> u32 {
        self.long.as_ref().map_or(0, |long| long.pass)
    }

    /// Key of the chain in the shard's heap, a time; 0 if it is not there.
    pub fn due(&self) -> u64 {
        self.long.as_ref().map_or(0, |long| long.due)
    }

    /// Memory of the chain, bytes.
    #[inline]
    pub fn bytes(&self) -> u64 {
        let long = self.long.as_ref().map_or(0, |long| long.bytes());
        (CHAIN_BYTES + self.newest.bytes.heap_bytes() + long) as u64
    }

    /// The version at a position of the walk: the newest is at 0.
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
