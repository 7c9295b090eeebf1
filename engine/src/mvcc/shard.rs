//! One shard of the version index: a table of chains, and two queues of chains to look at when
//! versions are dropped, so that passes need not walk the table.
//!
//! A chain whose newest change may be uncommitted is *undecided*. It has an item in a list, and
//! each pass looks at the whole list. When all changes in the chain are committed, and the
//! collector knows all snapshots up to the newest change, the chain moves to a heap, under the
//! commit time of its oldest version. No version can be dropped before the oldest snapshot has
//! passed that time, so a pass takes only the due chains from the heap. Most chains go the first
//! time that a pass looks at them.
//!
//! A writer may own the versions that it stored and drop them itself, which is mostly before a pass
//! could. The chain of an *owned* version is in no queue until the writer hands it over. If the
//! writer never does, sweeps find it.
//!
//! There are many shards, and most have few chains or none. The first few chains are *inline*,
//! beside the lock, in as few cache lines as possible. A table for further chains (*overflow*), and
//! the queues, are allocated when they are needed. That should be seldom: they are elsewhere, in
//! lines that no cache has.
//!
//! Items name a chain by its hash. An item whose chain is gone, or is not undecided or not due at
//! that time, is stale and skipped. An item may meet a newer chain with the same hash; then that is
//! looked at once more.

use super::{
    chain::Chain,
    change::{Change, HashedRecord, StoreOutcome, WriteCheck},
    clock::Active,
    prune::Rule,
    spare::Spare,
    state::TxnState,
    version::WriterRef,
};
use crate::limits::limit;
use hashbrown::{HashTable, hash_table::OccupiedEntry};
use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc};
use wattle_buffer::TreeId;

/// Tables and queues with room for more items than this are shrunk when few are used.
const KEEP_ROOM: usize = limit(256, 4);
/// Few: less than one part in this many since the last pass.
const LITTLE_USED: usize = 8;

/// An undecided chain, and the writer of its newest version at the last look.
#[derive(Debug)]
struct UndecidedChain {
    hash: u64,
    writer: u64,
}

/// A place for a chain. The hash is stored here, too, so that a table grows without reading its
/// chains.
#[derive(Debug, Default)]
struct ChainPlace {
    hash: u64,
    /// None only in an inline place.
    chain: Option<Box<Chain>>,
}

/// Number of inline places: enough for the records of most groups of neighbours that a transaction
/// changes.
const INLINE_CHAINS: usize = limit(13, 2);

/// The parts of a shard that few shards need.
#[derive(Debug, Default)]
struct Overflow {
    /// Chains without an inline place.
    table: HashTable<ChainPlace>,
    undecided: Vec<UndecidedChain>,
    /// Commit time and hash, smallest time first.
    heap: BinaryHeap<Reverse<(u64, u64)>>,
}

/// A summary of the parts elsewhere, beside the lock. Mostly it saves reading them: two lines that
/// no cache has.
#[derive(Debug, Default)]
struct OverflowSummary {
    /// A bit for the hash of each chain in the table; bits of removed chains stay until it is
    /// empty.
    filter: u32,
    /// Passes have chains to look at.
    queued: bool,
}

impl OverflowSummary {
    fn bit(hash: u64) -> u32 {
        1 << (hash % u64::from(u32::BITS))
    }

    #[inline]
    fn may_have(&self, hash: u64) -> bool {
        self.filter & OverflowSummary::bit(hash) != 0
    }

    fn added(&mut self, hash: u64) {
        self.filter |= OverflowSummary::bit(hash);
    }

    fn removed(&mut self, table: &HashTable<ChainPlace>) {
        if table.is_empty() {
            self.filter = 0;
        }
    }
}

/// The inline chains.
#[derive(Debug, Default)]
#[repr(C)]
struct InlineChains {
    /// The places from here on are empty. The last one before has a chain.
    used: usize,
    places: [ChainPlace; INLINE_CHAINS],
}

impl InlineChains {
    #[inline]
    fn places(&self) -> &[ChainPlace] {
        &self.places[..self.used]
    }

    #[inline]
    fn places_mut(&mut self) -> &mut [ChainPlace] {
        &mut self.places[..self.used]
    }

    /// Puts a chain into a free place; gives it back if there is none.
    #[inline]
    fn insert(&mut self, place: ChainPlace) -> Option<ChainPlace> {
        if let Some(free) = self.places_mut().iter_mut().find(|place| place.chain.is_none()) {
            *free = place;
            return None;
        }
        let Some(free) = self.places.get_mut(self.used) else { return Some(place) };
        *free = place;
        self.used += 1;
        None
    }

    /// Updates `used` after chains were removed.
    #[inline]
    fn removed(&mut self) {
        let last = self.places().iter().rposition(|place| place.chain.is_some());
        self.used = last.map_or(0, |last| last + 1);
    }
}

/// The place of a chain.
enum FoundChain<'p> {
    Inline(&'p mut InlineChains, usize),
    Overflow(OccupiedEntry<'p, ChainPlace>, &'p mut OverflowSummary),
}

impl FoundChain<'_> {
    fn chain(&mut self) -> &mut Chain {
        let chain = match self {
            FoundChain::Inline(inline, at) => &mut inline.places[*at].chain,
            FoundChain::Overflow(entry, _) => &mut entry.get_mut().chain,
        };
        chain.as_mut().expect("it was found")
    }

    fn remove(self) -> Box<Chain> {
        let chain = match self {
            FoundChain::Inline(inline, at) => {
                let chain = inline.places[at].chain.take();
                inline.removed();
                chain
            }
            FoundChain::Overflow(entry, summary) => {
                let (place, vacant) = entry.remove();
                summary.removed(vacant.into_table());
                place.chain
            }
        };
        chain.expect("it was found")
    }
}

/// Finds the chain under a hash.
#[inline]
fn find<'p>(
    inline: &'p mut InlineChains,
    summary: &'p mut OverflowSummary,
    table: impl FnOnce() -> Option<&'p mut HashTable<ChainPlace>>,
    hash: u64,
    is: impl Fn(&Chain) -> bool,
) -> Option<FoundChain<'p>> {
    let here = |place: &ChainPlace| place.hash == hash && place.chain.as_deref().is_some_and(&is);
    if let Some(at) = inline.places().iter().position(here) {
        return Some(FoundChain::Inline(inline, at));
    }
    if !summary.may_have(hash) {
        return None;
    }
    let entry = table()?.find_entry(hash, here).ok()?;
    Some(FoundChain::Overflow(entry, summary))
}

/// The data under the lock of a shard, in the order in which it is used.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Shard {
    bytes: u64,
    summary: OverflowSummary,
    overflow: Option<Box<Overflow>>,
    inline: InlineChains,
}

/// Beside it are 16 bytes: the copy of its byte count, and the lock.
const _: () = assert!(16 + size_of::<Shard>() <= 4 * 64);

impl Shard {
    /// Memory of the chains, bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of chains.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        let inline = self.inline.places().iter().filter(|place| place.chain.is_some()).count();
        inline + self.overflow.as_ref().map_or(0, |overflow| overflow.table.len())
    }

    /// True if passes have chains to look at.
    pub fn is_queued(&self) -> bool {
        self.summary.queued
    }

    #[inline]
    pub fn find(&self, hash: u64, tree: TreeId, key: &[u8]) -> Option<&Chain> {
        let is = |chain: &Chain| chain.is_of(tree, key);
        let here =
            |place: &ChainPlace| place.hash == hash && place.chain.as_deref().is_some_and(is);
        let place = match self.inline.places().iter().find(|place| here(place)) {
            None if self.summary.may_have(hash) => self.overflow.as_ref()?.table.find(hash, here),
            inline => inline,
        };
        place?.chain.as_deref()
    }

    /// All chains.
    pub fn chains(&self) -> impl Iterator<Item = &Chain> {
        let table = self.overflow.iter().flat_map(|overflow| overflow.table.iter());
        self.inline.places().iter().chain(table).filter_map(|place| place.chain.as_deref())
    }

    #[inline]
    fn find_mut(&mut self, hash: u64, is: impl Fn(&Chain) -> bool) -> Option<FoundChain<'_>> {
        let Shard { inline, summary, overflow, .. } = self;
        find(inline, summary, || overflow.as_mut().map(|overflow| &mut overflow.table), hash, is)
    }

    /// Adds a chain for a hash and record that has none.
    #[inline]
    fn insert(&mut self, hash: u64, chain: Box<Chain>) {
        debug_assert!(self.find(hash, chain.tree, chain.key()).is_none(), "a second chain");
        let place = ChainPlace { hash, chain: Some(chain) };
        if let Some(place) = self.inline.insert(place) {
            let overflow = self.overflow.get_or_insert_default();
            overflow.table.insert_unique(hash, place, |place| place.hash);
            self.summary.added(hash);
        }
    }

    /// Queues the chain under a hash for the passes.
    #[cold]
    fn queue_undecided(&mut self, hash: u64, writer: u64) {
        self.overflow.get_or_insert_default().undecided.push(UndecidedChain { hash, writer });
        self.summary.queued = true;
    }

    /// Checks, and if the record is free stores that `writer` changes it; see
    /// [`super::Versions::store`]. Calls `active` only when a chain has become long.
    #[expect(clippy::too_many_arguments, reason = "one flat call on the path of every write")]
    pub fn check_push(
        &mut self,
        HashedRecord { hash, tree, key }: HashedRecord<'_>,
        writer: WriterRef<'_>,
        snapshot: u64,
        change: &Change<'_>,
        owned: bool,
        horizon: u64,
        active: impl FnOnce() -> Arc<Active>,
        spare: &mut Spare,
    ) -> StoreOutcome {
        let (is_new_undecided, place);
        match self.find_mut(hash, |chain| chain.is_of(tree, key)) {
            None => {
                let mut chain = Chain::new(tree, key, writer, change, spare);
                self.bytes += chain.bytes();
                chain.undecided = !owned;
                is_new_undecided = !owned;
                place = chain.place();
                self.insert(hash, chain);
            }
            Some(mut found) => {
                let chain = found.chain();
                let me = match writer {
                    WriterRef::Txn(state) => Some(&**state),
                    WriterRef::Done(_) => None,
                };
                match chain.check(me, snapshot) {
                    WriteCheck::Free => {}
                    WriteCheck::Own => {
                        let old_bytes = chain.bytes();
                        chain.make_whole(key, change, spare);
                        let bytes = chain.bytes();
                        self.bytes = self.bytes + bytes - old_bytes;
                        // A whole value can take less memory than a patch of all of it.
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
                is_new_undecided = !owned && !std::mem::replace(&mut chain.undecided, true);
                place = chain.place();
                let bytes = chain.bytes();
                self.bytes = self.bytes + bytes - old_bytes;
            }
        }
        if is_new_undecided {
            self.queue_undecided(hash, writer.id());
        }
        StoreOutcome { check: WriteCheck::Free, grown: 0, chain: place }
    }

    /// Removes the newest version of the record, which is `writer`'s.
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
        // The owners of the older versions may have tried to drop them while this version was
        // there, so queue the chain. An item that it has already may name this writer, who may
        // continue with other records.
        chain.undecided = true;
        let (bytes, newest) = (chain.bytes(), chain.newest.writer.id());
        self.bytes = self.bytes + bytes - old_bytes;
        self.queue_undecided(hash, newest);
    }

    /// Drops the chain under a hash if no snapshot needs it. Its item in a queue becomes stale.
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

    /// Hands the chain under a hash, if it is still there, over to the passes.
    pub fn take_over(&mut self, hash: u64) {
        if let Some(mut found) = self.find_mut(hash, |_| true) {
            let chain = found.chain();
            if !std::mem::replace(&mut chain.undecided, true) {
                let newest = chain.newest.writer.id();
                self.queue_undecided(hash, newest);
            }
        }
    }

    /// Drops the versions of all chains that no snapshot needs; gives how many.
    pub fn sweep(&mut self, rule: Rule<'_>, spare: &mut Spare) -> usize {
        let Shard { inline, summary, overflow, bytes } = self;
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
        inline.places_mut().iter_mut().for_each(|place| _ = is_gone(&mut place.chain));
        inline.removed();
        if let Some(overflow) = overflow {
            overflow.table.retain(|place| !is_gone(&mut place.chain));
            summary.removed(&overflow.table);
        }
        dropped
    }

    /// Drops the versions of queued chains that no snapshot needs; gives how many. `pass` is not 0,
    /// and differs from that of earlier calls.
    pub fn collect(&mut self, rule: Rule<'_>, pass: u64, spare: &mut Spare) -> usize {
        debug_assert_ne!(pass, 0, "0 is the pass of chains that no pass has seen");
        let Some(mut overflow) = self.overflow.take() else { return 0 };
        let used = overflow.table.len();
        let (undecided, due) = (overflow.undecided.len(), overflow.heap.len());
        let dropped = self.collect_undecided(&mut overflow, rule, pass, spare)
            + self.collect_due(&mut overflow, rule, spare);
        self.summary.queued = !overflow.undecided.is_empty() || !overflow.heap.is_empty();
        if overflow.table.is_empty() && !self.summary.queued {
            return dropped;
        }
        // Shrink the parts of which few items were used since the last pass.
        let Overflow { table, undecided: list, heap } = &mut *overflow;
        if table.capacity() > KEEP_ROOM.max(LITTLE_USED * used) {
            table.shrink_to(2 * used, |place| place.hash);
        }
        if list.capacity() > KEEP_ROOM.max(LITTLE_USED * undecided) {
            list.shrink_to(2 * undecided);
        }
        if heap.capacity() > KEEP_ROOM.max(LITTLE_USED * due) {
            heap.shrink_to(2 * due);
        }
        self.overflow = Some(overflow);
        dropped
    }

    fn collect_undecided(
        &mut self,
        overflow: &mut Overflow,
        rule: Rule<'_>,
        pass: u64,
        spare: &mut Spare,
    ) -> usize {
        let Shard { inline, summary, bytes, .. } = self;
        let Overflow { table, undecided, heap } = overflow;
        let mut dropped = 0;
        // The changes of a large transaction are adjacent: one look at its state is enough.
        let mut undecided_writer = None;
        undecided.retain_mut(|item| {
            if undecided_writer == Some(item.writer) {
                return true;
            }
            let Some(mut found) =
                find(inline, summary, || Some(table), item.hash, |chain| chain.undecided)
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
                chain.undecided = false;
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
                undecided_writer = Some(item.writer);
            }
            true
        });
        dropped
    }

    fn collect_due(&mut self, overflow: &mut Overflow, rule: Rule<'_>, spare: &mut Spare) -> usize {
        let Shard { inline, summary, bytes, .. } = self;
        let Overflow { table, heap, .. } = overflow;
        let mut dropped = 0;
        while let Some(top) = heap.peek()
            && let Reverse((due, hash)) = *top
            && due <= rule.horizon
        {
            heap.pop();
            let Some(mut found) =
                find(inline, summary, || Some(table), hash, |chain| chain.due() == due)
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
            // The owner of an undecided version comes back for the chain, or removes the version.
            if !chain.undecided && chain.newest.writer.committed_ts().is_some() {
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
    let oldest = chain.oldest_ts().expect("a chain that is not undecided is committed");
    if chain.due() != oldest {
        chain.set_due(oldest, spare);
        heap.push(Reverse((oldest, hash)));
    }
}
