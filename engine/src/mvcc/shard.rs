//! One shard of the version index: a table of chains, and two queues that say which of them to look
//! at when versions are dropped, so that nobody walks the table.
//!
//! A chain whose newest change may be undecided is *young*: it has an item in a list, and each pass
//! looks at all of that list. When everything in the chain is committed and the collector knows all
//! snapshots up to its newest change, it moves to a heap under the time of its oldest version. That
//! cannot be dropped before the oldest snapshot has passed that time, so a pass takes from the heap
//! only what is due. Most chains go the first time they are looked at.
//!
//! Items name a chain by its hash. One whose chain is gone, or is not young or due at that time any
//! more, is stale and skipped; one that meets a chain which came later under the same hash only
//! makes that one be looked at once more.

use super::{
    chain::{By, Chain, Rule, Spare},
    clock::Active,
    state::TxnState,
    versions::{ConflictWith, WriteCheck},
};
use hashbrown::{HashTable, hash_table::Entry};
use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc};
use wattle_buffer::TreeId;

/// Tables and queues with room for more than this give memory back when it is little used.
const KEEP_ROOM: usize = 256;
/// Used to less than one part in this many, since the last pass.
const LITTLE_USED: usize = 8;

/// A young chain, and who wrote its newest version when it was last looked at.
#[derive(Debug)]
struct Young {
    hash: u64,
    writer: u64,
}

/// A place in the table. The hash is here as well as beside the chain's items, so that the table
/// grows without looking at its chains.
#[derive(Debug)]
struct Place {
    hash: u64,
    chain: Box<Chain>,
}

/// What the lock of a shard guards.
#[derive(Debug, Default)]
pub(super) struct Shard {
    table: HashTable<Place>,
    young: Vec<Young>,
    /// Time and hash, smallest time first.
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    bytes: u64,
}

impl Shard {
    /// Memory that the chains take.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of chains.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    #[inline]
    pub fn find(&self, hash: u64, tree: TreeId, key: &[u8]) -> Option<&Chain> {
        self.table.find(hash, is(hash, tree, key)).map(|place| &*place.chain)
    }

    /// Checks, and if the record is free stores that `writer` changed it. `active` is asked for
    /// when a chain has become long.
    #[expect(clippy::too_many_arguments, reason = "one flat call on the path of every write")]
    pub fn check_push(
        &mut self,
        hash: u64,
        tree: TreeId,
        key: &[u8],
        writer: By<'_>,
        snapshot: u64,
        before: Option<(&[u8], bool)>,
        horizon: u64,
        active: impl FnOnce() -> Arc<Active>,
        spare: &mut Spare,
    ) -> WriteCheck {
        let Shard { table, young, bytes, .. } = self;
        let chain = match table.entry(hash, is(hash, tree, key), |place| place.hash) {
            Entry::Vacant(entry) => {
                let chain = Chain::new(tree, key, writer, before, spare);
                *bytes += chain.bytes();
                &mut entry.insert(Place { hash, chain }).into_mut().chain
            }
            Entry::Occupied(entry) => {
                let chain = &mut entry.into_mut().chain;
                let me = match writer {
                    By::Txn(state) => Some(state),
                    By::Done(_) => None,
                };
                match chain.check(me, snapshot) {
                    WriteCheck::Free => {}
                    other => return other,
                }
                let old_bytes = chain.bytes();
                chain.push(key, writer, before, horizon, spare);
                if chain.is_long() {
                    chain.prune(Rule { horizon, active: &active() }, spare);
                }
                *bytes = *bytes + chain.bytes() - old_bytes;
                chain
            }
        };
        if !chain.young {
            chain.young = true;
            young.push(Young { hash, writer: writer.id() });
        }
        WriteCheck::Free
    }

    /// Takes back the newest version of the record, which is `writer`'s.
    pub fn pop(
        &mut self,
        hash: u64,
        tree: TreeId,
        key: &[u8],
        writer: &TxnState,
        spare: &mut Spare,
    ) {
        let Shard { table, bytes, .. } = self;
        let entry = table.find_entry(hash, is(hash, tree, key));
        let mut entry = entry.unwrap_or_else(|_| panic!("no version of {key:02x?} to take back"));
        let chain = &mut entry.get_mut().chain;
        assert!(
            chain.newest.writer.is(writer),
            "the newest version of {key:02x?} is of another transaction than {}",
            writer.id()
        );
        let old_bytes = chain.bytes();
        if chain.pop(spare) {
            *bytes = *bytes + chain.bytes() - old_bytes;
        } else {
            *bytes -= old_bytes;
            spare.give_chain(entry.remove().0.chain);
        }
    }

    /// Drops the chain under a hash if nobody needs anything of it. Its item in a queue gets stale.
    #[inline]
    pub fn drop_if_old(&mut self, hash: u64, horizon: u64, spare: &mut Spare) {
        if let Ok(entry) = self.table.find_entry(hash, |place| place.hash == hash)
            && entry.get().chain.is_old(horizon)
        {
            self.bytes -= entry.get().chain.bytes();
            spare.give_chain(entry.remove().0.chain);
        }
    }

    /// Drops what nobody needs; gives how many versions. `pass` is not 0 and differs from
    /// that of the calls before.
    pub fn collect(&mut self, rule: Rule<'_>, pass: u64, spare: &mut Spare) -> usize {
        let used = self.table.len();
        let (young, due) = (self.young.len(), self.heap.len());
        let dropped = self.collect_young(rule, pass, spare) + self.collect_due(rule, spare);
        // What was little used since the last pass gets smaller.
        if self.table.capacity() > KEEP_ROOM.max(LITTLE_USED * used) {
            self.table.shrink_to(2 * used, |place| place.hash);
        }
        if self.young.capacity() > KEEP_ROOM.max(LITTLE_USED * young) {
            self.young.shrink_to(2 * young);
        }
        if self.heap.capacity() > KEEP_ROOM.max(LITTLE_USED * due) {
            self.heap.shrink_to(2 * due);
        }
        dropped
    }

    fn collect_young(&mut self, rule: Rule<'_>, pass: u64, spare: &mut Spare) -> usize {
        let Shard { table, young, heap, bytes } = self;
        let mut dropped = 0;
        // The changes of a large transaction stand together: one look at its state is enough.
        let mut undecided = None;
        young.retain_mut(|item| {
            if undecided == Some(item.writer) {
                return true;
            }
            let is = |place: &Place| place.hash == item.hash && place.chain.young;
            let Ok(mut entry) = table.find_entry(item.hash, is) else {
                return false;
            };
            let chain = &mut entry.get_mut().chain;
            if chain.pass == pass {
                return false;
            }
            if chain.is_old(rule.horizon) {
                dropped += chain.len();
                *bytes -= chain.bytes();
                spare.give_chain(entry.remove().0.chain);
                return false;
            }
            let ts = chain.newest.writer.committed_ts();
            let old_bytes = chain.bytes();
            dropped += chain.prune(rule, spare);
            *bytes = *bytes + chain.bytes() - old_bytes;
            if let Some(ts) = ts
                && ts <= rule.active.as_of
            {
                chain.young = false;
                queue(item.hash, chain, heap);
                return false;
            }
            chain.pass = pass;
            item.writer = chain.newest.writer.id();
            if ts.is_none() {
                undecided = Some(item.writer);
            }
            true
        });
        dropped
    }

    fn collect_due(&mut self, rule: Rule<'_>, spare: &mut Spare) -> usize {
        let Shard { table, heap, bytes, .. } = self;
        let mut dropped = 0;
        while let Some(top) = heap.peek()
            && let Reverse((due, hash)) = *top
            && due <= rule.horizon
        {
            heap.pop();
            let is = |place: &Place| place.hash == hash && place.chain.due == due;
            let Ok(mut entry) = table.find_entry(hash, is) else {
                continue;
            };
            let chain = &mut entry.get_mut().chain;
            chain.due = 0;
            if chain.is_old(rule.horizon) {
                dropped += chain.len();
                *bytes -= chain.bytes();
                spare.give_chain(entry.remove().0.chain);
                continue;
            }
            let old_bytes = chain.bytes();
            dropped += chain.prune(rule, spare);
            *bytes = *bytes + chain.bytes() - old_bytes;
            if !chain.young {
                queue(hash, chain, heap);
            }
        }
        dropped
    }
}

/// Whether a place has the chain of a record.
fn is(hash: u64, tree: TreeId, key: &[u8]) -> impl Fn(&Place) -> bool {
    move |place| place.hash == hash && place.chain.is_of(tree, key)
}

/// Puts a chain of committed versions into the heap.
fn queue(hash: u64, chain: &mut Chain, heap: &mut BinaryHeap<Reverse<(u64, u64)>>) {
    let oldest = chain.oldest_ts().expect("a chain that is not young is committed");
    if chain.due != oldest {
        chain.due = oldest;
        heap.push(Reverse((oldest, hash)));
    }
}
