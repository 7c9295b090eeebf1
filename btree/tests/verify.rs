//! A walk through a tree while other threads change it.
#![cfg(not(shuttle))]

mod support;

use std::sync::atomic::AtomicBool;
use support::new_tree;
use wattle_btree::{Context, EntryVisitor, Mode, System, Tree, Value, run};

/// Few of these values fit into a leaf.
const VALUE: [u8; 1200] = [5; 1200];
/// Enough for three levels.
const KEYS: u32 = 3000;

fn filled() -> (Context, Tree) {
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
    (cx, tree)
}

/// Removes records, and merges the leaves that are nearly empty then.
fn remove(cx: &Context, tree: &Tree, numbers: impl Iterator<Item = u32>) {
    for number in numbers {
        let key = number.to_be_bytes();
        let (_, underfull) = run(cx, |_| tree.remove_step(cx, &key, &mut System)).expect("remove");
        if underfull {
            run(cx, |_| tree.merge_step(cx, &key, 0)).expect("merge");
        }
    }
}

#[test]
fn levels_that_merges_take_away_meanwhile_do_not_keep_it_waiting() {
    let (cx, tree) = filled();
    let mut first = true;
    let shrink = &mut |_| {
        // The root is reported first, before the walk of any level.
        if std::mem::take(&mut first) {
            remove(&cx, &tree, 1..KEYS);
            assert_eq!(run(&cx, |_| tree.depth()).expect("depth"), 1, "one leaf is left");
        }
    };
    let report = tree
        .measure(&cx, &AtomicBool::new(false), shrink, &mut |_, _, _| {})
        .expect("nothing is wrong");
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
    assert_eq!((report.records, &report.nodes[..]), (1, &[1][..]));
}

#[test]
fn a_merge_meanwhile_is_no_damage_and_counts_no_record_twice() {
    let stop = AtomicBool::new(false);
    for strict in [false, true] {
        let (cx, tree) = filled();
        let mut seen: Vec<u32> = Vec::new();
        let entry: EntryVisitor<'_> = &mut |key, _, _| {
            if seen.is_empty() {
                // The first leaf has been copied; the records after it move into it.
                remove(&cx, &tree, (0..60).filter(|number| number % 3 != 0));
            }
            seen.push(u32::from_be_bytes(key.try_into().expect("four bytes")));
        };
        let report = match strict {
            true => tree.verify(&cx, &stop, &mut |_| {}, entry),
            false => tree.measure(&cx, &stop, &mut |_| {}, entry),
        }
        .expect("nothing that cannot be read");
        assert_eq!(strict, !report.problems.is_empty(), "{:#?}", report.problems);
        if !strict {
            assert!(seen.is_sorted_by(|a, b| a < b), "{:?}", &seen[..20]);
            assert!((0..KEYS).step_by(3).chain(60..KEYS).all(|kept| seen.contains(&kept)));
            assert_eq!(report.records, seen.len() as u64);
        }
    }
}

#[test]
fn a_tree_that_grows_as_fast_as_it_is_measured_is_no_damage() {
    let (cx, tree) = filled();
    let mut next = KEYS;
    let grow: EntryVisitor<'_> = &mut |_, _, _| {
        for _ in 0..2 {
            let (key, value) = (next.to_be_bytes(), Value::Inline(&VALUE));
            let step =
                |restarts| tree.write_step(&cx, &key, value, Mode::Put, &mut System, restarts);
            run(&cx, step).expect("put");
            next += 1;
        }
    };
    let report =
        tree.measure(&cx, &AtomicBool::new(false), &mut |_| {}, grow).expect("nothing is wrong");
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
    assert!(report.records >= u64::from(KEYS), "{} records", report.records);
}
