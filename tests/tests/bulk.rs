//! Bulk loads of keys that are not alike.

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::collections::BTreeMap;
use wattle::{Engine, IoKind};
use wattle_tests::harness::{Context, assert_verified, rounds, small_pool};

#[test]
fn separators_of_all_lengths_can_be_bulk_loaded() {
    for seed in 0..20 * rounds() {
        let _context = Context(("seed", seed));
        let mut random = SmallRng::seed_from_u64(seed);
        let records: BTreeMap<Vec<u8>, Vec<u8>> = (0..6000)
            .map(|_| {
                let digits: Vec<u8> = (0..4).map(|_| random.random_range(0..6)).collect();
                let lens = [1, [1, 90, 250][random.random_range(0..3)]];
                let key = digits.iter().flat_map(|digit| {
                    std::iter::repeat_n(b'a' + digit, lens[usize::from(digit % 2 == 1)])
                });
                (key.take(1000).collect(), vec![9; random.random_range(0..400)])
            })
            .collect();
        let engine = Engine::open("bulk", small_pool(64).io(IoKind::Memory)).expect("open");
        let (session, tree) = (engine.session().expect("session"), engine.tree("t").expect("tree"));
        let loaded = session.bulk_load(&tree, &records).expect("bulk load");
        assert_eq!(loaded, records.len() as u64);
        let found = session.scan(&tree).expect("scan").map(|entry| entry.expect("entry"));
        assert!(found.eq(records), "what was loaded is there");
        drop((session, tree));
        assert_verified(&engine);
    }
}
