//! Savepoints: whatever lies after one is taken back exactly, and the transaction goes on. Random
//! transactions with nested savepoints are compared with a model that keeps a map for each.

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::{collections::BTreeMap, time::Duration};
use wattle::{Durability, Engine, Error, MIN_LOG_BYTES, Options, Savepoint, Transaction, Tree};
use wattle_tests::harness::{Context, Device, assert_verified, rounds, small_pool};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn modes(frames: u64) -> [Options; 2] {
    let logged = small_pool(frames).log_bytes(MIN_LOG_BYTES).stall_timeout(Duration::from_secs(10));
    [logged.clone().log(false), logged.durability(Durability::None)]
}

fn open(options: Options) -> (Engine, Tree) {
    println!("{options:?}");
    let engine = Device::memory().open(options).expect("open");
    let tree = engine.tree("tree").expect("tree");
    (engine, tree)
}

fn all(txn: &Transaction<'_>, tree: &Tree) -> Map {
    txn.scan(tree).expect("scan").map(|entry| entry.expect("entry")).collect()
}

#[test]
fn nested_savepoints_can_be_rolled_back_to_again_and_again() {
    for options in modes(64) {
        let (engine, tree) = open(options);
        let session = engine.session().expect("session");
        session.put(&tree, b"k", b"before").expect("put");
        let mut txn = session.begin().expect("begin");
        let see = |txn: &Transaction<'_>| {
            txn.get(&tree, b"k").expect("get").map(|v| String::from_utf8(v).expect("text"))
        };
        let outer = txn.savepoint();
        txn.put(&tree, b"k", b"one").expect("put");
        let inner = txn.savepoint();
        for turn in 0..3 {
            txn.put(&tree, b"k", b"two").expect("put");
            txn.put(&tree, b"new", &[turn; 4000]).expect("put");
            txn.rollback_to(&inner).expect("roll back");
            assert_eq!(see(&txn).as_deref(), Some("one"));
            assert!(!txn.contains(&tree, b"new").expect("contains"));
        }
        txn.remove(&tree, b"k").expect("remove");
        assert_eq!(see(&txn), None);
        txn.rollback_to(&outer).expect("roll back");
        assert_eq!(see(&txn).as_deref(), Some("before"));
        txn.put(&tree, b"k", b"after").expect("put");
        txn.commit().expect("commit");
        assert_eq!(session.get(&tree, b"k").expect("get").as_deref(), Some(&b"after"[..]));
        drop(session);
        assert_verified(&engine);
    }
}

#[test]
fn savepoints_behind_a_roll_back_and_of_other_transactions_are_refused() {
    for options in modes(64) {
        let (engine, tree) = open(options);
        let session = engine.session().expect("session");
        let mut txn = session.begin().expect("begin");
        let refused = |outcome: Result<(), Error>| {
            assert!(matches!(outcome, Err(Error::Limit(_))), "{outcome:?}");
        };
        let start = txn.savepoint();
        txn.put(&tree, b"a", b"1").expect("put");
        let middle = txn.savepoint();
        txn.put(&tree, b"b", &[1; 100]).expect("put");
        let late = txn.savepoint();
        txn.rollback_to(&middle).expect("roll back");
        refused(txn.rollback_to(&late));
        // As long as before, but with other changes.
        txn.put(&tree, b"c", &[1; 100]).expect("put");
        refused(txn.rollback_to(&late));
        let late = txn.savepoint();
        txn.put(&tree, b"d", &[1; 100]).expect("put");
        txn.rollback_to(&late).expect("roll back");
        txn.rollback_to(&start).expect("roll back");
        for number in 0..5u8 {
            txn.put(&tree, &[number], &[1; 100]).expect("put");
            refused(txn.rollback_to(&middle));
            refused(txn.rollback_to(&late));
        }
        txn.rollback_to(&start).expect("roll back");
        assert!(all(&txn, &tree).is_empty());
        txn.put(&tree, b"e", b"1").expect("put");
        txn.commit().expect("commit");
        let mut other = session.begin().expect("begin");
        refused(other.rollback_to(&start));
        other.put(&tree, b"f", b"1").expect("put");
        refused(other.rollback_to(&start));
        other.commit().expect("commit");
        drop(session);
        assert_verified(&engine);
    }
}

#[test]
fn savepoints_of_another_engine_are_refused() {
    for options in modes(64) {
        let ((one, in_one), (two, in_two)) = (open(options.clone()), open(options));
        let (mut a, mut b) = (one.begin().expect("begin"), two.begin().expect("begin"));
        a.put(&in_one, b"key", b"v").expect("put");
        b.put(&in_two, b"a longer key", b"v").expect("put");
        b.put(&in_two, b"another key", b"v").expect("put");
        let outcome = b.rollback_to(&a.savepoint());
        assert!(matches!(outcome, Err(Error::Limit(_))), "{outcome:?}");
        b.commit().expect("commit");
    }
}

#[test]
fn records_changed_only_after_a_savepoint_are_free_for_others_when_it_is_rolled_back_to() {
    for options in modes(64) {
        let (engine, tree) = open(options);
        let (one, two) = (engine.session().expect("session"), engine.session().expect("session"));
        one.put(&tree, b"early", b"0").expect("put");
        one.put(&tree, b"late", b"0").expect("put");
        let mut txn = one.begin().expect("begin");
        txn.put(&tree, b"early", b"1").expect("put");
        let savepoint = txn.savepoint();
        txn.put(&tree, b"early", b"2").expect("put");
        txn.put(&tree, b"late", b"2").expect("put");
        txn.put(&tree, b"new", b"2").expect("put");
        txn.rollback_to(&savepoint).expect("roll back");
        let mut other = two.begin().expect("begin");
        other.put(&tree, b"late", b"of another").expect("it is free");
        other.insert(&tree, b"new", b"of another").expect("it is free");
        assert!(matches!(other.put(&tree, b"early", b"x"), Err(Error::Conflict(_))));
        drop(other);
        let mut other = two.begin().expect("begin");
        other.put(&tree, b"late", b"of another").expect("it is free");
        other.commit().expect("commit");
        // And then it is no longer free for the one who gave it up.
        assert_eq!(txn.get(&tree, b"late").expect("get").as_deref(), Some(&b"0"[..]));
        assert!(matches!(txn.put(&tree, b"late", b"x"), Err(Error::Conflict(_))));
        drop(txn);
        assert_eq!(one.get(&tree, b"early").expect("get").as_deref(), Some(&b"0"[..]));
        drop((one, two));
        assert_verified(&engine);
    }
}

/// A transaction, the map that it should see, and those of its savepoints.
struct Run<'r> {
    txn: Transaction<'r>,
    now: Map,
    kept: Vec<(Savepoint, Map)>,
}

impl Run<'_> {
    fn key(random: &mut SmallRng) -> Vec<u8> {
        let number: u32 = random.random_range(0..400);
        let mut key = number.wrapping_mul(0x9e37_79b1).to_be_bytes().to_vec();
        key.resize(4 + number as usize % 90, 1);
        key
    }

    fn value(random: &mut SmallRng) -> Vec<u8> {
        let len = match random.random_range(0..40) {
            0 => random.random_range(2000..12_000),
            1..20 => random.random_range(0..20),
            _ => random.random_range(0..700),
        };
        vec![random.random(); len]
    }

    fn step(&mut self, tree: &Tree, random: &mut SmallRng) {
        let (key, value) = (Self::key(random), Self::value(random));
        let Run { txn, now, kept } = self;
        match random.random_range(0..100) {
            0..30 => {
                txn.put(tree, &key, &value).expect("put");
                now.insert(key, value);
            }
            30..40 => match txn.insert(tree, &key, &value) {
                Ok(()) => assert!(now.insert(key, value).is_none(), "inserted twice"),
                Err(Error::KeyExists) => assert!(now.contains_key(&key)),
                Err(error) => panic!("insert: {error}"),
            },
            40..48 => {
                let updated = txn.update(tree, &key, &value).expect("update");
                assert_eq!(updated, now.contains_key(&key));
                if updated {
                    now.insert(key, value);
                }
            }
            48..54 => {
                let change = |value: &mut [u8]| value.iter_mut().for_each(|byte| *byte ^= 5);
                let modified = txn.modify(tree, &key, change).expect("modify");
                assert_eq!(modified, now.contains_key(&key));
                now.get_mut(&key).into_iter().for_each(|value| change(value));
            }
            54..76 => {
                let removed = txn.remove(tree, &key).expect("remove");
                assert_eq!(removed, now.remove(&key).is_some());
            }
            76..88 => {
                let found = txn.get(tree, &key).expect("get");
                assert!(found.as_ref() == now.get(&key), "get of {key:02x?}");
            }
            88..94 => kept.push((txn.savepoint(), now.clone())),
            94..99 if !kept.is_empty() => {
                kept.truncate(random.random_range(0..kept.len()) + 1);
                let (savepoint, map) = kept.last().expect("at least one");
                txn.rollback_to(savepoint).expect("roll back");
                *now = map.clone();
            }
            _ => assert!(all(txn, tree) == *now, "the transaction sees something else"),
        }
    }
}

#[test]
fn random_transactions_with_savepoints_agree_with_a_stack_of_maps() {
    for (mode, options) in modes(64).into_iter().enumerate() {
        let (engine, tree) = open(options);
        let session = engine.session().expect("session");
        let mut committed = Map::new();
        for seed in 0..60 * rounds() {
            let _context = Context(("seed", seed, "mode", mode));
            let mut random = SmallRng::seed_from_u64(seed);
            let reader = session.begin().expect("begin");
            let txn = session.begin().expect("begin");
            let mut run = Run { txn, now: committed.clone(), kept: Vec::new() };
            for _ in 0..random.random_range(1..400) {
                run.step(&tree, &mut random);
            }
            assert!(all(&run.txn, &tree) == run.now);
            let before = committed.clone();
            match random.random_range(0..3) {
                0 => run.txn.abort().expect("abort"),
                1 => drop(run.txn),
                _ => {
                    run.txn.commit().expect("commit");
                    committed = run.now;
                }
            }
            assert!(all(&reader, &tree) == before, "an older snapshot changed");
            drop(reader);
            assert!(all(&session.begin().expect("begin"), &tree) == committed);
        }
        drop(session);
        assert_verified(&engine);
        drop(tree);
        engine.close().expect("close");
    }
}

#[test]
fn random_transactions_of_several_threads_on_keys_of_their_own_agree_with_their_maps() {
    for (mode, options) in modes(96).into_iter().enumerate() {
        let (engine, tree) = open(options);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let engine = &engine;
                scope.spawn(move || {
                    // A tree for each, so that the maps are exact, in a pool for all of them.
                    let tree = engine.tree(&format!("tree {thread}")).expect("tree");
                    let session = engine.session().expect("session");
                    let mut committed = Map::new();
                    for turn in 0..25 * rounds() {
                        let seed = 1000 * (thread + 1) + turn;
                        let _context = Context(("seed", seed, "mode", mode));
                        let mut random = SmallRng::seed_from_u64(seed);
                        let txn = session.begin().expect("begin");
                        let mut run = Run { txn, now: committed.clone(), kept: Vec::new() };
                        for _ in 0..random.random_range(1..300) {
                            run.step(&tree, &mut random);
                        }
                        if random.random() {
                            run.txn.commit().expect("commit");
                            committed = run.now;
                        }
                    }
                    assert!(all(&session.begin().expect("begin"), &tree) == committed);
                });
            }
        });
        assert_verified(&engine);
        drop(tree);
        engine.close().expect("close");
    }
}
