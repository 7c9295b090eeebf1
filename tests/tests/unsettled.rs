//! Devices that fail after the fact: a sync that fails and loses what it was to make durable, a segment
//! of the log that is there although making it failed. Nothing shows this until the power is cut, and
//! then nothing that was acknowledged may be missing.

use std::{io::ErrorKind, sync::Arc, time::Duration};
use wattle::{
    Engine, Error, MIN_LOG_BYTES, Options, Session, Tree,
    io::{Cut, Fault, FaultPlan, Op, SimStorage},
};
use wattle_tests::harness::{Device, Watchdog, assert_verified, small_pool};

const UNSETTLED: Fault = Fault::Unsettled(ErrorKind::Other);

fn options() -> Options {
    small_pool(64).log_bytes(MIN_LOG_BYTES)
}

fn open(device: &Arc<SimStorage>) -> Engine {
    Device::sim(device).open(options()).expect("open")
}

fn value(key: u32, turn: u32) -> Vec<u8> {
    vec![(key + turn) as u8; 200 + key as usize % 700]
}

/// Sets all records to those of a turn.
fn put_all(session: &Session, tree: &Tree, turn: u32) {
    for key in 0..400u32 {
        session.put(tree, &key.to_be_bytes(), &value(key, turn)).expect("put");
    }
}

/// What is left after power cuts of several kinds has all records of a turn.
fn assert_left(device: &SimStorage, turn: u32) {
    for (seed, cut) in [(1, Cut::Nothing), (2, Cut::Sectors), (3, Cut::Prefix), (4, Cut::All)] {
        let left = Arc::new(device.crash_as(seed, cut));
        let engine = open(&left);
        let tree = engine.open_tree("tree").expect("open a tree").expect("it was there");
        let session = engine.session().expect("session");
        for key in 0..400u32 {
            let found = session.get(&tree, &key.to_be_bytes()).expect("get");
            assert!(found == Some(value(key, turn)), "{cut:?}: record {key} is not as it was");
        }
        assert_verified(&engine);
    }
}

#[test]
fn after_a_failed_sync_of_the_pages_nothing_relies_on_them() {
    let _watchdog = Watchdog::start("sync of the pages", Duration::from_secs(30));
    let device = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let engine = open(&device);
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    put_all(&session, &tree, 1);
    device.set_plan(FaultPlan::new(1).nth(Op::Sync, 1, UNSETTLED));
    // This checkpoint, or one of the background that is under way.
    let error = engine.checkpoint().expect_err("the sync fails");
    assert!(error.to_string().contains("sync"), "{error}");
    // What it was to make durable is lost, so the next one that succeeds proves nothing.
    let error = engine.checkpoint().expect_err("the engine has stopped");
    assert!(matches!(&error, Error::Poisoned(why) if why.contains("sync")), "{error:?}");
    assert!(matches!(session.begin().err(), Some(Error::Poisoned(_))), "nothing is begun any more");
    let found = session.get(&tree, &7u32.to_be_bytes()).expect("reading goes on");
    assert_eq!(found, Some(value(7, 1)));
    drop((session, tree));
    assert!(matches!(engine.close(), Err(Error::Poisoned(_))));
    assert_left(&device, 1);
}

#[test]
fn a_failed_sync_of_a_bulk_load_is_one_of_all_pages() {
    let _watchdog = Watchdog::start("sync of a bulk load", Duration::from_secs(30));
    let device = Arc::new(SimStorage::new(FaultPlan::new(2)));
    let engine = open(&device);
    let (tree, other) = (engine.tree("tree").expect("tree"), engine.tree("other").expect("tree"));
    let session = engine.session().expect("session");
    // More than the pool holds, so that some pages are on their way to the device.
    put_all(&session, &tree, 1);
    device.set_plan(FaultPlan::new(2).nth(Op::Sync, 1, UNSETTLED));
    let entries = (0..2000u32).map(|key| (key.to_be_bytes(), [1; 300]));
    session.bulk_load(&other, entries).expect_err("the sync fails");
    assert_eq!(session.scan(&other).expect("scan").count(), 0, "the tree is empty");
    assert!(matches!(engine.checkpoint(), Err(Error::Poisoned(_))), "the engine has stopped");
    drop((session, tree, other));
    assert!(matches!(engine.close(), Err(Error::Poisoned(_))));
    assert_left(&device, 1);
}
