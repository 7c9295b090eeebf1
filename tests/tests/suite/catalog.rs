//! The catalog on a device that fails: what an operation could not do leaves everything as it was.

use std::{io::ErrorKind, sync::Arc};
use wattle::{Engine, Options};
use wattle_buffer::io::{Fault, FaultPlan, Op, SimStorage};

const FRAME: u64 = 4096 + 128;

fn open(storage: &Arc<SimStorage>, frames: u64) -> Engine {
    let options = Options::default().pool_bytes(frames * FRAME);
    Engine::open_on(storage.clone(), storage.clone(), options.log(false)).expect("open")
}

fn assert_verified(engine: &Engine) {
    let report = engine.verify(&mut |_| {}).expect("verify");
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
}

fn name(i: usize) -> String {
    format!("{i:04}{}", "x".repeat(240))
}

#[test]
fn a_tree_that_could_not_be_dropped_keeps_what_was_written_to_it() {
    const TREES: usize = 60;
    let storage = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let engine = open(&storage, 256);
    let session = engine.session().expect("session");
    let mut trees = Vec::new();
    for i in 0..TREES {
        let tree = engine.create_tree(&name(i)).expect("create");
        session.insert(&tree, b"key", b"value").expect("insert");
        trees.push(tree);
    }
    // Drives the leaves of the catalog out of memory.
    let filler = engine.create_tree("filler").expect("create");
    for i in 0..6000u32 {
        session.insert(&filler, &i.to_be_bytes(), &[7; 400]).expect("insert");
    }
    storage.set_plan(FaultPlan::new(1).always(Op::Read, Fault::Error(ErrorKind::Other)));
    let dropped: Vec<_> = trees.into_iter().map(|tree| engine.drop_tree(tree).is_ok()).collect();
    storage.heal();
    assert!(dropped.contains(&false), "no drop met the failing device");
    for (i, dropped) in dropped.into_iter().enumerate() {
        let tree = engine.open_tree(&name(i)).expect("open");
        assert_eq!(tree.is_none(), dropped, "tree {i}");
        if let Some(tree) = tree {
            let value = session.get(&tree, b"key").expect("get");
            assert_eq!(value.as_deref(), Some(&b"value"[..]), "tree {i}");
        }
    }
    drop((session, filler));
    assert_verified(&engine);
    engine.close().expect("close");
}

#[test]
fn opening_a_tree_again_and_again_on_a_failing_device_costs_no_frames() {
    let storage = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let engine = open(&storage, 64);
    let session = engine.session().expect("session");
    let tree = engine.create_tree("large").expect("create");
    session.insert(&tree, b"key", &vec![9; 200_000]).expect("insert");
    drop((session, tree));
    engine.close().expect("close");

    let engine = open(&storage, 64);
    for attempt in 0..100 {
        // The first read is the root of the tree, which stays in memory. The second is the root of
        // its chunks, the third is the leaf with the last chunk.
        let failing = if attempt == 0 { 2 } else { 1 };
        storage.set_plan(FaultPlan::new(1).from(Op::Read, failing, Fault::Error(ErrorKind::Other)));
        let error = engine.open_tree("large").map(|_| ()).expect_err("a read fails");
        assert!(error.to_string().contains("read page"), "{error}");
        if attempt == 50 {
            // From now on only the leaf is not in memory.
            storage.set_plan(FaultPlan::new(1).from(Op::Read, 2, Fault::Error(ErrorKind::Other)));
            engine.open_tree("large").map(|_| ()).expect_err("a read fails");
        }
    }
    storage.heal();
    assert!(engine.pool().free_frames() > 16, "frames: {}", engine.pool().free_frames());
    let tree = engine.open_tree("large").expect("open").expect("it exists");
    let session = engine.session().expect("session");
    assert_eq!(session.get(&tree, b"key").expect("get").map(|value| value.len()), Some(200_000));
    drop((session, tree));
    assert_verified(&engine);
    engine.close().expect("close");
}
