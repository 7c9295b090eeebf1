//! A log that gets no further segment, for whatever reason: changes are refused, what began is
//! rolled back in the rest of the last segment, and everything goes on when there is room again.

use std::{
    io::{self, ErrorKind},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use wattle::{
    Durability, Engine, Error, IoKind, LOG_DIRECTORY, MIN_LOG_BYTES, Session, Tree,
    io::{Cut, Fault, FaultPlan, Op, SimStorage},
};
use wattle_buffer::PAGE_SIZE;
use wattle_tests::harness::{Asked, Device, Watchdog, assert_verified, eventually, small_pool};

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

/// The rollback of a transaction with large values needs more than the reserve: no further flush is
/// possible, a checkpoint neither begins nor ends, and no thread may wait forever.
#[test]
fn a_log_whose_reserve_is_used_up_fails_and_loses_nothing() {
    let watchdog = Watchdog::start("a log without a reserve", Duration::from_secs(30));
    let limit = MIN_LOG_BYTES + MIN_LOG_BYTES / 8;
    let sim = Arc::new(SimStorage::new(FaultPlan::new(1).log_limit(limit)));
    let engine = open(&sim);
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    put(&session, &tree, 0).expect("put");
    let stopped = loop {
        let mut txn = engine.begin().expect("begin");
        let mut key = 1u32;
        while txn.put(&tree, &key.to_be_bytes(), &[9; 100_000]).is_ok() {
            key += 1;
            assert!(key < 1000, "the log never ends");
        }
        let ended = txn.abort().and_then(|()| engine.sync());
        watchdog.step();
        match ended {
            Ok(()) | Err(Error::DiskFull { .. }) => {}
            Err(error) => break error,
        }
    };
    assert!(stopped.to_string().contains("no room for log segment"), "{stopped}");
    drop((session, tree, engine));
    let left = Arc::new(sim.crash_as(1, Cut::Nothing));
    left.heal();
    let engine = open(&left);
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    assert_eq!(session.scan(&tree).expect("scan").count(), 1);
    assert_eq!(session.get(&tree, &0u32.to_be_bytes()).expect("get"), Some(vec![0; 500]));
    drop((session, tree));
    assert_verified(&engine);
}

/// The device was full now and then.
fn assert_more_checkpoints_than_of_a_limit(engine: &Engine, log_bytes: u64) {
    let stats = engine.stats();
    let by_limit = stats.log_bytes / (log_bytes / 2);
    assert!(stats.checkpoints > by_limit, "{} and {by_limit} checkpoints", stats.checkpoints);
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
    for turn in 0..4_000u32 {
        put(&session, &tree, turn % 200).expect("it waits for the room that a checkpoint makes");
        watchdog.step();
    }
    assert_more_checkpoints_than_of_a_limit(&engine, 4 * MIN_LOG_BYTES);
    drop((session, tree));
    engine.close().expect("close");
    assert_verified(&Device::sim(&device).open(options).expect("open"));
}

/// When the log is full, the buffered records go into the rest of its segment: the checkpoint that
/// makes room waits for them.
#[test]
fn buffers_that_are_full_when_the_log_is_do_not_keep_it_from_being_shortened() {
    let watchdog = Watchdog::start("full buffers", Duration::from_secs(20));
    for bytes in [8 * MIN_LOG_BYTES, 32 * MIN_LOG_BYTES] {
        let device = Arc::new(SimStorage::new(FaultPlan::new(1).log_limit(bytes / 2)));
        let options = small_pool(1024).log_bytes(2 * bytes).durability(Durability::None);
        let engine = Device::sim(&device).open(options.clone()).expect("open");
        let tree = engine.tree("tree").expect("tree");
        std::thread::scope(|scope| {
            for number in 0..3u8 {
                let (engine, tree, watchdog) = (&engine, &tree, &watchdog);
                scope.spawn(move || {
                    let session = engine.session().expect("session");
                    for turn in 0..(bytes / 1024) as u32 {
                        let key = [&[number], &(turn % 200).to_be_bytes()[..]].concat();
                        session.put(tree, &key, &[turn as u8; 1500]).expect("it waits for room");
                        watchdog.step();
                    }
                });
            }
        });
        assert_more_checkpoints_than_of_a_limit(&engine, 2 * bytes);
        drop(tree);
        engine.close().expect("close");
        assert_verified(&Device::sim(&device).open(options).expect("open"));
    }
}

/// Sessions that get `DiskFull` end, and the reserve shrinks with their number.
#[test]
fn sessions_that_end_while_the_log_is_full_do_not_keep_it_full() {
    let _watchdog = Watchdog::start("sessions of a full log", Duration::from_secs(60));
    let limit = 20 * (4 * MIN_LOG_BYTES / 16);
    let device = Arc::new(SimStorage::new(FaultPlan::new(1).log_limit(limit)));
    let options = small_pool(1024).log_bytes(4 * MIN_LOG_BYTES).durability(Durability::Group);
    let engine = Device::sim(&device).open(options).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    let others: Vec<_> = (0..64).map(|_| engine.session().expect("session")).collect();
    for (session, key) in others.iter().zip(1000..) {
        put(session, &tree, key).expect("put");
    }
    // Keeps the log from being shortened.
    let mut txn = engine.begin().expect("begin");
    txn.put(&tree, b"first", b"change").expect("put");
    let error = (0..).find_map(|key| put(&session, &tree, key).err());
    assert!(matches!(error, Some(Error::DiskFull { .. })), "{error:?}");
    drop(others);
    std::thread::sleep(Duration::from_millis(300));
    // There is room for all of it.
    txn.abort().expect("abort");
    eventually("there is room", || put(&session, &tree, 5000).is_ok());
    drop((session, tree));
    assert_verified(&engine);
    engine.close().expect("close");
}

#[test]
fn a_store_whose_log_has_no_room_at_all_can_be_closed() {
    let watchdog = Watchdog::start("closing without room", Duration::from_secs(20));
    for segments in [4, 5] {
        let room = segments * (MIN_LOG_BYTES / 16);
        let device = Arc::new(SimStorage::new(FaultPlan::new(1).log_limit(room)));
        let options = small_pool(256).log_bytes(MIN_LOG_BYTES).durability(Durability::None);
        let engine = Device::sim(&device).open(options.clone()).expect("open");
        let tree = engine.tree("tree").expect("tree");
        engine.sync().expect("sync");
        let session = engine.session().expect("session");
        // The buffer of the session takes all of this, and the log does not: a flush waits for
        // room.
        for key in 0..300u32 {
            if let Err(error) = session.put(&tree, &key.to_be_bytes(), &[key as u8; 1500]) {
                assert!(matches!(error, Error::DiskFull { .. }), "{error:?}");
                break;
            }
        }
        drop((session, tree));
        // Whether there was room for all of it or not.
        if let Err(error) = engine.close() {
            let why = error.error();
            assert!(matches!(why, Error::Poisoned(why) if why.contains("no room")), "{error:?}");
        }
        watchdog.step();
        device.heal();
        let engine = Device::sim(&device).open(options).expect("open, with room");
        assert_eq!(engine.trees().expect("trees"), ["tree"]);
        assert_verified(&engine);
    }
}

/// Pages in memory, beside a log in files, on a device that is full for pages when somebody says
/// so; and how often it was.
fn crowded(is_full: impl Fn(u64) -> bool + Send + Sync + 'static) -> (Arc<Asked>, Arc<AtomicU64>) {
    let refused = Arc::new(AtomicU64::new(0));
    let count = refused.clone();
    let reserve = move |pages| {
        if is_full(pages) {
            count.fetch_add(1, Ordering::Relaxed);
            return Err(io::Error::new(ErrorKind::StorageFull, "no room for pages"));
        }
        Ok(())
    };
    (Arc::new(Asked { reserve: Box::new(reserve), ..Asked::nothing() }), refused)
}

/// Files in the directory of a log that are not segments.
fn spares(log: &Path) -> usize {
    let entries = std::fs::read_dir(log).expect("a directory");
    let names = entries.map(|entry| entry.expect("an entry").path());
    names.filter(|name| name.extension().is_none_or(|ending| ending != "log")).count()
}

#[test]
fn pages_get_the_room_that_the_log_only_keeps() {
    let watchdog = Watchdog::start("a crowded device", Duration::from_secs(20));
    let directory = tempfile::tempdir().expect("a directory");
    let mut device = Device::files(IoKind::Threads, directory.path());
    let log = directory.path().join(LOG_DIRECTORY);
    let directory_of_log = log.clone();
    // While there are files that the log only keeps.
    let (crowded, refused) = crowded(move |_| spares(&directory_of_log) > 1);
    device.pages = crowded;
    let engine = {
        let options = small_pool(256).log_bytes(MIN_LOG_BYTES).durability(Durability::Group);
        device.open(options).expect("open")
    };
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    let mut turn = 0;
    // The file that the next segment is being made of does not count.
    while spares(&log) < 4 {
        put(&session, &tree, turn % 50).expect("put");
        turn += 1;
        if turn % 500 == 0 {
            engine.checkpoint().expect("checkpoint");
        }
        watchdog.step();
        assert!(turn < 100_000, "the log keeps nothing");
    }
    let mut key = 1_000;
    while refused.load(Ordering::Relaxed) == 0 {
        put(&session, &tree, key).expect("there is room");
        key += 1;
        assert!(key < 100_000, "no page was ever needed");
    }
    for key in 1_000..key {
        let found = session.get(&tree, &key.to_be_bytes()).expect("get");
        assert_eq!(found, Some(vec![key as u8; 500]));
    }
    drop((session, tree));
    assert_verified(&engine);
    engine.close().expect("close");
    assert_eq!(spares(&log), 0, "a store that is closed keeps nothing");
}

#[test]
fn pages_get_the_room_that_a_checkpoint_makes() {
    let watchdog = Watchdog::start("a shared device", Duration::from_secs(20));
    let directory = tempfile::tempdir().expect("a directory");
    let mut device = Device::files(IoKind::Threads, directory.path());
    let log = directory.path().join(LOG_DIRECTORY);
    // Ten times the least log, for pages and log together.
    let (crowded, refused) = crowded(move |pages| {
        let files = std::fs::read_dir(&log).expect("a directory");
        let bytes = |file: io::Result<std::fs::DirEntry>| Ok(file?.metadata()?.len());
        // One that is gone meanwhile takes no room.
        let bytes: u64 = files.map(bytes).map(|bytes: io::Result<u64>| bytes.unwrap_or(0)).sum();
        bytes + pages * PAGE_SIZE as u64 > 10 * MIN_LOG_BYTES
    });
    device.pages = crowded;
    let options = small_pool(256).log_bytes(8 * MIN_LOG_BYTES).durability(Durability::None);
    let engine = device.open(options).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    // The pages need all but what the least log needs.
    let records = (5 * MIN_LOG_BYTES / 1500) as u32;
    for key in 0..records {
        session.put(&tree, &key.to_be_bytes(), &[key as u8; 1200]).expect("there is room");
        watchdog.step();
    }
    assert!(refused.load(Ordering::Relaxed) > 0, "the device was never full");
    assert_eq!(session.scan(&tree).expect("scan").count() as u32, records);
    // And then they need more.
    let error = (records..100 * records)
        .find_map(|key| session.put(&tree, &key.to_be_bytes(), &[key as u8; 1200]).err());
    assert!(matches!(error, Some(Error::DiskFull { .. })), "{error:?}");
    drop((session, tree));
    assert_verified(&engine);
    engine.close().expect("close");
}

/// Open transactions are then rolled back, and that takes more log.
#[test]
fn a_store_that_finds_no_room_for_its_recovery_says_so() {
    let watchdog = Watchdog::start("recovery without room", Duration::from_secs(20));
    let full = FaultPlan::new(1).log_limit(12 * (MIN_LOG_BYTES / 16));
    let device = Arc::new(SimStorage::new(full.clone()));
    let engine = open(&device);
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    for key in 0..200 {
        put(&session, &tree, key).expect("put");
    }
    engine.checkpoint().expect("checkpoint");
    let mut txn = engine.begin().expect("begin");
    let error = (0..2_000u32)
        .find_map(|turn| txn.put(&tree, &(turn % 200).to_be_bytes(), &[turn as u8; 700]).err());
    assert!(matches!(error, Some(Error::DiskFull { .. })), "{error:?}");
    engine.sync().expect("sync");
    let left = Arc::new(device.crash(1));
    txn.abort().expect("abort");
    drop((session, tree));
    // Nor does it while the store is closed, unless what was in reserve for the session is enough.
    if let Err(error) = engine.close() {
        let error = error.to_string();
        assert!(error.contains("no room for log segment"), "{error}");
    }
    left.set_plan(full);
    let options = small_pool(256).log_bytes(MIN_LOG_BYTES);
    for _ in 0..2 {
        watchdog.step();
        let error = Device::sim(&left).open(options.clone()).err();
        // The first one still found room to begin.
        let error = error.expect("there is no room").to_string();
        assert!(error.contains("log segment") && error.contains("all used"), "{error}");
    }
    left.heal();
    let engine = open(&left);
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    for key in 0..200u32 {
        let found = session.get(&tree, &key.to_be_bytes()).expect("get");
        assert_eq!(found, Some(vec![key as u8; 500]), "record {key}");
    }
    drop((session, tree));
    assert_verified(&engine);
}

/// An engine whose log has no more room because of a transaction that is open, and which has no
/// other.
fn full_because_of_a_transaction(then: impl FnOnce(&Engine, &Tree)) {
    let device = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let options = small_pool(200).log_bytes(MIN_LOG_BYTES).stall_timeout(Duration::from_millis(30));
    let engine = Device::sim(&device).open(options).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let (one, two) = (engine.session().expect("session"), engine.session().expect("session"));
    put(&one, &tree, 0).expect("put");
    device.set_plan(FaultPlan::new(1).log_limit(2_400_000));
    let mut open = one.begin().expect("begin");
    open.put(&tree, b"open", b"v").expect("put");
    let refused = (1..).find_map(|key| put(&two, &tree, key).err());
    assert!(matches!(refused, Some(Error::DiskFull { .. })), "{refused:?}");
    then(&engine, &tree);
    open.abort().expect("abort");
    eventually("the log has room again", || put(&two, &tree, 1).is_ok());
    assert_verified(&engine);
}

/// Those who are refused, and roll back, again and again, take nothing of the room that the log
/// keeps.
#[test]
fn changes_that_a_full_log_refuses_do_not_keep_it_full() {
    let watchdog = Watchdog::start("changes of a full log", Duration::from_secs(60));
    full_because_of_a_transaction(|engine, tree| {
        let session = engine.session().expect("session");
        for _ in 0..300 {
            let mut txn = session.begin().expect("begin");
            let refused = txn.put(tree, b"other", &[1; 100]);
            assert!(matches!(refused, Err(Error::DiskFull { .. })), "{refused:?}");
            txn.abort().expect("abort");
            engine.sync().expect("sync");
            watchdog.step();
        }
    });
}

/// Nor do requests for checkpoints that cannot shorten it.
#[test]
fn checkpoints_of_a_full_log_do_not_keep_it_full() {
    let watchdog = Watchdog::start("checkpoints of a full log", Duration::from_secs(60));
    full_because_of_a_transaction(|engine, _| {
        for _ in 0..400 {
            let refused = engine.checkpoint();
            assert!(matches!(refused, Err(Error::DiskFull { .. })), "{refused:?}");
            watchdog.step();
        }
    });
}
