//! Contention split ("Contention and Space Management in B-Trees", section 3). The test says which
//! writes have restarted; the scheduling of threads does not matter.
#![cfg(not(shuttle))]

mod support;

use std::sync::atomic::AtomicBool;
use support::new_tree;
use wattle_btree::{Mode, System, Value, run};
use wattle_buffer::MIN_POOL_BYTES;

/// Records, which fit one leaf.
const KEYS: u64 = 16;
/// Enough writes for several hundred samples.
const WRITES: u64 = 100_000;

/// Writes to the records at the positions that `position` gives, each after as many restarts as
/// `restarts` gives. Gives the number of contention splits, and of nodes of each level.
fn write(position: impl Fn(u64) -> u64, restarts: impl Fn(u64) -> u32) -> (u64, Vec<u64>) {
    let (cx, tree) = new_tree(MIN_POOL_BYTES);
    let put = |key: u64, value: u64, restarts: u32| {
        let (key, value) = (key.to_be_bytes(), value.to_le_bytes());
        let mut again = restarts;
        let step = |more: u32| {
            let restarts = std::mem::take(&mut again) + more;
            tree.write_step(&cx, &key, Value::Inline(&value), Mode::Put, &mut System, restarts)
        };
        run(&cx, step).expect("put");
    };
    (0..KEYS).for_each(|key| put(key, 0, 0));
    (0..WRITES).for_each(|i| put(position(i), i, restarts(i)));
    let report =
        tree.verify(&cx, &AtomicBool::new(false), &mut |_| {}, &mut |_, _, _| {}).expect("verify");
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
    (cx.worker.pool().counters().contention_splits, report.nodes)
}

#[test]
fn a_leaf_is_split_between_two_records_whose_writers_meet() {
    let ends = |i: u64| if i.is_multiple_of(2) { 2 } else { 13 };
    let (splits, nodes) = write(ends, |i| u32::from(i % 8 < 2));
    assert_eq!((splits, &nodes[..]), (1, &[2, 1][..]), "each writer has a leaf for itself then");
}

#[test]
fn writers_that_do_not_meet_or_want_the_same_record_split_nothing() {
    let (splits, _) = write(|i| i % KEYS, |_| 0);
    assert_eq!(splits, 0, "no write met another");
    let (splits, _) = write(|_| 5, |_| 1);
    assert_eq!(splits, 0, "no split would part them");
}
