//! The version index: older versions of records, by tree and key, in memory only.
//!
//! Protocol. A writer holds the exclusive latch of the leaf from before [`Versions::store`] until
//! it has changed the page, or has taken the version back. A rollback holds the latch from before
//! it restores the page until after [`Versions::pop`]. A version that is stored before its change
//! equals the page. A reader reads the record in the page, asks [`Versions::read`], and only then
//! validates the page (or holds its latch all the while). So page and index match: if the page
//! changed in between, the reader starts again.
//!
//! Dropping versions needs no latch: no snapshot asks for a dropped version. A reader whose
//! snapshot may have been cancelled meanwhile must check [`super::SnapshotSlot::is_cancelled`]
//! after the read.
//!
//! The index has many shards with a lock each, and no thread holds two of these locks. Records
//! whose keys differ only in the last byte share a shard. They mostly share a leaf, too, whose
//! latch their writers take in turn anyway, so they wait no longer. Threads on disjoint key ranges
//! then do not share shard cache lines; a transfer between cores costs about half a write. For
//! that, there are many more shards than threads.

use super::{
    chain,
    change::{Change, HashedRecord, OwnedVersion, StoreOutcome, Undone, WriteCheck},
    clock::Active,
    look::{Look, Restore},
    prune::Rule,
    seen::{Changed, Visible},
    shard::Shard,
    spare::Spare,
    state::TxnState,
    version::WriterRef,
};
use crate::limits::limit;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use std::{
    hash::{BuildHasher, Hasher},
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{AcqRel, Acquire, Relaxed},
        },
    },
};
use wattle_buffer::{BriefGuard, BriefMutex, Owner, TreeId, prefetch_write, processors};

/// Shards for each core.
const SHARDS_PER_CORE: usize = limit(1024, 16);
/// Loops over many versions prefetch shard and chain of a version so many versions ahead.
const VERSIONS_AHEAD: usize = 3;
/// Fewest and most shards, powers of two.
const SHARDS: (usize, usize) = (limit(1 << 11, 1 << 6), 1 << 16);
/// Position of the shard number in a hash. The table tells chains apart by the top seven bits of
/// the hash, and finds their place by the low ones.
const SHARD_SHIFT: u32 = 41;
const SHARD_BITS: u64 = (SHARDS.1 as u64 - 1) << SHARD_SHIFT;

const _: () = assert!(SHARDS.0.is_power_of_two() && SHARDS.1.is_power_of_two());
const _: () = assert!(SHARD_SHIFT + SHARDS.1.ilog2() <= 64 - 7);

/// A shard, alone on its cache lines.
#[derive(Debug, Default)]
#[repr(C, align(256))]
struct Padded {
    /// Copy of the shard's byte count, stored under its lock.
    bytes: AtomicU64,
    shard: BriefMutex<Shard>,
}

impl Padded {
    /// Prefetches the lines that most writes of the shard need: two of its four.
    #[inline]
    fn prefetch(&self) {
        let start = std::ptr::from_ref(self).cast::<u8>();
        prefetch_write(start);
        prefetch_write(start.wrapping_add(64));
    }
}

/// The version index of an engine.
#[derive(Debug)]
pub(crate) struct Versions {
    shards: Box<[Padded]>,
    /// A bit for each shard in which passes have chains to look at.
    queued: Box<[AtomicU64]>,
    hasher: RandomState,
    /// No snapshot needs the versions before commits up to this time. Only grows.
    horizon: AtomicU64,
    pass: AtomicU64,
    /// The snapshots that the last pass found.
    active: Mutex<Arc<Active>>,
}

impl Versions {
    /// An empty index.
    pub fn new() -> Versions {
        let shards = (processors() * SHARDS_PER_CORE).next_power_of_two().clamp(SHARDS.0, SHARDS.1);
        Versions {
            shards: (0..shards).map(|_| Padded::default()).collect(),
            queued: (0..shards / 64).map(|_| AtomicU64::default()).collect(),
            hasher: RandomState::default(),
            horizon: AtomicU64::new(0),
            pass: AtomicU64::new(0),
            active: Mutex::default(),
        }
    }

    /// A record with its hash, for further calls.
    #[inline]
    pub fn record<'k>(&self, tree: TreeId, key: &'k [u8]) -> HashedRecord<'k> {
        let (last, others) = key.split_last().unwrap_or((&0, &[]));
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u32(tree.0);
        hasher.write(others);
        let neighbours = hasher.finish();
        hasher.write_u8(*last);
        let hash = hasher.finish() & !SHARD_BITS | neighbours & SHARD_BITS;
        HashedRecord { hash, tree, key }
    }

    #[inline]
    fn locate(&self, tree: TreeId, key: &[u8]) -> (u64, &Padded) {
        let hash = self.record(tree, key).hash;
        (hash, self.padded(hash))
    }

    #[inline]
    fn padded(&self, hash: u64) -> &Padded {
        &self.shards[self.shard_of(hash)]
    }

    #[inline]
    fn shard_of(&self, hash: u64) -> usize {
        (hash >> SHARD_SHIFT) as usize & (self.shards.len() - 1)
    }

    /// Publishes a change of the shard of `hash`, under its lock.
    #[inline]
    fn changed(&self, hash: u64, padded: &Padded, shard: &Shard) {
        padded.bytes.store(shard.bytes(), Relaxed);
        if shard.is_queued() {
            let at = self.shard_of(hash);
            let (word, bit) = (&self.queued[at / 64], 1 << (at % 64));
            if word.load(Relaxed) & bit == 0 {
                word.fetch_or(bit, Relaxed);
            }
        }
    }

    /// Prefetches the shard for a version of the record with this hash.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.padded(hash).prefetch();
    }

    #[inline]
    fn lock(&self, tree: TreeId, key: &[u8]) -> (u64, BriefGuard<'_, Shard>) {
        let (hash, padded) = self.locate(tree, key);
        (hash, padded.shard.lock())
    }

    /// Whether `me` may change the record. Called under the leaf latch. `None` is an operation
    /// without a transaction. With [`u64::MAX`] as snapshot, only undecided writers conflict. A
    /// writer with a snapshot must check afterwards that it is not cancelled: a conflicting version
    /// may be dropped then.
    pub fn check(
        &self,
        HashedRecord { hash, tree, key }: HashedRecord<'_>,
        me: Option<&TxnState>,
        snapshot: u64,
    ) -> WriteCheck {
        let shard = self.padded(hash).shard.lock();
        shard.find(hash, tree, key).map_or(WriteCheck::Free, |chain| chain.check(me, snapshot))
    }

    /// As [`Versions::check`]; if the answer is [`WriteCheck::Free`], stores that `writer` makes
    /// the `change` of the record. Called under the leaf latch. `owned`: the writer drops the
    /// version itself ([`Versions::drop_old`]) or hands it over ([`Versions::hand_over`]).
    #[inline]
    pub fn store(
        &self,
        record: HashedRecord<'_>,
        writer: &Owner<TxnState>,
        snapshot: u64,
        change: &Change<'_>,
        owned: bool,
    ) -> StoreOutcome {
        self.store_by(record, WriterRef::Txn(writer), snapshot, change, owned)
    }

    /// As [`Versions::store`], for an auto-committed change, committed at `ts`. The writer owns the
    /// version, which this gives.
    ///
    /// # Panics
    /// If the newest change is of an uncommitted transaction.
    #[inline]
    pub fn store_done(
        &self,
        record: HashedRecord<'_>,
        ts: u64,
        before: Option<(&[u8], bool)>,
    ) -> OwnedVersion {
        let outcome =
            self.store_by(record, WriterRef::Done(ts), u64::MAX, &Change::of(before), true);
        match outcome.check {
            WriteCheck::Free => OwnedVersion { hash: record.hash, chain: outcome.chain },
            check => panic!("a change at {ts} changes a record over {check:?}"),
        }
    }

    #[inline]
    fn store_by(
        &self,
        record: HashedRecord<'_>,
        writer: WriterRef<'_>,
        snapshot: u64,
        change: &Change<'_>,
        owned: bool,
    ) -> StoreOutcome {
        // A horizon that is too low only leaves versions for later. Acquire: a reader whose
        // snapshot was cancelled sees that if it locks the shard after this thread.
        let horizon = self.horizon.load(Acquire);
        let padded = self.padded(record.hash);
        let mut spare = Spare::of_thread();
        let check = {
            let mut shard = padded.shard.lock();
            let active = || self.active.lock().clone();
            let spare = &mut spare;
            let check =
                shard.check_push(record, writer, snapshot, change, owned, horizon, active, spare);
            self.changed(record.hash, padded, &shard);
            check
        };
        spare.keep();
        check
    }

    /// [`Versions::store`] for tests that need only the answer.
    #[cfg(test)]
    pub fn check_push(
        &self,
        tree: TreeId,
        key: &[u8],
        writer: &Owner<TxnState>,
        snapshot: u64,
        before: Option<(&[u8], bool)>,
    ) -> WriteCheck {
        self.store(self.record(tree, key), writer, snapshot, &Change::of(before), false).check
    }

    /// Stores a version that has no conflict. Gives its hash, or none if the newest change is the
    /// writer's own already.
    #[cfg(test)]
    pub fn push(
        &self,
        tree: TreeId,
        key: &[u8],
        writer: &Owner<TxnState>,
        before: Option<(&[u8], bool)>,
    ) -> Option<u64> {
        match self.check_push(tree, key, writer, u64::MAX, before) {
            WriteCheck::Free => Some(self.hash(tree, key)),
            WriteCheck::Own => None,
            WriteCheck::Conflict(with) => {
                panic!("transaction {} changes a record over {with:?}", writer.id())
            }
        }
    }

    /// As [`Versions::push`], for an auto-committed change.
    #[cfg(test)]
    pub fn push_done(
        &self,
        tree: TreeId,
        key: &[u8],
        ts: u64,
        before: Option<(&[u8], bool)>,
    ) -> OwnedVersion {
        self.store_done(self.record(tree, key), ts, before)
    }

    /// The version that `me` sees of a record, asked before the page is validated: all commits up
    /// to the time `snapshot`, and its own changes. `into` is a buffer and an offset: the buffer
    /// has the value in the page from there on, which an older version replaces. With other answers
    /// it is arbitrary.
    #[inline]
    pub fn read(
        &self,
        tree: TreeId,
        key: &[u8],
        me: Option<&TxnState>,
        snapshot: u64,
        into: (&mut Vec<u8>, usize),
    ) -> Visible {
        self.read_as(tree, key, me, || snapshot, into)
    }

    /// As [`Versions::read`], for the newest commits up to `time`, without an open snapshot. `time`
    /// is called under the lock of the shard: versions that a pass has dropped were replaced by
    /// commits up to that time or earlier, provided that no pass has used a later
    /// [`Active::as_of`].
    #[inline]
    pub fn read_at(
        &self,
        tree: TreeId,
        key: &[u8],
        time: impl FnOnce() -> u64,
        into: (&mut Vec<u8>, usize),
    ) -> Visible {
        self.read_as(tree, key, None, time, into)
    }

    #[inline]
    fn read_as(
        &self,
        tree: TreeId,
        key: &[u8],
        me: Option<&TxnState>,
        time: impl FnOnce() -> u64,
        (value, start): (&mut Vec<u8>, usize),
    ) -> Visible {
        let (hash, shard) = self.lock(tree, key);
        let Some(chain) = shard.find(hash, tree, key) else {
            return Visible::Page { ts: 0 };
        };
        match chain.look(me, time()) {
            Look::Page { ts } => Visible::Page { ts },
            Look::Wait => Visible::Wait,
            Look::Before { older, ts } => match older.restore(value, start) {
                Some(Some(special)) => Visible::Value { special, ts },
                Some(None) => Visible::Absent { ts },
                // The page was changed while it was read.
                None => Visible::Wait,
            },
        }
    }

    /// The state of a record before `writer`'s first change of it, for its rollback. Appends the
    /// bytes to `into`.
    ///
    /// # Panics
    /// If the newest version of the record is not the writer's.
    pub fn before(
        &self,
        tree: TreeId,
        key: &[u8],
        writer: &TxnState,
        into: &mut Vec<u8>,
    ) -> Undone {
        let (hash, shard) = self.lock(tree, key);
        let before = shard.find(hash, tree, key).and_then(|chain| chain.before(writer));
        let before = before.unwrap_or_else(|| panic!("no version of {key:02x?} to go back to"));
        let (bytes, undone) = match before {
            Restore::Absent => (&[][..], Undone::Absent),
            Restore::Whole(bytes, special) => (bytes, Undone::Whole { special }),
            Restore::Patch { at, bytes } => (bytes, Undone::Patch { at }),
        };
        into.extend_from_slice(bytes);
        undone
    }

    /// Removes `writer`'s version of a record, for the change that stored it. Called under the leaf
    /// latch, after the page was restored.
    ///
    /// # Panics
    /// If the newest version of the record is not the writer's.
    pub fn pop(&self, tree: TreeId, key: &[u8], writer: &TxnState) {
        let (hash, padded) = self.locate(tree, key);
        let mut spare = Spare::of_thread();
        {
            let mut shard = padded.shard.lock();
            shard.pop(hash, tree, key, writer, &mut spare);
            self.changed(hash, padded, &shard);
        }
        spare.keep();
    }

    /// Whether other transactions changed the record at a time above `snapshot`, for the validation
    /// of a transaction. The caller checks afterwards that its snapshot is not cancelled.
    pub fn changed_since(&self, tree: TreeId, key: &[u8], me: &TxnState, snapshot: u64) -> Changed {
        let (hash, shard) = self.lock(tree, key);
        let chain = shard.find(hash, tree, key);
        chain.map_or(Changed::Unchanged, |chain| chain.changed_since(me, snapshot))
    }

    /// As [`Versions::changed_since`], for all records for which `read` is true. Looks at every
    /// chain.
    pub fn any_changed_since(
        &self,
        read: impl Fn(TreeId, &[u8]) -> bool,
        me: &TxnState,
        snapshot: u64,
    ) -> Changed {
        let mut answer = Changed::Unchanged;
        for padded in self.shards.iter().filter(|padded| padded.bytes.load(Relaxed) > 0) {
            for chain in padded.shard.lock().chains() {
                let changed = chain.changed_since(me, snapshot);
                if changed != Changed::Unchanged && read(chain.tree, chain.key()) {
                    answer = changed;
                }
                if answer == Changed::Changed {
                    return answer;
                }
            }
        }
        answer
    }

    /// As [`Versions::changed_since`], for all records of a tree; a change that is not committed
    /// counts too. A version that was stored before the caller closed the tree is found: each shard
    /// is locked, so the thread that stored it either has done so before, or finds the tree closed
    /// afterwards.
    pub fn tree_changed_since(&self, tree: TreeId, me: &TxnState, snapshot: u64) -> Changed {
        let mut answer = Changed::Unchanged;
        for padded in self.shards.iter() {
            for chain in padded.shard.lock().chains().filter(|chain| chain.tree == tree) {
                if chain.is_held_by_other(me) {
                    return Changed::Changed;
                }
                match chain.changed_since(me, snapshot) {
                    Changed::Unchanged => {}
                    Changed::Undecided => answer = Changed::Undecided,
                    Changed::Changed => return Changed::Changed,
                }
            }
        }
        answer
    }

    /// The horizon: no snapshot is below it, now or later. With `Reads::Durable`, commits up to it
    /// are durable.
    pub fn horizon(&self) -> u64 {
        self.horizon.load(Acquire)
    }

    /// True if a snapshot may need a version of the record.
    pub fn is_needed(&self, tree: TreeId, key: &[u8]) -> bool {
        let horizon = self.horizon();
        let (hash, shard) = self.lock(tree, key);
        shard.find(hash, tree, key).is_some_and(|chain| !chain.is_old(horizon))
    }

    /// Id and session of the transaction that has changed the record and has not ended, if there is
    /// one.
    pub fn holder(&self, tree: TreeId, key: &[u8]) -> Option<(u64, u64)> {
        let (hash, shard) = self.lock(tree, key);
        shard.find(hash, tree, key).and_then(super::chain::Chain::holder)
    }

    /// True if there is any version of the record.
    #[cfg(test)]
    pub fn contains(&self, tree: TreeId, key: &[u8]) -> bool {
        let (hash, shard) = self.lock(tree, key);
        shard.find(hash, tree, key).is_some()
    }

    /// Raises the horizon to `time`, which is at most the oldest snapshot, now or later, and with
    /// `Reads::Durable` at most the newest durable commit. Gives the horizon after that.
    pub fn raise_horizon(&self, time: u64) -> u64 {
        // The oldest snapshot may seem to go back, if a slot is seen while it opens. Earlier
        // conclusions stay true.
        self.horizon.fetch_max(time, AcqRel).max(time)
    }

    /// Drops those of these versions that no snapshot needs.
    pub fn drop_old(&self, owned: &[OwnedVersion]) {
        let horizon = self.horizon();
        self.for_each(owned, |shard, hash, spare| shard.drop_if_old(hash, horizon, spare));
    }

    /// Hands these versions over to the passes.
    pub fn hand_over(&self, owned: &[OwnedVersion]) {
        self.for_each(owned, |shard, hash, _| shard.take_over(hash));
    }

    #[inline]
    fn for_each(&self, owned: &[OwnedVersion], mut visit: impl FnMut(&mut Shard, u64, &mut Spare)) {
        let mut spare = Spare::of_thread();
        let mut ahead = owned.iter();
        let mut prefetch = |versions: usize| {
            for next in ahead.by_ref().take(versions) {
                self.prefetch(next.hash);
                chain::prefetch(next.chain);
            }
        };
        prefetch(VERSIONS_AHEAD);
        // Adjacent versions of one shard are dropped under one lock.
        for group in owned.chunk_by(|a, b| self.shard_of(a.hash) == self.shard_of(b.hash)) {
            prefetch(group.len());
            let hash = group[0].hash;
            let padded = self.padded(hash);
            let mut shard = padded.shard.lock();
            for version in group {
                visit(&mut shard, version.hash, &mut spare);
            }
            self.changed(hash, padded, &shard);
        }
        spare.keep();
    }

    /// The beginning of a pass: from here on writers know the snapshots that the caller found.
    /// Gives the horizon.
    pub fn publish(&self, active: &Active, durable: u64) -> u64 {
        *self.active.lock() = Arc::new(active.clone());
        self.raise_horizon(active.oldest.min(durable))
    }

    /// Drops the versions that no snapshot needs: those before commits up to both the oldest
    /// snapshot and `durable`, and those that were replaced between two snapshots. Only a `sweep`,
    /// which looks at every chain, also drops owned versions. Gives how many.
    pub fn collect(&self, active: &Active, durable: u64, sweep: bool) -> usize {
        let horizon = self.publish(active, durable);
        let pass = self.pass.fetch_add(1, Relaxed) + 1;
        let mut spare = Spare::of_thread();
        let mut dropped = 0;
        let rule = Rule { horizon, active };
        for (word, shards) in self.queued.iter().zip(self.shards.chunks(64)) {
            let queued = word.load(Relaxed);
            for (at, padded) in shards.iter().enumerate() {
                let bit = 1 << at;
                let sweep = sweep && padded.bytes.load(Relaxed) > 0;
                if queued & bit == 0 && !sweep {
                    continue;
                }
                let mut shard = padded.shard.lock();
                dropped += shard.collect(rule, pass, &mut spare);
                if sweep {
                    dropped += shard.sweep(rule, &mut spare);
                }
                if !shard.is_queued() {
                    word.fetch_and(!bit, Relaxed);
                }
                padded.bytes.store(shard.bytes(), Relaxed);
            }
        }
        spare.keep();
        dropped
    }

    /// True if passes have chains to look at; sweeps may find more.
    pub fn is_queued(&self) -> bool {
        self.queued.iter().any(|word| word.load(Relaxed) != 0)
    }

    /// Memory of the versions, bytes, with an estimate of the free space in the tables, without the
    /// memory that threads keep for reuse (4 MiB each at most).
    pub fn bytes(&self) -> u64 {
        self.shards.iter().map(|padded| padded.bytes.load(Relaxed)).sum()
    }

    /// Number of records that have versions.
    #[cfg(test)]
    pub fn records(&self) -> usize {
        self.shards.iter().map(|padded| padded.shard.lock().len()).sum()
    }

    /// The hash under which the versions of a record are stored.
    #[cfg(test)]
    pub fn hash(&self, tree: TreeId, key: &[u8]) -> u64 {
        self.locate(tree, key).0
    }

    /// Number of versions of one record.
    #[cfg(test)]
    pub fn chain_len(&self, tree: TreeId, key: &[u8]) -> usize {
        let (hash, shard) = self.lock(tree, key);
        shard.find(hash, tree, key).map_or(0, super::chain::Chain::len)
    }
}
