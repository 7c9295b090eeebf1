//! Actors with a thread each, whose operations block.

use crate::world::{Beat, Check, World, number_of, value};
use std::{
    collections::BTreeMap,
    sync::Arc,
    thread::Scope,
    time::{Duration, Instant},
};
use wattle::{Session, Tree};
use wattle_tests::harness::Random;

/// Keys of each churning thread, of the pairs, and of the large values.
const KEYS: u64 = 8000;
const PAIRS: u64 = 2000;
const LARGE: u64 = 4;
/// Names that trees have.
const NAMES: u64 = 1200;

pub fn start<'s>(scope: &'s Scope<'s, '_>, world: &'s World) {
    let run = |actor: fn(&World)| {
        scope.spawn(move || {
            let _guard = world.stop_at_panic();
            actor(world);
        });
    };
    run(|world| Churn::new(world, 0).run());
    run(|world| Churn::new(world, 1).run());
    run(pairs);
    run(|world| snapshots(world, 0));
    run(|world| snapshots(world, 1));
    run(large);
    run(trees);
}

/// Small records that come, change and go.
struct Churn<'w> {
    world: &'w World,
    beat: Arc<Beat>,
    random: Random,
    tree: Tree,
    session: Session,
    id: u8,
    next: u64,
    model: BTreeMap<Vec<u8>, (u64, usize)>,
}

impl<'w> Churn<'w> {
    fn new(world: &'w World, id: u8) -> Churn<'w> {
        Churn {
            world,
            beat: world.beat(format!("churn {id}")),
            random: world.random(u64::from(id)),
            tree: world.engine.tree("churn").expect("tree"),
            session: world.engine.session().expect("session"),
            id,
            next: 0,
            model: BTreeMap::new(),
        }
    }

    fn key(&mut self) -> Vec<u8> {
        let number = self.random.below(KEYS);
        let mut key = vec![self.id];
        key.extend_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        key
    }

    /// Another value of 8 to 407 bytes.
    fn value(&mut self) -> (u64, usize) {
        self.next += 1;
        (self.next, 8 + self.random.below(400) as usize)
    }

    fn note(&mut self, key: Vec<u8>, after: Option<(u64, usize)>) {
        let size = |value: &Option<(u64, usize)>| value.map_or(0, |(_, len)| len + 9);
        let before = match after {
            Some(value) => self.model.insert(key, value),
            None => self.model.remove(&key),
        };
        self.world.grow(size(&before), size(&after));
    }

    fn run(mut self) {
        while !self.world.is_over() {
            match self.random.below(100) {
                0..35 => self.put(),
                35..60 => self.remove(),
                60..75 => self.get(),
                _ => self.transaction(),
            }
        }
        let (prefix, tree) = (vec![self.id], "churn".to_string());
        self.world.add_check(Check { tree, prefix, records: self.model });
    }

    fn put(&mut self) {
        let (key, (number, len)) = (self.key(), self.value());
        let bytes = value(number, len);
        let waits = self.random.below(20) == 0;
        let put = || match waits {
            true => self.session.put(&self.tree, &key, &bytes),
            false => self.session.put_ticket(&self.tree, &key, &bytes).map(drop),
        };
        if self.beat.attempt("put", put).is_some() {
            self.note(key, Some((number, len)));
        }
    }

    fn remove(&mut self) {
        let key = self.key();
        let remove = || self.session.remove_ticket(&self.tree, &key).map(|(there, _)| there);
        if let Some(there) = self.beat.attempt("remove", remove) {
            assert_eq!(there, self.model.contains_key(&key), "remove of {key:?}");
            self.note(key, None);
        }
    }

    fn get(&mut self) {
        let key = self.key();
        let get = || self.session.get(&self.tree, &key);
        if let Some(found) = self.beat.attempt("get", get) {
            let found = found.map(|bytes| (number_of(&bytes), bytes.len()));
            assert_eq!(found, self.model.get(&key).copied(), "record {key:?}");
        }
    }

    /// Up to 40 changes in one transaction; one in five of them is aborted.
    fn transaction(&mut self) {
        let Some(mut txn) = self.beat.attempt("begin", || self.session.begin()) else { return };
        let mut changes = Vec::new();
        for _ in 0..1 + self.random.below(40) {
            let number = self.random.below(KEYS);
            let mut key = vec![self.id];
            key.extend_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
            self.next += 1;
            let after = (self.random.below(3) > 0)
                .then(|| (self.next, 8 + self.random.below(400) as usize));
            let change = || match after {
                Some((number, len)) => txn.put(&self.tree, &key, &value(number, len)),
                None => txn.remove(&self.tree, &key).map(drop),
            };
            if self.beat.attempt("change of a transaction", change).is_none() {
                _ = self.beat.attempt("abort", || txn.abort());
                return;
            }
            changes.push((key, after));
        }
        if self.random.below(5) == 0 {
            // Dropped, not aborted, now and then: the engine rolls it back.
            match self.random.below(2) {
                0 => drop(txn),
                _ => _ = self.beat.attempt("abort", || txn.abort()),
            }
            return;
        }
        if self.beat.attempt("commit", || txn.commit_ticket()).is_some() {
            changes.into_iter().for_each(|(key, after)| self.note(key, after));
        }
    }
}

/// Two records that always change together.
fn pairs(world: &World) {
    let (beat, mut random) = (world.beat("pairs"), world.random(10));
    let session = world.engine.session().expect("session");
    let left = world.engine.tree("left").expect("tree");
    let right = world.engine.tree("right").expect("tree");
    let mut model = BTreeMap::new();
    let mut next = 0;
    while !world.is_over() {
        next += 1;
        let key = random.below(PAIRS).to_be_bytes();
        let bytes = value(next, 60);
        let change = || {
            let mut txn = session.begin()?;
            txn.put(&left, &key, &bytes)?;
            txn.put(&right, &key, &bytes)?;
            txn.commit_ticket().map(drop)
        };
        if beat.attempt("change of a pair", change).is_some() {
            let before = model.insert(key.to_vec(), (next, 60));
            world.grow(if before.is_some() { 136 } else { 0 }, 136);
        }
    }
    let check = |tree: &str, records| Check { tree: tree.to_string(), prefix: Vec::new(), records };
    world.add_check(check("left", model.clone()));
    world.add_check(check("right", model));
}

/// Snapshots that are held for up to three seconds, and read now and then.
fn snapshots(world: &World, id: u64) {
    let (beat, mut random) = (world.beat(format!("snapshot {id}")), world.random(20 + id));
    let session = world.engine.session().expect("session");
    let left = world.engine.tree("left").expect("tree");
    let right = world.engine.tree("right").expect("tree");
    while !world.is_over() {
        let until = Instant::now() + Duration::from_millis(random.below(3000));
        let Some(txn) = beat.attempt("begin a snapshot", || session.begin_read()) else { continue };
        while Instant::now() < until && !world.is_over() {
            let key = random.below(PAIRS).to_be_bytes();
            let read = || Ok((txn.get(&left, &key)?, txn.get(&right, &key)?));
            let Some((one, other)) = beat.attempt("read of a pair", read) else { break };
            assert_eq!(one, other, "a snapshot has one half of a change of {key:?}");
            std::thread::sleep(Duration::from_millis(random.below(50)));
        }
    }
}

/// A few large values that are overwritten all the time.
fn large(world: &World) {
    let (beat, mut random) = (world.beat("large"), world.random(30));
    let session = world.engine.session().expect("session");
    let tree = world.engine.tree("large").expect("tree");
    let mut model: BTreeMap<Vec<u8>, (u64, usize)> = BTreeMap::new();
    let mut next = 0;
    while !world.is_over() {
        next += 1;
        let key = vec![random.below(LARGE) as u8];
        let before = model.get(&key).copied();
        match random.below(10) {
            0 => {
                let Some(found) = beat.attempt("get a large value", || session.get(&tree, &key))
                else {
                    continue;
                };
                let found = found.map(|bytes| (number_of(&bytes), bytes.len()));
                assert_eq!(found, before, "large value {key:?}");
            }
            1 => {
                if beat
                    .attempt("remove a large value", || session.remove_ticket(&tree, &key))
                    .is_some()
                {
                    model.remove(&key);
                    world.grow(before.map_or(0, |(_, len)| len), 0);
                }
            }
            _ => {
                let len = 100_000 + random.below(900_000) as usize;
                let bytes = value(next, len);
                if beat
                    .attempt("put a large value", || session.put_ticket(&tree, &key, &bytes))
                    .is_some()
                {
                    model.insert(key, (next, len));
                    world.grow(before.map_or(0, |(_, len)| len), len);
                }
            }
        }
    }
    world.add_check(Check { tree: "large".to_string(), prefix: Vec::new(), records: model });
}

/// Trees that come and go, each with one record.
fn trees(world: &World) {
    let (beat, mut random) = (world.beat("trees"), world.random(40));
    let session = world.engine.session().expect("session");
    let mut model: BTreeMap<u64, u64> = BTreeMap::new();
    let mut next = 0;
    let name = |number: u64| format!("tree {number}");
    while !world.is_over() {
        next += 1;
        let number = random.below(NAMES);
        let open = || world.engine.open_tree(&name(number));
        let Some(tree) = beat.attempt("open a tree", open) else { continue };
        assert_eq!(tree.is_some(), model.contains_key(&number), "tree {number}");
        let Some(tree) = tree else {
            if let Some(tree) =
                beat.attempt("create a tree", || world.engine.create_tree(&name(number)))
            {
                if beat
                    .attempt("fill a tree", || session.put_ticket(&tree, b"k", &value(next, 100)))
                    .is_some()
                {
                    model.insert(number, next);
                } else {
                    assert!(
                        beat.attempt("read an empty tree", || session.get(&tree, b"k"))
                            .is_none_or(|found| found.is_none())
                    );
                    model.insert(number, 0);
                }
                world.grow(0, 4096);
            }
            continue;
        };
        if let Some(found) = beat.attempt("read a tree", || session.get(&tree, b"k")) {
            assert_eq!(found.map_or(0, |bytes| number_of(&bytes)), model[&number], "tree {number}");
        }
        match random.below(8) {
            0 => {
                if beat.attempt("drop a tree", || world.engine.drop_tree(tree)).is_none() {
                    // It is there as it was, or gone.
                    while beat.attempt("look for a tree", open).is_none() {}
                    let Ok(None) = open() else { continue };
                }
                model.remove(&number);
                world.grow(4096, 0);
            }
            1 => {
                let other = random.below(NAMES);
                if model.contains_key(&other) {
                    continue;
                }
                if beat
                    .attempt("rename a tree", || world.engine.rename_tree(tree, &name(other)))
                    .is_some()
                {
                    let value = model.remove(&number).expect("it was there");
                    model.insert(other, value);
                }
            }
            _ => {
                if beat
                    .attempt("change a tree", || session.put_ticket(&tree, b"k", &value(next, 100)))
                    .is_some()
                {
                    model.insert(number, next);
                }
            }
        }
    }
    for (number, last) in model {
        let records = (last > 0).then(|| (b"k".to_vec(), (last, 100))).into_iter().collect();
        world.add_check(Check { tree: name(number), prefix: Vec::new(), records });
    }
}
