//! A log that gets no further segment, for whatever reason: changes are refused, what began is rolled
//! back in the rest of the last segment, and everything goes on when there is room again.

use std::{
    io::ErrorKind,
    sync::Arc,
    time::{Duration, Instant},
};
use wattle::{
    Durability, Engine, Error, MIN_LOG_BYTES, Session, Tree,
    io::{Cut, Fault, FaultPlan, Op, SimStorage},
};
use wattle_tests::harness::{Device, Watchdog, assert_verified, small_pool};

fn open(device: &Arc<SimStorage>) -> Engine {
    let options = small_pool(256).log_bytes(MIN_LOG_BYTES).durability(Durability::Group);
    Device::sim(device).open(options).expect("open")
}

fn put(session: &Session, tree: &Tree, key: u32) -> Result<(), Error> {
    session.put(tree, &key.to_be_bytes(), &[key as u8; 500])
}

#[test]
fn a_log_that_cannot_grow_refuses_changes_and_lets_transactions_roll_back() {
    for kind in [ErrorKind::StorageFull, ErrorKind::Other, ErrorKind::PermissionDenied] {
        for fault in [Fault::Error(kind), Fault::Unsettled(kind)] {
            let watchdog = Watchdog::start("a log without room", Duration::from_secs(20));
            let device = Arc::new(SimStorage::new(FaultPlan::new(1)));
            let engine = open(&device);
            let tree = engine.tree("tree").expect("tree");
            let session = engine.session().expect("session");
            put(&session, &tree, 0).expect("put");
            let mut txn = engine.begin().expect("begin");
            for key in 0..20u32 {
                txn.put(&tree, &key.to_be_bytes(), b"to be taken back").expect("put");
            }
            device.set_plan(FaultPlan::new(1).always(Op::LogCreate, fault));
            let mut key = 100;
            let error = loop {
                match put(&session, &tree, key) {
                    Ok(()) => key += 1,
                    Err(error) => break error,
                }
                watchdog.step();
                assert!(key < 10_000, "the log never ends");
            };
            let full = matches!(error, Error::DiskFull { .. });
            assert_eq!(full, kind == ErrorKind::StorageFull, "{error:?}");
            let says = error.to_string();
            assert!(says.contains("make log segment") && says.contains("injected"), "{says}");
            txn.abort().unwrap_or_else(|error| panic!("{fault:?}: {error}"));
            let found = session.get(&tree, &0u32.to_be_bytes()).expect("get");
            assert_eq!(found, Some(vec![0; 500]), "it was taken back");
            device.heal();
            let since = Instant::now();
            while let Err(error) = put(&session, &tree, key) {
                assert!(since.elapsed() < Duration::from_secs(10), "{error}");
                std::thread::sleep(Duration::from_millis(5));
            }
            drop((session, tree));
            // Before and after it is closed.
            let left = Arc::new(device.crash_as(1, Cut::Nothing));
            engine.close().expect("close");
            for device in [left, device] {
                let engine = open(&device);
                let tree = engine.tree("tree").expect("tree");
                let session = engine.session().expect("session");
                for key in [0].into_iter().chain(100..=key) {
                    let found = session.get(&tree, &key.to_be_bytes()).expect("get");
                    assert_eq!(found, Some(vec![key as u8; 500]), "{fault:?}: record {key}");
                }
                assert_eq!(session.scan(&tree).expect("scan").count() as u32, key - 98);
                drop((session, tree));
                assert_verified(&engine);
            }
        }
    }
}

#[test]
fn a_log_that_fills_its_device_is_shortened_by_a_checkpoint_before_its_limit() {
    let watchdog = Watchdog::start("a small device", Duration::from_secs(20));
    // A quarter of what the log may take.
    let device = Arc::new(SimStorage::new(FaultPlan::new(1).log_limit(MIN_LOG_BYTES)));
    let options = small_pool(256).log_bytes(4 * MIN_LOG_BYTES).durability(Durability::Group);
    let engine = Device::sim(&device).open(options.clone()).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    let mut refused = 0;
    for turn in 0..4_000u32 {
        let since = Instant::now();
        while let Err(error) = put(&session, &tree, turn % 200) {
            assert!(matches!(error, Error::DiskFull { .. }), "{error:?}");
            let waited = since.elapsed();
            assert!(waited < Duration::from_secs(10), "after {turn} changes: {error}");
            refused += 1;
            std::thread::sleep(Duration::from_millis(1));
        }
        watchdog.step();
    }
    let stats = engine.stats();
    assert!(refused > 0 && stats.checkpoints > 0, "refused {refused} times");
    drop((session, tree));
    engine.close().expect("close");
    assert_verified(&Device::sim(&device).open(options).expect("open"));
}

#[test]
fn a_store_whose_log_has_no_room_at_all_can_be_closed() {
    let watchdog = Watchdog::start("closing without room", Duration::from_secs(20));
    for segments in [2, 3] {
        let room = segments * (MIN_LOG_BYTES / 16);
        let device = Arc::new(SimStorage::new(FaultPlan::new(1).log_limit(room)));
        let options = small_pool(256).log_bytes(MIN_LOG_BYTES).durability(Durability::None);
        let engine = Device::sim(&device).open(options.clone()).expect("open");
        let tree = engine.tree("tree").expect("tree");
        engine.sync().expect("sync");
        let session = engine.session().expect("session");
        // The buffer of the session takes all of this, and the log does not: a flush waits for room.
        for key in 0..300u32 {
            if let Err(error) = session.put(&tree, &key.to_be_bytes(), &[key as u8; 1500]) {
                assert!(matches!(error, Error::DiskFull { .. }), "{error:?}");
                break;
            }
        }
        drop((session, tree));
        // Whether there was room for all of it or not.
        if let Err(error) = engine.close() {
            assert!(matches!(&error, Error::Poisoned(why) if why.contains("no room")), "{error:?}");
        }
        watchdog.step();
        device.heal();
        let engine = Device::sim(&device).open(options).expect("open, with room");
        assert_eq!(engine.trees().expect("trees"), ["tree"]);
        assert_verified(&engine);
    }
}
