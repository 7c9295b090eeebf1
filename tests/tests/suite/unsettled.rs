//! Devices that fail after the fact: a sync that fails and loses what it was to make durable, a
//! segment of the log that is there although making it failed. Nothing shows this until the power
//! is cut, and then nothing that was acknowledged may be missing.

use std::{io::ErrorKind, sync::Arc, time::Duration};
use wattle::{
    Engine, Error, MIN_LOG_BYTES, Options, Session, Tree,
    io::{Cut, Fault, FaultPlan, Op, SimStorage},
};
use wattle_tests::harness::{Device, Watchdog, assert_verified, rounds, small_pool};

/// Keys of the records.
const RECORDS: std::ops::Range<u32> = 0..150;

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
    for key in RECORDS {
        session.put(tree, &key.to_be_bytes(), &value(key, turn)).expect("put");
    }
}

/// After power cuts of several kinds the store has all records of a turn.
fn assert_left(device: &SimStorage, turn: u32) {
    for (seed, cut) in [(1, Cut::Nothing), (2, Cut::Sectors), (3, Cut::Prefix), (4, Cut::All)] {
        let left = Arc::new(device.crash_as(seed, cut));
        let engine = open(&left);
        let tree = engine.open_tree("tree").expect("open a tree").expect("it was there");
        let session = engine.session().expect("session");
        for key in RECORDS {
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
    // The data of the failed sync are lost, so a later sync that succeeds proves nothing.
    let error = engine.checkpoint().expect_err("the engine has stopped");
    assert!(matches!(&error, Error::Poisoned(why) if why.contains("sync")), "{error:?}");
    assert!(matches!(session.begin().err(), Some(Error::Poisoned(_))), "a transaction began");
    let key = 7u32.to_be_bytes();
    for changed in [
        session.put(&tree, &key, b"more").err(),
        session.remove(&tree, &key).err(),
        session.modify(&tree, &key, |value| value[0] = 0).err(),
    ] {
        assert!(matches!(changed, Some(Error::Poisoned(_))), "nor changed: {changed:?}");
    }
    let found = session.get(&tree, &key).expect("what is in memory is right");
    assert_eq!(found, Some(value(7, 1)));
    drop((session, tree));
    assert!(matches!(engine.close().map_err(Error::from), Err(Error::Poisoned(_))));
    assert_left(&device, 1);
}

#[test]
fn an_engine_whose_log_failed_gives_its_memory_back_with_all_transactions() {
    let _watchdog = Watchdog::start("log with a transaction", Duration::from_secs(30));
    let device = Arc::new(SimStorage::new(FaultPlan::new(2)));
    let engine = open(&device);
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    put_all(&session, &tree, 1);
    let mut txn = session.begin().expect("begin");
    txn.put(&tree, b"key", b"value").expect("put");
    device.set_plan(FaultPlan::new(2).always(Op::LogWrite, Fault::Error(ErrorKind::Other)));
    engine.sync().expect_err("the log cannot be written");
    // It can no longer be rolled back.
    drop(txn);
    drop((session, tree));
    assert!(matches!(engine.close().map_err(Error::from), Err(Error::Poisoned(_))));
    assert_eq!(Arc::strong_count(&device), 1, "the pool is still there");
}

#[test]
fn pages_that_may_be_lost_are_not_read_again() {
    let _watchdog = Watchdog::start("pages after a failed sync", Duration::from_secs(30));
    // The sync of the pages, of the bitmaps, of the superblock.
    for sync in 1..=3 {
        pages_are_not_read_again_after(sync);
    }
}

/// Which of the syncs of the store fails; the background may be in the middle of a checkpoint.
fn pages_are_not_read_again_after(sync: u64) {
    let device = Arc::new(SimStorage::new(FaultPlan::new(5)));
    let engine = open(&device);
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    const MANY: u32 = 2_000;
    for key in 0..MANY {
        session.put(&tree, &key.to_be_bytes(), &value(key, 3)).expect("put");
    }
    let mut txn = session.begin().expect("begin");
    for key in 0..MANY {
        // As large as before: the tree stays larger than the pool.
        txn.put(&tree, &key.to_be_bytes(), &value(key, 4)).expect("put");
    }
    device.set_plan(FaultPlan::new(5).nth(Op::Sync, sync, UNSETTLED));
    engine.checkpoint().expect_err("the sync fails");
    // Pages in memory are correct. Pages on the device could be stale.
    let (mut right, mut refused) = (0, 0);
    for key in 0..MANY {
        match session.get(&tree, &key.to_be_bytes()) {
            Ok(found) => {
                assert!(found == Some(value(key, 3)), "record {key}");
                right += 1;
            }
            Err(Error::Poisoned(why)) => {
                assert!(why.contains("may be lost"), "{why}");
                refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(right > 0 && refused > 0, "sync {sync}: {right} right, {refused} refused");
    assert!(matches!(txn.abort(), Err(Error::Poisoned(_))), "recovery takes it back");
    drop((session, tree));
    assert!(matches!(engine.close().map_err(Error::from), Err(Error::Poisoned(_))));
    let left = Arc::new(device.crash_as(1, Cut::Nothing));
    let engine = open(&left);
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    for key in 0..MANY {
        let found = session.get(&tree, &key.to_be_bytes()).expect("get");
        assert!(found == Some(value(key, 3)), "record {key}");
    }
    drop((session, tree));
    assert_verified(&engine);
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
    assert!(matches!(engine.close().map_err(Error::from), Err(Error::Poisoned(_))));
    assert_left(&device, 1);
}

/// Every operation of the device, and whether it can fail after the fact.
const OPERATIONS: [(Op, bool); 9] = [
    (Op::Read, false),
    (Op::Write, false),
    (Op::Sync, true),
    (Op::Reserve, false),
    (Op::LogRead, false),
    (Op::LogWrite, false),
    (Op::LogSync, true),
    (Op::LogCreate, true),
    (Op::LogRemove, true),
];

/// Opens copies of a device, each with another operation that fails. Whatever happens, the store
/// opens afterwards, and after a power cut. Gives how many failures there were.
fn open_with_each_failure(
    copy: &dyn Fn() -> SimStorage,
    check: &dyn Fn(Arc<SimStorage>, &str),
    watchdog: &Watchdog,
) -> u32 {
    let mut failures = 0;
    for (op, unsettles) in OPERATIONS {
        let faults = [Fault::Error(ErrorKind::Other), UNSETTLED];
        for fault in &faults[..1 + usize::from(unsettles)] {
            let mut n = 0;
            loop {
                // The first ones, and some of the others.
                n += 1 + n / (2 * rounds());
                let what = format!("{op:?} {n}: {fault:?}");
                let device = Arc::new(copy());
                let before = device.counters().faults;
                device.set_plan(FaultPlan::new(1).nth(op, n, *fault));
                let opened = Device::sim(&device).open(options());
                watchdog.step();
                if device.counters().faults == before {
                    assert!(opened.is_ok(), "{what}: {:?}", opened.err());
                    break;
                }
                failures += 1;
                device.heal();
                if let Err(error) = opened {
                    let says = error.to_string();
                    let clear = says.contains("injected") && says.len() > 40;
                    assert!(clear, "{what}: {says}");
                    // Neither threads nor the pool of the attempt are left.
                    assert_eq!(Arc::strong_count(&device), 1, "{what}: {says}");
                }
                for seed in 0..2 {
                    check(Arc::new(device.crash(seed)), &what);
                }
                check(device, &what);
            }
        }
    }
    failures
}

#[test]
fn a_store_can_be_created_whatever_failed_at_the_first_attempt() {
    let watchdog = Watchdog::start("creation", Duration::from_secs(30));
    let failures = open_with_each_failure(
        &|| SimStorage::new(FaultPlan::new(1)),
        &|device, what| {
            let engine = Device::sim(&device).open(options());
            let engine = engine.unwrap_or_else(|error| panic!("{what}: {error}"));
            engine.tree("tree").unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_verified(&engine);
        },
        &watchdog,
    );
    assert!(failures > 15, "{failures} failures");
}

/// A store whose process was killed: records of turn 4, and a transaction that had not ended.
fn killed() -> SimStorage {
    let device = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let engine = open(&device);
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    for turn in 1..5 {
        put_all(&session, &tree, turn);
    }
    let mut txn = engine.begin().expect("begin");
    for key in 100..150u32 {
        txn.put(&tree, &key.to_be_bytes(), b"to be rolled back").expect("put");
    }
    engine.sync().expect("sync");
    device.crash_as(1, Cut::Process)
}

/// The store opens, with all records of turn 4; one of them may have a later value.
fn assert_recovers(device: &Arc<SimStorage>, what: &str) {
    let engine = Device::sim(device).open(options());
    let engine = engine.unwrap_or_else(|error| panic!("{what}: {error}"));
    let tree = engine.open_tree("tree").expect("open a tree").expect(what);
    let session = engine.session().expect("session");
    for key in RECORDS {
        let found = session.get(&tree, &key.to_be_bytes()).expect("get");
        let later = key == 7 && found == Some(value(key, 5));
        assert!(later || found == Some(value(key, 4)), "{what}: record {key} is not as it was");
    }
    drop((session, tree));
    assert_verified(&engine);
}

#[test]
fn a_store_can_be_recovered_whatever_failed_at_the_first_attempt() {
    let watchdog = Watchdog::start("recovery", Duration::from_secs(30));
    let killed = killed();
    let copy = || killed.crash_as(1, Cut::Process);
    let check = |device, what: &str| assert_recovers(&device, what);
    let failures = open_with_each_failure(&copy, &check, &watchdog);
    assert!(failures > 30, "{failures} failures");
}

#[test]
fn a_flush_whose_sync_failed_is_written_again_before_pages_follow_it() {
    let watchdog = Watchdog::start("failed sync", Duration::from_secs(30));
    let device = Arc::new(killed());
    let engine = open(&device);
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    device.set_plan(FaultPlan::new(1).nth(Op::LogSync, 1, UNSETTLED));
    let error = session.put(&tree, &7u32.to_be_bytes(), &value(7, 5)).expect_err("the sync fails");
    assert!(matches!(error, Error::CommitUnknown(_)), "{error:?}");
    drop((session, tree));
    engine.close().expect_err("the log has failed");
    // The next process reads the flush, which is not on the device, and no sync will bring it
    // there.
    let copy = || device.crash_as(1, Cut::Process);
    let check = |device, what: &str| assert_recovers(&device, what);
    let failures = open_with_each_failure(&copy, &check, &watchdog);
    assert!(failures > 20, "{failures} failures");
}
