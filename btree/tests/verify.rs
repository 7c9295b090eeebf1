//! A tree is looked through while others change it.
#![cfg(not(shuttle))]

mod support;

use std::sync::atomic::AtomicBool;
use support::new_tree;
use wattle_btree::{Mode, System, Value, run};

/// Few of them fit a leaf, and one leaf is enough for the first.
const VALUE: [u8; 1200] = [5; 1200];
/// Enough for three levels.
const KEYS: u32 = 3000;

#[test]
fn levels_that_merges_take_away_meanwhile_do_not_keep_it_waiting() {
    let (cx, tree) = new_tree(32 << 20);
    for number in 0..KEYS {
        let step = |restarts| {
            let (key, value) = (number.to_be_bytes(), Value::Inline(&VALUE));
            tree.write_step(&cx, &key, value, Mode::Put, &mut System, restarts)
        };
        run(&cx, step).expect("put");
    }
    let levels = run(&cx, |_| tree.depth()).expect("depth");
    assert!(levels > 2, "{levels} levels");
    let mut first = true;
    let shrink = &mut |_| {
        // The root is told first, before any other level is gone through.
        if !std::mem::take(&mut first) {
            return;
        }
        for number in 1..KEYS {
            let key = number.to_be_bytes();
            let step = |_| tree.remove_step(&cx, &key, &mut System);
            let (_, underfull) = run(&cx, step).expect("remove");
            if underfull {
                run(&cx, |_| tree.merge_step(&cx, &key, 0)).expect("merge");
            }
        }
        assert_eq!(run(&cx, |_| tree.depth()).expect("depth"), 1, "one leaf is left");
    };
    let report = tree
        .verify(&cx, &AtomicBool::new(false), shrink, &mut |_, _, _| {})
        .expect("nothing is wrong");
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
    assert_eq!((report.records, &report.nodes[..]), (1, &[1][..]));
}
