//! One shard of the version index: a table of chains, and two queues that say which of them to look
//! at when versions are dropped, so that nobody walks the table.
//!
//! A chain whose newest change may be undecided is *young*: it has an item in a list, and each pass
//! looks at all of that list. When everything in the chain is committed and the collector knows all
//! snapshots up to its newest change, it moves to a heap under the time of its oldest version. That
//! cannot be dropped before the oldest snapshot has passed that time, so a pass takes from the heap
//! only what is due. Most chains go the first time they are looked at.
//!
//! A writer may keep the hash of what it stored and drop it itself, which it mostly does before anybody
//! else could. Such a chain is *kept*: it is in no queue until the writer hands it over, and only sweeps
//! find it if the writer does not come back.
//!
//! Most shards have a handful of chains. The first few are named beside the lock, on the same two cache
//! lines, which another core mostly wrote last; the others are in a table.
//!
//! Items name a chain by its hash. One whose chain is gone, or is not young or due at that time any
//! more, is stale and skipped; one that meets a chain which came later under the same hash only
//! makes that one be looked at once more.

use super::{
    chain::{By, Chain, Rule, Spare},
    clock::Active,
    state::TxnState,
    versions::{ConflictWith, Record, WriteCheck},
};
use hashbrown::{HashTable, hash_table::OccupiedEntry};
use std::{cmp::Reverse, collections::BinaryHeap, mem::offset_of, sync::Arc};
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

/// A place for a chain. The hash is here as well as beside the chain's items, so that a table grows
/// without looking at its chains.
#[derive(Debug, Default)]
struct Place {
    hash: u64,
    /// None only in a place beside the lock.
    chain: Option<Box<Chain>>,
}

/// Places beside the lock.
const NEAR: usize = 4;

/// The chains of a shard.
#[derive(Debug, Default)]
#[repr(C)]
struct Places {
    /// Number of those in the table.
    far: usize,
    near: [Place; NEAR],
    table: HashTable<Place>,
}

/// Where a chain is.
enum Found<'p> {
    Near(&'p mut Option<Box<Chain>>),
    Far(OccupiedEntry<'p, Place>, &'p mut usize),
}

impl Found<'_> {
    fn chain(&mut self) -> &mut Chain {
        let chain = match self {
            Found::Near(chain) => &mut **chain,
            Found::Far(entry, _) => &mut entry.get_mut().chain,
        };
        chain.as_mut().expect("it was found")
    }

    fn remove(self) -> Box<Chain> {
        let chain = match self {
            Found::Near(chain) => chain.take(),
            Found::Far(entry, far) => {
                *far -= 1;
                entry.remove().0.chain
            }
        };
        chain.expect("it was found")
    }
}

impl Places {
    fn len(&self) -> usize {
        self.far + self.near.iter().filter(|place| place.chain.is_some()).count()
    }

    #[inline]
    fn get(&self, hash: u64, is: impl Fn(&Chain) -> bool) -> Option<&Chain> {
        let here = |place: &Place| place.hash == hash && place.chain.as_deref().is_some_and(&is);
        let near = self.near.iter().find(|place| here(place));
        let place = match near {
            None if self.far > 0 => self.table.find(hash, here),
            near => near,
        };
        place?.chain.as_deref()
    }

    #[inline]
    fn find(&mut self, hash: u64, is: impl Fn(&Chain) -> bool) -> Option<Found<'_>> {
        let here = |place: &Place| place.hash == hash && place.chain.as_deref().is_some_and(&is);
        if let Some(place) = self.near.iter_mut().find(|place| here(place)) {
            return Some(Found::Near(&mut place.chain));
        }
        if self.far == 0 {
            return None;
        }
        let entry = self.table.find_entry(hash, here).ok()?;
        Some(Found::Far(entry, &mut self.far))
    }

    /// Adds a chain that is not there.
    #[inline]
    fn insert(&mut self, hash: u64, chain: Box<Chain>) {
        let place = Place { hash, chain: Some(chain) };
        if let Some(free) = self.near.iter_mut().find(|place| place.chain.is_none()) {
            *free = place;
        } else {
            self.far += 1;
            self.table.insert_unique(hash, place, |place| place.hash);
        }
    }
}

/// What the lock of a shard guards; what each write needs comes first.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Shard {
    young: Vec<Young>,
    bytes: u64,
    places: Places,
    /// Time and hash, smallest time first.
    heap: BinaryHeap<Reverse<(u64, u64)>>,
}

/// In front of it are 16 bytes: the copy of its sum, and the lock.
const _: () = assert!(16 + offset_of!(Shard, places) + offset_of!(Places, table) <= 2 * 64);

impl Shard {
    /// Memory that the chains take.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of chains.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    #[inline]
    pub fn find(&self, hash: u64, tree: TreeId, key: &[u8]) -> Option<&Chain> {
        self.places.get(hash, |chain| chain.is_of(tree, key))
    }

    /// Checks, and if the record is free stores that `writer` changed it; see [`super::Versions::store`].
    /// `active` is asked for when a chain has become long.
    #[expect(clippy::too_many_arguments, reason = "one flat call on the path of every write")]
    pub fn check_push(
        &mut self,
        Record { hash, tree, key }: Record<'_>,
        writer: By<'_>,
        snapshot: u64,
        before: Option<(&[u8], bool)>,
        kept: bool,
        horizon: u64,
        active: impl FnOnce() -> Arc<Active>,
        spare: &mut Spare,
    ) -> WriteCheck {
        let Shard { places, young, bytes, .. } = self;
        let item = || Young { hash, writer: writer.id() };
        match places.find(hash, |chain| chain.is_of(tree, key)) {
            None => {
                let mut chain = Chain::new(tree, key, writer, before, spare);
                *bytes += chain.bytes();
                chain.young = !kept;
                if !kept {
                    young.push(item());
                }
                places.insert(hash, chain);
            }
            Some(mut found) => {
                let chain = found.chain();
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
                if !kept && !std::mem::replace(&mut chain.young, true) {
                    young.push(item());
                }
            }
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
        let Shard { places, young, bytes, .. } = self;
        let found = places.find(hash, |chain| chain.is_of(tree, key));
        let mut found = found.unwrap_or_else(|| panic!("no version of {key:02x?} to take back"));
        let chain = found.chain();
        assert!(
            chain.newest.writer.is(writer),
            "the newest version of {key:02x?} is of another transaction than {}",
            writer.id()
        );
        let old_bytes = chain.bytes();
        if chain.pop(spare) {
            *bytes = *bytes + chain.bytes() - old_bytes;
            // Those who kept the older versions may have come for them when there was this one.
            if !std::mem::replace(&mut chain.young, true) {
                young.push(Young { hash, writer: chain.newest.writer.id() });
            }
        } else {
            *bytes -= old_bytes;
            spare.give_chain(found.remove());
        }
    }

    /// Drops the chain under a hash if nobody needs anything of it. Its item in a queue gets stale.
    #[inline]
    pub fn drop_if_old(&mut self, hash: u64, horizon: u64, spare: &mut Spare) {
        if let Some(mut found) = self.places.find(hash, |_| true)
            && found.chain().is_old(horizon)
        {
            self.bytes -= found.chain().bytes();
            spare.give_chain(found.remove());
        }
    }

    /// The chain under a hash, if it is still there, is for the passes from here on.
    pub fn take_over(&mut self, hash: u64) {
        let Shard { places, young, .. } = self;
        if let Some(mut found) = places.find(hash, |_| true) {
            let chain = found.chain();
            if !std::mem::replace(&mut chain.young, true) {
                young.push(Young { hash, writer: chain.newest.writer.id() });
            }
        }
    }

    /// Drops what nobody needs of all chains; gives how many versions.
    pub fn sweep(&mut self, rule: Rule<'_>, spare: &mut Spare) -> usize {
        let Shard { places, bytes, .. } = self;
        let mut dropped = 0;
        let mut is_gone = |chain: &mut Option<Box<Chain>>| {
            let Some(mut visited) = chain.take() else { return true };
            let old_bytes = visited.bytes();
            if visited.is_old(rule.horizon) {
                dropped += visited.len();
                *bytes -= old_bytes;
                spare.give_chain(visited);
                return true;
            }
            dropped += visited.prune(rule, spare);
            *bytes = *bytes + visited.bytes() - old_bytes;
            *chain = Some(visited);
            false
        };
        places.near.iter_mut().for_each(|place| _ = is_gone(&mut place.chain));
        places.table.retain(|place| !is_gone(&mut place.chain));
        places.far = places.table.len();
        dropped
    }

    /// Drops what nobody needs; gives how many versions. `pass` is not 0 and differs from
    /// that of the calls before.
    pub fn collect(&mut self, rule: Rule<'_>, pass: u64, spare: &mut Spare) -> usize {
        let used = self.places.far;
        let (young, due) = (self.young.len(), self.heap.len());
        let dropped = self.collect_young(rule, pass, spare) + self.collect_due(rule, spare);
        // What was little used since the last pass gets smaller.
        let table = &mut self.places.table;
        if table.capacity() > KEEP_ROOM.max(LITTLE_USED * used) {
            table.shrink_to(2 * used, |place| place.hash);
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
        let Shard { places, young, heap, bytes } = self;
        let mut dropped = 0;
        // The changes of a large transaction stand together: one look at its state is enough.
        let mut undecided = None;
        young.retain_mut(|item| {
            if undecided == Some(item.writer) {
                return true;
            }
            let Some(mut found) = places.find(item.hash, |chain| chain.young) else {
                return false;
            };
            let chain = found.chain();
            if chain.pass == pass {
                return false;
            }
            if chain.is_old(rule.horizon) {
                dropped += chain.len();
                *bytes -= chain.bytes();
                spare.give_chain(found.remove());
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
        let Shard { places, heap, bytes, .. } = self;
        let mut dropped = 0;
        while let Some(top) = heap.peek()
            && let Reverse((due, hash)) = *top
            && due <= rule.horizon
        {
            heap.pop();
            let Some(mut found) = places.find(hash, |chain| chain.due == due) else {
                continue;
            };
            let chain = found.chain();
            chain.due = 0;
            if chain.is_old(rule.horizon) {
                dropped += chain.len();
                *bytes -= chain.bytes();
                spare.give_chain(found.remove());
                continue;
            }
            let old_bytes = chain.bytes();
            dropped += chain.prune(rule, spare);
            *bytes = *bytes + chain.bytes() - old_bytes;
            // Whoever keeps a version that is undecided comes back for the chain, or takes it off.
            if !chain.young && chain.newest.writer.committed_ts().is_some() {
                queue(hash, chain, heap);
            }
        }
        dropped
    }
}

/// Puts a chain of committed versions into the heap.
fn queue(hash: u64, chain: &mut Chain, heap: &mut BinaryHeap<Reverse<(u64, u64)>>) {
    let oldest = chain.oldest_ts().expect("a chain that is not young is committed");
    if chain.due != oldest {
        chain.due = oldest;
        heap.push(Reverse((oldest, hash)));
    }
}
