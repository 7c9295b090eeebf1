//! Bulk loads of keys that are not alike.

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::collections::BTreeMap;
use wattle::{Engine, IoKind, Options};
use wattle_tests::harness::{Context, Device, assert_verified, rounds, small_pool};

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

/// Each of ten runs of ascending keys ends in the middle of the tree, as in a table whose rows are
/// grouped: the leaves that it leaves are full, and few splits are made.
#[test]
fn runs_of_ascending_keys_in_the_middle_of_a_tree_leave_full_leaves() {
    const RUNS: u32 = 10;
    let device = Device::memory();
    let engine = device.open(Options::default().pool_bytes(32 << 20).log(false)).expect("open");
    let session = engine.session().expect("session");
    let tree = engine.tree("runs").expect("tree");
    let key = |run: u32, number: u32| (u64::from(run) << 32 | u64::from(number)).to_be_bytes();
    // Records between the runs, so that no run has the end of a leaf for itself.
    for number in 0..50 {
        (0..RUNS)
            .for_each(|run| session.insert(&tree, &key(run, number), &[1; 60]).expect("insert"));
    }
    for batch in 0..400 {
        for run in 0..RUNS {
            for line in 0..10 {
                let key = key(run, 50 + 10 * batch + line);
                session.insert(&tree, &key, &[2; 60]).expect("insert");
            }
        }
    }
    assert_verified(&engine);
    let stats = engine.tree_stats().expect("stats");
    let stat = stats.iter().find(|stat| stat.name == "runs").expect("the tree is listed");
    assert_eq!(stat.records, u64::from(RUNS) * 4050);
    assert!(stat.fill > 0.9, "{:.3} of the bytes of {} leaves", stat.fill, stat.leaf_pages);
}
