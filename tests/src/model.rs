//! A client that performs random operations on a tree and on a `BTreeMap` at once and compares
//! every answer. Several clients may work on one tree: each owns the keys that end in its number,
//! so their keys share leaves while each model stays exact.

use rand::{RngExt, SeedableRng, rngs::SmallRng, seq::IndexedRandom};
use std::{collections::BTreeMap, ops::Bound};
use wattle::{MAX_KEY, Session, Tree};

/// How keys look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Eight random bytes of a small universe.
    Random,
    /// Ascending 4-byte numbers, so that inserts append.
    Ascending,
    /// Descending 4-byte numbers.
    Descending,
    /// One long shared prefix and a number.
    Prefixed,
    /// Keys that are prefixes of each other, of zero bytes and few others.
    Nested,
    /// Lengths from empty to the maximum.
    Wild,
}

/// All shapes.
pub const ALL_KEYS: [Keys; 6] =
    [Keys::Random, Keys::Ascending, Keys::Descending, Keys::Prefixed, Keys::Nested, Keys::Wild];

/// An operation of a client.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Shape of keys.
    pub keys: Keys,
    /// Number of different keys.
    pub universe: u32,
    /// Longest value that is common, bytes.
    pub value: usize,
    /// One write in this many has a large value; 0 for none.
    pub large_every: u32,
    /// Longest large value, bytes, above 1900.
    pub large: usize,
    /// Number of the client, and how many there are.
    pub client: u32,
    /// How many clients there are.
    pub clients: u32,
}

/// See the module documentation.
pub struct Client {
    /// The contents that the tree must have.
    pub model: BTreeMap<Vec<u8>, Vec<u8>>,
    plan: Plan,
    random: SmallRng,
    next: u32,
    /// Share of removes among writes moves between few and many, so that the tree grows and
    /// shrinks.
    tide: u32,
}

impl Client {
    /// A client whose every choice follows from `seed`.
    pub fn new(plan: Plan, seed: u64) -> Client {
        let random = SmallRng::seed_from_u64(seed ^ (u64::from(plan.client) << 48));
        Client { model: BTreeMap::new(), plan, random, next: 0, tide: 0 }
    }

    fn key(&mut self) -> Vec<u8> {
        let number = self.random.random_range(0..self.plan.universe);
        self.key_of(number)
    }

    fn key_of(&self, number: u32) -> Vec<u8> {
        let mut key = match self.plan.keys {
            Keys::Random => {
                (u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec()
            }
            Keys::Ascending => number.to_be_bytes().to_vec(),
            Keys::Descending => (u32::MAX - number).to_be_bytes().to_vec(),
            Keys::Prefixed => {
                let mut key =
                    b"a prefix that all of the keys of this test have in common/".to_vec();
                key.extend_from_slice(format!("{number:x}").as_bytes());
                key
            }
            Keys::Nested => {
                let mut key = vec![0; (number % 40) as usize];
                key.extend((0..number / 40 % 8).map(|i| (number >> i & 1) as u8));
                key.extend_from_slice(&(number / 320).to_le_bytes()[..2]);
                key
            }
            Keys::Wild => {
                let hash = number.wrapping_mul(0x9e37_79b1);
                let len = match hash % 8 {
                    0 => 0,
                    1 => 1,
                    2..=4 => (hash >> 8) as usize % 24,
                    5 | 6 => (hash >> 8) as usize % 300,
                    _ => MAX_KEY - 2 - (hash >> 8) as usize % 3,
                };
                let fill = (hash >> 20) as u8 % 3;
                let mut key = vec![fill; len];
                let tail = number.to_be_bytes();
                let n = tail.len().min(len);
                let at = len - n;
                key[at..].copy_from_slice(&tail[4 - n..]);
                key
            }
        };
        if self.plan.clients > 1 {
            key.truncate(MAX_KEY - 1);
            key.push(self.plan.client as u8);
        }
        key
    }

    fn value(&mut self) -> Vec<u8> {
        let large =
            self.plan.large_every > 0 && self.random.random_range(0..self.plan.large_every) == 0;
        let len = if large {
            self.random.random_range(1900..=self.plan.large)
        } else {
            match self.random.random_range(0..8) {
                0 => 0,
                1..=5 => self.random.random_range(0..=self.plan.value / 4),
                _ => self.random.random_range(0..=self.plan.value),
            }
        };
        let start: u32 = self.random.random();
        (0..len as u32).map(|i| start.wrapping_add(i.wrapping_mul(2_654_435_761)) as u8).collect()
    }

    /// Adds random records to the model only, for a tree that is filled by other means.
    pub fn imagine(&mut self, records: u32) {
        for _ in 0..records {
            let (key, value) = (self.key(), self.value());
            self.model.insert(key, value);
        }
    }

    /// One random operation, compared with the model.
    pub fn step(&mut self, session: &Session, tree: &Tree) {
        self.next = self.next.wrapping_add(1);
        if self.next.is_multiple_of(self.plan.universe * 2) {
            self.tide += 1;
        }
        let removes = [5, 30, 15, 60][self.tide as usize % 4];
        let dice = self.random.random_range(0..200);
        let key = match self.plan.keys {
            Keys::Ascending | Keys::Descending if dice < 60 => {
                self.key_of(self.next % self.plan.universe)
            }
            _ => self.key(),
        };
        match dice {
            0..30 => {
                let value = self.value();
                session.put(tree, &key, &value).expect("put");
                self.model.insert(key, value);
            }
            30..50 => {
                let value = self.value();
                match session.insert(tree, &key, &value) {
                    Ok(()) => assert!(self.model.insert(key, value).is_none(), "inserted twice"),
                    Err(wattle::Error::KeyExists) => assert!(self.model.contains_key(&key)),
                    Err(error) => panic!("insert: {error}"),
                }
            }
            50..65 => {
                let value = self.value();
                let updated = session.update(tree, &key, &value).expect("update");
                assert_eq!(updated, self.model.contains_key(&key), "update of {key:02x?}");
                if updated {
                    self.model.insert(key, value);
                }
            }
            65..75 => {
                let mark: u8 = self.random.random();
                let modified = session
                    .modify(tree, &key, |value| value.iter_mut().for_each(|byte| *byte ^= mark))
                    .expect("modify");
                assert_eq!(modified, self.model.contains_key(&key), "modify of {key:02x?}");
                if let Some(value) = self.model.get_mut(&key) {
                    value.iter_mut().for_each(|byte| *byte ^= mark);
                }
            }
            _ if dice < 75 + removes => {
                let removed = session.remove(tree, &key).expect("remove");
                assert_eq!(removed, self.model.remove(&key).is_some(), "remove of {key:02x?}");
            }
            _ if dice < 195 => {
                let value = session.get(tree, &key).expect("get");
                self.check_value(&key, value.as_deref());
            }
            195 => self.check_many(session, tree),
            _ => self.check_range(session, tree, &key),
        }
    }

    fn check_value(&self, key: &[u8], value: Option<&[u8]>) {
        let expected = self.model.get(key).map(Vec::as_slice);
        if value != expected {
            panic!(
                "key {key:02x?}: {:?} bytes instead of {:?}",
                value.map(<[u8]>::len),
                expected.map(<[u8]>::len)
            );
        }
    }

    fn check_many(&mut self, session: &Session, tree: &Tree) {
        let keys: Vec<_> = (0..self.random.random_range(0..80)).map(|_| self.key()).collect();
        let mut seen = vec![0; keys.len()];
        if self.random.random_bool(0.5) {
            let records: Vec<_> = keys.iter().map(|key| (tree, key)).collect();
            session.prefetch(&records).expect("prefetch");
        }
        session
            .multi_get(tree, &keys, |i, value| {
                seen[i] += 1;
                self.check_value(&keys[i], value);
            })
            .expect("multi_get");
        assert!(seen.iter().all(|count| *count == 1), "each key is reported once: {seen:?}");
    }

    /// Compares a short range in a random direction. Other clients' keys are passed over.
    fn check_range(&mut self, session: &Session, tree: &Tree, key: &[u8]) {
        let other = self.key();
        let (low, high) = if key <= &other[..] { (key, &other[..]) } else { (&other[..], key) };
        let low = *[Bound::Included(low), Bound::Excluded(low), Bound::Unbounded]
            .choose(&mut self.random)
            .expect("three");
        let high = *[Bound::Included(high), Bound::Excluded(high), Bound::Unbounded]
            .choose(&mut self.random)
            .expect("three");
        if let (Bound::Excluded(a), Bound::Excluded(b)) = (low, high)
            && a == b
        {
            return;
        }
        let limit = self.random.random_range(1..200);
        let range = session.range(tree, (low, high)).expect("range");
        let backward = self.random.random();
        let range = if backward { range.rev() } else { range };
        let found = range
            .map(|entry| entry.expect("range entry"))
            .filter(|(key, _)| self.owns(key))
            .take(limit);
        let model = self.model.range::<[u8], _>((low, high));
        let matches = if backward {
            found.eq(model.rev().take(limit).map(|(k, v)| (k.clone(), v.clone())))
        } else {
            found.eq(model.take(limit).map(|(k, v)| (k.clone(), v.clone())))
        };
        assert!(matches, "range {low:02x?} to {high:02x?}, backward: {backward}");
    }

    fn owns(&self, key: &[u8]) -> bool {
        self.plan.clients == 1 || key.last() == Some(&(self.plan.client as u8))
    }

    /// Compares the whole tree with the model, in both directions.
    pub fn check_all(&self, session: &Session, tree: &Tree) {
        let mut range = session.scan(tree).expect("scan");
        let mut model = self.model.iter();
        while let Some((key, value)) = range.next_entry().expect("scan entry") {
            if !self.owns(key) {
                continue;
            }
            let (expected_key, expected_value) = model.next().expect("a key that should be gone");
            assert_eq!(key, expected_key, "scan");
            assert!(value == expected_value, "value of {key:02x?}");
        }
        assert_eq!(model.next(), None, "a lost record");
        let backward = session.scan(tree).expect("scan").rev();
        let keys = backward.map(|entry| entry.expect("entry").0).filter(|key| self.owns(key));
        assert!(keys.eq(self.model.keys().rev().cloned()), "backward scan");
    }
}
