//! Several sessions whose transactions are open side by side, in one thread, so that it is known
//! what each of them must see and whether a change of it meets another one's. Records are changed
//! in a few bytes, in all, in none, made longer and shorter and large, removed and inserted again,
//! with savepoints, while the pool holds a part of the pages only.

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Bound,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    rc::Rc,
    time::Duration,
};
use wattle::{
    Durability, Error, Isolation, MIN_LOG_BYTES, Options, Reads, Savepoint, Session, Transaction,
    Tree, TxnOptions,
};
use wattle_tests::harness::{Context, Device, assert_verified, rounds, small_pool};

type Key = Vec<u8>;
type Map = BTreeMap<Key, Rc<Vec<u8>>>;

/// Records that are changed again and again, and others.
const HOT: u32 = 24;
const ALL: u32 = 1200;
/// Transactions that are open at once.
const WRITERS: usize = 4;
const READERS: usize = 6;
/// Values above this length are not in the leaf, about.
const INLINE: usize = 1916;

fn key(random: &mut SmallRng) -> Key {
    match random.random_range(0..4) {
        0 => key_of(random.random_range(0..ALL)),
        _ => key_of(random.random_range(0..HOT) * (ALL / HOT)),
    }
}

fn key_of(number: u32) -> Key {
    let mut key = number.to_be_bytes().to_vec();
    // Some do not fit into a version that has no buffer.
    key.resize(4 + number as usize % 40, 1);
    key
}

fn value(random: &mut SmallRng, long: bool) -> Vec<u8> {
    let len = match random.random_range(0..60) {
        1.. if long => random.random_range(1000..INLINE),
        0 => random.random_range(2000..12_000),
        1..4 => INLINE - random.random_range(0..60),
        4..10 => random.random_range(0..4),
        10..30 => random.random_range(0..60),
        _ => random.random_range(0..700),
    };
    let mut value = vec![random.random(); len];
    random.fill(&mut value[..len.min(40)]);
    value
}

type Range = (Bound<Key>, Bound<Key>);

/// A range that is not empty for want of order.
fn range(random: &mut SmallRng) -> Range {
    let mut keys = [key(random), key(random)];
    keys.sort();
    let bound = |key: Key, how: u32| match how {
        0 => Bound::Unbounded,
        1..4 => Bound::Excluded(key),
        _ => Bound::Included(key),
    };
    let [low, high] = keys;
    let same = low == high;
    (
        bound(low, random.random_range(0..8)),
        bound(high, if same { 7 } else { random.random_range(0..8) }),
    )
}

/// Changes in place: ranges and what they are filled with.
fn change(random: &mut SmallRng) -> impl Fn(&mut [u8]) + use<> {
    let count = random.random_range(0..4);
    let most = [1, 8, 60, 3000][random.random_range(0..4)];
    let runs: Vec<(usize, usize, u8)> = (0..count)
        .map(|_| (random.random_range(0..1 << 20), random.random_range(1..=most), random.random()))
        .collect();
    move |value: &mut [u8]| {
        for (at, len, byte) in &runs {
            let from = if value.is_empty() { 0 } else { at % value.len() };
            let to = (from + len).min(value.len());
            value[from..to].iter_mut().for_each(|old| *old = old.wrapping_add(*byte));
        }
    }
}

fn changed(value: &[u8], change: impl Fn(&mut [u8])) -> Rc<Vec<u8>> {
    let mut value = value.to_vec();
    change(&mut value);
    Rc::new(value)
}

/// The state that a transaction must see, and whether it can commit.
#[derive(Clone, Default)]
struct Seen {
    map: Map,
    /// Records that it has changed.
    own: BTreeSet<Key>,
}

struct Writer<'s> {
    txn: Transaction<'s>,
    seen: Seen,
    kept: Vec<(Savepoint, Seen)>,
    /// Commits before it.
    began: u64,
    wrote: bool,
    /// Keys and ranges that it read, if it is serializable.
    reads: Option<(BTreeSet<Key>, Vec<Range>)>,
    failed: bool,
}

struct Reader<'s> {
    txn: Transaction<'s>,
    map: Map,
}

struct World<'s> {
    sessions: &'s [Session],
    tree: &'s Tree,
    /// Pages that take the place of others.
    filler: &'s Tree,
    random: SmallRng,
    writers: [Option<Writer<'s>>; WRITERS],
    readers: Vec<Reader<'s>>,
    /// The states after each commit, in order.
    history: VecDeque<Map>,
    commits: u64,
    /// The last commit that changed a record.
    last: BTreeMap<Key, u64>,
    /// Commits are durable when they return.
    durable: bool,
    /// Versions may be dropped early.
    scarce: bool,
    /// New values are long ones.
    long: bool,
    given_up: u64,
    conflicts: u64,
}

/// Compares the records of a range.
fn look_at(txn: &Transaction<'_>, tree: &Tree, map: &Map, range: Range) -> Result<(), Error> {
    let bounds = (range.0.as_ref(), range.1.as_ref());
    let found: Vec<(Key, Vec<u8>)> = txn.range(tree, bounds)?.collect::<Result<_, _>>()?;
    let expected = map.range(range).map(|(key, value)| (key, &**value));
    assert!(found.iter().map(|(key, value)| (key, value)).eq(expected), "a range differs");
    Ok(())
}

fn get_all(txn: &Transaction<'_>, tree: &Tree) -> Result<BTreeMap<Key, Vec<u8>>, Error> {
    txn.scan(tree)?.collect()
}

fn assert_same(found: &BTreeMap<Key, Vec<u8>>, expected: &Map) {
    for (key, value) in expected {
        let found = found.get(key);
        assert!(found == Some(&**value), "{key:02x?} is {found:02x?}, not {value:02x?}");
    }
    for key in found.keys() {
        assert!(expected.contains_key(key), "{key:02x?} should not be there");
    }
}

/// Compares what a transaction sees with what it must see.
fn look(
    txn: &Transaction<'_>,
    tree: &Tree,
    map: &Map,
    how: u32,
    random: &mut SmallRng,
) -> Result<(), Error> {
    let keys: Vec<Key> = (0..40).map(|_| key(random)).collect();
    match how {
        0 => assert_same(&get_all(txn, tree)?, map),
        1 => {
            let found: Result<_, Error> = txn.scan(tree)?.rev().collect();
            assert_same(&found?, map);
        }
        2 => {
            let mut result = Ok(());
            txn.multi_get(tree, &keys, |i, found| {
                let expected = map.get(&keys[i]).map(|value| &value[..]);
                assert!(found == expected, "{:02x?}: {found:02x?}, not {expected:02x?}", keys[i]);
            })
            .unwrap_or_else(|error| result = Err(error));
            result?;
        }
        _ => {
            for key in &keys {
                let (found, expected) = (txn.get(tree, key)?, map.get(key));
                assert!(
                    found.as_ref() == expected.map(|value| &**value),
                    "{key:02x?}: {found:02x?}, not {expected:02x?}"
                );
            }
        }
    }
    Ok(())
}

impl<'s> World<'s> {
    fn now(&self) -> &Map {
        self.history.back().expect("there is a first one")
    }

    /// A commit made the records of `own` what `map` says.
    fn committed(&mut self, own: &BTreeSet<Key>, map: &Map) {
        let mut now = self.now().clone();
        self.commits += 1;
        for key in own {
            match map.get(key) {
                Some(value) => now.insert(key.clone(), value.clone()),
                None => now.remove(key),
            };
            self.last.insert(key.clone(), self.commits);
        }
        self.history.push_back(now);
        if self.durable {
            self.history.pop_front();
        }
    }

    fn is_owned(&self, key: &[u8], but: usize) -> bool {
        let others = self.writers.iter().enumerate().filter(|(who, _)| *who != but);
        others.flat_map(|(_, writer)| writer).any(|writer| writer.seen.own.contains(key))
    }

    fn begin(&mut self, who: usize) {
        let session = &self.sessions[self.random.random_range(0..self.sessions.len())];
        let serializable = self.random.random_range(0..3) == 0;
        let isolation = if serializable { Isolation::Serializable } else { Isolation::Snapshot };
        let txn = session.begin_with(TxnOptions { isolation, ..TxnOptions::default() });
        self.writers[who] = Some(Writer {
            txn: txn.expect("begin"),
            seen: Seen { map: self.now().clone(), own: BTreeSet::new() },
            kept: Vec::new(),
            began: self.commits,
            wrote: false,
            reads: serializable.then(Default::default),
            failed: false,
        });
    }

    fn read(&mut self) {
        if self.readers.len() == READERS {
            let at = self.random.random_range(0..READERS);
            self.readers.swap_remove(at).txn.commit().expect("the end of a reader");
        }
        let session = &self.sessions[self.random.random_range(0..self.sessions.len())];
        let durable = self.random.random();
        let txn = if durable { session.begin_read() } else { session.begin() }.expect("begin");
        let mut map = self.now().clone();
        if durable && !self.durable {
            // As of a commit that is durable, whichever it is.
            let Ok(found) = get_all(&txn, self.tree) else {
                assert!(self.scarce);
                return;
            };
            let same = |map: &&Map| {
                map.len() == found.len()
                    && map.iter().zip(&found).all(|(a, b)| a.0 == b.0 && **a.1 == *b.1)
            };
            map = self.history.iter().rev().find(same).expect("as of a commit").clone();
        }
        self.readers.push(Reader { txn, map });
    }

    /// One change of a transaction.
    fn write(&mut self, who: usize) {
        let key = key(&mut self.random);
        self.write_to(who, key);
    }

    fn write_to(&mut self, who: usize, key: Key) {
        if self.writers[who].is_none() {
            self.begin(who);
        }
        let taken = self.is_owned(&key, who);
        let last = self.last.get(&key).copied().unwrap_or(0);
        let (tree, long, random) = (self.tree, self.long, &mut self.random);
        let writer = self.writers[who].as_mut().expect("begun");
        if writer.failed {
            return;
        }
        let conflict = taken || last > writer.began;
        writer.wrote = true;
        if let Some((points, _)) = &mut writer.reads {
            points.insert(key.clone());
        }
        let txn = &mut writer.txn;
        let before = writer.seen.map.get(&key).cloned();
        let mut after = before.clone();
        let existed = before.is_some();
        // Whether the record was changed.
        let outcome = match random.random_range(0..100) {
            0..55 => {
                let change = change(random);
                after = before.as_ref().map(|value| changed(value, &change));
                txn.modify(tree, &key, change).inspect(|found| assert_eq!(*found, existed))
            }
            55..58 => {
                let given_up = AssertUnwindSafe(|| {
                    txn.modify(tree, &key, |value| {
                        value.fill(77);
                        resume_unwind(Box::new(()))
                    })
                });
                match catch_unwind(given_up) {
                    Ok(outcome) => outcome.inspect(|found| assert!(!found && !existed)),
                    Err(_) => Ok(false),
                }
            }
            58..68 => {
                let new = value(random, long);
                after = Some(Rc::new(new.clone()));
                txn.put(tree, &key, &new).map(|()| true)
            }
            68..76 => {
                // As long as it was, with other bytes here and there.
                let change = change(random);
                let new = changed(before.as_ref().map_or(&[1; 30][..], |old| old), change);
                after = Some(new.clone());
                txn.put(tree, &key, &new).map(|()| true)
            }
            76..82 => {
                let new = value(random, long);
                after = before.as_ref().map(|_| Rc::new(new.clone()));
                txn.update(tree, &key, &new).inspect(|found| assert_eq!(*found, existed))
            }
            82..88 => {
                let new = value(random, long);
                match txn.insert(tree, &key, &new) {
                    Err(Error::KeyExists) => {
                        assert!(existed);
                        Ok(false)
                    }
                    outcome => {
                        assert!(outcome.is_err() || !existed);
                        after = Some(Rc::new(new));
                        outcome.map(|()| true)
                    }
                }
            }
            _ => {
                after = None;
                txn.remove(tree, &key).inspect(|found| assert_eq!(*found, existed))
            }
        };
        match outcome {
            Ok(was_changed) => {
                assert!(!conflict, "{key:02x?} was changed over another change");
                if was_changed {
                    writer.seen.own.insert(key.clone());
                }
                match after {
                    Some(value) => writer.seen.map.insert(key, value),
                    None => writer.seen.map.remove(&key),
                };
            }
            Err(Error::Conflict(_)) => {
                assert!(conflict || self.scarce, "no transaction changed {key:02x?}");
                self.conflicts += 1;
                writer.failed = true;
            }
            Err(Error::SnapshotTooOld(_)) if self.scarce => {
                self.given_up += 1;
                writer.failed = true;
            }
            Err(error) => panic!("a change of {key:02x?}: {error}"),
        }
    }

    /// Many changes of a transaction at once, mostly of neighbours.
    fn write_many(&mut self, who: usize) {
        if self.writers[who].is_none() {
            self.begin(who);
        }
        let random = &mut self.random;
        let first = random.random_range(0..ALL);
        let keys: Vec<Key> = match random.random_range(0..6) {
            0 => (0..random.random_range(0..30)).map(|_| key(random)).collect(),
            1 => (0..random.random_range(1..40)).rev().map(|i| key_of(first + i)).collect(),
            _ => (0..random.random_range(1..40)).map(|i| key_of(first + i)).collect(),
        };
        let began = self.writers[who].as_ref().expect("begun").began;
        let is_later = |key: &Key| self.last.get(key).is_some_and(|last| *last > began);
        let conflicts: Vec<bool> =
            keys.iter().map(|key| self.is_owned(key, who) || is_later(key)).collect();
        let (tree, random) = (self.tree, &mut self.random);
        let writer = self.writers[who].as_mut().expect("begun");
        if writer.failed {
            return;
        }
        writer.wrote = true;
        if let Some((points, _)) = &mut writer.reads {
            points.extend(keys.iter().cloned());
        }
        let (txn, mut map) = (&mut writer.txn, writer.seen.map.clone());
        let mut own = BTreeSet::new();
        // The result of the same changes one by one: all of them, or none from some key on.
        let mut conflict = false;
        let outcome = if random.random_range(0..3) == 0 {
            let new: Vec<(Key, Vec<u8>)> =
                keys.into_iter().map(|key| (key, value(random, false))).collect();
            let mut exists = false;
            for ((key, value), in_way) in new.iter().zip(conflicts) {
                conflict = in_way;
                exists = !conflict && map.contains_key(key);
                if conflict || exists {
                    break;
                }
                map.insert(key.clone(), Rc::new(value.clone()));
                own.insert(key.clone());
            }
            match txn.insert_many(tree, &new) {
                Err(Error::KeyExists) => {
                    assert!(exists, "none of these was there");
                    return;
                }
                outcome => outcome.inspect(|()| assert!(!exists)),
            }
        } else {
            conflict = conflicts.contains(&true);
            let changes: Vec<_> = keys.iter().map(|_| change(random)).collect();
            for (key, change) in keys.iter().zip(&changes) {
                if let Some(value) = map.get_mut(key) {
                    *value = changed(value, change);
                    own.insert(key.clone());
                }
            }
            let there = keys.iter().filter(|key| map.contains_key(*key)).count();
            let gives_up = random.random_range(0..20) == 0;
            let many = AssertUnwindSafe(|| {
                let mut seen = 0;
                txn.modify_many(tree, &keys, |i, value| {
                    changes[i](value);
                    seen += 1;
                    if gives_up && seen > 3 {
                        resume_unwind(Box::new(()));
                    }
                })
            });
            match catch_unwind(many) {
                Ok(outcome) => outcome.map(|found| assert_eq!(found, there)),
                Err(_) => {
                    // Some are changed.
                    let next = txn.put(tree, &keys[0], b"");
                    assert!(matches!(next, Err(Error::MustAbort(_))), "{next:?}");
                    return self.give_up(who);
                }
            }
        };
        match outcome {
            Ok(()) => {
                assert!(!conflict, "one of many was changed over another change");
                writer.seen.own.extend(own);
                writer.seen.map = map;
            }
            Err(Error::Conflict(_)) => {
                assert!(conflict || self.scarce, "no transaction changed any of these");
                self.conflicts += 1;
                self.give_up(who);
            }
            Err(Error::SnapshotTooOld(_)) if self.scarce => {
                self.given_up += 1;
                self.give_up(who);
            }
            Err(error) => panic!("many changes: {error}"),
        }
    }

    /// Aborts a transaction that has changed more than its map says.
    fn give_up(&mut self, who: usize) {
        let writer = self.writers[who].take().expect("begun");
        writer.txn.abort().expect("abort");
    }

    /// So many changes that its versions have no room.
    fn binge(&mut self, who: usize) {
        // Alone, or it would soon meet another one.
        (0..WRITERS).for_each(|who| self.end(who));
        self.long = self.random.random();
        for _ in 0..self.random.random_range(300..3000) {
            let key = key_of(self.random.random_range(0..ALL));
            self.write_to(who, key);
            if self.random.random_range(0..2000) == 0 {
                let other = self.random.random_range(0..WRITERS);
                self.write(other);
            }
            if self.random.random_range(0..500) == 0 {
                self.savepoint(who);
                self.check();
            }
        }
        self.long = false;
    }

    /// Marks a place, or goes back to one.
    fn savepoint(&mut self, who: usize) {
        let Some(writer) = &mut self.writers[who] else { return };
        if writer.failed {
            return;
        }
        if writer.kept.is_empty() || self.random.random() {
            return writer.kept.push((writer.txn.savepoint(), writer.seen.clone()));
        }
        writer.kept.truncate(self.random.random_range(0..writer.kept.len()) + 1);
        let (savepoint, seen) = writer.kept.last().expect("at least one");
        writer.txn.rollback_to(savepoint).expect("roll back");
        writer.seen = seen.clone();
    }

    fn end(&mut self, who: usize) {
        let Some(writer) = self.writers[who].take() else { return };
        if writer.failed || self.random.random_range(0..4) == 0 {
            return writer.txn.abort().expect("abort");
        }
        let is_later = |key: &Key| self.last.get(key).is_some_and(|last| *last > writer.began);
        let conflict = writer.reads.is_some_and(|(points, ranges)| {
            let has_changed = |range: &Range| {
                self.last.range(range.clone()).any(|(_, last)| *last > writer.began)
            };
            writer.wrote && (points.iter().any(is_later) || ranges.iter().any(has_changed))
        });
        let outcome = match self.durable {
            true => writer.txn.commit(),
            false => writer.txn.commit_ticket().map(drop),
        };
        match outcome {
            Ok(()) => {
                assert!(!conflict, "it committed over what it has read");
                if !writer.seen.own.is_empty() {
                    self.committed(&writer.seen.own, &writer.seen.map);
                }
            }
            Err(Error::Conflict(_)) => {
                assert!(conflict || self.scarce, "a conflict without a cause")
            }
            Err(Error::SnapshotTooOld(_)) => assert!(self.scarce),
            Err(error) => panic!("commit: {error}"),
        }
    }

    /// A change that is a transaction of its own.
    fn single(&mut self) {
        let key = key(&mut self.random);
        let active = self.writers.iter().flatten().next().is_some();
        if self.is_owned(&key, WRITERS) || self.scarce && active {
            // It would wait.
            return;
        }
        let session = &self.sessions[self.random.random_range(0..self.sessions.len())];
        let (tree, long, random) = (self.tree, false, &mut self.random);
        let before = self.history.back().and_then(|map| map.get(&key).cloned());
        let (done, after) = match random.random_range(0..10) {
            0 => {
                let given_up = AssertUnwindSafe(|| {
                    session.modify(tree, &key, |value| {
                        value.fill(77);
                        resume_unwind(Box::new(()))
                    })
                });
                match catch_unwind(given_up) {
                    Ok(found) => assert!(!found.expect("modify") && before.is_none()),
                    Err(_) => assert!(before.is_some()),
                }
                (false, None)
            }
            1..6 => {
                let change = change(random);
                let after = before.as_ref().map(|value| changed(value, &change));
                let found = session.modify(tree, &key, change).expect("modify");
                assert_eq!(found, before.is_some());
                (found, after)
            }
            6..9 => {
                let new = value(random, long);
                session.put(tree, &key, &new).expect("put");
                (true, Some(Rc::new(new)))
            }
            _ => {
                let found = session.remove(tree, &key).expect("remove");
                assert_eq!(found, before.is_some());
                (found, None)
            }
        };
        if done {
            let map = after.into_iter().map(|value| (key.clone(), value)).collect();
            self.committed(&BTreeSet::from([key]), &map);
        }
    }

    /// Compares what somebody sees.
    fn check(&mut self) {
        let how = self.random.random_range(0..8);
        if self.random.random_range(0..3) > 0 && !self.readers.is_empty() {
            let at = self.random.random_range(0..self.readers.len());
            let Reader { txn, map } = &self.readers[at];
            if let Err(error) = look(txn, self.tree, map, how, &mut self.random) {
                assert!(self.scarce && matches!(error, Error::SnapshotTooOld(_)), "{error}");
                self.given_up += 1;
                self.readers.swap_remove(at);
            }
            return;
        }
        let who = self.random.random_range(0..WRITERS);
        let Some(writer) = &mut self.writers[who] else { return };
        if writer.failed {
            return;
        }
        let outcome = match &mut writer.reads {
            Some((_, ranges)) => {
                let range = range(&mut self.random);
                ranges.push(range.clone());
                look_at(&writer.txn, self.tree, &writer.seen.map, range)
            }
            None => look(&writer.txn, self.tree, &writer.seen.map, how, &mut self.random),
        };
        if let Err(error) = outcome {
            assert!(self.scarce && matches!(error, Error::SnapshotTooOld(_)), "{error}");
            self.given_up += 1;
            writer.failed = true;
        }
    }

    /// Brings other pages into memory.
    fn evict(&mut self) {
        for _ in 0..60 {
            let number = self.random.random_range(0..FILLER);
            let found = self.sessions[0].get(self.filler, &number.to_be_bytes()).expect("get");
            assert!(found.is_some_and(|value| value[..] == [number as u8; 1500]));
        }
    }

    fn step(&mut self) {
        let who = self.random.random_range(0..WRITERS);
        match self.random.random_range(0..100) {
            0 if self.scarce => self.binge(who),
            0..48 => self.write(who),
            48..56 => self.write_many(who),
            56..61 => self.savepoint(who),
            61..71 => self.end(who),
            71..81 => self.single(),
            81..85 => self.read(),
            85..99 => self.check(),
            _ => self.evict(),
        }
    }
}

/// Records of the filler, of 1500 bytes.
const FILLER: u32 = 200;

fn run(options: Options, durable: bool, seeds: std::ops::Range<u64>, steps: u64, scarce: bool) {
    println!("{options:?}");
    let (mut given_up, mut conflicts) = (0, 0);
    for seed in seeds {
        let _context = Context(("seed", seed));
        let engine = Device::memory().open(options.clone()).expect("open");
        let (tree, filler) =
            (engine.tree("tree").expect("tree"), engine.tree("filler").expect("tree"));
        let sessions: Vec<_> = (0..3).map(|_| engine.session().expect("session")).collect();
        let rows: Vec<_> = (0..FILLER).map(|i| (i.to_be_bytes(), [i as u8; 1500])).collect();
        sessions[0].bulk_load(&filler, rows).expect("load");
        let mut world = World {
            sessions: &sessions,
            tree: &tree,
            filler: &filler,
            random: SmallRng::seed_from_u64(seed),
            writers: [const { None }; WRITERS],
            readers: Vec::new(),
            history: VecDeque::from([Map::new()]),
            commits: 0,
            last: BTreeMap::new(),
            durable,
            scarce,
            long: false,
            given_up: 0,
            conflicts: 0,
        };
        for _ in 0..ALL / 2 {
            let (key, value) = (key(&mut world.random), value(&mut world.random, false));
            sessions[0].put(&tree, &key, &value).expect("put");
            world.committed(&BTreeSet::from([key.clone()]), &Map::from([(key, Rc::new(value))]));
        }
        for _ in 0..steps {
            world.step();
        }
        for Reader { txn, map } in std::mem::take(&mut world.readers) {
            if let Err(error) = look(&txn, &tree, &map, 0, &mut world.random) {
                assert!(scarce, "{error}");
            }
        }
        (0..WRITERS).for_each(|who| world.end(who));
        let all = sessions[0].begin().expect("begin");
        assert_same(&get_all(&all, &tree).expect("scan"), world.now());
        drop(all);
        (given_up, conflicts) = (given_up + world.given_up, conflicts + world.conflicts);
        drop(world);
        drop(sessions);
        assert_verified(&engine);
        drop((tree, filler));
        engine.close().expect("close");
    }
    println!("{conflicts} conflicts, {given_up} snapshots cancelled");
    assert!(conflicts > 0 && (given_up > 0) == scarce);
}

fn pool() -> Options {
    small_pool(48).log_bytes(MIN_LOG_BYTES).stall_timeout(Duration::from_secs(10))
}

fn seeds(from: u64) -> std::ops::Range<u64> {
    let from = std::env::var("WATTLE_TEST_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(from);
    from..from + 4 * rounds()
}

#[test]
fn snapshots_side_by_side_agree_with_their_maps_without_a_log() {
    run(pool().log(false), true, seeds(0), 6000, false);
}

#[test]
fn snapshots_side_by_side_agree_with_their_maps() {
    run(pool(), true, seeds(1000), 4000, false);
}

#[test]
fn snapshots_side_by_side_agree_with_their_maps_while_commits_are_not_durable() {
    run(pool().durability(Durability::None), false, seeds(2000), 6000, false);
}

#[test]
fn snapshots_side_by_side_agree_with_their_maps_where_reads_see_the_newest_commits() {
    let options = pool().durability(Durability::Group).reads(Reads::Newest);
    run(options, false, seeds(4000), 3000, false);
}

/// Transactions soon take the tree for themselves.
#[test]
fn snapshots_side_by_side_are_right_or_given_up_where_versions_have_no_room() {
    run(pool().version_bytes(1 << 20), true, seeds(3000), 2000, true);
}
