//! A change of one record by an auto-committed operation: it commits under the latch of the leaf.

use super::{Reads, TxnSystem, author::conflict};
use crate::{
    catalog::OpenTree,
    mvcc::{ConflictWith, HashedRecord, OwnedVersion, WriteCheck},
};
use std::sync::Arc;
use wattle_btree::{Author, Hint, Stop, is_ghost};
use wattle_buffer::{Error, Exclusive, FrameHeader};
use wattle_wal::epoch_of;

/// Bits of a hint that is not a time.
const NO_TIME: u64 = 0b11 << 62;

/// The record before a change, copied out of the leaf.
#[derive(Default)]
struct Before {
    bytes: Vec<u8>,
    /// Whether it is special; `None`: there was no record.
    special: Option<bool>,
}

impl Before {
    fn set(&mut self, before: Option<(&[u8], bool)>) {
        self.bytes.clear();
        self.special = before.map(|(bytes, special)| {
            self.bytes.extend_from_slice(bytes);
            special
        });
    }

    fn get(&self) -> Option<(&[u8], bool)> {
        self.special.map(|special| (&self.bytes[..], special))
    }
}

/// The outcome of an auto-committed operation.
#[derive(Clone, Copy, Default)]
pub(crate) struct AutoOutcome {
    /// Commit time; 0: nothing was changed.
    pub time: u64,
    /// Epoch of its record in the log.
    pub epoch: u64,
    /// The version that it stored.
    pub stored: OwnedVersion,
}

/// See the module documentation.
pub(crate) struct AutoAuthor<'t> {
    system: &'t TxnSystem,
    tree: &'t Arc<OpenTree>,
    /// Hash of tree and key.
    hash: u64,
    /// The newest commit of the session.
    own: u64,
    before: Before,
    pub outcome: AutoOutcome,
    /// The operation changes nothing, because of a commit that is not durable.
    pub relies_on_log: bool,
    /// The value before is large: replacing it takes more than one leaf, and a transaction.
    pub met_large: bool,
}

impl<'t> AutoAuthor<'t> {
    pub fn new(
        system: &'t TxnSystem,
        tree: &'t Arc<OpenTree>,
        key: &[u8],
        own: u64,
        buffer: Vec<u8>,
    ) -> AutoAuthor<'t> {
        let hash = system.versions.record(tree.tree.id(), key).hash;
        system.versions.prefetch(hash);
        AutoAuthor {
            system,
            tree,
            hash,
            own,
            before: Before { bytes: buffer, special: None },
            outcome: AutoOutcome::default(),
            relies_on_log: false,
            met_large: false,
        }
    }

    /// Whether the record may depend on a commit that is not durable.
    #[cold]
    fn may_be_lost(&self, header: &FrameHeader, key: &[u8]) -> bool {
        let bound = self.system.durable().max(self.own);
        if header.version_hint() <= bound {
            return false;
        }
        if self.system.reads == Reads::Newest {
            // The version with the time of this record may have been dropped.
            return true;
        }
        let record = HashedRecord { hash: self.hash, tree: self.tree.tree.id(), key };
        let check = self.system.versions.check(record, None, bound);
        matches!(check, WriteCheck::Conflict(_)) || self.tree.closed.hidden_since(bound).is_some()
    }

    /// Gives the buffer back.
    pub fn into_buffer(self) -> Vec<u8> {
        self.before.bytes
    }
}

impl Author for AutoAuthor<'_> {
    #[inline]
    fn check(
        &mut self,
        header: &FrameHeader,
        key: &[u8],
        before: Option<(&[u8], bool)>,
        change: bool,
    ) -> Result<(), Stop> {
        self.system.clock.prefetch();
        if self.tree.closed.is_closed_to(0) {
            return Err(conflict(self.tree, ConflictWith::Active));
        }
        if header.version_hint() & NO_TIME != 0 {
            let record = HashedRecord { hash: self.hash, tree: self.tree.tree.id(), key };
            let check = self.system.versions.check(record, None, u64::MAX);
            if let WriteCheck::Conflict(with) = check {
                return Err(conflict(self.tree, with));
            }
        }
        if !change {
            self.relies_on_log = self.may_be_lost(header, key);
        }
        if before.is_some_and(|before| before.1 && !is_ghost(before)) {
            self.met_large = true;
            return Err(Stop::Error(Error::Limit("the value before is large".to_string())));
        }
        self.before.set(before);
        Ok(())
    }

    fn txn(&self) -> u64 {
        0
    }

    fn is_auto(&self) -> bool {
        true
    }

    #[inline]
    fn drawn(&mut self) -> Option<u64> {
        // A reader with a snapshot at this time or later finds the leaf latched until the change is
        // done.
        self.outcome.time = self.system.clock.draw();
        Some(self.outcome.time)
    }

    #[inline]
    fn done(&mut self, leaf: &Exclusive<'_>, key: &[u8]) {
        let (time, before) = (self.outcome.time, self.before.get());
        let record = HashedRecord { hash: self.hash, tree: self.tree.tree.id(), key };
        self.outcome.stored = self.system.versions.store_done(record, time, before);
        let header = leaf.header();
        let hint = match Hint::of(header.version_hint()) {
            // A transaction that changed the page may have drawn a later time than this commit, and
            // ended, since this one drew its time.
            Hint::Committed(other) => Hint::Committed(other.max(time)),
            Hint::Unknown(changed) if self.system.oldest_writer() >= changed => {
                Hint::Committed(self.system.clock.now())
            }
            _ => Hint::Unknown(self.system.ids.now()),
        };
        header.set_version_hint(hint.word());
        self.outcome.epoch = epoch_of(leaf.gsn());
    }

    fn may_purge(&self, key: &[u8]) -> bool {
        self.system.may_purge(self.tree, key)
    }
}
