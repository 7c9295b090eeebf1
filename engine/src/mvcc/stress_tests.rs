//! Threads against the version index. Writers move amounts between records, so every snapshot has
//! the same sum. Readers check that while versions are dropped all the time. A sequence lock for
//! each record stands in for the latch of a leaf.
//!
//! The seed of a run is printed; `WATTLE_TEST_SEED` sets it.

use super::*;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Instant,
};
use wattle_buffer::{Owner, TreeId};

const TREE: TreeId = TreeId(5);
const RECORDS: usize = 12;
const START: u64 = 100;
/// A record with this amount is absent.
const ABSENT: u64 = 0;

/// A record of the page and its latch: odd while a writer holds it.
#[derive(Default)]
struct HashedRecord {
    latch: AtomicU64,
    amount: AtomicU64,
}

struct Latched<'a>(&'a HashedRecord);

impl HashedRecord {
    fn lock(&self) -> Latched<'_> {
        loop {
            let seen = self.latch.load(SeqCst);
            if seen.is_multiple_of(2)
                && self.latch.compare_exchange(seen, seen + 1, SeqCst, SeqCst).is_ok()
            {
                return Latched(self);
            }
            thread::yield_now();
        }
    }
}

impl Drop for Latched<'_> {
    fn drop(&mut self) {
        self.0.latch.fetch_add(1, SeqCst);
    }
}

struct World {
    clock: Clock,
    snapshots: Snapshots,
    versions: Versions,
    records: Vec<HashedRecord>,
    next_id: AtomicU64,
    ended: AtomicBool,
    reads: AtomicU64,
    commits: AtomicU64,
    aborts: AtomicU64,
}

fn key(record: usize) -> [u8; 8] {
    (record as u64).to_be_bytes()
}

/// The value for an amount, long enough to show mixed up bytes. Two of three values have the same
/// length as one of three others.
fn encode(amount: u64) -> Option<Vec<u8>> {
    (amount != ABSENT).then(|| amount.to_be_bytes().repeat([1, 9, 9][amount as usize % 3]))
}

/// A change of `before` to `after`; a patch if possible.
fn change_of<'b>(before: Option<&'b [u8]>, after: Option<&[u8]>) -> Change<'b> {
    if let (Some(before), Some(after)) = (before, after)
        && before.len() == after.len()
    {
        let differ = |i: &usize| before[*i] != after[*i];
        let from = (0..before.len()).find(differ).unwrap_or(0);
        let to = (0..before.len()).rfind(differ).map_or(from, |last| last + 1);
        return Change::Patch { before, from, to };
    }
    Change::of(before.map(|before| (before, false)))
}

fn decode(bytes: &[u8]) -> u64 {
    let amount = u64::from_be_bytes(bytes[..8].try_into().unwrap());
    assert_eq!(Some(bytes), encode(amount).as_deref());
    amount
}

impl World {
    fn new() -> World {
        let record = || HashedRecord { amount: AtomicU64::new(START), ..HashedRecord::default() };
        World {
            clock: Clock::new(),
            snapshots: Snapshots::new(),
            versions: Versions::new(),
            records: (0..RECORDS).map(|_| record()).collect(),
            next_id: AtomicU64::new(1),
            ended: AtomicBool::new(false),
            reads: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            aborts: AtomicU64::new(0),
        }
    }

    /// Reads without a latch: the page, then the index, then validates.
    fn read(&self, record: usize, me: Option<&TxnState>, snapshot: u64) -> u64 {
        let mut into = Vec::new();
        loop {
            let page = &self.records[record];
            let latch = page.latch.load(SeqCst);
            let amount = page.amount.load(SeqCst);
            into.clear();
            into.extend(encode(amount).unwrap_or_default());
            let seen = self.versions.read(TREE, &key(record), me, snapshot, (&mut into, 0));
            if latch % 2 == 1 || page.latch.load(SeqCst) != latch || seen == Visible::Wait {
                thread::yield_now();
                continue;
            }
            self.reads.fetch_add(1, SeqCst);
            return match seen {
                Visible::Page { .. } => amount,
                Visible::Value { .. } => decode(&into),
                Visible::Absent { .. } => ABSENT,
                Visible::Wait => unreachable!("handled above"),
            };
        }
    }

    fn check_sum(
        &self,
        rng: &mut StdRng,
        slot: &SnapshotSlot,
        snapshot: u64,
        me: Option<&TxnState>,
    ) {
        let mut order: Vec<usize> = (0..RECORDS).collect();
        for at in 0..RECORDS {
            order.swap(at, rng.random_range(0..RECORDS));
        }
        let mut amounts = [0; RECORDS];
        for record in order {
            amounts[record] = self.read(record, me, snapshot);
        }
        if !slot.is_cancelled() {
            let sum: u64 = amounts.iter().sum();
            assert_eq!(sum, RECORDS as u64 * START, "snapshot {snapshot} sees {amounts:?}");
        }
    }

    /// A transaction that moves amounts around.
    fn transfer(
        &self,
        rng: &mut StdRng,
        slot: &SnapshotSlot,
        undo: &mut UndoBuffer,
        stored: &mut Stored,
    ) {
        let state = Owner::new(TxnState::new(self.next_id.fetch_add(1, SeqCst)));
        let snapshot = slot.open(&self.clock);
        let start = undo.mark();
        slot.start_writing(&self.clock);
        let mut ok = true;
        let mut kept = Vec::new();
        let mut change = |record: usize, by: &mut dyn FnMut(u64) -> u64| {
            let page = &self.records[record];
            let _latched = page.lock();
            let amount = page.amount.load(SeqCst);
            let after = by(amount);
            let (before, after_bytes) = (encode(amount), encode(after));
            let change = change_of(before.as_deref(), after_bytes.as_deref());
            let before = before.as_deref().map(|bytes| (bytes, false));
            let name = key(record);
            let name = self.versions.record(TREE, &name);
            let store = |kept| self.versions.store(name, &state, snapshot, &change, kept);
            let mut outcome = store(kept.len() % 2 == 0);
            if outcome.check == WriteCheck::Free && amount.is_multiple_of(8) {
                // First the record was not to be changed, now it is.
                self.versions.pop(TREE, name.key, &state);
                outcome = store(amount.is_multiple_of(16));
            }
            let first = match outcome.check {
                WriteCheck::Free => true,
                WriteCheck::Own => false,
                WriteCheck::Conflict(_) => return false,
            };
            undo.push(TREE, first, &key(record), before).unwrap();
            kept.push(OwnedVersion { hash: name.hash, chain: outcome.chain });
            page.amount.store(after, SeqCst);
            true
        };
        for _ in 0..rng.random_range(1..4) {
            let (from, to) = (rng.random_range(0..RECORDS), rng.random_range(0..RECORDS));
            let mut moved = 0;
            ok = change(from, &mut |amount| {
                moved = rng.random_range(0..=amount);
                amount - moved
            }) && change(to, &mut |amount| amount + moved);
            if !ok {
                break;
            }
        }
        if ok && rng.random_range(0..4) == 0 {
            self.check_sum(rng, slot, snapshot, Some(&state));
        }
        if ok && rng.random_range(0..8) != 0 {
            state.start_commit();
            if rng.random_range(0..8) == 0 {
                thread::yield_now();
            }
            let ts = self.clock.draw();
            state.set_ts(ts);
            if rng.random_range(0..8) == 0 {
                thread::yield_now();
            }
            state.committed(ts);
            undo.clear();
            stored.add(&self.versions, ts, &kept);
            if rng.random_range(0..200) == 0 {
                stored.give_up(&self.versions);
            }
            self.commits.fetch_add(1, SeqCst);
        } else {
            while let Some(entry) = undo.pop(start).unwrap() {
                let UndoEntry { tree, first, key, before } = entry;
                let record = u64::from_be_bytes(key.try_into().unwrap()) as usize;
                let _latched = self.records[record].lock();
                let amount = before.map_or(ABSENT, |(bytes, _)| decode(bytes));
                self.records[record].amount.store(amount, SeqCst);
                if first {
                    self.versions.pop(tree, key, &state);
                }
            }
            state.aborted();
            self.aborts.fetch_add(1, SeqCst);
        }
        slot.close();
        // As a session does, but more often.
        if rng.random_range(0..2) == 0
            && let Some(oldest) = self.snapshots.try_oldest(&self.clock)
        {
            self.versions.raise_horizon(oldest);
            stored.drop_old(&self.versions);
        }
    }

    fn write(&self, seed: u64, transfers: usize) {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut undo = UndoBuffer::with_limit(None, 1 << 16);
        let (slot, mut stored) = (self.snapshots.acquire(), Stored::default());
        for _ in 0..transfers {
            self.transfer(&mut rng, &slot, &mut undo, &mut stored);
        }
        if seed.is_multiple_of(2) {
            stored.give_up(&self.versions);
        }
        self.snapshots.retire(slot);
    }

    /// Reads with several snapshots of different ages.
    fn check(&self, seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut open: Vec<(Arc<SnapshotSlot>, u64)> = Vec::new();
        while !self.ended.load(SeqCst) {
            if open.len() < 4 {
                let slot = self.snapshots.acquire();
                let snapshot = slot.open(&self.clock);
                open.push((slot, snapshot));
            }
            let at = rng.random_range(0..open.len());
            self.check_sum(&mut rng, &open[at].0, open[at].1, None);
            if rng.random_range(0..4) == 0 {
                let (slot, _) = open.swap_remove(at);
                slot.close();
                self.snapshots.retire(slot);
            }
        }
        for (slot, _) in open {
            slot.close();
            self.snapshots.retire(slot);
        }
    }

    fn collect(&self, seed: u64) -> usize {
        let mut rng = StdRng::seed_from_u64(seed);
        let (mut dropped, mut known) = (0, Active::default());
        while !self.ended.load(SeqCst) {
            if rng.random_range(0..50) == 0 {
                self.snapshots.cancel_below(self.clock.now().saturating_sub(20));
            }
            let durable = self.clock.now().saturating_sub(rng.random_range(0..10));
            let sweep = rng.random_range(0..20) == 0;
            dropped += self.versions.collect(&known, durable, sweep);
            known = self.snapshots.collect(&self.clock, &self.clock);
            if rng.random_range(0..4) != 0 {
                dropped += self.versions.collect(&known, durable, false);
            }
        }
        dropped
    }
}

#[test]
fn every_snapshot_sees_all_of_each_transfer_or_nothing() {
    let seed = std::env::var("WATTLE_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(rand::random);
    println!("WATTLE_TEST_SEED={seed}");
    let transfers = 40_000;
    let world = World::new();
    let dropped = thread::scope(|scope| {
        let world = &world;
        let writers =
            [1, 2].map(|i| scope.spawn(move || world.write(seed.wrapping_add(i), transfers)));
        // Ends the other two threads also when a writer fails.
        let reader = scope.spawn(move || world.check(seed.wrapping_add(3)));
        let collector = scope.spawn(move || world.collect(seed.wrapping_add(4)));
        let written = writers.map(|writer| writer.join());
        world.ended.store(true, SeqCst);
        reader.join().unwrap();
        let dropped = collector.join().unwrap();
        written.into_iter().for_each(|result| result.unwrap());
        dropped
    });
    println!(
        "{:?} reads, {:?} commits, {:?} aborts, {dropped} dropped by the collector",
        world.reads, world.commits, world.aborts
    );
    assert!(world.commits.load(SeqCst) > 0 && world.aborts.load(SeqCst) > 0 && dropped > 0);
    let sum: u64 = world.records.iter().map(|record| record.amount.load(SeqCst)).sum();
    assert_eq!(sum, RECORDS as u64 * START);
    assert!(!world.snapshots.any_active());
    world.versions.collect(&world.snapshots.collect(&world.clock, &world.clock), u64::MAX, true);
    assert_eq!((world.versions.records(), world.versions.bytes()), (0, 0));
}

/// Nanoseconds per update of a 120-byte value: the version, its transaction with begin and commit,
/// and its share of the passes that drop versions.
fn measure(keys: u64, batch: u64, size: u64) -> f64 {
    let (clock, snapshots, versions) = (Clock::new(), Snapshots::new(), Versions::new());
    let slot = snapshots.acquire();
    let value = [7u8; 120];
    let mut random = 1u64;
    let (updates, mut ended) = (4_000_000, 0.0);
    for round in 0..2 {
        let start = Instant::now();
        let mut state = Owner::new(TxnState::new(1));
        let mut snapshot = slot.open(&clock);
        for i in 1..=updates {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let key = (random % keys).to_be_bytes();
            let check = versions.check_push(TREE, &key, &state, snapshot, Some((&value, false)));
            assert!(!matches!(check, WriteCheck::Conflict(_)));
            if i % size == 0 {
                state.start_commit();
                let ts = clock.draw();
                state.set_ts(ts);
                state.committed(ts);
                slot.close();
                state = Owner::new(TxnState::new(i));
                snapshot = slot.open(&clock);
            }
            if i % batch == 0 {
                versions.collect(&snapshots.collect(&clock, &clock), u64::MAX, false);
            }
        }
        ended = start.elapsed().as_nanos() as f64 / updates as f64;
        slot.close();
        assert_eq!(versions.records(), 0, "left in round {round}");
    }
    ended
}

#[test]
#[ignore = "a measurement: cargo test --release -p wattle --lib mvcc -- --ignored --nocapture"]
fn measure_push_and_collect() {
    // The cost of begin and commit alone.
    let (clock, snapshots) = (Clock::new(), Snapshots::new());
    let slot = snapshots.acquire();
    let (start, rounds) = (Instant::now(), 4_000_000);
    for i in 0..rounds {
        slot.open(&clock);
        let state = std::hint::black_box(Owner::new(TxnState::new(i)));
        state.start_commit();
        let ts = clock.draw();
        state.set_ts(ts);
        state.committed(ts);
        slot.close();
    }
    println!("begin and commit: {:.1} ns", start.elapsed().as_nanos() as f64 / rounds as f64);
    for (keys, batch, size) in [
        (1_000, 1_000, 1),
        (1_000, 10_000, 1),
        (1_000_000, 1_000, 1),
        (1_000_000, 10_000, 1),
        (1_000_000, 100_000, 1),
        (1_000, 1_000, 10),
        (1_000, 10_000, 10),
        (1_000_000, 1_000, 10),
        (1_000_000, 10_000, 10),
        (1_000_000, 100_000, 10),
    ] {
        let ns = measure(keys, batch, size);
        println!(
            "{keys:>8} keys, a pass every {batch:>7} updates, {size:>2} updates for each \
             transaction: {ns:.1} ns"
        );
    }
}
