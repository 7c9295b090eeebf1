//! Visits of ranges in a transaction against a `BTreeMap`, while others change the same leaves:
//! from any bound, in both directions, stopped anywhere. One session's cursor serves all of them.
//! `WATTLE_ROUNDS` multiplies the length.

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::{
    collections::BTreeMap,
    ops::{Bound, ControlFlow},
};
use wattle::{Direction, Durability, Engine, MIN_LOG_BYTES, Transaction, Tree};
use wattle_tests::harness::{Device, assert_verified, rounds, small_pool};

const KEYS: u32 = 3_000;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(number: u32) -> Vec<u8> {
    format!("key-{number:06}").into_bytes()
}

fn bound(random: &mut SmallRng) -> Bound<Vec<u8>> {
    let key = key(random.random_range(0..KEYS));
    match random.random_range(0..5) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Included(key),
        _ => Bound::Excluded(key),
    }
}

fn borrowed(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

/// Visits a random range, and compares it with the model.
fn visit(txn: &Transaction<'_>, tree: &Tree, model: &Model, random: &mut SmallRng) {
    let (mut low, mut high) = (bound(random), bound(random));
    let ends = (borrowed(&low), borrowed(&high));
    if let (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) = ends
        && a >= b
    {
        // The map takes no empty ranges.
        (low, high) = (Bound::Unbounded, Bound::Excluded(b.to_vec()));
    }
    let wanted = match random.random_range(0..3) {
        0 => 1,
        1 => random.random_range(1..100),
        _ => usize::MAX,
    };
    let pair = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
    let range = model.range((low.clone(), high.clone())).map(pair);
    let (direction, expected): (_, Vec<_>) = match random.random_bool(0.5) {
        true => (Direction::Forward, range.take(wanted).collect()),
        false => (Direction::Backward, range.rev().take(wanted).collect()),
    };
    let mut seen = Vec::new();
    txn.visit(tree, (borrowed(&low), borrowed(&high)), direction, |key, value| {
        seen.push((key.to_vec(), value.to_vec()));
        if seen.len() < wanted { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })
    .expect("visit");
    assert!(seen == expected, "{low:?}..{high:?} {direction:?}: {} records", seen.len());
}

/// Changes some records.
fn change(engine: &Engine, tree: &Tree, newest: &mut Model, random: &mut SmallRng) {
    let session = engine.session().expect("session");
    for _ in 0..200 {
        let key = key(random.random_range(0..KEYS));
        if random.random_bool(0.3) {
            session.remove(tree, &key).expect("remove");
            newest.remove(&key);
        } else {
            let value = random.random::<u64>().to_le_bytes().repeat(random.random_range(1..8));
            session.put(tree, &key, &value).expect("put");
            newest.insert(key, value);
        }
    }
}

#[test]
fn visits_see_the_snapshot_in_both_directions_while_others_change_the_leaves() {
    let logged = small_pool(256).log_bytes(MIN_LOG_BYTES).durability(Durability::None);
    for (seed, options) in [(1, logged.clone()), (2, logged.log(false))] {
        let mut random = SmallRng::seed_from_u64(seed);
        let engine = Device::memory().open(options).expect("open");
        let tree = engine.tree("tree").expect("tree");
        let mut newest = Model::new();
        for _ in 0..10 {
            change(&engine, &tree, &mut newest, &mut random);
        }
        let session = engine.session().expect("session");
        for _ in 0..10 * rounds() {
            let mut txn = session.begin().expect("begin");
            let mut model = newest.clone();
            for _ in 0..4 {
                // Its own changes, of records that the others leave alone.
                let own = [&key(random.random_range(0..KEYS))[..], b"-own"].concat();
                txn.put(&tree, &own, b"mine").expect("put");
                model.insert(own, b"mine".to_vec());
                change(&engine, &tree, &mut newest, &mut random);
                for _ in 0..40 {
                    visit(&txn, &tree, &model, &mut random);
                }
            }
            txn.abort().expect("abort");
        }
        assert_verified(&engine);
        drop((session, tree));
        engine.close().expect("nothing holds the engine");
    }
}
