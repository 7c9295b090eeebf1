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
//! There are many shards, and most have a few chains at a time or none. The first few are named beside the
//! lock, in as few cache lines as there are for so many; a table for the others, and the queues, are made when
//! they are needed. That should be seldom: they lie somewhere else, in lines that are in no cache.
//!
//! Items name a chain by its hash. One whose chain is gone, or is not young or due at that time any
//! more, is stale and skipped; one that meets a chain which came later under the same hash only
//! makes that one be looked at once more.

use super::{
    chain::Chain,
    change::{Change, Record, StoreOutcome, WriteCheck},
    clock::Active,
    prune::Rule,
    spare::Spare,
    state::TxnState,
    version::By,
};
use crate::limits::limit;
use hashbrown::{HashTable, hash_table::OccupiedEntry};
use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc};
use wattle_buffer::TreeId;

/// Tables and queues with room for more than this give memory back when it is little used.
const KEEP_ROOM: usize = limit(256, 4);
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

/// Places beside the lock: enough for the records of most groups of neighbours that a transaction changes.
const NEAR: usize = limit(13, 2);

/// What few shards have.
#[derive(Debug, Default)]
struct Rest {
    /// Chains for which there was no place beside the lock.
    table: HashTable<Place>,
    young: Vec<Young>,
    /// Time and hash, smallest time first.
    heap: BinaryHeap<Reverse<(u64, u64)>>,
}

/// What is known beside the lock of what few shards have, so that mostly nobody goes there: that is two
/// lines which are in no cache.
#[derive(Debug, Default)]
struct Far {
    /// A bit for the hash of each chain in the table, and of some that were there since it was empty.
    filter: u32,
    /// Passes have something to look at.
    queued: bool,
}

impl Far {
    fn bit(hash: u64) -> u32 {
        1 << (hash % u64::from(u32::BITS))
    }

    #[inline]
    fn may_have(&self, hash: u64) -> bool {
        self.filter & Far::bit(hash) != 0
    }

    fn added(&mut self, hash: u64) {
        self.filter |= Far::bit(hash);
    }

    fn removed(&mut self, table: &HashTable<Place>) {
        if table.is_empty() {
            self.filter = 0;
        }
    }
}

/// The first few chains.
#[derive(Debug, Default)]
#[repr(C)]
struct Near {
    /// Behind so many places there is nothing. The last one of them has a chain.
    used: usize,
    places: [Place; NEAR],
}

impl Near {
    #[inline]
    fn places(&self) -> &[Place] {
        &self.places[..self.used]
    }

    #[inline]
    fn places_mut(&mut self) -> &mut [Place] {
        &mut self.places[..self.used]
    }

    /// Puts a chain into a free place; gives it back if there is none.
    #[inline]
    fn insert(&mut self, place: Place) -> Option<Place> {
        if let Some(free) = self.places_mut().iter_mut().find(|place| place.chain.is_none()) {
            *free = place;
            return None;
        }
        let Some(free) = self.places.get_mut(self.used) else { return Some(place) };
        *free = place;
        self.used += 1;
        None
    }

    /// After chains were taken out of their places.
    #[inline]
    fn removed(&mut self) {
        let last = self.places().iter().rposition(|place| place.chain.is_some());
        self.used = last.map_or(0, |last| last + 1);
    }
}

/// Where a chain is.
enum Found<'p> {
    Near(&'p mut Near, usize),
    Far(OccupiedEntry<'p, Place>, &'p mut Far),
}

impl Found<'_> {
    fn chain(&mut self) -> &mut Chain {
        let chain = match self {
            Found::Near(near, at) => &mut near.places[*at].chain,
            Found::Far(entry, _) => &mut entry.get_mut().chain,
        };
        chain.as_mut().expect("it was found")
    }

    fn remove(self) -> Box<Chain> {
        let chain = match self {
            Found::Near(near, at) => {
                let chain = near.places[at].chain.take();
                near.removed();
                chain
            }
            Found::Far(entry, far) => {
                let (place, rest) = entry.remove();
                far.removed(rest.into_table());
                place.chain
            }
        };
        chain.expect("it was found")
    }
}

/// Finds the chain under a hash.
#[inline]
fn find<'p>(
    near: &'p mut Near,
    far: &'p mut Far,
    table: impl FnOnce() -> Option<&'p mut HashTable<Place>>,
    hash: u64,
    is: impl Fn(&Chain) -> bool,
) -> Option<Found<'p>> {
    let here = |place: &Place| place.hash == hash && place.chain.as_deref().is_some_and(&is);
    if let Some(at) = near.places().iter().position(here) {
        return Some(Found::Near(near, at));
    }
    if !far.may_have(hash) {
        return None;
    }
    let entry = table()?.find_entry(hash, here).ok()?;
    Some(Found::Far(entry, far))
}

/// What the lock of a shard guards, in the order in which it is needed.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Shard {
    bytes: u64,
    far: Far,
    rest: Option<Box<Rest>>,
    near: Near,
}

/// Beside it are 16 bytes: the copy of its sum, and the lock.
const _: () = assert!(16 + size_of::<Shard>() <= 4 * 64);

impl Shard {
    /// Memory that the chains take.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of chains.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        let near = self.near.places().iter().filter(|place| place.chain.is_some()).count();
        near + self.rest.as_ref().map_or(0, |rest| rest.table.len())
    }

    /// Whether passes have something to look at.
    pub fn is_queued(&self) -> bool {
        self.far.queued
    }

    #[inline]
    pub fn find(&self, hash: u64, tree: TreeId, key: &[u8]) -> Option<&Chain> {
        let is = |chain: &Chain| chain.is_of(tree, key);
        let here = |place: &Place| place.hash == hash && place.chain.as_deref().is_some_and(is);
        let place = match self.near.places().iter().find(|place| here(place)) {
            None if self.far.may_have(hash) => self.rest.as_ref()?.table.find(hash, here),
            near => near,
        };
        place?.chain.as_deref()
    }

    /// All chains.
    pub fn chains(&self) -> impl Iterator<Item = &Chain> {
        let table = self.rest.iter().flat_map(|rest| rest.table.iter());
        self.near.places().iter().chain(table).filter_map(|place| place.chain.as_deref())
    }

    #[inline]
    fn find_mut(&mut self, hash: u64, is: impl Fn(&Chain) -> bool) -> Option<Found<'_>> {
        let Shard { near, far, rest, .. } = self;
        find(near, far, || rest.as_mut().map(|rest| &mut rest.table), hash, is)
    }

    /// Adds a chain that is not there.
    #[inline]
    fn insert(&mut self, hash: u64, chain: Box<Chain>) {
        let place = Place { hash, chain: Some(chain) };
        if let Some(place) = self.near.insert(place) {
            let rest = self.rest.get_or_insert_default();
            rest.table.insert_unique(hash, place, |place| place.hash);
            self.far.added(hash);
        }
    }

    /// Passes have to look at the chain under a hash.
    #[cold]
    fn queue_young(&mut self, hash: u64, writer: u64) {
        self.rest.get_or_insert_default().young.push(Young { hash, writer });
        self.far.queued = true;
    }

    /// Checks, and if the record is free stores that `writer` changes it; see [`super::Versions::store`].
    /// `active` is asked for when a chain has become long.
    #[expect(clippy::too_many_arguments, reason = "one flat call on the path of every write")]
    pub fn check_push(
        &mut self,
        Record { hash, tree, key }: Record<'_>,
        writer: By<'_>,
        snapshot: u64,
        change: &Change<'_>,
        kept: bool,
        horizon: u64,
        active: impl FnOnce() -> Arc<Active>,
        spare: &mut Spare,
    ) -> StoreOutcome {
        let (is_new_young, place);
        match self.find_mut(hash, |chain| chain.is_of(tree, key)) {
            None => {
                let mut chain = Chain::new(tree, key, writer, change, spare);
                self.bytes += chain.bytes();
                chain.young = !kept;
                is_new_young = !kept;
                place = chain.place();
                self.insert(hash, chain);
            }
            Some(mut found) => {
                let chain = found.chain();
                let me = match writer {
                    By::Txn(state) => Some(&**state),
                    By::Done(_) => None,
                };
                match chain.check(me, snapshot) {
                    WriteCheck::Free => {}
                    WriteCheck::Own => {
                        let old_bytes = chain.bytes();
                        chain.make_whole(key, change, spare);
                        let bytes = chain.bytes();
                        self.bytes = self.bytes + bytes - old_bytes;
                        // A value can take less than a patch of all of it.
                        let grown = bytes.saturating_sub(old_bytes);
                        return StoreOutcome { check: WriteCheck::Own, grown, chain: 0 };
                    }
                    check => return StoreOutcome { check, grown: 0, chain: 0 },
                }
                let old_bytes = chain.bytes();
                chain.push(key, writer, change, horizon, spare);
                if chain.is_long() {
                    chain.prune(Rule { horizon, active: &active() }, spare);
                }
                is_new_young = !kept && !std::mem::replace(&mut chain.young, true);
                place = chain.place();
                let bytes = chain.bytes();
                self.bytes = self.bytes + bytes - old_bytes;
            }
        }
        if is_new_young {
            self.queue_young(hash, writer.id());
        }
        StoreOutcome { check: WriteCheck::Free, grown: 0, chain: place }
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
        let found = self.find_mut(hash, |chain| chain.is_of(tree, key));
        let mut found = found.unwrap_or_else(|| panic!("no version of {key:02x?} to take back"));
        let chain = found.chain();
        assert!(
            chain.newest.writer.is(writer),
            "the newest version of {key:02x?} is of another transaction than {}",
            writer.id()
        );
        let old_bytes = chain.bytes();
        if !chain.pop(spare) {
            spare.give_chain(found.remove());
            self.bytes -= old_bytes;
            return;
        }
        // Those who kept the older versions may have come for them when there was this one. An item that there
        // is already can say that it is of this writer, who may go on with other records.
        chain.young = true;
        let (bytes, newest) = (chain.bytes(), chain.newest.writer.id());
        self.bytes = self.bytes + bytes - old_bytes;
        self.queue_young(hash, newest);
    }

    /// Drops the chain under a hash if nobody needs anything of it. Its item in a queue gets stale.
    #[inline]
    pub fn drop_if_old(&mut self, hash: u64, horizon: u64, spare: &mut Spare) {
        if let Some(mut found) = self.find_mut(hash, |_| true)
            && found.chain().is_old(horizon)
        {
            let chain = found.remove();
            self.bytes -= chain.bytes();
            spare.give_chain(chain);
        }
    }

    /// The chain under a hash, if it is still there, is for the passes from here on.
    pub fn take_over(&mut self, hash: u64) {
        if let Some(mut found) = self.find_mut(hash, |_| true) {
            let chain = found.chain();
            if !std::mem::replace(&mut chain.young, true) {
                let newest = chain.newest.writer.id();
                self.queue_young(hash, newest);
            }
        }
    }

    /// Drops what nobody needs of all chains; gives how many versions.
    pub fn sweep(&mut self, rule: Rule<'_>, spare: &mut Spare) -> usize {
        let Shard { near, far, rest, bytes } = self;
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
        near.places_mut().iter_mut().for_each(|place| _ = is_gone(&mut place.chain));
        near.removed();
        if let Some(rest) = rest {
            rest.table.retain(|place| !is_gone(&mut place.chain));
            far.removed(&rest.table);
        }
        dropped
    }

    /// Drops what nobody needs; gives how many versions. `pass` is not 0 and differs from
    /// that of the calls before.
    pub fn collect(&mut self, rule: Rule<'_>, pass: u64, spare: &mut Spare) -> usize {
        let Some(mut rest) = self.rest.take() else { return 0 };
        let used = rest.table.len();
        let (young, due) = (rest.young.len(), rest.heap.len());
        let dropped = self.collect_young(&mut rest, rule, pass, spare)
            + self.collect_due(&mut rest, rule, spare);
        self.far.queued = !rest.young.is_empty() || !rest.heap.is_empty();
        if rest.table.is_empty() && !self.far.queued {
            return dropped;
        }
        // What was little used since the last pass gets smaller.
        let Rest { table, young: list, heap } = &mut *rest;
        if table.capacity() > KEEP_ROOM.max(LITTLE_USED * used) {
            table.shrink_to(2 * used, |place| place.hash);
        }
        if list.capacity() > KEEP_ROOM.max(LITTLE_USED * young) {
            list.shrink_to(2 * young);
        }
        if heap.capacity() > KEEP_ROOM.max(LITTLE_USED * due) {
            heap.shrink_to(2 * due);
        }
        self.rest = Some(rest);
        dropped
    }

    fn collect_young(
        &mut self,
        rest: &mut Rest,
        rule: Rule<'_>,
        pass: u64,
        spare: &mut Spare,
    ) -> usize {
        let Shard { near, far, bytes, .. } = self;
        let Rest { table, young, heap } = rest;
        let mut dropped = 0;
        // The changes of a large transaction stand together: one look at its state is enough.
        let mut undecided = None;
        young.retain_mut(|item| {
            if undecided == Some(item.writer) {
                return true;
            }
            let Some(mut found) = find(near, far, || Some(table), item.hash, |chain| chain.young)
            else {
                return false;
            };
            let chain = found.chain();
            if chain.pass() == pass as u32 {
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
            let decided = ts.is_some_and(|ts| ts <= rule.active.as_of);
            if decided {
                chain.young = false;
                queue(item.hash, chain, heap, spare);
            } else {
                chain.set_pass(pass as u32, spare);
            }
            *bytes = *bytes + chain.bytes() - old_bytes;
            if decided {
                return false;
            }
            item.writer = chain.newest.writer.id();
            if ts.is_none() {
                undecided = Some(item.writer);
            }
            true
        });
        dropped
    }

    fn collect_due(&mut self, rest: &mut Rest, rule: Rule<'_>, spare: &mut Spare) -> usize {
        let Shard { near, far, bytes, .. } = self;
        let Rest { table, heap, .. } = rest;
        let mut dropped = 0;
        while let Some(top) = heap.peek()
            && let Reverse((due, hash)) = *top
            && due <= rule.horizon
        {
            heap.pop();
            let Some(mut found) = find(near, far, || Some(table), hash, |chain| chain.due() == due)
            else {
                continue;
            };
            let chain = found.chain();
            chain.set_due(0, spare);
            if chain.is_old(rule.horizon) {
                dropped += chain.len();
                *bytes -= chain.bytes();
                spare.give_chain(found.remove());
                continue;
            }
            let old_bytes = chain.bytes();
            dropped += chain.prune(rule, spare);
            // Whoever keeps a version that is undecided comes back for the chain, or takes it off.
            if !chain.young && chain.newest.writer.committed_ts().is_some() {
                queue(hash, chain, heap, spare);
            }
            *bytes = *bytes + chain.bytes() - old_bytes;
        }
        dropped
    }
}

/// Puts a chain of committed versions into the heap.
fn queue(
    hash: u64,
    chain: &mut Chain,
    heap: &mut BinaryHeap<Reverse<(u64, u64)>>,
    spare: &mut Spare,
) {
    let oldest = chain.oldest_ts().expect("a chain that is not young is committed");
    if chain.due() != oldest {
        chain.set_due(oldest, spare);
        heap.push(Reverse((oldest, hash)));
    }
}
