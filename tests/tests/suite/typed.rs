//! Trees with keys and values of Rust types, against a `BTreeMap`.

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::collections::BTreeMap;
use wattle::{Engine, Error, TypedTree};
use wattle_tests::harness::{Device, rounds, seed, small_pool};

type Key = (String, Option<i32>, u8);

fn key(random: &mut SmallRng) -> Key {
    let len = random.random_range(0..4);
    let text = (0..len).map(|_| ['\0', 'a', 'b', 'é'][random.random_range(0..4)]).collect();
    let number = random.random_bool(0.8).then(|| random.random_range(-3..3));
    (text, number, random.random_range(0..3))
}

fn opened() -> Engine {
    Device::memory().open(small_pool(128)).expect("open")
}

#[test]
fn a_typed_tree_is_a_map_in_the_order_of_its_keys() {
    let seed = seed();
    println!("seed {seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let engine = opened();
    let tree = TypedTree::<Key, f64>::new(engine.tree("typed").expect("tree"));
    let session = engine.session().expect("session");
    let mut model = BTreeMap::<Key, f64>::new();
    for _ in 0..400 * rounds() {
        let (key, value) = (key(&mut random), random.random::<f64>());
        match random.random_range(0..5) {
            0 => {
                tree.put(&session, &key, &value).expect("put");
                model.insert(key, value);
            }
            1 => {
                let removed = tree.remove(&session, &key).expect("remove");
                assert_eq!(removed, model.remove(&key).is_some());
            }
            2 => {
                let mut txn = session.begin().expect("begin");
                let before = tree.update(&mut txn, &key, |old| Some(old.unwrap_or(0.5) * 2.0));
                assert_eq!(before.expect("update"), model.get(&key).copied());
                *model.entry(key.clone()).or_insert(0.5) *= 2.0;
                assert_eq!(tree.get(&txn, &key).expect("get"), model.get(&key).copied());
                txn.commit().expect("commit");
            }
            3 => match tree.insert(&session, &key, &value) {
                Ok(()) => assert_eq!(model.insert(key, value), None),
                Err(error) => {
                    assert!(matches!(error, Error::KeyExists) && model.contains_key(&key));
                }
            },
            _ => assert_eq!(tree.get(&session, &key).expect("get"), model.get(&key).copied()),
        }
    }
    let collect = |entries: &mut dyn Iterator<Item = wattle::Result<(Key, f64)>>| {
        entries.map(|entry| entry.expect("an entry")).collect::<Vec<_>>()
    };
    let snapshot = engine.snapshot().expect("snapshot");
    for _ in 0..20 {
        let low = key(&mut random);
        let of = |entry: (&Key, &f64)| (entry.0.clone(), *entry.1);
        let expected: Vec<_> = model.range(low.clone()..).map(of).collect();
        let mut found = tree.range(&session, low.clone()..).expect("range");
        assert_eq!(collect(&mut found), expected);
        let mut found = collect(&mut tree.range_rev(&snapshot, low.clone()..).expect("range"));
        found.reverse();
        assert_eq!(found, expected);
        let expected: Vec<_> =
            model.iter().filter(|(key, _)| key.0 == low.0 && key.1 == low.1).map(of).collect();
        let mut found = tree.prefix(&snapshot, &(low.0, low.1)).expect("prefix");
        assert_eq!(collect(&mut found), expected);
    }
}

#[test]
fn records_of_other_types_are_errors_and_stay_as_they_are() {
    let engine = opened();
    let bytes = engine.tree("bytes").expect("tree");
    let session = engine.session().expect("session");
    session.put(&bytes, &[0, 0, 0, 1], b"text").expect("put");
    let tree = TypedTree::<u32, u64>::new(bytes.clone());
    let decode = |error: Option<Error>| matches!(error, Some(Error::Decode(_)));
    assert!(decode(tree.get(&session, &1).err()));
    assert!(decode(tree.update(&session, &1, |_| None).err()));
    assert!(decode(tree.range(&session, ..).expect("range").next().and_then(Result::err)));
    assert_eq!(session.get(&bytes, &[0, 0, 0, 1]).expect("get").as_deref(), Some(&b"text"[..]));
    let keys = TypedTree::<u64, String>::new(bytes);
    assert!(decode(keys.range(&session, ..).expect("range").next().and_then(Result::err)));
}

#[test]
fn an_update_of_a_record_that_does_not_fit_changes_nothing() {
    let engine = opened();
    let bytes = engine.tree("typed").expect("tree");
    let tree = TypedTree::<u8, f64>::new(bytes.clone());
    let (session, other) = (engine.session().expect("one"), engine.session().expect("two"));
    session.put(&bytes, &[7], b"no number").expect("put");
    let refused = |outcome| matches!(outcome, Err(Error::Decode(_)));
    // A transaction holds the record: a change of it, even to what it was, would be a conflict.
    let mut txn = other.begin().expect("begin");
    txn.put(&bytes, &[7], b"other").expect("put");
    assert!(refused(tree.update(&session, &7, |_| Some(1.0))));
    txn.abort().expect("abort");
    let mut txn = other.begin().expect("begin");
    assert!(refused(tree.update(&mut txn, &7, |_| Some(1.0))));
    session.put(&bytes, &[7], b"the transaction does not hold it").expect("put");
    // The transaction goes on.
    tree.put(&mut txn, &8, &2.0).expect("put");
    txn.commit().expect("commit");
    let found = session.get(&bytes, &[7]).expect("get");
    assert_eq!(found.as_deref(), Some(&b"the transaction does not hold it"[..]));
    assert_eq!(tree.get(&session, &8).expect("get"), Some(2.0));
}
