//! Crashes in the middle of a commit that renames a tree, with older transactions under way in it.

use super::options;
use std::{sync::Arc, thread, time::Duration};
use wattle::{
    Durability, Engine,
    io::{Fault, FaultPlan, Op, SimStorage},
};
use wattle_tests::harness::{Context, Device, Watchdog, assert_verified};

/// Enough names for many leaves of the catalog.
const NAMES: u32 = 300;

/// A name in the middle of the catalog.
fn name(number: u32) -> String {
    format!("m{number:05}{}", "-".repeat(150))
}

/// Records for many more pages than the pool has.
fn fill(engine: &Engine) {
    let tree = engine.tree("n").expect("tree");
    let session = engine.session().expect("session");
    let records = (0..1000_u32).map(|number| (number.to_be_bytes(), [1; 1000]));
    session.bulk_load(&tree, records).expect("load");
}

/// Reads them, so that hardly any other page stays in memory.
fn evict(engine: &Engine) {
    let tree = engine.tree("n").expect("tree");
    let session = engine.session().expect("session");
    for _ in 0..3 {
        assert_eq!(session.scan(&tree).expect("scan").count(), 1000);
    }
}

/// The record and the large value as they were committed, under the old name or the new one.
fn look_at(image: SimStorage) -> String {
    let options = options(64).durability(Durability::None);
    let engine = Device::sim(&Arc::new(image)).open(options).expect("open");
    let mut found: Vec<_> = engine.trees().expect("names");
    found.retain(|name| ["a", "z"].contains(&&**name));
    assert_eq!(found.len(), 1, "{found:?}");
    let tree = engine.open_tree(&found[0]).expect("open").expect("it exists");
    let session = engine.session().expect("session");
    assert_eq!(session.get(&tree, b"key").expect("get").as_deref(), Some(&b"committed"[..]));
    assert_eq!(session.get(&tree, b"large").expect("get"), Some(vec![1; 20_000]));
    drop(tree);
    // Both names lead to what they should.
    for name in ["a", "z"] {
        let tree = engine.tree(name).expect("tree");
        let key = session.get(&tree, b"key").expect("get");
        assert_eq!(key.is_some(), name == found[0], "{name}");
    }
    assert_verified(&engine);
    found.remove(0)
}

/// The pages of the catalog take long to read, so that the log is flushed between the entry that
/// the commit removes and the one that it adds.
#[test]
fn older_transactions_are_rolled_back_in_a_tree_whose_new_name_was_not_committed() {
    let watchdog = Watchdog::start("a crash in a rename", Duration::from_secs(120));
    let sim = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let options = options(64).durability(Durability::None);
    let engine = Device::sim(&sim).open(options).expect("open");
    (0..NAMES).for_each(|number| drop(engine.tree(&name(number)).expect("tree")));
    fill(&engine);
    let tree = engine.tree("a").expect("tree");
    let session = engine.session().expect("session");
    session.put(&tree, b"key", b"committed").expect("put");
    session.put(&tree, b"large", &[1; 20_000]).expect("put");
    engine.checkpoint().expect("checkpoint");
    // The older one replaces a large value, so that it has changed the catalog as well.
    let mut older = engine.begin().expect("begin");
    older.put(&tree, b"large", &[2; 20_000]).expect("put");
    older.put(&tree, b"key", b"not committed").expect("put");
    let mut renames = engine.begin().expect("begin");
    renames.put(&tree, b"other", b"not committed either").expect("put");
    renames.rename_tree("a", "z").expect("rename");
    evict(&engine);
    engine.sync().expect("sync");
    watchdog.step();
    let slow = Fault::Latency(Duration::from_millis(500));
    sim.set_plan(FaultPlan::new(1).always(Op::Read, slow));
    let committer = thread::spawn(move || renames.commit());
    let mut images = Vec::new();
    while !committer.is_finished() {
        images.push(sim.crash(images.len() as u64));
        thread::sleep(Duration::from_millis(40));
    }
    sim.heal();
    committer.join().expect("no panic").expect("commit");
    engine.sync().expect("sync");
    images.push(sim.crash(0));
    println!("{} images", images.len());
    let last = images.len() - 1;
    for (number, image) in images.into_iter().enumerate() {
        let _context = Context(("image", number));
        let found = look_at(image);
        assert!(number < last || found == "z", "the commit is durable");
        watchdog.step();
    }
    older.abort().expect("abort");
    assert_verified(&engine);
}
