//! The version index against a naive model: for each record, all values that it ever had. Several
//! transactions write, read, commit in steps and roll back (fully or to a savepoint, through an
//! undo buffer that spills all the time); snapshots come, go and are cancelled; versions are
//! dropped at any time, by present or old knowledge about snapshots. After each step every
//! transaction reads everything.

use super::{state::Status, *};
use proptest::prelude::*;
use std::sync::Arc;
use wattle_buffer::{Owner, TreeId};

const KEYS: usize = 3;
const TXNS: usize = 4;
const READERS: usize = 5;
/// A time after every commit.
const EVER: u64 = u64::MAX;

/// A value and its special flag.
type Value = Option<(Vec<u8>, bool)>;

/// A transaction of the model.
struct Txn {
    state: Owner<TxnState>,
    slot: Arc<SnapshotSlot>,
    snapshot: u64,
    undo: UndoBuffer,
    marks: Vec<Savepoint>,
}

struct Reader {
    slot: Arc<SnapshotSlot>,
    /// `None` between the two steps of opening.
    snapshot: Option<u64>,
}

/// The states of a record, and the commit from which each is valid, oldest first.
type History = Vec<(u64, Value)>;

struct World {
    clock: Clock,
    snapshots: Snapshots,
    versions: Versions,
    page: [Value; KEYS],
    histories: [History; KEYS],
    /// The transaction that has changed the record and is not committed.
    owners: [Option<usize>; KEYS],
    txns: [Option<Txn>; TXNS],
    readers: [Option<Reader>; READERS],
    /// Results of collectors, for use later.
    known: Vec<Active>,
    horizon: u64,
    next_id: u64,
    next_value: u16,
}

/// A key; the first two differ in the tree only.
fn place(key: usize) -> (TreeId, &'static [u8]) {
    [(TreeId(1), &b"a"[..]), (TreeId(2), b"a"), (TreeId(2), b"")][key]
}

/// A value for each number.
fn value(number: u16) -> Value {
    let bytes = number.to_be_bytes().repeat(1 + usize::from(number % 40));
    Some((bytes, number.is_multiple_of(3)))
}

fn borrowed(value: &Value) -> Option<(&[u8], bool)> {
    value.as_ref().map(|(bytes, special)| (&bytes[..], *special))
}

impl World {
    fn new() -> World {
        World {
            clock: Clock::new(),
            snapshots: Snapshots::new(),
            versions: Versions::new(),
            page: [None, value(1), value(2)],
            histories: [None, value(1), value(2)].map(|value| vec![(0, value)]),
            owners: [None; KEYS],
            txns: [const { None }; TXNS],
            readers: [const { None }; READERS],
            known: Vec::new(),
            horizon: 0,
            next_id: 1,
            next_value: 3,
        }
    }

    fn step(&mut self, action: u8, who: usize, key: usize, more: u8) {
        match action {
            0..12 => self.write(who % TXNS, key % KEYS, more),
            12..17 => self.go_on_committing(who % TXNS),
            17..19 => self.roll_back(who % TXNS, more.is_multiple_of(2)),
            19 => self.mark(who % TXNS),
            20..24 => self.move_reader(who % READERS, more),
            24..28 => self.collect(more),
            28 => self.known.push(self.snapshots.collect(&self.clock, &self.clock)),
            29 => self.collect_late(who, more),
            _ => drop(self.clock.draw()),
        }
    }

    fn begin(&mut self, who: usize) {
        if self.txns[who].is_some() {
            return;
        }
        let slot = self.snapshots.acquire();
        let snapshot = slot.open(&self.clock);
        self.next_id += 1;
        let state = Owner::new(TxnState::new(self.next_id));
        let undo = UndoBuffer::with_limit(None, 64);
        self.txns[who] = Some(Txn { state, slot, snapshot, undo, marks: Vec::new() });
    }

    fn write(&mut self, who: usize, key: usize, more: u8) {
        self.begin(who);
        let txn = self.txns[who].as_ref().unwrap();
        if txn.state.status() != Status::Active || txn.slot.is_cancelled() {
            return;
        }
        // Some writers have no snapshot: they accept the newest committed version.
        let snapshot = if more.is_multiple_of(5) { u64::MAX } else { txn.snapshot };
        let expected = match self.owners[key] {
            Some(owner) if owner == who => WriteCheck::Own,
            Some(owner) => {
                WriteCheck::Conflict(match self.txns[owner].as_ref().unwrap().state.status() {
                    Status::Drawing => ConflictWith::Committing,
                    Status::Committing(ts) if ts <= snapshot => ConflictWith::Committing,
                    _ => ConflictWith::Active,
                })
            }
            None => match self.histories[key].last().unwrap().0 {
                ts if ts > snapshot => WriteCheck::Conflict(ConflictWith::Committed { ts }),
                _ => WriteCheck::Free,
            },
        };
        let (tree, name) = place(key);
        assert_eq!(
            self.versions.check(self.versions.record(tree, name), Some(&txn.state), snapshot),
            expected
        );
        self.next_value += 1;
        let number = self.next_value;
        let (mut change, mut after) = (Change::of(borrowed(&self.page[key])), value(number));
        match (more % 4, &self.page[key]) {
            (1, _) => after = None,
            (2.., Some((before, false))) => {
                // Some changes alter a few bytes, others all of them.
                let from = usize::from(number) * 7 % before.len();
                let to = (from + 1 + usize::from(more) % 13).min(before.len());
                let mut bytes = before.clone();
                bytes[from..to].fill(number as u8);
                change = Change::Patch { before, from, to };
                after = Some((bytes, false));
            }
            _ => {}
        }
        let record = self.versions.record(tree, name);
        let check = self.versions.store(record, &txn.state, snapshot, &change, false).check;
        assert_eq!(check, expected);
        if matches!(check, WriteCheck::Conflict(_)) {
            return;
        }
        let txn = self.txns[who].as_mut().unwrap();
        let first = check == WriteCheck::Free;
        let before = borrowed(&self.page[key]);
        txn.undo.push(TreeId(key as u32), first, name, before).unwrap();
        self.owners[key] = Some(who);
        self.page[key] = after;
    }

    fn go_on_committing(&mut self, who: usize) {
        let Some(txn) = &mut self.txns[who] else { return };
        match txn.state.status() {
            Status::Active => txn.state.start_commit(),
            Status::Drawing => txn.state.set_ts(self.clock.draw()),
            Status::Committing(ts) => {
                txn.state.committed(ts);
                txn.undo.clear();
                for key in 0..KEYS {
                    if self.owners[key] == Some(who) {
                        self.owners[key] = None;
                        self.histories[key].push((ts, self.page[key].clone()));
                    }
                }
                self.end(who);
            }
            status => panic!("{status:?}"),
        }
    }

    fn mark(&mut self, who: usize) {
        self.begin(who);
        let txn = self.txns[who].as_mut().unwrap();
        txn.marks.push(txn.undo.mark());
    }

    fn roll_back(&mut self, who: usize, whole: bool) {
        let Some(txn) = &mut self.txns[who] else { return };
        if txn.state.status() != Status::Active {
            // Now it can only continue.
            return;
        }
        let start = UndoBuffer::new(None).mark();
        let until = if whole { start } else { txn.marks.pop().unwrap_or(start) };
        while let Some(entry) = txn.undo.pop(until).unwrap() {
            let UndoEntry { tree, first, before, .. } = entry;
            let key = tree.0 as usize;
            let after = std::mem::replace(
                &mut self.page[key],
                before.map(|(bytes, special)| (bytes.to_vec(), special)),
            );
            if first {
                self.owners[key] = None;
                let (tree, name) = place(key);
                let mut bytes = Vec::new();
                let undone = match self.versions.before(tree, name, &txn.state, &mut bytes) {
                    Undone::Absent => None,
                    Undone::Whole { special } => Some((bytes, special)),
                    Undone::Patch { at } => {
                        let (mut value, special) = after.expect("a patch is of a value");
                        value[at..at + bytes.len()].copy_from_slice(&bytes);
                        Some((value, special))
                    }
                };
                assert_eq!(undone, self.page[key], "key {key}");
                self.versions.pop(tree, name, &txn.state);
            }
        }
        if whole {
            txn.state.aborted();
            self.end(who);
        }
    }

    fn end(&mut self, who: usize) {
        let txn = self.txns[who].take().unwrap();
        txn.slot.close();
        self.snapshots.retire(txn.slot);
    }

    fn move_reader(&mut self, who: usize, more: u8) {
        match &mut self.readers[who] {
            None => {
                let slot = self.snapshots.acquire();
                slot.start_opening(&self.clock);
                self.readers[who] = Some(Reader { slot, snapshot: None });
            }
            Some(reader) => match reader.snapshot {
                None => reader.snapshot = Some(reader.slot.finish_opening(&self.clock)),
                Some(snapshot) if more.is_multiple_of(3) => drop(reader.slot.cancel(snapshot)),
                Some(_) => {
                    reader.slot.close();
                    self.snapshots.retire(self.readers[who].take().unwrap().slot);
                }
            },
        }
    }

    fn collect(&mut self, more: u8) {
        let active = self.snapshots.collect(&self.clock, &self.clock);
        let durable = self.clock.now().saturating_sub(u64::from(more % 4));
        self.collect_with(&active, durable);
        for key in 0..KEYS {
            let (tree, name) = place(key);
            let newest = self.histories[key].last().unwrap().0;
            if self.owners[key].is_none() && newest <= self.horizon {
                assert!(!self.versions.contains(tree, name), "key {key} was changed at {newest}");
            }
        }
    }

    fn collect_late(&mut self, at: usize, more: u8) {
        if self.known.is_empty() {
            return;
        }
        let active = self.known.swap_remove(at % self.known.len());
        self.collect_with(&active, self.clock.now().saturating_sub(u64::from(more % 3)));
    }

    fn collect_with(&mut self, active: &Active, durable: u64) {
        self.horizon = self.horizon.max(active.oldest.min(durable));
        self.versions.collect(active, durable, false);
    }

    fn check(&self) {
        for key in 0..KEYS {
            self.check_read(key, None, EVER);
            self.check_read(key, None, self.clock.now());
            for reader in self.readers.iter().flatten() {
                if let Some(snapshot) = reader.snapshot
                    && !reader.slot.is_cancelled()
                {
                    self.check_read(key, None, snapshot);
                }
            }
            for who in 0..TXNS {
                self.check_txn(key, who);
            }
        }
    }

    fn check_txn(&self, key: usize, who: usize) {
        let Some(txn) = &self.txns[who] else { return };
        self.check_read(key, Some(who), EVER);
        if txn.slot.is_cancelled() {
            return;
        }
        self.check_read(key, Some(who), txn.snapshot);
        let (tree, name) = place(key);
        let owner = self.owners[key].filter(|&owner| owner != who);
        let status = owner.map(|owner| self.txns[owner].as_ref().unwrap().state.status());
        for snapshot in txn.snapshot..=self.clock.now() {
            let expected = match status {
                _ if self.histories[key].last().unwrap().0 > snapshot => Changed::Changed,
                Some(Status::Drawing | Status::Committing(_)) => Changed::Undecided,
                _ => Changed::Unchanged,
            };
            let changed = self.versions.changed_since(tree, name, &txn.state, snapshot);
            assert_eq!(changed, expected, "key {key}, {who} since {snapshot}");
        }
    }

    fn check_read(&self, key: usize, me: Option<usize>, snapshot: u64) {
        let (tree, name) = place(key);
        let page = borrowed(&self.page[key]).unwrap_or_default();
        let mut into = [b"in front", page.0].concat();
        let state = me.and_then(|me| self.txns[me].as_ref()).map(|txn| &*txn.state);
        let seen = self.versions.read(tree, name, state, snapshot, (&mut into, 8));
        let owner = self.owners[key];
        if owner.is_some() && owner == me {
            assert_eq!(seen, Visible::Page { ts: 0 });
            return;
        }
        if let Some(owner) = owner
            && match self.txns[owner].as_ref().unwrap().state.status() {
                Status::Drawing => true,
                Status::Committing(ts) => ts <= snapshot,
                _ => false,
            }
        {
            assert_eq!(seen, Visible::Wait);
            return;
        }
        let visible = |change: &&(u64, Value)| change.0 <= snapshot;
        let (since, value) = self.histories[key].iter().rfind(visible).unwrap();
        assert_eq!(into.drain(..8).as_slice(), b"in front");
        let (value_seen, ts) = match seen {
            Visible::Page { ts } => (self.page[key].clone(), ts),
            Visible::Value { special, ts } => (Some((into, special)), ts),
            Visible::Absent { ts } => (None, ts),
            Visible::Wait => panic!("no transaction is committing"),
        };
        assert_eq!(value_seen, *value, "key {key}, {me:?} at {snapshot}");
        assert!(ts == *since || ts == 0 && *since <= self.horizon, "{ts} is not {since}");
    }

    /// All transactions end; then no version may be left.
    fn finish(mut self) {
        for who in 0..TXNS {
            let committing = |txn: &Txn| txn.state.status() != Status::Active;
            while self.txns[who].as_ref().is_some_and(committing) {
                self.go_on_committing(who);
            }
            self.roll_back(who, true);
        }
        for reader in self.readers.iter_mut() {
            if let Some(reader) = reader.take() {
                reader.slot.close();
                self.snapshots.retire(reader.slot);
            }
        }
        assert!(!self.snapshots.any_active());
        self.collect(0);
        assert_eq!((self.versions.records(), self.versions.bytes()), (0, 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]
    #[test]
    fn everybody_sees_what_the_naive_model_says(
        steps in prop::collection::vec((0u8..32, 0usize..60, 0usize..KEYS, any::<u8>()), 1..120),
    ) {
        let mut world = World::new();
        for (action, who, key, more) in steps {
            world.step(action, who, key, more);
            world.check();
        }
        world.finish();
    }
}
