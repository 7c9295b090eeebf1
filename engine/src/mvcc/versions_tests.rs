//! Tests of the version index, one rule each.

use super::{
    chain::{CHAIN_BYTES, PRUNE_ABOVE},
    *,
};
use wattle_buffer::{Owner, TreeId};

const TREE: TreeId = TreeId(7);
const KEY: &[u8] = b"key";
const EVER: u64 = u64::MAX;

/// An index with a clock; the tests give the contents of the page.
struct Fixture {
    clock: Clock,
    snapshots: Snapshots,
    versions: Versions,
    next_id: std::cell::Cell<u64>,
}

impl Fixture {
    fn new() -> Fixture {
        Fixture {
            clock: Clock::new(),
            snapshots: Snapshots::new(),
            versions: Versions::new(),
            next_id: std::cell::Cell::new(1),
        }
    }

    fn begin(&self) -> Owner<TxnState> {
        self.next_id.set(self.next_id.get() + 1);
        Owner::new(TxnState::new(self.next_id.get()))
    }

    fn commit(&self, writer: &TxnState) -> u64 {
        writer.start_commit();
        let ts = self.clock.draw();
        writer.set_ts(ts);
        writer.committed(ts);
        ts
    }

    /// One transaction changes the record, whose state was `before`; gives its commit time.
    fn change(&self, before: &str) -> u64 {
        let writer = self.begin();
        assert!(self.versions.push(TREE, KEY, &writer, value(before)).is_some());
        self.commit(&writer)
    }

    fn read(&self, me: Option<&TxnState>, snapshot: u64) -> (Visible, String) {
        let mut into = b">".to_vec();
        let seen = self.versions.read(TREE, KEY, me, snapshot, (&mut into, 1));
        (seen, String::from_utf8(into).unwrap())
    }

    /// The version that a snapshot sees: `page`, `absent` or the value.
    fn sees(&self, at: u64) -> String {
        match self.read(None, at) {
            (Visible::Page { .. }, _) => "page".into(),
            (Visible::Absent { .. }, _) => "absent".into(),
            (Visible::Value { .. }, bytes) => bytes[1..].into(),
            (Visible::Wait, _) => "wait".into(),
        }
    }

    fn collect(&self) -> usize {
        self.versions.collect(&self.snapshots.collect(&self.clock, &self.clock), EVER, false)
    }

    fn len(&self) -> usize {
        self.versions.chain_len(TREE, KEY)
    }
}

fn value(text: &str) -> Option<(&[u8], bool)> {
    (text != "absent").then_some((text.as_bytes(), false))
}

#[test]
fn without_versions_the_page_is_right() {
    let f = Fixture::new();
    assert_eq!(f.read(None, 1), (Visible::Page { ts: 0 }, ">".into()));
    assert_eq!(f.read(None, EVER).0, Visible::Page { ts: 0 });
    assert_eq!(f.versions.check(f.versions.record(TREE, KEY), None, 1), WriteCheck::Free);
    assert!(!f.versions.contains(TREE, KEY));
    assert_eq!((f.versions.bytes(), f.versions.records(), f.collect()), (0, 0, 0));
}

#[test]
fn an_uncommitted_change_is_visible_to_its_writer_only() {
    let f = Fixture::new();
    let writer = f.begin();
    assert!(f.versions.push(TREE, KEY, &writer, Some((b"old", true))).is_some());
    assert!(f.versions.contains(TREE, KEY) && !f.versions.contains(TreeId(8), KEY));
    assert!(!f.versions.contains(TREE, b"kez") && !f.versions.contains(TREE, b""));
    let old = (Visible::Value { special: true, ts: 0 }, ">old".to_string());
    assert_eq!(f.read(None, 1), old);
    assert_eq!(f.read(None, EVER), old);
    assert_eq!(f.read(Some(&f.begin()), EVER), old);
    assert_eq!(f.read(Some(&writer), 1), (Visible::Page { ts: 0 }, ">".into()));
    assert_eq!(f.read(Some(&writer), EVER).0, Visible::Page { ts: 0 });
}

#[test]
fn a_second_change_by_the_same_transaction_stores_nothing() {
    let f = Fixture::new();
    let writer = f.begin();
    assert!(f.versions.push(TREE, KEY, &writer, value("first")).is_some());
    assert_eq!(f.versions.check(f.versions.record(TREE, KEY), Some(&writer), 1), WriteCheck::Own);
    assert!(f.versions.push(TREE, KEY, &writer, value("second")).is_none());
    assert_eq!(f.versions.check_push(TREE, KEY, &writer, 1, None), WriteCheck::Own);
    assert_eq!((f.len(), f.sees(1)), (1, "first".into()));
}

#[test]
fn a_patch_of_a_whole_value_may_shrink_when_the_record_is_changed_again() {
    for len in 1..60 {
        let f = Fixture::new();
        let (writer, before) = (f.begin(), vec![7; len]);
        let patch = Change::Patch { before: &before, from: 0, to: len };
        let record = f.versions.record(TREE, KEY);
        f.versions.store(record, &writer, EVER, &patch, false);
        let bytes = f.versions.bytes();
        let again = Change::Whole { before: &before, special: false };
        let outcome = f.versions.store(record, &writer, EVER, &again, false);
        assert_eq!(outcome.check, WriteCheck::Own);
        assert_eq!(outcome.grown, f.versions.bytes().saturating_sub(bytes), "{len} bytes");
        f.versions.pop(TREE, KEY, &writer);
        assert_eq!(f.versions.bytes(), 0, "{len} bytes");
    }
}

#[test]
fn committed_changes_are_visible_from_their_time_on() {
    let f = Fixture::new();
    assert_eq!(f.change("absent"), 2);
    f.clock.draw();
    assert_eq!(f.change("two"), 4);
    assert_eq!(f.change("four"), 5);
    let seen: Vec<_> = (1..7).map(|at| f.sees(at)).collect();
    assert_eq!(seen, ["absent", "two", "two", "four", "page", "page"]);
    assert_eq!(f.read(None, 1).0, Visible::Absent { ts: 0 });
    assert_eq!(f.read(None, 3).0, Visible::Value { special: false, ts: 2 });
    assert_eq!(f.read(None, 9).0, Visible::Page { ts: 5 });
    assert_eq!(f.read(None, EVER).0, Visible::Page { ts: 5 });
    // Own changes hide the time of the record.
    let writer = f.begin();
    f.versions.push(TREE, KEY, &writer, value("five"));
    assert_eq!(f.read(Some(&writer), 1).0, Visible::Page { ts: 0 });
    let latest = (Visible::Value { special: false, ts: 5 }, ">five".into());
    assert_eq!(f.read(None, EVER), latest);
}

#[test]
fn readers_wait_for_a_commit_that_may_be_in_their_snapshot() {
    let f = Fixture::new();
    let writer = f.begin();
    f.versions.push(TREE, KEY, &writer, value("old"));
    writer.start_commit();
    assert_eq!(f.read(None, 9), (Visible::Wait, ">".into()));
    assert_eq!((f.sees(1), f.sees(EVER)), ("wait".into(), "wait".into()));
    let ts = f.clock.draw();
    writer.set_ts(ts);
    assert_eq!(
        (f.sees(ts - 1), f.sees(ts), f.sees(ts + 1)),
        ("old".into(), "wait".into(), "wait".into())
    );
    assert_eq!(f.sees(EVER), "wait");
    writer.committed(ts);
    assert_eq!((f.sees(ts - 1), f.sees(ts)), ("old".into(), "page".into()));
    assert_eq!(f.sees(EVER), "page");
}

#[test]
fn write_checks_find_every_conflict() {
    let f = Fixture::new();
    let (writer, other) = (f.begin(), f.begin());
    let check = |snapshot| f.versions.check(f.versions.record(TREE, KEY), Some(&other), snapshot);
    f.versions.push(TREE, KEY, &writer, None);
    assert_eq!(check(EVER), WriteCheck::Conflict(ConflictWith::Active));
    assert_eq!(f.versions.check(f.versions.record(TREE, KEY), None, EVER), check(EVER));
    writer.start_commit();
    assert_eq!(check(1), WriteCheck::Conflict(ConflictWith::Committing));
    let ts = f.clock.draw();
    writer.set_ts(ts);
    assert_eq!(check(ts), WriteCheck::Conflict(ConflictWith::Committing));
    assert_eq!(check(ts - 1), WriteCheck::Conflict(ConflictWith::Active));
    writer.committed(ts);
    assert_eq!(check(ts - 1), WriteCheck::Conflict(ConflictWith::Committed { ts }));
    assert_eq!(check(ts), WriteCheck::Free);
    assert_eq!(check(EVER), WriteCheck::Free);
    let pushed = f.versions.check_push(TREE, KEY, &other, ts - 1, None);
    assert_eq!((pushed, f.len()), (WriteCheck::Conflict(ConflictWith::Committed { ts }), 1));
    assert_eq!(f.versions.check_push(TREE, KEY, &other, ts, None), WriteCheck::Free);
    assert_eq!(f.len(), 2);
}

#[test]
#[should_panic(expected = "changes a record over Active")]
fn a_change_over_an_uncommitted_one_is_refused() {
    let f = Fixture::new();
    f.versions.push(TREE, KEY, &f.begin(), None);
    f.versions.push(TREE, KEY, &f.begin(), None);
}

#[test]
fn a_rollback_takes_its_version_back() {
    let f = Fixture::new();
    let writer = f.begin();
    f.versions.push(TREE, KEY, &writer, value("old"));
    f.versions.pop(TREE, KEY, &writer);
    assert_eq!((f.len(), f.versions.bytes(), f.sees(1)), (0, 0, "page".into()));
    // Over a committed one, and again.
    f.change("older");
    for _ in 0..3 {
        f.versions.push(TREE, KEY, &writer, value("old"));
        assert_eq!((f.sees(1), f.sees(2)), ("older".into(), "old".into()));
        f.versions.pop(TREE, KEY, &writer);
        assert_eq!((f.sees(1), f.sees(2)), ("older".into(), "page".into()));
    }
    writer.aborted();
    assert_eq!((f.collect(), f.versions.records(), f.versions.bytes()), (1, 0, 0));
    assert_eq!(f.collect(), 0);
}

#[test]
#[should_panic(expected = "of another transaction")]
fn a_rollback_takes_back_no_version_of_others() {
    let f = Fixture::new();
    f.versions.push(TREE, KEY, &f.begin(), None);
    f.versions.pop(TREE, KEY, &f.begin());
}

#[test]
fn versions_go_when_the_oldest_snapshot_has_passed_them_and_they_are_durable() {
    let f = Fixture::new();
    let slot = f.snapshots.acquire();
    assert_eq!(slot.open(&f.clock), 1);
    assert_eq!(f.change("one"), 2);
    assert_eq!(f.collect(), 0);
    assert_eq!((f.sees(1), f.sees(2)), ("one".into(), "page".into()));
    slot.close();
    let active = f.snapshots.collect(&f.clock, &f.clock);
    assert_eq!(f.versions.collect(&active, 1, false), 0, "not durable yet");
    assert_eq!(f.read(None, 2).0, Visible::Page { ts: 2 });
    assert_eq!(f.versions.collect(&active, 2, false), 1);
    assert_eq!(f.read(None, 2).0, Visible::Page { ts: 0 });
    assert_eq!(f.versions.bytes(), 0);
}

#[test]
fn a_cancelled_snapshot_holds_no_version() {
    let f = Fixture::new();
    let slot = f.snapshots.acquire();
    slot.open(&f.clock);
    f.change("one");
    assert!(slot.cancel(1));
    assert_eq!(f.collect(), 1);
}

#[test]
fn an_uncommitted_version_stays_and_those_below_it_go() {
    let f = Fixture::new();
    let slot = f.snapshots.acquire();
    slot.open(&f.clock);
    f.change("one");
    f.change("two");
    let writer = f.begin();
    f.versions.push(TREE, KEY, &writer, value("three"));
    slot.close();
    assert_eq!((f.collect(), f.len()), (2, 1));
    assert_eq!(f.sees(3), "three");
    assert_eq!((f.collect(), f.len()), (0, 1));
    f.commit(&writer);
    assert_eq!((f.collect(), f.len()), (1, 0));
}

#[test]
fn versions_between_two_snapshots_are_merged() {
    let f = Fixture::new();
    let (old, new) = (f.snapshots.acquire(), f.snapshots.acquire());
    old.open(&f.clock);
    for before in ["one", "two", "three"] {
        f.change(before);
    }
    assert_eq!(new.open(&f.clock), 4);
    for before in ["four", "five", "six"] {
        f.change(before);
    }
    assert_eq!(f.clock.now(), 7);
    // At 1: "one". At 4: "four". No snapshot is at 2, 3, 5 or 6.
    assert_eq!((f.collect(), f.len()), (4, 2));
    assert_eq!((f.sees(1), f.sees(4), f.sees(7)), ("one".into(), "four".into(), "page".into()));
    assert_eq!(f.read(None, 4).0, Visible::Value { special: false, ts: 4 });
    assert_eq!(f.read(None, 7).0, Visible::Page { ts: 7 });
    old.close();
    assert_eq!((f.collect(), f.len(), f.sees(4)), (1, 1, "four".into()));
    new.close();
    assert_eq!((f.collect(), f.len()), (1, 0));
}

#[test]
fn a_version_that_an_opening_snapshot_may_need_is_not_merged() {
    let f = Fixture::new();
    let (old, opening) = (f.snapshots.acquire(), f.snapshots.acquire());
    old.open(&f.clock);
    f.change("one");
    opening.start_opening(&f.clock);
    f.change("two");
    // Here it loads the clock the second time. Before it stores that time, other things happen.
    let at = f.clock.now();
    f.change("three");
    f.change("four");
    f.collect();
    assert_eq!((at, f.sees(1), f.sees(at)), (3, "one".into(), "three".into()));
    opening.finish_opening(&f.clock);
    f.collect();
    assert_eq!((f.len(), f.sees(1), f.sees(5)), (1, "one".into(), "page".into()));
}

#[test]
fn a_merged_change_still_fails_a_validation() {
    let f = Fixture::new();
    let me = f.begin();
    let slot = f.snapshots.acquire();
    assert_eq!(slot.open(&f.clock), 1);
    let changed = |snapshot| f.versions.changed_since(TREE, KEY, &me, snapshot);
    // The time of the newest change.
    let changed_until = |time| {
        (1..time).for_each(|at| assert_eq!(changed(at), Changed::Changed, "since {at}"));
        (time..9).for_each(|at| assert_eq!(changed(at), Changed::Unchanged, "since {at}"));
    };
    changed_until(1);
    f.change("one");
    changed_until(2);
    f.clock.draw();
    f.clock.draw();
    f.change("two");
    f.change("three");
    changed_until(6);
    assert_eq!((f.collect(), f.len()), (2, 1));
    changed_until(6);
    // Merged once more.
    f.change("four");
    assert_eq!((f.collect(), f.len()), (1, 1));
    changed_until(7);
}

#[test]
fn a_validation_waits_for_writers_that_are_committing() {
    let f = Fixture::new();
    let (me, writer) = (f.begin(), f.begin());
    f.change("one");
    let changed = |snapshot| f.versions.changed_since(TREE, KEY, &me, snapshot);
    f.versions.push(TREE, KEY, &writer, value("two"));
    assert_eq!(changed(2), Changed::Unchanged, "active: will commit later");
    assert_eq!(changed(1), Changed::Changed);
    writer.start_commit();
    assert_eq!(changed(2), Changed::Undecided);
    assert_eq!(changed(1), Changed::Changed, "the change before is enough");
    let ts = f.clock.draw();
    writer.set_ts(ts);
    assert_eq!(changed(2), Changed::Undecided);
    assert_eq!(changed(1), Changed::Changed);
    writer.committed(ts);
    assert_eq!((changed(2), changed(ts)), (Changed::Changed, Changed::Unchanged));
    // Own changes do not count.
    let of_writer = f.versions.changed_since(TREE, KEY, &writer, 2);
    assert_eq!(of_writer, Changed::Unchanged);
}

#[test]
fn a_push_onto_a_chain_that_nobody_needs_starts_it_anew() {
    let f = Fixture::new();
    let slot = f.snapshots.acquire();
    slot.open(&f.clock);
    for before in ["one", "two", "three"] {
        f.change(before);
    }
    slot.close();
    // A pass has begun and has not come to the shard.
    f.versions.publish(&f.snapshots.collect(&f.clock, &f.clock), f.clock.now());
    assert_eq!(f.len(), 3);
    f.change("four");
    assert_eq!((f.len(), f.sees(4), f.sees(5)), (1, "four".into(), "page".into()));
    f.collect();
    assert_eq!((f.versions.records(), f.versions.bytes()), (0, 0));
}

#[test]
fn a_long_chain_is_pruned_by_the_writer() {
    let f = Fixture::new();
    let slot = f.snapshots.acquire();
    slot.open(&f.clock);
    let mut longest = 0;
    for i in 0..1000 {
        f.change(&format!("before {i}"));
        if i % 10 == 0 {
            f.versions.publish(&f.snapshots.collect(&f.clock, &f.clock), 0);
        }
        longest = longest.max(f.len());
    }
    assert!(longest > PRUNE_ABOVE && longest < 4 * PRUNE_ABOVE, "{longest} versions");
    assert_eq!((f.sees(1), f.sees(f.clock.now())), ("before 0".into(), "page".into()));
    slot.close();
    f.collect();
    assert_eq!((f.versions.records(), f.versions.bytes()), (0, 0));
}

#[test]
fn chains_that_must_wait_are_dropped_when_they_are_due() {
    let f = Fixture::new();
    let slots: Vec<_> = (0..20).map(|_| f.snapshots.acquire()).collect();
    for (i, slot) in slots.iter().enumerate() {
        slot.open(&f.clock);
        let writer = f.begin();
        for j in 0..50 {
            f.versions.push(TREE, format!("{i}-{j}").as_bytes(), &writer, None);
        }
        f.commit(&writer);
        assert_eq!(f.collect(), 0);
    }
    assert_eq!(f.versions.records(), 1000);
    for (i, slot) in slots.iter().enumerate() {
        slot.close();
        assert_eq!((f.collect(), f.versions.records()), (50, 950 - 50 * i));
    }
    assert_eq!(f.versions.bytes(), 0);
}

#[test]
fn a_large_transaction_is_dropped_whole() {
    let f = Fixture::new();
    let writer = f.begin();
    let records = 100_000u32;
    for i in 0..records {
        f.versions.push(TREE, &i.to_be_bytes(), &writer, Some((&[7; 100], false)));
    }
    assert_eq!((f.collect(), f.versions.records()), (0, records as usize));
    let bytes = f.versions.bytes();
    assert!(bytes > records as u64 * (CHAIN_BYTES as u64 + 100), "{bytes} bytes");
    assert!(bytes < records as u64 * (CHAIN_BYTES as u64 + 200), "{bytes} bytes");
    for i in 0..records / 2 {
        f.versions.pop(TREE, &i.to_be_bytes(), &writer);
    }
    assert_eq!(f.versions.records(), records as usize / 2);
    f.commit(&writer);
    assert_eq!((f.collect(), f.versions.records()), (records as usize / 2, 0));
    assert_eq!(f.versions.bytes(), 0);
    f.collect();
    assert_eq!(writer.shares(), 0, "no version is left");
}

#[test]
fn keys_and_values_of_any_length_are_kept_apart() {
    let f = Fixture::new();
    let writer = f.begin();
    let long = vec![9u8; 5000];
    let keys: Vec<Vec<u8>> = vec![vec![], vec![0], vec![0, 0], vec![9; 1024], b"ab".to_vec()];
    for key in &keys {
        for tree in [TreeId(1), TreeId(2)] {
            let before = [key.as_slice(), &long[..key.len() * 4]].concat();
            assert!(f.versions.push(tree, key, &writer, Some((&before, tree.0 == 2))).is_some());
        }
    }
    assert_eq!(f.versions.records(), 10);
    for key in &keys {
        for tree in [TreeId(1), TreeId(2)] {
            let mut into = Vec::new();
            let seen = f.versions.read(tree, key, None, EVER, (&mut into, 0));
            assert_eq!(seen, Visible::Value { special: tree.0 == 2, ts: 0 });
            assert_eq!(into, [key.as_slice(), &long[..key.len() * 4]].concat());
        }
    }
}

#[test]
fn neighbours_beyond_the_places_of_their_shard_are_found_until_they_are_dropped() {
    let versions = Versions::new();
    let key = |i: u8| [9, i];
    let found = |i: u8| versions.contains(TREE, &key(i));
    // Up to 256 in one shard, dropped from either end, again and again in the same places.
    for (round, count) in [3, 40, 255, 1, 120, 13, 14].into_iter().enumerate() {
        let time = round as u64 + 1;
        let mut hashes: Vec<_> = (0..count)
            .map(|i| {
                assert!(!found(i), "{i} of {count}");
                versions.push_done(TREE, &key(i), time, Some((b"before", false)))
            })
            .collect();
        assert!((0..count).all(found) && !found(count), "{count}");
        versions.raise_horizon(time);
        let late = hashes.split_off(hashes.len() / 2);
        versions.drop_old(&late);
        assert!((0..count).all(|i| found(i) == (i < count / 2)), "{count}");
        // The others go without their owner, through the queue or in a sweep.
        match round % 3 {
            0 => versions.drop_old(&hashes),
            1 => {
                versions.hand_over(&hashes);
                assert!(versions.is_queued());
                versions.collect(&Active { oldest: time, ..Active::default() }, time, false);
            }
            _ => {
                versions.collect(&Active { oldest: time, ..Active::default() }, time, true);
            }
        }
        assert!(!(0..count).any(found) && !versions.is_queued(), "{count}");
        assert_eq!((versions.records(), versions.bytes()), (0, 0));
    }
}

/// A transaction takes back its change of one record, and continues with another record in the same
/// shard. That does not keep the versions of the first record.
#[test]
fn versions_under_one_that_was_taken_back_are_dropped_while_its_writer_goes_on() {
    let f = Fixture::new();
    let keys = [&b"a"[..], b"b"];
    let push = |key, writer: &Owner<TxnState>| {
        assert!(f.versions.push(TREE, key, writer, value("before")).is_some());
    };
    let first = f.begin();
    keys.iter().for_each(|key| push(key, &first));
    f.commit(&first);
    let second = f.begin();
    keys.iter().for_each(|key| push(key, &second));
    let active = f.snapshots.collect(&f.clock, &f.clock);
    assert_eq!(f.versions.collect(&active, 1, false), 0, "not durable yet");
    keys.iter().for_each(|key| f.versions.pop(TREE, key, &second));
    push(keys[0], &second);
    f.collect();
    assert!(f.versions.contains(TREE, keys[0]) && !f.versions.contains(TREE, keys[1]));
}
